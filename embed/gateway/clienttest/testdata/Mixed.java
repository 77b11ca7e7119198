import java.io.Closeable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceInstanceBuilder;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;
import org.apache.zookeeper.CreateMode;

/**
 * Uses Curator's recipes for the process that started this one, as mixed_kazoo.py uses kazoo's.
 *
 * usage: Mixed TIMEOUT-MS HOST:PORT,HOST:PORT,...
 */
public class Mixed {
    static final int PATIENCE = 120; // seconds
    static final Map<String, Object> made = new ConcurrentHashMap<>(); // objects by name

    static String run(CuratorFramework client, String[] w) throws Exception {
        switch (w[0]) {
            case "add":
                return add(client, w[1], w[2], Integer.parseInt(w[3]), Integer.parseInt(w[4]));
            case "addLocked":
                return addLocked(client, w[1], w[2], Integer.parseInt(w[3]));
            case "lock": // for as long as this process lives
                return String.valueOf(
                        new InterProcessMutex(client, w[1]).acquire(PATIENCE, TimeUnit.SECONDS));
            case "value":
                SharedValue value = new SharedValue(client, w[2], w[3].getBytes());
                value.start();
                return keep(w[1], value);
            case "read":
                return new String(((SharedValue) made.get(w[1])).getValue());
            case "append":
                return append((SharedValue) made.get(w[1]), w[2], Integer.parseInt(w[3]));
            case "ids":
                return ids(client, w[1], Integer.parseInt(w[2]));
            case "member":
                GroupMember member = new GroupMember(client, w[2], w[3], w[4].getBytes());
                member.start();
                return keep(w[1], member);
            case "node":
                PersistentNode node = new PersistentNode(
                        client, CreateMode.EPHEMERAL, false, w[2], w[3].getBytes());
                node.start();
                return keep(w[1], node);
            case "data":
                if (made.get(w[1]) instanceof GroupMember) {
                    ((GroupMember) made.get(w[1])).setThisData(w[2].getBytes());
                } else {
                    ((PersistentNode) made.get(w[1])).setData(w[2].getBytes());
                }
                return "";
            case "members":
                List<String> members = new ArrayList<>();
                new TreeMap<>(((GroupMember) made.get(w[1])).getCurrentMembers())
                        .forEach((id, data) -> members.add(id + ":" + new String(data)));
                return String.join(",", members);
            case "close":
                ((Closeable) made.remove(w[1])).close();
                return "";
            case "shut":
                new DistributedBarrier(client, w[1]).setBarrier();
                return "";
            case "open":
                new DistributedBarrier(client, w[1]).removeBarrier();
                return "";
            case "wait":
                client.sync().forPath(w[1]); // a client's calls are answered in order
                new DistributedBarrier(client, w[1]).waitOnBarrier();
                return "";
            case "enter":
                DistributedDoubleBarrier barrier =
                        new DistributedDoubleBarrier(client, w[2], Integer.parseInt(w[3]));
                barrier.enter();
                return keep(w[1], barrier);
            case "exit":
                ((DistributedDoubleBarrier) made.remove(w[1])).leave();
                return "";
            case "put":
                List<String> items = Arrays.asList(w).subList(4, w.length);
                return put(client, w[1], w[2], Long.parseLong(w[3]), items);
            case "putMulti":
                return putMulti(client, w[1], Arrays.asList(w).subList(2, w.length));
            case "consume":
                return keep(w[1], new Consumer(client, w[2], w[3]));
            case "got":
                return ((Consumer) made.get(w[1])).got();
            case "stop":
                Consumer c = (Consumer) made.remove(w[1]);
                c.close();
                return c.got();
            case "cases":
                return String.join(",", cases().keySet());
            case "register":
                // only one of the two serializers writes whether an instance is enabled
                ServiceDiscovery<Object> d = discovery(client, w[2], w[1].endsWith("abled"));
                d.registerService(cases().get(w[1]));
                return keep(w[1], d);
            case "instances":
                client.sync().forPath(w[1]);
                try (ServiceDiscovery<Object> finder = discovery(client, w[1], false)) {
                    return instances(finder, w[2]);
                }
            default:
                throw new IllegalArgumentException(w[0]);
        }
    }

    static String keep(String name, Object what) {
        made.put(name, what);
        return "";
    }

    static String add(CuratorFramework client, String kind, String path, int times, int delta)
            throws Exception {
        if (kind.equals("SharedCount")) {
            try (SharedCount count = new SharedCount(client, path, 0)) {
                count.start();
                for (int i = 0; i < times; i++) {
                    VersionedValue<Integer> old;
                    do {
                        old = count.getVersionedValue(); // the newest, after an attempt that failed
                    } while (!count.trySetCount(old, old.getValue() + delta));
                }
            }
            return "";
        }
        RetryNTimes retry = new RetryNTimes(100_000, 1);
        DistributedAtomicLong l = new DistributedAtomicLong(client, path, retry);
        DistributedAtomicInteger n = new DistributedAtomicInteger(client, path, retry);
        for (int i = 0; i < times; i++) {
            if (!(kind.equals("Long") ? l.add((long) delta) : n.add(delta)).succeeded()) {
                throw new IllegalStateException("not added");
            }
        }
        return "";
    }

