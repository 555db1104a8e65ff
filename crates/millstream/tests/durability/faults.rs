//! The faults: each runs one round of a campaign.

use std::time::{Duration, Instant};

use crate::campaign::{Campaign, Place};
use crate::check::{Fault, Finding, Kind as Broken};
use crate::disk::{Cut, Disk, Format};
use crate::ledger::{Nanos, Op, WORK};
use crate::load::Load;
use crate::random::Random;
use crate::support::process::Kind;
use crate::support::resp::Value;
use crate::support::wire::Outcome;
use crate::tracer::{Tracer, Trick};

/// What is left of the disk when it is nearly full.
const NEARLY_FULL_BYTES: u64 = 96 << 10;
/// What our server keeps free for itself.
const RESERVE_BYTES: u64 = 8 << 20;
/// How long a server may take to notice that the disk has filled, or that it has room again.
const SPACE_PATIENCE: Duration = Duration::from_secs(20);
/// How long a read may take on a full disk.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// How much later syncs begin when they are slowed.
const SYNC_DELAY_MS: u64 = 50;

/// A disk whose block size and mount options follow from the seed, or the reason why there is none.
pub(crate) fn disk(seed: u64) -> Result<Place, String> {
    let mut random = Random::new(seed ^ 0xD15C);
    let block_bytes = if random.percent(30) { 1024 } else { 4096 };
    Disk::new(Format { block_bytes, writeback: random.percent(30) }).map(Place::Disk)
}

/// SIGKILL in the middle of everything.
pub(crate) fn kill(campaign: &mut Campaign, mean: Duration) {
    let load = campaign.load();
    work_for_a_while(campaign, mean);
    let fault = kill_now(campaign);
    campaign.judge(load.join(), fault);
}

/// A power cut in the middle of everything.
pub(crate) fn cut(campaign: &mut Campaign, mean: Duration) {
    let load = campaign.load();
    work_for_a_while(campaign, mean);
    cut_now(campaign, load);
}

/// SIGTERM in the middle of everything; on a disk that can fail, a power cut as soon as the process has ended.
pub(crate) fn stop(campaign: &mut Campaign, mean: Duration) {
    let load = campaign.load();
    work_for_a_while(campaign, mean);
    let at = campaign.clock.now();
    let ended = campaign.running.stop();
    let fault = Fault { at, dead_ms: campaign.clock.latest_ms() };
    if ended.is_none() {
        campaign.tally.refuse("it ignored SIGTERM");
    }
    if campaign.has_disk() {
        campaign.disk().cut(Cut::Nothing);
        campaign.running.kill();
        campaign.disk().power_up();
    }
    campaign.running.kill();
    campaign.judge(load.join(), fault);
}

/// Syncs take long; as soon as a second reader is shown something new, the power goes.
pub(crate) fn cut_after_observation(campaign: &mut Campaign) -> Result<(), String> {
    let trick = Trick::Delay { millis: SYNC_DELAY_MS };
    let tracer = Tracer::attach(campaign.running.pid(), trick, &campaign.note_file())?;
    let load = campaign.load();
    let wanted = load.observations() + 1 + campaign.random.below(6);
    wait_until(Duration::from_secs(5), || load.observations() >= wanted || load.is_over());
    if campaign.has_disk() {
        cut_now(campaign, load);
    } else {
        let fault = kill_now(campaign);
        campaign.judge(load.join(), fault);
    }
    drop(tracer);
    Ok(())
}

/// One sync fails. No success may be told after it; then the power goes.
pub(crate) fn failing_sync(campaign: &mut Campaign) -> Result<(), String> {
    let nth = campaign.random.between(1, 12) as u32;
    let beginning = campaign.clock.beginning();
    let tracer = Tracer::attach(campaign.running.pid(), Trick::Fail { nth }, &campaign.note_file())?;
    let load = campaign.load();
    wait_until(Duration::from_secs(5), || tracer.failed_at().is_some() || load.is_over());
    let failed_at = tracer.failed_at().map(|seconds| campaign.clock.at_epoch_at_latest(seconds, beginning));
    // Long enough for a server that goes on regardless to say so.
    std::thread::sleep(Duration::from_millis(150));
    let Some(failed_at) = failed_at else {
        let fault = kill_now(campaign);
        campaign.judge(load.join(), fault);
        return Err(format!("the server never came to its {nth}th sync"));
    };
    let fault = power_off(campaign);
    let mut ops: Vec<Op> = load.join().into_iter().map(error_tells_nothing).collect();
    tell_nothing_after(&mut ops, fault.at);
    campaign.tally.add_findings(&told_too_late(&ops, failed_at));
    campaign.judge(ops, fault);
    drop(tracer);
    Ok(())
}

/// What a full disk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FullDisk {
    /// Writes were refused, reads worked, writes resumed.
    Refused,
    /// The server ended.
    Died,
}

