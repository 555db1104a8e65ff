//! Progress reports of a recovery: about one per second, and at least one every 512 MiB. A short recovery reports
//! nothing.
//!
//! Progress is measured in bytes read, because a folder can have very many keys, or one key of several gigabytes.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use crate::clock::Clock;

/// Report when this time has passed since the last report.
const REPORT_EVERY_MS: u64 = 1_000;
/// Report at least every 512 MiB. All these bytes can belong to one value, and decoding it reports nothing.
const REPORT_EVERY_BYTES: u64 = 512 << 20;
/// Check the clock every 1 MiB. Also the maximum number of bytes read from a snapshot at a time.
const CHECK_CLOCK_EVERY_BYTES: u64 = 1 << 20;

/// Progress of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Recovery reads keys from the snapshot.
    Snapshot {
        /// Number of complete keys read, and bytes.
        keys: ProgressCounts,
    },
    /// Recovery replays records from the log.
    Log {
        /// Number of records replayed, and bytes.
        records: ProgressCounts,
    },
}

impl RecoveryProgress {
    fn bytes(&self) -> u64 {
        let (RecoveryProgress::Snapshot { keys: counts } | RecoveryProgress::Log { records: counts }) = self;
        counts.bytes
    }
}

/// How much was read. Formatted as `412 of 1500 MiB, 3`; the caller appends what is counted, such as "keys".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressCounts {
    /// Number of keys or records read.
    pub count: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Total number of bytes to read; 0 if unknown.
    pub bytes_total: u64,
}

impl fmt::Display for ProgressCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, count) = (self.bytes >> 20, self.count);
        match self.bytes_total {
            0 => write!(f, "{read} MiB, {count}"),
            total => write!(f, "{read} of {} MiB, {count}", total.div_ceil(1 << 20)),
        }
    }
}

pub(crate) struct Progress<'a> {
    clock: &'a dyn Clock,
    report: &'a mut dyn FnMut(RecoveryProgress),
    next_ms: u64,
    /// Number of bytes of the current file at which the clock is checked next.
    check_clock_at_bytes: u64,
    /// Number of bytes of the current file at which a report is made regardless of the clock.
    report_at_bytes: u64,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, report: &'a mut dyn FnMut(RecoveryProgress)) -> Progress<'a> {
        let next_ms = clock.now_ms().saturating_add(REPORT_EVERY_MS);
        let mut progress = Progress { clock, report, next_ms, check_clock_at_bytes: 0, report_at_bytes: 0 };
        progress.begin_file();
        progress
    }

    pub(crate) fn begin_file(&mut self) {
        (self.check_clock_at_bytes, self.report_at_bytes) = (CHECK_CLOCK_EVERY_BYTES, REPORT_EVERY_BYTES);
    }

    /// Reports this progress if it is time for a report.
    pub(crate) fn update(&mut self, progress: RecoveryProgress) {
        let bytes = progress.bytes();
        if bytes < self.check_clock_at_bytes {
            return;
        }
        self.check_clock_at_bytes = bytes + CHECK_CLOCK_EVERY_BYTES;
        let now_ms = self.clock.now_ms();
        if now_ms >= self.next_ms || bytes >= self.report_at_bytes {
            self.next_ms = now_ms.saturating_add(REPORT_EVERY_MS);
            self.report_at_bytes = bytes + REPORT_EVERY_BYTES;
            (self.report)(progress);
        }
    }
}

/// Reads a snapshot and updates the progress after each read.
pub(crate) struct ProgressReader<'p, 'a, R> {
    pub(crate) from: R,
    pub(crate) progress: &'p mut Progress<'a>,
    /// Number of keys read so far. The caller that decodes them counts them.
    pub(crate) keys: &'p Cell<u64>,
    pub(crate) bytes: u64,
    pub(crate) bytes_total: u64,
}

impl<R: Read> Read for ProgressReader<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(CHECK_CLOCK_EVERY_BYTES as usize);
        let count = self.from.read(&mut into[..most])?;
        self.bytes += count as u64;
        let keys =
            ProgressCounts { count: self.keys.get(), bytes: self.bytes, bytes_total: self.bytes_total };
        self.progress.update(RecoveryProgress::Snapshot { keys });
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn log(bytes: u64) -> RecoveryProgress {
        RecoveryProgress::Log { records: ProgressCounts { count: 1, bytes, bytes_total: 9 << 30 } }
    }

    #[test]
    fn progress_is_reported_every_second_and_after_many_bytes() {
        let (clock, mut reported) = (ManualClock::new(5_000), Vec::new());
        let mut report = |progress: RecoveryProgress| reported.push(progress.bytes() >> 20);
        let mut progress = Progress::new(&clock, &mut report);
        for (after_ms, mib) in
            [(0, 1), (999, 3), (1, 3), (0, 4), (0, 5), (1_500, 6), (0, 517), (0, 518), (0, 519)]
        {
            clock.advance(after_ms);
            progress.update(log(mib << 20));
        }
        progress.begin_file();
        clock.advance(1_000);
        progress.update(log(1 << 20));
        assert_eq!(reported, [4, 6, 518, 1]);
    }

    #[test]
    fn counts_show_mebibytes_and_the_total_if_known() {
        let counts = ProgressCounts { count: 3, bytes: 412 << 20, bytes_total: (1499 << 20) + 1 };
        assert_eq!(format!("read {counts} keys"), "read 412 of 1500 MiB, 3 keys");
        assert_eq!(ProgressCounts { bytes_total: 0, ..counts }.to_string(), "412 MiB, 3");
    }
}
