#!/usr/bin/env python3
"""Dead letters: a message that always fails is moved to another stream, with the reason, instead of being retried
without limit.

The server counts deliveries. The worker checks the count before it runs the handler, so it also catches messages that
crash the worker. One transaction adds the message to the dead letters and acknowledges it.

This is the pattern written by hand. The shorter way: millstream work --max-deliveries 3, millstream dlq
(docs/from-your-consumer.md#retries-and-dead-letters).
"""

from connection import connect

# The braces put both keys into the same slot of a cluster.
STREAM, DEAD, GROUP = "{example:parcels}", "{example:parcels}:dead", "crew"
MAX_DELIVERIES = 3


def dead_letter(redis, id, fields, deliveries, reason):
    with redis.pipeline(transaction=True) as transaction:
        details = {"dlq.id": id, "dlq.group": GROUP, "dlq.deliveries": deliveries, "dlq.reason": reason}
        transaction.xadd(DEAD, {**fields, **details})
        transaction.xack(STREAM, GROUP, id)
        transaction.execute()


def deliveries_of(redis, ids):
    rows = redis.xpending_range(STREAM, GROUP, min=ids[0], max=ids[-1], count=len(ids), consumername="worker")
    return {row["message_id"]: row["times_delivered"] for row in rows}


def process(redis, entries, handle):
    """Handles entries that the worker owns. An entry that fails stays pending and is claimed again."""
    counts = deliveries_of(redis, [id for id, _ in entries])
    for id, fields in entries:
        if counts[id] > MAX_DELIVERIES:
            dead_letter(redis, id, fields, counts[id] - 1, "max_deliveries")
            print(f"dead-lettered {fields['parcel']} after {counts[id] - 1} deliveries")
            continue
        try:
            handle(fields)
        except ValueError as error:
            print(f"delivery {counts[id]} of {fields['parcel']} failed: {error}")
        else:
            redis.xack(STREAM, GROUP, id)
            print(f"delivered {fields['parcel']}")


def handle(fields):
    if fields["address"] == "unknown":
        raise ValueError("no such address")


def main():
    redis = connect()
    redis.delete(STREAM, DEAD)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    redis.xadd(STREAM, {"parcel": "A", "address": "here"})
    redis.xadd(STREAM, {"parcel": "B", "address": "unknown"})
    redis.xadd(STREAM, {"parcel": "C", "address": "there"})

    (entries,) = redis.xreadgroup(GROUP, "worker", {STREAM: ">"}).values()
    while entries:
        process(redis, entries, handle)
        # A real worker would pass a minimum idle time instead of 0, and wait before it tries again.
        _, entries, _ = redis.xautoclaim(STREAM, GROUP, "worker", 0)

    ((_, fields),) = redis.xrange(DEAD)
    print(f"in the dead letters: {fields}")
    print(f"still pending: {redis.xpending(STREAM, GROUP)['pending']}")


if __name__ == "__main__":
    main()
