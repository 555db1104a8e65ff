//! Clients that send malformed, huge or incomplete requests, or never read: memory stays bounded, and other clients
//! are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::process::{Client, Server, TIMEOUT, TempDir, eventually, request};
use crate::tls::client::TlsServer;

const MIB: u64 = 1024 * 1024;

/// Takes ten seconds, the time that a client has for its TLS handshake.
#[test]
fn tls_handshake_must_be_complete_in_ten_seconds() {
    let mut tls = TlsServer::start(&[]);
    let mut established = tls.connect();
    let began = Instant::now();
    let mut silent = tls.connect_raw();
    let mut slow = tls.connect_raw();
    slow.send([22, 3, 1]);
    silent.expect_closed();
    slow.expect_closed();
    assert!(began.elapsed().as_secs() >= 9, "{:?}", began.elapsed());
    assert!(tls.server.line_with("TLS handshake").contains("the client did not complete it in time"));
    established.call("PING", "+PONG\r\n");
}

/// Otherwise a flood of connections would take all files that the server may open before its threads close the first
/// ones. Takes ten seconds.
#[test]
fn connections_that_no_thread_serves_yet_are_limited() {
    let server = Server::start(&["--io-threads", "1", "--enable-debug-command", "yes"]);
    let mut busy = server.connect();
    busy.call("PING", "+PONG\r\n");
    let before = server.descriptors();
    // Long enough for a busy machine to open all connections while the server's only thread sleeps.
    busy.send("DEBUG SLEEP 10\r\n");
    let mut waiting: Vec<Client> = (0..1500).map(|_| server.connect()).collect();
    eventually("the limit is reached", || server.descriptors() >= before + 1024);
    // Without the limit, the server would accept all of them meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    let accepted = server.descriptors() - before;
    busy.stream.set_nonblocking(true).unwrap();
    assert_eq!(busy.stream.peek(&mut [0]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    // The thread may have served some before it began to sleep.
    assert!((1024..1500).contains(&accepted), "{accepted} of 1500");
    for client in &mut waiting {
        client.call("PING", "+PONG\r\n");
    }
}

#[test]
fn malformed_requests_get_an_error_and_close_the_connection() {
    let server = Server::start(&[]);
    for (bytes, reply) in [
        ("*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*2000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'\r\n"),
        ("*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        ("*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("SET \"a b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("PING\r\n*1\r\n$x\r\n", "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"),
    ] {
        let mut client = server.connect();
        client.send(bytes);
        client.expect(reply);
        client.expect_closed();
    }
    let mut long = server.connect();
    long.send("x".repeat(65 * 1024));
    long.expect("-ERR Protocol error: too big inline request\r\n");
    server.connect().call("PING", "+PONG\r\n");
}

#[test]
fn binary_data_runs_no_command_behind_a_line_feed() {
    let server = Server::start(&[]);
    for (start, byte) in [(&b"GET \x00"[..], "00"), (b"\x7fELF", "7f")] {
        let mut client = server.connect();
        client.send([start, b"\nSET pwned 1\n"].concat());
        client.expect(&format!("-ERR Protocol error: inline request contains control byte 0x{byte}\r\n"));
        client.expect_closed();
    }
    let mut client = server.connect();
    client.call("EXISTS pwned", ":0\r\n");
    client.call("SET\tk\t\"\\x00\\n\"", "+OK\r\n");
    client.call("GET k", "$2\r\n\0\n\r\n");
}

#[test]
fn empty_requests_are_skipped() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send("\r\n*0\r\n*-1\r\n\r\nPING\r\n*0\r\nPING\r\n");
    client.expect("+PONG\r\n+PONG\r\n");
}

#[test]
fn clients_that_speak_another_protocol_are_told_so_and_disconnected() {
    let server = Server::start(&[]);
    let (http, ssh) = ("HTTP, but this port expects RESP", "SSH, but this port expects RESP");
    let tls = "TLS, but this port expects plain RESP";
    for (request, reply) in [
        ("POST /x HTTP/1.1\r\nHost: x\r\n\r\n", http),
        ("Host: x\r\nSET a b\r\n", http),
        // With DNS rebinding, a web page can make a browser send a request with any method to this port.
        ("SET a HTTP/1.1\r\nSET a b\r\n", http),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", http),
        ("SSH-2.0-OpenSSH_9.2\r\nSET a b\r\n", ssh),
        ("\x16\x03\x01\0\u{14}\x01\0\0\u{30}\x03\x03\nSET a b\n", tls),
    ] {
        let mut client = server.connect();
        client.send(request);
        client.expect(&format!("-ERR Protocol error: this looks like {reply}\r\n"));
        client.expect_closed();
    }
    let mut client = server.connect();
    client.call("EXISTS a", ":0\r\n");
    // Only inline requests can be HTTP.
    client.send(request(&["SET", "a", "HTTP/1.1"]));
    client.expect("+OK\r\n");
    client.call("SHUTDOWN", "");
    let log = server.wait().0;
    let logged = |protocol: &str| {
        let mut lines =
            log.lines().filter(|line| line.contains("event=foreign-protocol address=\"127.0.0.1:"));
        lines.any(|line| line.ends_with(&format!("what=\"{protocol}\"")))
    };
    assert!(logged("HTTP") && logged("SSH") && logged("TLS"), "{log}");
    assert!(log.contains("event=foreign-protocol address=\"127.0.0.1\" what=\"HTTP\" more=3"), "{log}");
}

/// Appends an argument to a request.
fn push_bulk(request: &mut Vec<u8>, arg: &[u8]) {
    request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
    request.extend_from_slice(arg);
    request.extend_from_slice(b"\r\n");
}

#[test]
fn keys_fields_and_members_that_are_chosen_to_collide_take_no_longer_than_others() {
    const COUNT: u64 = 40_000;
    // With foldhash's own constants, all keys of 16 bytes with this end have the same hash, whatever the seed is.
    const END: u64 = 0x3f84_d5b5_b547_0917;
    let command = |start: &[&str], value: Option<&[u8]>| {
        let args = start.len() as u64 + COUNT * if value.is_some() { 2 } else { 1 };
        let mut bytes = format!("*{args}\r\n").into_bytes();
        start.iter().for_each(|arg| push_bulk(&mut bytes, arg.as_bytes()));
        for number in 0..COUNT {
            push_bulk(&mut bytes, &[number.to_le_bytes(), END.to_le_bytes()].concat());
            value.into_iter().for_each(|value| push_bulk(&mut bytes, value));
        }
        bytes
    };
    let dir = TempDir::new();
    let began = Instant::now();
    let server = Server::start_in(&dir, &["--appendfsync", "no"]);
    let mut client = server.connect();
    client.send(command(&["SADD", "set"], None));
    client.expect(&format!(":{COUNT}\r\n"));
    client.send(command(&["HSET", "hash"], Some(b"v")));
    client.expect(&format!(":{COUNT}\r\n"));
    client.send(command(&["MSET"], Some(b"v")));
    client.expect("+OK\r\n");
    server.signal("-TERM");
    assert!(server.wait().1.success());

    // Replay and snapshots fill the same tables.
    let server = Server::start_in(&dir, &[]);
    let mut client = server.connect();
    client.call("SCARD set", &format!(":{COUNT}\r\n"));
    client.call("SAVE", "+OK\r\n");
    drop(server);
    let server = Server::start_in(&dir, &[]);
    server.connect().call("DBSIZE", &format!(":{}\r\n", COUNT + 2));
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
}

/// A key of 200 KB and a pattern of 100 KB took 15 seconds.
#[test]
fn patterns_that_are_too_long_are_refused() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (bytes, is_accepted) in [(4096, true), (4097, false), (100_000, false)] {
        client.send(request(&["SET", &"a".repeat(2 * bytes), "v"]));
        client.expect("+OK\r\n");
        let pattern = format!("*{}b", "a".repeat(bytes - 2));
        for (args, empty) in [
            (&["KEYS"][..], "*0\r\n"),
            (&["SCAN", "0", "MATCH"], "*2\r\n$1\r\n0\r\n*0\r\n"),
            (&["CONFIG", "GET", "nothing"], "*0\r\n"),
            (&["COMMAND", "LIST", "FILTERBY", "PATTERN"], "*0\r\n"),
        ] {
            client.send(request(&[args, &[&*pattern]].concat()));
            client.expect(match is_accepted {
                true => empty,
                false => "-ERR the pattern is too long: a pattern has at most 4096 bytes\r\n",
            });
        }
    }
}

#[test]
fn announced_sizes_do_not_allocate_memory_in_advance() {
    let server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    let before = server.resident_bytes();
    for client in &mut clients {
        client.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nx");
    }
    let mut other: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for client in &mut other {
        client.send("*1048576\r\n$1\r\nx\r\n");
    }
    server.connect().call("PING", "+PONG\r\n");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
}

#[test]
fn an_incomplete_request_does_not_disturb_other_clients() {
    let server = Server::start(&[]);
    let mut silent = server.connect();
    silent.send("*3\r\n$3\r\nSET\r\n$3\r\nke");
    let mut other = server.connect();
    for _ in 0..100 {
        other.call("PING", "+PONG\r\n");
    }
    silent.send("y\r\n$5\r\nva");
    std::thread::sleep(Duration::from_millis(20));
    silent.send("lue\r\n");
    silent.expect("+OK\r\n");
    other.call("GET key", "$5\r\nvalue\r\n");
}

#[test]
fn a_request_can_arrive_byte_by_byte() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for byte in (request(&["SET", "k", "v"]) + "GET k\r\n").bytes() {
        client.send([byte]);
    }
    client.expect("+OK\r\n$1\r\nv\r\n");
}

#[test]
fn ten_thousand_pipelined_commands_get_replies_in_order() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut pipeline = String::new();
    let mut replies = String::new();
    for number in 0..10_000 {
        pipeline.push_str(&request(&["ECHO", &number.to_string()]));
        let text = number.to_string();
        replies.push_str(&format!("${}\r\n{text}\r\n", text.len()));
    }
    let mut reader = Client { stream: client.stream.try_clone().unwrap() };
    let sending = std::thread::spawn(move || client.send(pipeline));
    reader.expect(&replies);
    sending.join().unwrap();
}

