"""Tests the whole life of a group with synchronous redis-py, in RESP2 and in RESP3."""

import time
import unittest

import redis

import target


class Life:
    """The tests. The two classes at the end run them, each in one protocol."""

    @classmethod
    def setUpClass(cls):
        cls.version = target.version()

    def setUp(self):
        self.redis = target.client(self.protocol)
        self.addCleanup(self.redis.close)
        self.stream = target.fresh("orders")

    def other(self, **more):
        connection = target.client(self.protocol, **more)
        self.addCleanup(connection.close)
        return connection

    def filled(self, count, group="billing"):
        """Creates a stream with the entries 1-0 … count-0, and a group at its beginning."""
        for number in range(1, count + 1):
            self.redis.xadd(self.stream, {"order": number, "item": "millstone"}, id=f"{number}-0")
        self.redis.xgroup_create(self.stream, group, id="0")

    def read(self, consumer, count=None, id=">", **more):
        reply = self.redis.xreadgroup("billing", consumer, {self.stream: id}, count=count, **more)
        return [entry_id for entry_id, _ in reply.get(self.stream, [])]

    def rows(self, consumer=None):
        rows = self.redis.xpending_range(self.stream, "billing", "-", "+", 100, consumername=consumer)
        return [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]

    # Create

    def test_a_group_needs_a_stream_or_mkstream(self):
        with self.assertRaisesRegex(redis.ResponseError, "requires the key to exist"):
            self.redis.xgroup_create(self.stream, "billing")
        self.assertTrue(self.redis.xgroup_create(self.stream, "billing", mkstream=True))
        self.assertEqual(self.redis.xlen(self.stream), 0)
        self.assertEqual(self.redis.type(self.stream), "stream")

    def test_creating_a_group_twice_is_busygroup(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        with self.assertRaises(redis.ResponseError) as refused:
            self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        self.assertEqual(str(refused.exception), "BUSYGROUP Consumer Group name already exists")

    def test_consumers_are_created_once(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        self.assertEqual(self.redis.xgroup_createconsumer(self.stream, "billing", "anna"), 1)
        self.assertEqual(self.redis.xgroup_createconsumer(self.stream, "billing", "anna"), 0)
        names = [row["name"] for row in self.redis.xinfo_consumers(self.stream, "billing")]
        self.assertEqual(names, ["anna"])

    # Produce

    def test_ids_are_generated_in_order_and_never_reused(self):
        first = self.redis.xadd(self.stream, {"order": 1})
        second = self.redis.xadd(self.stream, {"order": 2})
        as_numbers = [tuple(map(int, id.split("-"))) for id in (first, second)]
        self.assertLess(as_numbers[0], as_numbers[1])
        with self.assertRaisesRegex(redis.ResponseError, "equal or smaller than the target stream top item"):
            self.redis.xadd(self.stream, {"order": 3}, id=first)
        self.assertIsNone(self.redis.xadd(target.fresh("none"), {"order": 4}, nomkstream=True))

    def test_entries_come_back_byte_for_byte(self):
        raw = redis.Redis(host=target.HOST, port=target.port(), protocol=self.protocol, **target.tls())
        self.addCleanup(raw.close)
        fields = {b"bytes": bytes(range(256)), b"": b"", "größe".encode(): "∞".encode(), b"long": b"x" * 70_000}
        id = raw.xadd(self.stream, fields)
        self.assertEqual(raw.xrange(self.stream), [(id, fields)])

    def test_ranges_in_both_directions(self):
        self.filled(5)
        ids = lambda entries: [id for id, _ in entries]
        self.assertEqual(ids(self.redis.xrange(self.stream, "2", "(4-0")), ["2-0", "3-0"])
        self.assertEqual(ids(self.redis.xrevrange(self.stream, "+", "-", count=2)), ["5-0", "4-0"])
        self.assertEqual(self.redis.xrange(self.stream, "3-0", "3-0"), [("3-0", {"order": "3", "item": "millstone"})])

    # Read

    def test_a_message_goes_to_one_consumer(self):
        self.filled(4)
        self.assertEqual(self.read("anna", count=1), ["1-0"])
        self.assertEqual(self.read("ben", count=2), ["2-0", "3-0"])
        self.assertEqual(self.read("anna"), ["4-0"])
        self.assertEqual(self.redis.xreadgroup("billing", "anna", {self.stream: ">"}), {})

    def test_groups_read_independently(self):
        self.filled(2)
        self.redis.xgroup_create(self.stream, "audit", id="1-0")
        self.assertEqual(self.read("anna"), ["1-0", "2-0"])
        reply = self.redis.xreadgroup("audit", "zoe", {self.stream: ">"})
        self.assertEqual(reply, {self.stream: [("2-0", {"order": "2", "item": "millstone"})]})

    def test_history_is_the_consumers_own(self):
        self.filled(3)
        self.read("anna", count=2)
        self.assertEqual(self.read("anna", id="0"), ["1-0", "2-0"])
        self.assertEqual(self.read("anna", id="1-0"), ["2-0"])
        self.assertEqual(self.redis.xreadgroup("billing", "ben", {self.stream: "0"}), {self.stream: []})

    def test_noack_leaves_nothing_pending(self):
        self.filled(2)
        self.assertEqual(self.read("anna", noack=True), ["1-0", "2-0"])
        self.assertEqual(self.redis.xpending(self.stream, "billing")["pending"], 0)

    def test_reading_several_streams_in_one_call(self):
        second = target.fresh("returns")
        self.filled(1)
        self.redis.xadd(second, {"order": 9}, id="9-0")
        self.redis.xgroup_create(second, "billing", id="0")
        reply = self.redis.xreadgroup("billing", "anna", {self.stream: ">", second: ">"})
        self.assertEqual(list(reply), [self.stream, second])
        self.assertEqual(reply[second], [("9-0", {"order": "9"})])
        self.assertEqual(list(self.redis.xread({self.stream: "0", second: "9-0"})), [self.stream])

    def test_reading_without_the_group_is_nogroup(self):
        with self.assertRaises(redis.ResponseError) as refused:
            self.read("anna")
        expected = f"NOGROUP No such key '{self.stream}' or consumer group 'billing' in XREADGROUP with GROUP option"
        self.assertEqual(str(refused.exception), expected)

    # Block

    def test_a_blocked_read_times_out_with_nothing(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        began = time.monotonic()
        reply = self.redis.xreadgroup("billing", "anna", {self.stream: ">"}, block=150)
        self.assertEqual(reply, {})
        # Half of the timeout: the test checks that the read blocked, and a change of the clock can shorten it.
        self.assertGreaterEqual(time.monotonic() - began, 0.075)

    def test_a_blocked_read_wakes_with_the_new_entry(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        waiting = target.Background(
            lambda: self.other().xreadgroup("billing", "anna", {self.stream: ">"}, block=10_000)
        )
        target.eventually(lambda: target.blocked_clients(self.redis) > 0, "a blocked client in INFO")
        began = time.monotonic()
        self.redis.xadd(self.stream, {"order": 1}, id="1-0")
        self.assertEqual(waiting.result(), {self.stream: [("1-0", {"order": "1"})]})
        self.assertLess(time.monotonic() - began, 2)
        self.assertEqual(self.rows(), [("1-0", "anna", 1)])

    def test_blocked_readers_are_served_first_come_first_served(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        waiting = []
        for number, consumer in enumerate(("first", "second", "third"), start=1):
            reader = self.other()
            waiting.append(
                target.Background(
                    lambda reader=reader, consumer=consumer: reader.xreadgroup(
                        "billing", consumer, {self.stream: ">"}, count=1, block=10_000
                    )
                )
            )
            self.wait_until_blocked(number)
        for number in (1, 2, 3):
            self.redis.xadd(self.stream, {"order": number}, id=f"{number}-0")
        served = [next(iter(reader.result().values()))[0][0] for reader in waiting]
        self.assertEqual(served, ["1-0", "2-0", "3-0"])

    def wait_until_blocked(self, count):
        """Waits until CLIENT LIST shows `count` connections blocked in XREADGROUP (flag b)."""
        def waiting():
            rows = self.redis.client_list()
            return sum("b" in row["flags"] and row["cmd"] == "xreadgroup" for row in rows) >= count

        target.eventually(waiting, f"{count} blocked readers in CLIENT LIST")

    def test_destroying_the_group_ends_a_blocked_read(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        waiting = target.Background(
            lambda: self.other().xreadgroup("billing", "anna", {self.stream: ">"}, block=10_000)
        )
        self.wait_until_blocked(1)
        self.redis.xgroup_destroy(self.stream, "billing")
        with self.assertRaisesRegex(redis.ResponseError, "NOGROUP"):
            waiting.result()

    def test_client_unblock_ends_a_blocked_read(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        for as_error in (False, True):
            reader = self.other(single_connection_client=True)
            id = reader.client_id()
            waiting = target.Background(
                lambda reader=reader: reader.xreadgroup("billing", "anna", {self.stream: ">"}, block=10_000)
            )
            self.wait_until_blocked(1)
            self.assertTrue(self.redis.client_unblock(id, error=as_error))
            if as_error:
                with self.assertRaisesRegex(redis.ResponseError, "UNBLOCKED"):
                    waiting.result()
            else:
                self.assertEqual(waiting.result(), {})

    def test_xread_blocks_until_the_next_entry(self):
        self.redis.xadd(self.stream, {"order": 1}, id="1-0")
        waiting = target.Background(lambda: self.other().xread({self.stream: "$"}, block=10_000))
        target.eventually(lambda: target.blocked_clients(self.redis) > 0, "a blocked client in INFO")
        self.redis.xadd(self.stream, {"order": 2}, id="2-0")
        self.assertEqual(waiting.result(), {self.stream: [("2-0", {"order": "2"})]})

    # Acknowledge

    def test_acknowledging_counts_pending_entries(self):
        self.filled(3)
        self.read("anna")
        self.assertEqual(self.redis.xack(self.stream, "billing", "1-0", "2-0", "9-9"), 2)
        self.assertEqual(self.redis.xack(self.stream, "billing", "1-0"), 0)
        self.assertEqual(self.rows(), [("3-0", "anna", 1)])
        self.assertEqual(self.redis.xack(target.fresh("none"), "billing", "1-0"), 0)

    # Crash

    def test_entries_of_a_killed_connection_stay_pending(self):
        self.filled(3)
        worker = self.other(single_connection_client=True, retry=None)
        id = worker.client_id()
        worker.xreadgroup("billing", "anna", {self.stream: ">"}, count=2)
        self.assertEqual(self.redis.client_kill_filter(_id=id), 1)
        self.assertEqual(self.rows(), [("1-0", "anna", 1), ("2-0", "anna", 1)])
        self.assertEqual(self.read("anna", id="0"), ["1-0", "2-0"])
        self.assertEqual(self.read("ben"), ["3-0"])

    def test_a_reader_killed_while_blocked_takes_no_entry(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        worker = self.other(single_connection_client=True, retry=None)
        id = worker.client_id()
        waiting = target.Background(
            lambda: worker.execute_command(
                "XREADGROUP", "GROUP", "billing", "anna", "BLOCK", 10_000, "STREAMS", self.stream, ">"
            )
        )
        self.wait_until_blocked(1)
        self.redis.client_kill_filter(_id=id)
        with self.assertRaises((redis.ConnectionError, redis.TimeoutError)):
            waiting.result()
        self.redis.xadd(self.stream, {"order": 1}, id="1-0")
        self.assertEqual(self.rows(), [])
        self.assertEqual(self.read("ben"), ["1-0"])

    # Pending

    def test_xpending_summary_and_extended_form(self):
        self.filled(4)
        self.assertEqual(
            self.redis.xpending(self.stream, "billing"), {"pending": 0, "min": None, "max": None, "consumers": []}
        )
        self.read("ben", count=1)
        self.read("anna", count=3)
        self.assertEqual(
            self.redis.xpending(self.stream, "billing"),
            {
                "pending": 4,
                "min": "1-0",
                "max": "4-0",
                "consumers": [{"name": "anna", "pending": 3}, {"name": "ben", "pending": 1}],
            },
        )
        self.assertEqual(self.rows("ben"), [("1-0", "ben", 1)])
        rows = self.redis.xpending_range(self.stream, "billing", "(1-0", "3", 10)
        self.assertEqual([row["message_id"] for row in rows], ["2-0", "3-0"])
        self.assertLess(rows[0]["time_since_delivered"], 10_000)

    def test_pending_by_idle_time(self):
        self.filled(2)
        self.read("anna")
        self.redis.xclaim(self.stream, "billing", "anna", 0, ["2-0"], idle=60_000, justid=True)
        rows = self.redis.xpending_range(self.stream, "billing", "-", "+", 10, idle=30_000)
        self.assertEqual([row["message_id"] for row in rows], ["2-0"])
        self.assertGreaterEqual(rows[0]["time_since_delivered"], 59_000)

    # Claim

    def test_claiming_moves_entries_and_counts_deliveries(self):
        self.filled(2)
        self.read("anna")
        self.assertEqual(self.redis.xclaim(self.stream, "billing", "ben", 60_000, ["1-0"]), [])
        self.assertEqual(
            self.redis.xclaim(self.stream, "billing", "ben", 0, ["1-0", "9-9"]),
            [("1-0", {"order": "1", "item": "millstone"})],
        )
        self.assertEqual(self.redis.xclaim(self.stream, "billing", "ben", 0, ["2-0"], justid=True), ["2-0"])
        self.assertEqual(self.rows(), [("1-0", "ben", 2), ("2-0", "ben", 1)])
        self.redis.xclaim(self.stream, "billing", "anna", 0, ["2-0"], retrycount=7)
        self.assertEqual(self.rows("anna"), [("2-0", "anna", 7)])

    def test_force_claims_undelivered_entries(self):
        self.filled(1)
        self.assertEqual(self.redis.xclaim(self.stream, "billing", "ben", 0, ["1-0"]), [])
        claimed = self.redis.xclaim(self.stream, "billing", "ben", 0, ["1-0"], force=True, justid=True)
        self.assertEqual(claimed, ["1-0"])
        self.assertEqual(self.redis.xclaim(self.stream, "billing", "ben", 0, ["5-0"], force=True), [])

    def test_autoclaim_scans_the_pending_entries(self):
        self.filled(5)
        self.read("anna")
        self.redis.xdel(self.stream, "2-0")
        cursor, entries, deleted = self.redis.xautoclaim(self.stream, "billing", "ben", 0, "0-0", count=3)
        self.assertEqual((cursor, [id for id, _ in entries], deleted), ("4-0", ["1-0", "3-0"], ["2-0"]))
        ids = self.redis.xautoclaim(self.stream, "billing", "ben", 0, cursor, count=10, justid=True)
        self.assertEqual(ids, ["4-0", "5-0"])
        self.assertEqual(self.rows("ben"), [("1-0", "ben", 2), ("3-0", "ben", 2), ("4-0", "ben", 1), ("5-0", "ben", 1)])
        self.assertEqual(self.redis.xautoclaim(self.stream, "billing", "zoe", 60_000), ["0-0", [], []])

    # Inspect

    def test_xinfo_stream(self):
        self.filled(3)
        self.redis.xdel(self.stream, "2-0")
        info = self.redis.xinfo_stream(self.stream)
        self.assertEqual(
            {name: info[name] for name in info if not name.startswith(("radix", "idmp", "pids", "iids"))},
            {
                "length": 2,
                "last-generated-id": "3-0",
                "max-deleted-entry-id": "2-0",
                "entries-added": 3,
                "recorded-first-entry-id": "1-0",
                "groups": 1,
                "first-entry": ("1-0", {"order": "1", "item": "millstone"}),
                "last-entry": ("3-0", {"order": "3", "item": "millstone"}),
            },
        )
        self.assertGreater(info["radix-tree-keys"], 0)
        self.assertEqual("idmp-duration" in info, self.version >= (8, 6))

    def test_xinfo_stream_full(self):
        self.filled(3)
        self.read("anna", count=2)
        full = self.redis.xinfo_stream(self.stream, full=True)
        self.assertEqual(full["length"], 3)
        self.assertEqual(list(full["entries"]), ["1-0", "2-0", "3-0"])
        (group,) = full["groups"]
        self.assertEqual(group["name"], "billing")
        self.assertEqual((group["last-delivered-id"], group["entries-read"], group["lag"]), ("2-0", 2, 1))
        self.assertEqual(group["pel-count"], 2)
        self.assertEqual([(row[0], row[1], row[3]) for row in group["pending"]], [("1-0", "anna", 1), ("2-0", "anna", 1)])
        (consumer,) = group["consumers"]
        self.assertEqual((consumer["name"], consumer["pel-count"]), ("anna", 2))
        self.assertAlmostEqual(consumer["seen-time"], time.time() * 1000, delta=60_000)
        self.assertEqual("active-time" in consumer, self.version >= (7, 2))

    def test_xinfo_groups_and_consumers(self):
        self.filled(3)
        self.redis.xgroup_create(self.stream, "audit", id="$")
        self.read("anna", count=2)
        self.assertEqual(
            self.redis.xinfo_groups(self.stream)[1],
            {
                "name": "billing",
                "consumers": 1,
                "pending": 2,
                "last-delivered-id": "2-0",
                "entries-read": 2,
                "lag": 1,
            },
        )
        (consumer,) = self.redis.xinfo_consumers(self.stream, "billing")
        self.assertEqual((consumer["name"], consumer["pending"]), ("anna", 2))
        self.assertLess(consumer["idle"], 10_000)
        self.assertEqual("inactive" in consumer, self.version >= (7, 2))
        with self.assertRaisesRegex(redis.ResponseError, "^no such key$"):
            self.redis.xinfo_groups(target.fresh("none"))

    # Trim and delete

    def test_trimming(self):
        self.filled(10)
        self.assertEqual(self.redis.xtrim(self.stream, maxlen=7, approximate=False), 3)
        self.assertEqual(self.redis.xtrim(self.stream, minid="6", approximate=False), 2)
        self.assertEqual(self.redis.xrange(self.stream, count=1)[0][0], "6-0")
        self.assertEqual(self.redis.xtrim(self.stream, maxlen=2), 0)
        self.redis.xadd(self.stream, {"order": 11}, id="11-0", maxlen=2, approximate=False)
        self.assertEqual(self.redis.xlen(self.stream), 2)

    def test_approximate_trimming_keeps_less_than_one_extra_block(self):
        pipe = self.redis.pipeline(transaction=False)
        for number in range(1, 1001):
            pipe.xadd(self.stream, {"n": number}, id=f"{number}-0")
        pipe.execute()
        self.redis.xtrim(self.stream, maxlen=250)
        self.assertTrue(250 <= self.redis.xlen(self.stream) < 350, self.redis.xlen(self.stream))

    def test_a_deleted_entry_stays_pending_without_fields(self):
        self.filled(2)
        self.read("anna")
        self.assertEqual(self.redis.xdel(self.stream, "1-0", "1-0", "9-9"), 1)
        history = self.redis.xreadgroup("billing", "anna", {self.stream: "0"})[self.stream]
        self.assertEqual([id for id, _ in history], ["1-0", "2-0"])
        self.assertFalse(history[0][1])
        self.assertEqual(self.redis.xclaim(self.stream, "billing", "ben", 0, ["1-0"]), [])
        self.assertEqual(self.rows(), [("2-0", "anna", 2)])

    # Pipelines and transactions

    def test_a_pipeline_answers_in_order(self):
        pipe = self.redis.pipeline(transaction=False)
        for number in range(1, 501):
            pipe.xadd(self.stream, {"n": number}, id=f"{number}-0")
        pipe.xlen(self.stream)
        pipe.xgroup_create(self.stream, "billing", id="0")
        pipe.xreadgroup("billing", "anna", {self.stream: ">"}, count=500)
        replies = pipe.execute()
        self.assertEqual(replies[:500], [f"{number}-0" for number in range(1, 501)])
        self.assertEqual(replies[500:502], [500, True])
        self.assertEqual(len(replies[502][self.stream]), 500)

    def test_an_error_in_a_pipeline_keeps_its_position(self):
        pipe = self.redis.pipeline(transaction=False)
        pipe.xadd(self.stream, {"n": 1}, id="5-0").xadd(self.stream, {"n": 2}, id="4-0").xlen(self.stream)
        replies = pipe.execute(raise_on_error=False)
        self.assertEqual((replies[0], replies[2]), ("5-0", 1))
        self.assertIsInstance(replies[1], redis.ResponseError)

    def test_a_transaction_moves_an_entry_to_the_dead_letters(self):
        self.filled(1)
        self.read("anna")
        dead = target.fresh("dead")
        with self.redis.pipeline(transaction=True) as transaction:
            transaction.xadd(dead, {"from": "1-0"}, id="1-0")
            transaction.xack(self.stream, "billing", "1-0")
            transaction.xdel(self.stream, "1-0")
            self.assertEqual(transaction.execute(), ["1-0", 1, 1])
        self.assertEqual(self.redis.xlen(dead), 1)

    def test_a_blocking_read_inside_a_transaction_does_not_block(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        began = time.monotonic()
        with self.redis.pipeline(transaction=True) as transaction:
            transaction.xreadgroup("billing", "anna", {self.stream: ">"}, block=5_000)
            self.assertEqual(transaction.execute(), [{}])
        self.assertLess(time.monotonic() - began, 2)

    def test_watch_aborts_when_the_stream_has_changed(self):
        self.redis.xadd(self.stream, {"n": 1}, id="1-0")
        with self.redis.pipeline() as transaction:
            transaction.watch(self.stream)
            length = transaction.xlen(self.stream)
            self.redis.xadd(self.stream, {"n": 2}, id="2-0")
            transaction.multi()
            transaction.set(target.fresh("length"), length)
            with self.assertRaises(redis.WatchError):
                transaction.execute()

    def test_exec_succeeds_if_watched_keys_are_unchanged(self):
        def append(transaction):
            length = transaction.xlen(self.stream)
            transaction.multi()
            transaction.xadd(self.stream, {"position": length}, id=f"{length + 1}-0")

        self.assertEqual(self.redis.transaction(append, self.stream), ["1-0"])
        self.assertEqual(self.redis.transaction(append, self.stream), ["2-0"])

    def test_a_refused_command_aborts_the_transaction(self):
        with self.redis.pipeline(transaction=True) as transaction:
            transaction.execute_command("XADD", self.stream)
            transaction.xadd(self.stream, {"n": 1})
            with self.assertRaises(redis.ResponseError):
                transaction.execute()
        self.assertEqual(self.redis.exists(self.stream), 0)

    # The end of a group

    def test_setid_moves_a_group(self):
        self.filled(3)
        self.read("anna")
        self.assertTrue(self.redis.xgroup_setid(self.stream, "billing", "1-0"))
        self.assertEqual(self.read("ben"), ["2-0", "3-0"])
        self.assertEqual(self.rows(), [("1-0", "anna", 1), ("2-0", "ben", 1), ("3-0", "ben", 1)])
        self.assertTrue(self.redis.xgroup_setid(self.stream, "billing", "$"))
        self.assertEqual(self.read("ben"), [])

    def test_deleting_a_consumer_removes_its_pending_entries(self):
        self.filled(3)
        self.read("anna", count=2)
        self.read("ben")
        self.assertEqual(self.redis.xgroup_delconsumer(self.stream, "billing", "anna"), 2)
        self.assertEqual(self.rows(), [("3-0", "ben", 1)])
        self.assertEqual(self.redis.xgroup_delconsumer(self.stream, "billing", "anna"), 0)

    def test_destroying_a_group_keeps_the_stream(self):
        self.filled(2)
        self.assertEqual(self.redis.xgroup_destroy(self.stream, "billing"), 1)
        self.assertEqual(self.redis.xgroup_destroy(self.stream, "billing"), 0)
        self.assertEqual((self.redis.xlen(self.stream), self.redis.xinfo_groups(self.stream)), (2, []))
        self.assertEqual(self.redis.delete(self.stream), 1)

    def test_wrong_type(self):
        self.redis.set(self.stream, "not a stream")
        for call in (
            lambda: self.redis.xadd(self.stream, {"n": 1}),
            lambda: self.redis.xlen(self.stream),
            lambda: self.redis.xgroup_create(self.stream, "billing"),
        ):
            with self.assertRaisesRegex(redis.ResponseError, "WRONGTYPE"):
                call()


class Resp2(Life, unittest.TestCase):
    protocol = 2


class Resp3(Life, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
