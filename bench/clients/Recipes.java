import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

/**
 * Measures Curator's recipes for the process that started this one.
 *
 * usage: Recipes client HOST:PORT,HOST:PORT,...
 *
 * It prints "ready" when its clients are connected. Each line is a request, see recipes.go. The answer
 * is "= NUMBER..." or "! ERROR". All end with the input.
 */
public class Recipes {
    static final int PATIENCE = 100; // seconds
    static final int IN_FLIGHT = 64;
    static final byte[] DATA = new byte[32];
    static final List<CuratorFramework> clients = new ArrayList<>();

    static CuratorFramework connect(String host) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(host, 10_000, 10_000, new ExponentialBackoffRetry(50, 10));
        c.start();
        if (!c.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + host);
        }
        return c;
    }

    interface Op {
        void call() throws Exception;
    }

    interface Caller {
        Op of(int i) throws Exception;
    }

    static double seconds(long since) {
        return (System.nanoTime() - since) / 1e9;
    }

    static void await(String what, CountDownLatch latch) throws Exception {
        if (!latch.await(PATIENCE, TimeUnit.SECONDS)) {
            throw new IllegalStateException("waited in vain for " + what);
        }
    }

    /**
     * Calls so many ops in loops, and returns the calls per second. Calls that end after the window
     * count if there are no others, and then those that end before.
     */
    static double run(int callers, double window, Caller caller) throws Exception {
        long start = System.nanoTime();
        long begin = start + (long) (Math.min(0.3, window) * 1e9);
        long end = begin + (long) (window * 1e9);
        AtomicLong calls = new AtomicLong();
        AtomicLong early = new AtomicLong();
        AtomicLong late = new AtomicLong();
        AtomicLong last = new AtomicLong(end);
        AtomicReference<Exception> failed = new AtomicReference<>();
        CountDownLatch left = new CountDownLatch(callers);
        for (int i = 0; i < callers; i++) {
            Op op = caller.of(i);
            start(() -> {
                try {
                    while (failed.get() == null && System.nanoTime() < end) {
                        op.call();
                        long now = System.nanoTime();
                        if (begin <= now && now < end) {
                            calls.incrementAndGet();
                        } else if (now >= end) {
                            late.incrementAndGet();
                            last.accumulateAndGet(now, Math::max);
                        } else {
                            early.incrementAndGet();
                        }
                    }
                } catch (Exception e) {
                    failed.set(e);
                } finally {
                    left.countDown();
                }
            });
        }
        await("the callers", left);
        if (failed.get() != null) {
            throw failed.get();
        }
        if (calls.get() + late.get() == 0) {
            return early.get() / seconds(start);
        }
        if (calls.get() == 0) {
            return late.get() / ((last.get() - begin) / 1e9);
        }
        return calls.get() / window;
    }

    static void start(Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        t.start();
    }

    static CuratorFramework client(int i) {
        return clients.get(i % clients.size());
    }

    static double[] view(String path, int n) throws Exception {
        client(0).create().forPath(path, new byte[0]);
        client(1).sync().forPath(path);
        CountDownLatch empty = new CountDownLatch(1);
        CountDownLatch arrived = new CountDownLatch(n + 1); // the parent is one of them
        CuratorCache cache = CuratorCache.build(client(1), path);
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forCreates(c -> arrived.countDown()).forInitialized(empty::countDown).build());
        cache.start();
        await("an empty view", empty);
        CuratorFramework writer = connect(client(0).getZookeeperClient().getCurrentConnectionString());
        Semaphore room = new Semaphore(IN_FLIGHT);
        AtomicInteger failed = new AtomicInteger();
        long begun = System.nanoTime();
        for (int i = 0; i < n; i++) {
            room.acquire();
            writer.create().withMode(CreateMode.EPHEMERAL).inBackground((c, e) -> {
                if (e.getResultCode() != 0) {
                    failed.incrementAndGet();
                }
                room.release();
            }).forPath(String.format("%s/m%05d", path, i), DATA);
        }
        await("all members", arrived);
        double arrive = seconds(begun);
        cache.close();
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " members were not created");
        }
        CountDownLatch whole = new CountDownLatch(1);
        begun = System.nanoTime();
        CuratorCache again = CuratorCache.build(client(1), path);
        again.listenable().addListener(CuratorCacheListener.builder().forInitialized(whole::countDown).build());
        again.start();
        await("the second view", whole);
        double open = seconds(begun);
        if (again.size() != n + 1) {
            throw new IllegalStateException("the view shows " + (again.size() - 1) + " members");
        }
        again.close();
        writer.close();
        return new double[] {arrive * 1000, open * 1000};
    }

    static double[] counter(String path, int callers, double window) throws Exception {
        AtomicLong added = new AtomicLong();
        double rate = run(callers, window, i -> {
            DistributedAtomicLong c =
                    new DistributedAtomicLong(client(i), path, new RetryNTimes(Integer.MAX_VALUE, 1));
            return () -> {
                AtomicValue<Long> v = c.increment();
                if (!v.succeeded()) {
                    throw new IllegalStateException("an add failed");
                }
                added.incrementAndGet();
            };
        });
        client(0).sync().forPath(path);
        long sum = new DistributedAtomicLong(client(0), path, new RetryNTimes(0, 0)).get().postValue();
        if (sum != added.get()) {
            throw new IllegalStateException("the counter is " + sum + " after " + added.get() + " adds");
        }
        return new double[] {rate};
    }

    static final QueueSerializer<byte[]> SAME = new QueueSerializer<>() {
        @Override
        public byte[] serialize(byte[] item) {
            return item;
        }

        @Override
        public byte[] deserialize(byte[] bytes) {
            return bytes;
        }
    };

    static QueueBuilder<byte[]> builder(CuratorFramework client, Runnable consumed, String path) {
        QueueConsumer<byte[]> consumer = consumed == null ? null : new QueueConsumer<>() {
            @Override
            public void consumeMessage(byte[] message) {
                consumed.run();
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        return QueueBuilder.builder(client, consumer, SAME, path).lockPath(path + "-locks");
    }

    /** Consumers of a queue, with so many threads on all clients. */
    static class Consumers {
        final List<DistributedQueue<byte[]>> queues = new ArrayList<>();
        final List<ExecutorService> threads = new ArrayList<>();

        Consumers(String path, int callers, Runnable consumed) throws Exception {
            for (int i = 0; i < clients.size() && i < callers; i++) {
                ExecutorService pool = Executors.newFixedThreadPool((callers + clients.size() - 1 - i) / clients.size());
                threads.add(pool);
                queues.add(builder(client(i), consumed, path).executor(pool).buildQueue());
                queues.get(i).start();
            }
        }

        void close() throws Exception {
            for (DistributedQueue<byte[]> q : queues) {
                q.close();
            }
            for (ExecutorService pool : threads) {
                pool.shutdownNow();
            }
        }
    }

    static double[] flow(String kind, String path, int callers, double window) throws Exception {
        if (kind.equals("take")) {
            return new double[] {run(callers, window, i -> {
                SimpleDistributedQueue q = new SimpleDistributedQueue(client(i), path);
                return () -> {
                    q.offer(DATA);
                    q.take();
                };
            })};
        }
        Semaphore consumed = new Semaphore(0);
        Consumers consumers = new Consumers(path, callers, consumed::release);
        try {
            return new double[] {run(callers, window, i -> {
                DistributedQueue<byte[]> q = consumers.queues.get(i % consumers.queues.size());
                return () -> {
                    q.put(DATA);
                    if (!consumed.tryAcquire(PATIENCE, TimeUnit.SECONDS)) {
                        throw new IllegalStateException("a task is not consumed");
                    }
                };
            })};
        } finally {
            consumers.close();
        }
    }

    static double[] drain(String path, int n, int callers, double window) throws Exception {
        DistributedQueue<byte[]> filler = builder(client(0), null, path).buildQueue();
        filler.start();
        AtomicInteger next = new AtomicInteger();
        CountDownLatch filled = new CountDownLatch(n);
        for (int i = 0; i < IN_FLIGHT; i++) {
            start(() -> {
                while (next.getAndIncrement() < n) {
                    try {
                        filler.put(DATA);
                    } catch (Exception e) {
                        return; // it is not filled in time
                    }
                    filled.countDown();
                }
            });
        }
        await("a full queue", filled);
        AtomicInteger done = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(n);
        long begun = System.nanoTime();
        Consumers consumers = new Consumers(path, callers, () -> {
            done.incrementAndGet();
            all.countDown();
        });
        all.await((long) (window * 1e9), TimeUnit.NANOSECONDS);
        double rate = done.get() / seconds(begun);
        consumers.close();
        filler.close();
        return new double[] {rate};
    }

    static double[] measure(String[] w) throws Exception {
        switch (w[0]) {
            case "view":
                return view(w[1], Integer.parseInt(w[2]));
            case "counter":
                return counter(w[1], Integer.parseInt(w[2]), Double.parseDouble(w[3]) / 1000);
            case "flow":
                return flow(w[1], w[2], Integer.parseInt(w[3]), Double.parseDouble(w[4]) / 1000);
            case "drain":
                return drain(w[1], Integer.parseInt(w[2]), Integer.parseInt(w[3]), Double.parseDouble(w[4]) / 1000);
            default:
                throw new IllegalArgumentException(w[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        for (String host : args[1].split(",")) {
            clients.add(connect(host));
        }
        System.out.println("ready");
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().trim().split(" ");
            try {
                StringBuilder b = new StringBuilder("=");
                for (double x : measure(words)) {
                    b.append(' ').append(x);
                }
                System.out.println(b);
            } catch (Exception e) {
                System.out.println("! " + e.toString().replace('\n', ' '));
            }
            System.out.flush();
        }
        System.exit(0);
    }
}
