//! Damages files in every possible way. The log must either open with a consistent prefix that contains everything
//! known to have been durable, or refuse the folder and change nothing.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::super::{OpenError, SalvageTarget};
use super::{WorkloadRandom, open, open_with, options};
use crate::disk::SimDisk;
use crate::log::frame::{FrameHeader, HEADER_BYTES, Salt};
use crate::log::{manifest, segment};
use crate::sim_tests::planted::Bug;

pub(super) type FolderFiles = BTreeMap<String, Vec<u8>>;

/// A folder with known contents.
pub(super) struct WrittenFolder {
    pub(super) contents: FolderFiles,
    pub(super) payloads: Vec<Vec<u8>>,
    /// All frames: their bytes, places, positions and claims.
    frames: Vec<PlacedFrame>,
    manifest_durable: u64,
}

#[derive(Clone)]
struct PlacedFrame {
    file: String,
    offset: usize,
    bytes: Vec<u8>,
    positions: RangeInclusive<u64>,
    claim: u64,
}

impl WrittenFolder {
    /// Writes a log of these payloads, committed after every third.
    pub(super) fn new(payloads: Vec<Vec<u8>>, segment_bytes: u64, close: bool) -> WrittenFolder {
        let disk = SimDisk::new(1);
        WrittenFolder::append(&disk, &payloads, segment_bytes, close, 1);
        let manifest_durable = if close { payloads.len() as u64 } else { 0 };
        WrittenFolder::of(disk.contents(), payloads, manifest_durable)
    }

    pub(super) fn append(disk: &SimDisk, payloads: &[Vec<u8>], segment_bytes: u64, close: bool, seed: u64) {
        let (opened, _) = open(disk, options(segment_bytes, seed)).unwrap();
        for (index, payload) in payloads.iter().enumerate() {
            opened.log.append(payload).unwrap();
            if index % 3 == 2 {
                opened.log.commit().unwrap();
            }
        }
        opened.log.commit().unwrap();
        if close {
            opened.log.close().unwrap();
        }
    }

    pub(super) fn of(contents: FolderFiles, payloads: Vec<Vec<u8>>, manifest_durable: u64) -> WrittenFolder {
        let mut frames = Vec::new();
        for (file, bytes) in contents.iter().filter(|(name, _)| name.starts_with("log-")) {
            let salt = Salt::new(u64::from_le_bytes(bytes[40..48].try_into().unwrap()));
            let mut offset = segment::HEADER_BYTES;
            while offset < bytes.len() {
                let header = FrameHeader::decode(&bytes[offset..], salt).unwrap();
                let end = offset + HEADER_BYTES + header.length as usize;
                frames.push(PlacedFrame {
                    file: file.clone(),
                    offset,
                    bytes: bytes[offset..end].to_vec(),
                    positions: header.position..=header.position + u64::from(header.count) - 1,
                    claim: header.claim,
                });
                offset = end;
            }
        }
        WrittenFolder { contents, payloads, frames, manifest_durable }
    }

    /// Returns the files that opening reads. It only removes the copy of the manifest.
    fn read_files(&self) -> impl Iterator<Item = (&String, &Vec<u8>)> {
        self.contents.iter().filter(|(name, _)| *name != manifest::CLOSED_NAME)
    }

    /// Returns the position up to which the damaged folder still proves the log durable.
    fn proven(&self, damaged: &FolderFiles) -> u64 {
        let by_names = damaged.keys().filter_map(|name| segment::first_of(name)).map(|first| first - 1);
        let is_there = |frame: &&PlacedFrame| {
            damaged
                .get(&frame.file)
                .is_some_and(|bytes| bytes.windows(frame.bytes.len()).any(|window| window == frame.bytes))
        };
        let by_claims = self.frames.iter().filter(is_there).map(|frame| frame.claim);
        by_names.chain(by_claims).chain([self.manifest_durable]).max().unwrap_or(0)
    }

