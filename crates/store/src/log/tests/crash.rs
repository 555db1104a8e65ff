//! Power cuts: random operations on a simulated disk, a power cut at any point, recovery, comparison, and then more
//! operations. Recovery must return everything that the log reported as durable.
//!
//! `MILLSTREAM_CRASH_SEEDS=n` sets the number of episodes. A failure prints its seed, which determines the episode.

use super::super::{Log, LogError, OpenError};
use super::damage::damage_case;
use super::{WorkloadRandom, open, open_with, options};
use crate::disk::{Fault, SimDisk};
use crate::sim_tests::planted::Bug;

const EPISODES: u64 = 7000;
const GENERATIONS: u64 = 4;
/// Number of different outcomes tried for each power cut.
const CUTS: u64 = 4;

/// What the users of the log know.
struct LogModel {
    /// All payloads that were appended and not lost, by position.
    payloads: Vec<Vec<u8>>,
    /// Largest position that the log reported as durable.
    reported_durable: u64,
    /// Largest `first` that was requested. A manifest must not state a larger one.
    first_requested: u64,
}

struct LogEpisode {
    random: WorkloadRandom,
    model: LogModel,
    segment_bytes: u64,
    bug: Option<Bug>,
    states: u64,
}

#[test]
fn every_crash_leaves_a_prefix_with_all_durable_records() {
    let episodes = std::env::var("MILLSTREAM_CRASH_SEEDS").ok().and_then(|text| text.parse().ok());
    let episodes: u64 = episodes.unwrap_or(EPISODES);
    let mut states = 0;
    for seed in 1..=episodes {
        states += run(seed, None).unwrap_or_else(|rule| panic!("seed {seed}: {rule}"));
    }
    println!("{episodes} episodes, {states} crash states, 0 violations");
    assert!(states > episodes);
}

/// A process that ended between renaming the manifest and syncing the folder leaves a manifest that the next process
/// reads, but that a power cut can undo.
#[test]
fn segments_are_kept_until_the_new_manifest_is_durable() {
    for halted_after in 1..12 {
        let disk = SimDisk::new(halted_after);
        let (opened, _) = open(&disk, options(200, 1)).unwrap();
        for _ in 0..20 {
            opened.log.append(&[1; 100]).unwrap();
        }
        opened.log.commit().unwrap();
        let folder_sync = disk.calls() + 5;
        disk.fail_at(folder_sync, Fault::Halt);
        opened.log.release_before(15, Some(14)).unwrap_err();
        assert_eq!(disk.calls(), folder_sync);
        disk.restart();
        drop(opened);
        disk.fail_at(folder_sync + halted_after, Fault::Halt);
        let _ = open(&disk, options(200, 2));
        for seed in 0..50 {
            let (recovered, _) =
                open(&disk.crash(seed), options(200, 3)).expect("the old or the new manifest");
            assert_eq!(recovered.report.last, 20);
        }
    }
}

#[test]
fn every_planted_bug_is_caught() {
    for bug in Bug::OF_LOG {
        let (crash, damaged) = caught(bug);
        println!("{bug:?}: power cuts find it at seed {crash:?}, damage at seed {damaged:?}");
        assert!(crash.is_some() || damaged.is_some(), "{bug:?} is not caught");
    }
}

/// Returns the first seed whose power cuts reveal the bug, and the first seed whose damage reveals it.
pub(crate) fn caught(bug: Bug) -> (Option<u64>, Option<u64>) {
    let crash = (1..=600).find(|&seed| run(seed, Some(bug)).is_err());
    (crash, (1..=200).find(|&seed| damage_case(seed, Some(bug)).is_err()))
}

/// Runs one episode. Returns the number of crash states checked, or the rule that was broken.
fn run(seed: u64, bug: Option<Bug>) -> Result<u64, String> {
    let mut random = WorkloadRandom::new(seed);
    let segment_bytes = [150, 600, 2500][random.below(3) as usize];
    let model = LogModel { payloads: Vec::new(), reported_durable: 0, first_requested: 1 };
    let mut episode = LogEpisode { random, model, segment_bytes, bug, states: 0 };
    let mut disk = SimDisk::new(seed);
    for generation in 0..GENERATIONS {
        episode.plan_fault(&disk);
        if let Some(log) = episode.recover(&disk, generation)? {
            episode.work(&disk, &log)?;
        }
        disk = episode.end_process(&disk)?;
    }
    Ok(episode.states)
}

impl LogEpisode {
    /// Plans a fault at a random later call, often during recovery itself.
    fn plan_fault(&mut self, disk: &SimDisk) {
        let fault =
            [Fault::Halt, Fault::Halt, Fault::Io, Fault::Full, Fault::Short][self.random.below(5) as usize];
        let within = [8, 60][self.random.below(2) as usize];
        disk.fail_at(disk.calls() + 1 + self.random.below(within), fault);
    }

