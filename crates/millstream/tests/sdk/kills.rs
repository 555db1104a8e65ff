//! Kills handler processes, workers and the processes that started them, at random, while messages arrive. A ledger
//! shows that every message was handled.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use crate::language::Language;
use crate::random::Random;
use crate::test_store::{Running, TestStore, is_alive, wait_until};

/// Number of kills in an ordinary run.
const KILLS: u64 = 5;
/// Number of messages that are added before each kill.
const MESSAGES: u64 = 10;

#[test]
fn no_message_is_lost_in_python() {
    check(Language::Python);
}

#[test]
fn no_message_is_lost_in_python_async() {
    check(Language::PythonAsync);
}

#[test]
fn no_message_is_lost_in_node() {
    check(Language::Node);
}

fn check(language: Language) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let kills = number("MILLSTREAM_SDK_KILLS").unwrap_or(KILLS);
    let seed = number("MILLSTREAM_SEED").unwrap_or(1);
    println!("{language:?}: {kills} kills, seed {seed}");
    let store = TestStore::server();
    language.write_worker(&store, 200);
    let options = ["--lease", "500ms", "--max-deliveries", "1000", "--backoff", "10ms..100ms"];
    let concurrency = if language == Language::Python { &["--concurrency", "4"][..] } else { &[] };
    let options = [&options[..], concurrency].concat();
    let mut random = Random::new(seed);
    let mut worker: Option<Running> = None;
    for kill in 0..kills {
        let (field, count) = (format!("n={kill}-{{i}}"), MESSAGES.to_string());
        store.run(&["add", "orders", &field, "--count", &count]).ok();
        if worker.as_ref().is_none_or(|worker| !is_alive(&worker.pid())) {
            worker = Some(Running::start(&mut language.worker(&store, &options)));
        }
        std::thread::sleep(Duration::from_millis(random.between(50, 500)));
        let signal = random.pick(&["-TERM", "-KILL", "-KILL"]);
        let pid = victim(&store, &worker.as_ref().expect("it was started").pid(), &mut random);
        // The process may have ended meanwhile.
        let _ = Command::new("kill").args([signal, &pid]).output();
    }
    drop(worker);
    let last = [&options[..], &["--until-empty", "--json"]].concat();
    Running::start(&mut language.worker(&store, &last)).wait().ok();
    let done = store.lines("done");
    let distinct: HashSet<&String> = done.iter().collect();
    let interrupted = store.lines("notes").len() - done.len();
    println!("{} messages handled, {interrupted} interrupted on the way", distinct.len());
    for kill in 0..kills {
        let missing: Vec<u64> =
            (1..=MESSAGES).filter(|n| !distinct.contains(&format!("{kill}-{n}"))).collect();
        assert!(missing.is_empty(), "lost {kill}-{missing:?}; seed {seed}");
    }
    assert_eq!((store.lag_and_pending(), store.dead_letters().len()), ((0, 0), 0));
    wait_until("all processes to end", || store.processes().is_empty());
}

/// The first milliseconds matter: the program starts the worker, and the worker starts the programs that run handlers.
#[test]
fn if_the_program_is_killed_at_any_moment_no_process_stays() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let kills = number("MILLSTREAM_SDK_KILLS").unwrap_or(KILLS);
    let seed = number("MILLSTREAM_SEED").unwrap_or(1);
    for language in [Language::Python, Language::Node] {
        let store = TestStore::server();
        language.write_worker(&store, 50);
        store.add(1000);
        let mut random = Random::new(seed);
        for kill in 0..kills {
            let program = Running::start(&mut language.worker(&store, &[]));
            let longest = [30, 300, 1500][kill as usize % 3];
            std::thread::sleep(Duration::from_millis(random.between(0, longest)));
            program.signal("KILL");
            wait_until("all processes to end", || store.processes().is_empty());
        }
    }
}

/// Chooses a process: the one that the test started, a worker, or one that runs handlers.
fn victim(store: &TestStore, first: &str, random: &mut Random) -> String {
    let binary = env!("CARGO_BIN_EXE_millstream");
    let (wants_worker, wants_handlers) =
        [(false, false), (true, false), (false, true)][random.below(3) as usize];
    let mut processes = store.processes();
    processes.retain(|pid| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let (is_worker, names_script) = (command.starts_with(binary), command.contains("worker."));
        (wants_worker && is_worker) || (wants_handlers && names_script && !is_worker && *pid != first)
    });
    match processes.len() as u64 {
        0 => first.to_owned(),
        count => processes.swap_remove(random.below(count) as usize),
    }
}
