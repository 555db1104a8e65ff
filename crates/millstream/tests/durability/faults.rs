//! The faults. Each function runs one round of a campaign.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::campaign::{Campaign, Place};
use crate::check::{Fault, Finding, Violation};
use crate::disk::{Cut, Disk, Format};
use crate::ledger::{Nanos, Op, WORK};
use crate::load::Load;
use crate::random::Random;
use crate::support::process::ServerKind;
use crate::support::resp::Value;
use crate::support::wire::Outcome;
use crate::tracer::{SyncFault, Tracer};

/// Free space on a nearly full disk.
const NEARLY_FULL_BYTES: u64 = 96 << 10;
/// Free space that Millstream reserves for itself.
const RESERVE_BYTES: u64 = 8 << 20;
/// Time within which a server must notice that the disk is full, or has free space again.
const SPACE_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time of a read on a full disk.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay of each sync when syncs are slowed.
const SYNC_DELAY_MS: u64 = 50;

/// Creates a disk whose block size and mount options depend on the seed. The error states why that is not possible.
pub(crate) fn disk(seed: u64) -> Result<Place, String> {
    let mut random = Random::new(seed ^ 0xD15C);
    let block_bytes = if random.percent(30) { 1024 } else { 4096 };
    Disk::new(Format { block_bytes, writeback: random.percent(30) }).map(Place::Disk)
}

/// Kills the server with SIGKILL under load.
pub(crate) fn kill(campaign: &mut Campaign, mean: Duration) {
    let load = campaign.load();
    run_load(campaign, mean);
    let fault = kill_now(campaign);
    campaign.restart_and_check(load.join(), fault);
}

/// Cuts the power under load.
pub(crate) fn cut(campaign: &mut Campaign, mean: Duration) {
    let load = campaign.load();
    run_load(campaign, mean);
    cut_now(campaign, load);
}

/// Stops the server with SIGTERM under load. With a disk, the power is cut as soon as the process has ended.
pub(crate) fn stop(campaign: &mut Campaign, mean: Duration) {
    let load = campaign.load();
    run_load(campaign, mean);
    let at = campaign.clock.now();
    let ended = campaign.running.stop();
    let fault = Fault { at, dead_ms: campaign.clock.latest_ms() };
    if ended.is_none() {
        campaign.tally.add_refusal("it ignored SIGTERM");
    }
    if campaign.has_disk() {
        campaign.disk().cut(Cut::Nothing);
        campaign.running.kill();
        campaign.disk().power_up();
    }
    campaign.running.kill();
    campaign.restart_and_check(load.join(), fault);
}

/// Slows all syncs, and cuts the power as soon as a reading client has seen a few new entries.
pub(crate) fn cut_after_observation(campaign: &mut Campaign) -> Result<(), String> {
    let sync_fault = SyncFault::Delay { millis: SYNC_DELAY_MS };
    let tracer = Tracer::attach(campaign.running.pid(), sync_fault, &campaign.note_file())?;
    let load = campaign.load();
    let wanted = load.observations() + 1 + campaign.random.below(6);
    wait_until(Duration::from_secs(5), || load.observations() >= wanted || load.is_over());
    if campaign.has_disk() {
        cut_now(campaign, load);
    } else {
        let fault = kill_now(campaign);
        campaign.restart_and_check(load.join(), fault);
    }
    drop(tracer);
    Ok(())
}

/// Makes one sync fail, then cuts the power. No write may be acknowledged after the failure.
pub(crate) fn failing_sync(campaign: &mut Campaign) -> Result<(), String> {
    let nth = campaign.random.between(1, 12) as u32;
    let beginning = campaign.clock.beginning();
    let tracer = Tracer::attach(campaign.running.pid(), SyncFault::Fail { nth }, &campaign.note_file())?;
    let load = campaign.load();
    wait_until(Duration::from_secs(5), || tracer.failed_at().is_some() || load.is_over());
    let failed_at = tracer.failed_at().map(|seconds| campaign.clock.latest_campaign_time(seconds, beginning));
    // Give a server that ignores the failure time to acknowledge writes.
    std::thread::sleep(Duration::from_millis(150));
    let Some(failed_at) = failed_at else {
        let fault = kill_now(campaign);
        campaign.restart_and_check(load.join(), fault);
        return Err(format!("the server made fewer than {nth} syncs"));
    };
    let fault = power_off(campaign);
    let mut ops: Vec<Op> = load.join().into_iter().map(treat_error_as_no_reply).collect();
    discard_replies_after(&mut ops, fault.at);
    campaign.tally.add_findings(&acknowledged_after(&ops, failed_at));
    campaign.restart_and_check(ops, fault);
    drop(tracer);
    Ok(())
}

