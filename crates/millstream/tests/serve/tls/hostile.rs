//! Clients that break off, stay silent, send something else than TLS, or do not read.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

use super::client::{TlsClient, TlsServer};
use crate::access::address_of_this_machine;
use crate::process::{Client, eventually, request};
use crate::random::Random;

/// Sends bytes to the port for TLS, and asserts that the server closes the connection and runs nothing.
fn refuses(tls: &TlsServer, bytes: &[u8]) {
    let mut client = tls.connect_raw();
    client.send(bytes);
    // An alert may arrive before the end. A reset is an end too.
    let mut alert = Vec::new();
    if let Err(error) = client.stream.read_to_end(&mut alert) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    assert!(alert.len() < 16, "{alert:?}");
    tls.server.connect().call("DBSIZE", ":0\r\n");
    tls.connect().call("PING", "+PONG\r\n");
}

#[test]
fn other_protocols_on_the_tls_port_are_refused() {
    let tls = TlsServer::start(&[]);
    refuses(&tls, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    refuses(&tls, b"SET k v\r\n");
    refuses(&tls, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // Records of every type, with a body that is not what they announce.
    for kind in 20..=24 {
        refuses(&tls, &[&[kind, 3, 1, 0, 10][..], b"\nSET k v\n\n"].concat());
    }
    // A message of the longest length that a record allows, and one that is longer.
    refuses(&tls, &[&[22, 3, 1, 0x40, 0][..], &[1; 0x4000]].concat());
    refuses(&tls, &[&[22, 3, 1, 0xff, 0xff][..], &[1; 0x5000]].concat());
    // Unfinished messages: the client disconnects.
    for bytes in [&[22][..], &[22, 3, 1], &[22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3]] {
        tls.connect_raw().send(bytes);
    }
    eventually("all have disconnected", || {
        tls.server.connect().ask(&["INFO clients"]).contains("connected_clients:1\r\n")
    });
}

/// Damaged handshakes and damaged records end their connection, and nothing else.
#[test]
fn damaged_messages_end_only_their_connection() {
    let tls = TlsServer::start_with(&["--tls-auth-clients", "optional"]);
    let mut random = Random::new(17);
    for _ in 0..150 {
        let mut hello = TlsClient::hello(tls.config(None));
        damage(&mut hello, &mut random);
        tls.connect_raw().send(&hello);
    }
    let mut failed = 0;
    for _ in 0..50 {
        let certificate = random.percent(50).then_some("client");
        let mut client = TlsClient::connect(tls.address(), tls.config(certificate)).unwrap();
        let mut records = client.encrypted(&"SET k v\r\n".repeat(1 + random.below(3) as usize));
        damage(&mut records, &mut random);
        client.send_raw(&records);
        let ping = client.encrypted("PING\r\n");
        client.send_raw(&ping);
        failed += usize::from(client.finish().is_err());
    }
    assert!(failed > 25, "{failed}");
    tls.server.connect().call("PING", "+PONG\r\n");
    tls.connect().call("PING", "+PONG\r\n");
    tls.server.signal("-TERM");
    let (printed, status) = tls.server.wait();
    assert!(status.success() && !printed.contains("panicked"), "{printed}");
}

/// Changes, removes or repeats some of the bytes.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.extend_from_within(at..),
            2 => drop(bytes.splice(at..at, [0; 3])),
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
}

#[test]
fn client_that_changes_its_keys_and_does_not_read_is_served() {
    let tls = TlsServer::start(&[]);
    let mut client = tls.connect();
    for _ in 0..1_000 {
        client.change_keys();
        client.send("PING\r\n");
    }
    client.expect(&"+PONG\r\n".repeat(1_000));
    let line = tls.server.connect().ask(&["CLIENT LIST"]);
    assert!(line.contains(" cmd=ping ") && line.matches(" omem=0 ").count() == 2, "{line}");
}

#[test]
fn tls_client_on_the_plain_port_is_refused() {
    let tls = TlsServer::start(&[]);
    let address = SocketAddr::from(([127, 0, 0, 1], tls.server.port));
    assert!(TlsClient::connect(address, tls.config(None)).is_err());
    tls.server.connect().call("PING", "+PONG\r\n");
}

#[test]
fn half_open_handshakes_count_as_clients_and_can_be_killed() {
    let tls = TlsServer::start(&["--maxclients", "3"]);
    let mut plain = tls.server.connect();
    plain.call("PING", "+PONG\r\n");
    let mut silent = [tls.connect_raw(), tls.connect_raw()];
    eventually("both count as clients", || plain.ask(&["INFO clients"]).contains("connected_clients:3\r\n"));
    // Over TLS the client is refused without a text that it could not read.
    tls.connect_raw().expect_closed();
    tls.server.connect().expect("-ERR max number of clients reached\r\n");
    assert!(plain.ask(&["INFO stats"]).contains("rejected_connections:2\r\n"));

    plain.call("CLIENT KILL TYPE normal SKIPME yes", ":2\r\n");
    silent.iter_mut().for_each(Client::expect_closed);
    eventually("they are gone", || plain.ask(&["INFO clients"]).contains("connected_clients:1\r\n"));
    tls.connect().call("PING", "+PONG\r\n");
}

#[test]
fn killing_a_client_with_unsent_replies_frees_them() {
    let tls = TlsServer::start(&[]);
    let mut plain = tls.server.connect();
    let mut slow = tls.connect();
    slow.send(request(&["SET", "k", &"x".repeat(4_000_000)]) + "CLIENT SETNAME slow\r\n");
    slow.expect("+OK\r\n+OK\r\n");
    slow.send("GET k\r\n".repeat(20));
    let line_of_slow = |plain: &mut Client| {
        let list = plain.ask(&["CLIENT LIST"]);
        list.lines().find(|line| line.contains("name=slow")).map(str::to_owned)
    };
    eventually("replies wait", || line_of_slow(&mut plain).is_some_and(|line| !line.contains(" omem=0 ")));
    let line = line_of_slow(&mut plain).unwrap();
    let id = line.split([' ', '=']).nth(1).unwrap();
    plain.call(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    eventually("it is gone", || line_of_slow(&mut plain).is_none());
    // The client gets what was in the sockets, and then the end.
    assert!(slow.drain() < 20 * 4_000_000);
    tls.connect().call("PING", "+PONG\r\n");
}

#[test]
fn protected_mode_closes_tls_connections_from_other_machines_without_a_text() {
    let Some(address) = address_of_this_machine() else { return };
    let tls = TlsServer::start_with(&["--bind", "*"]);
    let outside = SocketAddr::new(address, tls.tls_port);
    Client::connect(outside).expect_closed();
    // A certificate that the server would accept makes no difference.
    assert!(TlsClient::connect(outside, tls.config(Some("client"))).is_err());
    assert_eq!(tls.ping_with(Some("client")).as_deref(), Ok("+PONG\r\n"));
}
