//! A line for each command of the server, and the commands that may take long.

use crate::support::resp::encode;

/// How the campaign runs a command.
pub(crate) struct Line {
    /// The command with its arguments; several commands, separated by semicolons, that are measured together.
    pub(crate) text: &'static str,
    /// It runs once, because it changes the state.
    pub(crate) changes: bool,
    /// An error is an expected reply.
    pub(crate) may_fail: bool,
}

/// A command that may take longer with a larger state, because it must visit a collection that it names, or because its
/// reply is as large.
pub(crate) struct Exception {
    /// The beginning of the lines.
    pub(crate) command: &'static str,
    /// It may also take longer than 10 ms.
    may_be_slow: bool,
}

impl Exception {
    /// Returns whether a line may take longer with a larger state, or, if `is_slow`, longer than 10 ms.
    pub(crate) fn covers(&self, line: &Line, is_slow: bool) -> bool {
        line.text.starts_with(self.command) && (self.may_be_slow || !is_slow)
    }
}

impl Line {
    /// Returns the names of its commands, as COMMAND LIST shows them.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let containers = [
            "acl", "client", "cluster", "command", "config", "function", "latency", "memory", "module",
            "object", "script", "slowlog", "xdelay", "xgroup", "xinfo", "xpolicy",
        ];
        self.text.split("; ").map(move |command| {
            let mut words = command.split(' ').map(str::to_ascii_lowercase);
            let (name, second) = (words.next().unwrap_or_default(), words.next());
            let subcommand = second.filter(|_| containers.contains(&name.as_str()));
            subcommand.map_or_else(|| name.clone(), |subcommand| format!("{name}|{subcommand}"))
        })
    }

    pub(crate) fn requests(&self) -> Vec<u8> {
        let words = |command: &str| encode(&command.split(' ').collect::<Vec<_>>());
        self.text.split("; ").flat_map(words).collect()
    }
}

const fn reads(text: &'static str) -> Line {
    Line { text, changes: false, may_fail: false }
}

/// A command that changes the state only a little, so that it can be repeated.
const fn writes(text: &'static str) -> Line {
    reads(text)
}

const fn once(text: &'static str) -> Line {
    Line { text, changes: true, may_fail: false }
}

const fn fails(text: &'static str) -> Line {
    Line { text, changes: false, may_fail: true }
}

const fn slow(command: &'static str) -> Exception {
    Exception { command, may_be_slow: true }
}

/// A limit keeps it below 10 ms: that of groups of a stream, or of keys that a client watches.
const fn grows(command: &'static str) -> Exception {
    Exception { command, may_be_slow: false }
}

/// Commands that are not measured: they end the connection, or the server, or leave out replies.
pub(crate) const NOT_MEASURED: &[&str] = &["client|reply", "quit", "shutdown"];

