//! What becomes of messages and of the log when a program of a package fails: not ready, exceptions, errors that
//! nothing catches.

use serde_json::Value;

use crate::language::Language;
use crate::test_store::{Running, TestStore, wait_until};

const ALL: [Language; 3] = [Language::Python, Language::PythonAsync, Language::Node];

/// Returns a program: `start` runs before the first message, and `fail` for messages with the field `bad`.
fn program(language: Language, start: [&str; 2], fail: [&str; 2]) -> String {
    let python = |define: &str| {
        format!(
            "import os\nfrom millstream import handler, on_start, run\n\
             @on_start\n{define} start():\n    {start}\n\
             @handler('orders')\n{define} work(message):\n    if 'bad' in message: {fail}\n\
             run(group='billing')\n",
            start = start[0],
            fail = fail[0],
        )
    };
    match language {
        Language::Python => python("def"),
        Language::PythonAsync => python("async def"),
        Language::Node => format!(
            "const {{ handler, onStart, run }} = require({package:?});\n\
             const os = {{ exists: require('node:fs').existsSync }};\n\
             onStart(async () => {{ {start} }});\n\
             handler('orders', async (message) => {{ if (message.has('bad')) {fail}; }});\n\
             run({{ group: 'billing' }});\n",
            package = crate::language::sdk().join("node"),
            start = start[1],
            fail = fail[1],
        ),
    }
}

/// The database is down, and there is only one attempt.
#[test]
fn a_start_that_fails_costs_no_attempt_and_opens_the_breaker() {
    let starts = [
        [
            "if not os.path.exists('up'): raise OSError('no database')",
            "if (!os.exists('up')) throw new Error('no database')",
        ],
        ["if not os.path.exists('up'): import no_database", "if (!os.exists('up')) require('no database')"],
    ];
    std::thread::scope(|scope| {
        for (language, start) in ALL.into_iter().flat_map(|language| starts.map(|start| (language, start))) {
            scope.spawn(move || {
                let store = TestStore::server();
                store.write(language.file(), &program(language, start, ["pass", "{}"]));
                store.add(10);
                let options = ["--max-attempts", "1", "--json", "--backoff", "20ms..100ms"];
                let worker = Running::start(&mut language.worker(&store, &options));
                wait_until("the breaker to open", || worker.err().contains("circuit breaker open, because"));
                let log = worker.err();
                let failed =
                    log.lines().find(|line| line.contains("attempt failed")).expect("a failed attempt");
                let says = |text| failed.contains(text);
                assert!(says("outcome=\"not_started\"") && says("database"), "{failed}");
                store.write("up", "");
                wait_until("all messages to be handled", || store.lag_and_pending() == (0, 0));
                worker.signal("TERM");
                assert_eq!(worker.wait().ok().report(["acknowledged", "dead"]), [10, 0]);
            });
        }
    });
}

#[test]
fn an_exception_is_one_event_with_its_message_also_among_64() {
    let raise = ["raise ValueError('boom')", "throw new RangeError('boom')"];
    // The handler never ends by itself.
    let stray = ["", "{ setTimeout(() => { throw new RangeError('boom'); }); await new Promise(() => {}); }"];
    std::thread::scope(|scope| {
        for (language, fail) in
            ALL.into_iter().map(|language| (language, raise)).chain([(Language::Node, stray)])
        {
            scope.spawn(move || {
                let store = TestStore::server();
                store.write(language.file(), &program(language, ["pass", ""], fail));
                store.run(&["add", "orders", "n={i}", "--count", "30"]).ok();
                store.run(&["add", "orders", "bad=1"]).ok();
                store.run(&["add", "orders", "n={i}", "--count", "30"]).ok();
                let options =
                    ["--max-attempts", "1", "--pipeline", "64", "--concurrency", "64", "--until-empty"];
                let options = [&options[..], &["--log-format", "json"]].concat();
                let run = Running::start(&mut language.worker(&store, &options)).wait().exits(6);
                let lines: Vec<Value> =
                    run.err.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
                let dead = store.dead_letters();
                assert_eq!(dead.len(), 1, "{dead:?}");
                let events: Vec<&Value> = lines.iter().filter(|line| line["source"] == "child").collect();
                let alone = fail == stray;
                assert!(!events.is_empty() && (alone || events.len() == 1), "{language:?}: {}", run.err);
                for event in events {
                    assert_eq!((&event["level"], &event["id"]), (&"error".into(), &dead[0]["origin"]));
                    let text = event["message"].as_str().expect("a text");
                    assert!(text.contains("Error: boom") && text.lines().count() > 2, "{text}");
                }
                assert!(
                    dead[0]["error"].as_str().is_some_and(|error| error.ends_with("Error: boom")),
                    "{dead:?}"
                );
                assert!(!run.err.contains("Node.js v"), "{}", run.err);
            });
        }
    });
}
