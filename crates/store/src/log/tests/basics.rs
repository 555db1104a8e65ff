//! The log's public API: round trips, rotation, release, failures, a full disk.

use std::sync::Arc;

use super::super::{Damage, DamageKind, LogError, Policy, Recovery, TornTail};
use super::{WorkloadRandom, open, options};
use crate::disk::{Fault, RealDisk, SimDisk};
use crate::log::OpenError;

#[test]
fn records_are_read_back_in_order_over_many_segments() {
    let disk = SimDisk::new(1);
    let (opened, none) = open(&disk, options(300, 1)).unwrap();
    assert!(opened.report.created && none.is_empty());
    let mut random = WorkloadRandom::new(2);
    let payloads: Vec<Vec<u8>> = (0..100u64).map(|n| random.bytes(n % 90)).collect();
    for (index, payload) in payloads.iter().enumerate() {
        assert_eq!(opened.log.append(payload).unwrap(), index as u64 + 1);
        if index % 7 == 0 {
            assert_eq!(opened.log.commit().unwrap(), index as u64 + 1);
        }
    }
    assert_eq!(opened.log.commit().unwrap(), 100);
    let stats = opened.log.stats();
    assert!(stats.segments > 10, "{stats:?}");
    let listed: usize =
        disk.contents().iter().filter(|(n, _)| n.starts_with("log")).map(|(_, b)| b.len()).sum();
    assert_eq!((stats.bytes, stats.pending_bytes), (listed as u64, 0));
    opened.log.close().unwrap();

    let (opened, records) = open(&disk, options(300, 2)).unwrap();
    assert!(records.iter().map(|(position, _)| *position).eq(1..=100));
    assert!(records.iter().map(|(_, payload)| payload).eq(payloads.iter()));
    assert_eq!(
        (opened.report.records, opened.report.cut, opened.report.rewritten_bytes < 300),
        (100, None, true)
    );
    assert_eq!(opened.log.durable(), 100);
    assert_eq!(opened.log.append(b"on").unwrap(), 101);
}

#[test]
fn records_share_a_frame_until_it_is_written_or_full() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    let bytes = || disk.contents()["log-00000000000000000001"].len();
    for _ in 0..10 {
        opened.log.append(&[1; 99]).unwrap();
    }
    opened.log.commit().unwrap();
    assert_eq!(bytes(), 64 + 32 + 10 * 100);
    for _ in 0..82 {
        opened.log.append(&[1; 99]).unwrap();
    }
    opened.log.commit().unwrap();
    // Two frames of 41 records each: the log begins a new frame after 4 KiB.
    assert_eq!(bytes(), 64 + 3 * 32 + 92 * 100);
    drop(opened);
    let (opened, records) = open(&disk, options(1 << 20, 2)).unwrap();
    assert!(records.iter().map(|(position, _)| *position).eq(1..=92));
    assert!(records.iter().all(|(_, payload)| *payload == [1; 99]));
    assert_eq!(opened.report.records, 92);
}

#[test]
fn rotated_log_can_be_released_up_to_its_end() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    let log = opened.log;
    let segments =
        || disk.contents().keys().filter(|name| name.starts_with("log-")).cloned().collect::<Vec<_>>();
    log.rotate().unwrap();
    assert_eq!(segments(), ["log-00000000000000000001"], "rotation does not replace an empty segment");
    for round in 1..=3u64 {
        for _ in 0..5 {
            log.append(b"something").unwrap();
        }
        // In the first round all records are written before the rotation, in the others none.
        if round == 1 {
            log.commit().unwrap();
        }
        log.rotate().unwrap();
        log.rotate().unwrap();
        let (last, name) = (5 * round, format!("log-{:020}", 5 * round + 1));
        assert_eq!((log.written(), log.stats().segments), (last, 2));
        assert_eq!(log.release_before(last + 1, Some(last)).unwrap().len(), 1);
        assert_eq!(segments(), [name]);
    }
    log.append(b"last").unwrap();
    log.close().unwrap();
    let (_, records) = open(&disk, options(1 << 20, 2)).unwrap();
    assert_eq!(records, [(16, b"last".to_vec())]);
}

