#!/usr/bin/env python3
"""A pool that is scaled by lag: more workers while entries are waiting, fewer when there are none.

The lag is the number of entries that the group has not delivered yet. XINFO GROUPS returns it. Redis may return null
instead, for example after deletions; Millstream always returns a number.

This is the pattern written by hand. The shorter way: millstream work --autoscale 1..6
(docs/from-your-consumer.md#autoscaler).
"""

import time

from connection import connect
from consumer_pool import ConsumerPool

STREAM, GROUP = "example:autoscaler", "workers"
SMALLEST, LARGEST = 1, 6
LAG_PER_WORKER = 25


def wanted_size(lag, current):
    """Returns the size for one worker per `LAG_PER_WORKER` entries. Grows immediately, shrinks one worker at a time."""
    target = min(LARGEST, max(SMALLEST, -(-lag // LAG_PER_WORKER)))
    return target if target > current else max(target, current - 1)


def backlog(redis):
    (group,) = redis.xinfo_groups(STREAM)
    # If the lag is unknown, use the length of the stream, so that the pool does not scale down.
    return redis.xlen(STREAM) if group["lag"] is None else group["lag"]


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    pool = ConsumerPool(STREAM, GROUP, lambda _worker, _fields: time.sleep(0.005))
    pool.scale(SMALLEST)

    with redis.pipeline(transaction=False) as burst:
        for number in range(400):
            burst.xadd(STREAM, {"job": number})
        burst.execute()

    sizes = [len(pool.workers)]
    while not (backlog(redis) == 0 and len(pool.workers) == SMALLEST):
        lag = backlog(redis)
        size = wanted_size(lag, len(pool.workers))
        if size != len(pool.workers):
            print(f"lag {lag:>3}: {len(pool.workers)} -> {size} workers")
            pool.scale(size)
            sizes.append(size)
        time.sleep(0.05)
    pool.scale(0)

    print(f"peak workers: {max(sizes)}, at the end: {sizes[-1]}")
    (group,) = redis.xinfo_groups(STREAM)
    print(f"entries read: {group['entries-read']}, pending: {group['pending']}, lag: {group['lag']}")


if __name__ == "__main__":
    main()
