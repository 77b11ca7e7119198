"""Prints what kazoo's client and recipes do and receive. Every correct server gives the same transcript.

usage: client_kazoo.py HOST:PORT,HOST:PORT,HOST:PORT

It does not print what differs from run to run (ids, zxids, times), only what is known about it. A line
that begins with @ is a request to the process that started this one. "@cut 1" asks it to disconnect all
clients from the second server, and "@heal 1" to let them in again. The answer is a line.
"""
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from datetime import timedelta

from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.watchers import PatientChildrenWatch
from kazoo.security import ACL, Id, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_acl, make_digest_acl

logging.disable(logging.CRITICAL)
PATIENCE = 30
hosts = sys.argv[1].split(",")


def say(*words):
    print(*words, flush=True)


def ask(what):
    say("@" + what)
    if sys.stdin.readline().strip() != "ok":
        raise SystemExit("%s: refused" % what)


def section(name):
    say()
    say("==", name)


class Known(dict):
    """The sessions that have a name."""

    def name(self, session):
        return "none" if not session else self.get(session, "unknown")


known = Known()


def render(v):
    if isinstance(v, ZnodeStat):
        return "stat(version=%d cversion=%d aversion=%d length=%d children=%d owner=%s changed=%s children changed=%s)" % (
            v.version, v.cversion, v.aversion, v.dataLength, v.numChildren, known.name(v.ephemeralOwner),
            v.mzxid > v.czxid, v.pzxid > v.czxid)
    if isinstance(v, WatchedEvent):
        return "%s %s %s" % (v.type, v.state, v.path)
    if isinstance(v, BaseException):
        return "%s()" % type(v).__name__
    if isinstance(v, ACL):
        return "%d %s:%s" % (v.perms, v.id.scheme, v.id.id)
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(render(x) for x in v) + "]"
    if isinstance(v, (set, frozenset)):
        return "{" + ", ".join(sorted(render(x) for x in v)) + "}"
    if isinstance(v, bytes) and len(v) > 100:
        return "%d bytes" % len(v)
    return repr(v)


def show(label, do, *args, **kwargs):
    """Prints what a call returns or raises, and returns the same."""
    try:
        v = do(*args, **kwargs)
    except Exception as e:
        say(label, "!", type(e).__name__)
        return None
    say(label, "=", render(v))
    return v


def names(v):
    return sorted(v)


def until(what, cond):
    end = time.monotonic() + PATIENCE
    while not cond():
        if time.monotonic() > end:
            say("waited in vain:", what)
            raise SystemExit(1)
        time.sleep(0.005)


class Inbox(object):
    """Collects the arguments of callbacks."""

    def __init__(self):
        self.q = queue.Queue()

    def __call__(self, *args):
        self.q.put(args if len(args) != 1 else args[0])

    def take(self, label, n=1):
        for _ in range(n):
            try:
                say(label, "<-", render(self.q.get(timeout=PATIENCE)))
            except queue.Empty:
                say(label, "<- nothing")

    def rest(self, label):
        """Prints what no callback should have received."""
        while not self.q.empty():
            say(label, "<- too much:", render(self.q.get()))


clients = []
FAST = dict(max_tries=-1, delay=0.02, backoff=1, max_jitter=0.1, max_delay=0.1)


def client(name, server=0, chroot="", timeout=10.0, **kwargs):
    """Starts a client of one or several servers."""
    where = server if isinstance(server, tuple) else (server,)
    c = KazooClient(hosts=",".join(hosts[i] for i in where) + chroot, timeout=timeout, randomize_hosts=False,
                    connection_retry=dict(FAST), command_retry=dict(FAST), **kwargs)
    c.start(timeout=PATIENCE)
    known[c.client_id[0]] = name
    clients.append(c)
    return c


def spawn(do, *args, **kwargs):
    """Runs something in the background. join returns its result."""
    box = {}

    def run():
        try:
            box["value"] = do(*args, **kwargs)
        except Exception as e:
            box["value"] = e

    t = threading.Thread(target=run, daemon=True)
    t.start()

    def join():
        t.join(PATIENCE)
        return box.get("value", "it hangs")

    join.alive = t.is_alive
    return join


def barrier(*members):
    """Syncs, so that all of them see what any of them wrote: kazoo deletes recursively what it sees."""
    for c in members:
        c.sync("/")


def child():
    """A process that dies with a session and does not stop its client."""
    c = client("child", 1)
    c.create("/child", b"mine", ephemeral=True)
    print(c.client_id[0], c.client_id[1].hex(), flush=True)
    os._exit(0)


