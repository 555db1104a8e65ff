//! Latency of small requests of well-behaved clients while a hostile client attacks the server.
//!
//! Each attack runs on a fresh server, from one thread, for at most a few seconds.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::hostile::{Flood, connect, connect_and_log_in, connect_to_tls, drain};
use crate::options::Options;
use crate::probe::Probe;
use crate::server::{PASSWORD, Persistence, Server, Setup};
use crate::stats::Latencies;
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::clients::{read_blocking, waited_key};
use crate::topics::{Case, Group, Repetitions, tls};
use crate::wire::encoded as command;

pub(crate) static TABLE: Table = Table {
    topic: "attacks",
    heading: "Stalls under attack",
    intro: "Every millisecond one client that has logged in sends PING and another sends XADD, without \
            pipelining, while a hostile client does what the row says, for about two seconds or a fixed number \
            of times. Each attack runs on one thread, against a fresh server with persistence off, a password, \
            and at most 256 MB of unsent replies per client. A half-open handshake is the first half of a \
            ClientHello, and then silence. `maxmemory` is 64 MB in the row that fills the memory. The attack, the two measuring clients and the \
            server share the cores of the machine, so compare the lines of a row: they are from the same run. \
            A stall also counts for the requests that would have been sent meanwhile, each with the rest of \
            the time.",
    layout: Layout::ByServer,
    columns: &[
        column("ping_p50_us", "PING p50, µs", Compare::No),
        column("ping_p99_us", "PING p99, µs", Compare::No),
        column("ping_worst_ms", "PING worst, ms", Compare::Less),
        column("xadd_p99_us", "XADD p99, µs", Compare::No),
        column("xadd_worst_ms", "XADD worst, ms", Compare::Less),
    ],
};

/// A prepared attack.
type Ready<'a> = Box<dyn FnOnce() -> Result<(), Failure> + 'a>;
/// Does what must be done before the measurement, and returns the attack.
type Prepare = for<'a> fn(&'a Server, &'a Options) -> Result<Ready<'a>, Failure>;
/// Name, title, setup of the server, and the attack.
type Attack = (&'static str, &'static str, Setup, Prepare);

const OPEN: Setup =
    Setup { persistence: Persistence::Off, is_exposed: true, has_memory_limit: false, has_tls: false };
const WITH_TLS: Setup = Setup { has_tls: true, ..OPEN };
const WITH_LIMIT: Setup = Setup { has_memory_limit: true, ..OPEN };

#[rustfmt::skip]
const ATTACKS: &[Attack] = &[
    ("none", "no attack", OPEN, none),
    ("hash-flood", "SADD of 80,000 colliding members, 5 times", OPEN, hash_flood),
    ("mget", "MGET of 1 MiB 2,500 times, 3 times", OPEN, mget),
    ("block-many", "XREAD BLOCK on 65,536 keys, 5 times", OPEN, block_many),
    ("flushall", "FLUSHALL, 200 clients blocked on 500 keys each, 5 times", OPEN, flush_waited),
    ("exec", "EXEC of 100,000 XADDs that wake 200 clients", OPEN, exec_waited),
    ("watch", "WATCH of 60,000 keys, once", OPEN, watch),
    ("auth", "AUTH guesses, 4 connections", OPEN, auth),
    ("garbage", "garbage and reconnect, 4 connections", OPEN, garbage),
    ("tls-hello", "TLS to the plain port, 4 connections", OPEN, tls_hello),
    ("stranger-ping", "PINGs without login, 4 connections", OPEN, stranger_ping),
    ("connects", "5,000 connects per second", OPEN, connects),
    ("keys-glob", "KEYS with a hostile pattern, 10 times", OPEN, keys_glob),
    ("xrange-unread", "XRANGE of 20 MB, 20 clients that do not read", OPEN, xrange),
    ("pipelines", "pipelines of 10,000 XADDs, 4 connections", OPEN, pipelines),
    ("tls-half-open", "500 half-open TLS handshakes", WITH_TLS, half_open_handshakes),
    ("memory-full", "XADDs of 10 KB until maxmemory and beyond, 4 connections", WITH_LIMIT, fill_memory),
];

pub(crate) fn groups() -> Vec<Group> {
    let group = |&(name, title, setup, prepare): &Attack| {
        let measured = move |server: &mut Server, options: &Options| measure(server, setup, prepare, options);
        let case = Case::new(&TABLE, name, title, measured).repeated(Repetitions::Few).with_setup(setup);
        let programs = if setup.has_tls { tls::with_tls } else { |options: &Options| options.startable() };
        Group::fresh(programs, vec![case])
    };
    ATTACKS.iter().map(group).collect()
}