#[test]
fn release_removes_segments_and_keeps_needed_records() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(200, 1)).unwrap();
    for _ in 0..40 {
        opened.log.append(&[5; 60]).unwrap();
    }
    let removed = opened.log.release_before(21, Some(20)).unwrap();
    assert!(!removed.is_empty());
    let manifest = opened.log.manifest();
    assert_eq!((manifest.snapshot, manifest.first, manifest.durable), (Some(20), 21, 40));
    assert!(removed.iter().all(|name| !disk.contents().contains_key(name)));
    opened.log.close().unwrap();
    let (opened, records) = open(&disk, options(200, 2)).unwrap();
    assert!(records.iter().map(|(position, _)| *position).eq(21..=40));
    assert_eq!(opened.log.stats().first, 21);
}

#[test]
fn recovery_cuts_and_reports_a_torn_tail() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    opened.log.append(b"kept").unwrap();
    opened.log.commit().unwrap();
    drop(opened);
    let mut contents = disk.contents();
    let name = "log-00000000000000000001";
    contents.get_mut(name).unwrap().extend_from_slice(&[1; 500]);
    let (opened, records) = open(&SimDisk::with_contents(&contents, 1), options(1 << 20, 2)).unwrap();
    assert_eq!(records, [(1, b"kept".to_vec())]);
    assert_eq!(opened.report.cut, Some(TornTail { file: name.to_owned(), at: 64 + 32 + 5, bytes: 500 }));
}

#[test]
fn failed_sync_ends_the_log() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    opened.log.append(b"one").unwrap();
    opened.log.commit().unwrap();
    opened.log.append(b"two").unwrap();
    disk.fail_at(disk.calls() + 2, Fault::Io);
    let error = opened.log.commit().unwrap_err();
    assert!(matches!(&error, LogError::Failed(cause) if cause.operation == "sync"), "{error}");
    for _ in 0..3 {
        assert_eq!(opened.log.commit(), Err(error.clone()));
        assert_eq!(opened.log.append(b"three"), Err(error.clone()));
        assert_eq!(opened.log.close(), Err(error.clone()));
    }
    assert_eq!((opened.log.durable(), opened.log.written()), (1, 2));
}

#[test]
fn log_continues_after_the_disk_was_full() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(400, 1)).unwrap();
    let log = opened.log;
    let mut appended = 0;
    for free in 0..120 {
        let used: usize = disk.contents().values().map(Vec::len).sum();
        disk.set_capacity(Some(used as u64 + free));
        for _ in 0..4 {
            appended = log.append(&[3; 50]).unwrap();
        }
        let before = disk.contents();
        let error = log.commit().unwrap_err();
        assert!(matches!(error, LogError::Full(_)), "{error}");
        assert!(log.durable() < appended);
        let log_bytes = |contents: &std::collections::BTreeMap<String, Vec<u8>>| {
            contents.values().map(Vec::len).sum::<usize>()
        };
        // The bytes up to the end of a segment can be written. No partial write remains.
        assert!(log_bytes(&disk.contents()) >= log_bytes(&before));
        disk.set_capacity(None);
        assert_eq!(log.commit().unwrap(), appended);
    }
    drop(log);
    let (_, records) = open(&disk, options(400, 2)).unwrap();
    assert_eq!(records.len() as u64, appended);
}

#[test]
fn log_refuses_writes_while_a_buffer_waits_for_space() {
    let disk = SimDisk::new(1);
    let log = open(&disk, options(1 << 20, 1)).unwrap().0.log;
    log.check_space(0).unwrap();
    log.append(b"one").unwrap();
    // Like a quota that is exceeded while the reported free space does not show it.
    disk.fail_at(disk.calls() + 1, Fault::Full);
    assert!(matches!(log.commit(), Err(LogError::Full(_))));
    for _ in 0..3 {
        assert!(matches!(log.check_space(0), Err(LogError::Full(_))));
    }
    assert_eq!(log.commit(), Ok(1));
    assert_eq!(log.check_space(0), Ok(()));
}