    /// Opens the damaged folder. Returns whether it opened, or the rule that the outcome breaks.
    pub(super) fn verdict(&self, damaged: &FolderFiles, bug: Option<Bug>) -> Result<bool, String> {
        let disk = SimDisk::with_contents(damaged, 9);
        match open_with(&disk, options(1 << 20, 77), bug) {
            Ok((opened, records)) => {
                let in_order = records.iter().map(|(position, _)| *position).eq(1..=opened.report.last);
                let same = records.iter().zip(&self.payloads).all(|((_, read), wrote)| read == wrote);
                let proven = self.proven(damaged);
                if !in_order || !same || records.len() > self.payloads.len() {
                    return Err("opened with other records than were written".to_owned());
                }
                if opened.report.last < proven {
                    return Err(format!("opened up to {}, but {proven} was durable", opened.report.last));
                }
                Ok(true)
            }
            Err(OpenError::Disk(error)) => Err(format!("unexpected: {error}")),
            Err(OpenError::Damage(_)) if disk.contents() != *damaged => {
                Err("refused, but the folder was changed".to_owned())
            }
            Err(OpenError::Damage(_)) => Ok(false),
        }
    }

    fn check(&self, damaged: &FolderFiles, what: impl Fn() -> String) -> bool {
        self.verdict(damaged, None).unwrap_or_else(|rule| panic!("{}: {rule}", what()))
    }