#[test]
fn large_values_are_stored_and_returned_whole() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let value = "0123456789".repeat(1_000_000);
    client.send(request(&["SET", "k", &value]));
    client.expect("+OK\r\n");
    client.send("GET k\r\nPING\r\n");
    client.expect(&format!("${}\r\n{value}\r\n+PONG\r\n", value.len()));
}

#[test]
fn the_server_stops_reading_from_a_client_that_never_reads() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send(request(&["SET", "k", &"x".repeat(100_000)]));
    client.expect("+OK\r\n");
    let before = server.resident_bytes();

    // 10,000 replies of 100 kB would be 1 GB.
    let mut greedy = server.connect();
    greedy.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let gets = "GET k\r\n".repeat(100);
    let mut refused = false;
    for _ in 0..100_000 {
        refused |= greedy.stream.write_all(gets.as_bytes()).is_err();
        if refused {
            break;
        }
    }
    assert!(refused, "the server read all requests although the client read no reply");
    client.call("PING", "+PONG\r\n");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
}

#[test]
fn a_reply_beyond_the_output_limit_closes_the_connection() {
    let server = Server::start(&["--client-output-buffer-limit", "2mb"]);
    let mut client = server.connect();
    client.send(request(&["SET", "k", &"x".repeat(3_000_000)]));
    client.expect("+OK\r\n");
    let mut other = server.connect();
    other.call("GET no", "$-1\r\n");
    client.send("GET k\r\n");
    client.expect_closed();
    other.call("STRLEN k", ":3000000\r\n");
}

