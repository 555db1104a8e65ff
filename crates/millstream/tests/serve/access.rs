//! Access control: passwords, protected mode, DEBUG, and the maximum number of clients.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;

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

    let open = Server::start(&["--bind", "*", "--protected-mode", "no"]);
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
