//! Access control: passwords, protected mode, DEBUG, and the maximum number of clients.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::process::{Client, Server, TempDir, eventually, request};

#[test]
fn commands_need_the_password() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.connect();
    client.call("PING", "-NOAUTH Authentication required.\r\n");
    client.call("XADD s * a b", "-NOAUTH Authentication required.\r\n");
    client.call("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.call("AUTH nobody secret", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.call("AUTH secret", "+OK\r\n");
    client.call("PING", "+PONG\r\n");
    client.call("EXISTS s", ":0\r\n");

    let mut named = server.connect();
    named.call("AUTH default secret", "+OK\r\n");
    named.call("PING", "+PONG\r\n");

    let mut hello = server.connect();
    hello.send(
        request(&["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"])
            + &request(&["CLIENT", "GETNAME"]),
    );
    assert!(hello.line().starts_with('%'));

    let mut reset = server.connect();
    reset.call("AUTH secret", "+OK\r\n");
    reset.call("RESET", "+RESET\r\n");
    reset.call("PING", "-NOAUTH Authentication required.\r\n");
    reset.call("QUIT", "+OK\r\n");
    reset.expect_closed();
}

#[test]
fn unauthenticated_requests_are_limited_in_size() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut many = server.connect();
    many.send("*11\r\n");
    many.expect("-ERR Protocol error: unauthenticated multibulk length\r\n");
    many.expect_closed();
    let mut long = server.connect();
    long.send("*2\r\n$4\r\nAUTH\r\n$16385\r\n");
    long.expect("-ERR Protocol error: unauthenticated bulk length\r\n");
    long.expect_closed();
    let mut late = server.connect();
    late.send(request(&["AUTH", "secret"]) + &request(&["SET", "k", &"x".repeat(20_000)]));
    late.expect("+OK\r\n+OK\r\n");
}

const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[test]
fn failed_logins_are_delayed_and_logged_and_the_fifth_closes_the_connection() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut admin = server.connect();
    admin.call("AUTH secret", "+OK\r\n");
    let mut guesser = server.connect();
    let began = Instant::now();
    guesser.send("HELLO 3 AUTH default guess-1\r\nAUTH guess-2\r\nAUTH guess-3 guess-4\r\n");
    guesser.send("PING\r\nAUTH guess-5\r\nAUTH guess-6\r\nAUTH secret\r\n");
    // Other clients do not wait.
    admin.call("PING", "+PONG\r\n");
    guesser.expect(&WRONG_PASS.repeat(3));
    guesser.expect("-NOAUTH Authentication required.\r\n");
    guesser.expect(&WRONG_PASS.repeat(2));
    guesser.expect_closed();
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    let stats = admin.ask(&["INFO stats"]);
    assert!(stats.contains("acl_access_denied_auth:5\r\nfailed_login_disconnections:1\r\n"), "{stats}");

    // A client that is logged in cannot guess in a transaction.
    admin.send(format!("MULTI\r\n{}AUTH secret\r\nEXEC\r\n", "AUTH default guess-7\r\n".repeat(8)));
    admin.expect(&format!("+OK\r\n{}*9\r\n{}", "+QUEUED\r\n".repeat(9), WRONG_PASS.repeat(9)));
    admin.expect_closed();

    server.signal("-TERM");
    let log = server.wait().0;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("event=failed-login")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines[0].contains("address=\"127.0.0.1:") && lines[0].ends_with("user=\"default\""), "{log}");
    // One guess named a user that does not exist.
    assert!(lines[1].contains("address=\"127.0.0.1:") && !lines[1].contains("user="), "{log}");
    assert!(lines[2].ends_with("address=\"127.0.0.1\" user=\"default\" more=12"), "{log}");
    assert!(!log.contains("guess") && !log.contains("secret"), "{log}");
}

/// Otherwise clients that guess and close their connections would keep thousands of sockets open, for half a second
/// each.
#[test]
fn few_connections_wait_after_failed_logins() {
    let server = Server::start(&["--requirepass", "secret", "--io-threads", "1"]);
    let mut guessers: Vec<Client> = (0..600).map(|_| server.connect()).collect();
    guessers.iter_mut().for_each(|guesser| guesser.send("AUTH guess\r\n".repeat(5)));
    server.connect().call("AUTH secret", "+OK\r\n");
    let replies = guessers.iter_mut().map(|guesser| {
        let mut replies = String::new();
        guesser.stream.read_to_string(&mut replies).expect("the server closes the connection");
        replies.matches(WRONG_PASS).count()
    });
    let replies: Vec<usize> = replies.collect();
    assert!(replies.iter().all(|count| (1..=5).contains(count)), "{replies:?}");
    // 256 can wait at a time. The others were closed at their first failures.
    assert!(replies.iter().filter(|count| **count < 5).count() > 100, "{replies:?}");
}

