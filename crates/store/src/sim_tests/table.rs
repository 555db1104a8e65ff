//! The table of planted mistakes in the documentation. `UPDATE_DOCS=1` writes it; else it must name every mistake there is.

use std::fmt::Write;

use super::caught;
use super::planted::Bug;
use crate::log;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/planted-bugs.md");

/// How many episodes of the whole store look for a mistake of the log.
const EPISODES_FOR_LOG: u64 = 60;

const INTRODUCTION: &str = "\
# Planted bugs

A test that cannot fail shows nothing. So each of these mistakes was made on purpose, and the tests had to notice. The product has no switch for any of \
them: tests put something around it that makes the mistake (`crates/store/src/sim_tests/planted`), a disk that skips a sync or changes bytes, for example. The numbers say how many seeds it took, counted from 1: of power cuts under the log alone, of random damage to \
its files, of power cuts under the whole store. A dash: not noticed there within 600, 200 and (mistakes of the log) 60 seeds, or nothing that kind of test \
could see.

Written by `UPDATE_DOCS=1 cargo test -p millstream-store --lib planted`.

| mistake | power cuts, log | damage, log | power cuts, store |
|---|---|---|---|
";

pub(super) fn check_or_write(rows: &[(Bug, u64)]) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PATH, render(rows)).expect("the documentation can be written");
        return;
    }
    let text = std::fs::read_to_string(PATH).expect("the documentation has the table");
    for mistake in Bug::OF_LOG.into_iter().chain(Bug::OF_STORE).map(Bug::mistake) {
        assert!(
            text.contains(mistake),
            "docs/planted-bugs.md does not tell of: {mistake}; run with UPDATE_DOCS=1"
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
