import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Holds Curator's locks on behalf of whoever started this, as lock_kazoo.py does kazoo's.
 *
 * usage: Curator PATH HOST:PORT,HOST:PORT,...
 *
 * "N lock" begins to wait for the path's InterProcessMutex as contender N, who is told by "N held"; "N unlock" is answered "N free".
 * "N lead" and "N resign" are the same with a LeaderLatch on the path. All end with the input.
 */
public class Curator {
    static synchronized void say(String n, String what) {
        System.out.println(n + " " + what);
    }

    public static void main(String[] args) throws Exception {
        String path = args[0];
        String[] hosts = args[1].split(",");
        CuratorFramework[] clients = new CuratorFramework[hosts.length];
        for (int i = 0; i < hosts.length; i++) {
            clients[i] = CuratorFrameworkFactory.newClient(hosts[i], 10_000, 10_000, new ExponentialBackoffRetry(50, 10));
            clients[i].start();
            clients[i].blockUntilConnected();
        }
        Map<String, ExecutorService> threads = new HashMap<>(); // a mutex belongs to the thread that holds it
        Map<String, InterProcessMutex> locks = new HashMap<>();
        Map<String, LeaderLatch> latches = new HashMap<>();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNext()) {
            String n = lines.next(), what = lines.next();
            if (!locks.containsKey(n)) {
                CuratorFramework client = clients[Integer.parseInt(n) % clients.length];
                threads.put(n, Executors.newSingleThreadExecutor(r -> {
                    Thread t = new Thread(r);
                    t.setDaemon(true);
                    return t;
                }));
                locks.put(n, new InterProcessMutex(client, path));
                latches.put(n, new LeaderLatch(client, path, n));
            }
            threads.get(n).execute(() -> {
                try {
                    switch (what) {
                        case "lock":
                            locks.get(n).acquire();
                            say(n, "held");
                            break;
                        case "unlock":
                            locks.get(n).release();
                            say(n, "free");
                            break;
                        case "lead":
                            latches.get(n).start();
                            latches.get(n).await();
                            say(n, "leads");
                            break;
                        case "resign":
                            latches.get(n).close();
                            say(n, "resigned");
                            break;
                    }
                } catch (Exception e) {
                    say(n, e.toString());
                }
            });
        }
        for (CuratorFramework c : clients) {
            c.close();
        }
    }
}
