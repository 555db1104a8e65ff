//! Data that the server acknowledged or returned to clients survives `kill -9`, power cuts, full disks, and failing
//! or slow syncs. Tests the real binary.
//!
//! Clients under load keep a ledger outside the server's folder. After each fault the server is started again, and
//! its state is compared with the ledger. The same harness runs on a real `redis-server`, to show that it finds
//! losses if there are any. `kill -9` keeps the page cache, so it cannot reveal a missing sync. Power cuts can. They
//! need root and loop devices; without these they are skipped with a message.
//!
//! `MILLSTREAM_KILLS` and `MILLSTREAM_CUTS` set the faults per test, `MILLSTREAM_SEED` the first seed, and
//! `MILLSTREAM_ROUND_MS` the mean time between faults. `MILLSTREAM_DURABLE=1` runs the tests even if the server
//! reports that it stores nothing on disk. `scripts/durability` runs long campaigns and publishes their results.

mod campaign;
mod check;
mod disk;
mod entry;
mod faults;
mod ledger;
mod load;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../differential/random.rs"]
mod random;
mod reply;
mod sensitivity;
mod state;
mod subject;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod tally;
mod tracer;

use std::io::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use campaign::{Campaign, Place};
use check::Violation;
use faults::FullDisk;
use subject::{Policy, Subject};
use support::peers::REDIS_7_0;
use support::process::{Server, ServerKind};
use support::resp::Value;
use tally::Tally;

/// Number of faults per test in an ordinary run.
const FAULTS: u64 = 6;
/// Mean time from the start of the load to the fault, in milliseconds.
const ROUND_MS: u64 = 120;
/// Maximum age of a write that `everysec` may lose.
const EVERYSEC_LOSS_MAX: Duration = Duration::from_secs(2);
/// Seed of an ordinary run.
const SEED: u64 = 1;

const REDIS_ALWAYS: Subject = Subject { kind: ServerKind::Peer(&REDIS_7_0), policy: Policy::Always };
const REDIS_NEVER: Subject = Subject { kind: ServerKind::Peer(&REDIS_7_0), policy: Policy::No };
const MILLSTREAM: Subject = Subject { kind: ServerKind::Millstream, policy: Policy::Always };

#[test]
fn millstream_survives_kills_under_every_policy() {
    let Some(_turn) = millstream_turn() else { return };
    for policy in [Policy::Always, Policy::Everysec, Policy::No] {
        expect_no_findings(&kills(Subject { policy, ..MILLSTREAM }));
    }
}

#[test]
fn millstream_survives_power_cuts() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some(tally) = cuts(MILLSTREAM) {
        expect_no_findings(&tally);
    }
}

#[test]
fn millstream_loses_only_recent_writes_without_sync_always() {
    let Some(_turn) = millstream_turn() else { return };
    for policy in [Policy::Everysec, Policy::No] {
        if let Some(tally) = cuts(Subject { policy, ..MILLSTREAM }) {
            expect_only_recent_losses(&tally);
            let bound = if policy == Policy::Everysec { EVERYSEC_LOSS_MAX } else { Duration::MAX };
            assert!(tally.oldest_loss() <= bound, "{tally}");
        }
    }
}

#[test]
fn millstream_stops_cleanly_under_every_policy() {
    let Some(_turn) = millstream_turn() else { return };
    for policy in [Policy::Always, Policy::Everysec, Policy::No] {
        expect_no_findings(&stops(Subject { policy, ..MILLSTREAM }));
    }
}

#[test]
fn millstream_returns_only_durable_entries() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some(tally) = observed(MILLSTREAM) {
        expect_no_findings(&tally);
    }
}

#[test]
fn millstream_acknowledges_nothing_after_a_failed_sync() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some(tally) = failing_syncs(MILLSTREAM) {
        expect_no_findings(&tally);
    }
}

#[test]
fn millstream_refuses_writes_on_a_full_disk_and_resumes() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some((tally, outcome)) = full_disk(MILLSTREAM) {
        expect_no_findings(&tally);
        assert_eq!(outcome, FullDisk::Refused);
    }
}

#[test]
fn millstream_accepts_no_write_while_less_than_its_reserve_is_free() {
    let Some(_turn) = millstream_turn() else { return };
    let Some(mut campaign) = on_a_disk(MILLSTREAM) else { return };
    faults::disk_filled_by_others(&mut campaign);
}

