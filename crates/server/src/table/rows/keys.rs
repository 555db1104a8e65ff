//! Keys of any type: DEL to UNLINK.

use super::{GROW, NONDETERMINISTIC, READ, READ_FAST, SUM_OF_SHARDS, WRITE, WRITE_FAST, container, help};
use crate::admin::{control, saving};
use crate::command::Run::{self, Call, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, command, key, key_range};
use crate::exec::{keys, objects};

const fn generic(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::Generic).category(Categories::KEYSPACE)
}

const PER_KEY: &str = "O(N), N being the keys named";

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    generic("copy", "6.2.0", -3, GROW, Data(keys::copy))
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
        .text("DEL key [key ...]", "Removes keys and says how many there were."),
    generic("exists", "1.0.0", -2, READ_FAST, Data(keys::exists))
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(SUM_OF_SHARDS)
        .text("EXISTS key [key ...]", "Says how many of the keys exist; one named twice counts twice."),
    generic("expire", "1.0.0", -3, WRITE_FAST, Data(keys::expire))
        .keys(&[key("RW update", 1)])
        .text("EXPIRE key seconds [NX|XX|GT|LT]", "Lets a key live for so many seconds."),
    generic("expireat", "1.2.0", -3, WRITE_FAST, Data(keys::expireat))
        .keys(&[key("RW update", 1)])
        .text("EXPIREAT key unix-time-seconds [NX|XX|GT|LT]", "Lets a key live until a time."),
    generic("expiretime", "7.0.0", 2, READ_FAST, Data(keys::expiretime))
        .keys(&[key("RO access", 1)])
        .text("EXPIRETIME key", "Says until when a key lives, in seconds since 1970."),
    generic("keys", "1.0.0", 2, READ, Data(keys::keys))
        .locks_everything()
        .category(Categories::DANGEROUS)
        .complexity("O(N), N being the keys of the database")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .text("KEYS pattern", "Returns every key that matches a pattern."),
    generic("move", "1.0.0", 3, WRITE_FAST, Data(keys::move_to))
        .keys(&[key("RW access update", 1)])
        .text("MOVE key db", "Moves a key to another database."),
    container("object", "2.2.3").group(Group::Generic).text("OBJECT", "Tells how values are kept."),
    generic("object|encoding", "2.2.3", 3, READ, Data(objects::encoding))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .note("names the encoding that Redis would use for a value of this type and size")
        .text("OBJECT ENCODING key", "Names the way a value is kept."),
    generic("object|freq", "4.0.0", 3, READ, Data(objects::freq))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .note("always refused: no access frequency is kept")
        .text("OBJECT FREQ key", "Says how often a key was used."),
    help("object|help", "6.2.0", "OBJECT HELP").group(Group::Generic).category(Categories::KEYSPACE),
    generic("object|idletime", "2.2.3", 3, READ, Data(objects::idletime))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .text("OBJECT IDLETIME key", "Says for how many seconds a key was not used."),
    generic("object|refcount", "2.2.3", 3, READ, Data(objects::refcount))
        .keys(&[key("RO", 2)])
        .tips(NONDETERMINISTIC)
        .text("OBJECT REFCOUNT key", "Says how many references a value has: 1."),
    generic("persist", "2.2.0", 2, WRITE_FAST, Data(keys::persist))
        .keys(&[key("RW update", 1)])
        .text("PERSIST key", "Lets a key live without end."),
    generic("pexpire", "2.6.0", -3, WRITE_FAST, Data(keys::pexpire))
        .keys(&[key("RW update", 1)])
        .text("PEXPIRE key milliseconds [NX|XX|GT|LT]", "Lets a key live for so many milliseconds."),
    generic("pexpireat", "2.6.0", -3, WRITE_FAST, Data(keys::pexpireat)).keys(&[key("RW update", 1)]).text(
        "PEXPIREAT key unix-time-milliseconds [NX|XX|GT|LT]",
        "Lets a key live until a time given in milliseconds.",
    ),
    generic("pexpiretime", "7.0.0", 2, READ_FAST, Data(keys::pexpiretime))
        .keys(&[key("RO access", 1)])
        .text("PEXPIRETIME key", "Says until when a key lives, in milliseconds since 1970."),
    generic("pttl", "2.6.0", 2, READ_FAST, Data(keys::pttl))
        .keys(&[key("RO access", 1)])
        .tips(NONDETERMINISTIC)
        .text("PTTL key", "Says for how many milliseconds a key still lives."),
    generic("randomkey", "1.0.0", 1, READ, Data(keys::randomkey))
        .locks_everything()
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .text("RANDOMKEY", "Returns any one key."),
    generic("rename", "1.0.0", 3, WRITE, Data(keys::rename))
        .keys(&[key("RW access delete", 1), key("OW update", 2)])
        .text("RENAME key newkey", "Gives a key another name, in place of what had it."),
    generic("renamenx", "1.0.0", 3, WRITE_FAST, Data(keys::renamenx))
        .keys(&[key("RW access delete", 1), key("OW insert", 2)])
        .text("RENAMENX key newkey", "Gives a key another name unless that is taken."),
    generic("scan", "2.8.0", -2, READ, Data(keys::scan))
        .locks_everything()
        .complexity("O(1) for a call, O(N) for a whole walk, N being the keys of the database")
        .tips(&["nondeterministic_output", "request_policy:special"])
        .note("a key that is there during the whole walk is returned exactly once")
        .text(
            "SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Walks over the keys of the database, a few at a time.",
        ),
    generic("touch", "3.2.1", -2, READ_FAST, Data(keys::touch))
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(SUM_OF_SHARDS)
        .text("TOUCH key [key ...]", "Counts as a use of the keys, and says how many exist."),
    generic("ttl", "1.0.0", 2, READ_FAST, Data(keys::ttl))
        .keys(&[key("RO access", 1)])
        .tips(NONDETERMINISTIC)
        .text("TTL key", "Says for how many seconds a key still lives."),
    generic("type", "1.0.0", 2, READ_FAST, Data(keys::type_of))
        .keys(&[key("RO", 1)])
        .text("TYPE key", "Names the type of a key's value."),
    generic("unlink", "4.0.0", -2, WRITE_FAST, Data(keys::del))
        .keys(&[key_range("RM delete", 1, -1, 1)])
        .complexity("O(N), N being the elements of the values removed")
        .tips(SUM_OF_SHARDS)
        .note("the same as DEL: both leave freeing large values to another thread")
        .text("UNLINK key [key ...]", "Removes keys and says how many there were."),
    command("wait", "3.0.0", 3, Flags::NOSCRIPT, Data(control::wait))
        .group(Group::Generic)
        .category(Categories::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .note("always 0: there are no replicas")
        .text("WAIT numreplicas timeout", "Waits until replicas have what this client wrote."),
    command("waitaof", "7.2.0", 4, Flags::NOSCRIPT, Call(saving::waitaof))
        .group(Group::Generic)
        .category(Categories::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .note("syncs at once whatever `appendfsync` says; replicas are always 0")
        .text("WAITAOF numlocal numreplicas timeout", "Waits until what this client wrote is safe on disk."),
];
