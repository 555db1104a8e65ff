//! The server sends a reply with many entries in slices. The bytes must be those of a reply in one piece, even if the
//! stream is changed or removed meanwhile, and a client can be disconnected in the middle.

mod support;

use support::Client;

const ENTRIES: usize = 9000;

/// Starts a server with a long stream `s`, which has the groups `g1` and `g2`, and a short stream `t`.
fn start() -> std::net::SocketAddr {
    let address = support::start();
    let mut client = Client::connect(address);
    fill(&mut client);
    client.send("XADD t 1-1 a b\r\nXGROUP CREATE s g1 0\r\nXGROUP CREATE s g2 0\r\nPING\r\n");
    client.until_pong();
    address
}

#[test]
fn sliced_reply_has_the_bytes_of_a_reply_in_one_piece() {
    let address = start();
    for hello in ["HELLO 2\r\n", "HELLO 3\r\n"] {
        for request in [
            "XRANGE s - +",
            "XRANGE s 3 700 COUNT 4000",
            "XREVRANGE s + -",
            "XREVRANGE s 900-6400 3 COUNT 2500",
            "XREAD STREAMS t s nowhere 0 0 0",
            "XREAD COUNT 3000 STREAMS s t s s s s s s s s 0 0 5 6 7 8 9 10 11 99999",
            "XREADGROUP GROUP g1 c STREAMS s >",
        ] {
            let mut client = Client::connect(address);
            client.send(hello);
            client.send("PING\r\n");
            client.until_pong();
            client.send(&format!("{request}\r\nPING\r\n"));
            let sliced = client.until_pong();
            // In a transaction the reply is written in one piece. XREADGROUP uses the second group here.
            let queued = request.replace("g1", "g2");
            client.send(&format!("MULTI\r\n{queued}\r\nEXEC\r\nPING\r\n"));
            let whole = client.until_pong();
            let whole = whole.strip_prefix(b"+OK\r\n+QUEUED\r\n*1\r\n").unwrap();
            assert!(sliced.len() > 200_000, "{request}: {} bytes", sliced.len());
            assert!(sliced == whole, "{hello}{request}: {} and {} bytes", sliced.len(), whole.len());
            client.send("XGROUP SETID s g1 0\r\nXGROUP SETID s g2 0\r\nPING\r\n");
            client.until_pong();
        }
    }
    let mut client = Client::connect(address);
    client.send("XPENDING s g1\r\nPING\r\n");
    let pending = client.until_pong();
    let pending = String::from_utf8_lossy(&pending);
    assert!(
        pending.starts_with(&format!("*4\r\n:{}\r\n", ENTRIES - 1)),
        "not all entries are pending: {pending}"
    );
}

#[test]
fn sliced_reply_is_not_affected_by_changes_of_other_clients() {
    let address = start();
    let mut undisturbed = Client::connect(address);
    undisturbed.send("XRANGE s - +\r\nPING\r\n");
    let expected = undisturbed.until_pong();
    for change in ["DEL s", "XTRIM s MAXLEN 3", "FLUSHALL", "SET s x"] {
        let mut slow = Client::connect(address);
        // The replies are larger than the socket buffers, so the server has not written all of them before the change.
        slow.send(&"XRANGE s - +\r\n".repeat(8));
        let mut bytes = Vec::new();
        slow.read_more(&mut bytes);
        let mut other = Client::connect(address);
        other.send(&format!("{change}\r\nPING\r\n"));
        other.until_pong();
        while bytes.len() < expected.len() {
            assert!(slow.read_more(&mut bytes) > 0);
        }
        assert!(bytes[..expected.len()] == expected[..], "{change}");
        other.send("FLUSHALL\r\nPING\r\n");
        other.until_pong();
        fill(&mut other);
    }
}

/// Adds the entries of `s` and deletes one of them.
fn fill(client: &mut Client) {
    let add = |n: usize| format!("XADD s {}-{n} user {n} text {}\r\n", n / 7, "x".repeat(1 + n % 300));
    client.send(&(1..=ENTRIES).map(add).collect::<String>());
    client.send("XDEL s 5-36\r\nPING\r\n");
    client.until_pong();
}

#[test]
fn killed_client_and_oversized_reply_are_closed_in_the_middle() {
    let address = start();
    let mut other = Client::connect(address);
    let mut slow = Client::connect(address);
    slow.send(&"XRANGE s - +\r\n".repeat(50));
    let mut bytes = Vec::new();
    slow.read_more(&mut bytes);
    let own = slow.0.local_addr().unwrap();
    other.send(&format!("CLIENT KILL ADDR {own}\r\nPING\r\n"));
    assert_eq!(other.until_pong(), b":1\r\n");
    while slow.read_more(&mut bytes) > 0 {}
    other.send("CONFIG SET client-output-buffer-limit \"normal 300000 0 0\"\r\nPING\r\n");
    assert_eq!(other.until_pong(), b"+OK\r\n");
    let mut greedy = Client::connect(address);
    greedy.send("XRANGE s - +\r\nPING\r\n");
    let mut bytes = Vec::new();
    while greedy.read_more(&mut bytes) > 0 {}
    assert!(bytes.len() <= 300_000 && !bytes.ends_with(b"+PONG\r\n"), "{} bytes", bytes.len());
    let mut modest = Client::connect(address);
    modest.send("CLIENT REPLY SKIP\r\nXRANGE s - +\r\nECHO first\r\nXRANGE s - + COUNT 1100\r\nPING\r\n");
    assert!(modest.until_pong().starts_with(b"$5\r\nfirst\r\n*1100\r\n"));
}
