//! The table of planted bugs in the documentation. `UPDATE_DOCS=1` writes it; otherwise the test checks that it is
//! complete.

use std::fmt::Write;

use super::caught;
use super::planted::Bug;
use crate::log;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/planted-bugs.md");

/// Number of episodes of the whole store that look for a bug of the log.
const EPISODES_FOR_LOG: u64 = 60;

const INTRODUCTION: &str = "\
# Planted bugs

A test that cannot fail proves nothing. So we made each of these mistakes on purpose, and the tests had to catch it.
The product code has no switch for them: the tests wrap it in code that makes the mistake
(`crates/store/src/sim_tests/planted`), for example in a disk that skips a sync or changes bytes.

Each number is the first seed that caught the mistake, counted from 1. There are three kinds of tests: power cuts
under the log alone, random damage to the log's files, and power cuts under the whole store. A dash means that the
test did not catch the mistake within 600, 200 and (for mistakes of the log) 60 seeds, or that the mistake is outside
of what this test covers.

Written by `UPDATE_DOCS=1 cargo test -p millstream-store --lib planted`.

| mistake | power cuts, log | damage, log | power cuts, store |
|---|---|---|---|
";

pub(super) fn check_or_write(rows: &[(Bug, u64)]) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PATH, render(rows)).expect("docs/planted-bugs.md can be written");
        return;
    }
    let text = std::fs::read_to_string(PATH).expect("docs/planted-bugs.md can be read");
    for mistake in Bug::OF_LOG.into_iter().chain(Bug::OF_STORE).map(Bug::mistake) {
        assert!(
            text.contains(mistake),
            "docs/planted-bugs.md does not list: {mistake}; run this test with UPDATE_DOCS=1"
        );
    }
}

fn render(rows: &[(Bug, u64)]) -> String {
    let mut out = INTRODUCTION.to_owned();
    for bug in Bug::OF_LOG {
        let (crash, damage) = log::tests::crash::caught(bug);
        let store = caught(bug, EPISODES_FOR_LOG).map(|(seed, _)| seed);
        let [crash, damage, store] = [crash, damage, store].map(number);
        let _ = writeln!(out, "| {} | {crash} | {damage} | {store} |", bug.mistake());
    }
    for (bug, seed) in rows {
        let _ = writeln!(out, "| {} | – | – | {seed} |", bug.mistake());
    }
    out
}

fn number(seed: Option<u64>) -> String {
    seed.map_or_else(|| "–".to_owned(), |seed| seed.to_string())
}