    /// Opens the folder and compares it with the model. Then the model continues from what was recovered.
    fn recover(&mut self, disk: &SimDisk, salt: u64) -> Result<Option<Log>, String> {
        let seed = self.random.next() ^ salt;
        let (opened, records) = match open_with(disk, options(self.segment_bytes, seed), self.bug) {
            Ok(opened) => opened,
            Err(OpenError::Damage(damage)) => return Err(format!("refused: {damage}")),
            Err(OpenError::Disk(_)) => return Ok(None),
        };
        let last = opened.log.durable();
        let first = opened.log.manifest().first;
        if last < self.model.reported_durable {
            return Err(format!(
                "recovered up to {last}, but {} was reported as durable",
                self.model.reported_durable
            ));
        }
        if last > self.model.payloads.len() as u64 || first > self.model.first_requested {
            return Err(format!("recovered {first} to {last}, which was never written"));
        }
        let positions_are_whole = records.iter().map(|(position, _)| *position).eq(first..=last);
        let same =
            |(position, payload): &(u64, Vec<u8>)| self.model.payloads[*position as usize - 1] == *payload;
        if !positions_are_whole || !records.iter().all(same) {
            return Err("recovered other records than were appended".to_owned());
        }
        self.model.payloads.truncate(last as usize);
        self.model.reported_durable = last;
        Ok(Some(opened.log))
    }

    fn work(&mut self, disk: &SimDisk, log: &Log) -> Result<(), String> {
        for _ in 0..5 + self.random.below(40) {
            let outcome = match self.random.below(13) {
                0..=5 => self.append(log),
                6..=8 => log.commit().map(drop),
                9 => log.write().map(drop),
                10 => self.release(log),
                11 => log.rotate(),
                _ => {
                    self.squeeze(disk);
                    Ok(())
                }
            };
            self.model.reported_durable = self.model.reported_durable.max(log.durable());
            if self.model.reported_durable > self.model.payloads.len() as u64 {
                return Err("a position that was never appended is durable".to_owned());
            }
            if let Err(LogError::Failed(_)) = outcome {
                return self.stays_failed(log);
            }
        }
        disk.set_capacity(None);
        disk.set_exhausted(false);
        if self.random.below(8) == 0 && log.close().is_ok() {
            self.model.reported_durable = self.model.payloads.len() as u64;
        }
        self.model.reported_durable = self.model.reported_durable.max(log.durable());
        Ok(())
    }

    fn append(&mut self, log: &Log) -> Result<(), LogError> {
        let most = [40, 40, 200, 1500][self.random.below(4) as usize];
        let count = self.random.below(most);
        let payload = self.random.bytes(count);
        // As every command does. After this measurement the log preallocates space.
        let _ = log.check_space(0);
        let position = log.append(&payload)?;
        self.model.payloads.push(payload);
        assert_eq!(position, self.model.payloads.len() as u64);
        Ok(())
    }

    fn release(&mut self, log: &Log) -> Result<(), LogError> {
        let first = 1 + self.random.below(log.durable() + 1);
        self.model.first_requested = self.model.first_requested.max(first);
        log.release_before(first, Some(first - 1)).map(drop)
    }

    /// Sets how much disk space is free: little, or no limit. Sometimes no file can be opened.
    fn squeeze(&mut self, disk: &SimDisk) {
        let used: usize = disk.contents().values().map(Vec::len).sum();
        let free = self.random.below(400);
        disk.set_capacity((free < 300).then_some(used as u64 + free));
        disk.set_exhausted(free >= 360);
    }

    /// Checks that a failed log acknowledges nothing more.
    fn stays_failed(&self, log: &Log) -> Result<(), String> {
        let reported_durable = log.durable();
        if log.commit().is_ok() || log.durable() != reported_durable {
            return Err("a failed log acknowledged something".to_owned());
        }
        Ok(())
    }

    /// Ends the process. In one of four cases the power stays on; otherwise it fails too. Returns the disk to continue
    /// with.
    fn end_process(&mut self, disk: &SimDisk) -> Result<SimDisk, String> {
        disk.set_capacity(None);
        if self.random.below(4) == 0 {
            disk.restart();
            return Ok(disk.clone());
        }
        let reported_durable = self.model.reported_durable;
        let payloads = self.model.payloads.clone();
        for _ in 0..CUTS {
            let image = disk.crash(self.random.next());
            self.recover(&image, 0)?;
            self.states += 1;
            self.model.reported_durable = reported_durable;
            self.model.payloads.clone_from(&payloads);
        }
        Ok(disk.crash(self.random.next()))
    }
}
