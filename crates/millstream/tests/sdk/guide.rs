//! Runs every shell, Python and Node block of docs/from-your-consumer.md, and checks what each shell block prints.
//!
//! The sections run at the same time, after the first one with code, which writes the programs that others use.
//! `MILLSTREAM_GUIDE_REDIS=1` also runs them on Redis.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use crate::installed::shell;
use crate::language::sdk;
use crate::test_store::{Running, TestStore};

const PAGE: &str = include_str!("../../../../docs/from-your-consumer.md");

/// What the shell blocks of each section print.
const PRINTED: &[(&str, &[&[&str]])] = &[
    (
        "The whole program",
        &[
            &["order of anna\n", "1 received, 1 acknowledged"],
            &["order of ben\n", "1 received, 1 acknowledged"],
            &["order of cleo\n", "1 received, 1 acknowledged"],
        ],
    ),
    ("Group manager", &[&["order-processors", "CONSUMER", "nothing was changed"]]),
    ("Pending messages", &[&["worker-0", "attempt 2\n"]]),
    ("Retries and dead letters", &[&["the order has no customer"]]),
    ("Autoscaler", &[&["scaling the pool from=2 to=4 cause=\"lag\"", "150 received, 150 acknowledged"]]),
    ("Monitor", &[&["events:orders", "\"oldest_pending_ms\": "]]),
    ("Prometheus", &[&["redis_stream_group_lag{", "millstream_group_oldest_pending_age_seconds{"]]),
    ("Health", &[&["order-processors"]]),
    (
        "Take over a running group",
        &[
            &["released 4 entries", "counted 1\n", "counted 10\n", "10 received, 10 acknowledged"],
            &["counters", "removed worker-0"],
        ],
    ),
    (
        "Dead letters of your program",
        &[&["max_deliveries", "moved 1 of 1", "refund for dora\n", "1 received, 1 acknowledged"]],
    ),
];

#[test]
fn every_block_of_the_guide_runs() {
    let stores = TestStore::servers();
    let count = if std::env::var_os("MILLSTREAM_GUIDE_REDIS").is_some() { usize::MAX } else { 1 };
    for store in stores.take(count) {
        prepare(&store);
        let sections: Vec<Section> = PAGE.split("\n## ").map(Section::parse).collect();
        let with_scripts: Vec<&Section> = sections
            .iter()
            .filter(|section| section.blocks.iter().any(|(language, _)| *language == "sh"))
            .collect();
        let titles: Vec<&str> = with_scripts.iter().map(|section| section.title).collect();
        assert_eq!(titles, PRINTED.iter().map(|(title, _)| *title).collect::<Vec<_>>());
        let mut runs = with_scripts.into_iter().zip(PRINTED);
        let (first, (_, printed)) = runs.next().expect("a section");
        first.run(&store, printed);
        thread::scope(|scope| {
            for (section, (_, printed)) in runs {
                let store = &store;
                scope.spawn(move || section.run(store, printed));
            }
        });
    }
}

#[test]
fn the_metrics_of_the_guide_exist() {
    let store = TestStore::server();
    store.add(1);
    store.call(&["XGROUP", "CREATE", "orders", "billing", "0"]);
    store.call(&["XREADGROUP", "GROUP", "billing", "one", "STREAMS", "orders", ">"]);
    let metrics = store.run(&["metrics", "--once", "--consumers"]).ok().out;
    let (_, section) = PAGE.split_once("\n## Prometheus\n").expect("the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let names = rows.flat_map(|(_, new)| new.split('`').skip(1).step_by(2));
    let is_metric = |name: &&str| name.starts_with("redis_") || name.starts_with("millstream_");
    let names: Vec<&str> = names.filter(is_metric).collect();
    assert!(names.len() > 12, "{names:?}");
    for name in names {
        let (name, labels) = name.trim_end_matches('}').split_once('{').unwrap_or((name, ""));
        let sample = metrics.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let sample = sample.unwrap_or_else(|| panic!("no metric {name}"));
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            assert!(sample.contains(&format!("{label}=\"")), "{name} has no label {label}: {sample}");
        }
    }
}

/// A section of the page.
struct Section {
    title: &'static str,
    /// The language and the code of each block.
    blocks: Vec<(&'static str, String)>,
}

impl Section {
    fn parse(text: &'static str) -> Section {
        let title = text.lines().next().unwrap_or_default();
        let mut blocks = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix("```") else { continue };
            // In a list, blocks are indented.
            let indent = line.len() - line.trim_start().len();
            let code = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
            let code = code.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()));
            blocks.push((language, code.collect()));
        }
        Section { title, blocks }
    }

    /// Runs the blocks in order. Each shell block must succeed and print these texts.
    fn run(&self, store: &TestStore, printed: &[&[&str]]) {
        let mut expected = printed.iter();
        for (language, code) in &self.blocks {
            match *language {
                "sh" => {
                    let mut shell = shell(store, &format!("export PATH=\"$PWD/bin:$PATH\"\n{code}"));
                    let run = Running::start(shell.env("PYTHONPATH", sdk().join("python"))).wait().ok();
                    let output = format!("{}{}", run.out, run.err);
                    for text in *expected.next().unwrap_or_else(|| panic!("no expectation for:\n{code}")) {
                        assert!(output.contains(text), "no {text:?}:\n{code}\n{output}");
                    }
                }
                "python" | "js" => {
                    let name = code.split_whitespace().nth(1).expect("the name of the file");
                    store.write(name, code);
                }
                // rustdoc runs these.
                "rust" | "rust,no_run" => {}
                other => panic!("unknown language {other:?}:\n{code}"),
            }
        }
        assert_eq!(expected.next(), None, "{}: a block is missing", self.title);
    }
}

/// Lets programs of the test's folder import the packages, and `redis-cli` connect to the store.
fn prepare(store: &TestStore) {
    let folder = |name: &str| {
        fs::create_dir_all(store.folder.join(name)).expect("create a folder");
        store.folder.join(name)
    };
    symlink(sdk().join("node"), folder("node_modules").join("millstream")).expect("a link");
    let redis_cli = folder("bin").join("redis-cli");
    // The folder of this script comes first on the PATH.
    let command = format!("#!/bin/sh\nPATH=${{PATH#*:}} exec redis-cli -u {} \"$@\"\n", store.url);
    fs::write(&redis_cli, command).expect("write a script");
    fs::set_permissions(&redis_cli, fs::Permissions::from_mode(0o755)).expect("make it executable");
}
