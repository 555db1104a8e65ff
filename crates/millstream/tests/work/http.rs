//! `--http`: messages posted to an endpoint.

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::test_store::TestStore;

#[test]
fn messages_are_posted_over_one_connection() {
    for store in TestStore::both() {
        store.add(5);
        let endpoint = Endpoint::new(|_| Some(("202 Accepted", String::new(), "")));
        let token = "Authorization: Bearer secret";
        let run = store.work(&["--http", &endpoint.url, "--concurrency", "1", "--header", token]).ok();
        assert_eq!(run.report(["acknowledged", "retried", "dead"]), [5, 0, 0]);
        assert_eq!(endpoint.connections(), 1);
        let requests = endpoint.requests();
        assert_eq!(requests.len(), 5);
        for (n, request) in (1..).zip(&requests) {
            assert_eq!(request.line, "POST /hook HTTP/1.1");
            let body: Value = serde_json::from_str(&request.body).expect("JSON");
            assert_eq!(body["fields"]["n"], n.to_string());
            assert_eq!(request.header("x-millstream-id"), body["id"].as_str());
            assert_eq!(request.header("x-millstream-stream"), Some("orders"));
            assert_eq!(request.header("x-millstream-group"), Some("billing"));
            assert_eq!(request.header("x-millstream-attempt"), Some("1"));
            assert_eq!(request.header("content-type"), Some("application/json"));
            assert_eq!(request.header("authorization"), Some("Bearer secret"));
        }
    }
}

#[test]
fn retry_after_is_honoured_in_seconds_and_as_a_date() {
    for (status, after) in [
        ("503 Service Unavailable", "1"),
        ("429 Too Many Requests", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("302 Found", "0"),
    ] {
        let store = TestStore::server();
        store.add(1);
        let endpoint = Endpoint::new(move |request| match request.header("x-millstream-attempt") {
            Some("1") => Some((status, format!("retry-after: {after}\r\n"), "busy")),
            _ => Some(("200 OK", String::new(), "")),
        });
        // If Retry-After were ignored, the second attempt would start after an hour.
        let run = store.work(&["--http", &endpoint.url, "--backoff", "1h"]).ok();
        assert_eq!(run.report(["acknowledged", "retried"]), [1, 1]);
    }
}

#[test]
fn a_4xx_answer_dead_letters_immediately() {
    let store = TestStore::server();
    store.add(1);
    let endpoint =
        Endpoint::new(|_| Some(("422 Unprocessable Entity", String::new(), "no such customer\nmore")));
    let run = store.work(&["--http", &endpoint.url]).exits(6);
    assert_eq!(run.report(["retried", "dead"]), [0, 1]);
    let dead_letter = &store.dead_letters()[0];
    assert_eq!(dead_letter["error"], "422 Unprocessable Entity: no such customer");
    assert_eq!(
        (&dead_letter["reason"], &dead_letter["error_type"]),
        (&"rejected".into(), &"http 422".into())
    );
}

#[test]
fn a_5xx_answer_is_retried() {
    let store = TestStore::embedded();
    store.add(2);
    let endpoint = Endpoint::new(|request| match request.body.contains(r#""n":"1""#) {
        true => Some(("500 Internal Server Error", String::new(), "boom")),
        false => Some(("200 OK", String::new(), "")),
    });
    let run = store.work(&["--http", &endpoint.url, "--max-attempts", "3"]).exits(6);
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [1, 2, 1]);
    assert_eq!(store.dead_letters()[0]["error"], "500 Internal Server Error: boom");
}

#[test]
fn an_endpoint_that_never_answers_times_out() {
    let store = TestStore::server();
    store.add(1);
    let endpoint = Endpoint::new(|_| None);
    let run = store.work(&["--http", &endpoint.url, "--timeout", "500ms", "--max-attempts", "1"]).exits(6);
    assert_eq!(run.report(["dead", "timeouts"]), [1, 1]);
    assert_eq!(store.dead_letters()[0]["reason"], "timeout");
}
