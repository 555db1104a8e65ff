//! One episode: several processes, one after the other, over one folder; each works, is cut short, and is recovered.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::AddAssign;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::dump::dump;
use super::planted::{Bug, MistakenDisk, plant};
use super::random::Random;
use super::work::{self, DATABASES, Seen};
use crate::disk::{Fault, SimDisk};
use crate::journal::Journal;
use crate::log::{LogError, LogOptions, OpenError, OpenReport, Policy};
use crate::recovery::{FolderError, Recovered};
use crate::{ManualClock, Store, StoreOptions};

const PROCESSES: u64 = 4;
const SHARDS: usize = 3;
/// Writes are refused when less is free than a transaction of this test can need.
const RESERVE_BYTES: u64 = 3000;
/// How many outcomes of a power cut are drawn, at the end of a process and while it works.
const CUTS_AT_END: u64 = 12;
const CUTS_MEANWHILE: u64 = 4;
/// Before one in so many calls to the disk, too.
const CUTS_AT_ONE_IN: u64 = 2;
/// The first of the times at which something happens.
const START_MS: u64 = 1_000_000;

/// What happened in episodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Different folders that power cuts left, each recovered and compared.
    pub(super) states: u64,
    /// Recoveries, those included that were cut short or came twice.
    pub(super) recoveries: u64,
    pub(super) records: u64,
    pub(super) snapshots: u64,
    /// Writes refused for lack of space.
    pub(super) refused: u64,
    /// Processes whose log failed.
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

/// What the world outside knows.
struct Model {
    /// By position, the state after that record; `None` if nobody could have seen it.
    states: Vec<Option<String>>,
    /// The greatest position that must survive a power cut.
    told: u64,
    /// The greatest position that must survive the end of the process.
    told_alive: u64,
}

struct Episode {
    random: Random,
    clock: Arc<ManualClock>,
    model: Model,
    /// States seen in the middle of transactions.
    seen: Seen,
    segment_bytes: u64,
    policy: Policy,
    bug: Option<Bug>,
    counts: Counts,
    /// Folders that were compared already, and what was told then.
    compared: HashMap<u64, u64>,
    failed: bool,
}

type Outcome = Result<(), String>;

