//! `maxmemory` and `maxmemory-clients` in a real process: what is counted, what is refused, and that a full server
//! loses nothing and can be emptied.
//!
//! `MILLSTREAM_MEMORY_MB=512` runs the load in a control group of this size, with `maxmemory auto`. This needs the
//! right to create control groups.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_worker::backend::{
    Acknowledgement, Consumer, ErrorKind, NewDeadLetter, NewEntry, Read as ReadGroup, Release, Retry, Start,
};

use millstream_worker::retry_record::RetryRecord;

use crate::process::{Client, Server, TempDir, eventually, request};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
const MIB: u64 = 1024 * 1024;

/// Returns a number of INFO.
fn info(client: &mut Client, field: &str) -> u64 {
    let text = client.ask(&["INFO everything"]);
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().parse().expect("a number")
}

/// Sends requests and waits until all replies have arrived. Each reply is a line that begins with `reply`.
fn pipeline(client: &mut Client, requests: impl Iterator<Item = String>, reply: &str) {
    let (mut bytes, mut count) = (String::new(), 0);
    for request in requests {
        bytes.push_str(&request);
        count += 1;
    }
    client.send(bytes);
    let mut lines = 0;
    let (mut piece, mut rest) = (vec![0; 65_536], Vec::new());
    while lines < count {
        let size = client.stream.read(&mut piece).expect("replies");
        assert_ne!(size, 0, "the server closed the connection");
        rest.extend_from_slice(&piece[..size]);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line).into_owned();
            assert!(text.starts_with(reply) || !text.starts_with(['-', '$', '+', ':']), "{text}");
            lines += usize::from(text.starts_with(['-', '$', '+', ':']));
        }
    }
}

#[test]
fn the_count_is_close_to_resident_memory() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    type MakeRequest = fn(usize) -> String;
    let fills: [(&str, MakeRequest, &str); 2] = [
        // With this number of keys, the tables are nearly full. A table that has just doubled counts in full, although
        // the system gives it memory only when it fills.
        ("small keys", |i| request(&["SET", &format!("key:{i}"), &format!("value {i}")]), "+OK"),
        ("entries of 100 bytes", |_| request(&["XADD", "s", "*", "field", &"x".repeat(100)]), "$"),
    ];
    for (what, make, reply) in fills {
        let (used, resident) = (info(&mut client, "used_memory"), server.resident_bytes());
        for chunk in 0..125 {
            pipeline(&mut client, (chunk * 1000..(chunk + 1) * 1000).map(make), reply);
        }
        let counted = info(&mut client, "used_memory") - used;
        let grown = server.resident_bytes() - resident;
        assert!(grown > 10 * MIB, "{what}: {grown} bytes");
        let ratio = counted as f64 / grown as f64;
        assert!((0.9..1.1).contains(&ratio), "{what}: counted {counted} of {grown}, {ratio:.3}");
    }
    assert!(client.ask(&["INFO memory"]).contains("mem_fragmentation_ratio:1."));
    let before = info(&mut client, "used_memory");
    client.call("FLUSHALL", "+OK\r\n");
    eventually("the memory is free again", || info(&mut client, "used_memory") < before / 4);
    assert!(info(&mut client, "used_memory_peak") >= before);
}

#[test]
fn everything_that_clients_hold_is_counted() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut observer = server.connect();
    let keys: Vec<String> = (0..20_000).map(|i| format!("key:{i}")).collect();
    let mut watching = vec!["WATCH"];
    watching.extend(keys.iter().map(String::as_str));
    let mut blocking = vec!["XREAD", "BLOCK", "0", "STREAMS"];
    blocking.extend(keys.iter().map(String::as_str));
    blocking.extend(keys.iter().map(|_| "$"));
    let incomplete = format!("*1000000\r\n{}", "$1\r\nx\r\n".repeat(100_000));
    let queued = format!("MULTI\r\n{}", request(&["PING", &"x".repeat(2_000_000)]));
    let holds = [
        ("watched keys", request(&watching), Some("+OK\r\n")),
        ("blocked keys", request(&blocking), None),
        ("queued commands", queued, Some("+OK\r\n+QUEUED\r\n")),
        ("an incomplete request with many arguments", incomplete, None),
    ];
    for (what, bytes, reply) in holds {
        let before = info(&mut observer, "used_memory");
        let clients = info(&mut observer, "mem_clients_normal");
        let mut client = server.connect();
        client.send(bytes);
        if let Some(reply) = reply {
            client.expect(reply);
        }
        eventually(what, || info(&mut observer, "mem_clients_normal") > clients + MIB);
        let grown = info(&mut observer, "used_memory").saturating_sub(before) as f64;
        let told = (info(&mut observer, "mem_clients_normal") - clients) as f64;
        assert!(
            (0.5..2.0).contains(&(told / grown)),
            "{what}: used_memory {grown}, mem_clients_normal {told}"
        );
        drop(client);
        eventually("the client is gone", || info(&mut observer, "mem_clients_normal") < clients + MIB);
    }
}

