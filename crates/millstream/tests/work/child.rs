//! Programs that stay and speak JSON lines.

use crate::place::Place;

/// Says that it started, and when it ended, and answers every line.
fn program(answer: &str) -> String {
    format!("echo $$ >> started; while read -r line; do {answer}; done; echo $$ >> ended")
}

#[test]
fn one_program_handles_many_messages_and_ends_when_told() {
    for place in Place::both() {
        place.add(5);
        let program = program(r#"echo "$line" >> heard; echo '{"outcome":"ack"}'"#);
        let run = place.work(&["--child", &program, "--concurrency", "1"]).ok();
        assert_eq!(run.report(["acknowledged"]), [5]);
        assert_eq!(place.lines("heard").len(), 5);
        assert!(place.lines("heard")[0].contains(r#""fields":{"item":"book","n":"1"}"#));
        assert_eq!(place.lines("started").len(), 1);
        assert_eq!(place.lines("ended"), place.lines("started"));
    }
}

#[test]
fn a_line_says_what_becomes_of_a_message() {
    let place = Place::server();
    place.add(4);
    let program = program(
        r#"case "$line" in
            *'"n":"1"'*) echo '{"outcome":"skip"}';;
            *'"n":"2"'*) echo '{"outcome":"reject","error":"no such item"}';;
            *'"attempt":1'*'"n":"3"'*) echo '{"outcome":"retry","after_ms":10,"error":"later"}';;
            *) echo '{"outcome":"ack"}';;
        esac"#,
    );
    // Without after_ms the second try would be in an hour.
    let run = place.work(&["--child", &program, "--backoff", "1h"]).ok();
    assert_eq!(run.report(["acknowledged", "skipped", "retried", "dead"]), [2, 1, 1, 1]);
    assert_eq!(place.letters()[0]["error"], "no such item");
}

#[test]
fn a_program_that_dies_is_started_again_and_its_message_tried_again() {
    let place = Place::server();
    place.add(3);
    let program = program(
        r#"case "$line" in
            *'"attempt":1'*'"n":"2"'*) echo out of memory >&2; exit 3;;
        esac; echo '{"outcome":"ack"}'"#,
    );
    let run = place.work(&["--child", &program, "--concurrency", "1"]).ok().complains("out of memory");
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [3, 1, 0]);
    assert_eq!(place.lines("started").len(), 2);
}

#[test]
fn nonsense_is_told_in_the_dead_letter() {
    let place = Place::server();
    place.add(1);
    let run = place.work(&["--child", &program("echo hello"), "--max-deliveries", "2"]).ok();
    assert_eq!(run.report(["retried", "dead"]), [1, 1]);
    assert_eq!(place.letters()[0]["error"], "the child answered \"hello\", which is no JSON");
    assert_eq!(place.lines("started").len(), 2);
}

#[test]
fn a_program_that_ends_at_once_is_told_with_its_last_words() {
    let place = Place::server();
    place.add(1);
    let run = place.work(&["--child", "echo no database >&2; exit 1", "--max-deliveries", "1"]).ok();
    assert_eq!(run.report(["dead"]), [1]);
    assert_eq!(place.letters()[0]["error"], "the child ended without an answer: no database");
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    let place = Place::server();
    place.add(1);
    let run =
        place.work(&["--child", &program("sleep 1000"), "--timeout", "1s", "--max-deliveries", "1"]).ok();
    assert_eq!(run.report(["dead", "timeouts"]), [1, 1]);
    assert_eq!(place.letters()[0]["reason"], "timeout");
}
