#!/usr/bin/env python3
"""Taking over the work of a consumer that died.

XAUTOCLAIM walks the pending entries of the whole group and hands over those idle for long enough. Its cursor must be
followed to the end, `0-0`: starting over at the beginning every time may never reach entries behind busy ones.
"""

from connection import connect

STREAM, GROUP = "example:recovery", "crew"


def recover(redis, stream, group, consumer, idle_ms, page=10):
    """Yields every entry that was idle for `idle_ms`, now owned by `consumer`."""
    cursor = "0-0"
    while True:
        cursor, entries, deleted = redis.xautoclaim(stream, group, consumer, idle_ms, cursor, count=page)
        if deleted:
            # Trimmed or deleted meanwhile: the server has taken them off the list, there is nothing left to do.
            print(f"gone from the stream: {len(deleted)}")
        yield from entries
        if cursor == "0-0":
            return


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    ids = [redis.xadd(STREAM, {"job": number}) for number in range(40)]

    # One worker reads 25 jobs and dies: its connection closes, its work stays pending under its name.
    worker = connect()
    worker.xreadgroup(GROUP, "doomed", {STREAM: ">"}, count=25)
    worker.close()
    # Another one is alive and has read the rest a moment ago.
    redis.xreadgroup(GROUP, "alive", {STREAM: ">"})
    # Half a minute passes (so that you need not wait for it).
    redis.xclaim(STREAM, GROUP, "doomed", 0, ids[:25], idle=30_000, justid=True)
    redis.xdel(STREAM, ids[3])

    recovered = 0
    for id, _fields in recover(redis, STREAM, GROUP, "rescuer", idle_ms=15_000):
        redis.xack(STREAM, GROUP, id)
        recovered += 1
    print(f"recovered and finished: {recovered}")
    for row in redis.xpending(STREAM, GROUP)["consumers"]:
        print(f"still at work: {row['name']} with {row['pending']}")


if __name__ == "__main__":
    main()
