//! State of a connection: transactions, blocking commands, pauses, CLIENT REPLY.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::process::{Client, Server, TIMEOUT, eventually};

/// Asserts that nothing arrives for a while.
#[track_caller]
fn expect_no_reply(client: &mut Client) {
    client.stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let mut bytes = [0; 64];
    if let Ok(count) = client.stream.read(&mut bytes) {
        panic!("unexpected reply: {:?}", String::from_utf8_lossy(&bytes[..count]));
    }
    client.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
}

/// Returns the client id.
fn id_of(client: &mut Client) -> String {
    client.send("CLIENT ID\r\n");
    client.line()[1..].to_owned()
}

/// Waits until `count` clients are blocked.
#[track_caller]
fn wait_until_blocked(server: &Server, count: usize) {
    let mut client = server.connect();
    eventually("clients are blocked", || {
        client.send("INFO clients\r\n");
        let length: usize = client.line()[1..].parse().unwrap();
        let mut text = vec![0; length + 2];
        client.stream.read_exact(&mut text).unwrap();
        String::from_utf8_lossy(&text).contains(&format!("blocked_clients:{count}\r\n"))
    });
}

#[test]
fn exec_runs_all_commands_and_returns_their_errors() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.call("MULTI", "+OK\r\n");
    client.call("SET a 1", "+QUEUED\r\n");
    client.call("LPUSH a x", "+QUEUED\r\n");
    client.call("SELECT 3", "+QUEUED\r\n");
    client.call("SET b 2", "+QUEUED\r\n");
    client.call("XREAD BLOCK 0 STREAMS s $", "+QUEUED\r\n");
    client.call("PING", "+QUEUED\r\n");
    client.call(
        "EXEC",
        "*6\r\n+OK\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n+OK\r\n+OK\r\n*-1\r\n+PONG\r\n",
    );
    client.call("GET b", "$1\r\n2\r\n");
    client.call("SELECT 0", "+OK\r\n");
    client.call("EXISTS b", ":0\r\n");
    client.call("EXEC", "-ERR EXEC without MULTI\r\n");
    client.call("DISCARD", "-ERR DISCARD without MULTI\r\n");
}

#[test]
fn a_refused_command_aborts_the_transaction() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for bad in ["NOSUCH", "GET", "XGROUP NOSUCH", "SHUTDOWN"] {
        client.call("MULTI", "+OK\r\n");
        client.call("SET a 1", "+QUEUED\r\n");
        client.send(format!("{bad}\r\n"));
        assert!(client.line().starts_with("-ERR "), "{bad}");
        client.call("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    }
    client.call("EXISTS a", ":0\r\n");
    // These commands are refused without aborting the transaction.
    client.call("MULTI", "+OK\r\n");
    client.call("MULTI", "-ERR MULTI calls can not be nested\r\n");
    client.call("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n");
    client.call("EXEC", "*0\r\n");
    client.call("MULTI", "+OK\r\n");
    client.call(
        "EXEC now",
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n",
    );
    client.call("EXEC", "-ERR EXEC without MULTI\r\n");
}

#[test]
fn a_changed_watched_key_aborts_the_transaction() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut other = server.connect();
    client.call("WATCH a b", "+OK\r\n");
    client.call("MULTI", "+OK\r\n");
    client.call("SET c 1", "+QUEUED\r\n");
    other.call("SET b 1", "+OK\r\n");
    client.call("EXEC", "*-1\r\n");
    client.call("EXISTS c", ":0\r\n");
    // Watching ends with EXEC, with UNWATCH and with DISCARD.
    for end in ["UNWATCH", "MULTI\r\nDISCARD"] {
        client.call("WATCH a", "+OK\r\n");
        let replies = if end == "UNWATCH" { "+OK\r\n" } else { "+OK\r\n+OK\r\n" };
        client.call(end, replies);
        other.call("SET a 1", "+OK\r\n");
        client.call("MULTI", "+OK\r\n");
        client.call("UNWATCH", "+QUEUED\r\n");
        client.call("EXEC", "*1\r\n+OK\r\n");
    }
    // Changes by the transaction itself do not abort it.
    client.call("WATCH a", "+OK\r\n");
    client.call("MULTI", "+OK\r\n");
    client.call("SET a 2", "+QUEUED\r\n");
    client.call("EXEC", "*1\r\n+OK\r\n");
}

#[test]
fn entries_added_in_a_transaction_wake_one_reader_each() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut admin = server.connect();
    admin.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    let mut readers: Vec<Client> = (1..=3).map(|_| server.connect()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(format!("XREADGROUP GROUP g c{number} COUNT 1 BLOCK 0 STREAMS s >\r\n"));
        wait_until_blocked(&server, number + 1);
    }
    admin.send("MULTI\r\nXADD s 1-1 n 1\r\nXADD s 1-2 n 2\r\nXADD s 1-3 n 3\r\nEXEC\r\n");
    admin.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n$3\r\n1-1\r\n$3\r\n1-2\r\n$3\r\n1-3\r\n");
    for (number, reader) in readers.iter_mut().enumerate() {
        let n = number + 1;
        reader.expect(&format!(
            "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-{n}\r\n*2\r\n$1\r\nn\r\n$1\r\n{n}\r\n"
        ));
    }
}

