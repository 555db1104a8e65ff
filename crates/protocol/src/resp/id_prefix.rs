//! The text of an id up to its sequence number, which the ids of one millisecond share, and but for its last digits those of
//! neighbouring ones.

use super::decimal::{digit_count, four_digits, write_digits};

/// At most `$41 CRLF`, twenty digits and a dash: 26 bytes. Copying all of these is a step or two.
const BYTES: usize = 32;

/// So many milliseconds differ in their last four digits only.
const NEIGHBOURS: u64 = 10_000;

/// `$length CRLF ms-`.
#[derive(Clone, Debug)]
pub(super) struct IdPrefix {
    ms: u64,
    /// The first of the milliseconds that differ from this one in their last four digits only.
    first_neighbour: u64,
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
            self.change_to(ms, seq_digits);
        }
    }

    #[inline(never)]
    fn change_to(&mut self, ms: u64, seq_digits: usize) {
        match ms.checked_sub(self.first_neighbour) {
            // A number of up to four digits has no others before them, and its neighbours may have fewer.
            Some(last_digits @ 0..NEIGHBOURS)
                if self.first_neighbour > 0 && self.seq_digits == seq_digits =>
            {
                self.ms = ms;
                let dash = self.length - 1;
                self.bytes[dash - 4..dash].copy_from_slice(&four_digits(last_digits));
            }
            _ => *self = IdPrefix::new(ms, seq_digits),
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
        IdPrefix { ms, first_neighbour: ms - ms % NEIGHBOURS, seq_digits, length: at + 1, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_was_changed_is_the_one_that_is_made_anew() {
        let edges =
            [0, 1, 9, 10, 999, 1000, 9_999, 10_000, 10_001, 19_999, 20_000, 99_999, 100_000, u64::MAX];
        let times =
            [1_526_569_495_631, 1_526_569_495_632, 1_526_569_499_999, 1_526_569_500_000, u64::MAX - 1];
        let all: Vec<u64> = edges.into_iter().chain(times).collect();
        for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
            for (before, after) in [(1, 1), (1, 2), (3, 3)] {
                let mut prefix = IdPrefix::new(from, before);
                prefix.turn_to(to, after);
                let id_length = to.to_string().len() + 1 + after;
                let text = format!("${id_length}\r\n{to}-");
                assert_eq!(&prefix.bytes()[..prefix.length()], text.as_bytes(), "from {from}");
            }
        }
    }
}
