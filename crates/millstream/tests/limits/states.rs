//! The states: each has much of one thing. The keys that the commands use exist in all of them: `s` is a stream with
//! the group `g`, `h` a hash, `l` a list, `z` a set, `t` a text.

use crate::connection::Connection;
use crate::support::process::Server;

/// A state, and how to create it.
pub(crate) struct State {
    pub(crate) name: &'static str,
    /// The number of things in the short form, which also uses four times this number.
    pub(crate) short: usize,
    /// The number in the long form.
    pub(crate) long: usize,
    pub(crate) build: fn(&Server, &mut Connection, usize) -> Vec<Connection>,
}

/// The number of groups beside pending entries.
const GROUPS: usize = 50;

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

pub(crate) fn base(to: &mut Connection) {
    let lines = [
        "XADD s 1-1 f v",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
        "HSET h f 1",
        "RPUSH l a b",
        "SADD z a",
        "SET t 1",
        "XADD other 1-1 f v",
    ];
    to.all(lines.map(words));
}

/// Adds entries to `s`. The ids follow 1-1.
pub(crate) fn entries(to: &mut Connection, count: usize) {
    to.all((0..count).map(|at| words(&format!("XADD s {}-1 f v", at + 2))));
}

pub(crate) fn deliver(to: &mut Connection, group: &str, count: usize) {
    let read = |_| words(&format!("XREADGROUP GROUP {group} c COUNT 1000 STREAMS s >"));
    to.all((0..count / 1000 + 1).map(read));
}

/// Adds groups to `s` that have read and not acknowledged all entries.
fn groups_with_pending(to: &mut Connection, groups: usize, count: usize) {
    entries(to, count);
    to.all((0..groups).map(|at| words(&format!("XGROUP CREATE s p{at} 0"))));
    (0..groups).for_each(|at| deliver(to, &format!("p{at}"), count));
}

macro_rules! state {
    ($name:literal, $short:expr, $long:expr, |$server:ident, $to:ident, $n:ident| $build:expr) => {
        State {
            name: $name,
            short: $short,
            long: $long,
            build: |$server, $to, $n| {
                base($to);
                let _ = &$server;
                $build
            },
        }
    };
}

/// Runs a command for each number below `count`.
fn each(to: &mut Connection, count: usize, line: impl Fn(usize) -> String) -> Vec<Connection> {
    to.all((0..count).map(|at| words(&line(at))));
    Vec::new()
}

