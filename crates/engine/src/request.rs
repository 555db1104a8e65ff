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

/// An entry to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition<'a> {
    /// How its id is chosen.
    pub id: IdSpec,
    /// Name, value, name, value…
    pub fields: &'a [&'a [u8]],
    /// Whether to make a stream if there is none.
    pub make_stream: bool,
    /// How to shorten the stream when the entry has joined it.
    pub trim: Option<Trim>,
    /// What becomes of the pending entries of what trimming removes.
    pub references: References,
    /// How to tell that the entry was sent before. Only with an id from the clock.
    pub idempotence: Option<Idempotence<'a>>,
}

impl<'a> Addition<'a> {
    /// An entry with an id from the clock, to a new stream if there is none.
    pub fn new(fields: &'a [&'a [u8]]) -> Addition<'a> {
        Addition {
            id: IdSpec::Auto,
            fields,
            make_stream: true,
            trim: None,
            references: References::Keep,
            idempotence: None,
        }
    }
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

/// What becomes of the pending rows of an entry that is deleted or trimmed, in every group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// They stay, and point to nothing.
    #[default]
    Keep,
    /// They go with it.
    Delete,
    /// The entry stays while any group has yet to read or acknowledge it.
    Acked,
}

/// What a consumer says when it gives a pending entry back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackMode {
    /// It was not tried: this delivery does not count.
    Silent,
    /// It failed: the delivery counts.
    Fail,
    /// It can never succeed: the count goes to the greatest there is.
    Fatal,
}

/// How a producer says that an entry may have been sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotence<'a> {
    /// An entry with the same fields, from this producer, is the same entry.
    Auto {
        /// Who sends.
        producer: &'a [u8],
    },
    /// An entry under the same name, from this producer, is the same entry.
    Given {
        /// Who sends.
        producer: &'a [u8],
        /// The producer's name for the entry.
        iid: &'a [u8],
    },
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// After this id.
    After(StreamId),
    /// After the last entry at the moment the verb first runs.
    Last,
    /// With the last entry, whatever it is.
    LastEntry,
}
