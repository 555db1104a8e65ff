//! The companion types: strings, hashes, lists and sets.

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

const WAIT_AND_POP: Flags = Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::BLOCKING);
const PER_FIELD: &str = "O(N), N being the fields named";
const PER_KEY: &str = "O(N), N being the keys named";
const WHOLE_HASH: &str = "O(N), N being the fields of the hash";
const PER_MEMBER: &str = "O(N), N being the members named";
const PER_ELEMENT: &str = "O(N), N being the elements named";

pub(in crate::table) const STRINGS: &[CommandSpec] = &[
    string("append", "2.0.0", 3, GROW_FAST, Data(strings::append))
        .keys(&[key("RW insert", 1)])
        .text("APPEND key value", "Adds to the end of a string and returns its length."),
    string("decr", "1.0.0", 2, GROW_FAST, Data(|txn, out, argv| strings::increment(txn, out, argv, -1)))
        .keys(&[key("RW access update", 1)])
        .text("DECR key", "Takes one from an integer."),
    string("decrby", "1.0.0", 3, GROW_FAST, Data(strings::decrby))
        .keys(&[key("RW access update", 1)])
        .text("DECRBY key decrement", "Takes a number from an integer."),
    string("get", "1.0.0", 2, READ_FAST, Data(strings::get))
        .keys(&[key("RO access", 1)])
        .text("GET key", "Returns a string."),
    string("getdel", "6.2.0", 2, WRITE_FAST, Data(strings::getdel))
        .keys(&[key("RW access delete", 1)])
        .text("GETDEL key", "Returns a string and removes it."),
    string("getex", "6.2.0", -2, WRITE_FAST, Data(strings::getex)).keys(&[key("RW access update", 1)]).text(
        "GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
        "Returns a string and sets how long it lives.",
    ),
    string("getset", "1.0.0", 3, GROW_FAST, Data(strings::getset))
        .keys(&[key("RW access update", 1)])
        .text("GETSET key value", "Sets a string and returns what was there before."),
    string("incr", "1.0.0", 2, GROW_FAST, Data(|txn, out, argv| strings::increment(txn, out, argv, 1)))
        .keys(&[key("RW access update", 1)])
        .text("INCR key", "Adds one to an integer."),
    string("incrby", "1.0.0", 3, GROW_FAST, Data(strings::incrby))
        .keys(&[key("RW access update", 1)])
        .text("INCRBY key increment", "Adds a number to an integer."),
    string("incrbyfloat", "2.6.0", 3, GROW_FAST, Data(strings::incrbyfloat))
        .keys(&[key("RW access update", 1)])
        .text("INCRBYFLOAT key increment", "Adds to a floating-point number."),
    string("mget", "1.0.0", -2, READ_FAST, Data(strings::mget))
        .keys(&[key_range("RO access", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard"])
        .text("MGET key [key ...]", "Returns several strings."),
    string("mset", "1.0.1", -3, GROW, Data(strings::mset))
        .keys(&[key_range("OW update", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .text("MSET key value [key value ...]", "Sets several strings as one step."),
    string("msetnx", "1.0.1", -3, GROW, Data(strings::msetnx))
        .keys(&[key_range("OW insert", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .text("MSETNX key value [key value ...]", "Sets several strings if none of the keys exists."),
    string("psetex", "2.6.0", 4, GROW, Data(strings::psetex))
        .keys(&[key("OW update", 1)])
        .text("PSETEX key milliseconds value", "Sets a string that lives for so many milliseconds."),
    string("set", "1.0.0", -3, GROW, Data(strings::set))
        .keys(&[key("RW access update variable_flags", 1)])
        .text(
            "SET key value [NX|XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets a string, under conditions if wanted, and says how long it lives.",
        ),
    string("setex", "2.0.0", 4, GROW, Data(strings::setex))
        .keys(&[key("OW update", 1)])
        .text("SETEX key seconds value", "Sets a string that lives for so many seconds."),
    string("setnx", "1.0.0", 3, GROW_FAST, Data(strings::setnx))
        .keys(&[key("OW insert", 1)])
        .text("SETNX key value", "Sets a string if the key does not exist."),
    string("strlen", "2.2.0", 2, READ_FAST, Data(strings::strlen))
        .keys(&[key("RO", 1)])
        .text("STRLEN key", "Says how many bytes a string has."),
];

pub(in crate::table) const HASHES: &[CommandSpec] = &[
    hash("hdel", "2.0.0", -3, WRITE_FAST, Data(hashes::hdel))
        .keys(&[key("RW delete", 1)])
        .complexity(PER_FIELD)
        .text("HDEL key field [field ...]", "Removes fields and says how many there were."),
    hash("hexists", "2.0.0", 3, READ_FAST, Data(hashes::hexists))
        .keys(&[key("RO", 1)])
        .text("HEXISTS key field", "Says whether a field exists."),
    hash("hget", "2.0.0", 3, READ_FAST, Data(hashes::hget))
        .keys(&[key("RO access", 1)])
        .text("HGET key field", "Returns a field's value."),
    hash("hgetall", "2.0.0", 2, READ, Data(hashes::hgetall))
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HGETALL key", "Returns every field and its value."),
    hash("hincrby", "2.0.0", 4, GROW_FAST, Data(hashes::hincrby))
        .keys(&[key("RW access update", 1)])
        .text("HINCRBY key field increment", "Adds a number to a field's integer."),
    hash("hincrbyfloat", "2.6.0", 4, GROW_FAST, Data(hashes::hincrbyfloat))
        .keys(&[key("RW access update", 1)])
        .text("HINCRBYFLOAT key field increment", "Adds to a field's floating-point number."),
    hash("hkeys", "2.0.0", 2, READ, Data(hashes::hkeys))
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HKEYS key", "Returns the names of all fields."),
    hash("hlen", "2.0.0", 2, READ_FAST, Data(hashes::hlen))
        .keys(&[key("RO", 1)])
        .text("HLEN key", "Says how many fields a hash has."),
    hash("hmget", "2.0.0", -3, READ_FAST, Data(hashes::hmget))
        .keys(&[key("RO access", 1)])
        .complexity(PER_FIELD)
        .text("HMGET key field [field ...]", "Returns the values of several fields."),
    hash("hmset", "2.0.0", -4, GROW_FAST, Data(hashes::hmset))
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HMSET key field value [field value ...]", "Sets fields; HSET does the same."),
    hash("hset", "2.0.0", -4, GROW_FAST, Data(hashes::hset))
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HSET key field value [field value ...]", "Sets fields and says how many are new."),
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
        WAIT_AND_POP,
        Data(|txn, out, argv| lists::blocking_pop(txn, out, argv, ListEnd::Head)),
    )
    .keys(&[key_range("RW access delete", 1, -2, 1)])
    .complexity(PER_KEY)
    .text("BLPOP key [key ...] timeout", "Takes the first element of a list, and waits for one."),
    list(
        "brpop",
        "2.0.0",
        -3,
        WAIT_AND_POP,
        Data(|txn, out, argv| lists::blocking_pop(txn, out, argv, ListEnd::Tail)),
    )
    .keys(&[key_range("RW access delete", 1, -2, 1)])
    .complexity(PER_KEY)
    .text("BRPOP key [key ...] timeout", "Takes the last element of a list, and waits for one."),
    list("llen", "1.0.0", 2, READ_FAST, Data(lists::llen))
        .keys(&[key("RO", 1)])
        .text("LLEN key", "Says how many elements a list has."),
    list("lpop", "1.0.0", -2, WRITE_FAST, Data(lists::lpop))
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LPOP key [count]", "Takes the first elements of a list."),
    list("lpush", "1.0.0", -3, GROW_FAST, Data(|txn, out, argv| lists::push(txn, out, argv, ListEnd::Head)))
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("LPUSH key element [element ...]", "Puts elements at the front of a list."),
    list("lrange", "1.0.0", 4, READ, Data(lists::lrange))
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LRANGE key start stop", "Returns some elements of a list."),
    list("rpop", "1.0.0", -2, WRITE_FAST, Data(lists::rpop))
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("RPOP key [count]", "Takes the last elements of a list."),
    list("rpush", "1.0.0", -3, GROW_FAST, Data(|txn, out, argv| lists::push(txn, out, argv, ListEnd::Tail)))
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("RPUSH key element [element ...]", "Puts elements at the end of a list."),
];

pub(in crate::table) const SETS: &[CommandSpec] = &[
    set("sadd", "1.0.0", -3, GROW_FAST, Data(sets::sadd))
        .keys(&[key("RW insert", 1)])
        .complexity(PER_MEMBER)
        .text("SADD key member [member ...]", "Adds members and says how many are new."),
    set("scard", "1.0.0", 2, READ_FAST, Data(sets::scard))
        .keys(&[key("RO", 1)])
        .text("SCARD key", "Says how many members a set has."),
    set("sismember", "1.0.0", 3, READ_FAST, Data(sets::sismember))
        .keys(&[key("RO", 1)])
        .text("SISMEMBER key member", "Says whether a set has a member."),
    set("smembers", "1.0.0", 2, READ, Data(sets::smembers))
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the members of the set")
        .tips(NONDETERMINISTIC_ORDER)
        .text("SMEMBERS key", "Returns all members of a set."),
    set("srem", "1.0.0", -3, WRITE_FAST, Data(sets::srem))
        .keys(&[key("RW delete", 1)])
        .complexity(PER_MEMBER)
        .text("SREM key member [member ...]", "Removes members and says how many there were."),
];
