"""Tests users and permissions through redis-py's own methods, in RESP2 and in RESP3."""

import hashlib
import unittest

import redis
import redis.backoff
import redis.retry

import target


class Users:
    """The tests. The two classes at the end run them, each in one protocol."""

    def setUp(self):
        self.redis = target.client(self.protocol)
        self.addCleanup(self.redis.close)
        self.name = target.fresh("user")
        self.stream = target.fresh("orders")
        self.addCleanup(self.redis.acl_deluser, self.name)

    def user(self, **rules):
        """Creates a user with these rules. Returns a client that has authenticated as this user."""
        rules = {"enabled": True, "reset": True, "passwords": ["+secret"], **rules}
        self.assertTrue(self.redis.acl_setuser(self.name, **rules))
        return self.login("secret")

    def login(self, password):
        """Returns a client with this password, which does not try again after an error."""
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        connection = target.client(self.protocol, username=self.name, password=password, retry=retry)
        self.addCleanup(connection.close)
        return connection

    def test_a_user_reads_and_writes_its_stream(self):
        user = self.user(keys=[self.stream], categories=["+@stream"], commands=["+acl|whoami"])
        self.assertEqual(user.acl_whoami(), self.name)
        id = user.xadd(self.stream, {"n": 1})
        user.xgroup_create(self.stream, "g", id="0")
        read = user.xreadgroup("g", "c", {self.stream: ">"})
        self.assertEqual([entry[0] for entry in read[self.stream]], [id])
        self.assertEqual(user.xack(self.stream, "g", id), 1)
        with self.assertRaises(redis.exceptions.NoPermissionError):
            user.xadd(target.fresh("other"), {"n": 1})
        with self.assertRaises(redis.exceptions.NoPermissionError):
            user.flushall()

    def test_getuser_describes_the_rules(self):
        self.user(
            keys=["a*", "b"], categories=["+@stream", "-@dangerous"], commands=["+get", "-xtrim"], channels=["c"]
        )
        found = self.redis.acl_getuser(self.name)
        self.assertEqual(found["passwords"], [hashlib.sha256(b"secret").hexdigest()])
        self.assertIn("on", found["flags"])
        self.assertTrue(found["enabled"])
        self.assertIn("-@all", found["categories"])
        self.assertIn("+@stream", found["categories"])
        self.assertEqual((found["keys"], found["channels"]), (["~a*", "~b"], ["&c"]))
        self.assertEqual(found["selectors"], [])
        self.assertIsNone(self.redis.acl_getuser(target.fresh("nobody")))

    def test_selectors(self):
        user = self.user(selectors=[("+GET", f"%R~{self.stream}"), ("+SET", f"%W~{self.stream}")])
        self.assertEqual(len(self.redis.acl_getuser(self.name)["selectors"]), 2)
        self.assertTrue(user.set(self.stream, 1))
        self.assertEqual(user.get(self.stream), "1")
        with self.assertRaises(redis.exceptions.NoPermissionError):
            user.delete(self.stream)

    def test_lists(self):
        self.user(keys=["*"], categories=["+@all"])
        self.assertIn(self.name, self.redis.acl_users())
        (line,) = [line for line in self.redis.acl_list() if line.startswith(f"user {self.name} ")]
        self.assertTrue(line.endswith(" ~* resetchannels +@all"), line)
        self.assertIn("stream", self.redis.acl_cat())
        self.assertIn("xadd", self.redis.acl_cat("stream"))
        self.assertEqual(len(self.redis.acl_genpass()), 64)
        self.assertEqual(len(self.redis.acl_genpass(16)), 4)
        self.assertTrue(any("DRYRUN" in line for line in self.redis.acl_help()))

    def test_dryrun(self):
        self.user(keys=["a*"], commands=["+get"])
        self.assertEqual(self.redis.acl_dryrun(self.name, "get", "abc"), "OK")
        # The texts begin with the user's name since Redis 7.2.
        denied = self.redis.acl_dryrun(self.name, "set", "abc", "1")
        self.assertRegex(denied, "has no permissions to run the 'set' command$")
        self.assertRegex(self.redis.acl_dryrun(self.name, "get", "b"), "has no permissions to access the 'b' key$")

    def test_log(self):
        user = self.user(keys=["a*"], commands=["+get", "+client"])
        self.redis.acl_log_reset()
        for _ in range(2):
            with self.assertRaises(redis.exceptions.NoPermissionError):
                user.get("b")
        with self.assertRaises(redis.exceptions.AuthenticationError):
            self.login("wrong").ping()
        entries = [entry for entry in self.redis.acl_log() if entry["username"] == self.name]
        self.assertEqual([entry["reason"] for entry in entries], ["auth", "key"])
        self.assertEqual((entries[1]["count"], entries[1]["object"], entries[1]["context"]), (2, "b", "toplevel"))
        self.assertEqual(entries[1]["client-info"]["user"], self.name)
        self.assertGreaterEqual(float(entries[1]["age-seconds"]), 0.0)

    def test_deluser_closes_the_connection(self):
        user = self.user(keys=["*"], categories=["+@all"])
        with user.client() as single:
            single.ping()
            self.assertEqual(self.redis.acl_deluser(self.name), 1)
            with self.assertRaises((redis.exceptions.ConnectionError, redis.exceptions.AuthenticationError)):
                single.ping()
        self.assertNotIn(self.name, self.redis.acl_users())

    def test_invalid_rules_are_refused(self):
        with self.assertRaisesRegex(redis.exceptions.ResponseError, "Unknown command or category name in ACL"):
            self.redis.acl_setuser(self.name, commands=["+nope"])
        self.assertNotIn(self.name, self.redis.acl_users())


class Resp2(Users, unittest.TestCase):
    protocol = 2


class Resp3(Users, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
