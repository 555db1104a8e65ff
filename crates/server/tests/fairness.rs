//! A connection with slow commands in one batch: its I/O thread serves other connections in between.

mod support;

use std::thread;

use support::Client;

/// Sends `requests`, whose last command sets `n` to `last`, and meanwhile reads `n` over another connection of the same
/// thread. Returns how many different values that connection has seen.
fn values_seen_meanwhile(mut busy: Client, other: &mut Client, requests: String, last: usize) -> usize {
    let mut reader = Client(busy.0.try_clone().unwrap());
    let sending = thread::spawn(move || {
        busy.send(&requests);
        busy.send("PING\r\n");
    });
    let reading = thread::spawn(move || drop(reader.until_pong()));
    let mut seen: Vec<String> = Vec::new();
    while seen.last().is_none_or(|value| *value != format!("${}\r\n{last}\r\n", last.to_string().len())) {
        other.send("GET n\r\nPING\r\n");
        let value = String::from_utf8(other.until_pong()).unwrap();
        if seen.last() != Some(&value) {
            seen.push(value);
        }
    }
    sending.join().unwrap();
    reading.join().unwrap();
    seen.len()
}

#[test]
fn a_connection_with_slow_commands_in_one_batch_is_interrupted() {
    let address = support::start();
    let (mut busy, mut other) = (Client::connect(address), Client::connect(address));
    // KEYS searches the whole key. This takes longer than a batch may run. An inline command has at most 64 KB.
    let key = "a".repeat(1_000_000);
    busy.send(&format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\n1\r\nPING\r\n", key.len()));
    busy.until_pong();
    let slow = format!("KEYS *{}b*\r\nINCR n\r\n", "a".repeat(200));
    let seen = values_seen_meanwhile(busy, &mut other, slow.repeat(20), 20);
    assert!(seen > 5, "{seen} values");
}
