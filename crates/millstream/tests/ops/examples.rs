//! Runs every example of every `--help` in a shell, as printed. Only the port of an example that listens is replaced by
//! a free one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::test_store::TestStore;

/// Commands whose examples start servers or workers. Other suites run them.
const TESTED_ELSEWHERE: [&str; 7] = ["serve", "check", "compat", "work", "top", "demo", "dash"];
/// Running time after which an endless example is stopped.
const ENDLESS_LIMIT: Duration = Duration::from_secs(3);

#[test]
fn every_help_example_succeeds() {
    let store = TestStore::millstream();
    let mut examples = Vec::new();
    for command in subcommands(&store, &[]) {
        if !TESTED_ELSEWHERE.contains(&command[0].as_str()) {
            collect(&store, &command, &mut examples);
        }
    }
    assert!(examples.len() > 40, "{examples:#?}");
    for example in &examples {
        store.call(&["FLUSHALL"]);
        store.fill();
        if example.contains("payments") {
            store.run(&["partition", "create", "payments", "24", "--order-by", "account"]).ok();
        }
        run(&store, example);
    }
}

/// Collects the distinct examples of a command and its subcommands. Asserts that each command has at least one.
fn collect(store: &TestStore, command: &[String], examples: &mut Vec<String>) {
    let nested = subcommands(store, command);
    let help = help(store, command);
    let mut found: Vec<String> = help
        .lines()
        .skip_while(|line| *line != "Examples:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.trim().to_owned())
        .collect();
    assert!(!found.is_empty(), "{command:?} has no examples:\n{help}");
    found.retain(|example| !examples.contains(example));
    examples.extend(found);
    nested.iter().for_each(|command| collect(store, command, examples));
}

fn help(store: &TestStore, command: &[String]) -> String {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    store.run(&arguments).ok().out
}

fn subcommands(store: &TestStore, command: &[String]) -> Vec<Vec<String>> {
    let help = help(store, command);
    let names = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    names.map(|name| [command, &[name.to_owned()]].concat()).collect()
}

fn run(store: &TestStore, example: &str) {
    let binary = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    // `exec` replaces the shell, so that killing the child stops the command itself.
    let script = example.replace(":9121", ":0");
    let script = if example.starts_with("millstream") { format!("exec {script}") } else { script };
    command.args(["-c", &script]).current_dir(&store.folder);
    command.env("PATH", path).env("MILLSTREAM_URL", &store.url).env_remove("REDIS_URL");
    let output = store.folder.join("example-output");
    let file = std::fs::File::create(&output).expect("a file");
    command.stdin(Stdio::null()).stdout(file.try_clone().expect("the file")).stderr(file);
    let mut child = command.spawn().expect("run a shell");
    let endless = ["tail orders", "--listen"].iter().any(|part| example.contains(part))
        && !example.contains("--no-follow");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for the shell") {
            break status;
        }
        if endless && began.elapsed() > ENDLESS_LIMIT {
            child.kill().expect("stop it");
            child.wait().expect("see it end");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    // These two commands exit with 5 when they find a problem.
    let checks = example.starts_with("millstream lag") || example.starts_with("millstream doctor");
    let fine = status.code() == Some(0) || (checks && status.code() == Some(5));
    let output = std::fs::read_to_string(&output).unwrap_or_default();
    assert!(fine, "{example}\nended with {status}:\n{output}");
}
