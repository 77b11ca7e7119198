import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/**
 * Prints what Java's client does with canBeReadOnly, with a quorum, without one, and with one again. A line that
 * begins with @ is a request to the process that started this one, as in readonly_kazoo.py.
 *
 * usage: ReadOnly HOST:PORT,HOST:PORT,HOST:PORT
 */
public class ReadOnly {
    static final int TIMEOUT = 15_000;
    static final Scanner in = new Scanner(System.in);
    static BlockingQueue<KeeperState> states;

    interface Call {
        Object call() throws Exception;
    }

    static void say(String s) {
        System.out.println(s);
        System.out.flush();
    }

    static void ask(String what) {
        say("@" + what);
        if (!in.nextLine().equals("ok")) {
            throw new IllegalStateException(what + ": refused");
        }
    }

    static void show(String label, Call c) {
        try {
            say(label + ": " + c.call());
        } catch (KeeperException e) {
            say(label + " ! " + e.code());
        } catch (Exception e) {
            say(label + " ! " + e);
        }
    }

    static ZooKeeper open(String servers, boolean canBeReadOnly) throws Exception {
        BlockingQueue<KeeperState> own = new LinkedBlockingQueue<>();
        states = own;
        return new ZooKeeper(servers, TIMEOUT, (WatchedEvent e) -> own.add(e.getState()), canBeReadOnly);
    }

    /** Waits for a state. The connection may be lost on the way, the session may not. */
    static void await(ZooKeeper z, KeeperState wanted) throws Exception {
        for (KeeperState s = states.poll(90, TimeUnit.SECONDS); s != wanted; s = states.poll(90, TimeUnit.SECONDS)) {
            if (s != KeeperState.Disconnected && s != KeeperState.ConnectedReadOnly) {
                throw new IllegalStateException(s + " before " + wanted);
            }
        }
        say(wanted + " " + z.getState());
    }

    static void works(ZooKeeper z, String path) {
        show("getData", () -> new String(z.getData(path, false, null), StandardCharsets.UTF_8));
        show("exists, none", () -> z.exists("/none", false));
        show("getChildren", () -> {
            List<String> names = z.getChildren("/", false);
            Collections.sort(names);
            return names;
        });
        show("getACL", () -> z.getACL(path, null).size());
        show("getAllChildrenNumber", () -> z.getAllChildrenNumber(path));
        show("getEphemerals", () -> z.getEphemerals());
        show("multi of reads", () -> z.multi(List.of(Op.getChildren(path), Op.getData(path))).size());
        show("create", () -> z.create(path + "/b", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        show("create a container", () -> z.create(path + "/c", null, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER));
        show("create an ephemeral", () -> z.create(path + "/e", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL));
        show("setData", () -> z.setData(path, "y".getBytes(), -1).getDataLength());
        show("setACL", () -> z.setACL(path, Ids.OPEN_ACL_UNSAFE, -1).getDataLength());
        show("multi", () -> z.multi(List.of(Op.check(path, -1), Op.setData(path, "z".getBytes(), -1))).size());
        for (String name : new String[] {"/b", "/c", "/e"}) {
            show("delete", () -> {
                z.delete(path + name, -1);
                return "done";
            });
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String first = servers.split(",")[0];
        say("== with a quorum");
        ZooKeeper z = open(servers, true);
        await(z, KeeperState.SyncConnected);
        z.create("/a", "x".getBytes(), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        works(z, "/a");
        z.close();

        say("== without a quorum");
        ask("stop 1");
        ask("stop 2");
        z = open(first, false);
        say("a client that does not accept it: " + states.poll(4, TimeUnit.SECONDS));
        z.close();
        z = open(servers, true);
        await(z, KeeperState.ConnectedReadOnly);
        works(z, "/a");
        ZooKeeper same = z;
        show("getData with a watch", () -> new String(same.getData("/a", e -> { }, null), StandardCharsets.UTF_8));

        say("== with a quorum again");
        ask("start 1");
        ask("start 2");
        await(z, KeeperState.SyncConnected);
        works(z, "/a");
        z.close();
        System.exit(0);
    }
}
