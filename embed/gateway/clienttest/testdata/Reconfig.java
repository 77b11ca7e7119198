import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ConfigureEnsembleable;
import org.apache.curator.framework.api.ReconfigBuilder;
import org.apache.curator.framework.api.Statable;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.Stat;

/**
 * Reads and changes the members with ZooKeeperAdmin or with Curator, as the process asks that started it.
 * reconfig_test.go has the language.
 *
 * usage: Reconfig admin|curator
 */
public class Reconfig {
    static final int TIMEOUT = 20_000;

    interface Client {
        void connect(String servers) throws Exception;

        void auth(byte[] who) throws Exception;

        byte[] config(Watcher watcher, Stat stat) throws Exception;

        /** Returns the servers that the client connects to from now on. */
        String follow(String servers) throws Exception;

        byte[] reconfig(String joining, String leaving, String members, long version, Stat stat) throws Exception;

        void close() throws Exception;
    }

    static class Admin implements Client {
        private ZooKeeperAdmin client;

        @Override
        public void connect(String servers) throws Exception {
            close();
            client = new ZooKeeperAdmin(servers, TIMEOUT, e -> { });
            while (client.getState() != ZooKeeper.States.CONNECTED) {
                Thread.sleep(5);
            }
        }

        @Override
        public void auth(byte[] who) {
            client.addAuthInfo("digest", who);
        }

        @Override
        public byte[] config(Watcher watcher, Stat stat) throws Exception {
            return watcher == null ? client.getConfig(false, stat) : client.getConfig(watcher, stat);
        }

        @Override
        public String follow(String servers) throws Exception {
            client.updateServerList(servers);
            while (true) {
                try {
                    client.exists("/", false);
                    return servers;
                } catch (KeeperException.ConnectionLossException e) {
                    Thread.sleep(5); // it is moving
                }
            }
        }

        @Override
        public byte[] reconfig(String joining, String leaving, String members, long version, Stat stat) throws Exception {
            return client.reconfigure(joining, leaving, members, version, stat);
        }

        @Override
        public void close() throws Exception {
            if (client != null) {
                client.close();
            }
        }
    }

    /** Its EnsembleTracker follows the servers without being asked to. */
    static class Curator implements Client {
        private CuratorFramework client;
        private String servers;

        @Override
        public void connect(String servers) throws Exception {
            close();
            this.servers = servers;
            client = builder().build();
            client.start();
            client.blockUntilConnected();
        }

        /** It tries everything once, because the answers to the first try count. */
        private CuratorFrameworkFactory.Builder builder() {
            return CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(TIMEOUT).retryPolicy(new RetryNTimes(0, 0));
        }

        /** A client has its identity from the start, so another client takes its place. */
        @Override
        public void auth(byte[] who) throws Exception {
            close();
            client = builder().authorization("digest", who).build();
            client.start();
            client.blockUntilConnected();
        }

        @Override
        public byte[] config(Watcher watcher, Stat stat) throws Exception {
            return watcher == null ? client.getConfig().storingStatIn(stat).forEnsemble()
                : client.getConfig().storingStatIn(stat).usingWatcher(watcher).forEnsemble();
        }

        @Override
        public String follow(String servers) throws Exception {
            while (true) {
                String known = client.getZookeeperClient().getCurrentConnectionString();
                if (sorted(known).equals(sorted(servers))) {
                    client.checkExists().forPath("/");
                    return known;
                }
                Thread.sleep(5);
            }
        }

        private static TreeSet<String> sorted(String servers) {
            return new TreeSet<>(Arrays.asList(servers.split(",")));
        }

        @Override
        public byte[] reconfig(String joining, String leaving, String members, long version, Stat stat) throws Exception {
            ReconfigBuilder r = client.reconfig();
            Statable<ConfigureEnsembleable> change;
            if (members != null) {
                change = r.withNewMembers(list(members));
            } else if (joining != null && leaving != null) {
                change = r.joining(list(joining)).leaving(list(leaving));
            } else if (joining != null) {
                change = r.joining(list(joining));
            } else {
                change = r.leaving(list(leaving));
            }
            return change.storingStatIn(stat).fromConfig(version).forEnsemble();
        }

        private static List<String> list(String servers) {
            return Arrays.asList(servers.split(","));
        }

        @Override
        public void close() {
            if (client != null) {
                client.close();
            }
        }
    }

    private final Client client;
    private final BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();

    Reconfig(Client client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        Reconfig r = new Reconfig(args[0].equals("admin") ? new Admin() : new Curator());
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(r.answer(lines.nextLine().split("\t", -1)));
        }
        r.client.close();
    }

    private String answer(String[] words) throws Exception {
        try {
            switch (words[0]) {
                case "connect":
                    client.connect(words[1]);
                    return "0";
                case "auth":
                    client.auth(words[1].getBytes(StandardCharsets.UTF_8));
                    return "0";
                case "config":
                case "watch":
                    Stat stat = new Stat();
                    return answer(client.config(words[0].equals("watch") ? this::told : null, stat), stat);
                case "event":
                    WatchedEvent event = events.take();
                    return "0\t" + event.getType().getIntValue() + "\t" + event.getPath();
                case "follow":
                    return "0\t" + client.follow(words[1]);
                case "reconfig":
                    Stat changed = new Stat();
                    return answer(client.reconfig(text(words[1]), text(words[2]), text(words[3]), Long.parseLong(words[4]), changed), changed);
                default:
                    return "cannot";
            }
        } catch (KeeperException e) {
            return Integer.toString(e.code().intValue());
        }
    }

    private void told(WatchedEvent event) {
        if (event.getType() != Watcher.Event.EventType.None) {
            events.add(event);
        }
    }

    private static String text(String word) {
        return word.equals("-") ? null : word;
    }

    private static String answer(byte[] config, Stat stat) {
        return "0\t" + stat.getMzxid() + "\t" + stat.getVersion() + "\t" + new String(config, StandardCharsets.UTF_8).replace('\n', '|');
    }
}
