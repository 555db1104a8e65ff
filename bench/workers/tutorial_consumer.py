#!/usr/bin/env python3
"""Measures a plain redis-py consumer whose handler does nothing: messages per second and CPU time per message.

    tutorial_consumer.py PORT MESSAGES BATCH

If the public tutorials are next to the checkout, their class `GroupConsumer` runs unchanged. Otherwise our own version
of the same loop runs: read a batch, decode, handle, acknowledge one by one.
"""

import pathlib
import resource
import sys
import time

import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"))
import seeds  # noqa: E402

STREAM, GROUP = "bench:tutorial", "bench"


class OurConsumer:
    def __init__(self, client, stream, group):
        self.client, self.stream, self.group, self.running = client, stream, group, False

    def consume(self, handler, batch_size, block_ms):
        self.running = True
        while self.running:
            reply = self.client.xreadgroup(
                self.group, "consumer-1", {self.stream: ">"}, count=batch_size, block=block_ms
            )
            for _, entries in reply:
                for id, fields in entries:
                    handler(id.decode(), {name.decode(): value.decode() for name, value in fields.items()})
                    self.client.xack(self.stream, self.group, id)

    def stop(self):
        self.running = False


def consumer(client):
    if not seeds.present():
        return OurConsumer(client, STREAM, GROUP)
    names = {"__name__": "tutorial"}
    exec(seeds.find("class GroupConsumer:").text.split("# Usage")[0], names)
    return names["GroupConsumer"](client, STREAM, GROUP)


def main():
    port, messages, batch = (int(argument) for argument in sys.argv[1:])
    client = redis.Redis(port=port, protocol=2)
    client.delete(STREAM)
    client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    for start in range(0, messages, 1000):
        pipeline = client.pipeline(transaction=False)
        for _ in range(start, min(start + 1000, messages)):
            pipeline.xadd(STREAM, {"order": "12345678"})
        pipeline.execute()

    worker = consumer(client)
    done = 0

    def handle(message_id, data):
        nonlocal done
        done += 1
        if done == messages:
            worker.stop()

    began, processor = time.perf_counter(), processor_seconds()
    worker.consume(handle, batch_size=batch, block_ms=1000)
    rate = messages / (time.perf_counter() - began)
    each = (processor_seconds() - processor) * 1e6 / messages
    print(f"{messages} messages: {rate:.0f} messages/s, {each:.2f} us of processor time each")
    client.delete(STREAM)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
