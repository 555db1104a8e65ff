//! How programs with the packages start and end: signals, exit codes, and a first process that is killed.

use crate::language::Language;
use crate::test_store::{Running, TestStore, is_alive, wait_until};

#[test]
fn a_signal_drains_the_worker_in_python() {
    drains(Language::Python);
}

#[test]
fn a_signal_drains_the_worker_in_python_async() {
    drains(Language::PythonAsync);
}

#[test]
fn a_signal_drains_the_worker_in_node() {
    drains(Language::Node);
}

fn drains(language: Language) {
    let store = TestStore::server();
    language.write_worker(&store, 1);
    store.write("wait", "");
    store.add(1);
    let worker = Running::start(&mut language.worker(&store, &["--json"]));
    store.wait_for("notes", 1);
    worker.signal("TERM");
    wait_until("the worker to drain", || worker.err().contains("draining"));
    std::fs::remove_file(store.folder.join("wait")).expect("remove a file");
    assert_eq!(worker.wait().ok().report(["acknowledged", "unsettled"]), [1, 0]);
    assert_eq!(store.lines("done"), ["1"]);
}

#[test]
fn a_handler_gets_the_trace_of_its_message() {
    for (language, none) in
        [(Language::Python, "None"), (Language::PythonAsync, "None"), (Language::Node, "undefined")]
    {
        let store = TestStore::server();
        language.write_worker(&store, 1);
        let traced = [
            "n=1",
            "traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "tracestate=foo=1",
        ];
        store.run(&[&["add", "orders"][..], &traced].concat()).ok();
        store.run(&["add", "orders", "n=2"]).ok();
        Running::start(&mut language.worker(&store, &["--until-empty", "--json"])).wait().ok();
        let mut traces = store.lines("traces");
        traces.sort();
        assert_eq!(traces[1], format!("2 {none} {none}"));
        let (before, after) = ("1 00-4bf92f3577b34da6a3ce929d0e0e4736-", "-01 foo=1");
        assert!(traces[0].starts_with(before) && traces[0].ends_with(after), "{language:?}: {traces:?}");
        assert!(!traces[0].contains("00f067aa0ba902b7"), "{language:?}: {traces:?}");
    }
}

#[test]
fn the_exit_code_is_that_of_the_worker_in_python() {
    exits_as_the_worker(Language::Python);
}

#[test]
fn the_exit_code_is_that_of_the_worker_in_node() {
    exits_as_the_worker(Language::Node);
}

fn exits_as_the_worker(language: Language) {
    let store = TestStore::server();
    language.write_worker(&store, 1);
    let wrong = Running::start(&mut language.worker(&store, &["--no-such-option"])).wait();
    wrong.exits(2).stderr_contains("--no-such-option");
    store.run(&["add", "orders", "n=1", "bad=1"]).ok();
    let run = Running::start(&mut language.worker(&store, &["--until-empty", "--json"])).wait().exits(6);
    assert_eq!(run.report(["dead"]), [1]);
    assert_eq!(store.dead_letters()[0]["error"], "bad");
}

/// In Python there is no such process: it becomes the worker.
#[test]
fn if_the_first_process_of_node_is_killed_the_worker_drains() {
    let store = TestStore::server();
    Language::Node.write_worker(&store, 1);
    store.write("wait", "");
    store.add(1);
    let first = Running::start(&mut Language::Node.worker(&store, &[]));
    store.wait_for("notes", 1);
    let others = store.processes();
    first.signal("KILL");
    wait_until("the worker to drain", || first.err().contains("draining"));
    std::fs::remove_file(store.folder.join("wait")).expect("remove a file");
    wait_until("all processes to end", || !others.iter().any(|pid| is_alive(pid)));
    assert_eq!(store.lines("done"), ["1"]);
    assert_eq!(store.lag_and_pending(), (0, 0));
}
