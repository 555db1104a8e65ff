//! Every example of `work --help` and `demo --help` is run as it is printed, by a shell; only addresses are those of the
//! test, and what would go on for ever ends when there is nothing left to do.

use std::path::Path;
use std::process::Command;

use crate::endpoint::Endpoint;
use crate::place::{Place, Running};

/// Acknowledges every line.
const PROGRAM: &str = "\
import sys
for line in sys.stdin:
    print('{\"outcome\":\"ack\"}', flush=True)
";

#[test]
fn every_example_of_work_works() {
    let examples = examples_of("work");
    assert!(examples.len() >= 6, "{examples:?}");
    for example in examples {
        let place = Place::server();
        place.write("charge.sh", "#!/bin/sh\ncat > /dev/null\n");
        place.write("index.py", PROGRAM);
        let run = Command::new("chmod").args(["+x", "charge.sh"]).current_dir(&place.folder).status();
        assert!(run.expect("run chmod").success());
        place.run(&["add", "orders", "order_id={i}", "--count", "3"]).ok();
        let endpoint = Endpoint::new(|_| Some(("204 No Content", String::new(), "")));
        let address = endpoint.url.trim_end_matches("/hook");
        let here = example.replace("http://127.0.0.1:8000", address).replace(":9091", ":0");
        let run = Running::start(&mut shell(&place, &format!("{here} --until-empty --json"))).ended().ok();
        assert_eq!(run.report(["acknowledged", "dead"]), [3, 0], "{example}");
    }
}

#[test]
fn every_example_of_the_demonstration_works() {
    for example in examples_of("demo") {
        let place = Place::embedded();
        let run = Running::start(&mut shell(&place, &example)).ended().ok();
        assert!(run.out.contains("lost"), "{example}\n{}", run.out);
    }
}

fn examples_of(command: &str) -> Vec<String> {
    let help = Place::embedded().run(&[command, "--help"]).ok().out;
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

/// A shell that finds the binary. Options given twice are refused, so what an example says itself is left out.
fn shell(place: &Place, example: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let script = match example.matches(" --until-empty").count() {
        2 => example.replacen(" --until-empty", "", 1),
        _ => example.to_owned(),
    };
    let mut command = Command::new("sh");
    // Without exec the shell would be stopped and the command go on.
    command.args(["-c", &format!("exec {script}")]).current_dir(&place.folder);
    command
        .env("PATH", path)
        .env("MILLSTREAM_URL", &place.url)
        .env_remove("REDIS_URL")
        .env_remove("RUST_LOG");
    command
}
