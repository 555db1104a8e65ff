//! Commands that block on many keys or watch many keys: their time is linear, their memory is counted, and the number
//! of keys is limited.

mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use support::Client;

/// The limit of keys that one command can block on, and of keys that one client can watch.
const KEYS_MAX: usize = 65_536;

/// Encodes a request.
fn request<A: AsRef<str>>(args: impl IntoIterator<Item = A>) -> String {
    let args: Vec<String> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    let bulk = |arg: &String| format!("${}\r\n{arg}\r\n", arg.len());
    format!("*{}\r\n{}", args.len(), args.iter().map(bulk).collect::<String>())
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(' ').map(str::to_owned)
}

fn keys(count: usize) -> impl Iterator<Item = String> + Clone {
    (0..count).map(|number| format!("k{number}"))
}

/// XREAD or XREADGROUP of many keys from the same id.
fn read(begin: &str, count: usize, id: &str) -> String {
    let ids = std::iter::repeat_n(id.to_owned(), count);
    request(words(begin).chain(keys(count)).chain(ids))
}

fn watch(count: usize) -> String {
    request(words("WATCH").chain(keys(count)))
}

/// Sends requests and returns their replies.
fn call(client: &mut Client, requests: &str) -> String {
    client.send(requests);
    client.send("PING\r\n");
    String::from_utf8(client.until_pong()).unwrap()
}

#[test]
fn watching_many_keys_takes_linear_time() {
    let mut client = Client::connect(support::start());
    let mut time = |count| {
        let begin = Instant::now();
        // The second WATCH adds no keys.
        let (once, twice) = (watch(count), watch(count));
        assert_eq!(call(&mut client, &(once + &twice + "UNWATCH\r\n")), "+OK\r\n+OK\r\n+OK\r\n");
        begin.elapsed()
    };
    let times: Vec<_> = (0..3).map(|_| (time(4_000), time(32_000))).collect();
    // Eight times as many keys take about 8 times as long in linear time, and 64 times as long in quadratic time. On a
    // busy machine one attempt can take long for other reasons.
    let is_linear = |&(few, many): &(Duration, Duration)| many < 24 * few + Duration::from_millis(500);
    assert!(times.iter().any(is_linear), "4,000 and 32,000 keys: {times:?}");
}

#[test]
fn number_of_keys_that_a_command_can_block_on_is_limited() {
    let mut client = Client::connect(support::start());
    let refused = "-ERR too many keys: a command that can block accepts at most 65536\r\n";
    let null = "*-1\r\n";
    assert_eq!(call(&mut client, &read("XREAD BLOCK 1 STREAMS", KEYS_MAX, "$")), null);
    assert_eq!(call(&mut client, &read("XREAD BLOCK 1 STREAMS", KEYS_MAX + 1, "$")), refused);
    assert_eq!(call(&mut client, &read("XREAD STREAMS", KEYS_MAX + 1, "$")), null);
    let group_read = read("XREADGROUP GROUP g c BLOCK 1 STREAMS", KEYS_MAX + 1, ">");
    assert_eq!(call(&mut client, &group_read), refused);
    let pop = |count| request(words("BLPOP").chain(keys(count)).chain(words("0.001")));
    assert_eq!(call(&mut client, &pop(KEYS_MAX)), null);
    assert_eq!(call(&mut client, &pop(KEYS_MAX + 1)), refused);
}

#[test]
fn number_of_keys_that_a_client_can_watch_is_limited() {
    let mut client = Client::connect(support::start());
    let refused = "-ERR too many keys: a client can watch at most 65536\r\n";
    assert_eq!(call(&mut client, &watch(KEYS_MAX + 1)), refused);
    assert_eq!(call(&mut client, &watch(KEYS_MAX)), "+OK\r\n");
    assert_eq!(call(&mut client, "WATCH more\r\n"), refused);
    assert_eq!(call(&mut client, "UNWATCH\r\nWATCH more\r\n"), "+OK\r\n+OK\r\n");
}

/// Returns `tot-mem` of each client in CLIENT LIST, oldest client first.
fn memory(client: &mut Client) -> Vec<usize> {
    let list = call(client, "CLIENT LIST\r\n");
    let fields = list.split_whitespace().filter_map(|field| field.strip_prefix("tot-mem="));
    fields.map(|bytes| bytes.parse().unwrap()).collect()
}

#[test]
fn memory_of_watched_and_blocked_keys_is_counted_and_limited() {
    let address = support::start();
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    assert_eq!(call(&mut other, &watch(1_000)), "+OK\r\n");
    assert!(memory(&mut client)[1] > 100_000);
    assert_eq!(call(&mut other, "UNWATCH\r\n"), "+OK\r\n");
    assert!(memory(&mut client)[1] < 10_000);
    other.send(&read("XREAD BLOCK 0 STREAMS", 1_000, "$"));
    while memory(&mut client)[1] < 500_000 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(call(&mut client, "XADD k7 1-1 n 1\r\n").starts_with("$3\r\n1-1"));
    assert!(call(&mut other, "").contains("1-1"));
    assert!(memory(&mut client)[1] < 10_000);
    // Watched keys count as buffered requests.
    assert_eq!(call(&mut client, "CONFIG SET client-query-buffer-limit 1mb\r\n"), "+OK\r\n");
    let long_key = |number: u32| request(["WATCH", &format!("{number}{}", "x".repeat(50_000))]);
    assert_eq!(call(&mut other, &(0..9).map(long_key).collect::<String>()), "+OK\r\n".repeat(9));
    // The server may close the connection while the requests are being sent, so the write may fail.
    let _ = other.0.write_all((9..30).map(long_key).collect::<String>().as_bytes());
    let mut replies = Vec::new();
    while other.read_more(&mut replies) > 0 {}
    assert!(replies.len() < 30 * 5, "the server did not close the connection");
    assert_eq!(memory(&mut client).len(), 1);
}
