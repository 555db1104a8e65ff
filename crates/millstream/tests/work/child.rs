//! `--child`: programs that stay running and exchange JSON lines.

use crate::test_store::{TestStore, wait_until};

/// A program that records its start and its end, and answers every line with `answer`.
fn program(answer: &str) -> String {
    format!("echo $$ >> started; while read -r line; do {answer}; done; echo $$ >> ended")
}

#[test]
fn one_child_handles_many_messages_and_exits_with_the_worker() {
    for store in TestStore::both() {
        store.add(5);
        let program = program(r#"echo "$line" >> heard; echo '{"outcome":"ack"}'"#);
        let run = store.work(&["--child", &program, "--concurrency", "1"]).ok();
        assert_eq!(run.report(["acknowledged"]), [5]);
        assert_eq!(store.lines("heard").len(), 5);
        assert!(store.lines("heard")[0].contains(r#""fields":{"item":"book","n":"1"}"#));
        assert_eq!(store.lines("started").len(), 1);
        assert_eq!(store.lines("ended"), store.lines("started"));
    }
}

#[test]
fn the_answer_line_decides_the_outcome() {
    let store = TestStore::server();
    store.add(4);
    let program = program(
        r#"case "$line" in
            *'"n":"1"'*) echo '{"outcome":"skip"}';;
            *'"n":"2"'*) echo '{"outcome":"reject","error":"no such item"}';;
            *'"attempt":1'*'"n":"3"'*) echo '{"outcome":"retry","after_ms":10,"error":"later"}';;
            *) echo '{"outcome":"ack"}';;
        esac"#,
    );
    // Without after_ms, the second attempt would start after an hour.
    let run = store.work(&["--child", &program, "--backoff", "1h"]).exits(6);
    assert_eq!(run.report(["acknowledged", "skipped", "retried", "dead"]), [2, 1, 1, 1]);
    assert_eq!(store.dead_letters()[0]["error"], "no such item");
}

#[test]
fn a_child_that_dies_is_restarted_and_its_message_retried() {
    let store = TestStore::server();
    store.add(3);
    let program = program(
        r#"case "$line" in
            *'"attempt":1'*'"n":"2"'*) echo out of memory >&2; exit 3;;
        esac; echo '{"outcome":"ack"}'"#,
    );
    let run = store.work(&["--child", &program, "--concurrency", "1"]).ok().stderr_contains("out of memory");
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [3, 1, 0]);
    assert_eq!(store.lines("started").len(), 2);
}

#[test]
fn a_malformed_answer_is_stored_in_the_dead_letter() {
    let store = TestStore::server();
    store.add(1);
    let run = store.work(&["--child", &program("echo hello"), "--max-attempts", "2"]).exits(6);
    assert_eq!(run.report(["retried", "dead"]), [1, 1]);
    assert_eq!(store.dead_letters()[0]["error"], "invalid answer \"hello\" of the child: it is not JSON");
    assert_eq!(store.lines("started").len(), 2);
}

#[test]
fn a_child_that_exits_without_an_answer_leaves_its_stderr_in_the_dead_letter() {
    let store = TestStore::server();
    store.add(1);
    let child = "read -r line; echo no database >&2; exit 1";
    let run = store.work(&["--child", child, "--max-attempts", "1"]).exits(6);
    assert_eq!(run.report(["dead"]), [1]);
    assert_eq!(store.dead_letters()[0]["error"], "the child exited without an answer: no database");
}

#[test]
fn a_child_that_exceeds_the_timeout_is_killed() {
    let store = TestStore::server();
    store.add(1);
    let run =
        store.work(&["--child", &program("sleep 1000"), "--timeout", "1s", "--max-attempts", "1"]).exits(6);
    assert_eq!(run.report(["dead", "timeouts"]), [1, 1]);
    assert_eq!(store.dead_letters()[0]["reason"], "timeout");
}

/// Programs that end or hang before they read a message, and an endpoint that is not there: nothing has begun with the
/// message.
#[test]
fn a_handler_that_is_not_ready_costs_no_attempt_and_opens_the_breaker() {
    // Each is ready as soon as the file exists.
    let answer = program(r#"id=${line%%\",*}; echo "$id\",\"outcome\":\"ack\"}""#);
    let ends = format!("test -e ready || {{ echo no database >&2; exit 1; }}; {answer}");
    let hangs = format!("test -e ready || sleep 1000; {answer}");
    let port = crate::breaker::free_address();
    let url = format!("http://{port}/hook");
    let handlers = [
        (&["--child", &*ends][..], "the child exited without an answer: no database"),
        (&["--child", &ends, "--pipeline", "8"], "the child exited without an answer: no database"),
        (&["--child", &hangs, "--timeout", "100ms"], "the child did not read the message within 100ms"),
        (
            &["--http", &url],
            &*format!("cannot connect to http://{port}: tcp connect error: Connection refused"),
        ),
    ];
    std::thread::scope(|scope| {
        for (handler, error) in handlers {
            scope.spawn(move || {
                let store = TestStore::server();
                store.add(3);
                let worker = store.start(&[handler, &["--max-attempts", "1", "--json"]].concat());
                wait_until("the breaker to open", || worker.err().contains("circuit breaker open, because"));
                assert!(worker.err().contains("outcome=\"not_started\""), "{}", worker.err());
                assert!(worker.err().contains(error), "{}", worker.err());
                if handler[0] == "--child" {
                    store.write("ready", "");
                    wait_until("all messages to be handled", || store.lag_and_pending() == (0, 0));
                }
                worker.signal("TERM");
                assert_eq!(worker.wait().ok().report(["dead"]), [0]);
                assert!(store.dead_letters().is_empty());
            });
        }
    });
}

/// A program that ends after each message has not read the next one.
#[test]
fn messages_that_a_program_did_not_read_cost_no_attempt() {
    let store = TestStore::server();
    store.add(20);
    let child = r#"read -r line; id=${line%%\",*}; echo "$id\",\"outcome\":\"ack\"}"; sleep 0.05"#;
    let options = ["--child", child, "--pipeline", "4", "--max-attempts", "1", "--breaker", "off"];
    let run = store.work(&options).ok();
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [20, 0, 0]);
}
