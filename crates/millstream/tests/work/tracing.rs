//! Traces: from producers through workers to handlers, dead letters and logs.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::test_store::{Running, TestStore};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Adds an order with a trace, one whose trace is malformed, and one without a trace.
fn add(store: &TestStore) {
    let state = "tracestate=congo=ucfJifl5GOE,rojo=1";
    store.run(&["add", "orders", "n=1", &format!("traceparent={TRACEPARENT}"), state]).ok();
    store.run(&["add", "orders", "n=2", &format!("traceparent={TRACEPARENT}-more"), state]).ok();
    store.run(&["add", "orders", "n=3"]).ok();
}

/// Whether a traceparent belongs to the trace, and has another span than that of the sender.
fn continues(traceparent: &str) -> bool {
    traceparent.len() == TRACEPARENT.len()
        && traceparent.starts_with(&format!("00-{TRACE}-"))
        && traceparent.ends_with("-01")
        && traceparent != TRACEPARENT
}

#[test]
fn a_command_gets_the_trace_of_its_message_and_not_that_of_the_worker() {
    for store in TestStore::both() {
        add(&store);
        let command = "cat >> seen.jsonl; echo \"${TRACEPARENT-none} ${TRACESTATE-none}\" >> traces";
        let mut work = store.command(&["work", "--stream", "orders", "--group", "billing", "--until-empty"]);
        work.args(["--concurrency", "1", "--exec", command]);
        work.env("TRACEPARENT", "00-00000000000000000000000000000001-0000000000000001-01")
            .env("TRACESTATE", "w=1");
        Running::start(&mut work).wait().ok();
        let traces = store.lines("traces");
        let (traceparent, state) = traces[0].split_once(' ').expect("two values");
        assert!(continues(traceparent), "{traces:?}");
        assert_eq!(
            (state, &traces[1..]),
            ("congo=ucfJifl5GOE,rojo=1", &["none none".to_owned(), "none none".to_owned()][..])
        );
        let seen: Vec<Value> =
            store.lines("seen.jsonl").iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(seen[0]["traceparent"], traceparent);
        assert_eq!(seen[0]["fields"]["traceparent"], TRACEPARENT);
        assert!(seen[1..].iter().all(|message| message.get("traceparent").is_none()), "{seen:?}");
    }
}

#[test]
fn an_endpoint_gets_the_trace_as_headers() {
    let store = TestStore::server();
    add(&store);
    let endpoint = Endpoint::new(|_| Some(("200 OK", String::new(), "")));
    store.work(&["--http", &endpoint.url, "--concurrency", "1"]).ok();
    let requests = endpoint.requests();
    assert!(continues(requests[0].header("traceparent").expect("a traceparent")), "{requests:?}");
    assert_eq!(requests[0].header("tracestate"), Some("congo=ucfJifl5GOE,rojo=1"));
    for request in &requests[1..] {
        assert_eq!((request.header("traceparent"), request.header("tracestate")), (None, None));
    }
}

#[test]
fn a_program_gets_the_trace_and_each_attempt_has_its_own_span() {
    let store = TestStore::server();
    add(&store);
    let program = r#"while read -r line; do
        echo "$line" >> heard
        case "$line" in *'"attempt":1'*) echo '{"outcome":"retry","after_ms":1}';; *) echo '{"outcome":"ack"}';; esac
    done"#;
    store.work(&["--child", program, "--concurrency", "1"]).ok();
    let heard: Vec<Value> =
        store.lines("heard").iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let traces = |n: &str| -> Vec<_> {
        let of_message = heard.iter().filter(|message| message["fields"]["n"] == n);
        of_message.map(|message| message["traceparent"].as_str().map(str::to_owned)).collect()
    };
    let first = traces("1");
    assert!(first.iter().flatten().all(|traceparent| continues(traceparent)), "{first:?}");
    assert!(first.len() == 2 && first[0] != first[1], "{first:?}");
    assert_eq!((traces("2"), traces("3")), (vec![None, None], vec![None, None]));
}

