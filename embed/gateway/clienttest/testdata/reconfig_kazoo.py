"""Reads and changes the members with kazoo, as the process asks that started it.

reconfig_test.go has the language.
"""
import logging
import queue
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, ZookeeperError

logging.disable(logging.CRITICAL)
CONFIG = "/zookeeper/config"
client = None
events = queue.Queue()


def close():
    if client:
        client.stop()
        client.close()


def told(data, stat):
    return "0\t%d\t%d\t%s" % (stat.mzxid, stat.version, data.decode().replace("\n", "|"))


def event(e):
    if e.path:
        events.put(e)


def answer(what, *args):
    global client
    if what == "connect":
        close()
        client = KazooClient(args[0], timeout=20)
        client.start(60)
        return "0"
    if what == "auth":
        client.add_auth("digest", args[0])
        return "0"
    if what == "config":
        return told(*client.get(CONFIG))
    if what == "watch":
        return told(*client.get(CONFIG, watch=event))
    if what == "event":
        e = events.get()
        return "0\t%s\t%s" % ({"CHANGED": 3}.get(e.type, e.type), e.path)
    if what == "follow":
        client.set_hosts(args[0])
        client.exists("/")
        return "0\t" + args[0]
    if what == "reconfig":
        joining, leaving, members = [None if a == "-" else a for a in args[:3]]
        return told(*client.reconfig(joining, leaving, members, int(args[3])))
    return "cannot"


for line in sys.stdin:
    try:
        print(answer(*line.rstrip("\n").split("\t")), flush=True)
    except ConnectionLoss:
        print(-4, flush=True)
    except ZookeeperError as e:
        print(e.code, flush=True)
close()
