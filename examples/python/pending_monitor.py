#!/usr/bin/env python3
"""Reports the stuck entries of a group: how many each consumer has, and for how long.

The summary of XPENDING is cheap, however many entries are pending. The entries themselves are read page by page,
oldest first, and only those that have been idle for long enough.

This is the pattern written by hand. The shorter way: millstream pending ls --min-idle 5m, millstream top
(docs/from-your-consumer.md#monitor).
"""

from collections import defaultdict

from connection import connect

STREAM, GROUP = "example:monitor", "crew"
PAGE = 100


def stuck(redis, stream, group, idle_ms):
    """Yields every entry that has been idle for at least `idle_ms`, page by page."""
    start = "-"
    while True:
        rows = redis.xpending_range(stream, group, min=start, max="+", count=PAGE, idle=idle_ms)
        yield from rows
        if len(rows) < PAGE:
            return
        start = f"({rows[-1]['message_id']}"


def report(redis, stream, group, idle_ms):
    summary = redis.xpending(stream, group)
    print(f"{stream} / {group}: {summary['pending']} pending, from {summary['min']} to {summary['max']}")
    by_consumer = defaultdict(list)
    for row in stuck(redis, stream, group, idle_ms):
        by_consumer[row["consumer"]].append(row)
    print(f"{'consumer':<10} {'stuck':>5} {'max idle':>8} {'deliveries':>10}")
    for consumer, rows in sorted(by_consumer.items()):
        idle = max(row["time_since_delivered"] for row in rows) // 1000
        deliveries = max(row["times_delivered"] for row in rows)
        print(f"{consumer:<10} {len(rows):>5} {idle:>6} s {deliveries:>10}")


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    for number in range(300):
        redis.xadd(STREAM, {"job": number})

    # anna is working. ben read 250 jobs ten minutes ago and has not acknowledged them; they were delivered three times.
    redis.xreadgroup(GROUP, "anna", {STREAM: ">"}, count=50)
    (jobs,) = redis.xreadgroup(GROUP, "ben", {STREAM: ">"}, count=250).values()
    ids = [id for id, _ in jobs]
    redis.xclaim(STREAM, GROUP, "ben", 0, ids, idle=600_500, retrycount=3, justid=True)

    report(redis, STREAM, GROUP, idle_ms=60_000)


if __name__ == "__main__":
    main()