/// Runs an episode; gives what happened, or the rule that was broken.
pub(super) fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let mut random = Random::new(seed);
    let policy =
        random.pick(&[Policy::Always, Policy::Always, Policy::Always, Policy::EverySecond, Policy::Never]);
    let mut episode = Episode {
        clock: Arc::new(ManualClock::new(START_MS)),
        model: Model { states: vec![Some(String::new())], told: 0, told_alive: 0 },
        seen: Seen::default(),
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
    /// A process from its start to its end. Gives the disk to go on with.
    fn process(&mut self, disk: SimDisk) -> Result<SimDisk, String> {
        self.failed = false;
        self.plan_fault(&disk);
        let Some((store, report)) = self.open(&disk)? else { return self.end(&disk, None) };
        disk.watch(CUTS_AT_ONE_IN);
        self.compare(&store, report.last, self.model.told_alive)?;
        self.model.states.truncate(report.last as usize + 1);
        (self.model.told, self.model.told_alive) = (report.last, report.last);
        self.work(&store, &disk)?;
        self.counts.failed += u64::from(self.failed);
        disk.watch(0);
        disk.take_cuts();
        self.end(&disk, Some(store))
    }

    /// Something goes wrong at some call from here on, often within recovery itself.
    fn plan_fault(&mut self, disk: &SimDisk) {
        let fault = self.random.pick(&[Fault::Halt, Fault::Halt, Fault::Io, Fault::Full, Fault::Short]);
        let within = self.random.pick(&[8, 100, 400]);
        disk.fail_at(disk.calls() + 1 + self.random.below(within), fault);
    }

    /// Opens the store. `None`: the disk would not.
    fn open(&mut self, disk: &SimDisk) -> Result<Option<(Store, OpenReport)>, String> {
        self.counts.recoveries += 1;
        plant(self.bug);
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
        let mut salts = Random::new(self.random.next());
        LogOptions {
            segment_bytes: self.segment_bytes,
            policy: self.policy,
            reserve_bytes: RESERVE_BYTES,
            ..LogOptions::new(move || salts.next())
        }
    }

    /// What was recovered is the state after the record it reaches, and it reaches what was told.
    fn compare(&self, store: &Store, reached: u64, told: u64) -> Outcome {
        if reached < told {
            return Err(format!("recovered up to {reached}, but {told} was told"));
        }
        let Some(state) = self.model.states.get(reached as usize) else {
            return Err(format!("recovered up to {reached}, which was never written"));
        };
        let Some(state) = state else {
            return Err(format!("recovered a state within a transaction, at {reached}"));
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
                "at {reached} there is another state\n  recovered {line}\n  was       {other}"
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
            let told = self.model.told;
            // A log that has failed must not be hidden by a snapshot, so that is tried often.
            match self.random.below(if self.failed { 36 } else { 24 }) {
                0..14 => self.transaction(store)?,
                14..19 => self.settle(store)?,
                19 | 24.. => self.snapshot(store)?,
                20 => {
                    store.expire_due(store.now_ms(), 1);
                    self.note(store)?;
                }
                21 => self.squeeze(store, disk)?,
                22 => _ = store.settle_now(store.seen()),
                _ => self.cut(disk, CUTS_MEANWHILE)?,
            }
            // What was told since need not be in them.
            disk.take_cuts().iter().try_for_each(|image| self.recover_new(image, told))?;
            self.hear(store)?;
        }
        disk.set_capacity(None);
        if self.random.one_in(6) && store.close().is_ok() {
            self.told_all(store.seen())?;
            self.model.told = self.model.told.max(self.model.told_alive);
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
        self.note(store)
    }

    /// Writes down the state, which stands at the last position.
    fn note(&mut self, store: &Store) -> Outcome {
        let within: Vec<(u64, String)> = self.seen.lock().drain(..).collect();
        let (known, last) = (self.model.states.len() - 1, store.seen() as usize);
        let failed = store.durability().is_none_or(|stats| stats.error.is_some());
        if failed && last == known {
            // What changes now never gets a record. What a snapshot expired before it met the failure has got one.
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

    /// Asks for what was seen to be settled, and for the answer.
    fn settle(&mut self, store: &Store) -> Outcome {
        let position = store.seen();
        match poll(store, position) {
            Poll::Ready(Ok(())) => self.told_all(position),
            Poll::Ready(Err(_)) => {
                self.failed = true;
                Ok(())
            }
            Poll::Pending => Ok(()),
        }
    }

    /// Somebody was told everything up to a position.
    fn told_all(&mut self, position: u64) -> Outcome {
        if self.failed {
            return Err("a store whose log has failed told something".to_owned());
        }
        self.model.told_alive = self.model.told_alive.max(position);
        if self.policy == Policy::Always {
            self.model.told = self.model.told.max(position);
        }
        Ok(())
    }

    /// What anybody could have been told by now.
    fn hear(&mut self, store: &Store) -> Outcome {
        let stats = store.durability().expect("it has a log");
        self.model.told = self.model.told.max(stats.log.durable);
        self.model.told_alive = self.model.told_alive.max(stats.log.written);
        self.failed |= stats.error.is_some();
        let position = store.seen();
        let is_told = store.is_settled(position) || self.bug == Some(Bug::ToldBeforeSettled);
        if is_told && !self.failed { self.told_all(position) } else { Ok(()) }
    }

    /// A snapshot, while others go on; sometimes a transaction is under way when it begins.
    fn snapshot(&mut self, store: &Store) -> Outcome {
        let mut held = None;
        if self.random.one_in(2) && store.check_writable(0).is_ok() {
            held = Some(match self.random.below(2) {
                0 => work::replacement(store, &mut self.random),
                _ => work::transaction(store, &mut self.random, &self.seen),
            });
        }
        let busy = self.random.pick(&[2, 6, 30, 1000]);
        let mut meanwhile = Ok(());
        let rearranged = &store.journal().expect("it has a log").rearranged;
        let begun = rearranged.load(Ordering::Relaxed);
        let taken = store.take_snapshot_while(&mut || {
            if held.take().is_some() && meanwhile.is_ok() {
                if self.bug == Some(Bug::RearrangementCountedEarly) {
                    rearranged.store(begun, Ordering::Relaxed);
                }
                meanwhile = self.note(store);
            }
            self.clock.advance(self.random.below(2) * self.random.below(100));
            if self.random.one_in(busy) && meanwhile.is_ok() {
                meanwhile = self.transaction(store);
            }
            if self.bug == Some(Bug::RearrangementUnnoticed) {
                rearranged.store(begun, Ordering::Relaxed);
            }
        });
        let early = held.take().is_some();
        meanwhile?;
        self.counts.snapshots += u64::from(matches!(taken, Ok(Some(_))));
        if taken.is_ok() && self.failed && !early {
            return Err("a store whose log has failed took a snapshot".to_owned());
        }
        self.note(store)
    }

    /// Little room is left for a while. What was refused has no effect, and afterwards everything goes on.
    fn squeeze(&mut self, store: &Store, disk: &SimDisk) -> Outcome {
        let used: usize = disk.contents().values().map(Vec::len).sum();
        disk.set_capacity(Some(used as u64 + self.random.below(2 * RESERVE_BYTES)));
        for _ in 0..self.random.below(12) {
            match self.random.below(8) {
                0..5 => self.transaction(store)?,
                5 => self.snapshot(store)?,
                _ => self.settle(store)?,
            }
            self.hear(store)?;
        }
        disk.set_capacity(None);
        // A fault that was planned may come just now, but only once.
        let position = store.seen();
        let settled = (0..2).any(|_| poll(store, position) == Poll::Ready(Ok(())));
        let failed = store.durability().is_some_and(|stats| stats.error.is_some());
        if !failed && (!settled || store.check_writable(0).is_err()) {
            return Err("there is room again, and yet nothing goes on".to_owned());
        }
        self.failed |= failed;
        if settled { self.told_all(position) } else { Ok(()) }
    }

    // ---- Ending -----------------------------------------------------------------------------

    /// The process ends: in one of four cases alone, else with the machine. Gives the disk to go on with.
    fn end(&mut self, disk: &SimDisk, store: Option<Store>) -> Result<SimDisk, String> {
        disk.set_capacity(None);
        if self.random.one_in(4) {
            kill(disk);
            drop(store);
            disk.restart();
            return Ok(disk.clone());
        }
        self.cut(disk, CUTS_AT_END)?;
        self.model.told_alive = self.model.told;
        Ok(disk.crash(self.random.next()))
    }

    /// Draws what a power cut now could leave, recovers and compares each.
    fn cut(&mut self, disk: &SimDisk, cuts: u64) -> Outcome {
        for _ in 0..cuts {
            let image = disk.crash(self.random.next());
            self.recover_new(&image, self.model.told)?;
        }
        Ok(())
    }

    /// Recovers and compares, unless the same folder was compared before with no more told.
    fn recover_new(&mut self, image: &SimDisk, told: u64) -> Outcome {
        let mut hasher = DefaultHasher::new();
        image.contents().hash(&mut hasher);
        let before = self.compared.insert(hasher.finish(), told);
        self.counts.states += u64::from(before.is_none());
        match before {
            Some(before) if before >= told => Ok(()),
            _ => self.recover(image, told),
        }
    }

    /// Recovers a folder and compares; sometimes a first try is cut short, and sometimes it is all done twice.
    fn recover(&mut self, image: &SimDisk, told: u64) -> Outcome {
        let mut image = image.clone();
        let interrupted = self.random.one_in(8);
        let before = interrupted.then(|| SimDisk::with_contents(&image.contents(), 1));
        if interrupted {
            image.fail_at(1 + self.random.below(10), Fault::Halt);
            drop(self.open(&image)?);
            image = image.crash(self.random.next());
        }
        let reached = self.recover_once(&image, told)?;
        if let Some(before) = before
            && self.recover_once(&before, told)? != reached
        {
            return Err(format!("a recovery that was cut short changed the end of the log to {reached}"));
        }
        if self.random.one_in(8) {
            image.restart();
            if self.recover_once(&image, told)? != reached {
                return Err(format!("recovering again did not reach {reached}"));
            }
        }
        Ok(())
    }

    fn recover_once(&mut self, image: &SimDisk, told: u64) -> Result<u64, String> {
        let Some((store, report)) = self.open(image)? else { return Err("a good disk would not".to_owned()) };
        self.compare(&store, report.last, told)?;
        kill(image);
        drop(store);
        Ok(report.last)
    }
}

/// Opens a store over a disk.
pub(super) fn open_store(
    disk: &SimDisk,
    clock: Arc<ManualClock>,
    log_options: LogOptions,
    bug: Option<Bug>,
) -> Result<(Store, Recovered), FolderError> {
    let disk = MistakenDisk::over(disk, bug, Arc::clone(&clock) as _);
    let options = StoreOptions { databases: DATABASES, shards: SHARDS, seed: 7, clock };
    Store::open_with(disk, options, log_options, &mut |_| {}, Journal::unattended)
}

/// Whatever the process does from here on does not reach the disk.
fn kill(disk: &SimDisk) {
    disk.fail_at(disk.calls() + 1, Fault::Halt);
}

fn poll(store: &Store, position: u64) -> Poll<Result<(), LogError>> {
    let settle = pin!(store.settle(position));
    settle.poll(&mut Context::from_waker(Waker::noop()))
}