/// A reply of 200 MiB with a limit of 2 MB. The server must stop when the limit is exceeded, not when the reply is
/// complete.
#[test]
fn a_reply_beyond_the_output_limit_takes_no_more_memory_than_the_limit() {
    let server = Server::start(&["--client-output-buffer-limit", "2mb"]);
    let mut client = server.connect();
    let value = "x".repeat(MIB as usize);
    let mut entries = String::new();
    for n in ["1", "2", "3", "4"] {
        client.send(request(&["RPUSH", "list", &value]));
        client.send(request(&["HSET", "hash", n, &value]));
        client.send(request(&["SADD", "set", &format!("{n}{value}")]));
        client.send(request(&["XADD", "stream", &format!("1-{n}"), "field", &value]));
        entries.push_str(&format!(":{n}\r\n:1\r\n:1\r\n$3\r\n1-{n}\r\n"));
    }
    client.expect(&entries);
    for args in [["SET", "string", &*value], ["SET", &*value, "long key"]] {
        client.send(request(&args));
        client.expect("+OK\r\n");
    }
    // For each of the commands that deliver entries again and again, all entries are pending.
    client.call("XGROUP CREATE stream g 0", "+OK\r\n");
    client.call("XGROUP CREATE stream new 0", "+OK\r\n");
    client.send("XREADGROUP GROUP g c COUNT 1 STREAMS stream >\r\n");
    client.expect(&format!(
        "*1\r\n*2\r\n$6\r\nstream\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$5\r\nfield\r\n${MIB}\r\n{value}\r\n"
    ));

    let mut close = |name: &str, requests: &str| {
        server.reset_peak();
        let before = server.peak_bytes();
        let mut greedy = server.connect();
        greedy.send(requests);
        let mut replies = Vec::new();
        // A reset counts as a close.
        let _ = greedy.stream.read_to_end(&mut replies);
        assert!(!replies.contains(&b'x'), "{name}: {} bytes of replies", replies.len());
        let grown = server.peak_bytes().saturating_sub(before);
        assert!(grown < 24 * MIB, "{name}: {} MiB", grown / MIB);
        client.send("PING\r\n");
        client.expect("+PONG\r\n");
    };
    for (command, times) in [(["MGET", "string"].as_slice(), 200), (&["HMGET", "hash", "1"], 200)] {
        let repeated = std::iter::repeat_n(command[command.len() - 1], times);
        let args: Vec<&str> = command[..command.len() - 1].iter().copied().chain(repeated).collect();
        close(command[0], &request(&args));
    }
    for command in [
        "GET string",
        "MGET string string string string",
        "HGETALL hash",
        "HVALS hash",
        "LRANGE list 0 -1",
        "SMEMBERS set",
        "KEYS *",
        "SCAN 0 COUNT 1000000",
        "XRANGE stream - +",
        "XREVRANGE stream + - COUNT 1",
        "XREAD STREAMS stream 0",
        "XREADGROUP GROUP new c STREAMS stream >",
        "XREADGROUP GROUP g c STREAMS stream 0",
        "XREADGROUP GROUP g c CLAIM 0 STREAMS stream >",
        "XCLAIM stream g c 0 1-1",
        "XAUTOCLAIM stream g c 0 0",
        "XINFO STREAM stream",
        "XINFO STREAM stream FULL",
    ] {
        close(command, &format!("MULTI\r\n{}EXEC\r\n", format!("{command}\r\n").repeat(200)));
    }
    let sent = client.ask(&["INFO stats"]);
    assert!(sent.contains("client_output_buffer_limit_disconnections:20\r\n"), "{sent}");
}

