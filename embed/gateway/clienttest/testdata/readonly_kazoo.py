"""Prints what kazoo's read_only client does with a quorum, without one, and with one again.

usage: readonly_kazoo.py HOST:PORT,HOST:PORT,HOST:PORT

A line that begins with @ is a request to the process that started this one: "@stop 1" asks it to stop
the second server, and "@start 1" to start it again. The answer is a line.
"""
import logging
import socket
import sys
import time

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

logging.disable(logging.CRITICAL)
PATIENCE = 60
hosts = sys.argv[1].split(",")


def say(*words):
    print(*words, flush=True)


def ask(what):
    say("@" + what)
    if sys.stdin.readline().strip() != "ok":
        raise SystemExit("%s: refused" % what)


def until(what, cond):
    deadline = time.time() + PATIENCE
    while not cond():
        if time.time() > deadline:
            raise SystemExit("no " + what)
        time.sleep(0.02)


def word(host, text):
    name, port = host.split(":")
    try:
        with socket.create_connection((name, int(port)), 5) as s:
            s.settimeout(5)
            s.sendall(text)
            answer = b""
            while True:
                more = s.recv(4096)
                if not more:
                    return answer.decode()
                answer += more
    except OSError:
        return ""


def show(label, do, *args, **kwargs):
    try:
        v = do(*args, **kwargs)
    except Exception as e:
        say(label, "!", type(e).__name__)
        return None
    if isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], bytes):
        v = v[0]
    elif hasattr(v, "czxid"):
        v = "stat(version=%d length=%d children=%d)" % (v.version, v.dataLength, v.numChildren)
    say(label, v)


def works(c, path):
    """What a client can do."""
    show("get", c.get, path)
    show("get, none", c.get, "/none")
    show("exists", c.exists, path)
    show("exists, none", c.exists, "/none")
    show("children", lambda: sorted(c.get_children("/")))
    show("acls", lambda: [(a.perms, a.id.scheme, a.id.id) for a in c.get_acls(path)[0]])
    show("create", c.create, path + "/b", b"")
    show("create an ephemeral", c.create, path + "/e", b"", ephemeral=True)
    show("create what exists", c.create, path)
    show("set", c.set, path, b"y")
    show("set, bad version", c.set, path, b"y", version=77)
    show("delete what is missing", c.delete, "/none")
    show("delete", c.delete, path + "/b")
    show("delete", c.delete, path + "/e")
    show("sync", c.sync, path)
    t = c.transaction()
    t.check(path, -1)
    show("a check in a transaction", lambda: [type(r).__name__ for r in t.commit()])


say("== with a quorum")
c = KazooClient(",".join(hosts), timeout=10, read_only=True)
c.start(timeout=PATIENCE)
say(c.state, c.client_state)
show("create", c.create, "/a", b"x")
works(c, "/a")
c.stop()
c.close()

say("== without a quorum")
ask("stop 1")
ask("stop 2")
until("read-only mode", lambda: word(hosts[0], b"isro") == "ro")
say([line for line in word(hosts[0], b"srvr").splitlines() if line.startswith("Mode") or line.startswith("READ")])
plain = KazooClient(hosts[0], timeout=10)
try:
    plain.start(timeout=3)
    say("connected")
except KazooTimeoutError as e:
    say("a client that does not accept it:", type(e).__name__)
plain.stop()
plain.close()
states, events = [], []
c = KazooClient(",".join(hosts), timeout=10, read_only=True)
c.add_listener(lambda s: states.append((s, c.client_state)))
c.start(timeout=PATIENCE)
say(c.state, c.client_state, word(hosts[0], b"isro"))
works(c, "/a")
show("get with a watch", c.get, "/a", watch=lambda e: events.append((e.type, e.state, e.path)))
show("add_auth", c.add_auth, "digest", "bob:pw")
time.sleep(12)
say("after more than its timeout", c.state, c.client_state, states)

say("== with a quorum again")
ask("start 1")
ask("start 2")
until("session", lambda: ("CONNECTED", "CONNECTED") in states)
say(sorted(set(states)))  # it may have found the same server again in between
say("the watch", events)
until("quorum", lambda: all("Mode: " in word(h, b"srvr") for h in hosts))
works(c, "/a")
c.stop()
c.close()
