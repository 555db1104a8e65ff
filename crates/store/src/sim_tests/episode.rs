//! One episode: several processes use one folder, one after the other. Each works, is interrupted, and is recovered.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::AddAssign;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::planted::{Bug, MistakenDisk, begin_journal};
use super::random::WorkloadRandom;
use super::work::{self, DATABASES, SeenStates};
use crate::disk::{Fault, SimDisk};
use crate::dump::dump;
use crate::log::{LogError, LogOptions, OpenError, OpenReport, Policy};
use crate::recovery::{FolderError, Recovered};
use crate::{ManualClock, Store, StoreOptions};

const PROCESSES: u64 = 4;
const SHARDS: usize = 3;
/// Free space below which writes are refused: more than a transaction of this test can need.
const RESERVE_BYTES: u64 = 3000;
/// Number of outcomes tried for a power cut at the end of a process.
const CUTS_AT_END: u64 = 12;
/// Number of outcomes tried for each power cut while a process works.
const CUTS_MEANWHILE: u64 = 4;
/// In addition, a power cut is simulated before one in this number of calls to the disk.
const CUTS_AT_ONE_IN: u64 = 2;
/// Time at which an episode begins.
const START_MS: u64 = 1_000_000;

/// What happened in episodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Number of different folders after power cuts, each recovered and compared.
    pub(super) states: u64,
    /// Number of recoveries, including interrupted and repeated ones.
    pub(super) recoveries: u64,
    pub(super) records: u64,
    pub(super) snapshots: u64,
    /// Number of writes refused for lack of space.
    pub(super) refused: u64,
    /// Number of processes whose log failed.
    pub(super) failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.states += other.states;
        self.recoveries += other.recoveries;
        self.records += other.records;
        self.snapshots += other.snapshots;
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { states, recoveries, records, snapshots, refused, failed } = self;
        write!(
            f,
            "{states} different crash states, {recoveries} recoveries, {records} records, {snapshots} snapshots, \
             {refused} writes refused for lack of space, {failed} processes with a failed log"
        )
    }
}

/// What clients know.
struct Model {
    /// State after each record, by position; `None` for a state inside a transaction, which no client can see.
    states: Vec<Option<String>>,
    /// Highest position that must survive a power cut.
    must_survive_power_cut: u64,
    /// Highest position that must survive the end of the process.
    must_survive_exit: u64,
}

struct Episode {
    random: WorkloadRandom,
    clock: Arc<ManualClock>,
    model: Model,
    /// States seen by blocked readers inside transactions.
    seen: SeenStates,
    segment_bytes: u64,
    policy: Policy,
    bug: Option<Bug>,
    counts: Counts,
    /// Hashes of folders that were compared already, and the position that had to survive then.
    compared: HashMap<u64, u64>,
    failed: bool,
}

type Outcome = Result<(), String>;

/// Runs an episode. Returns what happened, or the rule that was broken.
pub(super) fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let mut random = WorkloadRandom::for_store(seed);
    let policy =
        random.pick(&[Policy::Always, Policy::Always, Policy::Always, Policy::EverySecond, Policy::Never]);
    let mut episode = Episode {
        clock: Arc::new(ManualClock::new(START_MS)),
        model: Model { states: vec![Some(String::new())], must_survive_power_cut: 0, must_survive_exit: 0 },
        seen: SeenStates::default(),
        segment_bytes: random.pick(&[300, 1500, 8000]),
        policy,
        bug,
        counts: Counts::default(),
        compared: HashMap::new(),
        failed: false,
        random,
    };
    let mut disk = SimDisk::new(seed);
    for _ in 0..PROCESSES {
        disk = episode.process(disk)?;
    }
    Ok(episode.counts)
}

impl Episode {
    /// Runs a process from its start to its end. Returns the disk to continue with.
    fn process(&mut self, disk: SimDisk) -> Result<SimDisk, String> {
        self.failed = false;
        self.plan_fault(&disk);
        let Some((store, report)) = self.open(&disk)? else { return self.end(&disk, None) };
        disk.sample_crashes(CUTS_AT_ONE_IN);
        self.compare(&store, report.last, self.model.must_survive_exit)?;
        self.model.states.truncate(report.last as usize + 1);
        (self.model.must_survive_power_cut, self.model.must_survive_exit) = (report.last, report.last);
        self.work(&store, &disk)?;
        self.counts.failed += u64::from(self.failed);
        disk.sample_crashes(0);
        disk.take_crash_samples();
        self.end(&disk, Some(store))
    }

