"""Replays the commands of redis_exporter, KEDA, RedisInsight and go-redis, and reads the replies as they do.

These tools cannot be installed everywhere. But each sends a fixed list of commands and reads fixed parts of the
replies, by field name or by position. The tests send these commands over a plain connection.
"""

import re
import unittest

import target
from wire import ErrorReply, Pairs, Wire


def pairs(flat):
    """Converts a RESP2 reply of alternating names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def fields(info):
    """Parses the lines of an INFO reply."""
    lines = (line for line in info.splitlines() if line and not line.startswith("#"))
    return dict(line.split(":", 1) for line in lines)


class Probe(unittest.TestCase):
    def setUp(self):
        self.wire = Wire()
        self.addCleanup(self.wire.close)
        self.call = self.wire.call
        self.stream = target.fresh("events")

    def prepared(self):
        """Creates five entries, deletes the second, and has a group deliver three and acknowledge one."""
        for number in range(1, 6):
            self.call("XADD", self.stream, f"{1700000000000 + number}-0", "n", number)
        self.call("XGROUP", "CREATE", self.stream, "workers", "0")
        self.call("XREADGROUP", "GROUP", "workers", "anna", "COUNT", 3, "STREAMS", self.stream, ">")
        self.call("XACK", self.stream, "workers", "1700000000001-0")
        self.call("XDEL", self.stream, "1700000000002-0")

    def refused(self, *arguments):
        with self.assertRaises(ErrorReply) as refused:
            self.call(*arguments)
        return str(refused.exception)


class RedisExporter(Probe):
    """redis_exporter: CONFIG GET *, INFO ALL, SLOWLOG, then three XINFO calls for every stream."""

    def test_connecting(self):
        self.assertEqual(self.call("PING"), "PONG")
        self.assertEqual(self.call("CLIENT", "SETNAME", "redis_exporter"), "OK")
        config = pairs(self.call("CONFIG", "GET", "*"))
        self.assertGreater(int(config["databases"]), 0)
        self.assertGreater(int(config["maxclients"]), 0)
        self.assertTrue(config["maxmemory"].isdigit())

    def test_info_all(self):
        info = self.call("INFO", "ALL")
        self.assertIn("\r\n", info)
        for section in ("Server", "Clients", "Memory", "Stats", "Replication", "CPU", "Commandstats", "Keyspace"):
            self.assertIn(f"# {section}\r\n", info)
        found = fields(info)
        numbers = (
            "uptime_in_seconds connected_clients blocked_clients maxclients used_memory used_memory_rss "
            "used_memory_peak total_connections_received total_commands_processed instantaneous_ops_per_sec "
            "total_net_input_bytes total_net_output_bytes rejected_connections expired_keys keyspace_hits "
            "keyspace_misses connected_slaves used_cpu_sys used_cpu_user process_id tcp_port"
        ).split()
        for name in numbers:
            self.assertRegex(found.get(name, "missing"), r"^\d+(\.\d+)?$", name)
        self.assertEqual(found["role"], "master")
        self.assertEqual(found["cluster_enabled"], "0")
        self.assertEqual(found["redis_mode"], "standalone")

    def test_command_statistics(self):
        self.prepared()
        found = fields(self.call("INFO", "commandstats"))
        self.assertRegex(found["cmdstat_xadd"], r"^calls=\d+,usec=\d+,usec_per_call=\d+\.\d+,rejected_calls=\d+,failed_calls=\d+")
        self.assertIn("cmdstat_xgroup|create", found)

    def test_keyspace(self):
        self.prepared()
        found = fields(self.call("INFO", "keyspace"))
        self.assertRegex(found["db0"], r"^keys=\d+,expires=\d+,avg_ttl=\d+")

    def test_slow_log(self):
        self.assertIsInstance(self.call("SLOWLOG", "LEN"), int)
        for row in self.call("SLOWLOG", "GET", 1):
            self.assertIsInstance(row[0], int)
            self.assertIsInstance(row[2], int)

    def test_the_fields_of_a_stream_by_name(self):
        self.prepared()
        info = pairs(self.call("XINFO", "STREAM", self.stream))
        self.assertEqual(info["length"], 4)
        self.assertEqual(info["groups"], 1)
        self.assertEqual(info["entries-added"], 5)
        self.assertEqual(info["last-generated-id"], "1700000000005-0")
        self.assertEqual(info["max-deleted-entry-id"], "1700000000002-0")
        self.assertGreater(info["radix-tree-keys"], 0)
        self.assertGreater(info["radix-tree-nodes"], 0)

    def test_first_and_last_entry_follow_their_names(self):
        # The exporter takes the element after the field name in the flat reply, at any position.
        self.prepared()
        flat = self.call("XINFO", "STREAM", self.stream)
        self.assertEqual(flat[flat.index("first-entry") + 1], ["1700000000001-0", ["n", "1"]])
        self.assertEqual(flat[flat.index("last-entry") + 1], ["1700000000005-0", ["n", "5"]])
        self.assertEqual(len(flat), 32 if target.version() >= (8, 6) else 20)

    def test_groups_and_consumers(self):
        self.prepared()
        (group,) = [pairs(row) for row in self.call("XINFO", "GROUPS", self.stream)]
        self.assertEqual(
            {name: group[name] for name in ("name", "consumers", "pending", "last-delivered-id", "entries-read", "lag")},
            {
                "name": "workers",
                "consumers": 1,
                "pending": 2,
                "last-delivered-id": "1700000000003-0",
                "entries-read": 3,
                "lag": 2,
            },
        )
        (consumer,) = [pairs(row) for row in self.call("XINFO", "CONSUMERS", self.stream, "workers")]
        self.assertEqual((consumer["name"], consumer["pending"]), ("anna", 2))
        self.assertIsInstance(consumer["idle"], int)

    def test_finding_streams_by_pattern(self):
        self.prepared()
        self.assertEqual(self.call("SELECT", 0), "OK")
        cursor, found = "0", []
        while True:
            cursor, keys = self.call("SCAN", cursor, "MATCH", self.stream[:-1] + "*", "COUNT", 1000)
            found += keys
            if cursor == "0":
                break
        self.assertEqual(found, [self.stream])
        self.assertEqual(self.call("TYPE", self.stream), "stream")
        self.assertGreater(self.call("MEMORY", "USAGE", self.stream), 0)


class Keda(Probe):
    """KEDA's redis-streams scaler: it reads the version from INFO, then one number."""

    def test_the_version_is_at_least_seven(self):
        info = self.call("INFO")
        version = re.search(r"^redis_version:(\d+)\.\d+\.\d+\r?$", info, re.MULTILINE)
        self.assertIsNotNone(version, info[:300])
        self.assertGreaterEqual(int(version.group(1)), 7)

    def test_lag_is_a_number(self):
        self.prepared()
        for row in self.call("XINFO", "GROUPS", self.stream):
            self.assertIsInstance(pairs(row)["lag"], int)

    def test_a_missing_stream_returns_the_exact_error_text(self):
        self.assertEqual(self.refused("XINFO", "GROUPS", self.stream), "ERR no such key")

    def test_pending_and_length(self):
        self.prepared()
        self.assertEqual(
            self.call("XPENDING", self.stream, "workers"),
            [2, "1700000000002-0", "1700000000003-0", [["anna", "2"]]],
        )
        self.assertEqual(self.call("XLEN", self.stream), 4)
        self.assertEqual(self.call("XLEN", target.fresh("none")), 0)

    def test_lag_without_a_group_falls_back_to_the_length(self):
        self.call("XADD", self.stream, "1-0", "n", 1)
        self.assertEqual(self.call("XINFO", "GROUPS", self.stream), [])
        self.assertEqual(self.call("XLEN", self.stream), 1)


