//! The mistakes behind vulnerabilities of Redis and Valkey, tried on this server. docs/cve.md lists all of them, with
//! their tests; here are those that no other test covers.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::process::{Client, Server, TIMEOUT, TempDir, eventually, request};

const MIB: u64 = 1024 * 1024;

fn id_of(client: &mut Client) -> String {
    client.send("CLIENT ID\r\n");
    client.line()[1..].to_owned()
}

fn wait_until_blocked(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    eventually("clients are blocked", || client.ask(&["INFO clients"]).contains(&line));
}

/// CVE-2021-21309, CVE-2021-32627 and CVE-2021-41099: sizes overflowed once the maximum length was raised.
#[test]
fn lengths_near_the_largest_integer_do_not_overflow() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.call("CONFIG SET proto-max-bulk-len 9223372036854775807", "+OK\r\n");
    admin.call("CONFIG SET client-query-buffer-limit 9223372036854775807", "+OK\r\n");
    let before = server.resident_bytes();
    let mut silent = Vec::new();
    for length in ["9223372036854775807", "9223372036854775806", "9223372036854775805", "4294967296"] {
        let mut client = server.connect();
        client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\nbeginning of a value"));
        silent.push(client);
    }
    for (bytes, reply) in [
        ("*2\r\n$3\r\nGET\r\n$9223372036854775808\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*2\r\n$3\r\nGET\r\n$18446744073709551616\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*9223372036854775807\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*4294967297\r\n$4\r\nPING\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ] {
        let mut client = server.connect();
        client.send(bytes);
        client.expect(reply);
        client.expect_closed();
    }
    // The server has read the beginnings of the values.
    eventually("input is buffered", || admin.ask(&["CLIENT LIST"]).matches(" qbuf=0 ").count() < 2);
    assert!(server.resident_bytes().saturating_sub(before) < 16 * MIB);
    admin.call("EXISTS k", ":0\r\n");
}

/// CVE-2022-33105: the search for the first and the last entry of a stream leaked memory.
#[test]
fn reads_at_the_ends_of_a_stream_leak_no_memory() {
    // A leak of 32 bytes per command would take 2 MiB.
    let commands = std::env::var("MILLSTREAM_LEAK_COMMANDS").map_or(64_000, |text| text.parse().unwrap());
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.ask(&[
        "XADD s 1-1 a b",
        "XADD s 2-1 a b",
        "XADD s 3-1 a b",
        "XDEL s 1-1 3-1",
        "XGROUP CREATE s g 0",
    ]);
    let reads = [
        "XRANGE s - 1-1",
        "XRANGE s (2-1 + COUNT 1",
        "XREVRANGE s + 3-0 COUNT 1",
        "XREVRANGE nothing + - COUNT 1",
        "XREAD STREAMS s 2-1",
        "XINFO STREAM s",
        "XPENDING s g - + 10",
        "XAUTOCLAIM s g c 0 0",
    ];
    let mut read = |commands: usize| {
        let batch = reads.map(|read| [read; 50].join("\r\n"));
        for _ in 0..commands.div_ceil(50 * reads.len()) {
            client.ask(&batch.each_ref().map(String::as_str));
        }
    };
    read(commands / 8);
    let before = server.resident_bytes();
    read(commands);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < MIB, "{grown} bytes after {commands} commands");
}

/// CVE-2023-45145: for a moment, everybody could connect to the Unix socket.
#[test]
fn unix_socket_has_its_permissions_before_it_listens() {
    let dir = TempDir::new();
    let (socket, trace) = (dir.path.join("socket"), dir.path.join("trace"));
    let mut command = Command::new("strace");
    command.args(["-f", "-o", trace.to_str().unwrap(), "-e", "trace=bind,chmod,fchmodat,listen"]);
    command.arg(env!("CARGO_BIN_EXE_millstream")).args(["serve", "--port", "0", "--unixsocket"]);
    command.arg(&socket).args(["--unixsocketperm", "700"]);
    command.current_dir(&dir.path).stderr(std::process::Stdio::piped());
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let server = Server::try_spawn(command, None).unwrap();
    server.connect().call("SHUTDOWN NOSAVE", "");
    server.wait();
    let trace = std::fs::read_to_string(trace).unwrap();
    let calls: Vec<&str> =
        trace.lines().filter_map(|line| line.split_once(' ')).map(|(_, call)| call.trim()).collect();
    let place =
        |call: &str, part: &str| calls.iter().position(|line| line.starts_with(call) && line.contains(part));
    let bound = place("bind(", "socket\"").expect("the socket is bound");
    let permitted = place("chmod(", "socket\", 0700").or_else(|| place("fchmodat(", "socket\", 0700"));
    let permitted = permitted.expect("the permissions are set");
    let descriptor = calls[bound]["bind(".len()..].split(',').next().unwrap();
    let listening = place("listen(", &format!("listen({descriptor},")).expect("the socket listens");
    assert!(bound < permitted && permitted < listening, "{trace}");
}

