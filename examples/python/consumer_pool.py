#!/usr/bin/env python3
"""A pool of consumers in one group that grows and shrinks while it works.

Shrinking loses nothing: a worker that is asked to stop finishes the entries it has read, acknowledges them, and then
deletes its consumer from the group.

This is the pattern written by hand. The shorter way: millstream work --concurrency 8
(docs/from-your-consumer.md#pool).
"""

import threading
import time
from collections import Counter

from connection import connect

STREAM, GROUP = "example:pool", "workers"
READ_MS = 200  # timeout of a blocking read; a worker needs up to this long to notice that it should stop


class Worker(threading.Thread):
    def __init__(self, name, stream, group, handle):
        super().__init__(name=name, daemon=True)
        self.stream, self.group, self.handle = stream, group, handle
        self._stopping = threading.Event()

    def stop(self):
        self._stopping.set()

    def run(self):
        # A blocking read occupies its connection, so every worker needs its own connection.
        redis = connect()
        while not self._stopping.is_set():
            reply = redis.xreadgroup(self.group, self.name, {self.stream: ">"}, count=5, block=READ_MS)
            for id, fields in reply.get(self.stream, []):
                self.handle(self.name, fields)
                redis.xack(self.stream, self.group, id)
        redis.xgroup_delconsumer(self.stream, self.group, self.name)
        redis.close()


class ConsumerPool:
    def __init__(self, stream, group, handle):
        self.stream, self.group, self.handle = stream, group, handle
        self.workers = []
        self._started = 0

    def scale(self, size):
        """Starts or stops workers until there are `size`, and waits for those that stop."""
        leaving = self.workers[size:]
        self.workers = self.workers[:size]
        for worker in leaving:
            worker.stop()
        for worker in leaving:
            worker.join()
        while len(self.workers) < size:
            # Every worker gets a new name, so that it does not inherit pending entries of a former worker.
            self._started += 1
            worker = Worker(f"worker-{self._started}", self.stream, self.group, self.handle)
            worker.start()
            self.workers.append(worker)


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    done, lock = Counter(), threading.Lock()

    def handle(worker, fields):
        time.sleep(0.005)  # the work
        with lock:
            done[worker] += 1

    pool = ConsumerPool(STREAM, GROUP, handle)
    produced = 0
    for size in (2, 6, 1):
        pool.scale(size)
        for number in range(60):
            redis.xadd(STREAM, {"job": produced + number})
        produced += 60
        time.sleep(0.3)
        print(f"pool of {size}: {sum(done.values())} of {produced} jobs done")

    while sum(done.values()) < produced:
        time.sleep(0.02)
    pool.scale(0)
    (group,) = redis.xinfo_groups(STREAM)
    print(f"done by {len(done)} workers, {sum(done.values())} jobs in all")
    print(f"left behind: {group['consumers']} consumers, {group['pending']} pending, lag {group['lag']}")


if __name__ == "__main__":
    main()
