//! Commands that cannot run, and the exit codes of `--until-empty`.
//!
//! `MILLSTREAM_LONG_OUTAGE=1` also waits until `--until-empty` gives up, which takes half a minute.

use crate::test_store::TestStore;

/// Handles a message only if no earlier attempt was counted.
const FIRST_ATTEMPT: &str = "test $MILLSTREAM_ATTEMPT = 1";

#[test]
fn a_command_that_cannot_run_stops_the_worker_and_no_attempt_counts() {
    let handlers = [
        (&["--exec", "./chrage.sh"][..], "./chrage.sh: not found"),
        (&["--exec", "./data.txt"], "./data.txt: Permission denied"),
        (&["--exec", "./chrage.sh", "--batch", "4"], "./chrage.sh: not found"),
        (&["--child", "./chrage.py"], "./chrage.py: not found"),
        (&["--child", "./chrage.py", "--pipeline", "8"], "./chrage.py: not found"),
    ];
    for (store, handlers) in [(TestStore::server(), &handlers[..]), (TestStore::embedded(), &handlers[..1])] {
        store.add(50);
        store.write("data.txt", "not a program");
        for (arguments, error) in handlers {
            let run =
                store.start(&[arguments, &["--json", "--max-attempts", "1"][..]].concat()).wait().exits(7);
            assert_eq!(run.report(["acknowledged", "dead", "unsettled"]), [0, 0, 0], "{arguments:?}");
            let run = run.stderr_contains("the command of the handler cannot run: ").stderr_contains(error);
            assert!(
                run.err
                    .ends_with("correct --exec or --child; all messages are kept, and no attempt counts\n"),
                "{}",
                run.err
            );
            let (unread, pending) = store.lag_and_pending();
            assert_eq!(unread + pending, 50, "{arguments:?}");
        }
        let run = store.work(&["--exec", FIRST_ATTEMPT, "--max-attempts", "1", "--lease", "10m"]).ok();
        assert_eq!(run.report(["acknowledged", "dead"]), [50, 0]);
    }
}

#[test]
fn a_command_that_cannot_run_for_the_only_message_stops_the_worker_too() {
    let store = TestStore::server();
    store.add(1);
    store.work(&["--exec", "./chrage.sh"]).exits(7).stderr_contains("./chrage.sh: not found");
    let run = store.work(&["--exec", FIRST_ATTEMPT, "--max-attempts", "1"]).ok();
    assert_eq!(run.report(["acknowledged", "dead"]), [1, 0]);
}

#[test]
fn after_a_success_the_same_exit_codes_are_failures_of_a_message() {
    for how in ["--exec", "--child"] {
        let store = TestStore::server();
        store.add(5);
        let command = match how {
            "--exec" => "test $MILLSTREAM_FIELD_N = 1 || exit 127",
            _ => {
                "while read -r line; do case $line in *'\"n\":\"1\"'*) echo '{\"outcome\":\"ack\"}';; *) exit 127;; esac; done"
            }
        };
        let run = store.work(&[how, command, "--concurrency", "1", "--max-attempts", "1"]).exits(6);
        assert_eq!(run.report(["acknowledged", "dead"]), [1, 4]);
    }
}

#[test]
fn until_empty_exits_with_6_if_messages_were_dead_lettered() {
    let store = TestStore::server();
    store.add(2);
    let reject_first = "test $MILLSTREAM_FIELD_N != 1 || exit 65";
    let run = store.start(&["--exec", reject_first, "--until-empty"]).wait().exits(6);
    run.stderr_contains("millstream: 2 received, 1 acknowledged, 1 dead\n").stderr_contains(
        "millstream: moved 1 message to the dead letters; list them with: millstream dlq ls orders\n",
    );
    // Dead letters of an earlier run do not count.
    store.add(1);
    store.work(&["--exec", "true"]).ok();
    // Without --until-empty, a worker ends because of a signal, and that is a normal end.
    store.add(1);
    let worker = store.start(&["--exec", "echo x >> rejected; exit 65", "--log", "info"]);
    store.wait_for("rejected", 1);
    crate::test_store::wait_until("the dead letter", || store.dead_letters().len() == 2);
    worker.signal("TERM");
    worker.wait().ok();
}

#[test]
fn until_empty_exits_with_10_if_the_group_was_deleted_meanwhile() {
    for delete in [&["XGROUP", "DESTROY", "orders", "billing"][..], &["DEL", "orders"]] {
        let store = TestStore::server();
        store.add(100);
        store.write("wait", "");
        let handler = "echo x >> begun; while test -e wait; do sleep 0.02; done";
        let worker = store.start(&["--exec", handler, "--until-empty", "--json", "--concurrency", "2"]);
        store.wait_for("begun", 2);
        store.call(delete);
        crate::test_store::wait_until("the group to exist again", || {
            worker.err().contains("created it again")
        });
        std::fs::remove_file(store.folder.join("wait")).expect("remove a file");
        let run = worker.wait().exits(10);
        assert!(run.report(["groups_recreated"]) >= [1], "{}", run.err);
        let run = run.stderr_contains("group 'billing' or its stream was deleted while the worker ran");
        assert!(run.err.ends_with("check what was deleted, and why\n"), "{}", run.err);
    }
}

#[test]
fn until_empty_gives_up_when_the_store_refuses_what_it_needs() {
    if std::env::var_os("MILLSTREAM_LONG_OUTAGE").is_none() {
        return;
    }
    let store = TestStore::server();
    store.add(100);
    let worker =
        store.start(&["--exec", "echo x >> begun; sleep 0.2", "--until-empty", "--concurrency", "1"]);
    store.wait_for("begun", 1);
    // As on a full disk: the worker cannot create its group again.
    store.call(&["ACL", "SETUSER", "default", "-xgroup|create"]);
    store.call(&["XGROUP", "DESTROY", "orders", "billing"]);
    worker.wait().exits(10).stderr_contains("gave up, because the store refuses calls or does not answer: ");
}
