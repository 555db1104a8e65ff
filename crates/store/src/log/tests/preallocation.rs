//! Preallocated space: zeros that the log writes in advance, that readers skip, and that the log cuts off at the end.

use std::collections::BTreeMap;

use super::super::flush::PREALLOCATE_BYTES;
use super::super::segment::{SegmentHeader, SegmentReader, Step};
use super::super::{Damage, DamageKind, Gap, Log, OpenError, Policy, TornTail};
use super::{PositionedRecords, open, options};
use crate::disk::{Access, Disk, Fault, SimDisk};

const SEGMENT_BYTES: u64 = 5_000;
const FIRST: &str = "log-00000000000000000001";
const SECOND: &str = "log-00000000000000000003";
/// Bytes of a record that [`add`] appends, and the offset after the first of them.
const RECORD_BYTES: u64 = 32 + 2;
const ONE_RECORD: u64 = 64 + RECORD_BYTES;

/// Appends a record and makes it durable like a command: after checking the free space.
fn add(log: &Log, byte: u8) {
    log.check_space(0).unwrap();
    log.append(&[byte]).unwrap();
    log.flush(0).unwrap();
}

fn log_on(disk: &SimDisk) -> Log {
    open(disk, options(SEGMENT_BYTES, 1)).unwrap().0.log
}

/// Opens a folder with these files and returns what was cut and the records.
fn reopened(
    contents: &BTreeMap<String, Vec<u8>>,
) -> Result<(Option<TornTail>, PositionedRecords), OpenError> {
    let (opened, records) = open(&SimDisk::with_contents(contents, 1), options(SEGMENT_BYTES, 2))?;
    Ok((opened.report.cut, records))
}

/// Returns why a folder with these files is refused.
fn damage_of(contents: &BTreeMap<String, Vec<u8>>) -> Damage {
    match reopened(contents) {
        Err(OpenError::Damage(damage)) => damage,
        other => panic!("{other:?}"),
    }
}

fn records(bytes: &[u8]) -> PositionedRecords {
    bytes.iter().zip(1..).map(|(byte, position)| (position, vec![*byte])).collect()
}

fn length(disk: &SimDisk) -> u64 {
    disk.contents()[FIRST].len() as u64
}

#[test]
fn space_is_preallocated_with_policy_always_and_cut_off_on_close() {
    for (policy, zeros) in [(Policy::Always, PREALLOCATE_BYTES), (Policy::EverySecond, 0), (Policy::Never, 0)]
    {
        let disk = SimDisk::new(1);
        let log = log_on(&disk);
        log.set_policy(policy);
        add(&log, 7);
        assert_eq!(length(&disk), ONE_RECORD + zeros, "{policy:?}");
        assert!(disk.contents()[FIRST][ONE_RECORD as usize..].iter().all(|byte| *byte == 0));
        log.close().unwrap();
        assert_eq!(length(&disk), ONE_RECORD);
    }
}

#[test]
fn space_is_preallocated_again_within_the_segment_but_not_after_large_writes() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    let (mut written, mut zeros_until, mut made) = (64, 64, 0);
    while written + RECORD_BYTES < SEGMENT_BYTES {
        add(&log, 7);
        written += RECORD_BYTES;
        if written > zeros_until {
            zeros_until = (written + PREALLOCATE_BYTES).min(SEGMENT_BYTES);
            made += 1;
        }
        assert_eq!((log.stats().bytes, length(&disk)), (written, zeros_until));
    }
    assert_eq!((made, zeros_until), (13, SEGMENT_BYTES));
    assert_eq!(reopened(&disk.contents()).unwrap(), (None, records(&[7; 145])));

    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    log.check_space(0).unwrap();
    log.append(&[1; 100]).unwrap();
    log.flush(0).unwrap();
    assert_eq!(length(&disk), log.stats().bytes);
}

#[test]
fn log_that_was_not_closed_continues_after_its_records() {
    let disk = SimDisk::new(1);
    add(&log_on(&disk), 7);
    let contents = disk.contents();
    assert_eq!(reopened(&contents).unwrap(), (None, records(&[7])));
    // After a failed sync the zeros on disk may be other bytes, so recovery cuts them off.
    let again = SimDisk::with_contents(&contents, 1);
    let log = log_on(&again);
    assert_eq!(length(&again), ONE_RECORD);
    add(&log, 8);
    assert_eq!(length(&again), ONE_RECORD + RECORD_BYTES + PREALLOCATE_BYTES);
    assert_eq!(reopened(&again.contents()).unwrap(), (None, records(&[7, 8])));
}