#[test]
fn log_keeps_the_old_manifest_if_there_is_no_space_for_a_new_one() {
    let mut refused = Vec::new();
    for call in 1..=4 {
        let disk = SimDisk::new(1);
        let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
        let log = opened.log;
        log.append(b"one").unwrap();
        log.commit().unwrap();
        let before = disk.contents()["manifest"].clone();
        disk.fail_at(disk.calls() + call, Fault::Full);
        let Err(LogError::Full(what)) = log.release_before(2, Some(1)) else { continue };
        refused.push(what);
        assert_eq!(disk.contents()["manifest"], before);
        assert_eq!(log.append(b"two").and_then(|_| log.commit()), Ok(2));
        assert!(log.release_before(3, Some(2)).is_ok());
        assert_eq!(log.manifest().snapshot, Some(2));
        log.close().unwrap();
    }
    let of = |operation: &str| {
        refused.iter().any(|what| what.starts_with(&format!("cannot {operation} manifest.new")))
    };
    assert!(of("create") && of("write"), "{refused:?}");
}

#[test]
fn log_continues_after_descriptors_ran_out() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(200, 1)).unwrap();
    let log = opened.log;
    log.append(&[1; 150]).unwrap();
    log.commit().unwrap();
    let before = disk.contents();
    disk.set_exhausted(true);
    // The first record fills its segment. The second needs a new segment.
    for position in 2..=3 {
        assert_eq!(log.append(&[2; 50]), Ok(position));
        let error = log.commit().unwrap_err();
        assert!(
            matches!(&error, LogError::Exhausted(what) if what.contains("cannot create log-")),
            "{error}"
        );
        assert_eq!((log.durable(), log.error()), (1, None));
    }
    assert!(matches!(log.rotate(), Err(LogError::Exhausted(_))));
    disk.set_exhausted(false);
    assert_eq!(log.commit(), Ok(3));
    disk.set_exhausted(true);
    let error = log.release_before(3, Some(2)).unwrap_err();
    assert!(matches!(&error, LogError::Exhausted(what) if what.contains("cannot list")), "{error}");
    assert_eq!((disk.contents()["manifest"].clone(), log.error()), (before["manifest"].clone(), None));
    disk.set_exhausted(false);
    log.release_before(3, Some(2)).unwrap();
    log.close().unwrap();
    let (_, records) = open(&disk, options(200, 2)).unwrap();
    assert_eq!(records, [(3, vec![2; 50])]);
}

/// Other failures end the log, because it is unknown what they left behind.
#[test]
fn io_error_while_creating_a_segment_ends_the_log() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(200, 1)).unwrap();
    opened.log.append(&[1; 150]).unwrap();
    opened.log.commit().unwrap();
    opened.log.append(&[2; 50]).unwrap();
    // The call after the sync of the previous segment.
    disk.fail_at(disk.calls() + 2, Fault::Io);
    let error = opened.log.commit().unwrap_err();
    assert!(matches!(&error, LogError::Failed(cause) if cause.operation == "create"), "{error}");
    disk.set_exhausted(true);
    assert_eq!(opened.log.commit(), Err(error));
}

#[test]
fn writes_are_refused_before_the_disk_is_full_and_allowed_later() {
    let disk = SimDisk::new(1);
    let mut with_reserve = options(1 << 20, 1);
    with_reserve.reserve_bytes = 1000;
    let (opened, _) = open(&disk, with_reserve).unwrap();
    disk.set_capacity(Some(3000));
    assert_eq!(opened.log.check_space(0), Ok(()));
    // A write that does not fit beside the reserve is refused while smaller writes are still accepted.
    assert_eq!(opened.log.check_space(500), Ok(()));
    let refused = opened.log.check_space(1 << 20).unwrap_err().to_string();
    assert!(refused.contains("and this write needs 1048576"), "{refused}");
    assert_eq!(opened.log.check_space(0), Ok(()));
    let mut taken = 0;
    while opened.log.check_space(0).is_ok() {
        opened.log.append(&[1; 100]).unwrap();
        taken += 1;
    }
    assert!((17..=20).contains(&taken), "{taken}");
    opened.log.commit().unwrap();
    disk.set_capacity(Some(10_000));
    assert_eq!(opened.log.check_space(0), Ok(()));
}

