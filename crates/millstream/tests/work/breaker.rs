//! The circuit breaker of `millstream work`: while an endpoint is down, no message is dead-lettered.
//!
//! `MILLSTREAM_LONG_OUTAGE=1` also waits until `--until-empty` gives up, which takes half a minute.

use std::net::TcpListener;

use crate::ending::{address_of, get};
use crate::endpoint::Endpoint;
use crate::test_store::{TestStore, wait_until};

/// Returns an address on which nothing listens.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a free port");
    listener.local_addr().expect("the address").to_string()
}

#[test]
fn no_message_is_dead_lettered_while_an_endpoint_is_down() {
    let stores = [Some(TestStore::server()), Some(TestStore::embedded()), TestStore::redis()];
    std::thread::scope(|scope| {
        for store in stores.into_iter().flatten() {
            scope.spawn(move || survives_an_outage(&store));
        }
    });
}

fn survives_an_outage(store: &TestStore) {
    store.add(100);
    let address = free_address();
    let url = format!("http://{address}/hook");
    let worker = store.start(&["--http", &url, "--max-attempts", "2", "--json", "--listen", "127.0.0.1:0"]);
    wait_until("the breaker to open", || worker.err().contains("circuit breaker open, because"));
    let status = address_of(&worker);
    let ready = get(&status, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("circuit breaker open for "), "{ready}");
    assert!(ready.contains("Connection refused"), "{ready}");
    assert!(get(&status, "/livez").starts_with("HTTP/1.1 200"));
    let metric = |name: &str| {
        let metrics = get(&status, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(name) && !line.contains('#'));
        line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    assert_eq!(metric("millstream_breaker_open{").as_deref(), Some("1"));

    let _endpoint = Endpoint::at(TcpListener::bind(&address).expect("bind the port again"), |_| {
        Some(("204 No Content", String::new(), ""))
    });
    wait_until("the breaker to close", || worker.err().contains("circuit breaker closed after "));
    assert!(get(&status, "/readyz").starts_with("HTTP/1.1 200"));
    wait_until("all messages to be handled", || {
        let done = get(&status, "/metrics");
        done.contains("outcome=\"ack\"} 100\n")
    });
    assert_eq!(metric("millstream_breaker_open{").as_deref(), Some("0"));
    assert_eq!(metric("millstream_breaker_openings_total{").as_deref(), Some("1"));
    worker.signal("TERM");
    let run = worker.wait().ok();
    assert_eq!(run.report(["acknowledged", "dead", "breaker_openings"]), [100, 0, 1]);
    assert!(store.dead_letters().is_empty());
}

#[test]
fn without_the_breaker_every_failure_counts() {
    let store = TestStore::server();
    store.add(30);
    let run = store.work(&["--exec", "exit 75", "--max-attempts", "1", "--breaker", "off"]).exits(6);
    assert_eq!(run.report(["dead", "breaker_openings"]), [30, 0]);
}

#[test]
fn until_empty_gives_up_when_every_handler_call_fails() {
    if std::env::var_os("MILLSTREAM_LONG_OUTAGE").is_none() {
        return;
    }
    let store = TestStore::server();
    store.add(50);
    let run = store.work(&["--exec", "echo 'the bank is closed' >&2; exit 75"]).exits(8);
    assert_eq!(run.report(["acknowledged", "dead", "breaker_openings"]), [0, 0, 1]);
    let run = run.stderr_contains("gave up, because every handler call fails: the bank is closed");
    assert!(run.err.ends_with("the messages are kept; run the command again later\n"), "{}", run.err);
    let (unread, pending) = store.lag_and_pending();
    assert_eq!(unread + pending, 50);
    store.work(&["--exec", "true"]).ok();
}
