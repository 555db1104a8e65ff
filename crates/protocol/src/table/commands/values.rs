//! The companion types: strings, hashes, lists and sets.

use super::NONDETERMINISTIC_ORDER;
use crate::commands;
use crate::table::spec::{Categories, CommandSpec, Flags, Group, Parse, command, key, keys};

const fn string(name: &'static str, arity: i32, parse: Parse) -> CommandSpec {
    command(name, arity, parse).group(Group::String).category(Categories::STRING).since("1.0.0")
}

const fn hash(name: &'static str, arity: i32, parse: Parse) -> CommandSpec {
    command(name, arity, parse).group(Group::Hash).category(Categories::HASH).since("2.0.0")
}

const fn list(name: &'static str, arity: i32, parse: Parse) -> CommandSpec {
    command(name, arity, parse).group(Group::List).category(Categories::LIST).since("1.0.0")
}

const fn set(name: &'static str, arity: i32, parse: Parse) -> CommandSpec {
    command(name, arity, parse).group(Group::Set).category(Categories::SET).since("1.0.0")
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
    string("append", 3, commands::parse_append)
        .since("2.0.0")
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .text("APPEND key value", "Adds to the end of a string and returns its length."),
    string("decr", 2, commands::parse_decr)
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("DECR key", "Takes one from an integer."),
    string("decrby", 3, commands::parse_decrby)
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("DECRBY key decrement", "Takes a number from an integer."),
    string("get", 2, commands::parse_get)
        .flags(READ_FAST)
        .keys(&[key("RO access", 1)])
        .text("GET key", "Returns a string."),
    string("getdel", 2, commands::parse_getdel)
        .since("6.2.0")
        .flags(WRITE_FAST)
        .keys(&[key("RW access delete", 1)])
        .text("GETDEL key", "Returns a string and removes it."),
    string("getex", -2, commands::parse_getex)
        .since("6.2.0")
        .flags(WRITE_FAST)
        .keys(&[key("RW access update", 1)])
        .text(
            "GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
            "Returns a string and sets how long it lives.",
        ),
    string("getset", 3, commands::parse_getset)
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("GETSET key value", "Sets a string and returns what was there before."),
    string("incr", 2, commands::parse_incr)
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("INCR key", "Adds one to an integer."),
    string("incrby", 3, commands::parse_incrby)
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("INCRBY key increment", "Adds a number to an integer."),
    string("incrbyfloat", 3, commands::parse_incrbyfloat)
        .since("2.6.0")
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("INCRBYFLOAT key increment", "Adds to a floating-point number."),
    string("mget", -2, commands::parse_mget)
        .flags(READ_FAST)
        .keys(&[keys("RO access", 1, -1, 1)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard"])
        .text("MGET key [key ...]", "Returns several strings."),
    string("mset", -3, commands::parse_mset)
        .since("1.0.1")
        .flags(GROW)
        .keys(&[keys("OW update", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .text("MSET key value [key value ...]", "Sets several strings as one step."),
    string("msetnx", -3, commands::parse_msetnx)
        .since("1.0.1")
        .flags(GROW)
        .keys(&[keys("OW insert", 1, -1, 2)])
        .complexity(PER_KEY)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .text("MSETNX key value [key value ...]", "Sets several strings if none of the keys exists."),
    string("psetex", 4, commands::parse_psetex)
        .since("2.6.0")
        .flags(GROW)
        .keys(&[key("OW update", 1)])
        .text("PSETEX key milliseconds value", "Sets a string that lives for so many milliseconds."),
    string("set", -3, commands::parse_set)
        .flags(GROW)
        .keys(&[key("RW access update variable_flags", 1)])
        .text(
            "SET key value [NX|XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets a string, under conditions if wanted, and says how long it lives.",
        ),
    string("setex", 4, commands::parse_setex)
        .since("2.0.0")
        .flags(GROW)
        .keys(&[key("OW update", 1)])
        .text("SETEX key seconds value", "Sets a string that lives for so many seconds."),
    string("setnx", 3, commands::parse_setnx)
        .flags(GROW_FAST)
        .keys(&[key("OW insert", 1)])
        .text("SETNX key value", "Sets a string if the key does not exist."),
    string("strlen", 2, commands::parse_strlen)
        .since("2.2.0")
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("STRLEN key", "Says how many bytes a string has."),
];

pub(in crate::table) const HASHES: &[CommandSpec] = &[
    hash("hdel", -3, commands::parse_hdel)
        .flags(WRITE_FAST)
        .keys(&[key("RW delete", 1)])
        .complexity(PER_FIELD)
        .text("HDEL key field [field ...]", "Removes fields and says how many there were."),
    hash("hexists", 3, commands::parse_hexists)
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("HEXISTS key field", "Says whether a field exists."),
    hash("hget", 3, commands::parse_hget)
        .flags(READ_FAST)
        .keys(&[key("RO access", 1)])
        .text("HGET key field", "Returns a field's value."),
    hash("hgetall", 2, commands::parse_hgetall)
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HGETALL key", "Returns every field and its value."),
    hash("hincrby", 4, commands::parse_hincrby)
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("HINCRBY key field increment", "Adds a number to a field's integer."),
    hash("hincrbyfloat", 4, commands::parse_hincrbyfloat)
        .since("2.6.0")
        .flags(GROW_FAST)
        .keys(&[key("RW access update", 1)])
        .text("HINCRBYFLOAT key field increment", "Adds to a field's floating-point number."),
    hash("hkeys", 2, commands::parse_hkeys)
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HKEYS key", "Returns the names of all fields."),
    hash("hlen", 2, commands::parse_hlen)
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("HLEN key", "Says how many fields a hash has."),
    hash("hmget", -3, commands::parse_hmget)
        .flags(READ_FAST)
        .keys(&[key("RO access", 1)])
        .complexity(PER_FIELD)
        .text("HMGET key field [field ...]", "Returns the values of several fields."),
    hash("hmset", -4, commands::parse_hmset)
        .flags(GROW_FAST)
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HMSET key field value [field value ...]", "Sets fields; HSET does the same."),
    hash("hset", -4, commands::parse_hset)
        .flags(GROW_FAST)
        .keys(&[key("RW update", 1)])
        .complexity(PER_FIELD)
        .text("HSET key field value [field value ...]", "Sets fields and says how many are new."),
    hash("hsetnx", 4, commands::parse_hsetnx)
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .text("HSETNX key field value", "Sets a field if it does not exist."),
    hash("hvals", 2, commands::parse_hvals)
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity(WHOLE_HASH)
        .tips(NONDETERMINISTIC_ORDER)
        .text("HVALS key", "Returns the values of all fields."),
];

pub(in crate::table) const LISTS: &[CommandSpec] = &[
    list("blpop", -3, commands::parse_blpop)
        .since("2.0.0")
        .flags(WAIT_AND_POP)
        .keys(&[keys("RW access delete", 1, -2, 1)])
        .complexity(PER_KEY)
        .text("BLPOP key [key ...] timeout", "Takes the first element of a list, and waits for one."),
    list("brpop", -3, commands::parse_brpop)
        .since("2.0.0")
        .flags(WAIT_AND_POP)
        .keys(&[keys("RW access delete", 1, -2, 1)])
        .complexity(PER_KEY)
        .text("BRPOP key [key ...] timeout", "Takes the last element of a list, and waits for one."),
    list("llen", 2, commands::parse_llen)
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("LLEN key", "Says how many elements a list has."),
    list("lpop", -2, commands::parse_lpop)
        .flags(WRITE_FAST)
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LPOP key [count]", "Takes the first elements of a list."),
    list("lpush", -3, commands::parse_lpush)
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("LPUSH key element [element ...]", "Puts elements at the front of a list."),
    list("lrange", 4, commands::parse_lrange)
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the elements returned")
        .text("LRANGE key start stop", "Returns some elements of a list."),
    list("rpop", -2, commands::parse_rpop)
        .flags(WRITE_FAST)
        .keys(&[key("RW access delete", 1)])
        .complexity("O(N), N being the elements returned")
        .text("RPOP key [count]", "Takes the last elements of a list."),
    list("rpush", -3, commands::parse_rpush)
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .complexity(PER_ELEMENT)
        .text("RPUSH key element [element ...]", "Puts elements at the end of a list."),
];

pub(in crate::table) const SETS: &[CommandSpec] = &[
    set("sadd", -3, commands::parse_sadd)
        .flags(GROW_FAST)
        .keys(&[key("RW insert", 1)])
        .complexity(PER_MEMBER)
        .text("SADD key member [member ...]", "Adds members and says how many are new."),
    set("scard", 2, commands::parse_scard)
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("SCARD key", "Says how many members a set has."),
    set("sismember", 3, commands::parse_sismember)
        .flags(READ_FAST)
        .keys(&[key("RO", 1)])
        .text("SISMEMBER key member", "Says whether a set has a member."),
    set("smembers", 2, commands::parse_smembers)
        .flags(READ)
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the members of the set")
        .tips(NONDETERMINISTIC_ORDER)
        .text("SMEMBERS key", "Returns all members of a set."),
    set("srem", -3, commands::parse_srem)
        .flags(WRITE_FAST)
        .keys(&[key("RW delete", 1)])
        .complexity(PER_MEMBER)
        .text("SREM key member [member ...]", "Removes members and says how many there were."),
];
