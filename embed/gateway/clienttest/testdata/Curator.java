import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Holds Curator's locks, leases and leaderships for the process that started this one, as lock_kazoo.py
 * does with kazoo's.
 *
 * usage: Curator TIMEOUT-MS HOST:PORT,HOST:PORT,...
 *
 * It prints "ready" when its clients are connected. "N WHAT PATH" lets contender N wait, and "N held" says
 * that it holds. "N end" releases, and "N free" answers. WHAT is one of:
 *
 *   lock         InterProcessMutex
 *   revocable    the same, not released before somebody has asked for it
 *   read, write  InterProcessReadWriteLock
 *   K/LIMIT      K leases of an InterProcessSemaphoreV2
 *   alone        InterProcessSemaphoreMutex
 *   latch        LeaderLatch
 *   select       LeaderSelector
 *   revoke       asks the holder of a mutex for it
 *
 * The clients of the contenders are spread over the servers. All end with the input.
 */
public class Curator {
    interface Step {
        void run() throws Exception;
    }

    static synchronized void say(String n, String what) {
        System.out.println(n + " " + what);
    }

    /** A contender, whose locks belong to a thread. */
    static class Contender {
        final ExecutorService thread = Executors.newSingleThreadExecutor(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        final String n;
        final CuratorFramework client;
        private Step end;

        Contender(String n, CuratorFramework client) {
            this.n = n;
            this.client = client;
        }

        void run(String what, Step step) {
            thread.execute(() -> {
                try {
                    step.run();
                    say(n, what);
                } catch (Exception e) {
                    say(n, e.toString());
                }
            });
        }

        void begin(String what, String path) throws Exception {
            switch (what) {
                case "lock":
                    take(new InterProcessMutex(client, path));
                    break;
                case "revocable":
                    InterProcessMutex revocable = new InterProcessMutex(client, path);
                    CountDownLatch asked = new CountDownLatch(1);
                    revocable.makeRevocable(l -> asked.countDown());
                    revocable.acquire();
                    end = () -> {
                        asked.await();
                        revocable.release();
                    };
                    break;
                case "revoke":
                    client.sync().forPath(path); // a client's calls are answered in order
                    Revoker.attemptRevoke(client, new InterProcessMutex(client, path).getParticipantNodes().iterator().next());
                    break;
                case "read":
                    take(new InterProcessReadWriteLock(client, path).readLock());
                    break;
                case "write":
                    take(new InterProcessReadWriteLock(client, path).writeLock());
                    break;
                case "alone":
                    InterProcessSemaphoreMutex alone = new InterProcessSemaphoreMutex(client, path);
                    alone.acquire();
                    end = alone::release;
                    break;
                case "latch":
                    LeaderLatch latch = new LeaderLatch(client, path, "Curator");
                    latch.start();
                    latch.await();
                    end = latch::close;
                    break;
                case "select":
                    select(path);
                    break;
                default:
                    String[] parts = what.split("/");
                    InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, Integer.parseInt(parts[1]));
                    Collection<Lease> leases = semaphore.acquire(Integer.parseInt(parts[0]));
                    end = () -> semaphore.returnAll(leases);
            }
        }

        private void take(InterProcessMutex lock) throws Exception {
            lock.acquire();
            end = lock::release;
        }

        private void select(String path) throws Exception {
            CountDownLatch leads = new CountDownLatch(1), stop = new CountDownLatch(1);
            LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    leads.countDown();
                    stop.await();
                }
            });
            selector.setId("Curator");
            selector.start();
            leads.await();
            end = stop::countDown; // it releases its mutex by itself
        }
    }

    public static void main(String[] args) throws Exception {
        String[] hosts = args[1].split(",");
        CuratorFramework[] clients = new CuratorFramework[hosts.length];
        for (int i = 0; i < hosts.length; i++) {
            clients[i] = CuratorFrameworkFactory.newClient(hosts[i], Integer.parseInt(args[0]), 10_000, new ExponentialBackoffRetry(50, 10));
            clients[i].start();
            clients[i].blockUntilConnected();
        }
        System.out.println("ready");
        Map<String, Contender> contenders = new HashMap<>();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            Contender c = contenders.computeIfAbsent(words[0], n -> new Contender(n, clients[Integer.parseInt(n) % clients.length]));
            if (words[1].equals("end")) {
                c.run("free", () -> c.end.run());
            } else {
                c.run("held", () -> c.begin(words[1], words[2]));
            }
        }
        for (CuratorFramework c : clients) {
            c.close();
        }
    }
}
