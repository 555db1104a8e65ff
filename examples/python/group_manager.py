#!/usr/bin/env python3
"""Manages a consumer group: create it, describe it, rewind it, remove idle consumers, destroy it.

This is the pattern written by hand. The shorter way: millstream group, millstream consumer
(docs/from-your-consumer.md#group-manager).
"""

from dataclasses import dataclass

import redis as redis_py

from connection import connect

STREAM, GROUP = "example:manager", "billing"


@dataclass
class Description:
    consumers: int
    pending: int
    lag: int | None
    position: str


class GroupManager:
    def __init__(self, redis, stream, group):
        self.redis, self.stream, self.group = redis, stream, group

    def ensure(self, start="0"):
        """Creates the group and, if necessary, the stream. Returns whether the group is new."""
        try:
            self.redis.xgroup_create(self.stream, self.group, id=start, mkstream=True)
        except redis_py.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
            return False
        return True

    def describe(self):
        for row in self.redis.xinfo_groups(self.stream):
            if row["name"] == self.group:
                return Description(row["consumers"], row["pending"], row["lag"], row["last-delivered-id"])
        raise LookupError(f"{self.stream} has no group {self.group}")

    def rewind(self, to="0"):
        """Makes the group deliver all entries after `to` again. Pending entries stay pending."""
        self.redis.xgroup_setid(self.stream, self.group, to)

    def remove_idle_consumers(self, idle_ms):
        """Removes consumers that have been idle for `idle_ms`, unless pending entries would be lost with them."""
        removed = []
        for row in self.redis.xinfo_consumers(self.stream, self.group):
            if row["idle"] >= idle_ms and row["pending"] == 0:
                self.redis.xgroup_delconsumer(self.stream, self.group, row["name"])
                removed.append(row["name"])
        return removed

    def destroy(self):
        return bool(self.redis.xgroup_destroy(self.stream, self.group))


def main():
    redis = connect()
    redis.delete(STREAM)
    manager = GroupManager(redis, STREAM, GROUP)
    print(f"created: {manager.ensure()}, and again: {manager.ensure()}")

    for number in range(5):
        redis.xadd(STREAM, {"invoice": number})
    print(f"before reading: {manager.describe()}")

    (finished,) = redis.xreadgroup(GROUP, "anna", {STREAM: ">"}, count=1).values()
    redis.xack(STREAM, GROUP, finished[0][0])
    redis.xreadgroup(GROUP, "ben", {STREAM: ">"}, count=2)
    print(f"after reading: {manager.describe()}")

    # anna has acknowledged her entry, ben has not acknowledged his: only anna is removed.
    print(f"removed: {manager.remove_idle_consumers(idle_ms=0)}")

    manager.rewind()
    (again,) = redis.xreadgroup(GROUP, "zoe", {STREAM: ">"}).values()
    print(f"after rewinding, zoe reads {len(again)} invoices")
    print(f"destroyed: {manager.destroy()}")


if __name__ == "__main__":
    main()