    /// Plans a fault at a random later call, often during recovery itself.
    fn plan_fault(&mut self, disk: &SimDisk) {
        let fault = self.random.pick(&[Fault::Halt, Fault::Halt, Fault::Io, Fault::Full, Fault::Short]);
        let within = self.random.pick(&[8, 100, 400]);
        disk.fail_at(disk.calls() + 1 + self.random.below(within), fault);
    }

    /// Opens the store. Returns `None` if the disk failed.
    fn open(&mut self, disk: &SimDisk) -> Result<Option<(Store, OpenReport)>, String> {
        self.counts.recoveries += 1;
        let log_options = self.log_options();
        match open_store(disk, Arc::clone(&self.clock), log_options, self.bug) {
            Ok((store, recovered)) => {
                store.settings().stream_node_max_entries.store(4, Ordering::Relaxed);
                Ok(Some((store, recovered.log)))
            }
            Err(FolderError::Log(OpenError::Disk(_))) => Ok(None),
            Err(error) => Err(format!("refused: {error}")),
        }
    }

    fn log_options(&mut self) -> LogOptions {
        let mut salts = WorkloadRandom::for_store(self.random.next());
        LogOptions {
            segment_bytes: self.segment_bytes,
            policy: self.policy,
            reserve_bytes: RESERVE_BYTES,
            ..LogOptions::new(move || salts.next())
        }
    }

    /// Checks that the recovered state is the state recorded for its last position, and that nothing acknowledged is
    /// lost.
    fn compare(&self, store: &Store, reached: u64, required: u64) -> Outcome {
        if reached < required {
            return Err(format!("recovered up to {reached}, but {required} was acknowledged"));
        }
        let Some(state) = self.model.states.get(reached as usize) else {
            return Err(format!("recovered up to {reached}, which was never written"));
        };
        let Some(state) = state else {
            return Err(format!("recovered a state inside a transaction, at {reached}"));
        };
        let found = dump(store);
        if found != *state {
            let (line, other) = found
                .lines()
                .chain([""; 1])
                .zip(state.lines().chain([""; 1]))
                .find(|(a, b)| a != b)
                .unwrap_or_default();
            return Err(format!(
                "recovered another state at {reached}\n  recovered {line}\n  expected  {other}"
            ));
        }
        for shard in (0..store.shard_count()).map(|number| store.shard(number).lock()) {
            shard.keys.check()?;
        }
        Ok(())
    }

    // ---- Working ----------------------------------------------------------------------------

    fn work(&mut self, store: &Store, disk: &SimDisk) -> Outcome {
        for _ in 0..20 + self.random.below(60) {
            self.clock.advance(self.random.below(2) * self.random.below(60));
            let required = self.model.must_survive_power_cut;
            // Snapshots are tried more often after the log has failed, because they must not hide the failure.
            match self.random.below(if self.failed { 36 } else { 24 }) {
                0..14 => self.transaction(store)?,
                14..19 => self.acknowledge(store)?,
                19 | 24.. => self.snapshot(store)?,
                20 => {
                    store.expire_due(store.now_ms(), 1);
                    self.record_state(store)?;
                    self.duties(store)?;
                }
                21 => self.limit_space(store, disk)?,
                22 => _ = store.try_write_through(store.appended_position()),
                _ => self.cut(disk, CUTS_MEANWHILE)?,
            }
            // These power cuts happened during the step above. So their outcomes need not contain what it acknowledged.
            disk.take_crash_samples().iter().try_for_each(|image| self.recover_new(image, required))?;
            self.note_acknowledgeable(store)?;
        }
        disk.set_capacity(None);
        if self.random.one_in(6) && store.close().is_ok() {
            self.note_acknowledged(store.appended_position())?;
            self.model.must_survive_power_cut =
                self.model.must_survive_power_cut.max(self.model.must_survive_exit);
        }
        Ok(())
    }

    fn transaction(&mut self, store: &Store) -> Outcome {
        match store.check_writable(0) {
            Ok(()) => {}
            Err(LogError::Full(_)) => {
                self.counts.refused += 1;
                return Ok(());
            }
            Err(_) if self.failed => {}
            Err(_) => self.failed = true,
        }
        drop(work::transaction(store, &mut self.random, &self.seen));
        self.record_state(store)
    }

    /// Lets the timekeeper do what streams have to do by now. Each of its transactions is a record.
    fn duties(&mut self, store: &Store) -> Outcome {
        let mut recorded = Ok(());
        let mut record = || {
            if recorded.is_ok() {
                recorded = self.record_state(store);
            }
        };
        while store.run_duties_pausing(&mut record) {}
        recorded
    }

