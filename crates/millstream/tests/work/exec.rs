//! `--exec`: one process for each message or batch.

use std::process::Command;

use serde_json::Value;

use crate::test_store::{Running, TestStore, is_alive, wait_until};

#[test]
fn a_command_gets_the_message_and_acknowledges_with_exit_0() {
    for store in TestStore::both() {
        store.add(3);
        let command = "cat >> seen.jsonl; \
            echo \"$MILLSTREAM_STREAM $MILLSTREAM_GROUP $MILLSTREAM_ATTEMPT $MILLSTREAM_FIELD_ITEM $MILLSTREAM_FIELD_N $MILLSTREAM_ID\" >> environment";
        let run = store.work(&["--exec", command, "--concurrency", "1"]).ok();
        assert_eq!(run.report(["received", "acknowledged", "retried", "dead"]), [3, 3, 0, 0]);
        assert_eq!(store.lag_and_pending(), (0, 0));
        for (at, (seen, environment)) in
            store.lines("seen.jsonl").iter().zip(store.lines("environment")).enumerate()
        {
            let n = (at + 1).to_string();
            let seen: Value = serde_json::from_str(seen).expect("JSON");
            let id = seen["id"].as_str().expect("an id");
            assert_eq!(environment, format!("orders billing 1 book {n} {id}"));
            assert_eq!((&seen["stream"], &seen["group"]), (&"orders".into(), &"billing".into()));
            assert_eq!((&seen["attempt"], &seen["fields"]["n"]), (&1.into(), &n.into()));
        }
        assert_eq!(store.lines("environment").len(), 3);
    }
}

#[test]
fn commands_and_programs_do_not_inherit_the_password_of_the_store() {
    let store = TestStore::server();
    let child = "env >> environment; read line; echo '{\"outcome\":\"ack\"}'; cat > /dev/null";
    for handler in [["--exec", "env >> environment"], ["--child", child]] {
        store.add(1);
        let mut command = store.command(&["work", "--stream", "orders", "--group", "billing"]);
        command.args(handler).arg("--until-empty");
        command
            .env("MILLSTREAM_REQUIREPASS", "secret")
            .env("REDIS_URL", "redis://other")
            .env("OTHER", "kept");
        Running::start(&mut command).wait().ok();
        let environment = store.lines("environment");
        let has = |variable: &str| environment.iter().any(|line| line.starts_with(variable));
        assert!(has("OTHER=kept") && has("REDIS_URL=redis://other"), "{handler:?}: {environment:?}");
        assert!(!has("MILLSTREAM_URL=") && !has("MILLSTREAM_REQUIREPASS="), "{handler:?}: {environment:?}");
        store.write("environment", "");
    }
}

#[test]
fn a_message_that_exceeds_the_environment_reaches_the_command() {
    let store = TestStore::server();
    let (long_name, long_value) = ("n".repeat(140 * 1024), "v".repeat(140 * 1024));
    store.call(&["XADD", "orders", "*", &long_name, "1", "item", "book"]);
    store.call(&["XADD", "orders", "*", "long", &long_value, "item", "book"]);
    let fields: Vec<String> = (0..100_000).flat_map(|n| [format!("f{n}"), n.to_string()]).collect();
    let fields = fields.iter().map(String::as_str);
    let many: Vec<&str> = ["XADD", "orders", "*", "item", "book"].into_iter().chain(fields).collect();
    store.call(&many);
    let command = "cat >> seen.jsonl; echo $MILLSTREAM_FIELD_ITEM >> items";
    let run = store.work(&["--exec", command, "--concurrency", "1"]).ok();
    assert_eq!(run.report(["received", "acknowledged", "retried", "dead"]), [3, 3, 0, 0]);
    assert_eq!(store.lines("items"), ["book"; 3]);
    let seen = store.lines("seen.jsonl");
    let seen: Vec<Value> = seen.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(seen[0]["fields"][&long_name], "1");
    assert_eq!(seen[1]["fields"]["long"], *long_value);
    assert_eq!(seen[2]["fields"]["f99999"], "99999");
}