#[test]
fn blocking_commands_time_out_in_both_protocols() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let began = Instant::now();
    client.call("XREAD BLOCK 100 STREAMS s $", "*-1\r\n");
    client.call("BLPOP l 0.1", "*-1\r\n");
    assert!(began.elapsed() >= Duration::from_millis(200));
    client.send("HELLO 3\r\n");
    while client.line() != "*0" {}
    client.call("XREAD BLOCK 50 STREAMS s $", "_\r\n");
}

#[test]
fn another_client_can_unblock_or_kill_a_blocked_client() {
    let server = Server::start(&["--io-threads", "2"]);
    let mut admin = server.connect();
    let mut blocked = server.connect();
    let id = id_of(&mut blocked);
    admin.call(&format!("CLIENT UNBLOCK {id}"), ":0\r\n");
    for (how, reply) in [
        ("", "*-1\r\n"),
        (" TIMEOUT", "*-1\r\n"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
    ] {
        blocked.send("XREAD BLOCK 0 STREAMS s $\r\n");
        wait_until_blocked(&server, 1);
        admin.call(&format!("CLIENT UNBLOCK {id}{how}"), ":1\r\n");
        blocked.expect(reply);
    }
    blocked.send("XREAD BLOCK 0 STREAMS s $\r\n");
    wait_until_blocked(&server, 1);
    admin.call(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    blocked.expect_closed();
    wait_until_blocked(&server, 0);
    // No client is blocked any more, so the entry stays.
    admin.call("XADD s 1-1 a b", "$3\r\n1-1\r\n");
    admin.call("XLEN s", ":1\r\n");
}

#[test]
fn client_kill_closes_idle_clients_and_its_own_connection() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    let mut idle = server.connect();
    let id = id_of(&mut idle);
    admin.call(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    idle.expect_closed();
    let own = id_of(&mut admin);
    admin.call(&format!("CLIENT KILL ID {own} SKIPME no"), ":1\r\n");
    admin.expect_closed();
}

#[test]
fn client_pause_delays_commands_without_losing_any() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    let mut client = server.connect();
    admin.call("CLIENT PAUSE 60000 WRITE", "+OK\r\n");
    client.call("GET a", "$-1\r\n");
    client.send("SET a 1\r\nGET a\r\n");
    expect_no_reply(&mut client);
    admin.call("CLIENT UNPAUSE", "+OK\r\n");
    client.expect("+OK\r\n$1\r\n1\r\n");

    for _ in 0..20 {
        let began = Instant::now();
        admin.call("CLIENT PAUSE 10 ALL", "+OK\r\n");
        client.call("GET a", "$1\r\n1\r\n");
        assert!(began.elapsed() >= Duration::from_millis(10));
    }

    admin.call("CLIENT PAUSE 60000 ALL", "+OK\r\n");
    client.send("GET a\r\n");
    expect_no_reply(&mut client);
    admin.call("CLIENT UNPAUSE", "+OK\r\n");
    client.expect("$1\r\n1\r\n");
}

#[test]
fn client_reply_suppresses_replies() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send("CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n");
    client.expect("$1\r\n1\r\n");
    client.send("CLIENT REPLY OFF\r\nSET a 2\r\nNOSUCH\r\nXREAD BLOCK 10 STREAMS s $\r\nGET a\r\n");
    client.send("CLIENT REPLY ON\r\nGET a\r\n");
    client.expect("+OK\r\n$1\r\n2\r\n");
}

#[test]
fn timeout_closes_idle_clients_but_not_blocked_ones() {
    let server = Server::start(&["--timeout", "1"]);
    let mut blocked = server.connect();
    blocked.send("XREAD BLOCK 0 STREAMS s $\r\n");
    let mut silent = server.connect();
    let mut halfway = server.connect();
    halfway.send("*1\r\n$4\r\nPI");
    silent.expect_closed();
    halfway.expect_closed();
    server.connect().call("XADD s 1-1 a b", "$3\r\n1-1\r\n");
    blocked.expect("*1\r\n*2\r\n$1\r\ns\r\n");
}

#[test]
fn reset_restores_the_initial_connection_state() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send("HELLO 3 SETNAME me\r\n");
    while client.line() != "*0" {}
    client.call("SELECT 5", "+OK\r\n");
    client.call("WATCH k", "+OK\r\n");
    client.call("MULTI", "+OK\r\n");
    client.call("RESET", "+RESET\r\n");
    client.call("CLIENT GETNAME", "$-1\r\n");
    client.call("SET k v", "+OK\r\n");
    client.call("SELECT 0", "+OK\r\n");
    client.call("GET k", "$1\r\nv\r\n");
}

#[test]
fn shutdown_stops_the_server() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send("SHUTDOWN\r\n");
    client.expect_closed();
    let (output, status) = server.wait();
    assert_eq!(status.code(), Some(0), "{output}");
}

#[test]
fn slowlog_records_commands_without_passwords() {
    let server = Server::start(&["--slowlog-log-slower-than", "0"]);
    let mut client = server.connect();
    client.call("CONFIG SET requirepass hunter2", "+OK\r\n");
    client.call("AUTH hunter2", "+OK\r\n");
    client.call("SET key value", "+OK\r\n");
    client.send("SLOWLOG GET 10\r\nPING\r\n");
    let mut log = String::new();
    loop {
        let line = client.line();
        if line == "+PONG" {
            break;
        }
        log.push_str(&line);
        log.push('\n');
    }
    assert!(log.contains("SET\n$3\nkey\n$5\nvalue\n") && log.contains("(redacted)"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}
