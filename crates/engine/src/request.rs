//! The requests that a stream accepts, as types that can only hold valid values. `protocol` parses their text
//! form.

use crate::StreamId;

/// How the id of a new entry is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdSpec {
    /// `*`: the current time. If that is not greater than the last id, the id that follows the last id.
    Auto,
    /// `ms-*`: this millisecond and its next sequence number.
    AutoSeq(u64),
    /// Exactly this id.
    Explicit(StreamId),
    /// `*+ms` and `*@unix-ms`: the entry is delayed until it is due. If it is due already, this is `Auto`.
    Delayed(Due),
}

/// When a delayed entry becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This many milliseconds after the request.
    In(u64),
    /// At this time (Unix milliseconds).
    At(u64),
}

/// An entry to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition<'a> {
    /// How the id is chosen.
    pub id: IdSpec,
    /// Name, value, name, value…
    pub fields: &'a [&'a [u8]],
    /// Whether to create the stream if it does not exist.
    pub make_stream: bool,
    /// How to trim the stream after the entry was added.
    pub trim: Option<Trim>,
    /// What happens to the pending entries of trimmed entries.
    pub references: References,
    /// How to detect that the producer has already sent this entry. Only with [`IdSpec::Auto`] and
    /// [`IdSpec::Delayed`].
    pub idempotence: Option<Idempotence<'a>>,
}

impl<'a> Addition<'a> {
    /// Creates a request with an automatic id that creates the stream if needed.
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

/// A request to remove the oldest entries of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Which entries to keep.
    pub by: TrimBy,
    /// Whether only whole blocks are removed.
    pub exactness: Exactness,
    /// The maximum number of entries to remove. Used only with [`Exactness::Approximate`].
    pub limit: TrimLimit,
}

/// Which entries a trim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimBy {
    /// At most this many entries: the newest.
    MaxLen(u64),
    /// The entries with this id or a greater one.
    MinId(StreamId),
}

/// Whether a trim can keep more entries than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// `=`: keeps exactly the requested entries.
    Exact,
    /// `~`: removes only whole blocks, and no more entries than the [`TrimLimit`] allows. So more entries can
    /// stay than requested.
    Approximate,
}

/// The maximum number of entries that an approximate trim removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimLimit {
    /// As many as a hundred full blocks hold, but at most a million. If the number of entries per block is
    /// not limited: 10 000.
    Default,
    /// Without limit.
    Unlimited,
    /// At most this many; 0 means no limit.
    AtMost(u64),
}

/// The position of a new or moved group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStart {
    /// `$`: after the last id of the stream.
    Last,
    /// After this id.
    After(StreamId),
}

/// The maximum size of a block of entries. Users see it, because approximate trimming removes whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Maximum bytes, counted as Redis counts the bytes of a node; 0 means no limit.
    pub max_bytes: u64,
    /// Maximum number of entries, including deleted ones; 0 means no limit.
    pub max_entries: u64,
}

impl Default for BlockLimits {
    fn default() -> Self {
        BlockLimits { max_bytes: 4096, max_entries: 100 }
    }
}

/// What happens to the pending entries, in all groups, of an entry that is deleted or trimmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// They stay, although their entry no longer exists.
    #[default]
    Keep,
    /// They are removed too.
    Delete,
    /// The entry is removed only if every group has read and acknowledged it.
    Acked,
}

/// Why a consumer releases a pending entry (XNACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackMode {
    /// The consumer did not try it: this delivery does not count.
    Silent,
    /// The attempt failed: this delivery counts.
    Fail,
    /// The entry can never succeed: its delivery count is set to the maximum.
    Fatal,
}

/// How a duplicate of an entry is detected (XADD IDMP and IDMPAUTO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotence<'a> {
    /// An entry of this producer with the same fields is a duplicate.
    Auto {
        /// The name of the producer.
        producer: &'a [u8],
    },
    /// An entry of this producer with the same `iid` is a duplicate.
    Given {
        /// The name of the producer.
        producer: &'a [u8],
        /// The id that the producer gave the entry.
        iid: &'a [u8],
    },
}

/// Where a read starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// After this id.
    After(StreamId),
    /// After the stream's last id at the moment the read first runs.
    Last,
    /// With the last entry, whatever its id is.
    LastEntry,
}