#[test]
fn each_policy_writes_and_syncs_at_its_times() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    let log = opened.log;
    let mut now_ms = 10_000;
    let mut step = |policy, later_ms| {
        log.set_policy(policy);
        now_ms += later_ms;
        log.append(b"x").unwrap();
        log.flush(now_ms).unwrap();
        assert_eq!(log.written(), log.appended());
        log.appended() - log.durable()
    };
    assert_eq!(step(Policy::Always, 0), 0);
    assert_eq!(step(Policy::EverySecond, 10), 1);
    assert_eq!(step(Policy::EverySecond, 989), 2);
    assert_eq!(step(Policy::EverySecond, 1), 0);
    assert_eq!(step(Policy::Never, 5000), 1);
}

#[test]
fn try_write_returns_none_while_another_thread_writes() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    let log = opened.log;
    log.append(b"one").unwrap();
    let another = log.writer.lock();
    assert!(log.try_write().is_none());
    assert_eq!(log.written(), 0);
    drop(another);
    assert!(matches!(log.try_write(), Some(Ok(1))));
    assert_eq!((log.written(), log.durable()), (1, 0));
}

#[test]
fn rejected_payload_refuses_the_folder_and_changes_nothing() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(1 << 20, 1)).unwrap();
    opened.log.append(b"odd").unwrap();
    opened.log.commit().unwrap();
    drop(opened);
    let before = disk.contents();
    let recovery = Recovery::begin(Arc::new(disk.clone())).unwrap();
    let error = recovery.open(options(100, 1), |_, _| Err("odd".to_owned())).err().unwrap();
    let what = DamageKind::Payload("odd".to_owned());
    let file = "log-00000000000000000001".to_owned();
    assert_eq!(error, OpenError::Damage(Damage { file, offset: 64, position: 1, what }));
    assert_eq!(disk.contents(), before);
}

#[test]
fn only_one_log_at_a_time_opens_a_folder() {
    let disk = SimDisk::new(1);
    let (opened, _) = open(&disk, options(100, 1)).unwrap();
    assert!(open(&disk, options(100, 1)).is_err());
    opened.log.close().unwrap();
    assert_eq!(opened.log.append(b"x"), Err(LogError::Closed));
    assert!(open(&disk, options(100, 1)).is_ok());
}

#[test]
fn threads_share_commits_in_a_real_folder() {
    let dir = std::env::temp_dir().join(format!("millstream-log-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let disk = Arc::new(RealDisk::create(&dir).unwrap());
    let log = Recovery::begin(disk.clone()).unwrap().open(options(20_000, 1), |_, _| Ok(())).unwrap().log;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..50u64 {
                    let payload = [thread.to_le_bytes(), n.to_le_bytes()].concat().repeat(20);
                    let position = log.append(&payload).unwrap();
                    assert!(log.commit().unwrap() >= position);
                }
            });
        }
    });
    assert_eq!((log.durable(), log.written()), (200, 200));
    assert!(log.stats().segments > 3);
    log.close().unwrap();
    let mut next = [0u64; 4];
    let recovery = Recovery::begin(disk).unwrap();
    let visit = |_: u64, payload: &[u8]| {
        let thread = payload[0] as usize;
        assert_eq!(payload[8..16], next[thread].to_le_bytes());
        next[thread] += 1;
        Ok(())
    };
    recovery.open(options(20_000, 2), visit).unwrap();
    assert_eq!(next, [50; 4]);
    std::fs::remove_dir_all(&dir).unwrap();
}
