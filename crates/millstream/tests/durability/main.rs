//! What clients were told survives: `kill -9`, power cuts, full disks, failing and slow syncs, on the real binary.
//!
//! Clients under load keep a ledger outside the server's folder; after each fault the server is started again and
//! what it holds is held against the ledger. The same harness runs on a real `redis-server`, which shows that it
//! finds losses where there are some. `kill -9` keeps the page cache: it can never find a missing fsync. Power
//! cuts can; they need root and loop devices, and are skipped with a sentence where there are none.
//!
//! `MILLSTREAM_KILLS` and `MILLSTREAM_CUTS` are faults per test, `MILLSTREAM_SEED` the first seed,
//! `MILLSTREAM_ROUND_MS` the mean time between faults, `MILLSTREAM_DURABLE=1` runs the tests even when the server
//! says that it keeps nothing on disk. `scripts/durability` runs long campaigns and publishes them.

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
use check::Kind as Broken;
use faults::FullDisk;
use subject::{Policy, Subject};
use support::peers::REDIS_7_0;
use support::process::{Kind, Server};
use support::resp::Value;
use tally::Tally;

/// Faults per test in an ordinary run.
const FAULTS: u64 = 6;
/// Mean time from the start of the load to the fault.
const ROUND_MS: u64 = 120;
/// The oldest thing that `everysec` may lose.
const EVERYSEC_LOSS_MAX: Duration = Duration::from_secs(2);
/// The seed of an ordinary run.
const SEED: u64 = 1;

const REDIS_ALWAYS: Subject = Subject { kind: Kind::Peer(&REDIS_7_0), policy: Policy::Always };
const REDIS_NEVER: Subject = Subject { kind: Kind::Peer(&REDIS_7_0), policy: Policy::No };
const MILLSTREAM: Subject = Subject { kind: Kind::Millstream, policy: Policy::Always };

#[test]
fn millstream_survives_kills_under_every_policy() {
    let Some(_turn) = millstream_turn() else { return };
    for policy in [Policy::Always, Policy::Everysec, Policy::No] {
        expect_nothing(&kills(Subject { policy, ..MILLSTREAM }));
    }
}

#[test]
fn millstream_survives_power_cuts() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some(tally) = cuts(MILLSTREAM) {
        expect_nothing(&tally);
    }
}

#[test]
fn millstream_loses_only_the_end_when_it_syncs_now_and_then() {
    let Some(_turn) = millstream_turn() else { return };
    for policy in [Policy::Everysec, Policy::No] {
        if let Some(tally) = cuts(Subject { policy, ..MILLSTREAM }) {
            expect_a_prefix(&tally);
            let bound = if policy == Policy::Everysec { EVERYSEC_LOSS_MAX } else { Duration::MAX };
            assert!(tally.oldest_loss() <= bound, "{tally}");
        }
    }
}

#[test]
fn millstream_stops_cleanly_under_every_policy() {
    let Some(_turn) = millstream_turn() else { return };
    for policy in [Policy::Always, Policy::Everysec, Policy::No] {
        expect_nothing(&stops(Subject { policy, ..MILLSTREAM }));
    }
}

#[test]
fn millstream_shows_only_what_is_safe() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some(tally) = observed(MILLSTREAM) {
        expect_nothing(&tally);
    }
}

#[test]
fn millstream_promises_nothing_after_a_failed_sync() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some(tally) = failing_syncs(MILLSTREAM) {
        expect_nothing(&tally);
    }
}

#[test]
fn millstream_refuses_writes_on_a_full_disk_and_resumes() {
    let Some(_turn) = millstream_turn() else { return };
    if let Some((tally, outcome)) = full_disk(MILLSTREAM) {
        expect_nothing(&tally);
        assert_eq!(outcome, FullDisk::Refused);
    }
}

#[test]
fn millstream_waits_when_others_take_the_whole_disk() {
    let Some(_turn) = millstream_turn() else { return };
    let Some(mut campaign) = on_a_disk(MILLSTREAM) else { return };
    faults::disk_taken_by_others(&mut campaign);
    expect_nothing(&told("disk taken by others", campaign));
}

#[test]
fn millstream_has_its_folder_for_itself() {
    let Some(_turn) = millstream_turn() else { return };
    let mut campaign = Campaign::new(MILLSTREAM, seed(), Place::Folder);
    let mut second = MILLSTREAM.launch(&campaign.data(), &campaign.note_file());
    let status = second.wait_for_end(Duration::from_secs(10));
    assert!(status.is_some_and(|status| !status.success()), "a second process opened the folder: {status:?}");
    faults::kill(&mut campaign, round_mean());
    expect_nothing(&campaign.tally);
}

#[test]
fn redis_survives_kills_and_power_cuts_when_it_always_syncs() {
    let Some(_turn) = redis_turn() else { return };
    expect_nothing_but_counts(&kills(REDIS_ALWAYS));
    if let Some(tally) = cuts(REDIS_ALWAYS) {
        expect_nothing_but_counts(&tally);
    }
}

/// The harness can see losses: a server that does not sync has some.
#[test]
fn redis_loses_at_power_cuts_when_it_never_syncs() {
    let Some(_turn) = redis_turn() else { return };
    if let Some(tally) = cuts(REDIS_NEVER) {
        assert!(tally.count(Broken::Lost) > 0, "nothing lost without syncs: {tally}");
    }
}