/// Behaviour of a server on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FullDisk {
    /// It refused writes, served reads, and accepted writes again later.
    Refused,
    /// It exited.
    Died,
}

/// Fills the disk under load until writes are refused, frees the space again, and kills the server.
pub(crate) fn full_disk(campaign: &mut Campaign) -> FullDisk {
    let load = campaign.load();
    std::thread::sleep(Duration::from_millis(100));
    let bytes_left = match campaign.subject.kind {
        ServerKind::Peer(_) => NEARLY_FULL_BYTES,
        ServerKind::Millstream => RESERVE_BYTES + NEARLY_FULL_BYTES,
    };
    campaign.disk().fill(bytes_left);
    let noticed = wait_until(SPACE_TIMEOUT, || load.refusals() > 0 || load.is_over());
    assert!(noticed, "{}: no write was refused on a full disk", campaign.subject);
    std::thread::sleep(Duration::from_millis(200));
    load.stop();
    let ops = load.join();
    if campaign.running.wait_for_exit(Duration::ZERO).is_some() {
        campaign.disk().free_space();
        let fault = campaign.no_fault();
        campaign.restart_and_check(ops, fault);
        return FullDisk::Died;
    }
    assert!(reads_work(campaign), "{}: reads fail on a full disk", campaign.subject);
    // A refused write must not have happened, not even in memory.
    campaign.check_running(&ops);
    // Millstream logs that it refuses writes, and later that the disk has free space again.
    let logs = |campaign: &Campaign, text| {
        campaign.subject.kind != ServerKind::Millstream
            || wait_until(SPACE_TIMEOUT, || campaign.running.has_printed(text))
    };
    assert!(logs(campaign, "the server refuses writes to"));
    campaign.disk().free_space();
    assert!(logs(campaign, "the disk has free space again"));
    let mut client = campaign.running.client();
    let resumed = wait_until(SPACE_TIMEOUT, || {
        client.send(&["XTRIM", WORK[0], "MINID", "=", "0"]);
        matches!(client.next(SPACE_TIMEOUT), Outcome::Reply(reply) if matches!(reply.value, Value::Int(_)))
    });
    assert!(resumed, "{}: still refuses writes although the disk has free space", campaign.subject);
    kill(campaign, Duration::from_millis(200));
    FullDisk::Refused
}

/// Fills nearly the whole disk at once, so that the server cannot notice it in advance, and frees the space again.
pub(crate) fn disk_taken_by_others(campaign: &mut Campaign) {
    let load = campaign.load();
    std::thread::sleep(Duration::from_millis(100));
    campaign.disk().fill(NEARLY_FULL_BYTES);
    std::thread::sleep(Duration::from_secs(1));
    campaign.disk().free_space();
    let freed_at = campaign.clock.now();
    wait_until(SPACE_TIMEOUT, || load.last_added() > freed_at || load.is_over());
    load.stop();
    let ops = load.join();
    let resumed = ops.iter().any(|op| op.is_acknowledged_write() && op.invoked > freed_at);
    assert!(resumed, "{}: accepted no write after the disk had free space again", campaign.subject);
    campaign.check_running(&ops);
    kill(campaign, Duration::from_millis(200));
}

