//! What a worker logs: failures, lines of handlers on standard error, and the formats.

use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::test_store::TestStore;

/// Returns the log lines that contain a text.
fn lines_with<'a>(log: &'a str, text: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(text)).collect()
}

#[test]
fn every_failed_attempt_and_every_dead_letter_has_a_line() {
    let store = TestStore::server();
    store.call(&["XADD", "orders", "7-1", "n", "1"]);
    store.call(&["XADD", "orders", "7-2", "n", "2"]);
    let endpoint = Endpoint::new(|request| match request.body.contains("7-1") {
        true => Some(("500 Internal Server Error", String::new(), "the bank is closed")),
        false => Some(("400 Bad Request", String::new(), "no \u{1b}[31mamount\nsecond line")),
    });
    let run = store.work(&["--http", &endpoint.url, "--max-attempts", "3", "--quiet"]).exits(6);
    let failed = lines_with(&run.err, "WARN attempt failed id=7-1 ");
    assert_eq!(failed.len(), 2, "{}", run.err);
    for (attempt, line) in (1..).zip(failed) {
        let fields = format!(
            "stream=\"orders\" group=\"billing\" attempt={attempt} outcome=\"failed\" \
             error=\"500 Internal Server Error: the bank is closed\" next_attempt_in_s=0."
        );
        assert!(line.contains(&fields), "{line}");
    }
    let [dead] = &lines_with(&run.err, "ERROR message dead-lettered id=7-1 ")[..] else {
        panic!("{}", run.err)
    };
    assert!(dead.contains("attempt=3 reason=\"max_attempts\""), "{dead}");
    let [rejected] = &lines_with(&run.err, "ERROR message dead-lettered id=7-2 ")[..] else {
        panic!("{}", run.err)
    };
    let fields = "stream=\"orders\" group=\"billing\" attempt=1 reason=\"rejected\" \
                  error=\"400 Bad Request: no \\\\u{1b}[31mamount\" dead_letters=\"{orders}:dlq\"";
    assert!(rejected.ends_with(fields), "{rejected}");
    assert!(!run.err.contains('\u{1b}'), "{}", run.err);
}

#[test]
fn a_new_group_of_a_stream_without_messages_has_a_warning() {
    let store = TestStore::server();
    let warning = "WARN the stream has never had a message";
    let run = store.work(&["--exec", "true"]).ok();
    let [line] = &lines_with(&run.err, warning)[..] else { panic!("{}", run.err) };
    assert!(line.ends_with("check the name of the stream stream=\"orders\" group=\"billing\""), "{line}");
    store.add(1);
    let other = ["work", "--stream", "orders", "--group", "audit", "--exec", "true", "--until-empty"];
    let run = store.run(&other).ok();
    assert!(!run.err.contains(warning), "{}", run.err);
}

#[test]
fn a_handler_that_writes_megabytes_does_not_fill_the_log() {
    let store = TestStore::embedded();
    store.add(1);
    let command = "yes 0123456789abcdef | head -n 60000 >&2; echo no customer >&2; exit 65";
    let run = store.work(&["--exec", command]).exits(6);
    assert!(run.err.len() < 200_000, "{} bytes", run.err.len());
    assert_eq!(lines_with(&run.err, " more bytes of standard error left out]").len(), 1);
    let [dead] = &lines_with(&run.err, "ERROR message dead-lettered id=")[..] else { panic!("{}", run.err) };
    assert!(dead.contains("error=\"no customer\""), "{dead}");
}

#[test]
fn standard_output_of_a_handler_is_passed_on_as_it_is_up_to_a_limit() {
    let store = TestStore::embedded();
    store.add(1);
    let run = store.start(&["--until-empty", "--exec", "printf 'a\\nb'"]).wait().ok();
    assert_eq!(run.out, "a\nb");
    store.add(1);
    let run = store.start(&["--until-empty", "--exec", "head -c 9000000 /dev/zero"]).wait().ok();
    assert_eq!(run.out.len(), 1024 * 1024);
    let left_out = format!(" | [{} more bytes of standard output left out]", 9_000_000 - 1024 * 1024);
    assert_eq!(lines_with(&run.err, &left_out).len(), 1, "{}", run.err);
}