    /// Returns the folder with one file changed.
    pub(super) fn with(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> FolderFiles {
        let mut damaged = self.contents.clone();
        change(damaged.get_mut(file).unwrap());
        damaged
    }

    fn without(&self, file: &str) -> FolderFiles {
        let mut damaged = self.contents.clone();
        damaged.remove(file);
        damaged
    }
}

fn payloads(count: u64, seed: u64) -> Vec<Vec<u8>> {
    let mut random = WorkloadRandom::new(seed);
    (0..count).map(|n| random.bytes(20 + n * 7 % 40)).collect()
}

fn small(close: bool) -> WrittenFolder {
    let written = WrittenFolder::new(payloads(32, 5), 800, close);
    assert!(written.contents.len() >= 4, "several segments and a manifest");
    written
}

#[test]
fn truncated_files_are_detected_at_every_length() {
    for close in [false, true] {
        let written = small(close);
        let last = written.contents.keys().rfind(|name| name.starts_with("log-")).unwrap();
        let (mut opened, mut refused) = (0, 0);
        for (file, bytes) in written.read_files() {
            for cut in 0..bytes.len() {
                let damaged = written.with(file, |bytes| bytes.truncate(cut));
                let opens = written.check(&damaged, || format!("{file} cut to {cut}"));
                assert!(!opens || (!close && file == last), "{file} cut to {cut}, closed {close}");
                if opens { opened += 1 } else { refused += 1 }
            }
        }
        println!("cuts, closed {close}: {opened} opened, {refused} refused");
        assert_eq!(opened > 0, !close);
    }
}

#[test]
fn flipped_bits_are_detected_in_every_file() {
    for close in [false, true] {
        let written = small(close);
        let (mut opened, mut refused) = (0, 0);
        for (file, bytes) in written.read_files() {
            for bit in 0..bytes.len() * 8 {
                let damaged = written.with(file, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
                let opens = written.check(&damaged, || format!("{file} bit {bit}"));
                if opens { opened += 1 } else { refused += 1 }
            }
        }
        println!("flips, closed {close}: {opened} opened, {refused} refused");
        assert_eq!(opened > 0, !close, "recovery cuts only what a crash could have left");
    }
}

#[test]
fn dropped_duplicated_and_swapped_frames_are_detected() {
    let written = small(false);
    let frames = written.frames.clone();
    let mut refused = 0;
    for (index, frame) in frames.iter().enumerate() {
        let end = frame.offset + frame.bytes.len();
        let dropped = written.with(&frame.file, |bytes| drop(bytes.drain(frame.offset..end)));
        let duplicated = written.with(&frame.file, |bytes| {
            bytes.splice(end..end, frame.bytes.iter().copied());
        });
        refused += u32::from(!written.check(&dropped, || format!("frame {} dropped", index + 1)));
        refused += u32::from(!written.check(&duplicated, || format!("frame {} duplicated", index + 1)));
        for other in frames[index + 1..].iter().filter(|other| other.file == frame.file) {
            let swapped = written.with(&frame.file, |bytes| {
                let between = bytes[end..other.offset].to_vec();
                let range = frame.offset..other.offset + other.bytes.len();
                bytes.splice(range, [&other.bytes[..], &between, &frame.bytes].concat());
            });
            refused += u32::from(!written.check(&swapped, || format!("frame {} swapped", index + 1)));
        }
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn overwritten_sectors_and_missing_or_foreign_files_are_detected() {
    let written = small(false);
    let foreign = WrittenFolder::new(payloads(32, 5), 800, false);
    let mut other_store = foreign.contents.clone();
    for (file, bytes) in &written.contents {
        for sector in 0..bytes.len().div_ceil(512) {
            for value in [0, 0xFF] {
                let damaged = written.with(file, |bytes| {
                    let end = bytes.len().min(sector * 512 + 512);
                    bytes[sector * 512..end].fill(value);
                });
                written.check(&damaged, || format!("{file} sector {sector} filled"));
            }
        }
        written.check(&written.without(file), || format!("{file} missing"));
    }
    let disk = SimDisk::new(1);
    WrittenFolder::append(&disk, &payloads(32, 5), 800, false, 99);
    other_store.extend(disk.contents());
    for (file, bytes) in &other_store {
        let damaged = written.with(file, |mine| *mine = bytes.clone());
        assert!(!written.check(&damaged, || format!("{file} of another store")));
    }
}

#[test]
fn missing_segments_are_reported_by_position_without_blaming_intact_files() {
    let written = small(true);
    let names: Vec<&String> = written.contents.keys().filter(|name| name.starts_with("log-")).collect();
    let [one, two, three, ..] = names[..] else { panic!("too few segments") };
    let refusal = |missing: &[&String]| {
        let contents: FolderFiles =
            written.contents.clone().into_iter().filter(|(name, _)| !missing.contains(&name)).collect();
        let error = open(&SimDisk::with_contents(&contents, 1), options(800, 1)).err().unwrap();
        error.to_string()
    };
    let first = |name| segment::first_of(name).unwrap();
    let text = |what: String| {
        format!(
            "{what}. `millstream check . --salvage OUT` copies everything that is intact to a new folder OUT"
        )
    };
    let missing = format!("positions 1 to {} of the log are missing, before {two}", first(two) - 1);
    assert_eq!(refusal(&[one]), text(missing));
    let (from, to) = (first(two), first(three) - 1);
    let missing = format!("positions {from} to {to} of the log are missing, between {one} and {three}");
    assert_eq!(refusal(&[two]), text(missing));
    let missing = "the log is missing from position 1 on: the folder has no segment".to_owned();
    assert_eq!(refusal(&names), text(missing));
}

#[test]
fn huge_length_field_is_rejected() {
    let written = small(false);
    let frame = written.frames[3].clone();
    let damaged = written.with(&frame.file, |bytes| bytes[frame.offset..frame.offset + 4].fill(0xFF));
    assert!(!written.check(&damaged, || "a huge length".to_owned()));
}

/// One case of random damage per seed, including a log mixed with another continuation of itself.
pub(super) fn damage_case(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut random = WorkloadRandom::new(seed);
    let base = payloads(4 + random.below(8), seed);
    let disk = SimDisk::new(seed);
    WrittenFolder::append(&disk, &base, 400, false, seed);
    let branches = [1, 2].map(|branch| {
        let fork = SimDisk::with_contents(&disk.contents(), branch);
        let more: Vec<Vec<u8>> = payloads(9, seed)
            .iter()
            .map(|like| WorkloadRandom::new(seed + branch).bytes(like.len() as u64))
            .collect();
        WrittenFolder::append(&fork, &more, 400, false, seed + branch);
        WrittenFolder::of(fork.contents(), [base.clone(), more].concat(), 0)
    });
    let [written, fork] = &branches;
    let files: Vec<&String> = written.contents.keys().filter(|name| name.starts_with("log-")).collect();
    let file = files[random.below(files.len() as u64) as usize].as_str();
    let frame = written.frames[random.below(written.frames.len() as u64) as usize].clone();
    let damaged = match random.below(6) {
        0 => written.with(&frame.file, |bytes| {
            let at = frame.offset + random.below(frame.bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }),
        1 => written.with(file, |bytes| bytes.truncate(random.below(bytes.len() as u64) as usize)),
        2 => written.with(file, |bytes| {
            let garbage = random.below(300);
            bytes.extend(random.bytes(garbage));
        }),
        3 => written.without(file),
        4 => match fork.contents.get(file) {
            Some(theirs) => written.with(file, |mine| *mine = theirs.clone()),
            None => written.contents.clone(),
        },
        _ => written.with(&frame.file, |mine| {
            let end = frame.offset + frame.bytes.len();
            if let Some(theirs) = fork.contents.get(&frame.file).and_then(|b| b.get(frame.offset..end)) {
                mine[frame.offset..end].copy_from_slice(theirs);
            }
        }),
    };
    // A whole segment of the fork can make the folder equal to the fork up to that segment.
    written.verdict(&damaged, bug).or_else(|rule| fork.verdict(&damaged, bug).map_err(|_| rule)).map(drop)
}

#[test]
fn random_damage_and_mixed_histories_are_detected() {
    for seed in 1..=1500 {
        damage_case(seed, None).unwrap_or_else(|rule| panic!("seed {seed}: {rule}"));
    }
}

#[test]
fn salvage_returns_every_intact_frame_and_reports_the_lost_ones() {
    let written = small(true);
    let wanted = SalvageTarget { store_id: None, first: 1, durable: written.payloads.len() as u64 };
    for (index, frame) in written.frames.iter().enumerate() {
        let (first, last) = (*frame.positions.start(), *frame.positions.end());
        let damaged = written.with(&frame.file, |bytes| bytes[frame.offset + HEADER_BYTES + 3] ^= 8);
        let mut saved = Vec::new();
        let disk = SimDisk::with_contents(&damaged, 1);
        let found = crate::log::salvage(&disk, &wanted, &mut |position, payload| {
            assert_eq!(payload, written.payloads[position as usize - 1]);
            saved.push(position);
            Ok(())
        });
        let found = found.unwrap();
        assert!(
            saved
                .iter()
                .copied()
                .eq((1..=written.payloads.len() as u64).filter(|p| !frame.positions.contains(p)))
        );
        let is_last = index + 1 == written.frames.len();
        assert_eq!(found.losses.len(), 1, "positions {:?}", frame.positions);
        assert_eq!((found.losses[0].first, found.losses[0].next), (first, (!is_last).then_some(last + 1)));
        assert_eq!((found.losses[0].offset, &found.torn), (frame.offset as u64, &None));
        assert_eq!(disk.contents(), damaged);
    }
}

#[test]
fn salvage_does_not_count_a_torn_tail_as_lost() {
    let written = small(false);
    let last = written.frames.last().unwrap();
    let damaged = written.with(&last.file, |bytes| bytes.truncate(last.offset + HEADER_BYTES + 3));
    let disk = SimDisk::with_contents(&damaged, 1);
    let wanted = SalvageTarget { store_id: None, first: 1, durable: 0 };
    let found = crate::log::salvage(&disk, &wanted, &mut |_, _| Ok(())).unwrap();
    assert_eq!((found.losses.len(), found.last), (0, last.positions.start() - 1));
    assert_eq!(
        found.torn.map(|torn| (torn.at, torn.bytes)),
        Some((last.offset as u64, HEADER_BYTES as u64 + 3))
    );
}
