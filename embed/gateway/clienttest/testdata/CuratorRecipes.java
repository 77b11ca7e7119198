import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Scanner;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Prints what Curator's locks, semaphores and elections do. Every correct server gives the same transcript.
 *
 * usage: CuratorRecipes HOST:PORT,HOST:PORT,HOST:PORT
 *
 * A line that begins with @ is a request to the process that started this one, as in client_kazoo.py.
 * "@cut 2" asks it to disconnect all clients from the third server, and "@heal 2" to let them in again. The
 * answer is a line.
 */
public class CuratorRecipes {
    static final long PATIENCE = 30;
    static final Scanner in = new Scanner(System.in);
    static CuratorFramework witness;

    /** A client and a thread, which owns its Curator locks. */
    static class Actor {
        final String name;
        final CuratorFramework client;
        private final ExecutorService thread = Executors.newSingleThreadExecutor(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });

        Actor(String name, CuratorFramework client) {
            this.name = name;
            this.client = client;
        }

        <T> Future<T> begin(Callable<T> what) {
            return thread.submit(what);
        }

        /** Prints what a call returns or throws. */
        <T> T show(String label, Callable<T> what) throws Exception {
            return shown(name + " " + label, begin(what));
        }

        interface Step {
            void run() throws Exception;
        }