class RedisInsight(Probe):
    """RedisInsight: its commands when it connects, when it browses, and on its stream pages."""

    def test_connecting(self):
        for section in ((), ("server",), ("replication",), ("keyspace",), ("stats",), ("memory",), ("clients",)):
            self.assertIn(":", self.call("INFO", *section))
        hello = pairs(self.call("HELLO"))
        self.assertEqual((hello["proto"], hello["mode"], hello["role"]), (2, "standalone", "master"))
        self.assertEqual(self.call("MODULE", "LIST"), [])
        self.assertEqual(self.call("COMMAND", "INFO", "arget"), [None])
        self.assertEqual(pairs(self.call("CONFIG", "GET", "databases")), {"databases": "16"})
        self.assertIn("io-threads", pairs(self.call("CONFIG", "GET", "io-threads")))
        self.assertIsInstance(self.call("DBSIZE"), int)
        self.assertIn("flushall", self.call("ACL", "CAT", "dangerous"))
        self.assertEqual(self.refused("CLUSTER", "INFO"), "ERR This instance has cluster support disabled")
        self.assertEqual(self.refused("CLUSTER", "SLOTS"), "ERR This instance has cluster support disabled")

    def test_client_list_has_pairs(self):
        self.call("CLIENT", "SETNAME", "insight")
        lines = self.call("CLIENT", "LIST").splitlines()
        clients = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]
        (client,) = [client for client in clients if client["id"] == str(self.call("CLIENT", "ID"))]
        self.assertEqual((client["name"], client["db"], client["flags"]), ("insight", "0", "N"))
        self.assertEqual(client["cmd"], "client|list")
        for name in ("addr", "age", "idle"):
            self.assertIn(name, client)

    def test_browsing(self):
        self.prepared()
        for filter in ((), ("TYPE", "stream")):
            cursor, keys = self.call("SCAN", 0, "MATCH", self.stream, "COUNT", 100_000, *filter)
            self.assertEqual((cursor, keys), ("0", [self.stream]))
        self.assertEqual(self.call("TYPE", self.stream), "stream")
        self.assertEqual(self.call("TTL", self.stream), -1)
        self.assertGreater(self.call("MEMORY", "USAGE", self.stream, "SAMPLES", 0), 0)

    def test_replies_that_are_read_by_position(self):
        self.prepared()
        (group,) = self.call("XINFO", "GROUPS", self.stream)
        self.assertEqual(group[0:8:2], ["name", "consumers", "pending", "last-delivered-id"])
        self.assertEqual(group[1:8:2], ["workers", 1, 2, "1700000000003-0"])
        (consumer,) = self.call("XINFO", "CONSUMERS", self.stream, "workers")
        self.assertEqual(consumer[0:6:2], ["name", "pending", "idle"])
        (first, second) = self.call("XPENDING", self.stream, "workers", "-", "+", 500, "anna")
        self.assertEqual((first[0], first[1], first[3]), ("1700000000002-0", "anna", 1))
        self.assertIsInstance(second[2], int)
        names = self.call("XINFO", "STREAM", self.stream)[0::2]
        first = "length radix-tree-keys radix-tree-nodes last-generated-id max-deleted-entry-id entries-added"
        idempotence = "idmp-duration idmp-maxsize pids-tracked iids-tracked iids-added iids-duplicates"
        self.assertEqual(
            names,
            [
                *first.split(),
                "recorded-first-entry-id",
                *(idempotence.split() if target.version() >= (8, 6) else []),
                "groups",
                "first-entry",
                "last-entry",
            ],
        )

    def test_resp3_returns_maps_in_the_same_order(self):
        self.prepared()
        self.assertIsInstance(self.call("HELLO", 3), Pairs)
        (group,) = self.call("XINFO", "GROUPS", self.stream)
        self.assertIsInstance(group, Pairs)
        self.assertEqual([name for name, _ in group][:4], ["name", "consumers", "pending", "last-delivered-id"])
        self.assertIsInstance(self.call("XINFO", "STREAM", self.stream), Pairs)
        (entry,) = self.call("XRANGE", self.stream, "-", "+", "COUNT", 1)
        self.assertEqual(entry, ["1700000000001-0", ["n", "1"]])

    def test_lower_case_claim_options(self):
        self.prepared()
        claimed = self.call(
            "XCLAIM", self.stream, "workers", "ben", 0, "1700000000003-0", "idle", 1000, "retrycount", 4, "force", "justid"
        )
        self.assertEqual(claimed, ["1700000000003-0"])
        claimed = self.call("XCLAIM", self.stream, "workers", "ben", 0, "1700000000003-0", "time", 1700000000000, "justid")
        self.assertEqual(claimed, ["1700000000003-0"])
        (row,) = self.call("XPENDING", self.stream, "workers", "-", "+", 10, "ben")
        self.assertEqual(row[3], 4)

    def test_editing(self):
        self.prepared()
        self.assertRegex(self.call("XADD", self.stream, "*", "n", 6), r"^\d+-\d+$")
        self.assertEqual(len(self.call("XREVRANGE", self.stream, "+", "-", "COUNT", 500)), 5)
        self.assertEqual(self.call("XGROUP", "CREATE", self.stream, "second", "$"), "OK")
        self.assertEqual(self.call("XGROUP", "SETID", self.stream, "second", "1700000000003-0"), "OK")
        self.assertEqual(self.call("XGROUP", "DELCONSUMER", self.stream, "workers", "anna"), 2)
        self.assertEqual(self.call("XGROUP", "DESTROY", self.stream, "second"), 1)
        self.assertEqual(self.call("XDEL", self.stream, "1700000000001-0"), 1)