/// One line for each command, or several. Those that remove much are the last ones.
pub(crate) const COMMANDS: &[Line] = &[
    writes("XADD s * f v"),
    writes("XADD s MAXLEN = 1000000000 * f v"),
    writes("XADD s MAXLEN ~ 1 LIMIT 1 * f v"),
    writes("XADD s ACKED MAXLEN ~ 1 * f v"),
    writes("XADD s *+1000000 f v"),
    writes("XADD s IDMP q 1 * f v"),
    writes("XREADGROUP GROUP g c COUNT 1 STREAMS s >"),
    writes("XREADGROUP GROUP g new COUNT 1 STREAMS s >; XGROUP DELCONSUMER s g new"),
    writes("XREADGROUP GROUP g c COUNT 1 CLAIM 100000000 STREAMS s >"),
    writes("XREADGROUP GROUP g c COUNT 1 STREAMS s 0"),
    reads("XREAD COUNT 1 STREAMS s 0"),
    writes("XACK s g 1-1"),
    writes("XACKDEL s g ACKED IDS 1 1-1"),
    writes("XNACK s g FAIL IDS 1 2-1"),
    writes("XADOPT s g no c"),
    writes("XAUTOCLAIM s g c 100000000 0 COUNT 10"),
    writes("XCFGSET s IDMP-DURATION 86400"),
    writes("XCLAIM s g c 0 3-1"),
    writes("XDEL s 4-1"),
    writes("XDELEX s ACKED IDS 1 5-1"),
    writes("XDELEX s DELREF IDS 1 6-1"),
    reads("XDELAY RANGE s - + COUNT 10"),
    fails("XDELAY DEL s 1-1"),
    fails("XDELAY NOW s 1-1"),
    reads("XDELAY HELP"),
    writes("XEXTEND s g c IDS 1 3-1"),
    writes("XGROUP DESTROY s new; XGROUP CREATE s new 0"),
    writes("XGROUP CREATE s new2 $; XGROUP DESTROY s new2"),
    writes("XGROUP CREATECONSUMER s g new"),
    writes("XGROUP CREATECONSUMER s g new; XGROUP DELCONSUMER s g new"),
    reads("XGROUP HELP"),
    writes("XGROUP SETID s g $"),
    fails("XIDMPRECORD s q 2 1-1"),
    reads("XINFO STREAM s"),
    reads("XINFO STREAM s FULL COUNT 1"),
    reads("XINFO GROUPS s"),
    reads("XINFO CONSUMERS s g"),
    reads("XINFO MISSED s"),
    reads("XINFO HELP"),
    reads("XLEN s"),
    reads("XPENDING s g"),
    reads("XPENDING s g - + 10"),
    reads("XPENDING s g - + 10 nobody"),
    reads("XPENDING s g IDLE 100000000 - + 10"),
    reads("XPOLICY GET s"),
    reads("XPOLICY GET s GROUP g"),
    reads("XPOLICY HELP"),
    writes("XPOLICY SET s LEASE 3600000 MAXDELIVER 1"),
    writes("XPOLICY SET s LEASE 3600000 MAXDELIVER 0"),
    writes("XPOLICY SET s GROUP g LEASE 100000 MAXDELIVER 9"),
    writes("XREADGROUP GROUP g c COUNT 1 STREAMS s >"),
    writes("XPOLICY RESET s GROUP g"),
    fails("XPOLICY RESET s"),
    reads("XRANGE s - + COUNT 10"),
    reads("XREVRANGE s + - COUNT 10"),
    fails("XSETID s 9999999999999-1"),
    writes("COPY t copy REPLACE"),
    reads("EXISTS s"),
    writes("EXPIRE t 100000"),
    writes("EXPIREAT t 9999999999"),
    reads("EXPIRETIME t"),
    reads("KEYS s"),
    writes("MOVE t 1; SELECT 1; MOVE t 0; SELECT 0; MOVE nothing 1"),
    reads("OBJECT ENCODING s"),
    fails("OBJECT FREQ s"),
    reads("OBJECT HELP"),
    reads("OBJECT IDLETIME s"),
    reads("OBJECT REFCOUNT s"),
    writes("PERSIST t"),
    writes("PEXPIRE t 100000000"),
    writes("PEXPIREAT t 9999999999999"),
    reads("PEXPIRETIME t"),
    reads("PTTL t"),
    reads("RANDOMKEY"),
    writes("RENAME s s2; RENAME s2 s"),
    writes("RENAMENX s s3; RENAME s3 s; RENAMENX s t"),
    reads("SCAN 0 COUNT 100"),
    reads("SCAN 0 MATCH *aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab COUNT 100"),
    reads("TOUCH s"),
    reads("TTL t"),
    reads("TYPE s"),
    reads("WAIT 0 0"),
    fails("WAITAOF 0 0 1"),
    writes("APPEND t 1"),
    writes("DECR n"),
    writes("DECRBY n 1"),
    reads("GET t"),
    writes("SET t3 1; GETDEL t3"),
    writes("GETEX t EX 100000"),
    writes("GETSET t 1"),
    writes("INCR n"),
    writes("INCRBY n 1"),
    writes("INCRBYFLOAT n2 1"),
    reads("MGET t n"),
    writes("MSET t 1 n 1"),
    writes("MSETNX t 1"),
    writes("PSETEX t 100000000 1"),
    writes("SET t 1"),
    writes("SETEX t 100000 1"),
    writes("SETNX t 1"),
    reads("STRLEN t"),
    writes("HSET h new 1; HDEL h new"),
    reads("HEXISTS h f"),
    reads("HGET h f"),
    reads("HGETALL h"),
    writes("HINCRBY h f 1"),
    writes("HINCRBYFLOAT h f 1"),
    reads("HKEYS h"),
    reads("HLEN h"),
    reads("HMGET h f"),
    writes("HMSET h f 1"),
    writes("HSET h f 1"),
    writes("HSETNX h f 1"),
    reads("HVALS h"),
    writes("RPUSH l x; BLPOP l 1"),
    writes("RPUSH l x; BRPOP l 1"),
    reads("LLEN l"),
    writes("RPUSH l x; LPOP l"),
    writes("LPUSH l x"),
    reads("LRANGE l -2 -1"),
    writes("RPUSH l x; RPOP l"),
    writes("RPUSH l x"),
    writes("SADD z new"),
    reads("SCARD z"),
    reads("SISMEMBER z a"),
    reads("SMEMBERS z"),
    writes("SADD z new2; SREM z new2"),
    writes("MULTI; DISCARD"),
    writes("MULTI; PING; EXEC"),
    reads("WATCH t; UNWATCH"),
    writes("UNWATCH; WATCH t"),
    fails("AUTH wrong"),
    reads("CLIENT GETNAME"),
    reads("CLIENT GETREDIR"),
    reads("CLIENT HELP"),
    reads("CLIENT ID"),
    reads("CLIENT INFO"),
    fails("CLIENT KILL 1.2.3.4:5"),
    reads("CLIENT LIST"),
    reads("CLIENT NO-EVICT OFF"),
    reads("CLIENT NO-TOUCH OFF"),
    reads("CLIENT PAUSE 0"),
    reads("CLIENT SETINFO LIB-NAME x"),
    reads("CLIENT SETNAME x"),
    fails("CLIENT TRACKING OFF"),
    reads("CLIENT TRACKINGINFO"),
    reads("CLIENT UNBLOCK 999999"),
    reads("CLIENT UNPAUSE"),
    reads("ECHO x"),
    reads("HELLO 2"),
    reads("PING"),
    reads("RESET"),
    reads("SELECT 0"),
    reads("ACL CAT"),
    writes("ACL SETUSER new; ACL DELUSER new"),
    reads("ACL DRYRUN default PING"),
    reads("ACL GENPASS"),
    reads("ACL GETUSER default"),
    reads("ACL HELP"),
    reads("ACL LIST"),
    fails("ACL LOAD"),
    reads("ACL LOG"),
    fails("ACL SAVE"),
    writes("ACL SETUSER new on"),
    reads("ACL USERS"),
    reads("ACL WHOAMI"),
    reads("COMMAND COUNT"),
    reads("COMMAND"),
    reads("COMMAND DOCS XADD"),
    reads("COMMAND GETKEYS GET t"),
    reads("COMMAND GETKEYSANDFLAGS GET t"),
    reads("COMMAND HELP"),
    reads("COMMAND INFO GET"),
    reads("COMMAND LIST"),
    reads("CONFIG GET *"),
    reads("CONFIG HELP"),
    reads("CONFIG RESETSTAT"),
    fails("CONFIG REWRITE"),
    writes("CONFIG SET slowlog-max-len 128"),
    reads("DBSIZE"),
    reads("DEBUG SLEEP 0"),
    reads("INFO everything"),
    reads("LASTSAVE"),
    reads("LATENCY DOCTOR"),
    reads("LATENCY HELP"),
    reads("LATENCY HISTOGRAM"),
    reads("LATENCY HISTORY command"),
    reads("LATENCY LATEST"),
    reads("LATENCY RESET"),
    reads("MEMORY DOCTOR"),
    reads("MEMORY HELP"),
    reads("MEMORY PURGE"),
    reads("MEMORY STATS"),
    reads("MEMORY USAGE t"),
    reads("MEMORY USAGE s"),
    reads("MODULE HELP"),
    reads("MODULE LIST"),
    reads("REPLICAOF NO ONE"),
    reads("ROLE"),
    reads("SLAVEOF NO ONE"),
    reads("SLOWLOG GET"),
    reads("SLOWLOG HELP"),
    reads("SLOWLOG LEN"),
    reads("SLOWLOG RESET"),
    once("SWAPDB 0 1"),
    once("SWAPDB 1 0"),
    reads("TIME"),
    fails("CLUSTER HELP"),
    fails("CLUSTER INFO"),
    fails("CLUSTER MYID"),
    fails("CLUSTER NODES"),
    fails("CLUSTER SHARDS"),
    fails("CLUSTER SLOTS"),
    fails("EVAL x 0"),
    fails("EVAL_RO x 0"),
    fails("EVALSHA x 0"),
    fails("EVALSHA_RO x 0"),
    fails("FCALL x 0"),
    fails("FCALL_RO x 0"),
    fails("FUNCTION DELETE x"),
    fails("FUNCTION FLUSH"),
    fails("FUNCTION HELP"),
    fails("FUNCTION KILL"),
    fails("FUNCTION LIST"),
    fails("FUNCTION LOAD x"),
    fails("FUNCTION STATS"),
    fails("SCRIPT EXISTS x"),
    fails("SCRIPT FLUSH"),
    fails("SCRIPT HELP"),
    fails("SCRIPT KILL"),
    fails("SCRIPT LOAD x"),
    fails("BGREWRITEAOF"),
    fails("BGSAVE"),
    fails("SAVE"),
    once("COPY s s9; DEL s9"),
    once("XTRIM s MAXLEN ~ 100 LIMIT 1"),
    once("XTRIM s MAXLEN ~ 100 ACKED"),
    once("XTRIM s MAXLEN ~ 100 DELREF"),
    once("XTRIM s MINID = 50"),
    once("XTRIM s MAXLEN = 100 ACKED"),
    once("XGROUP DELCONSUMER s g c"),
    once("XGROUP DESTROY s g"),
    once("XTRIM s MAXLEN 0"),
    once("UNLINK s"),
    once("DEL h l z"),
    once("FLUSHDB"),
    once("FLUSHALL"),
];

/// The commands that may take longer with a larger state. `docs/limits.md` states what they cost.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    slow("KEYS"),
    slow("XINFO GROUPS"),
    slow("XINFO CONSUMERS"),
    slow("XINFO MISSED"),
    slow("XINFO STREAM s FULL"),
    slow("HGETALL"),
    slow("HKEYS"),
    slow("HVALS"),
    slow("SMEMBERS"),
    slow("CLIENT LIST"),
    slow("ACL LIST"),
    slow("ACL USERS"),
    slow("COPY"),
    slow("GET t"),
    slow("XTRIM s MAXLEN = 100 ACKED"),
    slow("MEMORY USAGE s"),
    slow("XPENDING s g"),
    slow("XPOLICY SET s LEASE"),
    slow("XPOLICY RESET s"),
    grows("SWAPDB"),
    grows("FLUSHDB"),
    grows("XTRIM"),
];