/// The harness can see what is shown too early: a server that syncs in the background shows it.
#[test]
fn redis_shows_what_is_not_safe_when_it_syncs_in_the_background() {
    let Some(_turn) = redis_turn() else { return };
    if let Some(tally) = observed(Subject { policy: Policy::Everysec, ..REDIS_ALWAYS }) {
        assert!(tally.count(Broken::Lost) > 0, "nothing shown was lost: {tally}");
    }
}

/// Redis under `always` loses nothing to a full disk; under `everysec` it may lose the last moments.
#[test]
fn redis_on_a_full_disk_keeps_what_its_policy_promises() {
    let Some(_turn) = redis_turn() else { return };
    if let Some((tally, _)) = full_disk(REDIS_ALWAYS) {
        expect_nothing_but_counts(&tally);
    }
    if let Some((tally, _)) = full_disk(Subject { policy: Policy::Everysec, ..REDIS_ALWAYS }) {
        expect_a_prefix(&tally);
    }
}

#[test]
fn redis_promises_nothing_after_a_failed_sync_when_it_always_syncs() {
    let Some(_turn) = redis_turn() else { return };
    if let Some(tally) = failing_syncs(REDIS_ALWAYS) {
        expect_nothing_but_counts(&tally);
    }
}

/// One campaign as the environment describes it; its result goes to the end of a file as a line of JSON.
#[test]
#[ignore = "long; scripts/durability runs it"]
fn campaign() {
    let _turn = turn();
    let setting = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let kind = if setting("MILLSTREAM_CAMPAIGN_SUBJECT") == "redis" {
        Kind::Peer(&REDIS_7_0)
    } else {
        Kind::Millstream
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
        other => panic!("no fault is called {other}"),
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
    told("kill -9 (which can never find a missing fsync)", campaign)
}

fn cuts(subject: Subject) -> Option<Tally> {
    let mut campaign = on_a_disk(subject)?;
    for _ in 0..number("MILLSTREAM_CUTS").unwrap_or(FAULTS) {
        faults::cut(&mut campaign, round_mean());
    }
    Some(told("power cut", campaign))
}

fn stops(subject: Subject) -> Tally {
    let place = faults::disk(seed()).unwrap_or(Place::Folder);
    let mut campaign = Campaign::new(subject, seed(), place);
    for _ in 0..number("MILLSTREAM_KILLS").unwrap_or(FAULTS).div_ceil(3) {
        faults::stop(&mut campaign, round_mean());
    }
    told("SIGTERM", campaign)
}

fn observed(subject: Subject) -> Option<Tally> {
    let mut campaign = on_a_disk(subject)?;
    for _ in 0..number("MILLSTREAM_CUTS").unwrap_or(FAULTS) {
        if let Err(why) = faults::cut_after_observation(&mut campaign) {
            skip(&why);
            return None;
        }
    }
    Some(told("power cut after an observation, syncs slowed", campaign))
}

fn failing_syncs(subject: Subject) -> Option<Tally> {
    let place = faults::disk(seed()).unwrap_or(Place::Folder);
    let mut campaign = Campaign::new(subject, seed(), place);
    let mut struck = 0;
    for _ in 0..number("MILLSTREAM_CUTS").unwrap_or(FAULTS) {
        match faults::failing_sync(&mut campaign) {
            Ok(()) => struck += 1,
            Err(why) => skip(&why),
        }
    }
    let tally = told("EIO on sync", campaign);
    (struck > 0).then_some(tally)
}

fn full_disk(subject: Subject) -> Option<(Tally, FullDisk)> {
    let mut campaign = on_a_disk(subject)?;
    let outcome = faults::full_disk(&mut campaign);
    eprintln!("{subject}: on a full disk: {outcome:?}");
    Some((told("full disk", campaign), outcome))
}

fn on_a_disk(subject: Subject) -> Option<Campaign> {
    match faults::disk(seed()) {
        Ok(place) => Some(Campaign::new(subject, seed(), place)),
        Err(why) => {
            skip(&format!("no disk that can fail, which takes root and loop devices: {why}"));
            None
        }
    }
}

fn told(fault: &str, campaign: Campaign) -> Tally {
    let Campaign { subject, seed, tally, .. } = campaign;
    eprintln!("{subject}, {fault}, seed {seed}: {tally}");
    tally
}

fn expect_nothing(tally: &Tally) {
    assert_eq!(tally.others(&[]), 0, "{tally}");
}

/// Redis does not log that an entry was read again from a consumer's own list, so its delivery counts fall back.
fn expect_nothing_but_counts(tally: &Tally) {
    assert_eq!(tally.others(&[Broken::Count]), 0, "{tally}");
}

/// What is left is what there once was: nothing half done, nothing out of order, nothing made up.
fn expect_a_prefix(tally: &Tally) {
    let allowed = [Broken::Lost, Broken::CameBack, Broken::WentBack, Broken::Count, Broken::Owner];
    assert_eq!(tally.others(&allowed), 0, "{tally}");
}

/// One test at a time: they measure time, and share the machine's loop devices.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn redis_turn() -> Option<MutexGuard<'static, ()>> {
    Server::reference_is_wanted().then(turn)
}

/// Nothing while the server says that it keeps its data in memory only.
fn millstream_turn() -> Option<MutexGuard<'static, ()>> {
    let turn = turn();
    if std::env::var("MILLSTREAM_DURABLE").is_ok_and(|value| value == "1") {
        return Some(turn);
    }
    let says = Server::millstream(&["--appendonly", "yes"]).client().call(&["CONFIG", "GET", "appendonly"]);
    if reply::list(&says).get(1) == Some(&Value::Bulk(b"yes".to_vec())) {
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
