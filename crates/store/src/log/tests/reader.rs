//! Reading the open log, from memory and from segments, while it grows and is cleaned up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::super::{Log, LogReader, ReadError, Recovery};
use super::{WorkloadRandom, open, options};
use crate::disk::{RealDisk, SimDisk};

const SEGMENT_BYTES: u64 = 300;

fn log_on(disk: &SimDisk, seed: u64) -> Log {
    open(disk, options(SEGMENT_BYTES, seed)).unwrap().0.log
}

/// Reads up to `count` records, and checks that each is the one that was appended.
fn read(reader: &mut LogReader<'_>, appended: &[Vec<u8>], count: u64) -> u64 {
    for done in 0..count {
        let expected = reader.position();
        let Some((position, payload)) = reader.read().unwrap() else { return done };
        assert_eq!(position, expected);
        assert_eq!(*payload, *appended[position as usize - 1], "position {position}");
    }
    count
}

#[test]
fn readers_get_every_record_whatever_is_written_synced_or_removed_meanwhile() {
    let (mut from_memory, mut from_segments) = (0, 0);
    for seed in 1..60 {
        let (disk, mut random) = (SimDisk::new(seed), WorkloadRandom::new(seed));
        let log = log_on(&disk, seed);
        let (mut appended, mut readers, mut first) = (Vec::<Vec<u8>>::new(), Vec::new(), 1);
        for _ in 0..300 {
            let last = appended.len() as u64;
            match random.below(16) {
                0..7 => {
                    let payload = {
                        let count = random.below(90);
                        random.bytes(count)
                    };
                    assert_eq!(log.append(&payload).unwrap(), last + 1);
                    appended.push(payload);
                }
                7 => _ = log.write().unwrap(),
                8 => _ = log.commit().unwrap(),
                9 => {
                    first = first.max(random.below(last + 1) + 1);
                    log.release_before(first, None).unwrap();
                }
                10 if readers.len() < 3 => {
                    readers.push(log.read_from(first + random.below(last + 2 - first)).unwrap());
                }
                11 if !readers.is_empty() => _ = readers.pop(),
                _ => {
                    let count = random.below(12);
                    for reader in &mut readers {
                        let was_in_file = reader.position() <= log.written();
                        let done = read(reader, &appended, count);
                        *if was_in_file { &mut from_segments } else { &mut from_memory } += done;
                    }
                }
            }
        }
        let last = appended.len() as u64;
        for mut reader in readers {
            read(&mut reader, &appended, u64::MAX);
            assert_eq!(reader.position(), last + 1);
        }
        // Readers leave nothing behind: recovery finds the same records.
        log.release_before(first, None).unwrap();
        drop(log);
        let recovered = open(&disk, {
            disk.restart();
            options(SEGMENT_BYTES, 1)
        })
        .unwrap()
        .1;
        assert!(recovered.iter().map(|(position, _)| *position).eq(first..=last));
    }
    assert!(from_memory > 500 && from_segments > 500, "{from_memory} {from_segments}");
}

#[test]
fn segments_stay_until_the_last_reader_that_needs_them_has_passed() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk, 1);
    let appended: Vec<Vec<u8>> = (0..40).map(|n| vec![n; 60]).collect();
    appended.iter().for_each(|payload| _ = log.append(payload).unwrap());
    let mut slow = log.read_from(3).unwrap();
    let mut fast = log.read_from(3).unwrap();
    read(&mut fast, &appended, 30);
    let removed = log.release_before(40, None).unwrap();
    assert_eq!(removed, [""; 0], "the first segment has position 3");
    read(&mut slow, &appended, 20);
    let segments = log.stats().segments;
    assert!(!log.release_before(40, None).unwrap().is_empty());
    assert!(log.stats().segments > segments / 3, "both readers still need segments");
    assert_eq!((read(&mut slow, &appended, 100), read(&mut fast, &appended, 100)), (18, 8));
    drop((slow, fast));
    log.release_before(40, None).unwrap();
    let removed = log.read_from(3).err().unwrap();
    assert!(matches!(removed, ReadError::Removed { oldest } if oldest > 30), "{removed:?}");
    assert!(removed.to_string().contains("earlier ones are in the snapshot"));
    assert_eq!(read(&mut log.read_from(40).unwrap(), &appended, 5), 1);
}

/// The reader sees frames that are being written, preallocated space, and segments that begin and end.
#[test]
fn reader_follows_a_thread_that_writes() {
    const RECORDS: u64 = 30_000;
    let dir = std::env::temp_dir().join(format!("millstream-log-reader-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let disk = Arc::new(RealDisk::create(&dir).unwrap());
    let log = Recovery::begin(disk).unwrap().open(options(64 << 10, 1), |_, _| Ok(())).unwrap().log;
    let payload = |position: u64| position.to_le_bytes().repeat(1 + position as usize % 20);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for position in 1..=RECORDS {
                log.append(&payload(position)).unwrap();
                if position % 13 == 0 {
                    log.write().unwrap();
                }
            }
            is_done.store(true, Ordering::Release);
        });
        let mut passes = 0;
        while !is_done.load(Ordering::Acquire) || passes == 0 {
            // A new reader begins in the segments, and catches up with the writer.
            let mut reader = log.read_from(1).unwrap();
            while let Some((position, found)) = reader.read().unwrap() {
                assert_eq!(*found, payload(position));
            }
            passes += 1;
        }
    });
    let mut reader = log.read_from(1).unwrap();
    assert_eq!(std::iter::from_fn(|| reader.read().unwrap()).count() as u64, RECORDS);
    std::fs::remove_dir_all(&dir).unwrap();
}
