"""Tests redis-py in a group with a policy, in RESP2 and in RESP3. Only Millstream has policies.

Consumers use only XREADGROUP and XACK. An operator sets the policy, with a command that redis-py does not know.
"""

import re
import unittest

import target

LEASE_MS = 150
TICKET = re.compile(r"\d{13}-\d+")


class Policies:
    """The tests. The two classes at the end run them, each in one protocol."""

    def setUp(self):
        self.redis = self.connect()
        self.stream = target.fresh("orders")
        self.dead = f"{self.stream}:dead"

    def connect(self):
        connection = target.client(self.protocol)
        self.addCleanup(connection.close)
        return connection

    def set_policy(self):
        policy = ("LEASE", LEASE_MS, "MAXDELIVER", 3, "DLQ", self.dead)
        reply = self.redis.execute_command("XPOLICY", "SET", self.stream, "GROUP", "billing", *policy)
        self.assertIn(reply, (True, "OK", b"OK"))

    def read(self, connection, consumer, block=20_000):
        reply = connection.xreadgroup("billing", consumer, {self.stream: ">"}, count=10, block=block)
        if not reply:
            return []
        return reply[self.stream] if isinstance(reply, dict) else reply[0][1]

    def test_read_fail_die_and_read_again(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        self.set_policy()
        good = self.redis.xadd(self.stream, {"order": "good"})
        bad = self.redis.xadd(self.stream, {"order": "bad"})

        anna = self.connect()
        first = self.read(anna, "anna")
        self.assertEqual([tuple(entry) for entry in first], [(good, {"order": "good"}), (bad, {"order": "bad"})])
        anna.close()  # The consumer anna dies with both entries pending.

        # A blocked reader gets both when the lease is over, as entries of two elements.
        ben = self.connect()
        received = []
        while len(received) < 2:
            received += self.read(ben, "ben")
        self.assertEqual([tuple(entry) for entry in received], [(good, {"order": "good"}), (bad, {"order": "bad"})])
        self.assertEqual(ben.xack(self.stream, "billing", good), 1)

        # The consumer ben fails the other entry. The server delivers it a third time, and never again.
        self.assertEqual([id for id, _ in self.read(ben, "ben")], [bad])
        self.assertEqual(self.read(ben, "ben", block=3 * LEASE_MS), [])
        target.eventually(lambda: self.redis.xlen(self.dead), "a dead letter")
        [(_, fields)] = self.redis.xrange(self.dead)
        self.assertEqual(fields["order"], "bad")
        self.assertEqual(
            [fields[f"dlq.{name}"] for name in ("stream", "id", "group", "consumer", "deliveries", "reason")],
            [self.stream, bad, "billing", "ben", "3", "max_deliveries"],
        )
        self.assertEqual(self.redis.xpending(self.stream, "billing")["pending"], 0)

    def test_delayed_messages(self):
        self.redis.xgroup_create(self.stream, "billing", mkstream=True)
        ticket = self.redis.xadd(self.stream, {"order": "later"}, id="*+300")
        self.assertRegex(ticket, TICKET)
        self.assertEqual(self.redis.xlen(self.stream), 0)
        [(id, fields)] = self.read(self.redis, "anna")
        self.assertEqual(fields, {"order": "later"})
        self.assertGreaterEqual(int(id.split("-")[0]), int(ticket.split("-")[0]))
        self.assertEqual(self.redis.xack(self.stream, "billing", id), 1)
        # A time in the past: the entry is added at once.
        id = self.redis.xadd(self.stream, {"order": "now"}, id="*@1000000000000")
        self.assertEqual(self.redis.xrange(self.stream, id, id), [(id, {"order": "now"})])

    def test_the_replies_of_xinfo_stay_the_same(self):
        self.redis.xadd(self.stream, {"order": "1"})
        self.redis.xgroup_create(self.stream, "billing", id="0")
        self.read(self.redis, "anna")

        def replies():
            consumers = self.redis.xinfo_consumers(self.stream, "billing")
            names = [(consumer["name"], consumer["pending"], sorted(consumer)) for consumer in consumers]
            full = self.redis.xinfo_stream(self.stream, full=True)
            [group] = full["groups"]
            group = group if isinstance(group, dict) else dict(zip(group[::2], group[1::2]))
            return (
                self.redis.xinfo_stream(self.stream),
                self.redis.xinfo_groups(self.stream),
                names,
                sorted(full),
                sorted(group),
            )

        before = replies()
        self.set_policy()
        self.redis.execute_command("XPOLICY", "SET", self.stream, "MAXAGE", 86_400_000, "ACKEDAGE", 3_600_000)
        self.redis.xadd(self.stream, {"order": "later"}, id="*+3600000")
        self.assertEqual(replies(), before)


class Resp2(Policies, unittest.TestCase):
    protocol = 2


class Resp3(Policies, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
