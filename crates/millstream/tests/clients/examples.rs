//! Runs the programs of `examples/` as a reader would, and checks what they print.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::program;
use crate::support::process::Server;

/// A program and lines that its output must contain.
type Example = (&'static str, &'static [&'static str]);

const PYTHON: &[Example] = &[
    ("producer.py", &["produced 2000 orders in", "its body is {'order': 1999}"]),
    (
        "group_manager.py",
        &[
            "created: True, and again: False",
            "before reading: Description(consumers=0, pending=0, lag=5, position='0-0')",
            "removed: ['anna']",
            "after rewinding, zoe reads 5 invoices",
            "destroyed: True",
        ],
    ),
    ("consumer_pool.py", &["180 jobs in all", "left behind: 0 consumers, 0 pending, lag 0"]),
    ("pending_monitor.py", &["example:monitor / crew: 300 pending", "ben 250 600 s 3"]),
    (
        "recovery.py",
        &["deleted from the stream: 1", "recovered and finished: 24", "still pending: 15 of consumer alive"],
    ),
    (
        "dead_letters.py",
        &["delivered A", "delivered C", "dead-lettered B after 3 deliveries", "still pending: 0"],
    ),
    ("autoscaler.py", &["peak workers: 6, at the end: 1", "entries read: 400, pending: 0, lag: 0"]),
    ("idempotent_consumer.py", &["p2: already applied, skipped", "balance of anna: 60", "still pending: 0"]),
    ("batch_consumer.py", &["a batch of 50: 45 loaded, 5 to retry", "rows loaded: 120, still pending: 0"]),
];

const NODE: &[Example] = &[
    (
        "worker.mjs",
        &["sent 20, the first to user-0@example.org", "after a restart: sent 30, each exactly once: true"],
    ),
    ("pool.mjs", &["peak workers: 5; jobs done: 300", "left behind: 0 consumers, 0 pending"]),
    (
        "recovery.mjs",
        &[
            "dead-lettered job 7 after 3 deliveries",
            "recovered and finished: 24",
            "in the dead letters: 1, still pending: 0",
        ],
    ),
    ("monitor.mjs", &["'audit' │ 0 │ 0 │ 0", "'billing' │ 1 │ 6 │ 3 │ 90"]),
];

const RUST: &[Example] = &[
    ("consumer_pool.rs", &["jobs done: 180", "left behind: 0 consumers, 0 pending, lag Some(0)"]),
    (
        "recovery.rs",
        &[
            "dead-lettered job 7 after 3 deliveries",
            "recovered and finished: 24",
            "in the dead letters: 1, still pending: 0",
        ],
    ),
];

const REDIS_CLI: &[Example] = &[(
    "walkthrough.sh",
    &["2) 1) 1) \"4-0\" 2) 1) \"item\"", "> XINFO GROUPS example:walkthrough", "12) (integer) 1"],
)];

pub(crate) fn python(server: &Server) {
    run_all("python", PYTHON, |file| {
        let mut command = program::python("python", server);
        command.arg(format!("examples/python/{file}"));
        command
    });
}

pub(crate) fn node(server: &Server) {
    run_all("node", NODE, |file| {
        let mut command = program::node(server);
        command.arg(program::node_folder().join("examples").join(file));
        command
    });
}

pub(crate) fn rust(server: &Server) {
    let folder = build_rust_examples();
    run_all("rust", RUST, |file| program::command(folder.join(file.trim_end_matches(".rs")), server));
}

pub(crate) fn redis_cli(server: &Server) {
    run_all("redis-cli", REDIS_CLI, |file| program::command(examples().join("redis-cli").join(file), server));
}

/// Every program of `examples/` is in the lists above and in the README.
#[test]
fn every_example_is_listed_and_run() {
    let readme = fs::read_to_string(examples().join("README.md")).expect("read examples/README.md");
    for (folder, listed) in [("python", PYTHON), ("node", NODE), ("rust", RUST), ("redis-cli", REDIS_CLI)] {
        let mut found: Vec<String> = fs::read_dir(examples().join(folder))
            .expect("read the folder of examples")
            .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
            .filter(|name| is_program(name))
            .collect();
        found.sort();
        let mut expected: Vec<&str> = listed.iter().map(|(file, _)| *file).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "in examples/{folder}");
        for (file, _) in listed {
            assert!(readme.contains(&format!("{folder}/{file}")), "examples/README.md does not list {file}");
        }
    }
}

/// Programs that show a pattern written by hand say so, and name the section of the guide with the shorter way.
#[test]
fn hand_written_examples_point_to_the_shorter_way() {
    let guide =
        fs::read_to_string(program::repository().join("docs/from-your-consumer.md")).expect("read the guide");
    let anchors: Vec<String> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect();
    let hand_written = [("python", PYTHON), ("node", NODE), ("rust", RUST)]
        .into_iter()
        .flat_map(|(folder, listed)| listed.iter().map(move |(file, _)| format!("{folder}/{file}")))
        .filter(|file| !file.ends_with("producer.py"));
    for file in hand_written {
        let text = fs::read_to_string(examples().join(&file)).expect("read an example");
        assert!(text.contains("This is the pattern written by hand."), "{file}");
        let (_, rest) = text.split_once("docs/from-your-consumer.md#").unwrap_or_else(|| panic!("{file}"));
        let anchor = rest.split(')').next().unwrap_or_default();
        assert!(anchors.iter().any(|known| known == anchor), "{file}: the guide has no section {anchor}");
    }
}

/// Builds the Rust examples and returns their folder. Cargo does not build them if this test runs alone.
fn build_rust_examples() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_millstream")).with_file_name("examples");
        let mut cargo = Command::new(env!("CARGO"));
        // `--workspace`: for a single package, Cargo would build its dependencies again with other features.
        // Some build scripts depend on the variables that Cargo sets for this test. Without these variables,
        // the scripts do not run again, and Cargo rebuilds nothing that depends on them.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                cargo.env_remove(name);
            }
        }
        cargo.args(["build", "--quiet", "--workspace", "--examples", "--target-dir"]);
        cargo.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in the target folder"));
        if folder.parent().is_some_and(|profile| profile.ends_with("release")) {
            cargo.arg("--release");
        }
        program::run(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        folder
    })
}

fn run_all(folder: &str, examples: &[Example], command: impl Fn(&str) -> Command) {
    for (file, lines) in examples {
        let printed = program::run(&mut command(file));
        for line in *lines {
            assert!(
                squeeze(&printed).contains(&squeeze(line)),
                "examples/{folder}/{file} did not print {line:?}:\n{printed}"
            );
        }
    }
}

/// Replaces every run of whitespace by one space. Versions of Node.js align the columns of tables differently.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_program(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("py" | "mjs" | "rs" | "sh")) && !name.starts_with("connection.")
}

fn examples() -> PathBuf {
    program::repository().join("examples")
}