#[test]
fn millstream_waits_while_other_programs_fill_the_disk() {
    let Some(_turn) = millstream_turn() else { return };
    let Some(mut campaign) = on_a_disk(MILLSTREAM) else { return };
    faults::disk_taken_by_others(&mut campaign);
    expect_no_findings(&finish("disk taken by others", campaign));
}

#[test]
fn a_second_millstream_cannot_open_the_folder() {
    let Some(_turn) = millstream_turn() else { return };
    let mut campaign = Campaign::new(MILLSTREAM, seed(), Place::Folder);
    let mut second = MILLSTREAM.launch(&campaign.data(), &campaign.note_file());
    let status = second.wait_for_exit(Duration::from_secs(10));
    assert!(status.is_some_and(|status| !status.success()), "a second process opened the folder: {status:?}");
    faults::kill(&mut campaign, round_mean());
    expect_no_findings(&campaign.tally);
}

#[test]
fn redis_with_sync_always_survives_kills_and_power_cuts() {
    let Some(_turn) = redis_turn() else { return };
    expect_only_count_findings(&kills(REDIS_ALWAYS));
    if let Some(tally) = cuts(REDIS_ALWAYS) {
        expect_only_count_findings(&tally);
    }
}

/// Shows that the harness detects losses: a server that never syncs has some.
#[test]
fn redis_without_sync_loses_writes_at_power_cuts() {
    let Some(_turn) = redis_turn() else { return };
    if let Some(tally) = cuts(REDIS_NEVER) {
        assert!(tally.count(Violation::Lost) > 0, "no loss found without syncs: {tally}");
    }
}

/// Shows that the harness detects entries that are returned too early: a server that syncs in the background returns
/// some.
#[test]
fn redis_with_background_sync_returns_entries_that_are_not_durable() {
    let Some(_turn) = redis_turn() else { return };
    if let Some(tally) = observed(Subject { policy: Policy::Everysec, ..REDIS_ALWAYS }) {
        assert!(tally.count(Violation::Lost) > 0, "no returned entry was lost: {tally}");
    }
}

/// On a full disk, Redis loses nothing with `always`. With `everysec` it may lose the most recent writes.
#[test]
fn redis_on_a_full_disk_keeps_what_its_sync_policy_guarantees() {
    let Some(_turn) = redis_turn() else { return };
    if let Some((tally, _)) = full_disk(REDIS_ALWAYS) {
        expect_only_count_findings(&tally);
    }
    if let Some((tally, _)) = full_disk(Subject { policy: Policy::Everysec, ..REDIS_ALWAYS }) {
        expect_only_recent_losses(&tally);
    }
}

#[test]
fn redis_with_sync_always_acknowledges_nothing_after_a_failed_sync() {
    let Some(_turn) = redis_turn() else { return };
    if let Some(tally) = failing_syncs(REDIS_ALWAYS) {
        expect_only_count_findings(&tally);
    }
}

/// Runs one campaign that environment variables describe, and appends its result to a file as a line of JSON.
#[test]
#[ignore = "long; scripts/durability runs it"]
fn campaign() {
    let _turn = turn();
    let setting = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let kind = if setting("MILLSTREAM_CAMPAIGN_SUBJECT") == "redis" {
        ServerKind::Peer(&REDIS_7_0)
    } else {
        ServerKind::Millstream
    };
    let policy = Policy::parse(&setting("MILLSTREAM_CAMPAIGN_POLICY")).expect("always, everysec or no");
    let subject = Subject { kind, policy };
    let fault = setting("MILLSTREAM_CAMPAIGN_FAULT");
    let started = Instant::now();
    let tally = match fault.as_str() {
        "kill" => Some(kills(subject)),
        "cut" => cuts(subject),
        "stop" => Some(stops(subject)),
        "observed" => observed(subject),
        "sync" => failing_syncs(subject),
        "full" => full_disk(subject).map(|(tally, _)| tally),
        other => panic!("unknown fault {other}"),
    };
    let Some(tally) = tally else { return };
    let labels = [
        ("subject", subject.program_name().to_owned()),
        ("policy", policy.name().to_owned()),
        ("fault", fault),
        ("seed", seed().to_string()),
    ];
    let line = tally.json(&labels, started.elapsed().as_secs_f64());
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(setting("MILLSTREAM_CAMPAIGN_OUT"))
        .expect("open the results");
    writeln!(file, "{line}").expect("write the result");
}

fn kills(subject: Subject) -> Tally {
    let mut campaign = Campaign::new(subject, seed(), Place::Folder);
    for _ in 0..number("MILLSTREAM_KILLS").unwrap_or(FAULTS) {
        faults::kill(&mut campaign, round_mean());
    }
    finish("kill -9 (which can never find a missing sync)", campaign)
}

