//! Telling how far a recovery is: about once a second, and not at all if it is over within one.
//!
//! What counts are the bytes that were read: a folder may have very many keys, or a single one of some gigabytes.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use crate::clock::Clock;

/// No more often than this, by the clock.
const TELL_EVERY_MS: u64 = 1_000;
/// Behind so many bytes in any case: they may be of one value, during whose decoding nothing can be told.
const TELL_EVERY_BYTES: u64 = 512 << 20;
/// The clock is looked at when so many bytes were read; also the most that is read of a snapshot at once.
const LOOK_EVERY_BYTES: u64 = 1 << 20;

/// How far recovery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Keys read from the snapshot.
    Snapshot {
        /// So many whole ones, and their bytes.
        keys: Reached,
    },
    /// Records replayed from the log.
    Log {
        /// So many, and their bytes.
        records: Reached,
    },
}

impl RecoveryProgress {
    fn bytes(&self) -> u64 {
        let (RecoveryProgress::Snapshot { keys: reached } | RecoveryProgress::Log { records: reached }) =
            self;
        reached.bytes
    }
}

/// How much was read. Shown as `412 of 1500 MiB, 3`, to be followed by the word for what was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// How many were read.
    pub count: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Of so many; 0 if that is not known.
    pub bytes_total: u64,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, count) = (self.bytes >> 20, self.count);
        match self.bytes_total {
            0 => write!(f, "{read} MiB, {count}"),
            total => write!(f, "{read} of {} MiB, {count}", total.div_ceil(1 << 20)),
        }
    }
}

/// Whom to tell, and when next.
pub(crate) struct Progress<'a> {
    clock: &'a dyn Clock,
    tell: &'a mut dyn FnMut(RecoveryProgress),
    next_ms: u64,
    /// Bytes of the file at hand behind which the clock is looked at again, and behind which it need not be asked.
    look_at_bytes: u64,
    tell_at_bytes: u64,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, tell: &'a mut dyn FnMut(RecoveryProgress)) -> Progress<'a> {
        let next_ms = clock.now_ms().saturating_add(TELL_EVERY_MS);
        let mut progress = Progress { clock, tell, next_ms, look_at_bytes: 0, tell_at_bytes: 0 };
        progress.begin_part();
        progress
    }

    /// Another file begins: its bytes are counted anew.
    pub(crate) fn begin_part(&mut self) {
        (self.look_at_bytes, self.tell_at_bytes) = (LOOK_EVERY_BYTES, TELL_EVERY_BYTES);
    }

    /// Tells it if it is time.
    pub(crate) fn reached(&mut self, progress: RecoveryProgress) {
        let bytes = progress.bytes();
        if bytes < self.look_at_bytes {
            return;
        }
        self.look_at_bytes = bytes + LOOK_EVERY_BYTES;
        let now_ms = self.clock.now_ms();
        if now_ms >= self.next_ms || bytes >= self.tell_at_bytes {
            self.next_ms = now_ms.saturating_add(TELL_EVERY_MS);
            self.tell_at_bytes = bytes + TELL_EVERY_BYTES;
            (self.tell)(progress);
        }
    }
}

/// A snapshot being read, of which every byte is told.
pub(crate) struct Watched<'p, 'a, R> {
    pub(crate) from: R,
    pub(crate) progress: &'p mut Progress<'a>,
    /// Whoever decodes them counts them.
    pub(crate) keys: &'p Cell<u64>,
    pub(crate) bytes: u64,
    pub(crate) bytes_total: u64,
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(LOOK_EVERY_BYTES as usize);
        let count = self.from.read(&mut into[..most])?;
        self.bytes += count as u64;
        let keys = Reached { count: self.keys.get(), bytes: self.bytes, bytes_total: self.bytes_total };
        self.progress.reached(RecoveryProgress::Snapshot { keys });
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn log(bytes: u64) -> RecoveryProgress {
        RecoveryProgress::Log { records: Reached { count: 1, bytes, bytes_total: 9 << 30 } }
    }

    #[test]
    fn it_is_told_once_a_second_at_most_and_behind_very_many_bytes() {
        let (clock, mut told) = (ManualClock::new(5_000), Vec::new());
        let mut tell = |progress: RecoveryProgress| told.push(progress.bytes() >> 20);
        let mut progress = Progress::new(&clock, &mut tell);
        for (after_ms, mib) in
            [(0, 1), (999, 3), (1, 3), (0, 4), (0, 5), (1_500, 6), (0, 517), (0, 518), (0, 519)]
        {
            clock.advance(after_ms);
            progress.reached(log(mib << 20));
        }
        progress.begin_part();
        clock.advance(1_000);
        progress.reached(log(1 << 20));
        assert_eq!(told, [4, 6, 518, 1]);
    }

    #[test]
    fn amounts_are_told_in_megabytes_with_the_total_where_it_is_known() {
        let reached = Reached { count: 3, bytes: 412 << 20, bytes_total: (1499 << 20) + 1 };
        assert_eq!(format!("read {reached} keys"), "read 412 of 1500 MiB, 3 keys");
        assert_eq!(Reached { bytes_total: 0, ..reached }.to_string(), "412 MiB, 3");
    }
}
