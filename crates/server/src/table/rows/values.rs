//! Rows of the commands on strings, hashes, lists and sets.

use millstream_engine::ListEnd;

use super::{GROW, GROW_FAST, NONDETERMINISTIC_ORDER, READ, READ_FAST, WRITE_FAST};
use crate::command::Run::{self, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, command, key, key_range};
use crate::exec::{hashes, lists, sets, strings};

const fn string(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::String).category(Categories::STRING)
}

const fn hash(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::Hash).category(Categories::HASH)
}

const fn list(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::List).category(Categories::LIST)
}

const fn set(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::Set).category(Categories::SET)
}

/// For commands that remove an element and can block until there is one.
const BLOCKING_POP: Flags = Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::BLOCKING);
const PER_FIELD: &str = "O(N), N being the fields given";
const PER_KEY: &str = "O(N), N being the keys given";
const WHOLE_HASH: &str = "O(N), N being the fields of the hash";
const PER_MEMBER: &str = "O(N), N being the members given";
const PER_ELEMENT: &str = "O(N), N being the elements given";

pub(in crate::table) const STRINGS: &[CommandSpec] = &[
    string("append", "2.0.0", 3, GROW_FAST, Data(strings::append))
        .keys(&[key("RW insert", 1)])
        .text("APPEND key value", "Appends to a string. Returns its new length."),
    string("decr", "1.0.0", 2, GROW_FAST, Data(|txn, out, argv| strings::increment(txn, out, argv, -1)))
        .keys(&[key("RW access update", 1)])
        .text("DECR key", "Decrements an integer by one."),
    string("decrby", "1.0.0", 3, GROW_FAST, Data(strings::decrby))
        .keys(&[key("RW access update", 1)])
        .text("DECRBY key decrement", "Decrements an integer by a number."),
    string("get", "1.0.0", 2, READ_FAST, Data(strings::get))
        .keys(&[key("RO access", 1)])
        .text("GET key", "Returns a string."),
    string("getdel", "6.2.0", 2, WRITE_FAST, Data(strings::getdel))
        .keys(&[key("RW access delete", 1)])
        .text("GETDEL key", "Returns a string and removes the key."),
    string("getex", "6.2.0", -2, WRITE_FAST, Data(strings::getex)).keys(&[key("RW access update", 1)]).text(
        "GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
        "Returns a string and sets when the key expires.",
    ),
    string("getset", "1.0.0", 3, GROW_FAST, Data(strings::getset))
        .keys(&[key("RW access update", 1)])
        .text("GETSET key value", "Sets a string. Returns its old value."),
    string("incr", "1.0.0", 2, GROW_FAST, Data(|txn, out, argv| strings::increment(txn, out, argv, 1)))
        .keys(&[key("RW access update", 1)])
        .text("INCR key", "Increments an integer by one."),
    string("incrby", "1.0.0", 3, GROW_FAST, Data(strings::incrby))
        .keys(&[key("RW access update", 1)])
        .text("INCRBY key increment", "Increments an integer by a number."),
    string("incrbyfloat", "2.6.0", 3, GROW_FAST, Data(strings::incrbyfloat))
        .keys(&[key("RW access update", 1)])
        .text("INCRBYFLOAT key increment", "Increments a floating-point number by a number."),
    string("mget", "1.0.0", -2, READ_FAST, Data(strings::mget))
        .keys(&[key_range("RO access", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard"])
        .text("MGET key [key ...]", "Returns several strings."),
    string("mset", "1.0.1", -3, GROW, Data(strings::mset))
        .keys(&[key_range("OW update", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .text("MSET key value [key value ...]", "Sets several strings atomically."),
    string("msetnx", "1.0.1", -3, GROW, Data(strings::msetnx))
        .keys(&[key_range("OW insert", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .text("MSETNX key value [key value ...]", "Sets several strings if none of the keys exists."),
    string("psetex", "2.6.0", 4, GROW, Data(strings::psetex))
        .keys(&[key("OW update", 1)])
        .text("PSETEX key milliseconds value", "Sets a string that expires after a number of milliseconds."),
    string("set", "1.0.0", -3, GROW, Data(strings::set))
        .keys(&[key("RW access update variable_flags", 1)])
        .text(
            "SET key value [NX|XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets a string, optionally under a condition, and sets when the key expires.",
        ),
    string("setex", "2.0.0", 4, GROW, Data(strings::setex))
        .keys(&[key("OW update", 1)])
        .text("SETEX key seconds value", "Sets a string that expires after a number of seconds."),
    string("setnx", "1.0.0", 3, GROW_FAST, Data(strings::setnx))
        .keys(&[key("OW insert", 1)])
        .text("SETNX key value", "Sets a string if the key does not exist."),
    string("strlen", "2.2.0", 2, READ_FAST, Data(strings::strlen))
        .keys(&[key("RO", 1)])
        .text("STRLEN key", "Returns the length of a string in bytes."),
];

pub(in crate::table) const HASHES: &[CommandSpec] = &[
    hash("hdel", "2.0.0", -3, WRITE_FAST, Data(hashes::hdel))
        .keys(&[key("RW delete", 1)])
        .complexity(PER_FIELD)
        .text("HDEL key field [field ...]", "Removes fields. Returns the number of removed fields."),
    hash("hexists", "2.0.0", 3, READ_FAST, Data(hashes::hexists))
        .keys(&[key("RO", 1)])
        .text("HEXISTS key field", "Returns whether a field exists."),
    hash("hget", "2.0.0", 3, READ_FAST, Data(hashes::hget))
        .keys(&[key("RO access", 1)])
        .text("HGET key field", "Returns the value of a field."),
    hash("hgetall", "2.0.0", 2, READ, Data(hashes::hgetall))
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HGETALL key", "Returns all fields and their values."),
    hash("hincrby", "2.0.0", 4, GROW_FAST, Data(hashes::hincrby))
        .keys(&[key("RW access update", 1)])
        .text("HINCRBY key field increment", "Increments the integer in a field by a number."),
    hash("hincrbyfloat", "2.6.0", 4, GROW_FAST, Data(hashes::hincrbyfloat))
        .keys(&[key("RW access update", 1)])
        .text(
            "HINCRBYFLOAT key field increment",
            "Increments the floating-point number in a field by a number.",
        ),
    hash("hkeys", "2.0.0", 2, READ, Data(hashes::hkeys))
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HKEYS key", "Returns the names of all fields."),
    hash("hlen", "2.0.0", 2, READ_FAST, Data(hashes::hlen))
        .keys(&[key("RO", 1)])
        .text("HLEN key", "Returns the number of fields in a hash."),
    hash("hmget", "2.0.0", -3, READ_FAST, Data(hashes::hmget))
        .keys(&[key("RO access", 1)])
        .complexity(PER_FIELD)
        .text("HMGET key field [field ...]", "Returns the values of several fields."),
    hash("hmset", "2.0.0", -4, GROW_FAST, Data(hashes::hmset))
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HMSET key field value [field value ...]", "Sets fields. Use HSET instead."),
    hash("hset", "2.0.0", -4, GROW_FAST, Data(hashes::hset))
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HSET key field value [field value ...]", "Sets fields. Returns the number of new fields."),
    hash("hsetnx", "2.0.0", 4, GROW_FAST, Data(hashes::hsetnx))
        .keys(&[key("RW insert", 1)])
        .text("HSETNX key field value", "Sets a field if it does not exist."),
    hash("hvals", "2.0.0", 2, READ, Data(hashes::hvals))
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HVALS key", "Returns the values of all fields."),
];

pub(in crate::table) const LISTS: &[CommandSpec] = &[
    list(
        "blpop",
        "2.0.0",
        -3,
        BLOCKING_POP,
        Data(|txn, out, argv| lists::blocking_pop(txn, out, argv, ListEnd::Head)),
    )
    .keys(&[key_range("RW access delete", 1, -2, 1)])
    .complexity(PER_KEY)
    .text(
        "BLPOP key [key ...] timeout",
        "Removes and returns the first element of a list, or blocks until there is one.",
    ),
    list(
        "brpop",
        "2.0.0",
        -3,
        BLOCKING_POP,
        Data(|txn, out, argv| lists::blocking_pop(txn, out, argv, ListEnd::Tail)),
    )
    .keys(&[key_range("RW access delete", 1, -2, 1)])
    .complexity(PER_KEY)
    .text(
        "BRPOP key [key ...] timeout",
        "Removes and returns the last element of a list, or blocks until there is one.",
    ),
    list("llen", "1.0.0", 2, READ_FAST, Data(lists::llen))
        .keys(&[key("RO", 1)])
        .text("LLEN key", "Returns the number of elements in a list."),
    list("lpop", "1.0.0", -2, WRITE_FAST, Data(lists::lpop))
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LPOP key [count]", "Removes and returns the first elements of a list."),
    list("lpush", "1.0.0", -3, GROW_FAST, Data(|txn, out, argv| lists::push(txn, out, argv, ListEnd::Head)))
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("LPUSH key element [element ...]", "Inserts elements at the front of a list."),
    list("lrange", "1.0.0", 4, READ, Data(lists::lrange))
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LRANGE key start stop", "Returns a range of elements of a list."),
    list("rpop", "1.0.0", -2, WRITE_FAST, Data(lists::rpop))
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("RPOP key [count]", "Removes and returns the last elements of a list."),
    list("rpush", "1.0.0", -3, GROW_FAST, Data(|txn, out, argv| lists::push(txn, out, argv, ListEnd::Tail)))
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("RPUSH key element [element ...]", "Appends elements to a list."),
];

pub(in crate::table) const SETS: &[CommandSpec] = &[
    set("sadd", "1.0.0", -3, GROW_FAST, Data(sets::sadd))
        .keys(&[key("RW insert", 1)])
        .complexity(PER_MEMBER)
        .text("SADD key member [member ...]", "Adds members to a set. Returns the number of new members."),
    set("scard", "1.0.0", 2, READ_FAST, Data(sets::scard))
        .keys(&[key("RO", 1)])
        .text("SCARD key", "Returns the number of members in a set."),
    set("sismember", "1.0.0", 3, READ_FAST, Data(sets::sismember))
        .keys(&[key("RO", 1)])
        .text("SISMEMBER key member", "Returns whether a value is a member of a set."),
    set("smembers", "1.0.0", 2, READ, Data(sets::smembers))
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the members of the set")
        .tips(NONDETERMINISTIC_ORDER)
        .text("SMEMBERS key", "Returns all members of a set."),
    set("srem", "1.0.0", -3, WRITE_FAST, Data(sets::srem))
        .keys(&[key("RW delete", 1)])
        .complexity(PER_MEMBER)
        .text(
            "SREM key member [member ...]",
            "Removes members of a set. Returns the number of removed members.",
        ),
];
