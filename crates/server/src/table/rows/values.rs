//! The companion types: strings, hashes, lists and sets.

use millstream_engine::ListEnd;
use millstream_protocol::commands::{Pop, Set, Unit};

use super::NONDETERMINISTIC_ORDER;
use crate::command::Run::{self, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, command, key, key_range};
use crate::exec::{hashes, lists, sets, strings};

const fn string(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::String).category(Categories::STRING).since("1.0.0")
}

const fn hash(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::Hash).category(Categories::HASH).since("2.0.0")
}

const fn list(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::List).category(Categories::LIST).since("1.0.0")
}

const fn set(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::Set).category(Categories::SET).since("1.0.0")
}

const READ: &[Flags] = &[Flags::READONLY];
const READ_FAST: &[Flags] = &[Flags::READONLY, Flags::FAST];
const WRITE_FAST: &[Flags] = &[Flags::WRITE, Flags::FAST];
const GROW: &[Flags] = &[Flags::WRITE, Flags::DENYOOM];
const GROW_FAST: &[Flags] = &[Flags::WRITE, Flags::DENYOOM, Flags::FAST];
const WAIT_AND_POP: &[Flags] = &[Flags::WRITE, Flags::NOSCRIPT, Flags::BLOCKING];
const PER_FIELD: &str = "O(N), N being the fields named";
const PER_KEY: &str = "O(N), N being the keys named";
const WHOLE_HASH: &str = "O(N), N being the fields of the hash";
const PER_MEMBER: &str = "O(N), N being the members named";
const PER_ELEMENT: &str = "O(N), N being the elements named";