fn cuts(subject: Subject) -> Option<Tally> {
    let mut campaign = on_a_disk(subject)?;
    for _ in 0..number("MILLSTREAM_CUTS").unwrap_or(FAULTS) {
        faults::cut(&mut campaign, round_mean());
    }
    Some(finish("power cut", campaign))
}

fn stops(subject: Subject) -> Tally {
    let place = faults::disk(seed()).unwrap_or(Place::Folder);
    let mut campaign = Campaign::new(subject, seed(), place);
    for _ in 0..number("MILLSTREAM_KILLS").unwrap_or(FAULTS).div_ceil(3) {
        faults::stop(&mut campaign, round_mean());
    }
    finish("SIGTERM", campaign)
}

fn observed(subject: Subject) -> Option<Tally> {
    let mut campaign = on_a_disk(subject)?;
    for _ in 0..number("MILLSTREAM_CUTS").unwrap_or(FAULTS) {
        if let Err(why) = faults::cut_after_observation(&mut campaign) {
            skip(&why);
            return None;
        }
    }
    Some(finish("power cut after a read, syncs slowed", campaign))
}

fn failing_syncs(subject: Subject) -> Option<Tally> {
    let place = faults::disk(seed()).unwrap_or(Place::Folder);
    let mut campaign = Campaign::new(subject, seed(), place);
    let mut failed = 0;
    for _ in 0..number("MILLSTREAM_CUTS").unwrap_or(FAULTS) {
        match faults::failing_sync(&mut campaign) {
            Ok(()) => failed += 1,
            Err(why) => skip(&why),
        }
    }
    let tally = finish("EIO on sync", campaign);
    (failed > 0).then_some(tally)
}

fn full_disk(subject: Subject) -> Option<(Tally, FullDisk)> {
    let mut campaign = on_a_disk(subject)?;
    let outcome = faults::full_disk(&mut campaign);
    eprintln!("{subject}: full disk: {outcome:?}");
    Some((finish("full disk", campaign), outcome))
}

fn on_a_disk(subject: Subject) -> Option<Campaign> {
    match faults::disk(seed()) {
        Ok(place) => Some(Campaign::new(subject, seed(), place)),
        Err(why) => {
            skip(&format!("cannot create a test disk, which needs root and loop devices: {why}"));
            None
        }
    }
}

/// Prints the result of a campaign and returns it.
fn finish(fault: &str, campaign: Campaign) -> Tally {
    let Campaign { subject, seed, tally, .. } = campaign;
    eprintln!("{subject}, {fault}, seed {seed}: {tally}");
    tally
}

fn expect_no_findings(tally: &Tally) {
    assert_eq!(tally.count_except(&[]), 0, "{tally}");
}

/// Redis does not log that a consumer has read its own pending entries again, so its delivery counts can be too
/// small.
fn expect_only_count_findings(tally: &Tally) {
    assert_eq!(tally.count_except(&[Violation::Count]), 0, "{tally}");
}

/// Asserts that only recent writes were lost, if any. Half-done, reordered and invented writes are not allowed.
fn expect_only_recent_losses(tally: &Tally) {
    let allowed =
        [Violation::Lost, Violation::CameBack, Violation::WentBack, Violation::Count, Violation::Owner];
    assert_eq!(tally.count_except(&allowed), 0, "{tally}");
}

/// Lets one test run at a time, because tests measure time and share the machine's loop devices.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn redis_turn() -> Option<MutexGuard<'static, ()>> {
    Server::compares_with_real_servers().then(turn)
}

/// Waits for the turn of a test of Millstream. `None` if the server reports that it keeps its data in memory only.
fn millstream_turn() -> Option<MutexGuard<'static, ()>> {
    let turn = turn();
    if std::env::var("MILLSTREAM_DURABLE").is_ok_and(|value| value == "1") {
        return Some(turn);
    }
    let reply = Server::millstream(&["--appendonly", "yes"]).client().call(&["CONFIG", "GET", "appendonly"]);
    if reply::list(&reply).get(1) == Some(&Value::Bulk(b"yes".to_vec())) {
        return Some(turn);
    }
    skip("this millstream keeps its data in memory only");
    None
}

fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

fn seed() -> u64 {
    number("MILLSTREAM_SEED").unwrap_or(SEED)
}

fn round_mean() -> Duration {
    Duration::from_millis(number("MILLSTREAM_ROUND_MS").unwrap_or(ROUND_MS))
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