    /// Records the current state for the last position.
    fn record_state(&mut self, store: &Store) -> Outcome {
        let within: Vec<(u64, String)> = self.seen.lock().drain(..).collect();
        let (known, last) = (self.model.states.len() - 1, store.appended_position() as usize);
        let failed = store.durability().is_none_or(|stats| stats.error.is_some());
        if failed && last == known {
            // After a failure, changes get no record. New records are possible only for keys that expired during a
            // snapshot, before it failed.
            return Ok(());
        }
        if last < known {
            return Err(format!("the log went back from {known} to {last}"));
        }
        self.counts.records += (last - known) as u64;
        self.model.states.resize(last + 1, None);
        for (position, state) in within {
            if position as usize > known {
                self.model.states[position as usize].get_or_insert(state);
            }
        }
        self.model.states[last] = Some(dump(store));
        Ok(())
    }

    /// Waits until the last position can be acknowledged, and acknowledges it.
    fn acknowledge(&mut self, store: &Store) -> Outcome {
        let position = store.appended_position();
        match poll(store, position) {
            Poll::Ready(Ok(())) => self.note_acknowledged(position),
            Poll::Ready(Err(_)) => {
                self.failed = true;
                Ok(())
            }
            Poll::Pending => Ok(()),
        }
    }

    /// Notes that the store acknowledged everything up to a position.
    fn note_acknowledged(&mut self, position: u64) -> Outcome {
        if self.failed {
            return Err("a store with a failed log acknowledged something".to_owned());
        }
        self.model.must_survive_exit = self.model.must_survive_exit.max(position);
        if self.policy == Policy::Always {
            self.model.must_survive_power_cut = self.model.must_survive_power_cut.max(position);
        }
        Ok(())
    }

    /// Notes everything that the store could have acknowledged by now.
    fn note_acknowledgeable(&mut self, store: &Store) -> Outcome {
        let stats = store.durability().expect("the store has a log");
        self.model.must_survive_power_cut = self.model.must_survive_power_cut.max(stats.log.durable);
        self.model.must_survive_exit = self.model.must_survive_exit.max(stats.log.written);
        self.failed |= stats.error.is_some();
        let position = store.appended_position();
        let is_acknowledged = store.is_durable_enough(position) || self.bug == Some(Bug::ReplyBeforeSync);
        if is_acknowledged && !self.failed { self.note_acknowledged(position) } else { Ok(()) }
    }

    /// Takes a snapshot while transactions run. Sometimes a transaction is open when it begins.
    fn snapshot(&mut self, store: &Store) -> Outcome {
        let mut open_txn = None;
        if self.random.one_in(2) && store.check_writable(0).is_ok() {
            open_txn = Some(match self.random.below(2) {
                0 => work::replacement(store, &mut self.random),
                _ => work::transaction(store, &mut self.random, &self.seen),
            });
        }
        let busy = self.random.pick(&[2, 6, 30, 1000]);
        let mut meanwhile = Ok(());
        let rearrangements = &store.journal().expect("the store has a log").rearrangements;
        let begun = rearrangements.load(Ordering::Relaxed);
        let taken = store.take_snapshot_while(&mut || {
            if open_txn.take().is_some() && meanwhile.is_ok() {
                if self.bug == Some(Bug::RearrangementCountedEarly) {
                    rearrangements.store(begun, Ordering::Relaxed);
                }
                meanwhile = self.record_state(store);
            }
            self.clock.advance(self.random.below(2) * self.random.below(100));
            if self.random.one_in(busy) && meanwhile.is_ok() {
                meanwhile = self.transaction(store);
            }
            if self.bug == Some(Bug::RearrangementUnnoticed) {
                rearrangements.store(begun, Ordering::Relaxed);
            }
        });
        let early = open_txn.take().is_some();
        meanwhile?;
        self.counts.snapshots += u64::from(matches!(taken, Ok(Some(_))));
        if taken.is_ok() && self.failed && !early {
            return Err("a store with a failed log took a snapshot".to_owned());
        }
        self.record_state(store)
    }

