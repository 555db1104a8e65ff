"""Tests redis-py's methods for the stream features of Redis 8.2 to 8.10, in RESP2 and in RESP3.

These are KEEPREF, DELREF and ACKED, XREADGROUP CLAIM, XADD IDMP, XNACK, MAXCOUNT and MAXSIZE. Skipped on a server that
follows an older Redis.
"""

import asyncio
import unittest

import redis
import redis.asyncio

import target

NEWEST = (8, 10)
MOST = 2**63 - 1
DELETED, NOT_FOUND, REFERENCED = 1, -1, 2


class Newest:
    """The tests. The two classes at the end run them, each in one protocol."""

    @classmethod
    def setUpClass(cls):
        cls.version = target.version()

    def setUp(self):
        if self.version < NEWEST:
            self.skipTest(f"the server follows Redis {self.version}")
        self.redis = target.client(self.protocol)
        self.addCleanup(self.redis.close)
        self.stream = target.fresh("orders")

    def other(self):
        connection = target.client(self.protocol)
        self.addCleanup(connection.close)
        return connection

    def filled(self, count, *groups):
        """Creates a stream with the entries 1-0 … count-0, and these groups at its beginning."""
        for number in range(1, count + 1):
            self.redis.xadd(self.stream, {"order": number}, id=f"{number}-0")
        for group in groups:
            self.redis.xgroup_create(self.stream, group, id="0")

    def read(self, consumer, group="billing", count=None):
        reply = self.redis.xreadgroup(group, consumer, {self.stream: ">"}, count=count)
        return [id for id, _ in reply.get(self.stream, [])]

    def claim(self, consumer, min_idle, connection=None, **more):
        """Returns the reply of XREADGROUP CLAIM: (id, fields, idle, deliveries)."""
        connection = connection or self.redis
        reply = connection.xreadgroup(
            "billing", consumer, {self.stream: ">"}, claim_min_idle_time=min_idle, **more
        )
        return reply.get(self.stream, [])

    def age(self, milliseconds, *ids):
        """Sets the idle time of pending entries."""
        self.redis.xclaim(self.stream, "billing", "anna", 0, list(ids), idle=milliseconds, justid=True)

    def ids(self):
        return [id for id, _ in self.redis.xrange(self.stream)]

    def rows(self, group="billing"):
        rows = self.redis.xpending_range(self.stream, group, "-", "+", 100)
        return [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]

    def info(self, *names):
        info = self.redis.xinfo_stream(self.stream)
        return tuple(info[name] for name in names)

    # Delete: XDELEX, XACKDEL

    def test_deleting_keeps_or_removes_pending_entries(self):
        self.filled(4, "billing", "audit")
        self.read("anna")
        self.read("zoe", group="audit")
        self.assertEqual(self.redis.xdelex(self.stream, "1-0", "9-9"), [DELETED, NOT_FOUND])
        self.assertEqual(len(self.rows()), 4)
        self.assertEqual(self.redis.xdelex(self.stream, "1-0", "2-0", ref_policy="DELREF"), [NOT_FOUND, DELETED])
        for group, consumer in (("billing", "anna"), ("audit", "zoe")):
            self.assertEqual(self.rows(group), [("3-0", consumer, 1), ("4-0", consumer, 1)])
        self.assertEqual(self.ids(), ["3-0", "4-0"])

    def test_deleting_entries_that_every_group_acknowledged(self):
        self.filled(3, "billing", "audit")
        self.read("anna", count=2)
        self.read("zoe", group="audit", count=1)
        self.redis.xack(self.stream, "billing", "1-0", "2-0")
        # No group has read up to 7-0, so ACKED counts it as referenced although no such entry exists.
        acked = lambda: self.redis.xdelex(self.stream, "1-0", "2-0", "3-0", "7-0", ref_policy="ACKED")
        self.assertEqual(acked(), [REFERENCED, REFERENCED, REFERENCED, REFERENCED])
        self.redis.xack(self.stream, "audit", "1-0")
        self.assertEqual(acked(), [DELETED, REFERENCED, REFERENCED, REFERENCED])
        self.assertEqual(self.ids(), ["2-0", "3-0"])
        self.assertEqual(self.redis.xdelex(target.fresh("none"), "1-0", "2-0"), [NOT_FOUND, NOT_FOUND])

    def test_acknowledging_and_deleting_in_one_command(self):
        self.filled(4, "billing", "audit")
        self.read("anna")
        self.read("zoe", group="audit")
        ackdel = lambda *ids, **more: self.redis.xackdel(self.stream, "billing", *ids, **more)
        self.assertEqual(ackdel("1-0", "9-9"), [DELETED, NOT_FOUND])
        self.assertEqual(ackdel("2-0", ref_policy="DELREF"), [DELETED])
        self.assertEqual(ackdel("3-0", ref_policy="ACKED"), [REFERENCED])
        self.assertEqual(self.rows(), [("4-0", "anna", 1)])
        self.assertEqual(self.rows("audit"), [("1-0", "zoe", 1), ("3-0", "zoe", 1), ("4-0", "zoe", 1)])
        self.assertEqual(self.ids(), ["3-0", "4-0"])
        self.redis.xack(self.stream, "audit", "4-0")
        self.assertEqual(ackdel("4-0", "4-0", ref_policy="ACKED"), [DELETED, NOT_FOUND])
        self.assertEqual(self.redis.xackdel(self.stream, "none", "3-0"), [NOT_FOUND])

    def test_many_ids_in_one_command(self):
        self.filled(50, "billing")
        ids = self.read("anna")
        self.assertEqual(self.redis.xackdel(self.stream, "billing", *ids, ref_policy="DELREF"), [DELETED] * 50)
        self.assertEqual((self.redis.xlen(self.stream), self.rows()), (0, []))

    # Trim: KEEPREF, DELREF, ACKED

    def test_trimming_keeps_or_removes_pending_entries(self):
        self.filled(5, "billing")
        self.read("anna")
        trim = lambda **more: self.redis.xtrim(self.stream, approximate=False, **more)
        self.assertEqual(trim(maxlen=4, ref_policy="KEEPREF"), 1)
        self.assertEqual(len(self.rows()), 5)
        self.assertEqual(trim(minid="3-0", ref_policy="DELREF"), 1)
        self.assertEqual([id for id, _, _ in self.rows()], ["1-0", "3-0", "4-0", "5-0"])
        self.redis.xack(self.stream, "billing", "4-0")
        self.assertEqual(trim(maxlen=0, ref_policy="ACKED"), 1)
        self.assertEqual(self.ids(), ["3-0", "5-0"])
        self.redis.xack(self.stream, "billing", "5-0")
        self.assertEqual(self.redis.xtrim(self.stream, maxlen=0, limit=10, ref_policy="ACKED"), 1)

    def test_xadd_trims_with_reference_policies(self):
        self.filled(3, "billing")
        self.read("anna")
        add = lambda number, **more: self.redis.xadd(
            self.stream, {"order": number}, id=f"{number}-0", approximate=False, **more
        )
        self.assertEqual(add(4, maxlen=3, ref_policy="DELREF"), "4-0")
        self.assertEqual([id for id, _, _ in self.rows()], ["2-0", "3-0"])
        self.redis.xack(self.stream, "billing", "3-0")
        self.assertEqual(add(5, maxlen=1, ref_policy="ACKED"), "5-0")
        self.assertEqual(self.ids(), ["2-0", "4-0", "5-0"])
        self.assertEqual(add(6, minid="4-0", ref_policy="KEEPREF"), "6-0")
        self.assertEqual((self.ids(), self.rows()), (["4-0", "5-0", "6-0"], [("2-0", "anna", 1)]))

    # Read with a claim

    def test_a_read_returns_idle_entries_and_new_ones(self):
        self.filled(4, "billing")
        self.read("anna", count=3)
        self.age(60_000, "1-0")
        self.age(90_000, "2-0")
        longest, long, new = self.claim("ben", 30_000)
        self.assertEqual((longest[:2], longest[3]), (("2-0", {"order": "2"}), 1))
        self.assertTrue(90_000 <= longest[2] < 200_000, longest)
        self.assertEqual((long[0], long[3]), ("1-0", 1))
        self.assertEqual(new, ("4-0", {"order": "4"}, 0, 0))
        self.assertEqual(
            self.rows(), [("1-0", "ben", 2), ("2-0", "ben", 2), ("3-0", "anna", 1), ("4-0", "ben", 1)]
        )
        self.assertEqual(self.claim("ben", 30_000), [])

    def test_count_limits_idle_and_new_entries_together(self):
        self.filled(5, "billing")
        self.read("anna", count=2)
        first = self.claim("ben", 0, count=3)
        self.assertEqual([(id, deliveries) for id, _, _, deliveries in first], [("1-0", 1), ("2-0", 1), ("3-0", 0)])
        rest = self.claim("ben", 60_000, noack=True)
        self.assertEqual([id for id, *_ in rest], ["4-0", "5-0"])
        self.assertEqual([id for id, _, _ in self.rows()], ["1-0", "2-0", "3-0"])

    def test_a_blocked_claim_is_served_when_an_entry_reaches_min_idle(self):
        self.filled(1, "billing")
        self.read("anna")
        ((id, fields, idle, deliveries),) = self.claim("ben", 200, block=15_000)
        self.assertEqual((id, fields, deliveries), ("1-0", {"order": "1"}, 1))
        self.assertGreaterEqual(idle, 200)
        self.assertEqual(self.rows(), [("1-0", "ben", 2)])

    def test_a_blocked_claim_is_served_by_a_release(self):
        self.filled(1, "billing")
        self.read("anna")
        waiting = target.Background(lambda: self.claim("ben", 600_000, self.other(), block=15_000))
        self.until_blocked()
        self.assertEqual(self.redis.xnack(self.stream, "billing", "FAIL", "1-0"), 1)
        ((id, fields, _, deliveries),) = waiting.result()
        self.assertEqual((id, fields, deliveries), ("1-0", {"order": "1"}, 1))

    def test_a_blocked_claim_is_served_by_a_new_entry(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        waiting = target.Background(lambda: self.claim("ben", 600_000, self.other(), block=15_000))
        self.until_blocked()
        self.redis.xadd(self.stream, {"order": 1}, id="1-0")
        self.assertEqual(waiting.result(), [("1-0", {"order": "1"}, 0, 0)])

    def until_blocked(self):
        target.eventually(lambda: target.blocked_clients(self.redis) > 0, "a blocked client in INFO")

    # Release: XNACK

    def test_releasing_in_three_ways(self):
        self.filled(4, "billing")
        self.read("anna")
        nack = lambda *args, **more: self.redis.xnack(self.stream, "billing", *args, **more)
        self.assertEqual(nack("SILENT", "1-0"), 1)
        self.assertEqual(nack("FAIL", "2-0", "9-9"), 1)
        self.assertEqual(nack("FATAL", "3-0"), 1)
        self.assertEqual(self.rows(), [("1-0", "", 0), ("2-0", "", 1), ("3-0", "", MOST), ("4-0", "anna", 1)])
        released = self.redis.xpending_range(self.stream, "billing", "1-0", "1-0", 1)
        self.assertEqual(released[0]["time_since_delivered"], -1)
        self.assertEqual(
            self.redis.xpending(self.stream, "billing"),
            {"pending": 4, "min": "1-0", "max": "4-0", "consumers": [{"name": "anna", "pending": 1}]},
        )
        claimed = self.redis.xclaim(self.stream, "billing", "ben", 600_000, ["2-0", "3-0", "4-0"], justid=True)
        self.assertEqual(claimed, ["2-0", "3-0"])
        self.assertEqual(self.redis.xautoclaim(self.stream, "billing", "ben", 600_000)[1], [("1-0", {"order": "1"})])

    def test_releasing_with_a_count_and_by_force(self):
        self.filled(2, "billing")
        nack = lambda *args, **more: self.redis.xnack(self.stream, "billing", *args, **more)
        self.assertEqual(nack("FAIL", "1-0"), 0)
        self.assertEqual(nack("FAIL", "1-0", "9-9", force=True), 1)
        self.assertEqual(nack("FAIL", "1-0", "2-0", retrycount=7, force=True), 2)
        self.assertEqual(self.rows(), [("1-0", "", 7), ("2-0", "", 7)])
        self.assertEqual([(id, count) for id, _, _, count in self.claim("ben", 600_000, count=2)], [("1-0", 7), ("2-0", 7)])
        self.assertEqual(self.rows(), [("1-0", "ben", 8), ("2-0", "ben", 8)])

    def test_xinfo_full_shows_released_entries(self):
        self.filled(2, "billing")
        self.read("anna")
        self.redis.xnack(self.stream, "billing", "FAIL", "1-0")
        (group,) = self.redis.xinfo_stream(self.stream, full=True)["groups"]
        self.assertEqual((group["pel-count"], group["nacked-count"]), (2, 1))
        self.assertEqual(group["pending"][0], ["1-0", "", 0, 1])
        (consumer,) = group["consumers"]
        self.assertEqual(consumer["pel-count"], 1)

    def test_releasing_without_the_group_is_nogroup(self):
        with self.assertRaisesRegex(redis.ResponseError, "NOGROUP"):
            self.redis.xnack(self.stream, "billing", "FAIL", "1-0")

    # Idempotent producers: IDMP, IDMPAUTO, XCFGSET

    def test_the_same_idempotency_id_adds_one_entry(self):
        add = lambda name, order=1, **more: self.redis.xadd(
            self.stream, {"order": order}, idmp=("till", name), **more
        )
        first = add(b"a\x00\xff")
        self.assertEqual(add(b"a\x00\xff", order=2, maxlen=0), first)
        self.assertNotEqual(add(b"b"), first)
        self.assertEqual(self.redis.xlen(self.stream), 2)
        self.assertEqual(
            self.info("pids-tracked", "iids-tracked", "iids-added", "iids-duplicates"), (1, 2, 2, 1)
        )

    def test_the_same_content_adds_one_entry(self):
        add = lambda fields, producer="till": self.redis.xadd(self.stream, fields, idmpauto=producer)
        first = add({"order": 1, "item": "millstone"})
        self.assertEqual(add({"item": "millstone", "order": 1}), first)
        self.assertNotEqual(add({"order": 1, "item": "millstone"}, producer="web"), first)
        self.assertNotEqual(add({"order": 2, "item": "millstone"}), first)
        self.assertEqual(self.redis.xlen(self.stream), 3)
        self.assertEqual(self.info("pids-tracked", "iids-tracked"), (2, 3))

    def test_each_stream_has_its_own_history_limits(self):
        self.redis.xadd(self.stream, {"order": 0})
        self.assertEqual(self.info("idmp-duration", "idmp-maxsize"), (100, 100))
        self.assertTrue(self.redis.xcfgset(self.stream, idmp_duration=300))
        self.assertTrue(self.redis.xcfgset(self.stream, idmp_maxsize=1))
        self.assertEqual(self.info("idmp-duration", "idmp-maxsize"), (300, 1))
        add = lambda name: self.redis.xadd(self.stream, {"order": 1}, idmp=("till", name))
        first, second = add(b"a"), add(b"b")
        self.assertEqual(add(b"b"), second)
        self.assertNotEqual(add(b"a"), first)
        self.assertTrue(self.redis.xcfgset(self.stream, idmp_duration=299, idmp_maxsize=2))
        self.assertEqual(self.info("pids-tracked", "iids-tracked"), (0, 0))
        with self.assertRaisesRegex(redis.ResponseError, "^no such key$"):
            self.redis.xcfgset(target.fresh("none"), idmp_duration=1)
        with self.assertRaisesRegex(redis.ResponseError, "between 1 and 10000 entries"):
            self.redis.xcfgset(self.stream, idmp_maxsize=10_001)

    def test_an_existing_entry_gets_an_idempotency_id(self):
        # The client has no method for this command, which servers send to each other.
        id = self.redis.xadd(self.stream, {"order": 1})
        self.assertIn(self.redis.execute_command("XIDMPRECORD", self.stream, "till", "a", id), (True, "OK"))
        self.assertEqual(self.redis.xadd(self.stream, {"order": 1}, idmp=("till", b"a")), id)

    # Limited replies: MAXCOUNT, MAXSIZE

    def test_maxcount_limits_all_streams_together(self):
        second = target.fresh("returns")
        self.filled(3, "billing")
        for number in (1, 2, 3):
            self.redis.xadd(second, {"order": number}, id=f"{number}-0")
        self.redis.xgroup_create(second, "billing", id="0")
        both = {self.stream: "0", second: "0"}
        lengths = lambda reply: {stream: len(entries) for stream, entries in reply.items()}
        self.assertEqual(lengths(self.redis.xread(both, max_count=4)), {self.stream: 3, second: 1})
        self.assertEqual(lengths(self.redis.xread(both, count=2, max_count=3)), {self.stream: 2, second: 1})
        new = {self.stream: ">", second: ">"}
        read = lambda **more: lengths(self.redis.xreadgroup("billing", "anna", new, **more))
        self.assertEqual(read(max_count=2), {self.stream: 2})
        self.assertEqual(self.rows(), [("1-0", "anna", 1), ("2-0", "anna", 1)])
        self.assertEqual(read(count=2, max_count=2), {self.stream: 1, second: 1})
        self.assertEqual(read(max_count=9, claim_min_idle_time=0), {self.stream: 3, second: 3})

    def test_maxsize_limits_bytes(self):
        for number in (1, 2, 3):
            self.redis.xadd(self.stream, {"order": "x" * 1000}, id=f"{number}-0")
        self.redis.xgroup_create(self.stream, "billing", id="0")
        lengths = [len(self.redis.xread({self.stream: "0"}, max_size=size)[self.stream]) for size in (1, 1500, 10**6)]
        self.assertEqual(lengths, [1, 2, 3])
        reply = self.redis.xreadgroup("billing", "anna", {self.stream: ">"}, max_size=1)
        self.assertEqual([id for id, _ in reply[self.stream]], ["1-0"])
        self.assertEqual(self.rows(), [("1-0", "anna", 1)])

    # Pipelines, transactions, asyncio

    def test_in_a_transaction(self):
        self.filled(2, "billing")
        self.read("anna")
        with self.redis.pipeline(transaction=True) as transaction:
            transaction.xnack(self.stream, "billing", "FAIL", "1-0")
            transaction.xackdel(self.stream, "billing", "2-0", ref_policy="ACKED")
            transaction.xreadgroup("billing", "ben", {self.stream: ">"}, claim_min_idle_time=600_000)
            transaction.xdelex(self.stream, "2-0")
            released, deleted, claimed, gone = transaction.execute()
        self.assertEqual((released, deleted, gone), (1, [DELETED], [NOT_FOUND]))
        ((id, _, _, deliveries),) = claimed[self.stream]
        self.assertEqual((id, deliveries), ("1-0", 1))

    def test_with_asyncio(self):
        async def life():
            async with redis.asyncio.Redis(**target.options(self.protocol)) as client:
                id = await client.xadd(self.stream, {"order": 1}, idmpauto="till")
                self.assertEqual(await client.xadd(self.stream, {"order": 1}, idmpauto="till"), id)
                await client.xgroup_create(self.stream, "billing", id="0")
                new = {self.stream: ">"}
                await client.xreadgroup("billing", "anna", new, max_count=1)
                self.assertEqual(await client.xnack(self.stream, "billing", "SILENT", id), 1)
                claimed = await client.xreadgroup("billing", "ben", new, claim_min_idle_time=600_000)
                self.assertEqual([(row[0], row[3]) for row in claimed[self.stream]], [(id, 0)])
                self.assertEqual(await client.xackdel(self.stream, "billing", id, ref_policy="ACKED"), [DELETED])
                self.assertEqual(await client.xdelex(self.stream, id), [NOT_FOUND])

        asyncio.run(life())


class Resp2(Newest, unittest.TestCase):
    protocol = 2


class Resp3(Newest, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