/// CVE-2025-48367: clients that sent protocol errors before AUTH starved others.
#[test]
fn protocol_errors_before_auth_do_not_starve_other_clients() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.connect();
    client.call("AUTH secret", "+OK\r\n");
    let (done, address) = (AtomicBool::new(false), client.stream.peer_addr().unwrap());
    std::thread::scope(|scope| {
        for bytes in ["*nonsense\r\n", "*1\r\n$99999999\r\n", "\x16\x03\x01\r\n", "*3\r\n$-7\r\n"] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let mut hostile = Client::connect(address);
                    hostile.send(bytes);
                    while hostile.line() != "" {}
                }
            });
        }
        let began = Instant::now();
        for _ in 0..300 {
            client.call("PING", "+PONG\r\n");
        }
        done.store(true, Ordering::Relaxed);
        assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    });
}

/// Commands that close the connection, stop replies or wait when they are sent with arbitrary arguments.
const NOT_TRIED: [&str; 8] =
    ["quit", "shutdown", "reset", "auth", "client|reply", "client|pause", "blpop", "brpop"];

/// Returns the names of all commands and subcommands, as separate words.
fn all_commands(client: &mut Client) -> BTreeSet<Vec<String>> {
    let listed = client.ask(&["COMMAND"]);
    // Arrays have lengths, names and flags in lines of their own. Subcommands have a bar in their names.
    let subcommands = listed.lines().filter(|line| line.contains('|'));
    let listed = client.ask(&["COMMAND LIST"]);
    let names = listed.lines().filter(|line| !line.starts_with(['$', '*'])).chain(subcommands);
    let names: BTreeSet<String> =
        names.map(str::to_owned).filter(|name| !NOT_TRIED.contains(&&**name)).collect();
    names.iter().map(|name| name.split('|').map(str::to_owned).collect()).collect()
}

/// CVE-2025-67733: line ends in an argument became line ends of the error, and so a forged reply.
#[test]
fn line_ends_in_arguments_forge_no_reply() {
    const FORGED: &str = "x\r\n-FORGED\r\n+FORGED\n\r";
    let server = Server::start(&[]);
    let mut client = server.connect();
    let commands = all_commands(&mut client);
    assert!(commands.len() > 150 && commands.contains(&vec!["xgroup".to_owned(), "create".to_owned()]));
    let mut errors = 0;
    let mut attempt = |args: &[&str]| {
        client.send(request(args));
        let reply = client.ask(&[]);
        // `ask` begins with an empty line, which the server skips.
        if reply.starts_with(['-', '+']) {
            let text = reply.trim_end_matches("\r\n");
            assert!(!text.contains(['\r', '\n']), "{args:?}: {reply:?}");
            errors += usize::from(reply.starts_with('-'));
        }
        assert!(!reply.is_empty(), "{args:?} got no reply");
    };
    for command in &commands {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        for count in 1..=5 {
            attempt(&[&command[..], &[FORGED; 5][..count]].concat());
            for at in 0..count {
                let mut args = vec!["1"; count];
                args[at] = FORGED;
                attempt(&[&command[..], &args].concat());
            }
        }
    }
    for args in [&[FORGED][..], &["xgroup", FORGED], &["hello", "3", "auth", FORGED, FORGED]] {
        attempt(args);
    }
    assert!(errors > 2_000, "only {errors} errors: the test tests nothing");
}

/// Numbers at which counts, times and ids overflow.
const EXTREMES: [&str; 9] = [
    "-1",
    "-9223372036854775808",
    "9223372036854775807",
    "1152921504606846975",
    "18446744073709551615",
    "18446744073709551615-18446744073709551615",
    "4294967296",
    "nan",
    "1e4933",
];