if len(sys.argv) > 2:
    child()


def connection():
    section("connection")
    c = KazooClient(hosts=hosts[0], timeout=10.0)
    show("state before", lambda: (c.state, c.connected, c.client_id))
    show("get before", c.get, "/")
    c.start(timeout=PATIENCE)
    show("state", lambda: (str(c.state), c.connected, str(c.client_state)))
    show("client_id", lambda: (c.client_id[0] != 0, len(c.client_id[1])))
    show("version is a release", lambda: c.server_version() >= (3, 5, 0))
    show("ruok", c.command, b"ruok")
    show("isro", c.command, b"isro")
    show("srvr", lambda: [line.split(":")[0] for line in c.command(b"srvr").splitlines() if not line.startswith("Proposal")])
    show("stat", lambda: [line.split(":")[0] for line in c.command(b"stat").splitlines() if line and line[0] not in " P"])
    show("wchs", lambda: c.command(b"wchs").splitlines())
    show("crst", c.command, b"crst")
    show("srst", c.command, b"srst")
    show("mntr", lambda: c.command(b"mntr").startswith("zk_version\t"))
    show("no such word", c.command, b"abcd")
    show("root", lambda: names(c.get_children("/")))
    show("zookeeper", lambda: names(c.get_children("/zookeeper")))
    first = c.client_id
    c.restart()
    show("restart", lambda: (c.connected, c.client_id == first))
    c.stop()
    show("state after", lambda: (str(c.state), c.connected, c.client_id))
    show("get after", c.get, "/")
    c.start(timeout=PATIENCE)
    show("started again", c.exists, "/none")
    c.stop()
    c.close()


def creates():
    section("create")
    c = client("a")
    show("plain", c.create, "/c", b"one")
    show("again", c.create, "/c", b"two")
    show("default data", c.create, "/c/empty")
    show("data", c.get, "/c/empty")
    show("no parent", c.create, "/missing/x", b"")
    show("makepath", c.create, "/c/1/2/3", b"deep", makepath=True)
    show("above it", c.get, "/c/1/2")
    show("include_data", c.create, "/c/i", b"data", include_data=True)
    show("sequence", c.create, "/c/s-", b"", sequence=True)
    show("sequence again", c.create, "/c/s-", b"", sequence=True)
    show("sequence of another name", c.create, "/c/t-", b"", sequence=True)
    show("sequence, include_data", c.create, "/c/s-", b"abc", sequence=True, include_data=True)
    show("sequence without a name", c.create, "/c/", b"", sequence=True)
    show("sequence, makepath", c.create, "/c/new/s-", b"", sequence=True, makepath=True)
    show("ephemeral", c.create, "/c/e", b"x", ephemeral=True)
    show("its stat", c.exists, "/c/e")
    show("ephemeral, include_data", c.create, "/c/f", b"x", ephemeral=True, include_data=True)
    show("ephemeral, sequence", c.create, "/c/es-", b"x", ephemeral=True, sequence=True)
    show("below an ephemeral", c.create, "/c/e/x", b"")
    show("below an ephemeral, makepath", c.create, "/c/e/x/y", b"", makepath=True)
    show("root", c.create, "/", b"")
    show("relative", c.create, "c/x", b"")
    show("no bytes", c.create, "/c/text", u"text")
    for label, path in [("double slash", "/c//x"), ("dot", "/c/./x"), ("dots", "/c/../x"), ("slash at the end", "/c/z/"), ("nul", "/c/\0"),
                        ("control", "/c/\x01"), ("delete", "/c/\x7f"), ("private", u"/c/\uf8ff"), ("emoji", u"/c/\U0001f600"),
                        ("umlaut", u"/c/\xfc"), ("space", "/c/a b"), ("dots in a name", "/c/..."), ("quota", "/zookeeper/quota/c"),
                        ("long", "/c/" + "n" * 3000)]:
        show("path: " + label, lambda: c.create(path, b"")[:40])
    show("children", lambda: [n[:40] for n in names(c.get_children("/c"))])
    show("stat", c.exists, "/c")
    show("large", c.create, "/c/large", b"x" * 1000000)
    show("large, read", lambda: c.get("/c/large")[0])
    show("empty ACL", c.create, "/c/noacl", b"", acl=[])
    show("ensure_path", c.ensure_path, "/c/p/q/r")
    show("ensure_path again", c.ensure_path, "/c/p/q/r")
    d = client("b", 1)
    d.sync("/")
    show("another sees", lambda: names(n for n in d.get_children("/c") if n.startswith("e")))
    show("whose it is", d.exists, "/c/e")
    c.stop()
    d.sync("/")
    show("after stop", lambda: names(n for n in d.get_children("/c") if n.startswith("e")))