#[test]
fn clients_that_use_most_memory_are_closed_first() {
    let server = Server::start(&["--appendonly", "no", "--maxmemory-clients", "4mb"]);
    let mut observer = server.connect();
    let part = |arguments: usize| format!("*1000000\r\n{}", "$1\r\nx\r\n".repeat(arguments));
    // This client uses more than the limit, but may not be closed.
    let mut exempt = server.connect();
    exempt.call("CLIENT NO-EVICT ON", "+OK\r\n");
    exempt.send("*2\r\n$4\r\nECHO\r\n$2000000\r\n");
    exempt.send("x".repeat(1_900_000));
    eventually("the exempt client counts", || info(&mut observer, "mem_clients_normal") > MIB);
    let mut small = server.connect();
    small.send("*2\r\n$4\r\nECHO\r\n$200\r\n");
    let mut large: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut large {
        // The server may close the connection while it still receives.
        let _ = client.stream.write_all(part(20_000).as_bytes());
    }
    eventually("clients are closed", || {
        info(&mut observer, "evicted_clients") > 0 && info(&mut observer, "mem_clients_normal") <= 4 * MIB
    });
    let evicted = info(&mut observer, "evicted_clients");
    assert!((1..=20).contains(&evicted), "{evicted}");
    // The others go on.
    small.send(format!("{}\r\n", "y".repeat(200)));
    small.expect(&format!("$200\r\n{}\r\n", "y".repeat(200)));
    exempt.send(format!("{}\r\n", "x".repeat(100_000)));
    exempt.expect("$2000000\r\n");
    // Without a limit, no client is closed.
    observer.call("CONFIG SET maxmemory-clients 0", "+OK\r\n");
    let mut last = server.connect();
    last.send(part(1_000_000));
    last.expect("-ERR unknown command 'x'");
    assert_eq!(info(&mut observer, "evicted_clients"), evicted);
}

/// A few hundred bytes ask for replies of hundreds of megabytes, which nobody reads.
#[test]
fn unread_replies_leave_room_for_data() {
    let server = Server::start(&["--appendonly", "no", "--maxmemory", "200mb"]);
    let mut observer = server.connect();
    for _ in 0..10 {
        observer.send(request(&["XADD", "s", "*", "field", &"x".repeat(1 << 20)]));
        observer.line();
        observer.line();
    }
    // Together they may use half of what is left, about 90 MiB. One reply of 60 MiB fits, one of 200 MiB is not even
    // written.
    for (reads, closed) in [(6, "evicted_clients"), (20, "client_output_buffer_limit_disconnections")] {
        let readers: Vec<Client> = (0..8)
            .map(|_| {
                let mut reader = server.connect();
                reader.send(format!("MULTI\r\n{}EXEC\r\n", "XRANGE s - +\r\n".repeat(reads)));
                reader
            })
            .collect();
        eventually(closed, || info(&mut observer, closed) >= 7);
        eventually("the memory is free", || info(&mut observer, "mem_clients_normal") < 80 * MIB);
        let resident = server.resident_bytes();
        assert!(resident < 350 * MIB, "{closed}: {resident} bytes");
        let reply = observer.ask(&["XADD s * a b"]);
        assert!(reply.starts_with('$'), "{reply}");
        drop(readers);
        eventually("they are gone", || info(&mut observer, "connected_clients") == 1);
    }
    let setting = "*2\r\n$17\r\nmaxmemory-clients\r\n$4\r\nauto\r\n";
    observer.call("CONFIG GET maxmemory-clients", setting);
    observer.call("CONFIG SET maxmemory-clients 0", "+OK\r\n");
    observer.call("CONFIG SET maxmemory-clients auto", "+OK\r\n");
    observer.call("CONFIG GET maxmemory-clients", setting);
}

