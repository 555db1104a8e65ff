//! The remaining options of `millstream work`, and its failures.

use crate::test_store::TestStore;

#[test]
fn until_empty_exits_immediately_without_messages() {
    for store in TestStore::both() {
        let run = store.work(&["--exec", "false"]).ok();
        assert_eq!(run.report(["received"]), [0]);
    }
}

#[test]
fn dedupe_handles_a_duplicate_once() {
    let store = TestStore::server();
    for order in ["17", "18", "17"] {
        store.call(&["XADD", "orders", "*", "order_id", order]);
    }
    let run = store.work(&[
        "--exec",
        "echo $MILLSTREAM_FIELD_ORDER_ID >> handled",
        "--dedupe",
        "1h",
        "--dedupe-field",
        "order_id",
    ]);
    assert_eq!(run.ok().report(["acknowledged", "deduplicated"]), [2, 1]);
    assert_eq!(store.lines("handled").len(), 2);
}

#[test]
fn delete_done_leaves_only_what_another_group_needs() {
    let store = TestStore::server();
    store.add(20);
    let length = || {
        let info = store.run(&["stream", "info", "orders", "--json"]).ok().out;
        serde_json::from_str::<serde_json::Value>(&info).expect("JSON")["length"].clone()
    };
    store.call(&["XGROUP", "CREATE", "orders", "audit", "0"]);
    store.work(&["--exec", "true", "--delete-done"]).ok();
    assert_eq!(length(), 20, "audit has read nothing");
    store.call(&["XGROUP", "DESTROY", "orders", "audit"]);
    store.work(&["--exec", "true", "--delete-done"]).ok();
    assert_eq!(length(), 0);
}

#[test]
fn dlq_names_the_dead_letter_stream() {
    let store = TestStore::embedded();
    store.add(1);
    store.work(&["--exec", "exit 65", "--dlq", "failed-orders"]).exits(6);
    let streams = store.run(&["stream", "ls", "--json"]).ok().out;
    assert!(streams.contains("failed-orders") && !streams.contains(":dlq"), "{streams}");
}

#[test]
fn concurrency_handles_messages_in_parallel() {
    let store = TestStore::server();
    store.add(4);
    // Each command waits until all four run.
    let together = "echo x >> arrived; until [ $(wc -l < arrived) -ge 4 ]; do sleep 0.05; done";
    let run = store.work(&["--exec", together, "--concurrency", "4"]).ok();
    assert_eq!(run.report(["acknowledged"]), [4]);
}

#[test]
fn autoscale_grows_the_pool_under_load() {
    let store = TestStore::server();
    store.add(200);
    // No command ends before two run at the same time.
    let together = "echo x >> arrived; until [ $(wc -l < arrived) -ge 2 ]; do sleep 0.05; done";
    let run = store.work(&["--exec", together, "--autoscale", "1..4", "--log", "info"]).ok();
    assert_eq!(run.report(["acknowledged"]), [200]);
    run.stderr_contains("scaling the pool");
}

#[test]
fn a_worker_reads_several_streams() {
    let store = TestStore::server();
    store.add(2);
    store.run(&["add", "returns", "item=book"]).ok();
    let run = store.work(&["--stream", "returns", "--exec", "echo $MILLSTREAM_STREAM >> from"]).ok();
    assert_eq!(run.report(["acknowledged"]), [3]);
    let mut from = store.lines("from");
    from.sort();
    assert_eq!(from, ["orders", "orders", "returns"]);
}

#[test]
fn from_latest_skips_existing_messages() {
    let store = TestStore::server();
    store.add(2);
    let run = store.work(&["--exec", "true", "--from", "latest"]).ok();
    assert_eq!(run.report(["received"]), [0]);
}