/// CVE-2021-32625, CVE-2022-35951, CVE-2022-35977, CVE-2023-22458 and CVE-2023-25155: numbers in arguments overflowed.
/// CVE-2023-36824: so did the search for the keys of a command. A panic would close the connection.
#[test]
fn extreme_numbers_in_arguments_get_a_reply() {
    let server = Server::start(&["--appendonly", "no"]);
    let mut client = server.connect();
    let commands = all_commands(&mut client);
    for command in &commands {
        let mut requests = String::new();
        let mut push = |args: &[&str]| requests.push_str(&request(args));
        let name: Vec<&str> = command.iter().map(String::as_str).collect();
        for number in EXTREMES {
            for key in ["string", "hash", "list", "set", "stream"] {
                // An earlier command may have changed the key.
                for line in [
                    "DEL string hash list set stream",
                    "SET string 9223372036854775807",
                    "HSET hash 1 9223372036854775807",
                    "RPUSH list 1 2",
                    "SADD set 1 9223372036854775807",
                    "XADD stream 1-1 a b",
                    "XGROUP CREATE stream -1 0",
                ] {
                    push(&line.split(' ').collect::<Vec<_>>());
                }
                for count in 0..4 {
                    push(&[&name[..], &[key], &[number; 4][..count]].concat());
                }
                push(&[&name[..], &[key, "-1", number, "COUNT", number]].concat());
            }
            push(&[&["COMMAND", "GETKEYS"], &name[..], &[number; 3]].concat());
            push(&[&["COMMAND", "GETKEYS"], &name[..], &["STREAMS", number]].concat());
        }
        client.send(requests);
        // Fails if the connection was closed.
        client.ask(&["DISCARD", "SELECT 0"]);
    }
}

#[test]
fn many_or_repeated_arguments_are_handled() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    // CVE-2023-28425: a key that is named twice.
    client.call("MSETNX a 1 a 2", ":1\r\n");
    client.call("GET a", "$1\r\n2\r\n");
    // CVE-2025-62507: more ids than fit in a buffer of fixed size.
    for count in [8, 9, 50, 100_000] {
        let count_text = count.to_string();
        let mut args = vec!["XACKDEL", "s", "g", "IDS", &count_text];
        args.resize(args.len() + count, "1-1");
        client.send(request(&args));
        client.expect(&format!("*{count}\r\n{}", ":-1\r\n".repeat(count)));
    }
}

/// CVE-2026-23479: a client was freed while another client's command used it.
#[test]
fn readers_can_be_killed_from_inside_exec() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut admin = server.connect();
    admin.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    for number in 1..=20 {
        let mut reader = server.connect();
        let id = id_of(&mut reader);
        reader.send("XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
        wait_until_blocked(&mut admin, 1);
        let (add, kill) = (format!("XADD s {number}-1 a b"), format!("CLIENT KILL ID {id}"));
        let [first, second] = if number % 2 == 0 { [&add, &kill] } else { [&kill, &add] };
        let replies = admin.ask(&["MULTI", first, second, "EXEC"]);
        assert!(replies.contains("\r\n:1\r\n") && replies.contains(&format!("{number}-1\r\n")), "{replies}");
        // The reader gets the entry or only the end of the connection.
        while !reader.line().is_empty() {}
        wait_until_blocked(&mut admin, 0);
        assert_eq!(reachable_entries(&mut admin), number);
        // Otherwise the next reader would not block.
        admin.ask(&["XREADGROUP GROUP g rest STREAMS s >"]);
    }
    // A client that kills itself inside EXEC runs the whole transaction.
    let id = id_of(&mut admin);
    admin.send(format!("MULTI\r\nSET a 1\r\nCLIENT KILL ID {id} SKIPME no\r\nSET b 1\r\nEXEC\r\n"));
    while !admin.line().is_empty() {}
    server.connect().call("EXISTS a b", ":2\r\n");
}

/// Returns the number of entries that the group has delivered and not acknowledged, or not delivered yet.
fn reachable_entries(client: &mut Client) -> u64 {
    let info = client.ask(&["XINFO GROUPS s"]);
    let number = |field: &str| -> u64 {
        let (_, rest) = info.split_once(&format!("{field}\r\n:")).unwrap();
        rest.split_once('\r').unwrap().0.parse().unwrap()
    };
    number("pending") + number("lag")
}

#[test]
fn readers_killed_while_their_commands_run_again_lose_no_entry() {
    const READERS: usize = 60;
    let server = Server::start(&["--io-threads", "2"]);
    let mut admin = server.connect();
    admin.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    for round in 1..=5 {
        let mut readers: Vec<Client> = (0..READERS).map(|_| server.connect()).collect();
        let mut kills = Vec::new();
        for reader in &mut readers {
            kills.push(format!("CLIENT KILL ID {}", id_of(reader)));
            reader.send("XREADGROUP GROUP g c BLOCK 0 COUNT 1 STREAMS s >\r\n");
        }
        wait_until_blocked(&mut admin, READERS);
        let mut killer = server.connect();
        std::thread::scope(|scope| {
            scope.spawn(|| killer.ask(&kills.iter().rev().map(String::as_str).collect::<Vec<_>>()));
            admin.ask(&[["XADD s * a b"; READERS].join("\r\n").as_str()]);
        });
        wait_until_blocked(&mut admin, 0);
        readers.iter_mut().for_each(|reader| while !reader.line().is_empty() {});
        assert_eq!(reachable_entries(&mut admin), round * READERS as u64);
        admin.ask(&["XREADGROUP GROUP g rest STREAMS s >"]);
    }
}