fn measure(server: &Server, setup: Setup, prepare: Prepare, options: &Options) -> Result<Sample, Failure> {
    let ready = prepare(server, options)?;
    let quiet = options.sized(Duration::from_millis(50), Duration::from_millis(10));
    // A server whose memory is full refuses XADD.
    let probe = if setup.has_memory_limit { Probe::ping() } else { Probe::ping_and_add() };
    let (latencies, ()) = probe.during(server, || {
        // A short quiet time before and after the attack, so the probe runs when the attack begins and ends.
        thread::sleep(quiet);
        ready()?;
        thread::sleep(quiet);
        Ok(())
    })?;
    let (ping, add) = (&latencies[0], latencies.get(1));
    let mut sample = [ping.p50_us(), ping.p99_us(), ping.worst_ms()].map(Some).to_vec();
    sample.extend([add.map(Latencies::p99_us), add.map(Latencies::worst_ms)]);
    Ok(sample)
}

/// Duration of attacks that do not end by themselves.
fn duration(options: &Options) -> Duration {
    options.sized(Duration::from_secs(2), Duration::from_millis(100))
}

/// Pause between two steps of an attack, so the probe sees each of them begin and end.
const BETWEEN_STEPS: Duration = Duration::from_millis(20);

/// Runs `step` again and again, with pauses.
fn repeat(times: usize, mut step: impl FnMut(usize) -> Result<(), Failure>) -> Result<(), Failure> {
    for time in 0..times {
        step(time)?;
        thread::sleep(BETWEEN_STEPS);
    }
    Ok(())
}

fn none<'a>(_: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    Ok(Box::new(|| {
        thread::sleep(duration(options));
        Ok(())
    }))
}

/// With the constants of a fast hash function that many programs use, all members of 16 bytes with this end have the
/// same hash, whatever the seed is.
const COLLIDING_END: u64 = 0x3f84_d5b5_b547_0917;

fn hash_flood<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let members = options.sized(80_000, 5_000);
    let add = |key: usize| {
        let mut arguments = vec![b"SADD".to_vec(), format!("set{key}").into_bytes()];
        arguments.extend((0..members).map(|n: u64| [n.to_le_bytes(), COLLIDING_END.to_le_bytes()].concat()));
        command(&arguments)
    };
    let requests: Vec<_> = (0..5).map(add).collect();
    Ok(Box::new(move || {
        let mut attacker = server.connect()?;
        repeat(requests.len(), |time| {
            attacker.send(&requests[time])?;
            attacker.skip(1)
        })
    }))
}

fn mget<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    server.connect()?.call(&["SET", "value", &"x".repeat(1024 * 1024)])?;
    let mut arguments = vec!["MGET"];
    arguments.extend(std::iter::repeat_n("value", options.sized(2_500, 300)));
    let request = command(&arguments);
    Ok(Box::new(move || {
        repeat(3, |_| {
            let mut attacker = connect_and_log_in(server)?;
            attacker.write_all(&request)?;
            drain(&mut attacker, duration(options))
        })
    }))
}

fn block_many<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let keys = options.sized(65_536, 5_000);
    let requests: Vec<_> = (0..5).map(|client| read_blocking(client, keys)).collect();
    Ok(Box::new(move || {
        let mut attackers = Vec::new();
        repeat(requests.len(), |time| {
            let mut attacker = connect_and_log_in(server)?;
            attacker.write_all(&requests[time])?;
            attackers.push(attacker);
            server.wait_until_blocked(time + 1)
        })?;
        // A client that disconnects has to be removed from the queues of all its keys.
        repeat(requests.len(), |time| {
            attackers.pop();
            server.wait_until_blocked(requests.len() - time - 1)
        })
    }))
}

/// Number of keys that each client of `blocked_clients` is blocked on.
const KEYS_EACH: usize = 500;

/// Opens clients that are blocked on 500 keys of their own each.
fn blocked_clients(server: &Server, count: usize) -> Result<Vec<TcpStream>, Failure> {
    let mut clients = Vec::new();
    for client in 0..count {
        let mut socket = connect_and_log_in(server)?;
        socket.write_all(&read_blocking(client, KEYS_EACH))?;
        clients.push(socket);
    }
    server.wait_until_blocked(count)?;
    Ok(clients)
}

fn flush_waited<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let clients = blocked_clients(server, options.sized(200, 10))?;
    let mut attacker = server.connect()?;
    Ok(Box::new(move || {
        repeat(5, |_| attacker.call(&["FLUSHALL"]).map(drop))?;
        server.wait_until_blocked(clients.len())
    }))
}