#[test]
fn lines_about_failures_have_the_trace_and_dead_letters_keep_it() {
    for format in ["text", "json"] {
        let store = TestStore::server();
        add(&store);
        let run = store.work(&["--exec", "exit 1", "--max-attempts", "2", "--log-format", format]).exits(6);
        let expected = match format {
            "text" => format!(" trace_id={TRACE} "),
            _ => format!(",\"trace_id\":\"{TRACE}\","),
        };
        for text in ["attempt failed", "message dead-lettered"] {
            let lines: Vec<&str> = run.err.lines().filter(|line| line.contains(text)).collect();
            assert_eq!(lines.len(), 3, "{}", run.err);
            assert_eq!(lines.iter().filter(|line| line.contains(&expected)).count(), 1, "{}", run.err);
            assert_eq!(lines.iter().filter(|line| line.contains("trace_id")).count(), 1, "{}", run.err);
        }
        store.run(&["dlq", "redrive", "orders"]).ok();
        store.work(&["--exec", "echo \"${TRACEPARENT-none}\" >> traces"]).ok();
        let traces = store.lines("traces");
        assert_eq!(traces.iter().filter(|traceparent| continues(traceparent)).count(), 1, "{traces:?}");
    }
}

#[test]
fn add_writes_the_trace_of_the_command_line_or_of_the_environment() {
    let store = TestStore::server();
    let add = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = store.command(&[&["add", "orders"], arguments].concat());
        command.env_remove("TRACEPARENT").env_remove("TRACESTATE").envs(environment.iter().copied());
        Running::start(&mut command).wait()
    };
    let other = format!("00-{TRACE}-00000000000000ff-00");
    let environment = [("TRACEPARENT", TRACEPARENT), ("TRACESTATE", "foo=1")];
    let quiet = |run: crate::support::run::Run| assert_eq!(run.ok().err, "");
    quiet(add(&["n=0"], &[]));
    quiet(add(&["n=1"], &environment));
    quiet(add(&["n=2", "--traceparent", &other], &environment));
    quiet(add(&["n=3", &format!("traceparent={other}")], &environment));
    quiet(add(&["n=4", "--producer", "shop"], &environment));
    quiet(add(&["n=5"], &[("TRACEPARENT", ""), ("TRACESTATE", "foo=1")]));
    add(&["n=6"], &[("TRACEPARENT", "nonsense")])
        .ok()
        .stderr_contains("ignored the environment variable TRACEPARENT=\"nonsense\"");
    add(&["n=7"], &[("TRACEPARENT", TRACEPARENT), ("TRACESTATE", "nonsense")])
        .ok()
        .stderr_contains("TRACESTATE=\"nonsense\"");
    let refused = add(&["n=8", "--traceparent", "00-1-2-03"], &environment).exits(2);
    refused
        .stderr_contains("--traceparent")
        .stderr_contains("too short")
        .stderr_contains("00-TRACE-SPAN-FLAGS");
    let entries = store.run(&["tail", "orders", "--from", "earliest", "--no-follow", "--json"]).ok().out;
    let found: Vec<(Value, Value)> = entries
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|mut entry| (entry["fields"]["traceparent"].take(), entry["fields"]["tracestate"].take()))
        .collect();
    let traced =
        |trace: &str, state: Option<&str>| (Value::from(trace), state.map_or(Value::Null, Value::from));
    let none = (Value::Null, Value::Null);
    let own = traced(TRACEPARENT, Some("foo=1"));
    let expected = [
        none.clone(),
        own.clone(),
        traced(&other, None),
        traced(&other, None),
        own,
        none.clone(),
        none,
        traced(TRACEPARENT, None),
    ];
    assert_eq!(found, expected, "{entries}");
}

/// Runs the shell blocks of docs/workers/tracing.md, and compares what they print with the text blocks after them.
#[test]
fn the_page_prints_what_it_shows() {
    let page = include_str!("../../../../docs/workers/tracing.md");
    let store = TestStore::server();
    let blocks: Vec<(&str, &str)> = page.split("\n```").filter_map(|block| block.split_once('\n')).collect();
    let scripts: Vec<(&str, &str)> = blocks
        .iter()
        .zip(blocks.iter().skip(2))
        .filter(|((language, _), (next, _))| *language == "sh" && *next == "text")
        .map(|((_, script), (_, shown))| (*script, *shown))
        .collect();
    assert_eq!(scripts.len(), page.matches("\n```sh").count());
    for (script, shown) in scripts {
        let binary = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("a folder");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(&store.folder);
        shell
            .env("PATH", path)
            .env("MILLSTREAM_URL", &store.url)
            .env_remove("REDIS_URL")
            .env_remove("RUST_LOG");
        let run = Running::start(&mut shell).wait().ok();
        assert_eq!(run.out.trim_end(), shown, "{script}");
    }
}
