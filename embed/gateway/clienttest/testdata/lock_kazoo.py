"""Holds kazoo's locks, permits and leaderships for the process that started this one.

usage: lock_kazoo.py TIMEOUT-MS HOST:PORT,HOST:PORT,...

It prints "ready" when its clients are connected. "N WHAT PATH" lets contender N wait, and "N held" says
that it holds. "N end" releases, and "N free" answers. WHAT is one of:

  lock, read, write       kazoo's Lock, ReadLock and WriteLock under their own names
  curator-lock, curator-read, curator-write, curator-latch
                          the same, and an Election's Lock, under Curator's names
  1/LIMIT                 a Semaphore where Curator has it

The clients of the contenders are spread over the servers. All end with the input.
"""
import functools
import logging
import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

logging.disable(logging.CRITICAL)

# How others name their contenders. These are kazoo's patterns: regular expressions to which kazoo adds the
# ten digits. In Vivarium's queues, a place between two numbers has more before the digits.
PLACE = "(?:[0-9]{10}[0-9a-f]{8}-[0-9a-f]{4})?"
LOCKS, READERS, WRITERS, CANDIDATES = "-lock-", "__READ__", "__WRIT__" + PLACE, "-latch-" + PLACE


class Fair(object):
    """Waits only for earlier contenders. Before kazoo 2.9 a ReadLock also waits for later writers (#649)."""

    def _get_predecessor(self, node):
        names = self.client.get_children(self.path)
        if node not in names:
            return super(Fair, self)._get_predecessor(node)
        earlier = [n for n in names if self._contenders_re.search(n) and n[-10:] < node[-10:]]
        return max(earlier, key=lambda n: n[-10:]) if earlier else None


class CuratorLock(Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-lock-", [LOCKS]


class CuratorReadLock(Fair, Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-__READ__", [WRITERS]


class CuratorWriteLock(Fair, Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-__WRIT__", [READERS, WRITERS]


class CuratorLatch(Fair, Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-latch-", [CANDIDATES]


class FairReadLock(Fair, ReadLock):
    pass


class CuratorSemaphore(Semaphore):
    def __init__(self, client, path, *args, **kwargs):
        super(CuratorSemaphore, self).__init__(client, path + "/leases", *args, **kwargs)
        self.lock_path = path + "/locks"

    def _ensure_path(self):
        # Unlike kazoo, this stores no limit. kazoo's limit is the data of leases, and a znode that was
        # created without data has no limit for kazoo.
        self.client.ensure_path(self.path)
        self.assured_path = True


def recipe(client, what, path, n):
    if what == "lock":
        # Without the patterns kazoo sees only its own contenders.
        return Lock(client, path, n, extra_lock_patterns=[LOCKS])
    if what == "read":
        return FairReadLock(client, path, n, extra_lock_patterns=[WRITERS])
    if what == "write":
        return WriteLock(client, path, n, extra_lock_patterns=[READERS, WRITERS])
    if what == "curator-latch":
        return CuratorLatch(client, path, n)
    if what == "curator-lock":
        return CuratorLock(client, path, n)
    if what == "curator-read":
        return CuratorReadLock(client, path, n)
    if what == "curator-write":
        return CuratorWriteLock(client, path, n)
    return CuratorSemaphore(client, path, n, max_leases=int(what.split("/")[1]))


timeout, hosts = float(sys.argv[1]) / 1000, sys.argv[2].split(",")
clients = [KazooClient(hosts=h, timeout=timeout) for h in hosts]
for c in clients:
    c.Lock = functools.partial(CuratorLock, c)  # which a Semaphore takes
    c.start(timeout=30)
held = {}
mutex = threading.Lock()


def say(n, what):
    with mutex:
        print(n, what, flush=True)


def begin(n, what, path):
    held[n] = recipe(clients[int(n) % len(clients)], what, path, n)
    held[n].acquire()


def end(n):
    held[n].release()


def do(step, n, done, *args):
    try:
        step(n, *args)
        say(n, done)
    except Exception as e:
        say(n, repr(e))


print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[1] == "end":
        args = (end, words[0], "free")
    else:
        args = (begin, words[0], "held", words[1], words[2])
    threading.Thread(target=do, args=args, daemon=True).start()
for c in clients:
    c.stop()
