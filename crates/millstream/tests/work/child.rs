//! `--child`: programs that stay running and exchange JSON lines.

use crate::test_store::TestStore;

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
    let run = store.work(&["--child", "echo no database >&2; exit 1", "--max-attempts", "1"]).exits(6);
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