/// Fills the disk in steps beside a server that writes little. Returns the free space at each accepted write after the
/// first one that measured it.
///
/// Not one write may be accepted while less than the reserve is free.
pub(crate) fn disk_filled_by_others(campaign: &mut Campaign) {
    let mut client = campaign.running.client();
    let mut is_accepted = |value: &str| {
        client.send(&["SET", "k", value]);
        matches!(client.next(READ_TIMEOUT), Outcome::Reply(reply) if !matches!(reply.value, Value::Error(_)))
    };
    campaign.disk().fill(10 * RESERVE_BYTES);
    // A change of this size is measured, and little is free: so each later one is, too.
    assert!(is_accepted(&"v".repeat(2 << 20)), "a write was refused although enough space is free");
    for bytes_left in [6 * RESERVE_BYTES, RESERVE_BYTES + (1 << 20), RESERVE_BYTES - (64 << 10), 1 << 20] {
        campaign.disk().fill(bytes_left);
        assert_eq!(is_accepted("v"), bytes_left > RESERVE_BYTES, "{bytes_left} bytes are free");
    }
    let url = format!("redis://127.0.0.1:{}", campaign.running.port);
    let doctor = Command::new(env!("CARGO_BIN_EXE_millstream")).args(["doctor", "--url", &url]).output();
    let doctor = String::from_utf8(doctor.expect("run doctor").stdout).expect("text");
    assert!(doctor.contains("the server cannot write to disk: "), "{doctor}");
    campaign.disk().free_space();
    assert!(is_accepted("v"), "a write was refused although the disk has free space again");
}

fn reads_work(campaign: &Campaign) -> bool {
    let mut client = campaign.running.client();
    [&["XREVRANGE", WORK[0], "+", "-", "COUNT", "5"][..], &["XINFO", "STREAM", WORK[0]]].iter().all(|read| {
        client.send(read);
        matches!(client.next(READ_TIMEOUT), Outcome::Reply(reply) if !matches!(reply.value, Value::Error(_)))
    })
}

/// Lets the load run. Sometimes starts a rewrite of the log meanwhile.
fn run_load(campaign: &mut Campaign, mean: Duration) {
    let delay = campaign.random_delay(mean);
    if !campaign.random.percent(25) {
        std::thread::sleep(delay);
        return;
    }
    std::thread::sleep(delay / 2);
    campaign.running.client().send(&["BGREWRITEAOF"]);
    std::thread::sleep(delay / 2);
}

fn cut_now(campaign: &mut Campaign, load: Load) {
    let fault = power_off(campaign);
    let mut ops = load.join();
    discard_replies_after(&mut ops, fault.at);
    campaign.restart_and_check(ops, fault);
}

/// Cuts the power if there is a disk, kills the server, and restores the power.
fn power_off(campaign: &mut Campaign) -> Fault {
    let mut at = campaign.clock.now();
    if campaign.has_disk() {
        let cut = if campaign.random.percent(80) { Cut::Nothing } else { Cut::Journal };
        let began = campaign.disk().cut(cut);
        at = campaign.clock.at(began);
    }
    campaign.running.kill();
    let dead_ms = campaign.clock.latest_ms();
    if campaign.has_disk() {
        campaign.disk().power_up();
    }
    Fault { at, dead_ms }
}

/// Removes replies that arrived after the power cut. A machine without power sends none, but the server process of
/// this test continues for a moment, and even a sync may seem to succeed.
fn discard_replies_after(ops: &mut [Op], cut_at: Nanos) {
    for op in ops {
        op.replied = op.replied.filter(|at| *at <= cut_at);
        op.refused &= op.replied.is_some();
    }
}

fn kill_now(campaign: &mut Campaign) -> Fault {
    let at = campaign.clock.now();
    campaign.running.kill();
    Fault { at, dead_ms: campaign.clock.latest_ms() }
}

/// After a failed sync the state of the disk is unknown, so an error reply counts as no reply.
fn treat_error_as_no_reply(mut op: Op) -> Op {
    if op.refused {
        op.refused = false;
        op.replied = None;
    }
    op
}

fn acknowledged_after(ops: &[Op], failed_at: Nanos) -> Vec<Finding> {
    ops.iter()
        .filter(|op| op.is_acknowledged_write() && op.invoked > failed_at)
        .map(|op| Finding {
            kind: Violation::AcknowledgedAfterError,
            what: format!("{:?}", op.action),
            age: None,
        })
        .collect()
}

fn wait_until(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