/// A dead letter can be long: a transaction of two commands has no limit of its own. A longer one has.
#[test]
fn transactions_above_the_limit_are_small() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    client.ask(&[
        "XADD s 1-1 a b",
        "XADD s 2-1 a b",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c STREAMS s >",
    ]);
    client.call("CONFIG SET maxmemory 1", "+OK\r\n");
    let long = "x".repeat(3 << 20);
    client.call("MULTI", "+OK\r\n");
    client.send(request(&["XADD", "s:dlq", "1-1", "field", &long]));
    client.send(request(&["XACK", "s", "g", "1-1"]));
    client.call("EXEC", "+QUEUED\r\n+QUEUED\r\n*2\r\n$3\r\n1-1\r\n:1\r\n");
    client.call("MULTI", "+OK\r\n");
    client.send(request(&["XADD", "s:dlq", "2-1", "field", &long]));
    client.send(request(&["XACK", "s", "g", "2-1"]));
    client.call("GET k", &format!("+QUEUED\r\n+QUEUED\r\n{OOM}"));
    client.call("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.call("XLEN s:dlq", ":1\r\n");
}

/// Otherwise the name of the stream would be copied for each acknowledged entry.
#[test]
fn acknowledging_many_entries_of_a_long_key_takes_little_memory() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    let key = "k".repeat(100_000);
    let ids: Vec<String> = (1..=2_000).map(|number| format!("{number}-0")).collect();
    pipeline(&mut client, ids.iter().map(|id| request(&["XADD", "s", id, "a", "b"])), "$");
    client.call("XGROUP CREATE s g 0", "+OK\r\n");
    client.ask(&["XREADGROUP GROUP g c STREAMS s >"]);
    client.send(request(&["RENAME", "s", &key]));
    client.expect("+OK\r\n");
    client.call("CONFIG SET maxmemory 1", "+OK\r\n");
    let peak = info(&mut client, "used_memory_peak");
    let mut ack = vec!["XACK", &key, "g"];
    ack.extend(ids.iter().map(String::as_str));
    client.call("MULTI", "+OK\r\n");
    client.send(request(&ack));
    client.expect("+QUEUED\r\n");
    client.call("EXEC", "*1\r\n:2000\r\n");
    let added = info(&mut client, "used_memory_peak") - peak;
    assert!(added < 20 * MIB, "{added} bytes");
}

