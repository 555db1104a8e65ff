//! What may be asked of a stream, in types that cannot be wrong. Spelling is the protocol's.

use crate::StreamId;

/// How the id of a new entry is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdSpec {
    /// `*`: from the clock, always greater than the last.
    Auto,
    /// `ms-*`: this millisecond, the next sequence number.
    AutoSeq(u64),
    /// Exactly this id.
    Explicit(StreamId),
}

/// A request to shorten a stream from its old end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// What to keep.
    pub by: TrimBy,
    /// Whether to stop at whole blocks.
    pub exactness: Exactness,
    /// The most entries to remove. Only with [`Exactness::Approximate`].
    pub limit: TrimLimit,
}

/// What a trimmed stream keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimBy {
    /// At most this many entries, the newest.
    MaxLen(u64),
    /// Entries from this id on.
    MinId(StreamId),
}

/// Whether a trim may keep more than asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// `=`: not one entry more.
    Exact,
    /// `~`: whole blocks only, so up to a block more stays.
    Approximate,
}

/// The most entries an approximate trim removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimLimit {
    /// A hundred blocks' worth.
    Default,
    /// No bound.
    Unlimited,
    /// This many.
    AtMost(u64),
}

/// Where a new or moved group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStart {
    /// `$`: after the last entry ever added.
    Last,
    /// After this id.
    After(StreamId),
}

/// How large a block of entries may grow. Approximate trimming removes whole blocks, so users see these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Most bytes, as Redis counts a node's bytes; 0 is no limit.
    pub max_bytes: u64,
    /// Most entries, deleted ones included; 0 is no limit.
    pub max_entries: u64,
}

impl Default for BlockLimits {
    fn default() -> Self {
        BlockLimits { max_bytes: 4096, max_entries: 100 }
    }
}