def crud():
    section("get, set, exists, delete")
    c = client("a", 1)
    c.create("/d", b"one")
    show("get", c.get, "/d")
    show("set", c.set, "/d", b"two")
    show("set with version", c.set, "/d", b"three", version=1)
    show("set with an old version", c.set, "/d", b"four", version=1)
    show("set with version -2", c.set, "/d", b"four", version=-2)
    show("set to the same", c.set, "/d", b"three")
    show("set to nothing", c.set, "/d", b"")
    show("get nothing", c.get, "/d")
    show("set to null", c.set, "/d", None)
    show("get null", c.get, "/d")
    show("set what is missing", c.set, "/none", b"")
    show("get what is missing", c.get, "/none")
    show("exists", c.exists, "/d")
    show("exists what is missing", c.exists, "/none")
    show("children of what is missing", c.get_children, "/none")
    show("children of a leaf", c.get_children, "/d")
    for i in range(3):
        c.create("/d/%d" % i, b"")
        c.create("/d/%d/x" % i, b"")
    show("children", lambda: names(c.get_children("/d")))
    show("children with data", lambda: (lambda n, s: (names(n), s))(*c.get_children("/d", include_data=True)))
    show("delete with children", c.delete, "/d")
    show("delete with a wrong version", c.delete, "/d/0/x", version=3)
    show("delete with version", c.delete, "/d/0/x", version=0)
    show("delete what is missing", c.delete, "/d/0/x")
    show("delete below what is missing", c.delete, "/none/x")
    show("stat", c.exists, "/d")
    show("delete recursively", c.delete, "/d", recursive=True)
    show("delete recursively what is missing", c.delete, "/d", recursive=True)
    show("it is gone", c.exists, "/d")
    show("delete the root", c.delete, "/")
    show("delete /zookeeper", c.delete, "/zookeeper")
    show("delete /zookeeper/quota", c.delete, "/zookeeper/quota")
    show("sync", c.sync, "/anything")
    show("retry", c.retry, c.exists, "/none")
    show("retry, an error", c.retry, c.get, "/none")
    show("root's data", lambda: c.get("/")[0])
    show("config's stat", lambda: c.exists("/zookeeper/config") is not None)
    show("set config", c.set, "/zookeeper/config", b"x")


def transactions():
    section("transactions")
    c = client("a", 2)
    c.create("/t", b"")
    t = c.transaction()
    t.create("/t/a", b"1")
    t.create("/t/s-", b"2", sequence=True)
    t.create("/t/e", b"3", ephemeral=True)
    t.set_data("/t/a", b"4")
    t.check("/t/a", version=1)
    t.delete("/t/s-0000000001")
    show("commit", t.commit)
    show("commit again", t.commit)
    show("children", lambda: names(c.get_children("/t")))
    show("stat", c.exists, "/t")
    show("one zxid", lambda: c.exists("/t/e").czxid == c.exists("/t/a").mzxid == c.exists("/t").pzxid)
    t = c.transaction()
    t.create("/t/b", b"")
    t.check("/t/a", version=7)
    t.delete("/t/a")
    show("a failure", t.commit)
    show("left behind", c.exists, "/t/b")
    for label, build in [
            ("no node", lambda t: t.delete("/t/none")),
            ("exists", lambda t: t.create("/t/a", b"")),
            ("not empty", lambda t: t.delete("/t")),
            ("no parent", lambda t: t.create("/none/x", b"")),
            ("below an ephemeral", lambda t: t.create("/t/e/x", b"")),
            ("bad version", lambda t: t.set_data("/t/a", b"", version=9)),
            ("bad ACL", lambda t: t.create("/t/x", b"", acl=[make_acl("nonsense", "x", all=True)])),
            ("check of what is missing", lambda t: t.check("/t/none", version=-1)),
            ("check", lambda t: t.check("/t/a", version=1))]:
        t = c.transaction()
        t.set_data("/t", b"not to be")
        build(t)
        t.set_data("/t", b"nor this")
        show("transaction: " + label, t.commit)
    show("data", c.get, "/t")
    show("empty", c.transaction().commit)
    with c.transaction() as t:
        t.create("/t/with", b"")
        t.delete("/t/with")
    try:
        with c.transaction() as t:
            t.create("/t/with", b"")
            raise KeyError("x")
    except KeyError:
        pass
    show("with", c.exists, "/t/with")
    t = c.transaction()
    t.create("/t/async", b"")
    show("async", lambda: t.commit_async().get(timeout=PATIENCE))