class GoRedis(Probe):
    """go-redis: it sends HELLO 3, then every command name in lower case."""

    def test_connecting(self):
        self.wire.send("hello", 3)
        self.wire.send("client", "setinfo", "LIB-NAME", "go-redis(,go1.24)")
        self.wire.send("client", "setinfo", "LIB-VER", "9.18.0")
        hello = dict(self.wire.reply())
        self.assertEqual((hello["proto"], hello["role"], hello["modules"]), (3, "master", []))
        for _ in range(2):
            # CLIENT SETINFO is newer than 7.0. go-redis ignores its error, and the connection must stay usable.
            try:
                self.assertEqual(self.wire.reply(), "OK")
            except ErrorReply:
                self.assertLess(target.version(), (7, 2))
        self.assertEqual(self.call("ping"), "PONG")

    def test_a_group_read_as_go_redis_sends_it(self):
        self.call("hello", 3)
        self.call("xadd", self.stream, "1-1", "producer", 7, "serial", 1)
        self.assertEqual(self.call("xgroup", "create", self.stream, "readers", "0", "mkstream"), "OK")
        reply = self.call("xreadgroup", "group", "readers", "a", "count", 10, "block", 100, "streams", self.stream, ">")
        self.assertEqual(reply, [(self.stream, [["1-1", ["producer", "7", "serial", "1"]]])])
        self.assertEqual(
            self.call("xautoclaim", self.stream, "readers", "b", 0, "0-0", "count", 1),
            ["0-0", [["1-1", ["producer", "7", "serial", "1"]]], []],
        )
        self.assertIsNone(self.call("xreadgroup", "group", "readers", "a", "block", 1, "streams", self.stream, ">"))


if __name__ == "__main__":
    unittest.main()