#[test]
fn clients_that_do_not_log_in_in_time_are_disconnected() {
    let server = Server::start(&["--requirepass", "secret", "--login-timeout", "100"]);
    let (mut silent, mut client, mut reset) = (server.connect(), server.connect(), server.connect());
    client.call("AUTH secret", "+OK\r\n");
    reset.call("AUTH secret", "+OK\r\n");
    reset.call("RESET", "+RESET\r\n");
    silent.call("PING", "-NOAUTH Authentication required.\r\n");
    assert!(client.ask(&["INFO clients"]).contains("unauthenticated_clients:2\r\n"));
    client.call("CONFIG SET login-timeout 1", "+OK\r\n");
    silent.expect_closed();
    reset.expect_closed();
    eventually("the connections are gone", || {
        client.ask(&["INFO clients"]).contains("unauthenticated_clients:0\r\n")
    });
    assert!(client.ask(&["INFO stats"]).contains("login_timeout_disconnections:2\r\n"));
}

#[test]
fn clients_that_do_not_log_in_cannot_keep_out_those_that_do() {
    let server = Server::start(&["--requirepass", "secret", "--maxclients", "10", "--login-timeout", "0"]);
    let mut logged_out: Vec<Client> = (0..9).map(|_| server.connect()).collect();
    let mut late = server.connect();
    late.call("AUTH secret", "+OK\r\n");
    logged_out[0].expect_closed();
    logged_out[1].call("AUTH secret", "+OK\r\n");
    assert!(late.ask(&["INFO stats"]).contains("login_timeout_disconnections:1\r\n"));
}

/// 9,000 of them, which is fewer than `maxclients`, held 1.4 GB.
#[test]
fn memory_of_clients_that_have_not_logged_in_is_limited() {
    let server = Server::start(&["--requirepass", "secret", "--login-timeout", "0"]);
    let mut client = server.connect();
    client.call("AUTH secret", "+OK\r\n");
    let argument = format!("$16384\r\n{}\r\n", "x".repeat(16_384));
    let incomplete = format!("*10\r\n{}", argument.repeat(9));
    let mut logged_out: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    for client in &mut logged_out {
        // The server can close it before all is sent.
        let _ = client.stream.write_all(incomplete.as_bytes());
    }
    eventually("the server closes some of them", || {
        !client.ask(&["INFO stats"]).contains("evicted_clients:0\r\n")
    });
    client.call("PING", "+PONG\r\n");
}

#[test]
fn a_client_that_has_not_logged_in_is_default_when_no_password_is_required_any_more() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut waiting = server.connect();
    waiting.call("PING", "-NOAUTH Authentication required.\r\n");
    let mut admin = server.connect();
    admin.call("AUTH secret", "+OK\r\n");
    assert!(admin.ask(&["INFO clients"]).contains("unauthenticated_clients:1\r\n"));
    admin.send(request(&["CONFIG", "SET", "requirepass", ""]));
    admin.expect("+OK\r\n");
    // The limits on requests before a login do not apply either.
    waiting.send(request(&["SET", "k", &"x".repeat(20_000)]) + &request(&["ACL", "WHOAMI"]));
    waiting.expect("+OK\r\n$7\r\ndefault\r\n");
    assert!(admin.ask(&["INFO clients"]).contains("unauthenticated_clients:0\r\n"));
}

/// The server stored U+FFFD in place of each such byte, so that the password did not work, and another one did.
#[test]
fn a_password_that_is_not_utf8_is_refused() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client
        .stream
        .write_all(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$11\r\nrequirepass\r\n$1\r\n\xff\r\n")
        .unwrap();
    client.expect(
        "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - the value is not valid UTF-8\r\n",
    );
    server.connect().call("PING", "+PONG\r\n");
}

/// The server held 0.4 MB of replies for each such client.
#[test]
fn a_client_that_has_not_logged_in_must_read_its_replies() {
    let server = Server::start(&["--requirepass", "secret", "--login-timeout", "0"]);
    let mut greedy = server.connect();
    let requests = "HELLO\r\n".repeat(1000);
    // The server closes the connection when the buffers of the sockets are full.
    while greedy.stream.write_all(requests.as_bytes()).is_ok() {}
    let mut client = server.connect();
    client.call("AUTH secret", "+OK\r\n");
    let stats = client.ask(&["INFO stats"]);
    assert!(stats.contains("client_output_buffer_limit_disconnections:1\r\n"), "{stats}");
}