#[test]
fn failures_with_the_same_error_are_counted() {
    let store = TestStore::embedded();
    store.add(40);
    // Exit code 65 rejects. The error has another number each time.
    let command = "echo order $MILLSTREAM_FIELD_N has no customer >&2; exit 65";
    let run = store.work(&["--exec", command]).exits(6);
    assert_eq!(lines_with(&run.err, "ERROR message dead-lettered id=").len(), 10, "{}", run.err);
    let [more] = &lines_with(&run.err, "ERROR more messages dead-lettered with the same error")[..] else {
        panic!("{}", run.err)
    };
    assert!(more.contains(" suppressed=30 last_id="), "{more}");
    assert!(more.contains("reason=\"rejected\" error=\"order "), "{more}");
}

#[test]
fn lines_on_standard_error_have_the_id_of_their_message() {
    let store = TestStore::server();
    let child = "while read -r line; do echo thinking >&2; echo '{\"outcome\":\"ack\"}'; done";
    for (arguments, prefixes) in [
        (&["--exec", "echo thinking >&2"][..], &["7-1 | thinking", "7-2 | thinking"][..]),
        (&["--exec", "echo thinking >&2", "--batch", "2", "--batch-wait", "10s"], &["7-1 (+1) | thinking"]),
        (&["--child", child], &["7-1 | thinking", "7-2 | thinking"]),
    ] {
        store.call(&["DEL", "orders"]);
        store.call(&["XADD", "orders", "7-1", "n", "1"]);
        store.call(&["XADD", "orders", "7-2", "n", "2"]);
        let run = store.work(&[arguments, &["--concurrency", "1", "--quiet"][..]].concat()).ok();
        let mut lines: Vec<&str> = run.err.lines().collect();
        lines.sort();
        assert_eq!(lines, prefixes, "{arguments:?}");
    }
}

#[test]
fn with_log_format_json_every_line_is_an_object() {
    let store = TestStore::server();
    store.call(&["XADD", "orders", "7-1", "n", "1"]);
    let command = "printf 'no \\033[31mamount\\n' >&2; test $MILLSTREAM_ATTEMPT = 2 && exit 65; exit 75";
    let run = store.work(&["--exec", command, "--log-format", "json"]).exits(6);
    let lines: Vec<Value> =
        run.err.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    assert!(!run.err.contains('\u{1b}'), "{}", run.err);
    let with = |message: &str| {
        let mut found = lines.iter().filter(|line| line["message"] == message);
        let first = found.next().unwrap_or_else(|| panic!("no {message} in {}", run.err)).clone();
        assert!(first["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{first}");
        first
    };
    let error = "no \u{1b}[31mamount";
    let stderr = with(error);
    assert_eq!((&stderr["id"], &stderr["source"]), (&"7-1".into(), &"stderr".into()));
    let mut failed = with("attempt failed");
    assert!(failed["next_attempt_in_s"].as_f64().is_some_and(|seconds| seconds <= 0.1), "{failed}");
    for name in ["time", "next_attempt_in_s"] {
        failed.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(
        failed,
        json!({
            "level": "warn", "message": "attempt failed", "id": "7-1", "stream": "orders", "group": "billing",
            "attempt": 1, "outcome": "failed", "error": error
        })
    );
    let dead = with("message dead-lettered");
    assert_eq!((&dead["level"], &dead["reason"]), (&"error".into(), &"rejected".into()));
    assert_eq!((&dead["dead_letters"], &dead["error"]), (&"{orders}:dlq".into(), &error.into()));
    let drained = with("drained");
    assert_eq!(
        (&drained["received"], &drained["retried"], &drained["dead"]),
        (&2.into(), &1.into(), &1.into())
    );
    // All other texts with digits are ids, names and errors.
    for (name, value) in lines.iter().flat_map(|line| line.as_object().expect("an object")) {
        let is_number = value.as_str().is_some_and(|text| text.parse::<f64>().is_ok());
        assert!(!is_number, "{name} is a number as a text: {value}");
    }
    let end = lines.last().unwrap();
    assert_eq!(end["level"], "error");
    assert!(end["message"].as_str().unwrap().starts_with("moved 1 message to the dead letters"), "{end}");
    // The report of --json goes to standard output.
    assert_eq!(run.report(["retried", "dead"]), [1, 1]);
}
