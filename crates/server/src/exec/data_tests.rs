//! Tests of the commands on keys, strings, hashes, lists and sets: whole requests and the bytes of their replies,
//! as Redis 7 sends them.

use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::command::{LongReply, Outcome};
use crate::table::tests::{NOW_MS, empty_store, run};

/// Runs requests one after the other and compares each reply, with line ends replaced by spaces.
fn check(resp3: bool, cases: &[(&str, &str)]) {
    let store = empty_store();
    let mut txn = store.lock_all(0, NOW_MS);
    for (request, expected) in cases {
        let reply = reply(&mut txn, resp3, request);
        assert_eq!(reply.trim_end().replace("\r\n", " "), *expected, "{request}");
    }
}

fn reply(txn: &mut Txn<'_>, resp3: bool, request: &str) -> String {
    let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    let mut out = Writer::new(resp3);
    match run(txn, &mut out, &argv) {
        Ok(Outcome::Done | Outcome::Brief) => {}
        Ok(Outcome::Long(unwritten)) => LongReply::new(&mut out, unwritten).write_all(&mut out),
        Ok(Outcome::Block(on)) => return format!("blocks for {} ms", on.timeout_ms),
        Ok(Outcome::SlowWork(_)) => unreachable!("data commands have no slow work"),
        Err(error) => {
            out.truncate(0);
            out.error(error.as_bytes());
        }
    }
    String::from_utf8(out.buf).expect("the replies of these tests are UTF-8")
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn set_obeys_conditions_and_expiry_options() {
    let cases = [
        ("SET k 1 XX", "$-1"),
        ("SET k 1 NX GET", "$-1"),
        ("SET k 2 NX GET", "$1 1"),
        ("SET k 2 NX", "$-1"),
        ("SET k 3 GET EX 10", "$1 1"),
        ("TTL k", ":10"),
        ("SET k 4 KEEPTTL", "+OK"),
        ("PTTL k", ":10000"),
        ("GETSET k 5", "$1 4"),
        ("TTL k", ":-1"),
        ("GETEX k PXAT 1700000001499", "$1 5"),
        ("EXPIRETIME k", ":1700000001"),
        ("GETEX k PERSIST", "$1 5"),
        ("PEXPIRETIME k", ":-1"),
        ("GETEX k EX 0", "-ERR invalid expire time in 'getex' command"),
        ("GETEX none EX 0", "$-1"),
        ("SET k v PXAT 1", "+OK"),
        ("GETDEL k", "$-1"),
        ("MSETNX a 1 b 2", ":1"),
        ("MSETNX b 1 c 2", ":0"),
        ("MGET a none b", "*3 $1 1 $-1 $1 2"),
    ];
    check(false, &cases);
}

#[test]
fn incr_takes_integers_and_incrbyfloat_decimals() {
    let cases = [
        ("INCR n", ":1"),
        ("DECRBY n 5", ":-4"),
        ("INCRBYFLOAT n 0.1", "$4 -3.9"),
        ("INCR n", "-ERR value is not an integer or out of range"),
        ("INCRBYFLOAT n x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT n inf", "-ERR increment would produce NaN or Infinity"),
        ("APPEND n 0", ":5"),
        ("STRLEN n", ":5"),
        ("RPUSH l a", ":1"),
        ("INCRBYFLOAT l x", WRONG_TYPE),
        ("MGET l n", "*2 $-1 $5 -3.90"),
        ("SET l v GET", WRONG_TYPE),
        ("GETEX l EX 0", WRONG_TYPE),
    ];
    check(false, &cases);
}

#[test]
fn hashes_reply_with_maps_and_sets_with_sets() {
    let cases = [
        ("HSET h a 1 b 2 a 3", ":2"),
        ("HGETALL h", "%2 $1 a $1 3 $1 b $1 2"),
        ("HMGET h b none", "*2 $1 2 _"),
        ("HKEYS h", "*2 $1 a $1 b"),
        ("HVALS h", "*2 $1 3 $1 2"),
        ("HINCRBYFLOAT h a 0.5", "$3 3.5"),
        ("HINCRBY h a 1", "-ERR hash value is not an integer"),
        ("HDEL h a a none", ":1"),
        ("HGETALL none", "%0"),
        ("SADD s 3 1 2 1", ":3"),
        ("SMEMBERS s", "~3 $1 1 $1 2 $1 3"),
        ("SISMEMBER s 2", ":1"),
        ("SREM s 1 2 3 4", ":3"),
        ("SMEMBERS s", "~0"),
        ("GET none", "_"),
    ];
    check(true, &cases);
    check(false, &[("HSET h a 1", ":1"), ("HGETALL h", "*2 $1 a $1 1"), ("SMEMBERS none", "*0")]);
}

#[test]
fn pop_replies_with_and_without_count() {
    let cases = [
        ("LPOP l", "$-1"),
        ("LPOP l 2", "*-1"),
        ("BLPOP l m 0.25", "blocks for 250 ms"),
        ("RPUSH l a b c d", ":4"),
        ("LPUSH l x", ":5"),
        ("LRANGE l 0 -2", "*4 $1 x $1 a $1 b $1 c"),
        ("RPOP l 2", "*2 $1 d $1 c"),
        ("LPOP l 0", "*0"),
        ("BRPOP none l 0", "*2 $1 l $1 b"),
        ("LPOP l", "$1 x"),
        ("LPOP l 9", "*1 $1 a"),
        ("EXISTS l", ":0"),
        ("SADD s m", ":1"),
        ("BLPOP none s 0", WRONG_TYPE),
    ];
    check(false, &cases);
    check(true, &[("LPOP l", "_"), ("LPOP l 2", "_")]);
}

#[test]
fn keys_expire_and_are_listed() {
    let cases = [
        ("MSET a 1 b 2", "+OK"),
        ("EXISTS a b none a", ":3"),
        ("EXPIRE a 100 GT", ":0"),
        ("EXPIRE a 100 LT", ":1"),
        ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("TTL a", ":100"),
        ("DEL a", ":1"),
        ("TTL a", ":-2"),
        ("SET d 3", "+OK"),
        ("TYPE d", "+string"),
        ("DBSIZE", ":2"),
        ("PEXPIRE d -1", ":1"),
        ("KEYS [a-c]*", "*1 $1 b"),
        ("SCAN 0 TYPE STRING", "*2 $1 0 *1 $1 b"),
        ("SCAN 0 MATCH x*", "*2 $1 0 *0"),
        ("RANDOMKEY", "$1 b"),
        ("DEL b b none", ":1"),
        ("RANDOMKEY", "$-1"),
    ];
    check(false, &cases);
}

#[test]
fn object_and_memory_describe_keys() {
    let cases = [
        ("SET k 12", "+OK"),
        ("OBJECT ENCODING k", "$3 int"),
        ("OBJECT IDLETIME k", ":0"),
        ("OBJECT REFCOUNT k", ":1"),
        ("OBJECT ENCODING none", "$-1"),
        ("OBJECT FREQ none", "$-1"),
        // The memory of the slot with its index entry, of the key's name and of the value.
        ("MEMORY USAGE k", ":140"),
        ("MEMORY USAGE none", "$-1"),
        ("SADD s 1 2", ":2"),
        ("OBJECT ENCODING s", "$6 intset"),
        ("SADD s x", ":1"),
        ("OBJECT ENCODING s", "$8 listpack"),
    ];
    check(false, &cases);
}

/// Invalid arguments are reported before a wrong type, with Redis' error texts.
#[test]
fn invalid_arguments_are_reported_before_a_wrong_type() {
    let arity = |name: &str| format!("-ERR wrong number of arguments for '{name}' command");
    let (hset, hmset, mset, msetnx, ping) =
        (arity("hset"), arity("hmset"), arity("mset"), arity("msetnx"), arity("ping"));
    let cases = [
        ("RPUSH l a", ":1"),
        ("HSET l a b c", &hset),
        ("HMSET l a b c", &hmset),
        ("MSET a b c", &mset),
        ("MSETNX a b c", &msetnx),
        ("PING a b", &ping),
        ("HINCRBY l f 1.5", "-ERR value is not an integer or out of range"),
        ("HINCRBYFLOAT l f x", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT l f nan", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT l f -inf", "-ERR value is NaN or Infinity"),
        ("DECRBY l -9223372036854775808", "-ERR decrement would overflow"),
        ("INCRBY l x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE l SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE l SAMPLES -1", "-ERR syntax error"),
        ("MEMORY USAGE l SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE l FOO", "-ERR syntax error"),
        ("MEMORY USAGE none samples 0 SAMPLES 5", "$-1"),
        ("INCRBYFLOAT n -1.5e2", "$4 -150"),
    ];
    check(false, &cases);
}