#[test]
fn a_reply_to_a_blocked_client_beyond_the_output_limit_closes_its_connection() {
    let server = Server::start(&["--client-output-buffer-limit", "2mb"]);
    let (mut client, mut blocked) = (server.connect(), server.connect());
    for _ in 0..50 {
        client.send(request(&["XADD", "stream", "*", "field", &"x".repeat(MIB as usize)]));
        client.line();
        client.line();
    }
    blocked.send("XREAD BLOCK 0 STREAMS copy 0\r\n");
    eventually("the reader is blocked", || client.ask(&["INFO clients"]).contains("blocked_clients:1\r\n"));
    server.reset_peak();
    let before = server.peak_bytes();
    client.call("COPY stream copy", ":1\r\n");
    blocked.expect_closed();
    let grown = server.peak_bytes().saturating_sub(before);
    assert!(grown < 24 * MIB, "{} MiB", grown / MIB);
    assert!(client.ask(&["INFO stats"]).contains("client_output_buffer_limit_disconnections:1\r\n"));
}

#[test]
fn small_replies_are_sent_whatever_the_output_limit_is() {
    let server = Server::start(&["--client-output-buffer-limit", "1"]);
    let mut client = server.connect();
    client.call("PING", "+PONG\r\n");
    // With its length and line ends, the first reply has exactly 16 KiB.
    for (bytes, is_sent) in [(16_374, true), (16_375, false)] {
        let value = "x".repeat(bytes);
        client.send(request(&["SET", "k", &value]));
        client.expect("+OK\r\n");
        client.send("GET k\r\n");
        if is_sent {
            client.expect(&format!("${bytes}\r\n{value}\r\n"));
        } else {
            client.expect_closed();
        }
    }
    let mut client = server.connect();
    client.call("CONFIG SET client-output-buffer-limit 1mb", "+OK\r\n");
    client.send("GET k\r\n");
    client.expect("$16375\r\nxxx");
}