def acls():
    section("ACLs")
    c, d = client("a"), client("b", 1)
    bob = make_digest_acl("bob", "pw", all=True)
    c.create("/acl", b"", acl=[bob])
    show("get", c.get, "/acl")
    show("get_acls", c.get_acls, "/acl")
    show("children", c.get_children, "/acl")
    show("set", c.set, "/acl", b"")
    show("create", c.create, "/acl/x", b"")
    show("set_acls", c.set_acls, "/acl", OPEN_ACL_UNSAFE)
    show("delete", c.delete, "/acl/none")
    show("add_auth", c.add_auth, "digest", "bob:pw")
    show("get", c.get, "/acl")
    show("get_acls", c.get_acls, "/acl")
    show("create", c.create, "/acl/x", b"")
    show("set_acls", c.set_acls, "/acl", [bob, make_acl("world", "anyone", read=True)])
    show("set_acls, old version", c.set_acls, "/acl", [bob], version=0)
    show("set_acls, version", c.set_acls, "/acl", [bob, make_acl("world", "anyone", read=True)], version=1)
    d.sync("/")
    show("another: get", d.get, "/acl")
    show("another: get_acls", d.get_acls, "/acl")
    show("another: set", d.set, "/acl", b"")
    show("another: create", d.create, "/acl/y", b"")
    show("another: delete a child", d.delete, "/acl/x")
    show("another: transaction", lambda: d.transaction().set_data("/acl", b"") or d.transaction().commit())
    show("creator", c.create, "/acl/mine", b"", acl=CREATOR_ALL_ACL)
    show("creator's", c.get_acls, "/acl/mine")
    show("creator who is nobody", d.create, "/nobody", b"", acl=CREATOR_ALL_ACL)
    show("read only", c.create, "/acl/read", b"", acl=READ_ACL_UNSAFE)
    show("read only: set", c.set, "/acl/read", b"")
    for label, acl in [("scheme", make_acl("nonsense", "x", all=True)), ("world", make_acl("world", "bob", all=True)),
                       ("digest", make_acl("digest", "nocolon", all=True)), ("ip", make_acl("ip", "1.2.3", all=True))]:
        show("bad " + label, c.create, "/acl/bad", b"", acl=[acl])
    for label, acl in [("ip", make_acl("ip", "127.0.0.1", all=True)), ("ip with bits", make_acl("ip", "127.0.0.0/8", read=True)),
                       ("twice", bob)]:
        show("good " + label, c.create, "/acl/good", b"", acl=[acl, acl])
        show("good " + label, c.get_acls, "/acl/good")
        barrier(d)
        show("good %s, another" % label, d.get, "/acl/good")
        c.delete("/acl/good")
    show("another pw", d.add_auth, "digest", "bob:other")
    show("another pw: set", d.set, "/acl", b"")
    show("second identity", d.add_auth, "digest", "bob:pw")
    show("second identity: set", d.set, "/acl", b"")
    e = client("c", 2, auth_data=[("digest", "bob:pw")], default_acl=[bob])
    barrier(e)
    show("auth_data", e.get, "/acl")
    show("default_acl", e.create, "/acl/default", b"")
    show("default_acl", e.get_acls, "/acl/default")
    c.delete("/acl/default")
    show("bad scheme", lambda: e.add_auth("nonsense", "x"))
    until("a client that is not let in to stop", lambda: not e.connected)
    show("bad scheme, state", lambda: str(e.state))
    barrier(d)
    d.delete("/acl", recursive=True)


def asynchronous():
    section("async")
    c = client("a")
    c.create("/as", b"")
    calls = [c.create_async("/as/n-", b"%d" % i, sequence=True) for i in range(50)]
    show("created in order", lambda: [x.get(timeout=PATIENCE) for x in calls] == ["/as/n-%010d" % i for i in range(50)])
    calls = [c.set_async("/as", b"x"), c.get_async("/as"), c.exists_async("/none"), c.get_async("/none"), c.delete_async("/as/n-0000000000"),
             c.get_children_async("/as/n-0000000001"), c.set_async("/as", b"y", version=9), c.sync_async("/as"), c.get_acls_async("/as"),
             c.ensure_path_async("/as/p/q"), c.create_async("/as/n-0000000001", b"")]
    for i, x in enumerate(calls):
        show("call %d" % i, x.get, timeout=PATIENCE)
    seen = []
    last = None
    for i in range(20):
        last = c.set_async("/as", b"%d" % i)
        c.get_async("/as").rawlink(lambda r: seen.append(r.get()[0]))
    last.get(timeout=PATIENCE)
    until("answers", lambda: len(seen) == 20)
    show("reads between writes", lambda: seen == [b"%d" % i for i in range(20)])
    c.delete("/as", recursive=True)


