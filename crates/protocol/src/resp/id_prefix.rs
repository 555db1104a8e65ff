//! The encoded text of an id up to its sequence number.
//!
//! The ids of one millisecond share this prefix. Prefixes of close milliseconds differ only in the last four digits of
//! the time, so usually only these are written again.

use super::decimal::{digit_count, four_digits, write_digits};

/// Size of the buffer. A prefix has at most 26 bytes (`$41 CRLF`, twenty digits and a dash), but 32 are faster to copy.
const BYTES: usize = 32;

/// Number of consecutive milliseconds that differ only in their last four digits.
const SHARED_PREFIX_MS: u64 = 10_000;

/// The bytes `$length CRLF ms-`.
#[derive(Clone, Debug)]
pub(super) struct IdPrefix {
    ms: u64,
    /// `ms` with its last four digits set to 0.
    base_ms: u64,
    /// Number of digits of the sequence number. `$length` includes them.
    seq_digits: usize,
    length: usize,
    bytes: [u8; BYTES],
}

impl Default for IdPrefix {
    fn default() -> Self {
        IdPrefix::new(0, 1)
    }
}

impl IdPrefix {
    /// Changes the prefix to that of an id with this time and with a sequence number of `seq_digits` digits.
    #[inline(always)]
    pub(super) fn set(&mut self, ms: u64, seq_digits: usize) {
        if self.ms != ms || self.seq_digits != seq_digits {
            self.update(ms, seq_digits);
        }
    }

    #[inline(never)]
    fn update(&mut self, ms: u64, seq_digits: usize) {
        match ms.checked_sub(self.base_ms) {
            // If the base is 0, the two times can have different numbers of digits.
            Some(last_digits @ 0..SHARED_PREFIX_MS) if self.base_ms > 0 && self.seq_digits == seq_digits => {
                self.ms = ms;
                let dash = self.length - 1;
                self.bytes[dash - 4..dash].copy_from_slice(&four_digits(last_digits));
            }
            _ => *self = IdPrefix::new(ms, seq_digits),
        }
    }

    #[inline(always)]
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Returns the buffer: the prefix, followed by unspecified bytes.
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8; BYTES] {
        &self.bytes
    }

    #[inline(never)]
    fn new(ms: u64, seq_digits: usize) -> IdPrefix {
        let ms_digits = digit_count(ms);
        let id_length = ms_digits + 1 + seq_digits;
        let length_digits = digit_count(id_length as u64);
        let mut bytes = [0; BYTES];
        bytes[0] = b'$';
        let mut at = 1;
        write_digits(id_length as u64, &mut bytes[at..at + length_digits]);
        at += length_digits;
        bytes[at..at + 2].copy_from_slice(b"\r\n");
        at += 2;
        write_digits(ms, &mut bytes[at..at + ms_digits]);
        at += ms_digits;
        bytes[at] = b'-';
        IdPrefix { ms, base_ms: ms - ms % SHARED_PREFIX_MS, seq_digits, length: at + 1, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updated_prefix_equals_a_new_one() {
        let edges =
            [0, 1, 9, 10, 999, 1000, 9_999, 10_000, 10_001, 19_999, 20_000, 99_999, 100_000, u64::MAX];
        let times =
            [1_526_569_495_631, 1_526_569_495_632, 1_526_569_499_999, 1_526_569_500_000, u64::MAX - 1];
        let all: Vec<u64> = edges.into_iter().chain(times).collect();
        for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
            for (before, after) in [(1, 1), (1, 2), (3, 3)] {
                let mut prefix = IdPrefix::new(from, before);
                prefix.set(to, after);
                let id_length = to.to_string().len() + 1 + after;
                let text = format!("${id_length}\r\n{to}-");
                assert_eq!(&prefix.bytes()[..prefix.length()], text.as_bytes(), "from {from}");
            }
        }
    }
}
