//! What a worker logs about failures.

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
    let run = store.work(&["--http", &endpoint.url, "--max-deliveries", "3", "--quiet"]).exits(6);
    let failed = lines_with(&run.err, "WARN attempt failed id=7-1 ");
    assert_eq!(failed.len(), 2, "{}", run.err);
    for (attempt, line) in (1..).zip(failed) {
        let fields = format!(
            "stream=\"orders\" group=\"billing\" attempt={attempt} outcome=\"failed\" \
             error=\"500 Internal Server Error: the bank is closed\" next_try_in_s=0."
        );
        assert!(line.contains(&fields), "{line}");
    }
    let [dead] = &lines_with(&run.err, "ERROR message dead-lettered id=7-1 ")[..] else {
        panic!("{}", run.err)
    };
    assert!(dead.contains("attempt=3 reason=\"max_deliveries\""), "{dead}");
    let [rejected] = &lines_with(&run.err, "ERROR message dead-lettered id=7-2 ")[..] else {
        panic!("{}", run.err)
    };
    let fields = "stream=\"orders\" group=\"billing\" attempt=1 reason=\"rejected\" \
                  error=\"400 Bad Request: no \\\\u{1b}[31mamount\" dead_letters=\"{orders}:dlq\"";
    assert!(rejected.ends_with(fields), "{rejected}");
    assert!(!run.err.contains('\u{1b}'), "{}", run.err);
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