def watches():
    section("watches")
    c, d = client("a"), client("b", 1)
    box = Inbox()
    show("exists", c.exists, "/w", watch=box)
    d.create("/w", b"")
    box.take("created")
    c.get("/w", watch=box)
    d.set("/w", b"x")
    box.take("changed")
    c.get_children("/w", watch=box)
    d.create("/w/x", b"")
    box.take("child")
    c.get_children("/w", watch=box)
    d.delete("/w/x")
    box.take("child gone")
    other = Inbox()
    c.get("/w", watch=box)
    c.exists("/w", watch=other)
    d.set("/w", b"y")
    box.take("two watchers, one")
    other.take("two watchers, the other")
    c.get("/w", watch=box)
    c.get_children("/w", watch=other)
    d.delete("/w")
    box.take("deleted, data")
    other.take("deleted, children")
    show("get of what is missing", c.get, "/w", watch=box)
    show("children of what is missing", c.get_children, "/w", watch=box)
    c.exists("/w", watch=box)
    c.create("/w", b"")
    box.take("one's own")
    c.get("/w", watch=box)
    c.set_acls("/w", OPEN_ACL_UNSAFE)
    c.set("/w", b"")
    box.take("not for an ACL")
    c.get("/w", watch=box)
    t = c.transaction()
    t.set_data("/w", b"1")
    t.set_data("/w", b"2")
    t.commit()
    box.take("a transaction")
    e = client("c", 2)
    e.create("/w/e", b"", ephemeral=True)
    c.sync("/")
    c.get_children("/w", watch=box)
    c.exists("/w/e", watch=other)
    e.stop()
    other.take("an ephemeral")
    box.take("an ephemeral's parent")
    box.rest("box")
    other.rest("other")
    c.delete("/w")

    section("DataWatch and ChildrenWatch")
    box = Inbox()

    @c.DataWatch("/dw")
    def told(data, stat, event):
        box((data, stat, event))

    box.take("at first")
    c.create("/dw", b"1")
    box.take("created")
    c.set("/dw", b"2")
    box.take("changed")
    c.delete("/dw")
    box.take("deleted")
    c.create("/dw", b"3")
    box.take("created again")
    count = Inbox()

    @c.DataWatch("/dw")
    def once(data, stat):
        count(data)
        return False

    count.take("once")
    c.set("/dw", b"4")
    box.take("changed again")
    count.rest("once")
    kids = Inbox()

    @c.ChildrenWatch("/dw", send_event=True)
    def children(names, event):
        kids((sorted(names), event))

    kids.take("children at first")
    c.create("/dw/a", b"")
    kids.take("one")
    c.create("/dw/b", b"")
    kids.take("two")
    c.delete("/dw/a")
    kids.take("one again")
    show("ChildrenWatch of what is missing", lambda: c.ChildrenWatch("/none", lambda names: None) and None)
    calm = PatientChildrenWatch(c, "/dw", time_boundary=0.1).start()
    show("PatientChildrenWatch", lambda: sorted(calm.get(timeout=PATIENCE)[0]))
    box.rest("box")
    kids.rest("kids")
    c.stop()
    barrier(d)
    d.delete("/dw", recursive=True)


def chroot():
    section("chroot")
    plain = client("a")
    c = client("b", 1, "/root/of/mine")
    show("chroot", lambda: c.chroot)
    show("root is missing", c.create, "/x", b"")
    show("ensure_path", c.ensure_path, "/") # which takes its root for given
    plain.ensure_path("/root/of/mine")
    barrier(c)
    show("create", c.create, "/x", b"1")
    show("sequence", c.create, "/s-", b"", sequence=True)
    show("include_data", c.create, "/y", b"1", include_data=True)
    box = Inbox()
    c.get("/x", watch=box)
    c.get_children("/", watch=box)
    plain.sync("/")
    show("outside", plain.get, "/root/of/mine/x")
    plain.set("/root/of/mine/x", b"2")
    box.take("data")
    plain.create("/root/of/mine/z", b"")
    box.take("children")
    t = c.transaction()
    t.create("/t", b"")
    t.create("/t/s-", b"", sequence=True)
    show("transaction", t.commit)
    c.chroot = "/root"
    c.sync("/")
    show("another chroot", lambda: c.get_children("/"))
    barrier(plain)
    plain.delete("/root", recursive=True)


