//! Random commands that are not of the streams family: whole keys, expiry, strings, hashes, lists and sets.

use crate::generate::Pool;
use crate::script::{Argv, argv};

/// Returns one command.
pub(crate) fn commands(pool: &mut Pool) -> Vec<Argv> {
    vec![match pool.random.below(10) {
        0..3 => keys(pool),
        3 => expiry(pool),
        4 | 5 => strings(pool),
        6 | 7 => hashes(pool),
        8 => lists(pool),
        _ => sets(pool),
    }]
}

fn keys(pool: &mut Pool) -> Argv {
    let (one, two) = (any_key(pool), any_key(pool));
    match pool.random.below(24) {
        0 | 1 => argv(&["DEL", &one]),
        2 => argv(&["UNLINK", &one, &two]),
        3 | 4 => argv(&["EXISTS", &one, &two]),
        5 | 6 => argv(&["TYPE", &one]),
        7 | 8 => argv(&["RENAME", &one, &two]),
        9 => argv(&["RENAMENX", &one, &two]),
        10..13 => argv(&["COPY", &one, &two]),
        13 | 14 => argv(&["COPY", &one, &two, "REPLACE"]),
        15 => argv(&["COPY", &one, &two, "DB", "1", "REPLACE"]),
        16 => argv(&["MOVE", &one, "1"]),
        17 => argv(&["SELECT", pool.random.pick(&["0", "0", "1", "99"])]),
        18 => argv(&["DBSIZE"]),
        19 => argv(&["KEYS", pool.random.pick(&["*", "s*", "k?", "[ks]0"])]),
        20 => argv(&["TOUCH", &one, &two]),
        21 => argv(&["SCAN", "0", "COUNT", "1000", "TYPE", pool.random.pick(&["stream", "hash", "string"])]),
        22 if pool.random.percent(20) => argv(&["SWAPDB", "0", "1"]),
        23 if pool.random.percent(10) => argv(&["FLUSHDB"]),
        _ => argv(&["SET", &one, "over"]),
    }
}

fn any_key(pool: &mut Pool) -> String {
    if pool.random.percent(50) { pool.key() } else { pool.other_key() }
}

/// Expiry at absolute times, so that both servers return the same. No time is reached while a test runs.
fn expiry(pool: &mut Pool) -> Argv {
    let key = any_key(pool);
    let seconds = pool.random.pick(&["33177117420", "33177117421", "33177117422"]);
    let millis = format!("{seconds}123");
    let mut command = match pool.random.below(8) {
        0 | 1 => argv(&["EXPIREAT", &key, seconds]),
        2 | 3 => argv(&["PEXPIREAT", &key, &millis]),
        4 => return argv(&["PERSIST", &key]),
        5 => return argv(&["EXPIRETIME", &key]),
        6 => return argv(&["PEXPIRETIME", &key]),
        _ => {
            return argv(&[
                "EXPIREAT",
                &key,
                pool.random.pick(&["1", "0", "-1", "abc", "9223372036854775807"]),
            ]);
        }
    };
    if pool.random.percent(40) {
        command.extend(argv(&[pool.random.pick(&["NX", "XX", "GT", "LT"])]));
    }
    command
}

fn number(pool: &mut Pool) -> &'static str {
    pool.random.pick(&["1", "-1", "10", "0", "9223372036854775807", "-9223372036854775808", "abc", "1.5", ""])
}

fn strings(pool: &mut Pool) -> Argv {
    let (one, two) = (pool.other_key(), pool.other_key());
    let value =
        pool.random.pick(&["v", "12", "", "-5", "0.5", "a rather long value that is not short at all, no"]);
    match pool.random.below(20) {
        0..4 => set(pool, &one, value),
        4 | 5 => argv(&["GET", &one]),
        6 => argv(&["SETNX", &one, value]),
        7 => argv(&["GETSET", &one, value]),
        8 => argv(&["GETDEL", &one]),
        9 => argv(&["GETEX", &one, "PXAT", "33177117420123"]),
        10 => argv(&["MGET", &one, &two, "missing"]),
        11 => argv(&["MSET", &one, value, &two, "2"]),
        12 => argv(&["MSETNX", &one, value, &two, "2"]),
        13 => argv(&["INCR", &one]),
        14 => argv(&["INCRBY", &one, number(pool)]),
        15 => argv(&["DECRBY", &one, number(pool)]),
        16 => argv(&["INCRBYFLOAT", &one, pool.random.pick(&["0.5", "0.1", "-2.25", "1e3", "abc", "0"])]),
        17 => argv(&["APPEND", &one, value]),
        18 => argv(&["STRLEN", &one]),
        _ => argv(&["DECR", &one]),
    }
}

fn set(pool: &mut Pool, key: &str, value: &str) -> Argv {
    let mut command = argv(&["SET", key, value]);
    for _ in 0..pool.random.below(3) {
        command.extend(match pool.random.below(6) {
            0 => argv(&["NX"]),
            1 => argv(&["XX"]),
            2 | 3 => argv(&["GET"]),
            4 => argv(&["KEEPTTL"]),
            _ => argv(&["EXAT", "33177117420"]),
        });
    }
    command
}

fn hashes(pool: &mut Pool) -> Argv {
    let key = pool.other_key();
    let (field, other) = (pool.random.pick(&["a", "b", "c", ""]), pool.random.pick(&["a", "b", "d"]));
    let value = pool.random.pick(&["1", "x", "", "1.5"]);
    match pool.random.below(16) {
        0..4 => argv(&["HSET", &key, field, value, other, "2"]),
        4 => argv(&["HSETNX", &key, field, value]),
        5 => argv(&["HGET", &key, field]),
        6 => argv(&["HMGET", &key, field, other]),
        7 => argv(&["HMSET", &key, field, value]),
        8 | 9 => argv(&["HGETALL", &key]),
        10 => argv(&["HDEL", &key, field, other]),
        11 => argv(&["HEXISTS", &key, field]),
        12 => argv(&["HLEN", &key]),
        13 => argv(&[pool.random.pick(&["HKEYS", "HVALS"]), &key]),
        14 => argv(&["HINCRBY", &key, field, number(pool)]),
        _ => argv(&["HINCRBYFLOAT", &key, field, pool.random.pick(&["0.5", "0.1", "-1", "x"])]),
    }
}

fn lists(pool: &mut Pool) -> Argv {
    let key = pool.other_key();
    let index = |pool: &mut Pool| pool.random.pick(&["0", "1", "-1", "-3", "5", "x"]);
    match pool.random.below(10) {
        0 | 1 => argv(&["LPUSH", &key, "a", "b"]),
        2 | 3 => argv(&["RPUSH", &key, "c"]),
        4 => argv(&["LPOP", &key]),
        5 => argv(&["RPOP", &key, &pool.count()]),
        6 => argv(&["LLEN", &key]),
        7 => argv(&["LPOP", &key, &pool.count()]),
        _ => argv(&["LRANGE", &key, index(pool), index(pool)]),
    }
}

fn sets(pool: &mut Pool) -> Argv {
    let key = pool.other_key();
    let (one, two) = (pool.random.pick(&["a", "1", "", "2"]), pool.random.pick(&["a", "3", "b"]));
    match pool.random.below(8) {
        0..3 => argv(&["SADD", &key, one, two]),
        3 => argv(&["SREM", &key, one, two]),
        4 => argv(&["SMEMBERS", &key]),
        5 => argv(&["SISMEMBER", &key, one]),
        _ => argv(&["SCARD", &key]),
    }
}
