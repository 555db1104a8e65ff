#!/usr/bin/env python3
"""A producer that sends in batches and limits the length of its stream.

A pipeline sends a whole batch in one round trip. `MAXLEN ~` lets the server remove old entries in whole blocks, which
is cheap. The stream stays a little above the limit, never below it.
"""

import json
import time

from connection import connect

STREAM = "example:producer"
BATCHES, BATCH_SIZE, KEEP = 20, 100, 500


def produce(redis, orders):
    """Appends all `orders` in one round trip and returns their ids."""
    with redis.pipeline(transaction=False) as pipe:
        for order in orders:
            pipe.xadd(STREAM, {"kind": "order", "body": json.dumps(order)}, maxlen=KEEP, approximate=True)
        return pipe.execute()


def main():
    redis = connect()
    redis.delete(STREAM)
    began = time.monotonic()
    newest = None
    for batch in range(BATCHES):
        ids = produce(redis, [{"order": batch * BATCH_SIZE + number} for number in range(BATCH_SIZE)])
        newest = ids[-1]
    seconds = time.monotonic() - began

    print(f"produced {BATCHES * BATCH_SIZE} orders in {seconds:.2f} s, {BATCHES} round trips")
    print(f"the newest is {newest}")
    ((_, fields),) = redis.xrevrange(STREAM, count=1)
    print(f"its body is {json.loads(fields['body'])}")
    kept = redis.xlen(STREAM)
    print(f"kept {kept} entries: the limit is {KEEP}, and less than one block may exceed it")


if __name__ == "__main__":
    main()