pub(in crate::table) const STRINGS: &[CommandSpec] = &[
    string("append", 3, Data(strings::append))
        .since("2.0.0")
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .text("APPEND key value", "Adds to the end of a string and returns its length."),
    string("decr", 2, Data(|txn, out, argv| strings::increment(txn, out, argv, -1)))
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("DECR key", "Takes one from an integer."),
    string("decrby", 3, Data(strings::decrby))
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("DECRBY key decrement", "Takes a number from an integer."),
    string("get", 2, Data(strings::get))
        .flags(READ_FAST)
        .keys(&[key("RO access", 1)])
        .text("GET key", "Returns a string."),
    string("getdel", 2, Data(strings::getdel))
        .since("6.2.0")
        .flags(WRITE_FAST)
        .keys(&[key("RW access delete", 1)])
        .text("GETDEL key", "Returns a string and removes it."),
    string("getex", -2, Data(strings::getex))
        .since("6.2.0")
        .flags(WRITE_FAST)
        .keys(&[key("RW access update", 1)])
        .text(
            "GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
            "Returns a string and sets how long it lives.",
        ),
    string("getset", 3, Data(strings::getset))
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("GETSET key value", "Sets a string and returns what was there before."),
    string("incr", 2, Data(|txn, out, argv| strings::increment(txn, out, argv, 1)))
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("INCR key", "Adds one to an integer."),
    string("incrby", 3, Data(strings::incrby))
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("INCRBY key increment", "Adds a number to an integer."),
    string("incrbyfloat", 3, Data(strings::incrbyfloat))
        .since("2.6.0")
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("INCRBYFLOAT key increment", "Adds to a floating-point number."),
    string("mget", -2, Data(strings::mget))
        .flags(READ_FAST)
        .keys(&[key_range("RO access", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard"])
        .text("MGET key [key ...]", "Returns several strings."),
    string("mset", -3, Data(strings::mset))
        .since("1.0.1")
        .flags(GROW)
        .keys(&[key_range("OW update", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .text("MSET key value [key value ...]", "Sets several strings as one step."),
    string("msetnx", -3, Data(strings::msetnx))
        .since("1.0.1")
        .flags(GROW)
        .keys(&[key_range("OW insert", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .text("MSETNX key value [key value ...]", "Sets several strings if none of the keys exists."),
    string("psetex", 4, Data(|txn, out, argv| strings::set(txn, out, &Set::parse_with_time(argv, Unit::Milliseconds, "psetex")?)))
        .since("2.6.0")
        .flags(GROW)
        .keys(&[key("OW update", 1)])
        .text("PSETEX key milliseconds value", "Sets a string that lives for so many milliseconds."),
    string("set", -3, Data(|txn, out, argv| strings::set(txn, out, &Set::parse(argv)?)))
        .flags(GROW)
        .keys(&[key("RW access update variable_flags", 1)])
        .text(
            "SET key value [NX|XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets a string, under conditions if wanted, and says how long it lives.",
        ),
    string("setex", 4, Data(|txn, out, argv| strings::set(txn, out, &Set::parse_with_time(argv, Unit::Seconds, "setex")?)))
        .since("2.0.0")
        .flags(GROW)
        .keys(&[key("OW update", 1)])
        .text("SETEX key seconds value", "Sets a string that lives for so many seconds."),
    string("setnx", 3, Data(strings::setnx))
        .flags(GROW_FAST)
        .keys(&[key("OW insert", 1)])
        .text("SETNX key value", "Sets a string if the key does not exist."),
    string("strlen", 2, Data(strings::strlen))
        .since("2.2.0")
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("STRLEN key", "Says how many bytes a string has."),
];

pub(in crate::table) const HASHES: &[CommandSpec] = &[
    hash("hdel", -3, Data(hashes::hdel))
        .flags(WRITE_FAST)
        .keys(&[key("RW delete", 1)])
        .complexity(PER_FIELD)
        .text("HDEL key field [field ...]", "Removes fields and says how many there were."),
    hash("hexists", 3, Data(hashes::hexists))
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("HEXISTS key field", "Says whether a field exists."),
    hash("hget", 3, Data(hashes::hget))
        .flags(READ_FAST)
        .keys(&[key("RO access", 1)])
        .text("HGET key field", "Returns a field's value."),
    hash("hgetall", 2, Data(hashes::hgetall))
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HGETALL key", "Returns every field and its value."),
    hash("hincrby", 4, Data(hashes::hincrby))
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("HINCRBY key field increment", "Adds a number to a field's integer."),
    hash("hincrbyfloat", 4, Data(hashes::hincrbyfloat))
        .since("2.6.0")
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("HINCRBYFLOAT key field increment", "Adds to a field's floating-point number."),
    hash("hkeys", 2, Data(hashes::hkeys))
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HKEYS key", "Returns the names of all fields."),
    hash("hlen", 2, Data(hashes::hlen))
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("HLEN key", "Says how many fields a hash has."),
    hash("hmget", -3, Data(hashes::hmget))
        .flags(READ_FAST)
        .keys(&[key("RO access", 1)])
        .complexity(PER_FIELD)
        .text("HMGET key field [field ...]", "Returns the values of several fields."),
    hash("hmset", -4, Data(hashes::hmset))
        .flags(GROW_FAST)
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HMSET key field value [field value ...]", "Sets fields; HSET does the same."),
    hash("hset", -4, Data(hashes::hset))
        .flags(GROW_FAST)
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HSET key field value [field value ...]", "Sets fields and says how many are new."),
    hash("hsetnx", 4, Data(hashes::hsetnx))
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .text("HSETNX key field value", "Sets a field if it does not exist."),
    hash("hvals", 2, Data(hashes::hvals))
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HVALS key", "Returns the values of all fields."),
];

pub(in crate::table) const LISTS: &[CommandSpec] = &[
    list("blpop", -3, Data(|txn, out, argv| lists::blocking_pop(txn, out, argv, ListEnd::Head)))
        .since("2.0.0")
        .flags(WAIT_AND_POP)
        .keys(&[key_range("RW access delete", 1, -2, 1)])
        .complexity(PER_KEY)
        .text("BLPOP key [key ...] timeout", "Takes the first element of a list, and waits for one."),
    list("brpop", -3, Data(|txn, out, argv| lists::blocking_pop(txn, out, argv, ListEnd::Tail)))
        .since("2.0.0")
        .flags(WAIT_AND_POP)
        .keys(&[key_range("RW access delete", 1, -2, 1)])
        .complexity(PER_KEY)
        .text("BRPOP key [key ...] timeout", "Takes the last element of a list, and waits for one."),
    list("llen", 2, Data(lists::llen))
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("LLEN key", "Says how many elements a list has."),
    list("lpop", -2, Data(|txn, out, argv| lists::pop(txn, out, &Pop::parse(argv, "lpop")?, ListEnd::Head)))
        .flags(WRITE_FAST)
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LPOP key [count]", "Takes the first elements of a list."),
    list("lpush", -3, Data(|txn, out, argv| lists::push(txn, out, argv, ListEnd::Head)))
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("LPUSH key element [element ...]", "Puts elements at the front of a list."),
    list("lrange", 4, Data(lists::lrange))
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LRANGE key start stop", "Returns some elements of a list."),
    list("rpop", -2, Data(|txn, out, argv| lists::pop(txn, out, &Pop::parse(argv, "rpop")?, ListEnd::Tail)))
        .flags(WRITE_FAST)
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("RPOP key [count]", "Takes the last elements of a list."),
    list("rpush", -3, Data(|txn, out, argv| lists::push(txn, out, argv, ListEnd::Tail)))
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("RPUSH key element [element ...]", "Puts elements at the end of a list."),
];

pub(in crate::table) const SETS: &[CommandSpec] = &[
    set("sadd", -3, Data(sets::sadd))
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .complexity(PER_MEMBER)
        .text("SADD key member [member ...]", "Adds members and says how many are new."),
    set("scard", 2, Data(sets::scard))
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("SCARD key", "Says how many members a set has."),
    set("sismember", 3, Data(sets::sismember))
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("SISMEMBER key member", "Says whether a set has a member."),
    set("smembers", 2, Data(sets::smembers))
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the members of the set")
        .tips(NONDETERMINISTIC_ORDER)
        .text("SMEMBERS key", "Returns all members of a set."),
    set("srem", -3, Data(sets::srem))
        .flags(WRITE_FAST)
        .keys(&[key("RW delete", 1)])
        .complexity(PER_MEMBER)
        .text("SREM key member [member ...]", "Removes members and says how many there were."),
];