def sessions():
    section("suspended, and connected again")
    witness = client("witness", 0)
    states, box, data, kids = Inbox(), Inbox(), Inbox(), Inbox()
    c = client("a", (1, 2))
    c.add_listener(states)
    c.create("/se", b"")
    c.create("/se/e", b"", ephemeral=True)
    c.get("/se", watch=box)
    c.exists("/se/new", watch=box)
    c.get_children("/se/e", watch=box)
    c.DataWatch("/se", lambda value, stat: data(value))
    c.ChildrenWatch("/se", lambda names: kids(sorted(names)))
    data.take("data")
    kids.take("children")
    mine = c.client_id
    ask("cut 1")
    states.take("member cut")
    box.take("kazoo takes leave of watches", 3)
    states.take("at another")
    show("the same session", lambda: c.client_id == mine)
    show("its ephemeral", c.exists, "/se/e")
    witness.set("/se", b"between") # kazoo may forget a watch whose connection is lost while it arms it
    data.take("data")
    witness.create("/se/between", b"")
    kids.take("children")
    ask("cut 2")
    states.take("all cut")
    witness.set("/se", b"meanwhile")
    witness.create("/se/new", b"")
    late = spawn(c.retry, c.get, "/se")
    show("get", lambda: c.get_async("/se").get(timeout=0.2))
    ask("heal 1")
    states.take("healed")
    show("retried", late)
    data.take("data")
    kids.take("children")
    show("the same session", lambda: c.client_id == mine)
    show("its ephemeral", c.exists, "/se/e")
    ask("heal 2")
    box.rest("box")
    data.rest("data")
    kids.rest("kids")
    witness.set("/se", b"again")
    data.take("data")

    section("lost")
    gone = Inbox()
    f = client("f", 1, timeout=6.0)  # which nothing but the cut may end
    ends = Inbox()
    f.add_listener(ends)
    f.create("/se/lost", b"", ephemeral=True)
    before = f.client_id
    witness.sync("/")
    witness.exists("/se/lost", watch=gone)
    ask("cut 1")
    ends.take("cut")
    gone.take("its ephemeral")
    ask("heal 1")
    ends.take("healed")
    ends.take("healed")
    show("another session", lambda: f.client_id[0] not in (0, before[0]))
    known[f.client_id[0]] = "f"
    show("it works", f.create, "/se/lost", b"", ephemeral=True)
    show("its own", f.exists, "/se/lost")
    f.remove_listener(ends)
    f.stop()
    ends.rest("a listener that was removed")

    section("another process takes a session over")
    out = subprocess.run([sys.executable, __file__, sys.argv[1], "child"], stdout=subprocess.PIPE, check=True).stdout.split()
    held = (int(out[0]), bytes.fromhex(out[1].decode()))
    wrong = client("wrong", 2, client_id=(held[0], b"\1" * 16))
    show("wrong password", lambda: wrong.client_id[0] == held[0])
    heir = client("heir", 0, client_id=held)
    show("the session is its own", lambda: heir.client_id == held)
    heir.sync("/")
    show("the ephemeral", heir.get, "/child")
    heir.stop()
    witness.sync("/")
    show("after stop", witness.exists, "/child")
    expired = client("expired", 1, client_id=held)
    show("a session that is closed", lambda: expired.client_id[0] == held[0])
    witness.delete("/se", recursive=True)