#[test]
fn zeros_after_the_records_are_accepted_and_other_bytes_are_a_torn_tail() {
    let disk = SimDisk::new(1);
    add(&log_on(&disk), 7);
    let contents = disk.contents();
    let end = length(&disk);
    for length in ONE_RECORD..end {
        let mut cut = contents.clone();
        cut.get_mut(FIRST).unwrap().truncate(length as usize);
        assert_eq!(reopened(&cut).unwrap(), (None, records(&[7])), "{length} bytes");
    }
    for at in ONE_RECORD..end {
        let mut damaged = contents.clone();
        damaged.get_mut(FIRST).unwrap()[at as usize] = 1;
        let cut = TornTail { file: FIRST.to_owned(), at: ONE_RECORD, bytes: end - ONE_RECORD };
        assert_eq!(reopened(&damaged).unwrap(), (Some(cut), records(&[7])), "byte {at}");
    }
}

#[test]
fn segment_with_preallocated_space_can_be_followed_by_another_but_not_one_that_lost_a_record() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 7);
    add(&log, 8);
    log.rotate().unwrap();
    add(&log, 9);
    let mut contents = disk.contents();
    assert_eq!(length(&disk), ONE_RECORD + RECORD_BYTES);
    contents.get_mut(FIRST).unwrap().extend_from_slice(&[0; 300]);
    assert_eq!(reopened(&contents).unwrap(), (None, records(&[7, 8, 9])));
    contents.get_mut(FIRST).unwrap()[ONE_RECORD as usize..].fill(0);
    let damage = damage_of(&contents);
    let (segment_before, segment_after) = (Some(FIRST.to_owned()), Some(SECOND.to_owned()));
    let what =
        DamageKind::SegmentMissing(Box::new(Gap { first: 2, next: Some(3), segment_before, segment_after }));
    assert_eq!((damage.file.as_str(), damage.position, damage.what), (SECOND, 2, what));
}

#[test]
fn zeros_do_not_hide_lost_records_of_a_closed_log() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 7);
    add(&log, 8);
    log.close().unwrap();
    let mut contents = disk.contents();
    contents.get_mut(FIRST).unwrap()[ONE_RECORD as usize..].fill(0);
    assert_eq!(damage_of(&contents).what, DamageKind::RolledBack { durable: 2 });
}

#[test]
fn no_space_is_preallocated_on_a_nearly_full_disk() {
    for (capacity, zeros) in [(3_000, PREALLOCATE_BYTES), (700, 0)] {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(capacity));
        add(&log_on(&disk), 7);
        assert_eq!(length(&disk), ONE_RECORD + zeros);
    }
    // Other programs have filled the disk since the free space was measured.
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(3_000));
    let log = log_on(&disk);
    log.check_space(0).unwrap();
    let used: usize = disk.contents().values().map(Vec::len).sum();
    disk.set_capacity(Some(used as u64 + 100));
    log.append(&[7]).unwrap();
    log.flush(0).unwrap();
    assert_eq!((log.durable(), length(&disk)), (1, ONE_RECORD));
    log.append(&[8]).unwrap();
    log.flush(0).unwrap();
    assert_eq!((log.durable(), length(&disk)), (2, ONE_RECORD + RECORD_BYTES));
}

#[test]
fn reader_sees_no_damage_while_records_are_written_into_preallocated_space() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 7);
    let file = disk.open(FIRST, Access::Read).unwrap();
    let header = SegmentHeader::read(&*file).unwrap().unwrap();
    let mut reader = SegmentReader::new(file, length(&disk), &header);
    assert!(matches!(reader.step().unwrap(), Step::Record { position: 1, .. }));
    // The reader has already read the zeros into its window.
    add(&log, 8);
    add(&log, 9);
    for expected in [2, 3] {
        assert!(matches!(reader.step().unwrap(), Step::Record { position, .. } if position == expected));
    }
    assert!(matches!(reader.step().unwrap(), Step::End));
}

#[test]
fn segment_that_was_listed_before_its_header_was_written_reads_as_empty() {
    let disk = SimDisk::new(1);
    add(&log_on(&disk), 7);
    let file = disk.open(FIRST, Access::Read).unwrap();
    let header = SegmentHeader::read(&*file).unwrap().unwrap();
    assert!(matches!(SegmentReader::new(file, 0, &header).step().unwrap(), Step::End));
}

/// A power cut left preallocated space in a segment that an unfinished segment follows. Another power cut follows at
/// each step of the recovery. All durable records must still be found.
#[test]
fn cutting_preallocated_space_before_an_unfinished_segment_can_be_interrupted_anywhere() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 1);
    add(&log, 2);
    let mut contents = disk.contents();
    contents.insert(SECOND.to_owned(), vec![7; 24]);
    assert_eq!(reopened(&contents).unwrap(), (None, records(&[1, 2])));
    for call in 1..12 {
        for seed in 0..200 {
            let image = SimDisk::with_contents(&contents, 1);
            image.fail_at(call, Fault::Halt);
            let _ = open(&image, options(SEGMENT_BYTES, 2));
            let found = reopened(&image.crash(seed).contents()).map(|(_, found)| found);
            assert_eq!(found.unwrap(), records(&[1, 2]), "call {call}, seed {seed}");
        }
    }
}
