//! Rows of the commands on keys of any type: COPY to WAITAOF.

use super::{GROW, NONDETERMINISTIC, READ, READ_FAST, SUM_OF_SHARDS, WRITE, WRITE_FAST, container, help};
use crate::admin::{control, saving};
use crate::command::Run::{self, Call, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, command, key, key_range};
use crate::exec::{keys, objects};

const fn generic(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::Generic).category(Categories::KEYSPACE)
}

const PER_KEY: &str = "O(N), N being the keys given";

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    generic("copy", "6.2.0", -3, GROW, Call(keys::copy))
        .keys(&[key("RO access", 1), key("OW update", 2)])
        .complexity("O(N), N being the elements of the value; sealed blocks of a stream are shared")
        .text(
            "COPY source destination [DB destination-db] [REPLACE]",
            "Copies a key's value to another key.",
        ),
    generic("del", "1.0.0", -2, WRITE, Data(keys::del))
        .keys(&[key_range("RM delete", 1, -1, 1)])
        .complexity("O(N), N being the elements of the values removed")
        .tips(SUM_OF_SHARDS)
        .text("DEL key [key ...]", "Removes keys. Returns the number of removed keys."),
    generic("exists", "1.0.0", -2, READ_FAST, Data(keys::exists))
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(SUM_OF_SHARDS)
        .text("EXISTS key [key ...]", "Returns how many of the keys exist; a key given twice counts twice."),
    generic("expire", "1.0.0", -3, WRITE_FAST, Data(keys::expire))
        .keys(&[key("RW update", 1)])
        .text("EXPIRE key seconds [NX|XX|GT|LT]", "Sets a key to expire after a number of seconds."),
    generic("expireat", "1.2.0", -3, WRITE_FAST, Data(keys::expireat)).keys(&[key("RW update", 1)]).text(
        "EXPIREAT key unix-time-seconds [NX|XX|GT|LT]",
        "Sets a key to expire at a Unix time in seconds.",
    ),
    generic("expiretime", "7.0.0", 2, READ_FAST, Data(keys::expiretime))
        .keys(&[key("RO access", 1)])
        .text("EXPIRETIME key", "Returns when a key expires, in Unix seconds."),
    generic("keys", "1.0.0", 2, READ, Data(keys::keys))
        .locks_everything()
        .category(Categories::DANGEROUS)
        .complexity("O(N), N being the keys of the database")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .text("KEYS pattern", "Returns every key that matches a pattern."),
    generic("move", "1.0.0", 3, WRITE_FAST, Call(keys::move_to))
        .keys(&[key("RW access update", 1)])
        .text("MOVE key db", "Moves a key to another database."),
    container("object", "2.2.3")
        .group(Group::Generic)
        .text("OBJECT", "Returns information about how a value is stored."),
    generic("object|encoding", "2.2.3", 3, READ, Data(objects::encoding))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .note("returns the encoding that Redis would use for a value of this type and size")
        .text("OBJECT ENCODING key", "Returns the encoding of a value."),
    generic("object|freq", "4.0.0", 3, READ, Data(objects::freq))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .note("always an error: access frequency is not counted")
        .text("OBJECT FREQ key", "Returns how often a key was accessed."),
    help("object|help", "6.2.0", "OBJECT HELP").group(Group::Generic).category(Categories::KEYSPACE),
    generic("object|idletime", "2.2.3", 3, READ, Data(objects::idletime))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .text("OBJECT IDLETIME key", "Returns the seconds since a key was last accessed."),
    generic("object|refcount", "2.2.3", 3, READ, Data(objects::refcount))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .text("OBJECT REFCOUNT key", "Returns the number of references to a value, which is always 1."),
    generic("persist", "2.2.0", 2, WRITE_FAST, Data(keys::persist))
        .keys(&[key("RW update", 1)])
        .text("PERSIST key", "Removes the expiry of a key."),
    generic("pexpire", "2.6.0", -3, WRITE_FAST, Data(keys::pexpire)).keys(&[key("RW update", 1)]).text(
        "PEXPIRE key milliseconds [NX|XX|GT|LT]",
        "Sets a key to expire after a number of milliseconds.",
    ),
    generic("pexpireat", "2.6.0", -3, WRITE_FAST, Data(keys::pexpireat)).keys(&[key("RW update", 1)]).text(
        "PEXPIREAT key unix-time-milliseconds [NX|XX|GT|LT]",
        "Sets a key to expire at a Unix time in milliseconds.",
    ),
    generic("pexpiretime", "7.0.0", 2, READ_FAST, Data(keys::pexpiretime))
        .keys(&[key("RO access", 1)])
        .text("PEXPIRETIME key", "Returns when a key expires, in Unix milliseconds."),
    generic("pttl", "2.6.0", 2, READ_FAST, Data(keys::pttl))
        .keys(&[key("RO access", 1)])
        .tips(NONDETERMINISTIC)
        .text("PTTL key", "Returns the milliseconds until a key expires."),
    generic("randomkey", "1.0.0", 1, READ, Data(keys::randomkey))
        .locks_everything()
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .text("RANDOMKEY", "Returns a random key."),
    generic("rename", "1.0.0", 3, WRITE, Call(keys::rename))
        .keys(&[key("RW access delete", 1), key("OW update", 2)])
        .text("RENAME key newkey", "Renames a key. Replaces an existing key with the new name."),
    generic("renamenx", "1.0.0", 3, WRITE_FAST, Call(keys::renamenx))
        .keys(&[key("RW access delete", 1), key("OW insert", 2)])
        .text("RENAMENX key newkey", "Renames a key, unless a key with the new name exists."),
    generic("scan", "2.8.0", -2, READ, Data(keys::scan))
        .locks_everything()
        .complexity("O(1) per call; O(N) for a complete iteration, N being the keys of the database")
        .tips(&["nondeterministic_output", "request_policy:special"])
        .note("a key that exists during the whole iteration is returned exactly once")
        .text(
            "SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Iterates over the keys of the database, a few per call.",
        ),
    generic("touch", "3.2.1", -2, READ_FAST, Data(keys::touch))
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(SUM_OF_SHARDS)
        .text("TOUCH key [key ...]", "Updates the last access time of keys. Returns how many of them exist."),
    generic("ttl", "1.0.0", 2, READ_FAST, Data(keys::ttl))
        .keys(&[key("RO access", 1)])
        .tips(NONDETERMINISTIC)
        .text("TTL key", "Returns the seconds until a key expires."),
    generic("type", "1.0.0", 2, READ_FAST, Data(keys::type_of))
        .keys(&[key("RO", 1)])
        .text("TYPE key", "Returns the type of a key's value."),
    generic("unlink", "4.0.0", -2, WRITE_FAST, Data(keys::del))
        .keys(&[key_range("RM delete", 1, -1, 1)])
        .complexity("O(N), N being the elements of the values removed")
        .tips(SUM_OF_SHARDS)
        .note("the same as DEL: both free large values in another thread")
        .text("UNLINK key [key ...]", "Removes keys. Returns the number of removed keys."),
    command("wait", "3.0.0", 3, Flags::NOSCRIPT, Data(control::wait))
        .group(Group::Generic)
        .category(Categories::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .note("always 0: there are no replicas")
        .text("WAIT numreplicas timeout", "Waits until replicas have received this client's writes."),
    command("waitaof", "7.2.0", 4, Flags::NOSCRIPT, Call(saving::waitaof))
        .group(Group::Generic)
        .category(Categories::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .note("syncs immediately, regardless of `appendfsync`; the number of replicas is always 0")
        .text(
            "WAITAOF numlocal numreplicas timeout",
            "Waits until this client's writes are durable on disk.",
        ),
];