#[test]
fn a_fixed_consumer_name_resumes_its_pending_messages() {
    let store = TestStore::server();
    store.add(1);
    store.call(&["XGROUP", "CREATE", "orders", "billing", "0"]);
    store.call(&["XREADGROUP", "GROUP", "billing", "billing-1", "STREAMS", "orders", ">"]);
    // With this lease, another consumer would wait for an hour.
    let run = store.work(&["--exec", "true", "--consumer", "billing-1", "--lease", "1h"]).ok();
    assert_eq!(run.report(["acknowledged"]), [1]);
    assert!(run.out.contains(r#""consumer":"billing-1""#), "{}", run.out);
}

#[test]
fn quiet_prints_nothing_and_the_default_report_is_text() {
    let store = TestStore::server();
    store.add(1);
    let quiet = store.start(&["--exec", "true", "--until-empty", "--quiet"]).wait().ok();
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    store.add(1);
    let run = store.start(&["--exec", "echo to standard output", "--until-empty"]).wait().ok();
    assert_eq!(run.out, "to standard output\n");
    run.stderr_contains("millstream: 1 received, 1 acknowledged");
}

#[test]
fn invalid_options_exit_with_2() {
    let store = TestStore::server();
    for (arguments, text) in [
        (&[][..], "--exec"),
        (&["--exec", "true", "--http", "http://host/"], "cannot be used with"),
        (&["--exec", "true", "--autoscale", "5..2"], "2..32"),
        (&["--exec", "true", "--concurrency", "0"], "at least 1"),
        (&["--exec", "true", "--autoscale", "1..2", "--concurrency", "3"], "cannot be used with"),
        (&["--exec", "true", "--max-deliveries", "0"], "max-deliveries"),
        (&["--exec", "true", "--max-attempts", "0"], "max-attempts"),
        (&["--exec", "true", "--lease", "1ms"], "the lease must be at least 50 ms"),
        (&["--exec", "true", "--listen", "9091"], "127.0.0.1:9091"),
        (&["--exec", ""], "the command is empty"),
        (&["--child", " "], "the command is empty"),
        (&["--http", ""], "invalid URL"),
        (&["--exec", "true", "--stream", "orders"], "given twice"),
        (&["--exec", "true", "--stream", ""], "--stream"),
        (&["--exec", "true", "--consumer", ""], "--consumer"),
        (&["--exec", "true", "--dlq", ""], "--dlq"),
        (&["--exec", "true", "--timeout", "soon"], "expected a duration"),
        (&["--exec", "true", "--header", "a: b"], "--http"),
        (&["--child", "true", "--batch", "2"], "--batch requires --exec"),
        (&["--exec", "true", "--batch", "0"], "at least 1"),
        (&["--exec", "true", "--batch-wait", "1s"], "--batch"),
        (&["--exec", "true", "--dlq", "orders"], "the worker reads orders"),
        (&["--exec", "true", "--log", "loud=very=much"], "invalid log filter"),
        (&["--exec", "true", "--log", "shout"], "unknown level \"shout\""),
        (&["--exec", "true", "--log", "bogus="], "unknown level"),
        (&["--exec", "true", "--log-format", "xml"], "[possible values: text, json]"),
        (&["--http", "localhost:80"], "http://HOST[:PORT]/PATH"),
        (&["--http", "http://host/", "--header", "nonsense"], "Name: value"),
    ] {
        // No server listens there: options are checked before the worker connects.
        let arguments = [arguments, &["--url", "redis://127.0.0.1:1"]].concat();
        store.start(&arguments).wait().exits(2).stderr_contains(text);
    }
}

#[test]
fn connection_failure_exits_with_3() {
    let store = TestStore::server();
    let run = store.start(&["--exec", "true", "--url", "redis://127.0.0.1:1"]).wait();
    run.exits(3).stderr_contains("millstream serve");
}

#[test]
fn a_key_that_is_no_stream_is_refused() {
    let store = TestStore::server();
    store.add(1);
    store.call(&["SET", "text", "x"]);
    let run = store.start(&["--stream", "text", "--exec", "true"]).wait().exits(1);
    run.stderr_contains("'text' is not a stream").stderr_contains("use another name");
}