pub(crate) const STATES: &[State] = &[
    state!("entries", 10_000, 5_000_000, |_server, to, n| {
        entries(to, n);
        Vec::new()
    }),
    state!("groups", 2_000, 60_000, |_server, to, n| {
        entries(to, 100);
        each(to, n, |at| format!("XGROUP CREATE s g{at} {id}", id = at % 100))
    }),
    state!("groups with names of 1 KB", 500, 60_000, |_server, to, n| {
        each(to, n, |at| format!("XGROUP CREATE s {at:01024} 0"))
    }),
    state!("groups with a lease", 1_000, 60_000, |_server, to, n| {
        to.all([words("XPOLICY SET s LEASE 100000 MAXDELIVER 3 CONSUMERTTL 1000000")]);
        each(to, n, |at| format!("XGROUP CREATE s g{at} 0"))
    }),
    state!("groups with a policy of their own", 1_000, 60_000, |_server, to, n| {
        to.all((0..n).map(|at| words(&format!("XGROUP CREATE s g{at} 0"))));
        each(to, n, |at| format!("XPOLICY SET s GROUP g{at} LEASE 100000 BACKOFF 1000 2000"))
    }),
    state!("pending entries of a group", 10_000, 2_000_000, |_server, to, n| {
        entries(to, n);
        deliver(to, "g", n);
        Vec::new()
    }),
    state!("pending entries with a lease", 10_000, 2_000_000, |_server, to, n| {
        to.all([words("XPOLICY SET s GROUP g LEASE 3600000 BACKOFF 1000 7200000")]);
        entries(to, n);
        // A read with a lease delivers as many.
        deliver(to, "g", n);
        Vec::new()
    }),
    state!("released entries", 5_000, 1_000_000, |_server, to, n| {
        entries(to, n);
        deliver(to, "g", n);
        let ids = |at: usize| (0..1000).map(move |id| format!("{}-1", at * 1000 + id + 2));
        let nack = |at| words("XNACK s g FAIL IDS 1000").into_iter().chain(ids(at)).collect();
        to.all((0..n / 1000).map(nack));
        Vec::new()
    }),
    state!("groups with pending entries", 20, 3_000, |_server, to, n| {
        groups_with_pending(to, n, 10_000);
        Vec::new()
    }),
    state!("pending entries of several groups", 500, 100_000, |_server, to, n| {
        groups_with_pending(to, GROUPS, n);
        Vec::new()
    }),
    state!("consumers of a group", 5_000, 500_000, |_server, to, n| {
        each(to, n, |at| format!("XGROUP CREATECONSUMER s g c{at}"))
    }),
    state!("consumers with names of 1 KB", 1_000, 200_000, |_server, to, n| {
        each(to, n, |at| format!("XGROUP CREATECONSUMER s g {at:01024}"))
    }),
    state!("consumers with CONSUMERTTL", 5_000, 500_000, |_server, to, n| {
        to.all([words("XPOLICY SET s LEASE 100000 CONSUMERTTL 1000000")]);
        each(to, n, |at| format!("XGROUP CREATECONSUMER s g c{at}"))
    }),
    state!("delayed entries of a stream", 5_000, 1_000_000, |_server, to, n| {
        each(to, n, |at| format!("XADD s *+{delay} f v", delay = 1_000_000 + at % 1000))
    }),
    state!("streams with delayed entries", 5_000, 700_000, |_server, to, n| {
        each(to, n, |at| format!("XADD d{at} *+{delay} f v", delay = 1_000_000 + at % 1000))
    }),
    state!("streams with policies", 5_000, 300_000, |_server, to, n| {
        to.all((0..n).map(|at| words(&format!("XADD p{at} * f v"))));
        each(to, n, |at| format!("XPOLICY SET p{at} MAXAGE 100000000"))
    }),
    state!("keys", 20_000, 3_000_000, |_server, to, n| each(to, n, |at| format!("SET k{at} v"))),
    state!("keys that expire", 20_000, 2_000_000, |_server, to, n| each(to, n, |at| format!(
        "SET k{at} v EX 100000"
    ))),
    state!("fields of a hash", 20_000, 2_000_000, |_server, to, n| each(to, n, |at| format!(
        "HSET h f{at} v"
    ))),
    state!("members of a set", 20_000, 2_000_000, |_server, to, n| each(to, n, |at| format!("SADD z m{at}"))),
    state!("elements of a list", 20_000, 2_000_000, |_server, to, n| each(to, n, |at| format!(
        "RPUSH l e{at}"
    ))),
    state!("remembered messages of a producer", 5_000, 10_000, |_server, to, n| {
        to.all([words("XCFGSET s IDMP-DURATION 86400 IDMP-MAXSIZE 10000")]);
        each(to, n, |at| format!("XADD s IDMP p i{at} * f v"))
    }),
    state!("users", 500, 20_000, |_server, to, n| each(to, n, |at| format!(
        "ACL SETUSER u{at} on nopass ~k* +@all"
    ))),
    state!("clients", 200, 4_000, |server, _to, n| (0..n).map(|_| Connection::new(server)).collect()),
    state!("clients blocked on a key", 200, 4_000, |server, _to, n| {
        let block = |_| {
            let mut client = Connection::new(server);
            client.send(&["BLPOP", "nothing", "0"]);
            client
        };
        (0..n).map(block).collect()
    }),
    state!("clients blocked in a group", 200, 4_000, |server, _to, n| {
        let block = |at| {
            let mut client = Connection::new(server);
            client.send(&words(&format!("XREADGROUP GROUP g b{at} BLOCK 0 STREAMS s >")));
            client
        };
        (0..n).map(block).collect()
    }),
    state!("keys that a client watches", 5_000, 65_000, |server, _to, n| {
        let mut client = Connection::new(server);
        client.all((0..n).map(|at| words(&format!("WATCH k{at}"))));
        vec![client]
    }),
    state!("bytes of a key name", 200_000, 8_000_000, |_server, to, n| {
        to.all([vec!["SET".into(), "a".repeat(n), "v".into()]]);
        Vec::new()
    }),
    state!("bytes of a text", 200_000, 8_000_000, |_server, to, n| {
        to.all([vec!["SET".into(), "t2".into(), "a".repeat(n)]]);
        Vec::new()
    }),
];