#[test]
fn an_environment_that_leaves_no_room_for_fields_is_passed_without_them() {
    let store = TestStore::server();
    let value = "v".repeat(60 * 1024);
    let fields: Vec<String> = (0..8).flat_map(|n| [format!("f{n}"), value.clone()]).collect();
    let fields = fields.iter().map(String::as_str);
    let message: Vec<&str> = ["XADD", "orders", "*"].into_iter().chain(fields).collect();
    store.call(&message);
    // Linux allows a quarter of the stack limit for arguments and environment: 400 KiB here.
    let work = format!(
        "ulimit -s 1600; exec {} work --stream orders --group billing --until-empty --exec {}",
        env!("CARGO_BIN_EXE_millstream"),
        "'cat > seen.json; echo \"$MILLSTREAM_STREAM${MILLSTREAM_FIELD_F0-} $MILLSTREAM_ATTEMPT\" > environment'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &work]).current_dir(&store.folder).env("MILLSTREAM_URL", &store.url);
    Running::start(&mut command).wait().ok();
    assert_eq!(store.lines("environment"), ["orders 1"]);
    let seen: Value = serde_json::from_str(&store.lines("seen.json")[0]).expect("JSON");
    assert_eq!(seen["fields"]["f7"], *value);
}

#[test]
fn a_shell_that_cannot_be_started_does_not_use_up_deliveries() {
    let store = TestStore::server();
    store.add(1);
    for handler in ["--exec", "--child"] {
        let work = ["work", "--stream", "orders", "--group", "billing", "--max-attempts", "2"];
        let mut command = store.command(&work);
        command.args(["--backoff", "5ms", handler, "true"]).env("PATH", "/nonexistent");
        let running = Running::start(&mut command);
        wait_until("five failed starts", || running.err().matches("cannot start sh: ").count() >= 5);
        running.signal("TERM");
        running.wait().ok();
        assert_eq!(store.dead_letters().len(), 0, "{handler}");
        assert_eq!(store.lag_and_pending(), (0, 1), "{handler}");
    }
    store.work(&["--exec", "echo $MILLSTREAM_ATTEMPT > attempt"]).ok();
    assert_eq!(store.lines("attempt"), ["1"]);
}

#[test]
fn any_other_exit_code_retries() {
    for store in TestStore::both() {
        store.add(2);
        let command = "test $MILLSTREAM_ATTEMPT -ge 3 || { echo not yet >&2; exit 75; }";
        let run = store.work(&["--exec", command]).ok().stderr_contains("not yet");
        assert_eq!(run.report(["acknowledged", "retried", "dead"]), [2, 4, 0]);
    }
}

#[test]
fn a_command_that_always_fails_leaves_a_dead_letter_with_its_stderr() {
    let store = TestStore::server();
    store.add(1);
    let command = "echo at first >&2; echo the bank is closed >&2; exit 1";
    let run = store.work(&["--exec", command, "--max-attempts", "2"]).exits(6);
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [0, 1, 1]);
    let [dead_letter] = &store.dead_letters()[..] else { panic!("expected one dead letter") };
    assert_eq!(dead_letter["error"], "the bank is closed");
    assert_eq!(dead_letter["error_type"], "exit 1");
    assert_eq!(dead_letter["reason"], "max_attempts");
    assert_eq!(dead_letter["deliveries"], 2);
    assert_eq!(dead_letter["fields"]["item"], "book");
}

#[test]
fn exit_codes_65_and_100_reject_immediately() {
    let store = TestStore::embedded();
    store.add(2);
    let command = "echo no such customer >&2; test $MILLSTREAM_FIELD_N = 1 && exit 65; exit 100";
    let run = store.work(&["--exec", command]).exits(6);
    assert_eq!(run.report(["retried", "dead"]), [0, 2]);
    for dead_letter in store.dead_letters() {
        assert_eq!((&dead_letter["reason"], &dead_letter["deliveries"]), (&"rejected".into(), &1.into()));
        assert_eq!(dead_letter["error"], "no such customer");
    }
}

