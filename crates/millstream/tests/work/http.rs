//! Messages posted to an endpoint.

use std::net::TcpListener;

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::place::Place;

#[test]
fn an_endpoint_is_told_the_message_over_one_connection() {
    for place in Place::both() {
        place.add(5);
        let endpoint = Endpoint::new(|_| Some(("202 Accepted", String::new(), "")));
        let token = "Authorization: Bearer secret";
        let run = place.work(&["--http", &endpoint.url, "--concurrency", "1", "--header", token]).ok();
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
        let place = Place::server();
        place.add(1);
        let endpoint = Endpoint::new(move |request| match request.header("x-millstream-attempt") {
            Some("1") => Some((status, format!("retry-after: {after}\r\n"), "busy")),
            _ => Some(("200 OK", String::new(), "")),
        });
        // If it were not honoured the second try would be in an hour.
        let run = place.work(&["--http", &endpoint.url, "--backoff", "1h"]).ok();
        assert_eq!(run.report(["acknowledged", "retried"]), [1, 1]);
    }
}

#[test]
fn what_the_endpoint_refuses_is_a_dead_letter_at_once() {
    let place = Place::server();
    place.add(1);
    let endpoint =
        Endpoint::new(|_| Some(("422 Unprocessable Entity", String::new(), "no such customer\nmore")));
    let run = place.work(&["--http", &endpoint.url]).ok();
    assert_eq!(run.report(["retried", "dead"]), [0, 1]);
    let letter = &place.letters()[0];
    assert_eq!(letter["error"], "422 Unprocessable Entity: no such customer");
    assert_eq!((&letter["reason"], &letter["error_type"]), (&"rejected".into(), &"http 422".into()));
}

#[test]
fn failures_of_the_endpoint_are_tried_again() {
    let place = Place::embedded();
    place.add(2);
    let endpoint = Endpoint::new(|request| match request.body.contains(r#""n":"1""#) {
        true => Some(("500 Internal Server Error", String::new(), "boom")),
        false => Some(("200 OK", String::new(), "")),
    });
    let run = place.work(&["--http", &endpoint.url, "--max-deliveries", "3"]).ok();
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [1, 2, 1]);
    assert_eq!(place.letters()[0]["error"], "500 Internal Server Error: boom");
}

#[test]
fn an_endpoint_that_never_answers_takes_too_long() {
    let place = Place::server();
    place.add(1);
    let endpoint = Endpoint::new(|_| None);
    let run = place.work(&["--http", &endpoint.url, "--timeout", "500ms", "--max-deliveries", "1"]).ok();
    assert_eq!(run.report(["dead", "timeouts"]), [1, 1]);
    assert_eq!(place.letters()[0]["reason"], "timeout");
}

#[test]
fn an_endpoint_that_is_not_there_is_tried_again() {
    let place = Place::server();
    place.add(1);
    // A port that was free a moment ago, and has nobody behind it.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/");
    let run = place.work(&["--http", &url, "--max-deliveries", "2"]).ok();
    assert_eq!(run.report(["retried", "dead"]), [1, 1]);
    let error = place.letters()[0]["error"].as_str().unwrap().to_lowercase();
    assert!(error.contains("connection refused"), "{error}");
}