    /** Adds to a number that a lock protects. */
    static String addLocked(CuratorFramework client, String lock, String path, int times)
            throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, lock);
        for (int i = 0; i < times; i++) {
            mutex.acquire();
            try {
                client.sync().forPath(path);
                int n = Integer.parseInt(new String(client.getData().forPath(path)));
                client.setData().forPath(path, String.valueOf(n + 1).getBytes());
            } finally {
                mutex.release();
            }
        }
        return "";
    }

    /** Appends a text to a value, some times. */
    static String append(SharedValue value, String text, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            VersionedValue<byte[]> old;
            do {
                old = value.getVersionedValue();
            } while (!value.trySetValue(old, (new String(old.getValue()) + text).getBytes()));
        }
        return "";
    }

    /** Returns some ids. */
    static String ids(CuratorFramework client, String path, int n) throws Exception {
        CachedAtomicLong cached = new CachedAtomicLong(
                new DistributedAtomicLong(client, path, new RetryNTimes(100_000, 1)), 10);
        List<String> all = new ArrayList<>();
        while (all.size() < n) {
            AtomicValue<Long> next = cached.next();
            if (!next.succeeded()) {
                throw new IllegalStateException("no id");
            }
            all.add(String.valueOf(next.postValue()));
        }
        return String.join(",", all);
    }

    static class Text implements QueueSerializer<String> {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes();
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes);
        }
    }

    static QueueBuilder<String> builder(
            CuratorFramework client, QueueConsumer<String> consumer, String path) {
        return QueueBuilder.builder(client, consumer, new Text(), path).lockPath(path + "-locks");
    }

    static String put(
            CuratorFramework client, String kind, String path, long order, List<String> items)
            throws Exception {
        SimpleDistributedQueue simple = new SimpleDistributedQueue(client, path);
        try (DistributedQueue<String> plain = builder(client, null, path).buildQueue();
             DistributedPriorityQueue<String> priority =
                     builder(client, null, path).buildPriorityQueue(0);
             DistributedDelayQueue<String> delay = builder(client, null, path).buildDelayQueue()) {
            plain.start();
            priority.start();
            delay.start();
            for (String item : items) {
                switch (kind) {
                    case "Plain":
                        plain.put(item);
                        break;
                    case "Priority":
                        priority.put(item, (int) order);
                        break;
                    case "Delay":
                        delay.put(item, order);
                        break;
                    default:
                        simple.offer(item.getBytes());
                }
            }
            for (QueueBase<String> q : Arrays.<QueueBase<String>>asList(plain, priority, delay)) {
                q.flushPuts(PATIENCE, TimeUnit.SECONDS); // puts are in the background
            }
        }
        return "";
    }

    static String putMulti(CuratorFramework client, String path, List<String> items)
            throws Exception {
        try (DistributedQueue<String> plain = builder(client, null, path).buildQueue()) {
            plain.start();
            List<String> rest = new ArrayList<>(items);
            plain.putMulti(() -> rest.isEmpty() ? null : rest.remove(0));
            plain.flushPuts(PATIENCE, TimeUnit.SECONDS);
        }
        return "";
    }

    /** Takes what is in a queue until it is closed, and remembers it. */
    static class Consumer implements QueueConsumer<String>, Closeable {
        private final List<String> got = Collections.synchronizedList(new ArrayList<>());
        private volatile boolean closed;
        private volatile boolean stuck;
        private QueueBase<String> queue;
        private Thread thread;

        Consumer(CuratorFramework client, String kind, String path) throws Exception {
            switch (kind) {
                case "Plain":
                    queue = builder(client, this, path).buildQueue();
                    break;
                case "Stuck":
                    stuck = true;
                    queue = builder(client, this, path).buildQueue();
                    break;
                case "Priority":
                    queue = builder(client, this, path).buildPriorityQueue(0);
                    break;
                case "Delay":
                    queue = builder(client, this, path).buildDelayQueue();
                    break;
                default:
                    SimpleDistributedQueue simple = new SimpleDistributedQueue(client, path);
                    thread = new Thread(() -> poll(simple));
                    thread.start();
                    return;
            }
            queue.start();
        }

        private void poll(SimpleDistributedQueue simple) {
            try {
                while (!closed) {
                    byte[] data = simple.poll(200, TimeUnit.MILLISECONDS);
                    if (data != null) {
                        got.add(new String(data));
                    }
                }
            } catch (Exception e) {
                got.add(e.toString());
            }
        }

        String got() {
            synchronized (got) {
                return String.join(",", got);
            }
        }

        @Override
        public void consumeMessage(String item) throws Exception {
            got.add(item);
            if (stuck) {
                Thread.sleep(PATIENCE * 1000);
            }
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {
        }

        @Override
        public void close() {
            closed = true;
            try {
                if (queue != null) {
                    queue.close();
                } else {
                    thread.join();
                }
            } catch (Exception e) {
                got.add(e.toString());
            }
        }
    }

    /** A payload of a class of its own. */
    public static class Payload {
        public String zone = "eu";
        public int weight = 7;
        public List<String> tags = new ArrayList<>();

        @Override
        public String toString() {
            return zone + weight + tags;
        }
    }

    /** The instances whose bytes are compared, by name. discovery_test.go has the same. */
    static Map<String, ServiceInstance<Object>> cases() throws Exception {
        Map<String, ServiceInstance<Object>> all = new LinkedHashMap<>();
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("zone", "eu");
        map.put("weight", 7);
        all.put("least", new ServiceInstance<Object>(
                "golden", "least", null, null, null, null, 0, ServiceType.DYNAMIC, null));
        all.put("full", instance("full").port(8080).sslPort(8443)
                .uriSpec(new UriSpec("{scheme}://{address}:{port}/{[}api{]}?a=1&b=<2>")).build());
        all.put("zero", instance("zero").port(0).address("").uriSpec(new UriSpec()).build());
        all.put("text", instance("text")
                .payload("a \"text\" <b> & \\ / \n\t\b\u0001 \u00e9").build());
        all.put("whole", instance("whole").payload(17).build());
        all.put("fraction", instance("fraction").payload(2.5).build());
        all.put("true", instance("true").payload(true).build());
        all.put("long", instance("long").payload(17L).build());
        all.put("map", instance("map").payload(map).build());
        all.put("empty", instance("empty").payload(new LinkedHashMap<>()).build());
        all.put("list", instance("list").payload(new ArrayList<>(Arrays.asList("a", 1))).build());
        all.put("class", instance("class").payload(new Payload()).build());
        all.put("disabled", instance("disabled").enabled(false).build());
        all.put("enabled", instance("enabled").build());
        all.put("static", instance("static").serviceType(ServiceType.STATIC).build());
        all.put("permanent", instance("permanent").serviceType(ServiceType.PERMANENT).build());
        return all;
    }

    static ServiceInstanceBuilder<Object> instance(String id) throws Exception {
        return ServiceInstance.builder().name("golden").id(id).address("10.0.0.1")
                .registrationTimeUTC(1767225600123L);
    }

    static ServiceDiscovery<Object> discovery(CuratorFramework client, String base, boolean enabled)
            throws Exception {
        ServiceDiscovery<Object> d = ServiceDiscoveryBuilder.builder(Object.class)
                .client(client).basePath(base)
                .serializer(new JsonInstanceSerializer<>(Object.class, !enabled)).build();
        d.start();
        return d;
    }

    static String instances(ServiceDiscovery<Object> d, String name) throws Exception {
        List<String> all = new ArrayList<>();
        for (ServiceInstance<Object> i : d.queryForInstances(name)) {
            String payload = String.valueOf(i.getPayload()).replace(", ", ";");
            String uri = i.getUriSpec() == null ? "null" : i.buildUriSpec();
            all.add(i.getId() + "|" + i.getAddress() + "|" + i.getPort() + "|" + i.getSslPort()
                    + "|" + payload + "|" + i.getRegistrationTimeUTC() + "|" + i.getServiceType()
                    + "|" + uri + "|" + i.isEnabled());
        }
        Collections.sort(all);
        return String.join(",", all);
    }

    static synchronized void say(String what) {
        System.out.println(what);
    }

    public static void main(String[] args) throws Exception {
        String[] hosts = args[1].split(",");
        CuratorFramework[] clients = new CuratorFramework[hosts.length];
        for (int i = 0; i < hosts.length; i++) {
            clients[i] = CuratorFrameworkFactory.newClient(
                    hosts[i], Integer.parseInt(args[0]), 10_000,
                    new ExponentialBackoffRetry(50, 10));
            clients[i].start();
            clients[i].blockUntilConnected();
        }
        System.out.println("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            Thread t = new Thread(() -> {
                String answer;
                try {
                    CuratorFramework client = clients[Integer.parseInt(words[0]) % clients.length];
                    answer = "= " + run(client, Arrays.copyOfRange(words, 1, words.length));
                } catch (Throwable e) {
                    answer = "! " + e.toString().replace('\n', ' ');
                }
                say(words[0] + " " + answer);
            });
            t.setDaemon(true);
            t.setContextClassLoader(Mixed.class.getClassLoader()); // in which Jackson finds Payload
            t.start();
        }
        for (CuratorFramework c : clients) {
            c.close();
        }
    }
}