#[test]
fn a_command_killed_by_a_signal_is_retried() {
    let store = TestStore::server();
    store.add(1);
    let command = "test $MILLSTREAM_ATTEMPT -ge 2 || kill -9 $$";
    let run = store.work(&["--exec", command]).ok();
    assert_eq!(run.report(["acknowledged", "retried"]), [1, 1]);
}

#[test]
fn a_timeout_kills_the_command_and_its_children() {
    let store = TestStore::server();
    store.add(1);
    let command = "sleep 1000 & echo $! > sleeper; echo waiting for the bank >&2; sleep 1000";
    let run = store.work(&["--exec", command, "--timeout", "2s", "--max-attempts", "1"]).exits(6);
    assert_eq!(run.report(["dead", "timeouts"]), [1, 1]);
    let dead_letter = &store.dead_letters()[0];
    assert_eq!(dead_letter["reason"], "timeout");
    assert_eq!(dead_letter["error"], "no outcome within 2s: waiting for the bank");
    let sleeper = &store.wait_for("sleeper", 1)[0];
    wait_until("the command's child to be killed", || !is_alive(sleeper));
}

#[test]
fn a_command_need_not_read_its_stdin() {
    let store = TestStore::server();
    store.call(&["XADD", "orders", "*", "long", &"x".repeat(300_000)]);
    let run = store.work(&["--exec", "test -z \"$MILLSTREAM_FIELD_LONG\""]).ok();
    assert_eq!(run.report(["acknowledged", "retried"]), [1, 0]);
}

#[test]
fn a_command_is_stopped_when_its_lease_is_lost() {
    let store = TestStore::server();
    store.call(&["XADD", "orders", "1-1", "item", "book"]);
    let worker =
        store.start(&["--exec", "echo $$ > pid; exec sleep 1000", "--lease", "900ms", "--drain", "300ms"]);
    let pid = store.wait_for("pid", 1).remove(0);
    assert!(is_alive(&pid));
    store.call(&["XCLAIM", "orders", "billing", "thief", "0", "1-1"]);
    wait_until("the process to be stopped", || !is_alive(&pid));
    // The worker exits with 0 and has not acknowledged the message that it lost.
    worker.signal("TERM");
    worker.wait().ok().stderr_contains("1 lost lease");
    assert_eq!(store.lag_and_pending(), (0, 1));
}

#[test]
fn a_batch_is_one_command_with_one_line_per_message() {
    for store in TestStore::both() {
        store.add(10);
        let command = "echo \"$MILLSTREAM_GROUP $MILLSTREAM_COUNT\" >> counts; cat >> seen.jsonl";
        let batch = ["--batch", "4", "--batch-wait", "2s", "--concurrency", "1"];
        let run = store.work(&[&["--exec", command], &batch[..]].concat()).ok();
        assert_eq!(run.report(["received", "acknowledged", "retried"]), [10, 10, 0]);
        assert_eq!(store.lines("counts"), ["billing 4", "billing 4", "billing 2"]);
        let lines = store.lines("seen.jsonl");
        let numbers = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let numbers: Vec<String> =
            numbers.map(|seen| seen["fields"]["n"].as_str().expect("a number").to_owned()).collect();
        assert_eq!(numbers, (1..=10).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn a_failing_message_of_a_batch_is_dead_lettered_alone() {
    let store = TestStore::server();
    store.add(6);
    let command =
        "echo $MILLSTREAM_COUNT >> counts; ! grep -q '\"n\":\"3\"' || { echo the third >&2; exit 1; }";
    let batch = ["--batch", "6", "--batch-wait", "2s", "--concurrency", "1", "--max-attempts", "3"];
    let run = store.work(&[&["--exec", command], &batch[..]].concat()).exits(6);
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [5, 7, 1]);
    let [dead_letter] = &store.dead_letters()[..] else { panic!("expected one dead letter") };
    assert_eq!((&dead_letter["fields"]["n"], &dead_letter["error"]), (&"3".into(), &"the third".into()));
    let counts = store.lines("counts");
    assert_eq!((counts[0].as_str(), counts.len()), ("6", 8), "{counts:?}");
    assert!(counts[1..].iter().all(|count| count == "1"), "{counts:?}");
}
