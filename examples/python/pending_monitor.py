#!/usr/bin/env python3
"""What is stuck, where, and since when: a report on the pending entries of a group.

XPENDING's summary costs the server little however long the list is. The rows are read a page at a time, from the
oldest on, and only those idle for long enough.
"""

from collections import defaultdict

from connection import connect

STREAM, GROUP = "example:monitor", "crew"
PAGE = 100


def stuck(redis, stream, group, idle_ms):
    """Every entry that has been pending for at least `idle_ms`, page by page."""
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
    print(f"{'consumer':<10} {'stuck':>5} {'oldest':>8} {'deliveries':>10}")
    for consumer, rows in sorted(by_consumer.items()):
        oldest = max(row["time_since_delivered"] for row in rows) // 1000
        deliveries = max(row["times_delivered"] for row in rows)
        print(f"{consumer:<10} {len(rows):>5} {oldest:>6} s {deliveries:>10}")


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    for number in range(300):
        redis.xadd(STREAM, {"job": number})

    # anna is at work; ben read 250 jobs and has not been heard of for ten minutes, three times in a row.
    redis.xreadgroup(GROUP, "anna", {STREAM: ">"}, count=50)
    (jobs,) = redis.xreadgroup(GROUP, "ben", {STREAM: ">"}, count=250).values()
    ids = [id for id, _ in jobs]
    redis.xclaim(STREAM, GROUP, "ben", 0, ids, idle=600_500, retrycount=3, justid=True)

    report(redis, STREAM, GROUP, idle_ms=60_000)


if __name__ == "__main__":
    main()