    /// Limits the free space for a while. Refused writes must have no effect, and afterwards the store must continue.
    fn limit_space(&mut self, store: &Store, disk: &SimDisk) -> Outcome {
        let used: usize = disk.contents().values().map(Vec::len).sum();
        disk.set_capacity(Some(used as u64 + self.random.below(2 * RESERVE_BYTES)));
        for _ in 0..self.random.below(12) {
            match self.random.below(8) {
                0..5 => self.transaction(store)?,
                5 => self.snapshot(store)?,
                6 => self.duties(store)?,
                _ => self.acknowledge(store)?,
            }
            self.note_acknowledgeable(store)?;
        }
        disk.set_capacity(None);
        // A planned fault may occur just now, but only once.
        let position = store.appended_position();
        let is_durable = (0..2).any(|_| poll(store, position) == Poll::Ready(Ok(())));
        let failed = store.durability().is_some_and(|stats| stats.error.is_some());
        if !failed && (!is_durable || store.check_writable(0).is_err()) {
            return Err("the disk has free space again, but the store still refuses writes".to_owned());
        }
        self.failed |= failed;
        if is_durable { self.note_acknowledged(position) } else { Ok(()) }
    }

    // ---- Ending -----------------------------------------------------------------------------

    /// Ends the process. In one of four cases the power stays on; otherwise it fails too. Returns the disk to continue
    /// with.
    fn end(&mut self, disk: &SimDisk, store: Option<Store>) -> Result<SimDisk, String> {
        disk.set_capacity(None);
        if self.random.one_in(4) {
            kill(disk);
            drop(store);
            disk.restart();
            return Ok(disk.clone());
        }
        self.cut(disk, CUTS_AT_END)?;
        self.model.must_survive_exit = self.model.must_survive_power_cut;
        Ok(disk.crash(self.random.next()))
    }

    /// Simulates several outcomes of a power cut at this moment. Recovers and compares each.
    fn cut(&mut self, disk: &SimDisk, cuts: u64) -> Outcome {
        for _ in 0..cuts {
            let image = disk.crash(self.random.next());
            self.recover_new(&image, self.model.must_survive_power_cut)?;
        }
        Ok(())
    }

    /// Recovers and compares a folder, unless an equal one was compared before with the same or a higher position.
    fn recover_new(&mut self, image: &SimDisk, required: u64) -> Outcome {
        let mut hasher = DefaultHasher::new();
        image.contents().hash(&mut hasher);
        let before = self.compared.insert(hasher.finish(), required);
        self.counts.states += u64::from(before.is_none());
        match before {
            Some(before) if before >= required => Ok(()),
            _ => self.recover(image, required),
        }
    }

    /// Recovers a folder and compares it. Sometimes a first attempt is interrupted; sometimes recovery is repeated.
    fn recover(&mut self, image: &SimDisk, required: u64) -> Outcome {
        let mut image = image.clone();
        let interrupted = self.random.one_in(8);
        let before = interrupted.then(|| SimDisk::with_contents(&image.contents(), 1));
        if interrupted {
            image.fail_at(1 + self.random.below(10), Fault::Halt);
            drop(self.open(&image)?);
            image = image.crash(self.random.next());
        }
        let reached = self.recover_once(&image, required)?;
        if let Some(before) = before
            && self.recover_once(&before, required)? != reached
        {
            return Err(format!("an interrupted recovery changed the end of the log to {reached}"));
        }
        if self.random.one_in(8) {
            image.restart();
            if self.recover_once(&image, required)? != reached {
                return Err(format!("recovering again did not reach {reached}"));
            }
        }
        Ok(())
    }

    fn recover_once(&mut self, image: &SimDisk, required: u64) -> Result<u64, String> {
        let Some((store, report)) = self.open(image)? else {
            return Err("recovery failed on a working disk".to_owned());
        };
        self.compare(&store, report.last, required)?;
        kill(image);
        drop(store);
        Ok(report.last)
    }
}

/// Opens a store on a disk.
pub(super) fn open_store(
    disk: &SimDisk,
    clock: Arc<ManualClock>,
    log_options: LogOptions,
    bug: Option<Bug>,
) -> Result<(Store, Recovered), FolderError> {
    let disk = MistakenDisk::over(disk, bug, Arc::clone(&clock) as _);
    let options = StoreOptions { databases: DATABASES, shards: SHARDS, seed: 7, clock };
    Store::open_with(disk, options, log_options, &mut |_| {}, begin_journal(bug))
}

/// Makes all later calls fail, so that nothing the process still does reaches the disk.
fn kill(disk: &SimDisk) {
    disk.fail_at(disk.calls() + 1, Fault::Halt);
}

fn poll(store: &Store, position: u64) -> Poll<Result<(), LogError>> {
    let durable = pin!(store.wait_durable(position, true));
    durable.poll(&mut Context::from_waker(Waker::noop()))
}
