#!/usr/bin/env python3
"""Messages that always fail end in a stream of their own, with the reason, instead of going round for ever.

The server counts deliveries. The count is checked before the handler runs, so that even a message that kills its
worker is caught. Moving is one transaction: added to the dead letters and acknowledged, or neither.
"""

from connection import connect

# The braces keep both keys in one slot, should this ever run on a cluster.
STREAM, DEAD, GROUP = "{example:letters}", "{example:letters}:dead", "crew"
MAX_DELIVERIES = 3


def bury(redis, id, fields, deliveries, reason):
    with redis.pipeline(transaction=True) as transaction:
        about = {"dlq.id": id, "dlq.group": GROUP, "dlq.deliveries": deliveries, "dlq.reason": reason}
        transaction.xadd(DEAD, {**fields, **about})
        transaction.xack(STREAM, GROUP, id)
        transaction.execute()


def deliveries_of(redis, ids):
    rows = redis.xpending_range(STREAM, GROUP, min=ids[0], max=ids[-1], count=len(ids), consumername="worker")
    return {row["message_id"]: row["times_delivered"] for row in rows}


def work_off(redis, entries, handle):
    """Handles entries the worker owns. What fails stays pending and comes again."""
    counts = deliveries_of(redis, [id for id, _ in entries])
    for id, fields in entries:
        if counts[id] > MAX_DELIVERIES:
            bury(redis, id, fields, counts[id] - 1, "max_deliveries")
            print(f"buried {fields['letter']} after {counts[id] - 1} deliveries")
            continue
        try:
            handle(fields)
        except ValueError as error:
            print(f"delivery {counts[id]} of {fields['letter']} failed: {error}")
        else:
            redis.xack(STREAM, GROUP, id)
            print(f"delivered {fields['letter']}")


def handle(fields):
    if fields["address"] == "unknown":
        raise ValueError("no such address")


def main():
    redis = connect()
    redis.delete(STREAM, DEAD)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    redis.xadd(STREAM, {"letter": "A", "address": "here"})
    redis.xadd(STREAM, {"letter": "B", "address": "unknown"})
    redis.xadd(STREAM, {"letter": "C", "address": "there"})

    (entries,) = redis.xreadgroup(GROUP, "worker", {STREAM: ">"}).values()
    while entries:
        work_off(redis, entries, handle)
        # A real worker would let some time pass: the second argument after the consumer is the least idle time.
        _, entries, _ = redis.xautoclaim(STREAM, GROUP, "worker", 0)

    ((_, letter),) = redis.xrange(DEAD)
    print(f"in the dead letters: {letter}")
    print(f"still pending: {redis.xpending(STREAM, GROUP)['pending']}")


if __name__ == "__main__":
    main()