#[test]
fn administrative_commands_are_logged_without_secrets() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut admin, mut other) = (server.connect(), server.connect());
    other.call("PING", "+PONG\r\n");
    admin.call("CONFIG SET timeout 100 requirepass secret", "+OK\r\n");
    admin.send("CONFIG SET timeout wrong\r\n");
    assert!(admin.line().starts_with("-ERR CONFIG SET failed"));
    admin.call("SELECT 3", "+OK\r\n");
    let commands = [
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "SWAPDB 1 2",
        "DEBUG SLEEP 0",
        "ACL LOG RESET",
        "CLIENT KILL TYPE NORMAL",
    ];
    for command in commands {
        admin.send(format!("{command}\r\n"));
        admin.line();
    }
    other.expect_closed();
    admin.call("CONFIG SET audit-log no", "+OK\r\n");
    admin.call("FLUSHALL", "+OK\r\n");
    admin.call("CONFIG SET audit-log no-connections", "+OK\r\n");
    admin.call("SHUTDOWN", "");
    let log = server.wait().0;
    let commands: Vec<&str> = log.lines().filter_map(|line| line.split("event=command ").nth(1)).collect();
    let of_admin = |what: &str| {
        let address = admin.stream.local_addr().unwrap();
        format!("address=\"{address}\" user=\"default\" what=\"{what}\"")
    };
    let expected = [
        "CONFIG SET timeout requirepass",
        "FLUSHDB of database 3",
        "FLUSHALL",
        "SWAPDB 1 2",
        "DEBUG SLEEP",
        "ACL LOG RESET",
        "CLIENT KILL",
        // The audit log is turned off, and on again. FLUSHALL in between is not logged.
        "CONFIG SET audit-log",
        "CONFIG SET audit-log",
        "SHUTDOWN",
    ];
    assert_eq!(commands, expected.map(of_admin));
    assert!(log.contains("event=connected address=\"127.0.0.1:"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[test]
fn auth_fails_if_no_password_is_set() {
    let server = Server::start(&[]);
    server.connect().call(
        "AUTH secret",
        "-ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?\r\n",
    );
}

const DEBUG_REFUSED: &str = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
     you can run it from a local connection, otherwise you need to set this option in the configuration file, and \
     then restart the server.\r\n";

#[test]
fn debug_is_refused_by_default() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for command in ["DEBUG SLEEP 1e19", "DEBUG SLEEP 0", "DEBUG RELOAD", "DEBUG LOADAOF", "debug nothing"] {
        client.call(command, DEBUG_REFUSED);
    }
    client.call("MULTI", "+OK\r\n");
    client.call("DEBUG SLEEP 0", DEBUG_REFUSED);
    client.call("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.call(
        "CONFIG SET enable-debug-command yes",
        "-ERR CONFIG SET failed (possibly related to argument 'enable-debug-command') - can't set immutable \
         config\r\n",
    );
    client.call("DEBUG SLEEP 0", DEBUG_REFUSED);
}

#[test]
fn the_time_of_debug_sleep_is_limited() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.call("DEBUG SLEEP 0.001", "+OK\r\n");
    for time in ["1e19", "3600.5", "-1", "soon"] {
        let reply = "-ERR DEBUG SLEEP takes a number of seconds from 0 to 3600\r\n";
        client.call(&format!("DEBUG SLEEP {time}"), reply);
    }
}

#[test]
fn debug_can_be_allowed_to_local_clients_or_to_all() {
    let dir = TempDir::new();
    let socket = dir.path.join("socket");
    let start = |value: &str| {
        let flags = ["--bind", "*", "--protected-mode", "no", "--enable-debug-command", value];
        Server::start_in(&dir, &[&flags[..], &["--unixsocket", socket.to_str().unwrap()]].concat())
    };
    let server = start("local");
    server.connect().call("DEBUG SLEEP 0", "+OK\r\n");
    let mut local = UnixStream::connect(&socket).unwrap();
    local.write_all(b"DEBUG SLEEP 0\r\n").unwrap();
    let mut reply = [0; 5];
    local.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    let Some(address) = address_of_this_machine() else { return };
    Client::connect(SocketAddr::new(address, server.port)).call("DEBUG SLEEP 0", DEBUG_REFUSED);
    drop(server);
    let server = start("yes");
    Client::connect(SocketAddr::new(address, server.port)).call("DEBUG SLEEP 0", "+OK\r\n");
}

#[test]
fn protected_mode_refuses_clients_from_other_machines() {
    let Some(address) = address_of_this_machine() else { return };
    let server = Server::start(&["--bind", "*"]);
    let outside = SocketAddr::new(address, server.port);
    let mut remote = Client::connect(outside);
    let reply = remote.line();
    assert!(reply.starts_with("-DENIED ") && reply.contains("protected mode"), "{reply}");
    remote.expect_closed();
    server.connect().call("PING", "+PONG\r\n");

    assert!(!server.greeting.contains("warning"), "{}", server.greeting);
    let open = Server::start(&["--bind", "*", "--protected-mode", "no"]);
    let warning = " warning every client that can reach 0.0.0.0:";
    assert!(open.greeting.contains(warning), "{}", open.greeting);
    Client::connect(SocketAddr::new(address, open.port)).call("PING", "+PONG\r\n");
    let guarded = Server::start(&["--bind", "*", "--requirepass", "secret"]);
    Client::connect(SocketAddr::new(address, guarded.port)).call("AUTH secret", "+OK\r\n");
}

/// Returns an address of this machine other than loopback, if it has one. Sends no packets.
pub(crate) fn address_of_this_machine() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn clients_beyond_maxclients_are_refused() {
    let server = Server::start(&["--maxclients", "2"]);
    let mut first = server.connect();
    let mut second = server.connect();
    first.call("PING", "+PONG\r\n");
    second.call("PING", "+PONG\r\n");
    let mut third = server.connect();
    third.expect("-ERR max number of clients reached\r\n");
    third.expect_closed();
    drop(first);
    eventually("a client is accepted again", || {
        let mut client = server.connect();
        client.send("PING\r\n");
        client.line() == "+PONG"
    });
}