/// A read can create a consumer in each of many streams, and make many entries pending. So a short command could add
/// much more than its length.
#[test]
fn reading_uses_twice_the_reserve_above_the_limit_and_no_more() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    let keys: Vec<String> = (0..500).map(|number| format!("s{number}")).collect();
    pipeline(&mut client, keys.iter().map(|key| format!("XGROUP CREATE {key} g $ MKSTREAM\r\n")), "+");
    client.ask(&["XADD s0 1-1 a b", "XREADGROUP GROUP g known STREAMS s0 >", "XADD many 1-1 a b"]);
    pipeline(&mut client, (0..60_000).map(|_| "XADD many * a b\r\n".to_owned()), "$");
    pipeline(&mut client, (0..15).map(|group| format!("XGROUP CREATE many g{group} 0\r\n")), "+");
    client.call("XPOLICY SET many LEASE 604800000 MAXDELIVER 1", "+OK\r\n");
    let read = |consumer: &str| {
        let mut args = vec!["XREADGROUP", "GROUP", "g", consumer, "STREAMS"];
        args.extend(keys.iter().map(String::as_str));
        args.extend([">"; 500]);
        request(&args)
    };
    // Consumers may use 32 MiB more than what is in use now.
    client.call("CONFIG SET maxmemory 1mb", "+OK\r\n");
    let used = info(&mut client, "used_memory");
    let refused = (0..20).find(|number| {
        client.send(read(&format!("{number:01024}")));
        let line = client.line();
        assert!(line == "*-1" || line == OOM.trim_end(), "{line}");
        line != "*-1"
    });
    assert_eq!(refused, None, "20 MiB fit");
    let refused = (0..15).find(|group| {
        let reply = client.ask(&[&format!("XREADGROUP GROUP g{group} c STREAMS many >")]);
        assert!(reply.starts_with("*1\r\n") || reply == OOM);
        reply == OOM
    });
    let added = info(&mut client, "used_memory") - used;
    assert!(refused.is_some() && (30 * MIB..40 * MIB).contains(&added), "{refused:?}, {added} bytes");
    for new in [
        "XREADGROUP GROUP g known STREAMS s0 >",
        "XREADGROUP GROUP g new STREAMS s0 0",
        "XREADGROUP GROUP g new CLAIM 0 STREAMS s0 >",
        "XCLAIM s0 g known 0 1-1",
        "XAUTOCLAIM s0 g new 0 0",
        "XNACK s0 g FAIL IDS 1 1-1 DELAY 1000",
        "XGROUP CREATECONSUMER s0 g new",
        "XDEL many 1-1",
        "XDELEX many KEEPREF IDS 1 1-1",
        "XPOLICY SET s0 LEASE 1000",
        "ACL SETUSER somebody ~key",
        "RENAME s1 longer",
    ] {
        client.call(new, OOM);
    }
    client.call("MULTI", "+OK\r\n");
    client.call("XREADGROUP GROUP g known STREAMS s0 >", OOM);
    client.call("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    assert!(!client.ask(&["XINFO CONSUMERS s0 g"]).contains("new"));
    // Consumers can still acknowledge what they have, and an operator can help.
    let own = client.ask(&["XREADGROUP GROUP g known STREAMS s0 0"]);
    assert!(own.contains("1-1"), "{own}");
    client.call("XADOPT s0 g known other", ":1\r\n");
    client.call("XACK s0 g 1-1", ":1\r\n");
    client.call("XDELEX many DELREF IDS 1 1-1", "*1\r\n:1\r\n");
    client.call("XPOLICY SET s0 MAXLEN 1", "+OK\r\n");
    client.call("ACL SETUSER default resetchannels", "+OK\r\n");
    client.call("RENAME s1 t1", "+OK\r\n");
    // Consumers can empty a server whose data exceeds the limit.
    client.call("CONFIG SET maxmemory 0", "+OK\r\n");
    client.call("XGROUP CREATE s0 late 0", "+OK\r\n");
    client.call("CONFIG SET maxmemory 1", "+OK\r\n");
    assert!(client.ask(&["XREADGROUP GROUP late new COUNT 1 STREAMS s0 >"]).contains("1-1"));
}

