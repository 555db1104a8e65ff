//! The id of a stream entry: a millisecond and a sequence number, ordered as a pair.
//!
//! How ids are spelled in a request is the protocol's business; here is only the value and its one
//! text form, `ms-seq`.

use std::fmt;

/// The position of an entry in a stream. Ids only ever grow within a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    /// Milliseconds since the Unix epoch, by convention; any number is legal.
    pub ms: u64,
    /// Distinguishes entries of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// `0-0`: smaller than every entry, the id of none.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The largest possible id. A stream that has reached it takes no more entries.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The id `ms-seq`.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The smallest id greater than this one.
    pub const fn next(self) -> Option<StreamId> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(StreamId { ms: self.ms, seq }),
            (None, Some(ms)) => Some(StreamId { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    /// The greatest id smaller than this one.
    pub const fn prev(self) -> Option<StreamId> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(StreamId { ms: self.ms, seq }),
            (None, Some(ms)) => Some(StreamId { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_and_prev_roll_over_the_sequence() {
        assert_eq!(StreamId::new(1, u64::MAX).next(), Some(StreamId::new(2, 0)));
        assert_eq!(StreamId::new(2, 0).prev(), Some(StreamId::new(1, u64::MAX)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.prev(), None);
    }
}