        void does(String label, Step what) throws Exception {
            show(label, () -> {
                what.run();
                return "done";
            });
        }
    }

    static void say(String what) {
        System.out.println(what);
        System.out.flush();
    }

    static void section(String name) {
        say("\n== " + name);
    }

    static void ask(String what) {
        say("@" + what);
        if (!in.nextLine().equals("ok")) {
            throw new IllegalStateException(what);
        }
    }

    static <T> T shown(String label, Future<T> f) throws Exception {
        try {
            T v = f.get(PATIENCE, TimeUnit.SECONDS);
            say(label + " = " + render(v));
            return v;
        } catch (ExecutionException e) {
            say(label + " ! " + e.getCause().getClass().getSimpleName());
        } catch (TimeoutException e) {
            say(label + " hangs");
        }
        return null;
    }

    static String render(Object v) {
        if (v instanceof byte[]) {
            return "\"" + new String((byte[]) v) + "\"";
        }
        if (v instanceof Lease) {
            return "a lease";
        }
        if (v instanceof Participant) {
            Participant p = (Participant) v;
            return p.getId() + (p.isLeader() ? " leads" : "");
        }
        if (v instanceof Collection) {
            List<String> parts = new ArrayList<>();
            for (Object x : (Collection<?>) v) {
                parts.add(render(x));
            }
            return parts.toString();
        }
        return String.valueOf(v);
    }

    static void until(String what, Callable<Boolean> cond) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE);
        while (!cond.call()) {
            if (System.nanoTime() > end) {
                say("waited in vain: " + what);
                System.exit(1);
            }
            Thread.sleep(5);
        }
    }

    /** Lets a client see every change that was acknowledged to any client. */
    static void sync(CuratorFramework client) throws Exception {
        client.sync().forPath("/"); // a client's calls are answered in order
    }

    static List<String> children(String path) throws Exception {
        sync(witness);
        return witness.getChildren().forPath(path);
    }

    static void untilChildren(String path, int n) throws Exception {
        until(n + " below " + path, () -> witness.checkExists().forPath(path) != null && children(path).size() == n);
    }

    static String number(String name) {
        return name.substring(name.length() - 10);
    }

    /** Renders names as kinds, ordered by their numbers. Each number becomes the count of smaller ones. */
    static String kinds(Collection<String> names) {
        List<String> sorted = new ArrayList<>(names);
        sorted.sort(Comparator.comparing((String n) -> number(n)).thenComparing(n -> n.replaceFirst(".*_c_[0-9a-f-]{36}-", "")));
        TreeSet<String> numbers = new TreeSet<>();
        for (String n : sorted) {
            numbers.add(number(n));
        }
        List<String> parts = new ArrayList<>();
        for (String n : sorted) {
            String kind = n.substring(0, n.length() - 10).replaceFirst("^(/.*/)?_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-", "");
            parts.add(kind + numbers.headSet(number(n)).size());
        }
        return parts.toString();
    }

    static void queue(String path) throws Exception {
        say("below " + path + ": " + kinds(children(path)));
    }

    static CuratorFramework client(String host, int timeout) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.newClient(host, timeout, 10_000, new ExponentialBackoffRetry(50, 10));
        c.start();
        c.blockUntilConnected();
        return c;
    }

    static Actor a, b, c, a2;

    public static void main(String[] args) {
        try {
            all(args[0].split(","));
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    static void all(String[] hosts) throws Exception {
        CuratorFramework[] clients = new CuratorFramework[hosts.length];
        for (int i = 0; i < hosts.length; i++) {
            clients[i] = client(hosts[i], 20_000);
        }
        witness = clients[1];
        a = new Actor("a", clients[0]);
        b = new Actor("b", clients[1]);
        c = new Actor("c", clients[2]);
        a2 = new Actor("a2", clients[0]);
        mutex();
        readWrite();
        downgrade();
        places();
        semaphore();
        limits();
        semaphoreMutex();
        multi();
        latch();
        selector();
        lost(hosts[2]);
        for (CuratorFramework x : clients) {
            x.close();
        }
    }

    static void mutex() throws Exception {
        section("InterProcessMutex");
        String path = "/c/mutex";
        InterProcessMutex ma = new InterProcessMutex(a.client, path), mb = new InterProcessMutex(b.client, path), mc = new InterProcessMutex(c.client, path);
        LinkedBlockingQueue<String> asked = new LinkedBlockingQueue<>();
        ma.makeRevocable(m -> asked.add("asked"));
        a.does("acquires", ma::acquire);
        a.does("acquires again", ma::acquire);
        queue(path);
        b.show("acquires, timeout", () -> mb.acquire(100, TimeUnit.MILLISECONDS));
        queue(path);
        Future<?> waits = b.begin(() -> {
            mb.acquire();
            return "held";
        });
        untilChildren(path, 2);
        Future<?> waitsToo = c.begin(() -> {
            mc.acquire();
            return "held";
        });
        untilChildren(path, 3);
        queue(path);
        sync(c.client);
        say("participants: " + kinds(mc.getParticipantNodes()));
        Revoker.attemptRevoke(c.client, mc.getParticipantNodes().iterator().next());
        say("a is " + asked.poll(PATIENCE, TimeUnit.SECONDS));
        a.does("releases", ma::release);
        say("b waits: " + !waits.isDone());
        a.does("releases", ma::release);
        shown("b", waits);
        say("c waits: " + !waitsToo.isDone());
        a.does("releases once too often", ma::release);
        b.does("releases", mb::release);
        shown("c", waitsToo);
        c.does("releases", mc::release);
        queue(path);
    }

    static void readWrite() throws Exception {
        section("InterProcessReadWriteLock");
        String path = "/c/rw";
        InterProcessReadWriteLock la = new InterProcessReadWriteLock(a.client, path, "a's".getBytes()), lb = new InterProcessReadWriteLock(b.client, path);
        InterProcessReadWriteLock lc = new InterProcessReadWriteLock(c.client, path), la2 = new InterProcessReadWriteLock(a2.client, path);
        a.does("reads", la.readLock()::acquire);
        b.does("reads", lb.readLock()::acquire);
        c.show("writes, timeout", () -> lc.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        queue(path);
        Future<?> writes = c.begin(() -> {
            lc.writeLock().acquire();
            return "writes";
        });
        untilChildren(path, 3);
        a2.show("reads behind a writer, timeout", () -> la2.readLock().acquire(100, TimeUnit.MILLISECONDS));
        a.does("reads again", la.readLock()::acquire);
        Future<?> reads = a2.begin(() -> {
            la2.readLock().acquire();
            return "reads";
        });
        untilChildren(path, 4);
        queue(path);
        say("readers: " + kinds(lb.readLock().getParticipantNodes()));
        say("writers: " + kinds(lb.writeLock().getParticipantNodes()));
        for (String p : lb.readLock().getParticipantNodes()) {
            say("data: " + (witness.getData().forPath(p).length == 3 ? render(witness.getData().forPath(p)) : "the client's address"));
        }
        b.does("is done", lb.readLock()::release);
        a.does("is done once", la.readLock()::release);
        say("c waits: " + !writes.isDone());
        a.does("is done", la.readLock()::release);
        shown("c", writes);
        say("a2 waits: " + !reads.isDone());
        c.does("is done", lc.writeLock()::release);
        shown("a2", reads);
        c.does("is done once too often", lc.writeLock()::release);
        b.show("writes, timeout", () -> lb.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        a2.does("is done", la2.readLock()::release);
        b.show("writes, timeout", () -> lb.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        b.does("is done", lb.writeLock()::release);
        queue(path);
    }

    static void downgrade() throws Exception {
        section("InterProcessReadWriteLock, a writer becomes a reader");
        String path = "/c/down";
        InterProcessReadWriteLock la = new InterProcessReadWriteLock(a.client, path), lb = new InterProcessReadWriteLock(b.client, path);
        InterProcessReadWriteLock lc = new InterProcessReadWriteLock(c.client, path), la2 = new InterProcessReadWriteLock(a2.client, path);
        a.does("writes", la.writeLock()::acquire);
        a.does("writes again", la.writeLock()::acquire);
        Future<?> shares = b.begin(() -> {
            lb.readLock().acquire();
            return "reads";
        });
        untilChildren(path, 2);
        Future<?> writes = c.begin(() -> {
            lc.writeLock().acquire();
            return "writes";
        });
        untilChildren(path, 3);
        Future<?> reads = a2.begin(() -> {
            la2.readLock().acquire();
            return "reads";
        });
        untilChildren(path, 4);
        a.does("reads too", la.readLock()::acquire); // in its place as a writer since Curator 5.5, at the end before that (CURATOR-621)
        a.does("stops writing", la.writeLock()::release);
        say("b waits: " + !shares.isDone());
        a.does("stops writing", la.writeLock()::release);
        shown("b", shares);
        say("c waits: " + !writes.isDone());
        a.does("is done", la.readLock()::release);
        b.does("is done", lb.readLock()::release);
        shown("c", writes);
        say("a2 waits: " + !reads.isDone());
        c.does("is done", lc.writeLock()::release);
        shown("a2", reads);
        a2.does("is done", la2.readLock()::release);
        queue(path);
    }

    /**
     * The names of Vivarium's contenders contain words. A contender behind all others of a number has the
     * number twice, with eight hexadecimal digits between.
     */
    static void places() throws Exception {
        section("InterProcessReadWriteLock and LeaderLatch behind names of Vivarium's");
        String path = "/c/place", uuid = "67d4f6a2-ee79-4cbb-9f0e-1d2f6c3a5b70-";
        String read = path + "/_c_" + uuid + "d500-z7-__READ__0000000000", write = path + "/~u_00000000" + uuid.substring(8) + "up-z7-__WRIT__0000000000000000000000000000";
        witness.create().creatingParentsIfNeeded().forPath(read);
        InterProcessReadWriteLock la = new InterProcessReadWriteLock(a.client, path), lb = new InterProcessReadWriteLock(b.client, path);
        a.does("reads beside a reader", la.readLock()::acquire);
        a.does("is done", la.readLock()::release);
        b.show("writes behind a reader, timeout", () -> lb.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        witness.create().forPath(write);
        List<String> order = new ArrayList<>();
        for (String p : lb.readLock().getParticipantNodes()) {
            order.add(p.replace(path + "/", ""));
        }
        say("readers: " + order);
        a.show("reads behind a writer, timeout", () -> la.readLock().acquire(100, TimeUnit.MILLISECONDS));
        Future<?> waits = b.begin(() -> {
            lb.writeLock().acquire();
            return "writes";
        });
        untilChildren(path, 3);
        witness.delete().forPath(read);
        children(path);
        say("b waits: " + !waits.isDone());
        witness.delete().forPath(write);
        shown("b", waits);
        b.does("is done", lb.writeLock()::release);

        LeaderLatch lc = new LeaderLatch(c.client, path, "c");
        String first = path + "/_c_" + uuid + "latch-0000000000", next = path + "/~u_99600002" + uuid.substring(8) + "p3-z7-latch-0000000000996000020000000000";
        witness.create().forPath(first, "first".getBytes());
        witness.create().forPath(path + "/transfer", "an offer".getBytes()); // Vivarium's offer, which is not a candidate
        lc.start();
        untilChildren(path, 3);
        witness.create().forPath(next, "next".getBytes());
        sync(c.client);
        say("participants: " + render(lc.getParticipants()));
        witness.delete().forPath(first);
        c.show("waits, timeout", () -> lc.await(100, TimeUnit.MILLISECONDS));
        sync(c.client);
        say("leader: " + render(lc.getLeader()));
        witness.delete().forPath(next);
        c.does("waits", lc::await);
        lc.close();
    }

    static void semaphore() throws Exception {
        section("InterProcessSemaphoreV2");
        String path = "/c/sem";
        InterProcessSemaphoreV2 sa = new InterProcessSemaphoreV2(a.client, path, 3), sb = new InterProcessSemaphoreV2(b.client, path, 3);
        InterProcessSemaphoreV2 sc = new InterProcessSemaphoreV2(c.client, path, 3);
        sa.setNodeData("a's".getBytes());
        Lease one = a.show("acquires", () -> sa.acquire());
        a.show("data", one::getData);
        say("its name: " + kinds(Collections.singleton(one.getNodeName())));
        Collection<Lease> two = b.show("acquires 2", () -> sb.acquire(2));
        queue(path + "/locks");
        queue(path + "/leases");
        c.show("acquires, timeout", () -> sc.acquire(100, TimeUnit.MILLISECONDS));
        queue(path + "/leases");
        a.does("returns", () -> sa.returnLease(one));
        c.show("acquires 2 of 1, timeout", () -> sc.acquire(2, 100, TimeUnit.MILLISECONDS));
        queue(path + "/leases");
        Lease[] got = new Lease[1];
        Future<?> first = c.begin(() -> sc.acquire(3));
        untilChildren(path + "/leases", 4); // the lease that it waits with counts too
        Future<?> second = a.begin(() -> got[0] = sa.acquire());
        untilChildren(path + "/locks", 2);
        queue(path + "/locks");
        sync(a.client);
        say("participants: " + kinds(sa.getParticipantNodes()));
        Lease[] both = two.toArray(new Lease[0]);
        b.does("returns one", () -> sb.returnLease(both[0]));
        say("a waits: " + !second.isDone());
        b.does("returns all", () -> sb.returnAll(two));
        shown("a", second); // for its third permit c queued again, at the end
        untilChildren(path + "/leases", 4);
        say("c waits: " + !first.isDone());
        a.does("returns", () -> sa.returnLease(got[0]));
        a.does("returns once too often", () -> sa.returnLease(got[0]));
        Collection<Lease> three = get(shown("c", first));
        b.show("acquires, timeout", () -> sb.acquire(100, TimeUnit.MILLISECONDS));
        c.does("returns all", () -> sc.returnAll(three));
        queue(path + "/locks");
        queue(path + "/leases");
    }

    @SuppressWarnings("unchecked")
    static Collection<Lease> get(Object leases) {
        return (Collection<Lease>) leases;
    }

    static void limits() throws Exception {
        section("InterProcessSemaphoreV2, two limits");
        String path = "/c/limits";
        InterProcessSemaphoreV2 sa = new InterProcessSemaphoreV2(a.client, path, 1), sb = new InterProcessSemaphoreV2(b.client, path, 2);
        Lease one = a.show("acquires of 1", () -> sa.acquire());
        Lease two = b.show("acquires of 2", () -> sb.acquire());
        b.show("acquires of 2, timeout", () -> sb.acquire(100, TimeUnit.MILLISECONDS));
        b.does("returns", () -> sb.returnLease(two));
        a.show("acquires of 1, timeout", () -> sa.acquire(100, TimeUnit.MILLISECONDS));
        a.does("returns", () -> sa.returnLease(one));

        section("InterProcessSemaphoreV2, a shared limit");
        try (SharedCount ca = new SharedCount(a.client, "/c/count", 1); SharedCount cb = new SharedCount(b.client, "/c/count", 1)) {
            ca.start();
            cb.start();
            InterProcessSemaphoreV2 na = new InterProcessSemaphoreV2(a.client, "/c/counted", ca), nb = new InterProcessSemaphoreV2(b.client, "/c/counted", cb);
            Lease held = a.show("acquires", () -> na.acquire());
            Future<?> more = b.begin(() -> nb.acquire(2));
            untilChildren("/c/counted/leases", 2);
            say("b waits: " + !more.isDone());
            a.does("makes it 3", () -> ca.setCount(3));
            Collection<Lease> rest = get(shown("b", more));
            until("b to know", () -> cb.getCount() == 3);
            say("data: " + java.nio.ByteBuffer.wrap(witness.getData().forPath("/c/count")).getInt());
            b.does("makes it 2", () -> cb.setCount(2));
            until("a to know", () -> ca.getCount() == 2);
            b.does("returns one", () -> nb.returnLease(rest.iterator().next()));
            a.show("acquires, timeout", () -> na.acquire(100, TimeUnit.MILLISECONDS));
            b.does("returns all", () -> nb.returnAll(rest));
            a.show("acquires", () -> na.acquire());
            a.does("returns", () -> na.returnLease(held));
        }
    }

    static void semaphoreMutex() throws Exception {
        section("InterProcessSemaphoreMutex");
        InterProcessSemaphoreMutex ma = new InterProcessSemaphoreMutex(a.client, "/c/sm"), mb = new InterProcessSemaphoreMutex(b.client, "/c/sm");
        a.does("acquires", ma::acquire);
        a.show("acquires again, timeout", () -> ma.acquire(100, TimeUnit.MILLISECONDS));
        b.show("acquires, timeout", () -> mb.acquire(100, TimeUnit.MILLISECONDS));
        a2.does("releases what a holds", ma::release);
        b.show("acquires, timeout", () -> mb.acquire(100, TimeUnit.MILLISECONDS));
        b.does("releases", mb::release);
    }

    static void multi() throws Exception {
        section("InterProcessMultiLock");
        List<String> both = List.of("/c/x", "/c/y");
        InterProcessMultiLock la = new InterProcessMultiLock(a.client, both), lb = new InterProcessMultiLock(b.client, both);
        InterProcessMutex y = new InterProcessMutex(c.client, "/c/y");
        c.does("acquires one", y::acquire);
        a.show("acquires both, timeout", () -> la.acquire(100, TimeUnit.MILLISECONDS));
        queue("/c/x");
        c.does("releases", y::release);
        a.does("acquires both", la::acquire);
        b.show("acquires both, timeout", () -> lb.acquire(100, TimeUnit.MILLISECONDS));
        a.does("releases", la::release);
        b.does("acquires both", lb::acquire);
        b.does("releases", lb::release);
    }

    /** What a latch's listeners receive. */
    static BlockingQueue<String> listen(LeaderLatch l) {
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        l.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                told.add("leads");
            }

            @Override
            public void notLeader() {
                told.add("does not lead");
            }
        });
        return told;
    }

    static void latch() throws Exception {
        section("LeaderLatch");
        String path = "/c/latch";
        LeaderLatch la = new LeaderLatch(a.client, path, "a", LeaderLatch.CloseMode.NOTIFY_LEADER);
        LeaderLatch lb = new LeaderLatch(b.client, path, "b"), lc = new LeaderLatch(c.client, path, "c");
        BlockingQueue<String> ta = listen(la), tb = listen(lb), tc = listen(lc);
        a.show("leads already", la::hasLeadership);
        a.does("starts", la::start);
        a.does("waits", la::await);
        say("a " + ta.poll(PATIENCE, TimeUnit.SECONDS));
        b.does("starts", lb::start);
        untilChildren(path, 2);
        c.does("starts", lc::start);
        untilChildren(path, 3);
        c.show("waits, timeout", () -> lc.await(100, TimeUnit.MILLISECONDS));
        queue(path);
        say("participants: " + render(lb.getParticipants()));
        say("leader: " + render(lb.getLeader()));
        b.does("goes", lb::close); // from the middle
        untilChildren(path, 2);
        say("a leads: " + la.hasLeadership() + ", c leads: " + lc.hasLeadership());
        a.does("goes", la::close);
        say("a " + ta.poll(PATIENCE, TimeUnit.SECONDS));
        c.does("waits", lc::await);
        say("c " + tc.poll(PATIENCE, TimeUnit.SECONDS));
        children(path);
        say("participants: " + render(witnessLatch(path).getParticipants()));
        c.does("goes", lc::close);
        untilChildren(path, 0);
        say("a, b, c are told too much: " + ta + tb + tc);
        say("states: " + la.getState() + " " + lb.getState() + " " + lc.getState());
    }

    static LeaderLatch witnessLatch(String path) {
        return new LeaderLatch(witness, path);
    }

    /** Leads until somebody stops or interrupts it. */
    static class Term extends LeaderSelectorListenerAdapter {
        final BlockingQueue<String> told = new LinkedBlockingQueue<>();
        final BlockingQueue<String> stop = new LinkedBlockingQueue<>();

        @Override
        public void takeLeadership(CuratorFramework client) {
            told.add("leads");
            try {
                stop.take();
                told.add("stops");
            } catch (InterruptedException e) {
                told.add("is interrupted");
            }
        }
    }

    static void selector() throws Exception {
        section("LeaderSelector");
        String path = "/c/selector";
        Actor[] actors = {a, b, c};
        Term[] terms = new Term[3];
        LeaderSelector[] selectors = new LeaderSelector[3];
        for (int i = 0; i < 3; i++) {
            terms[i] = new Term();
            selectors[i] = new LeaderSelector(actors[i].client, path, terms[i]);
            selectors[i].setId(actors[i].name);
            selectors[i].start();
            untilChildren(path, i + 1);
        }
        selectors[0].autoRequeue();
        say("a " + terms[0].told.poll(PATIENCE, TimeUnit.SECONDS));
        queue(path);
        say("participants: " + render(selectors[1].getParticipants()));
        sync(c.client);
        say("leader: " + render(selectors[2].getLeader()));
        selectors[0].interruptLeadership();
        say("a " + terms[0].told.poll(PATIENCE, TimeUnit.SECONDS));
        say("b " + terms[1].told.poll(PATIENCE, TimeUnit.SECONDS));
        untilChildren(path, 3); // a is at the end
        say("participants: " + render(selectors[1].getParticipants()));
        terms[1].stop.add("now");
        say("b " + terms[1].told.poll(PATIENCE, TimeUnit.SECONDS));
        say("c " + terms[2].told.poll(PATIENCE, TimeUnit.SECONDS));
        untilChildren(path, 2);
        until("b to have stopped", () -> !selectors[1].hasLeadership());
        until("b to be in the queue again", selectors[1]::requeue);
        untilChildren(path, 3);
        say("participants: " + render(selectors[1].getParticipants()));
        selectors[2].close();
        say("c " + terms[2].told.poll(PATIENCE, TimeUnit.SECONDS));
        say("a " + terms[0].told.poll(PATIENCE, TimeUnit.SECONDS));
        selectors[0].close();
        say("a " + terms[0].told.poll(PATIENCE, TimeUnit.SECONDS));
        say("b " + terms[1].told.poll(PATIENCE, TimeUnit.SECONDS));
        selectors[1].close();
        say("b " + terms[1].told.poll(PATIENCE, TimeUnit.SECONDS));
        untilChildren(path, 0);
    }

    /** A client is cut off and its session ends. Others acquire what it held. */
    static void lost(String host) throws Exception {
        section("a client is lost");
        Actor d = new Actor("d", client(host, 3_000));
        InterProcessReadWriteLock rd = new InterProcessReadWriteLock(d.client, "/c/rw"), ra = new InterProcessReadWriteLock(a.client, "/c/rw");
        InterProcessSemaphoreV2 sd = new InterProcessSemaphoreV2(d.client, "/c/sem", 2), sb = new InterProcessSemaphoreV2(b.client, "/c/sem", 2);
        LeaderLatch ld = new LeaderLatch(d.client, "/c/latch", "d"), la = new LeaderLatch(a.client, "/c/latch", "a");
        BlockingQueue<String> told = listen(ld);
        CountDownLatch suspended = new CountDownLatch(1), lost = new CountDownLatch(1);
        d.client.getConnectionStateListenable().addListener((x, state) -> {
            switch (state) {
                case SUSPENDED:
                    suspended.countDown();
                    break;
                case LOST:
                    lost.countDown();
                    break;
                default:
            }
        });
        d.does("reads", rd.readLock()::acquire);
        Collection<Lease> leases = d.show("acquires 2", () -> sd.acquire(2));
        d.does("starts", ld::start);
        d.does("waits", ld::await);
        say("d " + told.poll(PATIENCE, TimeUnit.SECONDS));
        Future<?> writes = a.begin(() -> {
            ra.writeLock().acquire();
            return "writes";
        });
        Future<?> acquires = b.begin(() -> sb.acquire(2));
        la.start();
        untilChildren("/c/rw", 2);
        untilChildren("/c/sem/leases", 3);
        untilChildren("/c/latch", 2);
        ask("cut 2");
        say("d " + told.poll(PATIENCE, TimeUnit.SECONDS));
        say("suspended: " + suspended.await(PATIENCE, TimeUnit.SECONDS));
        shown("a", writes);
        shown("b", acquires);
        la.await();
        say("a leads: " + la.hasLeadership() + ", d leads: " + ld.hasLeadership());
        say("lost: " + lost.await(PATIENCE, TimeUnit.SECONDS));
        ask("heal 2");
        untilChildren("/c/latch", 2);
        say("d leads: " + ld.hasLeadership());
        la.close();
        say("d " + told.poll(PATIENCE, TimeUnit.SECONDS));
        ld.close();
        d.client.close();
    }
}
