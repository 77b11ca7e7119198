"""Holds kazoo's locks on behalf of whoever started this.

usage: lock_kazoo.py PATH HOST:PORT,HOST:PORT,...

"N lock" begins to wait for the path's lock as contender N, who is told by "N held"; "N unlock" is answered "N free". The clients of the
contenders are spread over the servers. All end with the input.
"""
import logging
import sys
import threading

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
path, hosts = sys.argv[1], sys.argv[2].split(",")
clients = [KazooClient(hosts=h, timeout=10.0) for h in hosts]
for c in clients:
    c.start(timeout=30)
locks = {}
mutex = threading.Lock()


def say(n, what):
    with mutex:
        print(n, what, flush=True)


def lock(n):
    locks[n].acquire()
    say(n, "held")


def unlock(n):
    locks[n].release()
    say(n, "free")


for line in sys.stdin:
    n, what = line.split()
    if n not in locks:
        # Without the patterns kazoo sees only its own contenders: Curator's, go-zookeeper's and Vivarium's are named -lock-.
        locks[n] = clients[int(n) % len(clients)].Lock(path, n, extra_lock_patterns=["-lock-"])
    threading.Thread(target={"lock": lock, "unlock": unlock}[what], args=(n,), daemon=True).start()
for c in clients:
    c.stop()
