//! The table of planted mistakes in the documentation. `UPDATE_DOCS=1` writes it; else it must name every mistake there is.

use std::fmt::Write;

use super::{Mistake, caught};
use crate::log;
use crate::planted::Bug;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/planted-bugs.md");

/// How many episodes of the whole store look for a mistake of the log.
const EPISODES_FOR_LOG: u64 = 60;

const INTRODUCTION: &str = "\
# Planted bugs

A test that cannot fail shows nothing. So each of these mistakes was made on purpose, behind a switch that only tests have, and the \
tests had to notice. The numbers say how many seeds it took, counted from 1: of power cuts under the log alone, of random damage to \
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
    let all = log::Bug::ALL.into_iter().map(of_log).chain(Bug::ALL.into_iter().map(of_store));
    for mistake in all {
        assert!(
            text.contains(mistake),
            "docs/planted-bugs.md does not tell of: {mistake}; run with UPDATE_DOCS=1"
        );
    }
}

fn render(rows: &[(Bug, u64)]) -> String {
    let mut out = INTRODUCTION.to_owned();
    for bug in log::Bug::ALL {
        let (crash, damage) = log::tests::crash::caught(bug);
        let store = caught(Mistake::Log(bug), EPISODES_FOR_LOG).map(|(seed, _)| seed);
        let [crash, damage, store] = [crash, damage, store].map(number);
        let _ = writeln!(out, "| {} | {crash} | {damage} | {store} |", of_log(bug));
    }
    for (bug, seed) in rows {
        let _ = writeln!(out, "| {} | – | – | {seed} |", of_store(*bug));
    }
    out
}

fn number(seed: Option<u64>) -> String {
    seed.map_or_else(|| "–".to_owned(), |seed| seed.to_string())
}

fn of_log(bug: log::Bug) -> &'static str {
    match bug {
        log::Bug::AcknowledgedBeforeSync => "a position counts as durable before the sync",
        log::Bug::SyncSkipped => "a position counts as durable without a sync",
        log::Bug::FolderNotSynced => "the folder is not synced after creations and renames",
        log::Bug::ChecksumUnchecked => "records are believed without their checksum",
        log::Bug::ChainUnchecked => "records and segments need not continue the one before",
        log::Bug::CutOnAnyDamage => "any damage in the last segment counts as a torn tail",
        log::Bug::ClaimOffByOne => "records claim one position more than is durable",
        log::Bug::RemovedBeforeManifest => "segments go before the manifest does without them",
        log::Bug::SyncRetried => "after a failed sync the next one is believed",
        log::Bug::TailNotCut => "a torn tail is left, and records are appended behind it",
        log::Bug::TailNotRewritten => "what an earlier process may have failed to sync is not written again",
    }
}

fn of_store(bug: Bug) -> &'static str {
    match bug {
        Bug::PendingNotInSnapshot => "snapshots leave out pending entries",
        Bug::ReleasedNotInSnapshot => "snapshots leave out what was given back",
        Bug::MemoryNotInSnapshot => "snapshots leave out what producers have sent",
        Bug::RepeatNotLogged => "that a producer sent something again is not logged",
        Bug::ForgettingNotLogged => "pending entries that go with a deleted one are not logged",
        Bug::ExpiredNotInSnapshot => "snapshots leave out keys that have expired but are still there",
        Bug::StampTooLate => "a key in a snapshot claims one record more than it has seen",
        Bug::StampTooEarly => "a key in a snapshot claims one record less than it has seen",
        Bug::StampsIgnored => "records that a key in a snapshot has seen are replayed on it",
        Bug::SnapshotPositionTooLate => "the first record after a snapshot is not replayed",
        Bug::SnapshotNotSynced => "a snapshot comes into force without a sync",
        Bug::OldSnapshotRemovedFirst => "the old snapshot goes before the new one is in force",
        Bug::SnapshotAfterFailure => "snapshots are taken after the log has failed",
        Bug::RearrangementUnnoticed => {
            "a value that is renamed during a snapshot does not make it begin anew"
        }
        Bug::RearrangementCountedEarly => {
            "a rename under way when a snapshot begins is taken for an earlier one"
        }
        Bug::LoggedAfterUnlock => "a record is appended after the locks are gone, out of order",
        Bug::TransactionInPieces => "each change of a transaction is a record of its own",
        Bug::ConsumerCreationNotLogged => "that a consumer joined is not logged",
        Bug::UnacknowledgedDeliveryNotLogged => "deliveries that need no acknowledgement are not logged",
        Bug::OtherNamesOverlooked => "entries alike are taken for neighbours though another lies between",
        Bug::DeliveryOutOfOrder => "a delivery is logged behind the entry that came after it",
        Bug::ToldBeforeSettled => "replies do not wait for the log",
    }
}
