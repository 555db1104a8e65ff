//! Every example of every `--help` is run as it is printed, by a shell.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::world::World;

/// Commands whose examples start servers or workers and are run by other suites.
const ELSEWHERE: [&str; 6] = ["serve", "check", "compat", "work", "top", "demo"];
/// What goes on for ever is stopped when it has gone on for so long.
const ENOUGH: Duration = Duration::from_secs(3);

#[test]
fn every_example_works() {
    let world = World::millstream();
    let mut examples = Vec::new();
    for command in subcommands(&world, &[]) {
        if !ELSEWHERE.contains(&command[0].as_str()) {
            collect(&world, &command, &mut examples);
        }
    }
    assert!(examples.len() > 40, "{examples:#?}");
    for example in &examples {
        world.call(&["FLUSHALL"]);
        world.fill();
        run(&world, example);
    }
}

/// The examples of a command and of what is below it, each once. Every command has some.
fn collect(world: &World, command: &[String], examples: &mut Vec<String>) {
    let below = subcommands(world, command);
    let help = help(world, command);
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
    below.iter().for_each(|command| collect(world, command, examples));
}

fn help(world: &World, command: &[String]) -> String {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    world.run(&arguments).ok().out
}

fn subcommands(world: &World, command: &[String]) -> Vec<Vec<String>> {
    let help = help(world, command);
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

fn run(world: &World, example: &str) {
    let binary = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    // Without exec the shell would be stopped and the command go on.
    let script =
        if example.starts_with("millstream") { format!("exec {example}") } else { example.to_owned() };
    command.args(["-c", &script]).current_dir(&world.folder);
    command.env("PATH", path).env("MILLSTREAM_URL", &world.url).env_remove("REDIS_URL");
    let output = world.folder.join("example-output");
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
        if endless && began.elapsed() > ENOUGH {
            child.kill().expect("stop it");
            child.wait().expect("see it end");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let checks = example.starts_with("millstream lag") || example.starts_with("millstream doctor");
    let fine = status.code() == Some(0) || (checks && status.code() == Some(5));
    let output = std::fs::read_to_string(&output).unwrap_or_default();
    assert!(fine, "{example}\nended with {status}:\n{output}");
}
