//! Zeros behind the records: made where syncs come often, passed over by whoever reads, given back in the end.

use std::collections::BTreeMap;

use super::super::{Cut, Log, Policy, What};
use super::{Found, open, options};
use crate::disk::SimDisk;
use crate::log::OpenError;

const SEGMENT_BYTES: u64 = 5_000;
const FIRST: &str = "log-00000000000000000001";
const SECOND: &str = "log-00000000000000000003";
/// Where the first of the records ends that [`add`] makes.
const ONE_RECORD: u64 = 64 + 32 + 2;

/// Appends a record and makes it durable, as commands do: after asking for space.
fn add(log: &Log, byte: u8) {
    log.check_space().unwrap();
    log.append(&[byte]).unwrap();
    log.flush(0).unwrap();
}

fn log_on(disk: &SimDisk) -> Log {
    open(disk, options(SEGMENT_BYTES, 1, None)).unwrap().0.log
}

/// What opening a folder with these files finds.
fn reopened(contents: &BTreeMap<String, Vec<u8>>) -> Result<(Option<Cut>, Found), OpenError> {
    let (opened, records) = open(&SimDisk::with_contents(contents, 1), options(SEGMENT_BYTES, 2, None))?;
    Ok((opened.report.cut, records))
}

fn records(bytes: &[u8]) -> Found {
    bytes.iter().zip(1..).map(|(byte, position)| (position, vec![*byte])).collect()
}

#[test]
fn where_every_record_is_synced_room_is_made_up_to_the_end_of_the_segment_and_given_back() {
    for (policy, room) in [(Policy::Always, true), (Policy::EverySecond, false), (Policy::Never, false)] {
        let disk = SimDisk::new(1);
        let log = log_on(&disk);
        log.set_policy(policy);
        add(&log, 7);
        add(&log, 8);
        let written = log.stats().bytes;
        let expected = if room { SEGMENT_BYTES } else { written };
        assert_eq!(disk.contents()[FIRST].len() as u64, expected, "{policy:?}");
        assert!(disk.contents()[FIRST][written as usize..].iter().all(|byte| *byte == 0));
        log.close().unwrap();
        assert_eq!(disk.contents()[FIRST].len() as u64, written);
    }
}

#[test]
fn a_log_that_was_not_closed_goes_on_in_its_room() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 7);
    let mut contents = disk.contents();
    assert_eq!(reopened(&contents).unwrap(), (None, records(&[7])));
    let again = SimDisk::with_contents(&contents, 1);
    add(&log_on(&again), 8);
    contents = again.contents();
    assert_eq!(contents[FIRST].len() as u64, SEGMENT_BYTES);
    assert_eq!(reopened(&contents).unwrap(), (None, records(&[7, 8])));
}

#[test]
fn zeros_of_any_length_are_room_and_anything_else_behind_the_records_is_a_torn_tail() {
    let disk = SimDisk::new(1);
    add(&log_on(&disk), 7);
    let contents = disk.contents();
    for length in ONE_RECORD..SEGMENT_BYTES {
        let mut cut = contents.clone();
        cut.get_mut(FIRST).unwrap().truncate(length as usize);
        assert_eq!(reopened(&cut).unwrap(), (None, records(&[7])), "{length} bytes");
    }
    for at in ONE_RECORD..SEGMENT_BYTES {
        let mut damaged = contents.clone();
        damaged.get_mut(FIRST).unwrap()[at as usize] = 1;
        let cut = Cut { file: FIRST.to_owned(), at: ONE_RECORD, bytes: SEGMENT_BYTES - ONE_RECORD };
        assert_eq!(reopened(&damaged).unwrap(), (Some(cut), records(&[7])), "byte {at}");
    }
}

#[test]
fn a_segment_with_room_may_be_followed_by_another_but_not_one_that_lost_a_record() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 7);
    add(&log, 8);
    log.rotate().unwrap();
    add(&log, 9);
    let contents = disk.contents();
    assert_eq!(contents[FIRST].len() as u64, SEGMENT_BYTES);
    assert_eq!(reopened(&contents).unwrap(), (None, records(&[7, 8, 9])));
    let mut lost = contents.clone();
    lost.get_mut(FIRST).unwrap()[ONE_RECORD as usize..].fill(0);
    match reopened(&lost) {
        Err(OpenError::Damage(damage)) => {
            assert_eq!((damage.file.as_str(), damage.what), (SECOND, What::SegmentMisplaced { found: 3 }));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_that_was_closed_is_not_short_of_records_because_of_zeros() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    add(&log, 7);
    add(&log, 8);
    log.close().unwrap();
    let mut contents = disk.contents();
    contents.get_mut(FIRST).unwrap()[ONE_RECORD as usize..].fill(0);
    match reopened(&contents) {
        Err(OpenError::Damage(damage)) => assert_eq!(damage.what, What::RolledBack { durable: 2 }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_room_is_made_of_the_last_of_a_disk() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(3 << 20));
    let log = log_on(&disk);
    add(&log, 7);
    assert_eq!(disk.contents()[FIRST].len() as u64, SEGMENT_BYTES);
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(2 << 20));
    let log = log_on(&disk);
    add(&log, 7);
    assert_eq!(disk.contents()[FIRST].len() as u64, ONE_RECORD);
}