def recipes():
    a, b, c = client("a", 0), client("b", 1), client("c", 2)
    everyone = (a, b, c)

    section("Lock")
    locks = [x.Lock("/r/lock", name) for x, name in zip(everyone, "abc")]
    order = []
    show("acquire", locks[0].acquire)
    show("acquire, not blocking", locks[1].acquire, blocking=False)
    show("acquire, timeout", locks[1].acquire, timeout=0.1)
    barrier(c)
    show("contenders", locks[2].contenders)
    waiting = []
    for l, name in zip(locks[1:], "bc"):
        waiting.append(spawn(lambda l=l, name=name: (l.acquire(), order.append(name))[0]))
        until("a contender", lambda: name in l.contenders())
    barrier(a)
    show("contenders", locks[0].contenders)
    show("release", locks[0].release)
    show("second", waiting[0])
    show("release", locks[1].release)
    show("third", waiting[1])
    show("order", lambda: order)
    show("is_acquired", lambda: [l.is_acquired for l in locks])
    show("release twice", lambda: (locks[2].release(), locks[2].release()))
    with a.Lock("/r/lock", "a"):
        barrier(b)
        show("with", b.Lock("/r/lock").contenders)
    held = a.Lock("/r/lock", "a")
    held.acquire()
    cancelled = b.Lock("/r/lock", "b")
    waits = spawn(cancelled.acquire)
    until("a contender", lambda: "b" in cancelled.contenders())
    cancelled.cancel()
    show("cancelled", waits)
    held.release()
    d = client("d", 1)
    held = d.Lock("/r/lock", "d")
    held.acquire()
    barrier(a)
    waits = spawn(a.Lock("/r/lock", "a").acquire)
    until("a contender", lambda: len(a.Lock("/r/lock").contenders()) == 2)
    d.stop()
    show("its holder's session has ended", waits)
    a.delete("/r/lock", recursive=True)

    section("ReadLock and WriteLock")
    barrier(*everyone)
    r1, r2, w1, r3 = a.ReadLock("/r/rw", "r1"), b.ReadLock("/r/rw", "r2"), c.WriteLock("/r/rw", "w1"), a.ReadLock("/r/rw", "r3")
    show("readers", lambda: (r1.acquire(), r2.acquire()))
    barrier(c)
    show("writer, not blocking", w1.acquire, blocking=False)
    writer = spawn(w1.acquire)
    until("the writer", lambda: len(c.get_children("/r/rw")) == 3)
    barrier(a)
    show("a reader behind it", r3.acquire, blocking=False)
    r1.release()
    show("writer waits", lambda: writer.alive())
    r2.release()
    show("writer", writer)
    w1.release()
    barrier(a)
    show("reader", r3.acquire)
    r3.release()

    section("Semaphore")
    sem = [x.Semaphore("/r/sem", name, max_leases=2) for x, name in zip(everyone, "abc")]
    show("two", lambda: (sem[0].acquire(), sem[1].acquire()))
    barrier(c)
    show("a third, not blocking", sem[2].acquire, blocking=False)
    show("a third, timeout", sem[2].acquire, timeout=0.1)
    show("holders", lambda: names(sem[2].lease_holders()))
    third = spawn(sem[2].acquire)
    show("release", sem[0].release)
    show("a third", third)
    show("other size", lambda: c.Semaphore("/r/sem", max_leases=5).acquire())
    sem[1].release(), sem[2].release()

    section("Election")
    led = Inbox()
    ends = threading.Event()

    def lead(name):
        led(name)
        ends.wait(PATIENCE)

    elections = [x.Election("/r/election", name) for x, name in zip(everyone, "abc")]
    runs = []
    for x, name in zip(elections, "abc"):
        runs.append(spawn(x.run, lead, name))
        until("a candidate", lambda: name in x.contenders())
    led.take("leader")
    barrier(a)
    show("candidates", elections[0].contenders)
    elections[1].cancel()
    show("cancelled", runs[1])
    ends.set()
    show("the first", runs[0])
    led.take("leader")
    show("the third", runs[2])
    led.rest("led")

    section("Barrier and DoubleBarrier")
    gate = a.Barrier("/r/barrier")
    show("wait without one", gate.wait, timeout=PATIENCE)
    gate.create()
    barrier(b)
    show("wait, timeout", b.Barrier("/r/barrier").wait, timeout=0.1)
    waits = spawn(b.Barrier("/r/barrier").wait, timeout=PATIENCE)
    show("remove", gate.remove)
    show("wait", waits)
    show("remove again", gate.remove)
    both = [x.DoubleBarrier("/r/double", 3, name) for x, name in zip(everyone, "abc")]
    entering = [spawn(x.enter) for x in both]
    show("enter", lambda: [x() for x in entering])
    show("participating", lambda: [x.participating for x in both])
    leaving = [spawn(x.leave) for x in both]
    show("leave", lambda: [x() for x in leaving])
    barrier(*everyone)
    show("participating", lambda: ([x.participating for x in both], a.get_children("/r/double")))

    section("Party and ShallowParty")
    for kind in ("Party", "ShallowParty"):
        party = [getattr(x, kind)("/r/" + kind, name) for x, name in zip(everyone, "abc")]
        for x in party:
            x.join()
        barrier(*everyone)
        show(kind, lambda: (names(party[0]), len(party[1]), names(party[2])))
        party[1].leave()
        barrier(*everyone)
        show(kind + ", one left", lambda: (names(party[0]), len(party[1])))
        for x in party:
            x.leave()

    section("Queue and LockingQueue")
    q, r = a.Queue("/r/queue"), b.Queue("/r/queue")
    show("empty", q.get)
    for v, priority in [(b"two", 200), (b"one", 100), (b"three", 200), (b"zero", 1)]:
        q.put(v, priority)
    barrier(b)
    show("length", lambda: len(r))
    show("got", lambda: [r.get() for _ in range(5)])
    q, r = a.LockingQueue("/r/lq"), b.LockingQueue("/r/lq")
    q.put(b"one")
    q.put_all([b"two", b"three"])
    q.put(b"urgent", 1)
    barrier(b)
    show("get", q.get)
    barrier(b)
    show("the other's get", r.get)
    show("holds_lock", lambda: (q.holds_lock(), r.holds_lock(), len(q)))
    show("consume", q.consume)
    show("release", r.release)
    barrier(a)
    show("get what was released", q.get)
    show("consume", q.consume)
    barrier(b)
    show("the rest", lambda: (r.get(), r.consume(), r.get(), r.consume()))
    show("get, timeout", r.get, timeout=0.1)
    show("consume nothing", r.consume)
    waits = spawn(r.get, PATIENCE)
    q.put(b"late")
    show("a get that waited", waits)
    show("consume", r.consume)

    section("Counter")
    n, m = a.Counter("/r/counter"), b.Counter("/r/counter")
    n += 5
    n -= 2
    barrier(b)
    show("value", lambda: (n.value, m.value, n.pre_value, n.post_value))
    adding = [spawn(lambda x=x: [x.Counter("/r/counter").__add__(1) for _ in range(10)] and None) for x in everyone]
    show("adding at once", lambda: [x() for x in adding])
    barrier(a)
    show("value", lambda: n.value)
    f = a.Counter("/r/float", default=1.5)
    f += 2.25
    show("float", lambda: f.value)
    show("curator's", lambda: (lambda x: (x.__add__(7), x.value, a.get("/r/int")[0]))(a.Counter("/r/int", support_curator=True))[1:])
    show("other type", lambda: a.Counter("/r/counter", default=1.5).__add__(1))

    section("SetPartitioner")
    items = ("1", "2", "3", "4", "5")
    one = a.SetPartitioner("/r/set", items, identifier="a", time_boundary=0.2)
    one.wait_for_acquire(PATIENCE)
    show("alone", lambda: (one.acquired, sorted(one)))
    two = b.SetPartitioner("/r/set", items, identifier="b", time_boundary=0.2)
    until("a release", lambda: one.release)
    one.release_set()
    one.wait_for_acquire(PATIENCE)
    two.wait_for_acquire(PATIENCE)
    show("two", lambda: (one.acquired, sorted(one), two.acquired, sorted(two)))
    two.finish()
    until("a release", lambda: one.release)
    one.release_set()
    one.wait_for_acquire(PATIENCE)
    show("alone again", lambda: (one.acquired, sorted(one)))
    one.finish()
    show("finished", lambda: (one.failed, two.failed))

    section("TreeCache")
    a.ensure_path("/r/cache/x")
    box = Inbox()
    cache = TreeCache(a, "/r/cache")
    cache.listen(lambda e: box((EVENTS[e.event_type], e.event_data and (e.event_data.path, e.event_data.data))))
    cache.start()
    box.take("start", 3)
    a.set("/r/cache/x", b"1")
    box.take("changed")
    a.create("/r/cache/x/y", b"2")
    box.take("added")
    show("get_data", lambda: (cache.get_data("/r/cache/x/y").data, cache.get_data("/r/cache/none")))
    show("get_children", lambda: (cache.get_children("/r/cache/x"), cache.get_children("/r/cache/none")))
    a.delete("/r/cache/x/y")
    box.take("removed")
    cache.close()
    box.rest("box")

    section("Lease")
    lease = a.NonBlockingLease("/r/lease", timedelta(seconds=600), identifier="a")
    show("granted", lambda: bool(lease))
    barrier(b)
    show("to another", lambda: bool(b.NonBlockingLease("/r/lease", timedelta(seconds=600), identifier="b")))
    barrier(c)
    show("to the same", lambda: bool(c.NonBlockingLease("/r/lease", timedelta(seconds=600), identifier="a")))
    many = [bool(x.MultiNonBlockingLease(2, "/r/leases", timedelta(seconds=600), identifier=name)) for x, name in zip(everyone, "abc")]
    show("two of three", lambda: many)

    barrier(a)
    a.delete("/r", recursive=True)


EVENTS = {getattr(TreeEvent, k): k for k in dir(TreeEvent) if k.isupper()}

for part in (connection, creates, crud, transactions, acls, asynchronous, watches, chroot, sessions, recipes):
    began = time.monotonic()
    part()
    print("%s: %.1f s" % (part.__name__, time.monotonic() - began), file=sys.stderr)
    for c in clients:
        c.stop()
        c.close()
    del clients[:]
say()
say("done")