#[test]
fn a_request_beyond_the_query_limit_closes_the_connection() {
    let server = Server::start(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.connect();
    // The server may close the connection while the request is being sent, so the write may fail.
    let _ = client.stream.write_all(request(&["SET", "k", &"x".repeat(2_000_000)]).as_bytes());
    let mut rest = [0; 64];
    assert!(!matches!(client.stream.read(&mut rest), Ok(1..)));
    server.connect().call("EXISTS k", ":0\r\n");
}

/// Raises this process's limit on open files, and returns whether `needed` files can be opened. If not, prints that
/// the test is skipped.
fn descriptors_suffice(needed: u64) -> bool {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure the limit stays unchanged. It is checked below.
    let _ = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if allowed < needed {
        eprintln!("skipped: needs {needed} open files, and the hard limit here is {allowed} (ulimit -Hn)");
    }
    allowed >= needed
}

#[test]
fn nine_thousand_idle_connections_need_little_memory() {
    const CONNECTIONS: usize = 9_000;
    // Includes the connections of the test below, which may run at the same time.
    if !descriptors_suffice(13_000) {
        return;
    }
    let server = Server::start(&["--maxclients", "10000"]);
    let mut first = server.connect();
    first.call("PING", "+PONG\r\n");
    let before = server.resident_bytes();
    let mut streams = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("descriptors suffice");
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        streams.push(stream);
    }
    let mut reply = [0; 7];
    for stream in &mut streams {
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
    first.call("PING", "+PONG\r\n");
    let each = server.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    assert!(each < 4 * 1024, "{each} bytes per connection");
}

#[test]
fn thousands_of_blocked_readers_need_little_memory_and_are_served_in_order() {
    const READERS: usize = 3_000;
    if !descriptors_suffice(4_000) {
        return;
    }
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    let before = server.resident_bytes();
    let mut readers: Vec<Client> = (0..READERS)
        .map(|_| {
            let mut reader = server.connect();
            reader.send("PING\r\nXREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >\r\n");
            // One thread serves all clients in turn, so this reader blocks before the next one does.
            reader.expect("+PONG\r\n");
            reader
        })
        .collect();
    client.call("PING", "+PONG\r\n");
    let each = server.resident_bytes().saturating_sub(before) / READERS as u64;
    assert!(each < 8 * 1024, "{each} bytes per reader");
    for number in 1..=100 {
        let id = format!("1-{number}");
        client.call(&format!("XADD s {id} n {number}"), &format!("${}\r\n{id}\r\n", id.len()));
    }
    for (number, reader) in (1..=100).zip(&mut readers) {
        let id = format!("1-{number}");
        reader.expect(&format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n${}\r\n{id}\r\n", id.len()));
    }
    client.send("XPENDING s g\r\n");
    assert_eq!((client.line(), client.line()), ("*4".to_owned(), ":100".to_owned()));
}

#[test]
fn the_server_survives_running_out_of_descriptors() {
    let server = Server::start(&["--maxclients", "1000"]);
    let mut first = server.connect();
    first.call("SET a 1", "+OK\r\n");
    // There are more clients than descriptors: accepting fails until some of them have left.
    server.limit_descriptors(64);
    let others: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    first.call("PING", "+PONG\r\n");
    eventually("no descriptor is left", || server.descriptors() >= 64);
    first.send("SAVE\r\n");
    let answer = first.line();
    assert!(answer.starts_with("-ERR") && answer.contains("Too many open files"), "{answer}");
    first.call("INCR a", ":2\r\n");
    let mut last = server.connect();
    last.send("PING\r\n");
    drop(others);
    last.expect("+PONG\r\n");
    first.call("INCR a", ":3\r\n");
    first.call("SAVE", "+OK\r\n");
}

#[test]
fn maxclients_is_limited_by_the_open_files_limit() {
    // The server reserves 32 descriptors, and 4 for each thread.
    let server = Server::start_with_descriptors(64, &["--maxclients", "1000", "--io-threads", "2"]);
    assert!(
        server.greeting.contains("the system allows 64 open files, so maxclients is lowered to 24"),
        "{}",
        server.greeting
    );
    let mut client = server.connect();
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able \
                   to handle the specified number of clients, try with 24\r\n";
    client.call("CONFIG SET timeout 7 maxclients 25", refused);
    let shown = client.ask(&["CONFIG GET maxclients", "CONFIG GET timeout"]);
    assert_eq!(shown, "*2\r\n$10\r\nmaxclients\r\n$2\r\n24\r\n*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
    client.call("CONFIG SET maxclients 10", "+OK\r\n");
    client.call("CONFIG SET maxclients 10000", refused);
    client.call("CONFIG SET maxclients 24", "+OK\r\n");
    // With the maximum number of clients, the server still has the descriptors that it needs.
    let mut all: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    all.iter_mut().take(23).for_each(|client| client.call("PING", "+PONG\r\n"));
    client.call("SET a 1", "+OK\r\n");
    client.call("SAVE", "+OK\r\n");
}

/// The server raises its own limit on open files up to the hard limit.
#[test]
fn config_set_maxclients_raises_the_open_files_limit() {
    let server = Server::start(&["--maxclients", "20", "--io-threads", "1"]);
    server.set_soft_descriptor_limit(60);
    let mut client = server.connect();
    client.call("CONFIG SET maxclients 100", "+OK\r\n");
    assert_eq!(server.descriptors_allowed(), 136);
}

#[test]
fn blocked_clients_that_disconnect_are_removed() {
    let server = Server::start(&["--maxclients", "50"]);
    for _ in 0..5 {
        let blocked: Vec<Client> = (0..40)
            .map(|_| {
                let mut client = server.connect();
                client.send("XREAD BLOCK 0 STREAMS s $\r\n");
                client
            })
            .collect();
        drop(blocked);
        // The next 40 clients are accepted only after the blocked ones were removed.
        eventually("the blocked clients are removed", || {
            let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
            clients.iter_mut().all(|client| {
                client.send("PING\r\n");
                client.line() == "+PONG"
            })
        });
    }
    let mut client = server.connect();
    client.call("XADD s 1-1 a b", "$3\r\n1-1\r\n");
}

#[test]
fn commands_after_a_blocking_one_wait_for_it() {
    let server = Server::start(&[]);
    let mut reader = server.connect();
    reader.send("XREAD BLOCK 0 STREAMS s 0\r\nPING\r\nECHO after\r\n");
    reader.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(reader.stream.read(&mut [0; 16]).is_err(), "a reply arrived before the entry was added");
    reader.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    server.connect().call("XADD s 1-1 a b", "$3\r\n1-1\r\n");
    reader.expect("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    reader.expect("+PONG\r\n$5\r\nafter\r\n");
}
