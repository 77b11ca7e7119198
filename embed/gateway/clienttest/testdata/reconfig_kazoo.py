"""Prints what kazoo's reconfig does and receives. Every correct server gives the same transcript.

usage: reconfig_kazoo.py HOST:PORT,HOST:PORT,HOST:PORT

The servers are those with the ids 1, 2 and 3, and super:test is their superuser. The script prints
no id, because it removes a server that does not lead.
"""
import logging
import queue
import socket
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import ZookeeperError

logging.disable(logging.CRITICAL)
CONFIG = "/zookeeper/config"
hosts = sys.argv[1].split(",")
client = KazooClient(hosts[0], timeout=20)
client.start(30)


def say(*words):
    print(*words, flush=True)


def leads(host):
    name, port = host.split(":")
    with socket.create_connection((name, int(port)), 30) as s:
        s.sendall(b"srvr")
        return b"Mode: leader" in s.makefile("rb").read()


def servers(data):
    return [line for line in data.decode().split("\n") if line.startswith("server.")]


def show(data, stat):
    roles = sorted(line.split(";")[0].split(":")[-1] for line in servers(data))
    last = data.decode().split("\n")[-1]
    say(" ", roles, "the last line is the version:", last == "version=%x" % stat.mzxid, "version", stat.version, "aversion", stat.aversion)


def attempt(what, *args):
    try:
        data, stat = client.reconfig(*args)
        say(what, "ok")
        show(data, stat)
        return stat.mzxid
    except ZookeeperError as e:
        say(what, type(e).__name__)


events = queue.Queue()
data, stat = client.get(CONFIG, watch=events.put)
say("get")
show(data, stat)
version = stat.mzxid
gone = [str(i + 1) for i, host in enumerate(hosts) if i > 0 and not leads(host)][-1]

say("== without permission")
attempt("remove", None, gone, None, -1)
attempt("another version", None, gone, None, 7)
attempt("garbage", "server.1=garbage", None, None, -1)
client.add_auth("digest", "super:test")

say("== refusals")
attempt("another version", None, gone, None, 7)
attempt("an id that is no number", None, "one", None, -1)
attempt("a server whose id is no number", "server.one=127.0.0.1:1:2;3", None, None, -1)
attempt("no spec", "server.1", None, None, -1)
attempt("too few ports", "server.1=127.0.0.1:1;2", None, None, -1)
attempt("no role", "server.1=127.0.0.1:1:2:king;3", None, None, -1)
attempt("nobody is left", None, "1,2,3", None, -1)
attempt("garbage for all", None, None, "hello", -1)
attempt("an id that is no number, for all", None, None, "server.one=127.0.0.1:1:2;3", -1)
say("events", events.qsize())

say("== changes")
new = attempt("remove", None, gone, None, version)
say("event", *events.get(timeout=30)[:1], "later", new > version)
attempt("remove for the old version", None, gone, None, version)
attempt("remove again", None, gone, None, new)
say("the removed one is in the config:", any(line.startswith("server.%s=" % gone) for line in servers(client.get(CONFIG)[0])))
client.stop()