/// The disk fills up under load until writes are refused; it is given room again; the server is killed.
pub(crate) fn full_disk(campaign: &mut Campaign) -> FullDisk {
    let load = campaign.load();
    std::thread::sleep(Duration::from_millis(100));
    let bytes_left = match campaign.subject.kind {
        Kind::Peer(_) => NEARLY_FULL_BYTES,
        Kind::Millstream => RESERVE_BYTES + NEARLY_FULL_BYTES,
    };
    campaign.disk().fill(bytes_left);
    let noticed = wait_until(SPACE_PATIENCE, || load.refusals() > 0 || load.is_over());
    assert!(noticed, "{}: nothing was refused on a full disk", campaign.subject);
    std::thread::sleep(Duration::from_millis(200));
    load.stop();
    let ops = load.join();
    if campaign.running.wait_for_end(Duration::ZERO).is_some() {
        campaign.disk().make_room();
        let fault = campaign.no_fault();
        campaign.judge(ops, fault);
        return FullDisk::Died;
    }
    assert!(reads_work(campaign), "{}: no answer to reads on a full disk", campaign.subject);
    // What was refused must not have happened, in memory either.
    campaign.judge_live(&ops);
    // Whoever looks after the machine can see it.
    let tells = |campaign: &Campaign, words| {
        campaign.subject.kind != Kind::Millstream
            || wait_until(SPACE_PATIENCE, || campaign.running.has_printed(words))
    };
    assert!(tells(campaign, "are refused, no space left"));
    campaign.disk().make_room();
    assert!(tells(campaign, "there is room again"));
    let mut client = campaign.running.client();
    let resumed = wait_until(SPACE_PATIENCE, || {
        client.send(&["XTRIM", WORK[0], "MINID", "=", "0"]);
        matches!(client.next(SPACE_PATIENCE), Outcome::Reply(reply) if matches!(reply.value, Value::Int(_)))
    });
    assert!(resumed, "{}: still refuses writes with room on the disk", campaign.subject);
    kill(campaign, Duration::from_millis(200));
    FullDisk::Refused
}

/// Somebody else takes all the space at once, before the server can know, and gives it back.
pub(crate) fn disk_taken_by_others(campaign: &mut Campaign) {
    let load = campaign.load();
    std::thread::sleep(Duration::from_millis(100));
    campaign.disk().fill(NEARLY_FULL_BYTES);
    std::thread::sleep(Duration::from_secs(1));
    campaign.disk().make_room();
    let room_at = campaign.clock.now();
    wait_until(SPACE_PATIENCE, || load.last_added() > room_at || load.is_over());
    load.stop();
    let ops = load.join();
    let resumed = ops.iter().any(|op| op.is_acknowledged_write() && op.invoked > room_at);
    assert!(resumed, "{}: wrote nothing with room on the disk", campaign.subject);
    campaign.judge_live(&ops);
    kill(campaign, Duration::from_millis(200));
}

fn reads_work(campaign: &Campaign) -> bool {
    let mut client = campaign.running.client();
    [&["XREVRANGE", WORK[0], "+", "-", "COUNT", "5"][..], &["XINFO", "STREAM", WORK[0]]].iter().all(|read| {
        client.send(read);
        matches!(client.next(READ_PATIENCE), Outcome::Reply(reply) if !matches!(reply.value, Value::Error(_)))
    })
}

/// Lets the clients work, and sometimes has the log rewritten meanwhile.
fn work_for_a_while(campaign: &mut Campaign, mean: Duration) {
    let moment = campaign.moment(mean);
    if !campaign.random.percent(25) {
        std::thread::sleep(moment);
        return;
    }
    std::thread::sleep(moment / 2);
    campaign.running.client().send(&["BGREWRITEAOF"]);
    std::thread::sleep(moment / 2);
}

fn cut_now(campaign: &mut Campaign, load: Load) {
    let fault = power_off(campaign);
    let mut ops = load.join();
    tell_nothing_after(&mut ops, fault.at);
    campaign.judge(ops, fault);
}

/// Cuts the power where there is a disk for it, ends the server, and has the power return.
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

/// A machine without power tells nothing; ours lives on for a moment, in which even a sync may seem to succeed.
fn tell_nothing_after(ops: &mut [Op], cut_at: Nanos) {
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

/// After a failed sync nobody knows what is on the disk, so an error leaves a command open.
fn error_tells_nothing(mut op: Op) -> Op {
    if op.refused {
        op.refused = false;
        op.replied = None;
    }
    op
}

fn told_too_late(ops: &[Op], failed_at: Nanos) -> Vec<Finding> {
    ops.iter()
        .filter(|op| op.is_acknowledged_write() && op.invoked > failed_at)
        .map(|op| Finding { kind: Broken::TooLate, what: format!("{:?}", op.act), age: None })
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
