//! The text of an id up to its sequence number, which the ids of one millisecond share.

use super::decimal::{digit_count, write_digits};

/// At most `$41 CRLF`, twenty digits and a dash: 26 bytes. Copying all of these is a step or two.
const BYTES: usize = 32;

/// `$length CRLF ms-`.
#[derive(Clone, Debug)]
pub(super) struct IdPrefix {
    ms: u64,
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
    /// Becomes that of an id of this millisecond whose sequence number has so many digits.
    #[inline(always)]
    pub(super) fn turn_to(&mut self, ms: u64, seq_digits: usize) {
        if self.ms != ms || self.seq_digits != seq_digits {
            *self = IdPrefix::new(ms, seq_digits);
        }
    }

    /// How many of its bytes count.
    #[inline(always)]
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Its bytes, and others behind them.
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
        IdPrefix { ms, seq_digits, length: at + 1, bytes }
    }
}
