//! Runs the programs of `crates/worker/examples` on an in-memory store, as a reader would, and checks how they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

/// Names of the programs, and the last line of their output.
const EXAMPLES: &[(&str, &str)] = &[
    ("autoscaling", "600 received, 600 acknowledged; scaled up: true, slots at the end: 1"),
    ("batches", "120 rows loaded, 12 tried again"),
    ("dead_letters", "redriven: 1 received, 1 acknowledged"),
    ("fan_out", "analytics: 35 received, 30 acknowledged, 5 skipped"),
    ("groups", "deleted: true"),
    ("history", "5 received, 5 acknowledged, 3 redelivered"),
    ("idempotence", "balance: 60"),
    ("monitoring", "lag 0, pending 0, ok"),
    ("pool", "180 received, 180 acknowledged"),
    ("produce", "entries: 1001"),
    ("shutdown", "both together: 40 of 40 jobs"),
    ("takeover", "25 received, 25 acknowledged, 4 redelivered"),
];

/// Programs that are not examples of usage: they measure.
const OTHERS: &[&str] = &["latency", "look_cost", "throughput"];

#[test]
fn every_example_prints_its_expected_last_line() {
    let folder = build_examples();
    thread::scope(|scope| {
        for (name, last_line) in EXAMPLES {
            scope.spawn(move || {
                let output = Command::new(folder.join(name)).env_remove("MILLSTREAM_URL").output();
                let output = output.unwrap_or_else(|error| panic!("{name}: {error}"));
                let printed = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name}: {}\n{printed}{errors}", output.status);
                assert_eq!(printed.lines().last(), Some(*last_line), "{name}:\n{printed}{errors}");
            });
        }
    });
}

#[test]
fn every_example_is_tested_and_listed() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme =
        fs::read_to_string(crate_folder.join("../../examples/README.md")).expect("examples/README.md");
    let mut found: Vec<String> = fs::read_dir(crate_folder.join("examples"))
        .expect("the folder of examples")
        .filter_map(|entry| entry.expect("a file").file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .filter(|name| !OTHERS.contains(&name.as_str()))
        .collect();
    found.sort();
    assert_eq!(found, EXAMPLES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, _) in EXAMPLES {
        assert!(readme.contains(&format!("`{name}`")), "examples/README.md does not list {name}");
    }
}

/// Builds the examples and returns their folder. Cargo does not build them if this test runs alone.
fn build_examples() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let profile = test.ancestors().nth(2).expect("a test is in the folder deps of its profile");
        let mut cargo = Command::new(env!("CARGO"));
        // `--workspace`: for a single package, Cargo would build its dependencies again with other features.
        cargo.args(["build", "--quiet", "--workspace", "--examples"]);
        // Some build scripts depend on the variables that Cargo sets for this test. Removing these variables avoids
        // that the scripts run again and everything that depends on them is rebuilt.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                cargo.env_remove(name);
            }
        }
        cargo.arg("--target-dir").arg(profile.parent().expect("a profile is in the target folder"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("run cargo");
        assert!(built.success(), "the examples do not build");
        profile.join("examples")
    })
}
