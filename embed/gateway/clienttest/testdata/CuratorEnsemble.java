import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Follows the servers with Curator's EnsembleTracker, which reads /zookeeper/config and watches it. Then it removes a
 * server.
 *
 * usage: CuratorEnsemble HOST:PORT SERVERS ID
 *
 * It connects to one server, waits until it knows SERVERS servers, and prints their addresses. Then it removes the
 * server with the ID, waits until it knows one less, and prints them again.
 */
public class CuratorEnsemble {
    public static void main(String[] args) throws Exception {
        int servers = Integer.parseInt(args[1]);
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(args[0]).sessionTimeoutMs(20_000)
            .retryPolicy(new ExponentialBackoffRetry(200, 10)).authorization("digest", "super:test".getBytes()).ensembleTracker(true).build();
        client.start();
        client.blockUntilConnected();
        known(client, servers);
        byte[] config = client.reconfig().leaving(args[2]).forEnsemble();
        System.out.println("removed: " + !new String(config, StandardCharsets.UTF_8).contains("server." + args[2] + "="));
        known(client, servers - 1);
        client.checkExists().forPath("/"); // it can still reach somebody
        client.close();
    }

    private static void known(CuratorFramework client, int servers) throws Exception {
        for (;;) {
            String[] addresses = client.getZookeeperClient().getCurrentConnectionString().split(",");
            if (addresses.length == servers) {
                Arrays.sort(addresses);
                System.out.println("known: " + String.join(",", addresses));
                return;
            }
            Thread.sleep(50);
        }
    }
}
