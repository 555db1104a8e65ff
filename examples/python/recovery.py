#!/usr/bin/env python3
"""Takes over the entries of a consumer that died.

XAUTOCLAIM scans the pending entries of the whole group and claims those that have been idle for long enough. Follow
its cursor until it is `0-0`. If you start at the beginning every time, you may never reach the later entries.

This is the pattern written by hand. The shorter way: millstream work, which takes over by itself
(docs/from-your-consumer.md#pending-messages).
"""

from connection import connect

STREAM, GROUP = "example:recovery", "crew"


def recover(redis, stream, group, consumer, idle_ms, page=10):
    """Claims for `consumer` every entry that has been idle for at least `idle_ms`, and yields it."""
    cursor = "0-0"
    while True:
        cursor, entries, deleted = redis.xautoclaim(stream, group, consumer, idle_ms, cursor, count=page)
        if deleted:
            # These entries were trimmed or deleted meanwhile. The server has removed them from the pending list.
            print(f"deleted from the stream: {len(deleted)}")
        yield from entries
        if cursor == "0-0":
            return


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    ids = [redis.xadd(STREAM, {"job": number}) for number in range(40)]

    # One worker reads 25 jobs and dies. Its connection closes, and its jobs stay pending under its name.
    worker = connect()
    worker.xreadgroup(GROUP, "doomed", {STREAM: ">"}, count=25)
    worker.close()
    # Another worker is alive and has just read the rest.
    redis.xreadgroup(GROUP, "alive", {STREAM: ">"})
    # Instead of waiting, set the idle time to half a minute.
    redis.xclaim(STREAM, GROUP, "doomed", 0, ids[:25], idle=30_000, justid=True)
    redis.xdel(STREAM, ids[3])

    recovered = 0
    for id, _fields in recover(redis, STREAM, GROUP, "rescuer", idle_ms=15_000):
        redis.xack(STREAM, GROUP, id)
        recovered += 1
    print(f"recovered and finished: {recovered}")
    for row in redis.xpending(STREAM, GROUP)["consumers"]:
        print(f"still pending: {row['pending']} of consumer {row['name']}")


if __name__ == "__main__":
    main()
