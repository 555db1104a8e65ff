//! One process for each message.

use serde_json::Value;

use crate::place::{Place, is_alive, wait_until};

#[test]
fn a_command_is_told_the_message_and_acknowledges_with_zero() {
    for place in Place::both() {
        place.add(3);
        let command = "cat >> seen.jsonl; \
            echo \"$MILLSTREAM_STREAM $MILLSTREAM_GROUP $MILLSTREAM_ATTEMPT $MILLSTREAM_FIELD_ITEM $MILLSTREAM_FIELD_N $MILLSTREAM_ID\" >> told";
        let run = place.work(&["--exec", command, "--concurrency", "1"]).ok();
        assert_eq!(run.report(["received", "acknowledged", "retried", "dead"]), [3, 3, 0, 0]);
        assert_eq!(place.left(), (0, 0));
        for (at, (seen, told)) in place.lines("seen.jsonl").iter().zip(place.lines("told")).enumerate() {
            let n = (at + 1).to_string();
            let seen: Value = serde_json::from_str(seen).expect("JSON");
            let id = seen["id"].as_str().expect("an id");
            assert_eq!(told, format!("orders billing 1 book {n} {id}"));
            assert_eq!((&seen["stream"], &seen["group"]), (&"orders".into(), &"billing".into()));
            assert_eq!((&seen["attempt"], &seen["fields"]["n"]), (&1.into(), &n.into()));
        }
        assert_eq!(place.lines("told").len(), 3);
    }
}

#[test]
fn any_other_code_tries_again() {
    for place in Place::both() {
        place.add(2);
        let command = "test $MILLSTREAM_ATTEMPT -ge 3 || { echo not yet >&2; exit 75; }";
        let run = place.work(&["--exec", command]).ok().complains("not yet");
        assert_eq!(run.report(["acknowledged", "retried", "dead"]), [2, 4, 0]);
    }
}

#[test]
fn what_never_succeeds_becomes_a_dead_letter_with_its_last_words() {
    let place = Place::server();
    place.add(1);
    let command = "echo at first >&2; echo the bank is closed >&2; exit 1";
    let run = place.work(&["--exec", command, "--max-deliveries", "2"]).ok();
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [0, 1, 1]);
    let [letter] = &place.letters()[..] else { panic!("one letter") };
    assert_eq!(letter["error"], "the bank is closed");
    assert_eq!(letter["error_type"], "exit 1");
    assert_eq!(letter["reason"], "max_deliveries");
    assert_eq!(letter["deliveries"], 2);
    assert_eq!(letter["fields"]["item"], "book");
}

#[test]
fn two_codes_reject_at_once() {
    let place = Place::embedded();
    place.add(2);
    let command = "echo no such customer >&2; test $MILLSTREAM_FIELD_N = 1 && exit 65; exit 100";
    let run = place.work(&["--exec", command]).ok();
    assert_eq!(run.report(["retried", "dead"]), [0, 2]);
    for letter in place.letters() {
        assert_eq!((&letter["reason"], &letter["deliveries"]), (&"rejected".into(), &1.into()));
        assert_eq!(letter["error"], "no such customer");
    }
}

#[test]
fn a_signal_tries_again() {
    let place = Place::server();
    place.add(1);
    let command = "test $MILLSTREAM_ATTEMPT -ge 2 || kill -9 $$";
    let run = place.work(&["--exec", command]).ok();
    assert_eq!(run.report(["acknowledged", "retried"]), [1, 1]);
}

#[test]
fn what_takes_too_long_is_stopped_with_all_it_started() {
    let place = Place::server();
    place.add(1);
    let command = "sleep 1000 & echo $! > sleeper; echo waiting for the bank >&2; sleep 1000";
    let run = place.work(&["--exec", command, "--timeout", "2s", "--max-deliveries", "1"]).ok();
    assert_eq!(run.report(["dead", "timeouts"]), [1, 1]);
    let letter = &place.letters()[0];
    assert_eq!(letter["reason"], "timeout");
    assert_eq!(letter["error"], "no outcome within 2s: waiting for the bank");
    let sleeper = &place.wait_for("sleeper", 1)[0];
    wait_until("the end of what was started", || !is_alive(sleeper));
}

#[test]
fn a_command_need_not_read_what_it_is_told() {
    let place = Place::server();
    place.call(&["XADD", "orders", "*", "long", &"x".repeat(300_000)]);
    let run = place.work(&["--exec", "test -z \"$MILLSTREAM_FIELD_LONG\""]).ok();
    assert_eq!(run.report(["acknowledged", "retried"]), [1, 0]);
}

#[test]
fn a_message_that_another_took_over_is_left_to_it() {
    let place = Place::server();
    place.call(&["XADD", "orders", "1-1", "item", "book"]);
    let worker =
        place.start(&["--exec", "echo $$ > pid; exec sleep 1000", "--lease", "900ms", "--drain", "300ms"]);
    let pid = place.wait_for("pid", 1).remove(0);
    assert!(is_alive(&pid));
    place.call(&["XCLAIM", "orders", "billing", "thief", "0", "1-1"]);
    wait_until("the process to be stopped", || !is_alive(&pid));
    // It ends well, and has not acknowledged what is no longer its own.
    worker.signal("TERM");
    worker.ended().ok().complains("1 lost lease");
    assert_eq!(place.left(), (0, 1));
}

#[test]
fn a_batch_is_lines_for_one_command_whose_code_is_that_of_all() {
    for place in Place::both() {
        place.add(10);
        let command = "echo \"$MILLSTREAM_GROUP $MILLSTREAM_COUNT\" >> told; cat >> seen.jsonl";
        let batch = ["--batch", "4", "--batch-wait", "2s", "--concurrency", "1"];
        let run = place.work(&[&["--exec", command], &batch[..]].concat()).ok();
        assert_eq!(run.report(["received", "acknowledged", "retried"]), [10, 10, 0]);
        assert_eq!(place.lines("told"), ["billing 4", "billing 4", "billing 2"]);
        let lines = place.lines("seen.jsonl");
        let numbers = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let numbers: Vec<String> =
            numbers.map(|seen| seen["fields"]["n"].as_str().expect("a number").to_owned()).collect();
        assert_eq!(numbers, (1..=10).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn one_message_of_a_batch_that_never_succeeds_dies_alone() {
    let place = Place::server();
    place.add(6);
    let command =
        "echo $MILLSTREAM_COUNT >> told; ! grep -q '\"n\":\"3\"' || { echo the third >&2; exit 1; }";
    let batch = ["--batch", "6", "--batch-wait", "2s", "--concurrency", "1", "--max-deliveries", "3"];
    let run = place.work(&[&["--exec", command], &batch[..]].concat()).ok();
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [5, 7, 1]);
    let [letter] = &place.letters()[..] else { panic!("one letter") };
    assert_eq!((&letter["fields"]["n"], &letter["error"]), (&"3".into(), &"the third".into()));
    let told = place.lines("told");
    assert_eq!((told[0].as_str(), told.len()), ("6", 8), "{told:?}");
    assert!(told[1..].iter().all(|count| count == "1"), "{told:?}");
}