fn exec_waited<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let clients = blocked_clients(server, options.sized(200, 10))?;
    let mut attacker = server.connect()?;
    let queued = |client: usize| -> Vec<u8> {
        let add = |key| command(&["XADD", &waited_key(client, key), "*", "field", "value"]);
        (0..KEYS_EACH).flat_map(add).collect()
    };
    attacker.call(&["MULTI"])?;
    for client in 0..clients.len() {
        attacker.send(&queued(client))?;
        attacker.skip(KEYS_EACH)?;
    }
    Ok(Box::new(move || {
        attacker.call(&["EXEC"])?;
        server.wait_until_blocked(0)?;
        drop(clients);
        Ok(())
    }))
}

fn watch<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let keys = options.sized(60_000, 1_000);
    let mut arguments = vec!["WATCH".to_owned()];
    arguments.extend((0..keys).map(|key| format!("watched:{key}")));
    let request = command(&arguments);
    let mut attacker = server.connect()?;
    Ok(Box::new(move || {
        attacker.send(&request)?;
        attacker.skip(1)
    }))
}

/// Returns an attack by connections that do not log in.
fn strangers<'a>(server: &'a Server, options: &'a Options, payload: Vec<u8>) -> Result<Ready<'a>, Failure> {
    let flood = Flood { connections: 4, greeting: Vec::new(), payload };
    Ok(Box::new(move || flood.run(server, duration(options))))
}

fn auth<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let guesses = (0..1_000).flat_map(|n| command(&["AUTH", &format!("guess{n}")])).collect();
    strangers(server, options, guesses)
}

fn garbage<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    // An array of something that is no number: a protocol error in every server.
    strangers(server, options, b"*nonsense\r\n".to_vec())
}

fn tls_hello<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    // The beginning of a ClientHello. Its random bytes contain a line feed and a command.
    let mut hello = b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03\nSET hello 1\r\n".to_vec();
    hello.resize(249, 0);
    strangers(server, options, hello)
}

fn stranger_ping<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    strangers(server, options, command(&["PING"]).repeat(1_000))
}

fn connects<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    const INTERVAL: Duration = Duration::from_micros(200);
    Ok(Box::new(move || {
        let begun = Instant::now();
        let mut next = Duration::ZERO;
        while begun.elapsed() < duration(options) {
            drop(connect(server)?);
            next += INTERVAL;
            thread::sleep(next.saturating_sub(begun.elapsed()));
        }
        Ok(())
    }))
}

fn keys_glob<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let mut attacker = server.connect()?;
    attacker.call(&["SET", &"a".repeat(options.sized(20_000, 5_000)), "value"])?;
    // At each position of the key, the pattern matches up to its last letter.
    let pattern = format!("*{}b", "a".repeat(options.sized(4_000, 100)));
    Ok(Box::new(move || repeat(10, |_| attacker.call(&["KEYS", &pattern]).map(drop))))
}

fn xrange<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let mut filler = server.connect()?;
    let entries = options.sized(20_000, 1_000);
    let value = "x".repeat(1_000);
    for _ in 0..entries / 100 {
        filler.send(&command(&["XADD", "stream", "*", "field", &value]).repeat(100))?;
        filler.skip(100)?;
    }
    let request = command(&["XRANGE", "stream", "-", "+"]);
    Ok(Box::new(move || {
        let mut clients = Vec::new();
        repeat(20, |_| {
            let mut client = connect_and_log_in(server)?;
            client.write_all(&request)?;
            clients.push(client);
            Ok(())
        })?;
        thread::sleep(duration(options));
        Ok(())
    }))
}

fn pipelines<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let add = command(&["XADD", "piped", "MAXLEN", "~", "1000", "*", "field", "value"]);
    let flood = Flood { connections: 4, greeting: command(&["AUTH", PASSWORD]), payload: add.repeat(10_000) };
    Ok(Box::new(move || flood.run(server, duration(options))))
}

fn half_open_handshakes<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    // A record of 244 bytes that begins a ClientHello. Only a part of it arrives.
    let half = b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03 half of the random bytes";
    Ok(Box::new(move || {
        let mut clients = Vec::new();
        for _ in 0..options.sized(500, 50) {
            let mut client = connect_to_tls(server)?;
            client.write_all(half)?;
            clients.push(client);
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(duration(options) / 2);
        drop(clients);
        Ok(())
    }))
}

fn fill_memory<'a>(server: &'a Server, options: &'a Options) -> Result<Ready<'a>, Failure> {
    let value = "x".repeat(10_000);
    let adds =
        (0..100).flat_map(|n| command(&["XADD", &format!("filled{n}"), "*", "field", &value])).collect();
    let flood = Flood { connections: 4, greeting: command(&["AUTH", PASSWORD]), payload: adds };
    Ok(Box::new(move || flood.run(server, duration(options))))
}
