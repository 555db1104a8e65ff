//! `--child --pipeline`: programs that have several messages at a time and answer each with its id.

use crate::test_store::{TestStore, is_alive};

/// Writes a program in Python that records its start in the file `started` and runs `body` for each line, parsed as
/// `m`. `ack(id)` answers, and `note(text)` appends to the file `notes`. Returns the command that starts it.
fn program(store: &TestStore, body: &str) -> &'static str {
    let body = body.lines().map(|line| format!("    {line}\n")).collect::<String>();
    store.write(
        "program.py",
        &format!(
            "import json, os, sys, time\n\
             def note(text, file='notes'):\n    open(file, 'a').write(f'{{text}}\\n')\n\
             def ack(id):\n    print(json.dumps({{'id': id, 'outcome': 'ack'}}), flush=True)\n\
             note(os.getpid(), 'started')\n\
             held = []\n\
             for line in sys.stdin:\n    m = json.loads(line)\n    n = m.get('fields', {{}}).get('n')\n{body}\
             note('end of input')\n"
        ),
    );
    "exec python3 program.py"
}

#[test]
fn messages_are_answered_in_any_order() {
    let store = TestStore::server();
    // As many messages as slots: with more, the last two can wait in two programs, each for a second message.
    store.add(6);
    // Answers only when it has two messages, the last one first.
    let command = program(
        &store,
        "note(os.environ['MILLSTREAM_CHILD_PROTOCOL'] + ' ' + os.environ['MILLSTREAM_PIPELINE'])\n\
         held.append(m['id'])\n\
         if len(held) == 2:\n    ack(held.pop())\n    ack(held.pop())",
    );
    let run = store.work(&["--child", command, "--concurrency", "6", "--pipeline", "2"]).ok();
    assert_eq!(run.report(["acknowledged", "retried"]), [6, 0]);
    assert_eq!(store.lines("started").len(), 3, "6 slots, 2 messages in a program");
    let notes = store.lines("notes");
    assert_eq!(notes.iter().filter(|note| *note == "1 2").count(), 6, "{notes:?}");
    assert_eq!(notes.iter().filter(|note| *note == "end of input").count(), 3, "{notes:?}");
}

#[test]
fn only_the_message_that_ends_the_program_has_failed() {
    let store = TestStore::server();
    store.add(20);
    // The first program ends with eight messages. Later ones end when they get message 7 for the first time.
    let command = program(
        &store,
        "held.append(m['id'])\n\
         first = open('started').read().count('\\n') == 1\n\
         if len(held) == 8 if first else (n == '7' and m['attempt'] == 1):\n    sys.exit('out of memory')\n\
         if not first: ack(held.pop())",
    );
    let run = store.work(&["--child", command, "--concurrency", "8", "--pipeline", "8"]).ok();
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [20, 1, 0], "{}", run.err);
    assert!(run.err.contains("the child exited without an answer: stopped the child"), "{}", run.err);
    assert!(run.err.contains("in_flight=8 stderr=\"out of memory\""), "{}", run.err);
}

#[test]
fn a_message_that_exceeds_the_timeout_is_cancelled() {
    let store = TestStore::server();
    store.add(2);
    // Message 1 hangs until it is cancelled.
    let command = program(
        &store,
        "if 'cancel' in m:\n    \
             note('cancel')\n    \
             if m['cancel'] in held: held.remove(m['cancel']); ack(m['cancel'])\n\
         elif n == '1' and m['attempt'] == 1: held.append(m['id'])\n\
         else: ack(m['id'])",
    );
    let run =
        store.work(&["--child", command, "--pipeline", "2", "--timeout", "1s", "--concurrency", "2"]).ok();
    // On a slow machine, message 2 can exceed the timeout too while the program starts.
    let [acknowledged, timeouts] = run.report(["acknowledged", "timeouts"]);
    assert!(acknowledged == 2 && timeouts >= 1, "{}{}", run.out, run.err);
    // The program answered the cancelled message and kept running.
    assert_eq!((store.lines("started").len(), store.lines("notes")[0].as_str()), (1, "cancel"));
}

#[test]
fn an_invalid_answer_fails_only_its_message() {
    let store = TestStore::server();
    store.add(8);
    let answers = [
        ("hello", r#"invalid answer "hello" of the child: it is not JSON"#),
        (r#"{"outcome":"ack"}"#, "it has no id, which --pipeline requires"),
        (
            r#"{"outcome":"ack","id":"1-1"}"#,
            "the child has no message with this id, or has already answered it",
        ),
        (r#"{"outcome":"ack","id":7}"#, "its id is not a string"),
    ];
    let invalid = serde_json::json!(answers.map(|(answer, _)| answer));
    let command = program(
        &store,
        &format!(
            "if int(n) <= 4: print({invalid}[int(n) - 1], flush=True)\nelse: time.sleep(0.1); ack(m['id'])"
        ),
    );
    let options = ["--child", command, "--pipeline", "8", "--concurrency", "8", "--max-attempts", "1"];
    assert_eq!(store.work(&options).exits(6).report(["acknowledged", "dead"]), [4, 4]);
    let dead = store.dead_letters();
    for (_, error) in answers {
        let found =
            dead.iter().filter(|dead| dead["error"].as_str().is_some_and(|text| text.contains(error)));
        assert_eq!(found.count(), 1, "{error}: {dead:?}");
    }
}

#[test]
fn a_program_that_answers_twice_is_replaced_and_loses_nothing() {
    let store = TestStore::server();
    store.add(6);
    let command = program(&store, "ack(m['id'])\nif n == '2': ack(m['id'])");
    let run = store.work(&["--child", command, "--pipeline", "3", "--concurrency", "3"]).ok();
    assert_eq!(run.report(["acknowledged", "retried", "dead"]), [6, 0, 0], "{}", run.err);
    assert!(run.err.contains("or has already answered it"), "{}", run.err);
}

#[test]
fn a_drain_that_overruns_cancels_messages_in_the_program() {
    let store = TestStore::server();
    store.add(2);
    let command = program(&store, "note('cancel ' + m['cancel'] if 'cancel' in m else 'message ' + m['id'])");
    let worker = store.start(&["--child", command, "--pipeline", "2", "--drain", "100ms", "--json"]);
    let messages = store.wait_for("notes", 2);
    worker.signal("TERM");
    assert_eq!(worker.wait().ok().report(["acknowledged", "released"]), [0, 2]);
    let notes = store.lines("notes");
    for message in messages {
        assert!(notes.contains(&message.replace("message", "cancel")), "{notes:?}");
    }
    assert!(!is_alive(&store.lines("started")[0]));
}

#[test]
fn messages_with_the_same_id_are_in_different_programs() {
    let store = TestStore::server();
    store.call(&["XADD", "orders", "1-1", "n", "1"]);
    store.call(&["XADD", "refunds", "1-1", "n", "2"]);
    // Answers when both messages are in programs.
    let command = program(
        &store,
        "note(n)\n\
         while len(open('notes').readlines()) < 2: time.sleep(0.02)\n\
         ack(m['id'])",
    );
    let run = store.work(&["--child", command, "--pipeline", "8", "--stream", "refunds"]).ok();
    assert_eq!(run.report(["acknowledged", "retried"]), [2, 0], "{}", run.err);
    assert_eq!(store.lines("started").len(), 2);
}

#[test]
fn pipeline_requires_child() {
    let store = TestStore::server();
    store
        .work(&["--exec", "true", "--pipeline", "2"])
        .exits(2)
        .stderr_contains("--pipeline requires --child");
}
