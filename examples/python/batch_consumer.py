#!/usr/bin/env python3
"""Processing in batches: collect entries until the batch is full or a short time has passed, then handle them together.

One XACK acknowledges the whole batch. An entry that failed is not acknowledged. It stays pending and is read again
with a later batch.

This is the pattern written by hand. The shorter way: millstream work --exec … --batch 50
(docs/from-your-consumer.md#idempotence-and-batches).
"""

import time

from connection import connect

STREAM, GROUP, CONSUMER = "example:batches", "loader", "loader-1"
BATCH_SIZE, BATCH_MS = 50, 100


def collect(redis):
    """Returns up to `BATCH_SIZE` new entries; fewer if `BATCH_MS` passes first."""
    batch = []
    deadline = time.monotonic() + BATCH_MS / 1000
    while len(batch) < BATCH_SIZE:
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            break
        missing = BATCH_SIZE - len(batch)
        reply = redis.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=missing, block=left_ms)
        batch += reply.get(STREAM, [])
    return batch


def retries(redis):
    """Returns entries that this consumer has already read but not acknowledged."""
    return redis.xreadgroup(GROUP, CONSUMER, {STREAM: "0"}, count=BATCH_SIZE)[STREAM]


def load(batch, database):
    """Loads a batch and returns the ids of the loaded entries. Every row with a 7 in it fails the first time."""
    loaded = []
    for id, fields in batch:
        if "7" in fields["row"] and fields["row"] not in database["refused"]:
            database["refused"].add(fields["row"])
            continue
        database["rows"].append(fields["row"])
        loaded.append(id)
    return loaded


def main():
    redis = connect()
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, GROUP, mkstream=True)
    with redis.pipeline(transaction=False) as pipe:
        for row in range(120):
            pipe.xadd(STREAM, {"row": row})
        pipe.execute()

    database = {"rows": [], "refused": set()}
    while batch := collect(redis) or retries(redis):
        loaded = load(batch, database)
        acknowledged = redis.xack(STREAM, GROUP, *loaded)
        print(f"a batch of {len(batch)}: {acknowledged} loaded, {len(batch) - acknowledged} to retry")

    print(f"rows loaded: {len(database['rows'])}, still pending: {redis.xpending(STREAM, GROUP)['pending']}")


if __name__ == "__main__":
    main()
