//! Runs every example of `work --help` and `demo --help` in a shell, as printed, with two changes: addresses are
//! replaced by those of the test, and workers get `--until-empty` so that they end.

use std::path::Path;
use std::process::Command;

use crate::endpoint::Endpoint;
use crate::test_store::{Running, TestStore};

/// A child program that acknowledges every line.
const PROGRAM: &str = "\
import sys
for line in sys.stdin:
    print('{\"outcome\":\"ack\"}', flush=True)
";

#[test]
fn every_work_help_example_succeeds() {
    let examples = examples_of("work");
    assert!(examples.len() >= 6, "{examples:?}");
    at_the_same_time(examples, |example| {
        let store = TestStore::server();
        store.write("charge.sh", "#!/bin/sh\ncat > /dev/null\n");
        store.write("index.py", PROGRAM);
        let run = Command::new("chmod").args(["+x", "charge.sh"]).current_dir(&store.folder).status();
        assert!(run.expect("run chmod").success());
        let stream = if example.contains("'orders:*'") { "orders:eu" } else { "orders" };
        store.run(&["add", stream, "order_id={i}", "--count", "3"]).ok();
        let endpoint = Endpoint::new(|_| Some(("204 No Content", String::new(), "")));
        let address = endpoint.url.trim_end_matches("/hook");
        let script = example.replace("http://127.0.0.1:8000", address).replace(":9091", ":0");
        let run = Running::start(&mut shell(&store, &format!("{script} --until-empty --json"))).wait().ok();
        assert_eq!(run.report(["acknowledged", "dead"]), [3, 0], "{example}");
    });
}

#[test]
fn every_demo_help_example_succeeds() {
    at_the_same_time(examples_of("demo"), |example| {
        let store = TestStore::embedded();
        let run = Running::start(&mut shell(&store, example)).wait().ok();
        assert!(run.out.contains("lost"), "{example}\n{}", run.out);
    });
}

/// Runs each example on a thread of its own, because workers wait before they end.
fn at_the_same_time(examples: Vec<String>, check: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for example in &examples {
            scope.spawn(|| check(example));
        }
    });
}

fn examples_of(command: &str) -> Vec<String> {
    let help = TestStore::embedded().run(&[command, "--help"]).ok().out;
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

/// A shell that finds the binary. Removes a second `--until-empty`, because the binary rejects repeated options.
fn shell(store: &TestStore, example: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let script = match example.matches(" --until-empty").count() {
        2 => example.replacen(" --until-empty", "", 1),
        _ => example.to_owned(),
    };
    let mut command = Command::new("sh");
    // `exec` replaces the shell, so that killing the child stops the command itself.
    command.args(["-c", &format!("exec {script}")]).current_dir(&store.folder);
    command
        .env("PATH", path)
        .env("MILLSTREAM_URL", &store.url)
        .env_remove("REDIS_URL")
        .env_remove("RUST_LOG");
    command
}
