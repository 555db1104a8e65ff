"""Tests the whole life of a group with redis-py and asyncio, in RESP2 and in RESP3.

The synchronous suite covers every option. This suite covers every command group, with many tasks on one event loop.
"""

import asyncio
import time
import unittest

import redis
import redis.asyncio

import target


class Life:
    """The tests. The two classes at the end run them, each in one protocol."""

    async def asyncSetUp(self):
        # The event loop of a test runs in debug mode, which reports every callback that takes over 100 ms.
        asyncio.get_running_loop().slow_callback_duration = 10
        self.redis = self.connect()
        self.stream = target.fresh("jobs")

    def connect(self, **more):
        connection = redis.asyncio.Redis(**target.options(self.protocol, **more))
        self.addAsyncCleanup(connection.aclose)
        return connection

    async def filled(self, count):
        async with self.redis.pipeline(transaction=False) as pipe:
            for number in range(1, count + 1):
                pipe.xadd(self.stream, {"job": number}, id=f"{number}-0")
            pipe.xgroup_create(self.stream, "crew", id="0")
            await pipe.execute()

    async def read(self, consumer, id=">", connection=None, **more):
        reply = await (connection or self.redis).xreadgroup("crew", consumer, {self.stream: id}, **more)
        return [entry_id for entry_id, _ in reply.get(self.stream, [])]

    async def until_blocked(self, count):
        deadline = time.monotonic() + target.PATIENCE
        while (await self.redis.info("clients"))["blocked_clients"] < count:
            self.assertLess(time.monotonic(), deadline, f"{count} blocked clients in INFO")
            await asyncio.sleep(0.01)

    async def test_the_whole_life_of_a_group(self):
        # Create and produce.
        self.assertTrue(await self.redis.xgroup_create(self.stream, "crew", mkstream=True))
        with self.assertRaisesRegex(redis.ResponseError, "BUSYGROUP"):
            await self.redis.xgroup_create(self.stream, "crew")
        ids = [await self.redis.xadd(self.stream, {"job": number}) for number in range(6)]
        self.assertEqual(await self.redis.xlen(self.stream), 6)

        # Read, acknowledge, pending.
        self.assertEqual(await self.read("anna", count=4), ids[:4])
        self.assertEqual(await self.read("ben"), ids[4:])
        self.assertEqual(await self.redis.xack(self.stream, "crew", *ids[:2]), 2)
        summary = await self.redis.xpending(self.stream, "crew")
        self.assertEqual((summary["pending"], summary["min"], summary["max"]), (4, ids[2], ids[5]))
        self.assertEqual([(row["name"], row["pending"]) for row in summary["consumers"]], [("anna", 2), ("ben", 2)])

        # Claim.
        claimed = await self.redis.xclaim(self.stream, "crew", "ben", 0, [ids[2]])
        self.assertEqual(claimed, [(ids[2], {"job": "2"})])
        cursor, entries, deleted = await self.redis.xautoclaim(self.stream, "crew", "zoe", 0)
        self.assertEqual((cursor, [id for id, _ in entries], deleted), ("0-0", ids[2:], []))
        rows = await self.redis.xpending_range(self.stream, "crew", "-", "+", 10)
        self.assertEqual([row["times_delivered"] for row in rows], [3, 2, 2, 2])

        # Inspect.
        (group,) = await self.redis.xinfo_groups(self.stream)
        self.assertEqual((group["consumers"], group["pending"], group["lag"]), (3, 4, 0))
        consumers = await self.redis.xinfo_consumers(self.stream, "crew")
        self.assertEqual([(row["name"], row["pending"]) for row in consumers], [("anna", 0), ("ben", 0), ("zoe", 4)])
        self.assertEqual((await self.redis.xinfo_stream(self.stream))["entries-added"], 6)
        full = await self.redis.xinfo_stream(self.stream, full=True)
        self.assertEqual(full["groups"][0]["pel-count"], 4)

        # Trim, delete, destroy.
        self.assertEqual(await self.redis.xtrim(self.stream, maxlen=3, approximate=False), 3)
        self.assertEqual(await self.redis.xdel(self.stream, ids[5]), 1)
        self.assertEqual(await self.redis.xgroup_delconsumer(self.stream, "crew", "zoe"), 4)
        self.assertEqual(await self.redis.xgroup_destroy(self.stream, "crew"), 1)
        self.assertEqual(await self.redis.xinfo_groups(self.stream), [])

    async def test_many_blocked_readers_share_the_work(self):
        await self.redis.xgroup_create(self.stream, "crew", mkstream=True)
        readers = [
            asyncio.create_task(self.read(f"reader-{number}", connection=self.connect(), count=1, block=10_000))
            for number in range(20)
        ]
        await self.until_blocked(20)
        async with self.redis.pipeline(transaction=True) as transaction:
            for number in range(1, 21):
                transaction.xadd(self.stream, {"job": number}, id=f"{number}-0")
            await transaction.execute()
        served = await asyncio.wait_for(asyncio.gather(*readers), target.PATIENCE)
        self.assertTrue(all(len(ids) == 1 for ids in served), served)
        self.assertEqual(len({ids[0] for ids in served}), 20)
        self.assertEqual((await self.redis.xpending(self.stream, "crew"))["pending"], 20)

    async def test_a_blocked_read_times_out(self):
        await self.redis.xgroup_create(self.stream, "crew", mkstream=True)
        began = time.monotonic()
        self.assertEqual(await self.read("anna", block=120), [])
        self.assertGreaterEqual(time.monotonic() - began, 0.06)

    async def test_a_reader_that_disconnects_while_blocked_takes_no_entry(self):
        await self.redis.xgroup_create(self.stream, "crew", mkstream=True)
        leaving = self.connect()
        task = asyncio.create_task(self.read("anna", connection=leaving, block=10_000))
        await self.until_blocked(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await leaving.aclose()
        deadline = time.monotonic() + target.PATIENCE
        while (await self.redis.info("clients"))["blocked_clients"]:
            self.assertLess(time.monotonic(), deadline, "the server notices that the reader has gone")
            await asyncio.sleep(0.01)
        await self.redis.xadd(self.stream, {"job": 1}, id="1-0")
        self.assertEqual(await self.read("ben"), ["1-0"])

    async def test_a_crashed_worker_is_recovered(self):
        await self.filled(3)
        crashing = self.connect(single_connection_client=True, retry=None)
        client_id = await crashing.client_id()
        self.assertEqual(await self.read("anna", connection=crashing, count=2), ["1-0", "2-0"])
        self.assertEqual(await self.redis.client_kill_filter(_id=str(client_id)), 1)
        with self.assertRaises((redis.ConnectionError, ConnectionError)):
            await crashing.xack(self.stream, "crew", "1-0")
        _, entries, _ = await self.redis.xautoclaim(self.stream, "crew", "ben", 0)
        self.assertEqual([id for id, _ in entries], ["1-0", "2-0"])
        self.assertEqual(await self.redis.xack(self.stream, "crew", "1-0", "2-0"), 2)

    async def test_a_long_pipeline(self):
        await self.filled(2_000)
        async with self.redis.pipeline(transaction=False) as pipe:
            for _ in range(20):
                pipe.xreadgroup("crew", "anna", {self.stream: ">"}, count=100)
            replies = await pipe.execute()
        delivered = [id for reply in replies for id, _ in reply[self.stream]]
        self.assertEqual(delivered, [f"{number}-0" for number in range(1, 2_001)])
        self.assertEqual(await self.redis.xack(self.stream, "crew", *delivered), 2_000)

    async def test_watch_aborts_when_the_stream_has_changed(self):
        await self.filled(1)
        async with self.redis.pipeline() as transaction:
            await transaction.watch(self.stream)
            await self.redis.xadd(self.stream, {"job": 2}, id="2-0")
            transaction.multi()
            transaction.xtrim(self.stream, maxlen=0, approximate=False)
            with self.assertRaises(redis.WatchError):
                await transaction.execute()
        self.assertEqual(await self.redis.xlen(self.stream), 2)


class Resp2(Life, unittest.IsolatedAsyncioTestCase):
    protocol = 2


class Resp3(Life, unittest.IsolatedAsyncioTestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
