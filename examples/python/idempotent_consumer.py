#!/usr/bin/env python3
"""At-least-once delivery, applied exactly once.

A message can arrive twice: its producer got no reply and sent it again, or its consumer died before the XACK.
So one transaction applies the payment, stores a marker that it was applied, and acknowledges the message. WATCH makes
the transaction fail if another consumer applied the same payment in the meantime.

This is the pattern written by hand. The shorter way: millstream work --dedupe 1d, if the effect is not in Redis itself
(docs/from-your-consumer.md#idempotence-and-batches).
"""

import redis as redis_py

from connection import connect

STREAM, GROUP, BALANCES = "example:payments", "ledger", "example:balances"
REMEMBER_SECONDS = 24 * 60 * 60


def marker(payment):
    return f"example:payment-applied:{payment}"


def apply_once(redis, id, fields):
    """Applies a payment unless it was applied before. Returns whether this call applied it."""
    applied = marker(fields["payment"])
    while True:
        try:
            with redis.pipeline(transaction=True) as transaction:
                transaction.watch(applied)
                first_time = not transaction.exists(applied)
                transaction.multi()
                if first_time:
                    transaction.hincrby(BALANCES, fields["account"], int(fields["amount"]))
                    transaction.set(applied, id, ex=REMEMBER_SECONDS)
                transaction.xack(STREAM, GROUP, id)
                transaction.execute()
                return first_time
        except redis_py.WatchError:
            continue  # another consumer was faster: check again


def main():
    redis = connect()
    redis.delete(STREAM, BALANCES, *(marker(payment) for payment in ("p1", "p2", "p3")))
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    # The producer does not know whether p2 arrived, and sends it again.
    for payment, amount in (("p1", 10), ("p2", 20), ("p2", 20), ("p3", 30)):
        redis.xadd(STREAM, {"payment": payment, "account": "anna", "amount": amount})

    # The first consumer applies p1 and dies before it handles the other entries.
    (entries,) = redis.xreadgroup(GROUP, "first", {STREAM: ">"}).values()
    apply_once(redis, *entries[0])

    # The second consumer takes over all pending entries.
    _, entries, _ = redis.xautoclaim(STREAM, GROUP, "second", 0)
    # Every entry is handled twice, as if the first consumer had only been slow.
    for id, fields in entries + entries:
        result = "applied" if apply_once(redis, id, fields) else "already applied, skipped"
        print(f"{fields['payment']}: {result}")

    print(f"balance of anna: {redis.hget(BALANCES, 'anna')}")
    print(f"still pending: {redis.xpending(STREAM, GROUP)['pending']}")


if __name__ == "__main__":
    main()