#[test]
fn new_names_have_at_most_1024_bytes() {
    const TOO_LONG: &str = "-ERR the name is too long: it can have at most 1024 bytes\r\n";
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    client.ask(&["XADD s 1-1 a b", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"]);
    client.ask(&["XGROUP CREATE t g 0 MKSTREAM"]);
    for (length, is_refused) in [(1025, true), (1024, false)] {
        let name = |first: &str| format!("{first}{}", "n".repeat(length - 1));
        for (command, reply) in [
            (format!("XGROUP CREATE s {} 0", name("a")), "+OK\r\n"),
            (format!("XGROUP CREATE new{length} {} 0 MKSTREAM", name("b")), "+OK\r\n"),
            (format!("XGROUP CREATECONSUMER s g {}", name("c")), ":1\r\n"),
            (format!("XREADGROUP GROUP g {} STREAMS s >", name("d")), "*-1\r\n"),
            (format!("XREADGROUP GROUP g {} STREAMS s t > >", name("d")), "*-1\r\n"),
            (format!("XREADGROUP GROUP g {} STREAMS s 0", name("e")), "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n"),
            (format!("XREADGROUP GROUP g {} CLAIM 9999 STREAMS s >", name("f")), "*-1\r\n"),
            (format!("XCLAIM s g {} 9999 1-1", name("g")), "*0\r\n"),
            (format!("XAUTOCLAIM s g {} 9999 0", name("h")), "*3\r\n$3\r\n0-0\r\n*0\r\n*0\r\n"),
            (format!("XADOPT s g c {}", name("i")), ":1\r\n"),
            (format!("ACL SETUSER {}", name("j")), "+OK\r\n"),
            (format!("CLIENT SETNAME {}", name("k")), "+OK\r\n"),
            (format!("CLIENT SETINFO LIB-NAME {}", name("l")), "+OK\r\n"),
            (format!("CLIENT SETINFO LIB-VER {}", name("m")), "+OK\r\n"),
        ] {
            client.call(&command, if is_refused { TOO_LONG } else { reply });
        }
    }
    client.call("EXISTS new1025 new1024", ":1\r\n");
}

#[test]
fn copies_fit_into_the_limit_also_in_a_transaction() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    client.send(request(&["SET", "k", &"x".repeat(4 << 20)]));
    client.expect("+OK\r\n");
    let limit = info(&mut client, "used_memory") + 6 * MIB;
    client.call(&format!("CONFIG SET maxmemory {limit}"), "+OK\r\n");
    client.call("MULTI", "+OK\r\n");
    for copy in ["a", "b", "c"] {
        client.call(&format!("COPY k {copy}"), "+QUEUED\r\n");
    }
    client.call("EXEC", &format!("*3\r\n:1\r\n{OOM}{OOM}"));
    client.call("COPY k a", OOM);
    assert!(info(&mut client, "used_memory") <= limit);
    client.call("CONFIG SET maxmemory 0", "+OK\r\n");
    client.call("COPY k b", ":1\r\n");
}

#[test]
fn dead_letters_use_a_reserve_above_the_limit_and_no_more() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    client.ask(&["XADD s 1-1 a b", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"]);
    // More than the limit and the reserve of 16 MiB.
    client.send(request(&["SET", "large", &"x".repeat(20 << 20)]));
    client.expect("+OK\r\n");
    client.call("CONFIG SET maxmemory 1mb", "+OK\r\n");
    let transaction = ["MULTI", "XADD s:dlq 1-1 a b", "XACK s g 1-1", "EXEC"];
    let refused = client.ask(&transaction);
    assert!(
        refused.ends_with(&format!("EXECABORT Transaction discarded because of: {}", &OOM[1..])),
        "{refused}"
    );
    client.call("DEL large", ":1\r\n");
    // Another thread may free the value.
    eventually("the dead letter fits", || client.ask(&transaction).ends_with("*2\r\n$3\r\n1-1\r\n:1\r\n"));
}

/// A few bytes make the server copy a large entry, again and again.
#[test]
fn dead_letters_of_a_policy_stop_at_the_reserve_and_go_on_when_there_is_memory() {
    let server = Server::start(&["--appendonly", "no", "--maxmemory", "40mb"]);
    let mut client = server.connect();
    client.send(request(&["XADD", "s", "1-1", "field", &"x".repeat(8 << 20)]));
    client.expect("$3\r\n1-1\r\n");
    client.ask(&["XGROUP CREATE s g 0", "XPOLICY SET s GROUP g LEASE 100 MAXDELIVER 5 DLQ dead"]);
    let is_stuck = |client: &mut Client| info(client, "policy_dead_letter_errors") > 0;
    let is_pending = |client: &mut Client| !client.ask(&["XPENDING s g"]).starts_with("*4\r\n:0\r\n");
    for _ in 0..20 {
        client.call("XNACK s g FATAL IDS 1 1-1 FORCE", ":1\r\n");
        eventually("the letter is written or refused", || is_stuck(&mut client) || !is_pending(&mut client));
    }
    // The limit and its reserve are 56 MiB. A dead letter exists twice while it is written.
    let peak = info(&mut client, "used_memory_peak");
    assert!(is_stuck(&mut client) && is_pending(&mut client) && peak < 64 * MIB, "{peak} bytes");
    let policy = client.ask(&["XPOLICY GET s GROUP g"]);
    assert!(policy.contains("dead: memory is full"), "{policy}");
    client.call("DEL dead", ":1\r\n");
    eventually("the letter is written", || !is_pending(&mut client));
    client.call("XLEN dead", ":1\r\n");
    assert!(!client.ask(&["XPOLICY GET s GROUP g"]).contains("memory is full"));
}

#[tokio::test]
async fn a_worker_acknowledges_and_dead_letters_above_the_limit() {
    let server = Server::start(&["--appendonly", "no"]);
    let backend = millstream_worker::connect(&format!("redis://127.0.0.1:{}", server.port)).await.unwrap();
    let entry = || NewEntry { fields: vec![("n".into(), "1".into())], idempotence: None };
    backend.create_group("s", "g", Start::Beginning).await.unwrap();
    let ids = backend.add("s", &[entry(), entry(), entry(), entry()], None).await.unwrap();
    let read = ReadGroup { stream: "s", group: "g", consumer: "c", count: 10, block: None, claim_idle: None };
    assert_eq!(backend.read(&read).await.unwrap().len(), 4);
    server.connect().call("CONFIG SET maxmemory 1", "+OK\r\n");
    let refused = backend.add("s", &[entry()], None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotWritable, "{refused}");

    let consumer = Consumer { stream: "s", group: "g", name: "c" };
    assert_eq!(backend.extend(consumer, &ids).await.unwrap(), ids);
    let dead_letter = NewDeadLetter { origin: ids[0], to: "s:dlq".into(), fields: entry().fields };
    assert_eq!(backend.dead_letter(consumer, &[dead_letter]).await.unwrap(), ids[..1]);
    let done = Acknowledgement {
        ids: vec![ids[1]],
        remember: vec![("done:1".into(), Duration::from_secs(60))],
        forget: Vec::new(),
    };
    assert_eq!(backend.acknowledge("s", "g", &done).await.unwrap(), 1);
    assert_eq!(backend.seen(&["done:1".into()]).await.unwrap(), [true]);
    let release = Release::counted(ids[2], 1);
    assert_eq!(backend.release(consumer, &[release]).await.unwrap(), 1);
    let record = RetryRecord { attempts: 1, ..RetryRecord::default() };
    let retry = Some(Retry { after: Duration::from_secs(60), record });
    let waiting = Release { retry, ..Release::uncounted(ids[3], 1) };
    assert_eq!(backend.release(consumer, &[waiting]).await.unwrap(), 1);
    assert_eq!(backend.hash_len("{s}:retry:g").await.unwrap(), 1);
    let one = format!("MULTI\r\nHSET h a 1 b 2\r\nXNACK s g SILENT IDS 1 {}\r\nEXEC", ids[3]);
    assert!(server.connect().ask(&one.split("\r\n").collect::<Vec<_>>()).contains("EXECABORT"));
    let adopted = server.connect().ask(&["XADOPT s g c d", "XLEN s:dlq", "XPENDING s g"]);
    assert!(adopted.starts_with(":0\r\n:1\r\n*4\r\n:2\r\n"), "{adopted}");
}

/// The limit of the load, and the control group that the server runs in.
struct Load {
    maxmemory: String,
    group: Option<ControlGroup>,
}

impl Load {
    fn chosen() -> Load {
        match std::env::var("MILLSTREAM_MEMORY_MB").ok() {
            None => Load { maxmemory: "40mb".into(), group: None },
            Some(mb) => {
                let mb: u64 = mb.parse().expect("MILLSTREAM_MEMORY_MB is a number");
                Load { maxmemory: "auto".into(), group: Some(ControlGroup::create(mb * MIB)) }
            }
        }
    }

    fn start(&self, dir: &TempDir) -> Server {
        let flags = ["--maxmemory", &self.maxmemory, "--appendfsync", "everysec"];
        match &self.group {
            None => Server::start_in(dir, &flags),
            Some(group) => Server::start_in_group(dir, &group.procs(), &flags),
        }
    }
}

/// A control group with a memory limit, removed on drop.
struct ControlGroup {
    path: PathBuf,
    bytes: u64,
}

impl ControlGroup {
    fn create(bytes: u64) -> ControlGroup {
        let name = format!("millstream-test-{}", std::process::id());
        let versions = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, file) in versions {
            let path = Path::new(root).join(&name);
            if Path::new(root).exists() && fs::create_dir(&path).is_ok() {
                let group = ControlGroup { path, bytes };
                if fs::write(group.path.join(file), bytes.to_string()).is_ok() {
                    return group;
                }
            }
        }
        panic!("cannot create a control group with a memory limit: run this test as root");
    }

    /// The file that moves a process into the group.
    fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Fails while a process of the group is ending.
        let began = Instant::now();
        while fs::remove_dir(&self.path).is_err() && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Adds entries of 1 KB until one is refused. Returns how many were acknowledged.
fn produce(mut client: Client, producer: usize) -> usize {
    let value = "x".repeat(1000);
    let mut acknowledged = 0;
    loop {
        let adds: String =
            (0..50).map(|n| request(&["XADD", "s", "*", &format!("{producer}:{n}"), &value])).collect();
        client.send(adds);
        let mut is_full = false;
        for _ in 0..50 {
            let line = client.line();
            if line.starts_with('$') {
                client.line();
                acknowledged += 1;
            } else {
                assert_eq!(format!("{line}\r\n"), OOM);
                is_full = true;
            }
        }
        if is_full {
            return acknowledged;
        }
    }
}

/// Reads and acknowledges entries until `stop` is set and none are left. Returns how many.
fn consume(mut client: Client, name: &str, stop: &AtomicBool, done: &AtomicUsize) {
    loop {
        let was_stopped = stop.load(Ordering::Relaxed);
        let reply = client.ask(&[&format!("XREADGROUP GROUP g {name} COUNT 100 STREAMS s >")]);
        let ids: BTreeSet<&str> = reply
            .lines()
            .filter(|line| line.split_once('-').is_some_and(|(ms, _)| ms.len() == 13 && !line.contains(' ')))
            .collect();
        if !ids.is_empty() {
            let ids = ids.into_iter().collect::<Vec<_>>();
            let acknowledged = client.ask(&[&format!("XACK s g {}", ids.join(" "))]);
            assert_eq!(acknowledged, format!(":{}\r\n", ids.len()));
            done.fetch_add(ids.len(), Ordering::Relaxed);
        } else if was_stopped {
            return;
        }
    }
}

#[test]
fn a_full_server_serves_consumers_loses_nothing_and_can_be_emptied() {
    let (load, dir, began) = (Load::chosen(), TempDir::new(), Instant::now());
    let server = load.start(&dir);
    let mut client = server.connect();
    let limit = info(&mut client, "maxmemory");
    if let Some(group) = &load.group {
        assert_eq!(limit, group.bytes * 80 / 100, "80 % of the control group");
        assert!(server.greeting.contains("80 % of the"), "{}", server.greeting);
        assert!(server.greeting.contains("control group"), "{}", server.greeting);
    }
    client.call("XGROUP CREATE s g 0 MKSTREAM", "+OK\r\n");
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let added: usize = thread::scope(|scope| {
        let consumers: Vec<_> = ["c1", "c2"]
            .map(|name| {
                let (client, stop, done) = (server.connect(), &stop, &done);
                scope.spawn(move || consume(client, name, stop, done))
            })
            .into();
        let producers: Vec<_> = (0..4)
            .map(|number| {
                let client = server.connect();
                scope.spawn(move || produce(client, number))
            })
            .collect();
        let added = producers.into_iter().map(|producer| producer.join().expect("it produces")).sum();
        // The server is full: the consumers go on until all entries are acknowledged.
        stop.store(true, Ordering::Relaxed);
        consumers.into_iter().for_each(|consumer| consumer.join().expect("it consumes"));
        added
    });
    assert_eq!(done.load(Ordering::Relaxed), added, "every entry was delivered and acknowledged once");
    let (used, resident, peak) =
        (info(&mut client, "used_memory"), server.resident_bytes(), server.peak_bytes());
    println!(
        "limit {limit}, used {used}, resident {resident}, peak {peak}, entries {added}, {:?}",
        began.elapsed()
    );
    assert!((limit / 10 * 9..limit / 10 * 11).contains(&used), "{used} of {limit}");
    assert!(peak < limit + limit / 5 + 32 * MIB, "{peak} of {limit}");
    let errors = client.ask(&["INFO errorstats"]);
    assert!(errors.contains("errorstat_OOM:count="), "{errors}");
    client.call("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n");
    server.signal("-KILL");
    server.wait();

    // It starts although its data exceeds a lower limit, and says so. All entries are there.
    let server = match &load.group {
        None => Server::start_in(&dir, &["--maxmemory", "20mb"]),
        Some(_) => load.start(&dir),
    };
    if load.group.is_none() {
        let line = "more than maxmemory (20.00M): the server refuses commands that add data";
        assert!(server.greeting.contains(line), "{}", server.greeting);
    }
    let mut client = server.connect();
    client.call("XLEN s", &format!(":{added}\r\n"));
    let pending = client.ask(&["XPENDING s g"]);
    assert!(pending.starts_with("*4\r\n:0\r\n"), "{pending}");
    client.call("CONFIG SET maxmemory 20mb", "+OK\r\n");
    client.call("XADD s * a b", OOM);
    client.call("XTRIM s MAXLEN 100", &format!(":{}\r\n", added - 100));
    // Another thread frees the memory.
    eventually("XADD works", || client.ask(&["XADD s * a b"]).starts_with('$'));
    client.call("XLEN s", ":101\r\n");
    server.signal("-TERM");
    let (log, status) = server.wait();
    assert!(status.success(), "{log}");
}
