"""Measures kazoo's recipes for the process that started this one.

usage: recipes_kazoo.py client HOST:PORT,HOST:PORT,...
       recipes_kazoo.py member HOST:PORT ID IGNORED PATH PARTS SETTLE-MS TIMEOUT-MS

It prints "ready" when its clients are connected. Each line is a request, see recipes.go. The answer is
"= NUMBER..." or "! ERROR". All end with the input.
"""
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.counter import Counter
from kazoo.recipe.partitioner import SetPartitioner
from kazoo.recipe.queue import LockingQueue, Queue

logging.disable(logging.CRITICAL)

PATIENCE = 100  # seconds
IN_FLIGHT = 64
DATA = bytes(32)
BATCH = 500  # of tasks that are put at once

# Counters and queues that lose a race try again.
RETRY = dict(max_tries=-1, delay=0.001, backoff=2, max_delay=0.05)

clients = []


def connect(host, timeout=10.0):
    client = KazooClient(hosts=host, timeout=timeout, command_retry=RETRY)
    client.start(timeout=30)
    return client


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("waited in vain for " + what)
        time.sleep(0.001)


def run(callers, window, op):
    """Calls op(i)() in a loop from so many threads, and returns the calls per second.

    Calls that end after the window count if there are no others, and then those that end before."""
    start = time.monotonic()
    begin = start + min(0.3, window)
    end = begin + window
    ends, errors = [[] for _ in range(callers)], []

    def loop(i):
        call = op(i)
        try:
            while not errors and time.monotonic() < end:
                call()
                ends[i].append(time.monotonic())
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=loop, args=(i,), daemon=True) for i in range(callers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(max(0, end + PATIENCE - time.monotonic()))
    if any(t.is_alive() for t in threads):
        errors.append(RuntimeError("a caller hangs"))
    if errors:
        raise errors[0]
    ended = [t for all_ in ends for t in all_ if t >= begin]
    if not ended:
        return sum(map(len, ends)) / (time.monotonic() - start)
    if all(t >= end for t in ended):
        return len(ended) / (max(ended) - begin)
    return sum(t < end for t in ended) / window


def view(path, n):
    n = int(n)
    clients[0].create(path)
    viewer = clients[1]

    def open_():
        cache = TreeCache(viewer, path)
        done = threading.Event()
        state = dict(added=0, init=False)

        def told(event):
            if event.event_type == TreeEvent.NODE_ADDED:
                state["added"] += 1
            elif event.event_type == TreeEvent.INITIALIZED:
                state["init"] = True
            if state["init"] and state["added"] >= n + 1:
                done.set()

        cache.listen(told)
        begun = time.monotonic()
        cache.start()
        return cache, state, done, begun

    viewer.sync(path)
    cache, state, done, _ = open_()
    until("an empty view", lambda: state["init"])
    writer = connect("%s:%d" % tuple(clients[0].hosts[0]))
    room = threading.Semaphore(IN_FLIGHT)
    errors = []

    def created(result):
        if result.exception is not None:
            errors.append(result.exception)
        room.release()

    begun = time.monotonic()
    for i in range(n):
        room.acquire()
        writer.create_async("%s/m%05d" % (path, i), DATA, ephemeral=True).rawlink(created)
    if not done.wait(PATIENCE):
        raise RuntimeError("the view shows %d of %d members" % (state["added"] - 1, n))
    arrive = time.monotonic() - begun
    cache.close()
    if errors:
        raise errors[0]
    cache, state, done, begun = open_()
    if not done.wait(PATIENCE):
        raise RuntimeError("the second view shows %d of %d members" % (state["added"] - 1, n))
    opened = time.monotonic() - begun
    cache.close()
    writer.stop()
    writer.close()
    return arrive * 1000, opened * 1000


def counter(path, callers, ms):
    added = [0] * int(callers)

    def op(i):
        c = Counter(clients[i % len(clients)], path)

        def add():
            nonlocal c
            c += 1
            added[i] += 1
        return add

    rate = run(int(callers), int(ms) / 1000, op)
    clients[0].sync(path)
    total = Counter(clients[0], path).value
    if total != sum(added):
        raise RuntimeError("the counter is %d after %d adds" % (total, sum(added)))
    return (rate,)


def work(q):
    """Claims and finishes one task."""
    while q.get(timeout=1) is None:
        pass
    if not q.consume():
        raise RuntimeError("the claim was lost")


def flow(kind, path, callers, ms):
    def op(i):
        client = clients[i % len(clients)]
        q = (LockingQueue if kind == "claim" else Queue)(client, path)

        def task():
            q.put(DATA)
            if kind == "claim":
                work(q)
            else:
                while q.get() is None:
                    pass
        return task

    return (run(int(callers), int(ms) / 1000, op),)


def drain(path, n, callers, ms):
    n, callers, window = int(n), int(callers), int(ms) / 1000
    filler = LockingQueue(clients[0], path)
    for i in range(0, n, BATCH):
        filler.put_all([DATA] * min(BATCH, n - i))
    mutex = threading.Lock()
    left, done = n, 0
    begun = time.monotonic()

    def loop(i):
        nonlocal left, done
        q = LockingQueue(clients[i % len(clients)], path)
        while time.monotonic() - begun < window:
            with mutex:
                if left == 0:
                    return
                left -= 1
            work(q)
            with mutex:
                done += 1

    with ThreadPoolExecutor(callers) as pool:
        for f in [pool.submit(loop, i) for i in range(callers)]:
            f.result(timeout=PATIENCE)
    return (done / (time.monotonic() - begun),)


VERBS = dict(view=view, counter=counter, flow=flow, drain=drain)


def client_main(hosts):
    for host in hosts.split(","):
        clients.append(connect(host))
    say("ready")
    for line in sys.stdin:
        verb, *args = line.split()
        try:
            say("= " + " ".join(repr(x) for x in VERBS[verb](*args)))
        except Exception as e:
            say("! %r" % e)


def member_main(host, identifier, _, path, parts, settle, timeout):
    client = connect(host, int(timeout) / 1000)
    names = ["p%05d" % i for i in range(int(parts))]
    say("ready")

    def tell(sign, owned):
        now = time.time_ns()
        sys.stdout.write("".join("%s %d %s\n" % (sign, now, p) for p in owned))
        sys.stdout.flush()

    def work():
        changed = threading.Event()
        p = SetPartitioner(client, path, names, identifier=identifier,
                           time_boundary=int(settle) / 1000, state_change_event=changed)
        owned = []
        while not p.failed:
            changed.clear()
            if p.release:
                tell("-", owned)
                owned = []
                p.release_set()
            elif p.acquired:
                if not owned:
                    owned = list(p)
                    tell("+", owned)
                changed.wait(0.1)
            else:
                p.wait_for_acquire(0.01)
        sys.stderr.write("the partitioner has failed\n")

    for line in sys.stdin:
        if line.strip() == "leads":
            say("= 0")
        else:
            threading.Thread(target=work, daemon=True).start()


if sys.argv[1] == "client":
    client_main(*sys.argv[2:])
else:
    member_main(*sys.argv[2:])
