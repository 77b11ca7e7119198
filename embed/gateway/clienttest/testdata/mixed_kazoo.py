"""Uses kazoo's recipes for the process that started this one.

usage: mixed_kazoo.py TIMEOUT-MS HOST:PORT,HOST:PORT,...

It prints "ready" when its clients are connected. A line is a request: "N VERB ARGUMENT...".
"N = RESULT" or "N ! ERROR" answers it. Requests run side by side. N says which client a request
uses, and the objects that it makes keep that client. All end with the input.
"""
import logging
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.recipe.barrier import Barrier, DoubleBarrier
from kazoo.recipe.counter import Counter
from kazoo.recipe.partitioner import SetPartitioner
from kazoo.recipe.party import Party, ShallowParty
from kazoo.recipe.queue import LockingQueue, Queue

logging.disable(logging.CRITICAL)

PARTIES = {"Party": Party, "ShallowParty": ShallowParty}
QUEUES = {"Queue": Queue, "LockingQueue": LockingQueue}
made = {}  # objects by name


def commas(items):
    return ",".join(items)


# Counters


def add(client, kind, path, times, delta):
    counter = Counter(client, path, support_curator=kind == "Int32")
    for _ in range(int(times)):
        counter += int(delta)
    return counter.post_value


# Parties


def join(client, name, kind, path, identifier):
    made[name] = PARTIES[kind](client, path, identifier)
    made[name].join()


def leave(client, name):
    made.pop(name).leave()


def members(client, kind, path):
    client.sync(path)
    return commas(sorted(PARTIES[kind](client, path)))


# Barriers


def shut(client, path):
    Barrier(client, path).create()


def open_(client, path):
    Barrier(client, path).remove()


def wait(client, path):
    client.sync(path)
    return Barrier(client, path).wait()


def enter(client, name, path, n):
    made[name] = DoubleBarrier(client, path, int(n), name)
    made[name].enter()
    if not made[name].participating:
        raise RuntimeError("it did not enter")


def exit_(client, name):
    made.pop(name).leave()


# Queues


def put(client, kind, path, priority, *values):
    queue = QUEUES[kind](client, path)
    for v in values:
        queue.put(v.encode(), int(priority))


class Consumer(object):
    """Takes what is in a queue until it is stopped, and remembers it."""

    def __init__(self, client, kind, path):
        self.queue, self.got, self.fault = QUEUES[kind](client, path), [], None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.stopped.is_set():
                data = take_one(self.queue)
                if data is not None:
                    self.got.append(data.decode())
        except Exception as e:
            self.fault = e


def take_one(queue):
    """Returns an item, or None if there is none for a while."""
    if isinstance(queue, Queue):
        data = queue.get()
        if data is None:
            time.sleep(0.01)
        return data
    data = queue.get(timeout=0.5)
    if data is not None and not queue.consume():
        raise RuntimeError("not consumed")
    return data


def take(client, kind, path):
    queue, data = QUEUES[kind](client, path), None
    while data is None:
        data = take_one(queue)
    return data.decode()


def claim(client, name, path):
    made[name] = LockingQueue(client, path)
    return made[name].get().decode()


def release(client, name):
    return made.pop(name).release()


def consume(client, name, kind, path):
    made[name] = Consumer(client, kind, path)


def got(client, name):
    if made[name].fault:
        raise made[name].fault
    return commas(made[name].got)


def stop(client, name):
    made[name].stopped.set()
    made[name].thread.join()
    return got(client, name)


# Partitions


class Worker(object):
    """Works on its parts. Meanwhile it has an ephemeral for each, which nobody else may have."""

    def __init__(self, client, name, path, busy, settle, parts):
        self.client, self.name, self.busy, self.marked, self.fault = client, name, busy, [], None
        self.stopped = threading.Event()
        self.change = client.handler.event_object()
        self.set = SetPartitioner(client, path, parts, identifier=name, time_boundary=float(settle),
                                  max_reaction_time=0.2, state_change_event=self.change)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def mark(self):
        for part in self.set:
            self.client.create(self.busy + "/" + part, self.name.encode(), ephemeral=True)
            self.marked.append(part)

    def unmark(self):
        while self.marked:
            self.client.delete(self.busy + "/" + self.marked.pop())

    def run(self):
        try:
            while not self.stopped.is_set():
                self.change.clear()
                if self.set.failed:
                    raise RuntimeError("the partitioner has failed")
                elif self.set.release:
                    self.unmark()
                    self.set.release_set()
                elif self.set.acquired and not self.marked:
                    self.mark()
                else:
                    self.change.wait(0.1)
            self.unmark()
            self.set.finish()
        except Exception as e:
            self.fault = e


def partition(client, name, path, busy, settle, *parts):
    made[name] = Worker(client, name, path, busy, settle, parts)


def finish(client, name):
    made[name].stopped.set()
    made[name].thread.join()
    if made[name].fault:
        raise made[name].fault


VERBS = dict(add=add, join=join, leave=leave, members=members, shut=shut, open=open_, wait=wait,
             enter=enter, exit=exit_, put=put, take=take, claim=claim, release=release,
             consume=consume, got=got, stop=stop, partition=partition, finish=finish)

# Counters that lose a race try again.
retry = dict(max_tries=-1, delay=0.001, backoff=2, max_delay=0.05)
timeout, hosts = float(sys.argv[1]) / 1000, sys.argv[2].split(",")
clients = [KazooClient(hosts=h, timeout=timeout, command_retry=retry) for h in hosts]
for c in clients:
    c.start(timeout=30)
mutex = threading.Lock()


def do(n, verb, *args):
    try:
        answer = "= %s" % VERBS[verb](clients[int(n) % len(clients)], *args)
    except Exception as e:
        answer = "! %r" % e
    with mutex:
        print(n, answer, flush=True)


print("ready", flush=True)
for line in sys.stdin:
    threading.Thread(target=do, args=line.split(), daemon=True).start()
for c in clients:
    c.stop()
