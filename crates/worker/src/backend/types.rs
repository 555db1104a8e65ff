//! The values that go in and out of a backend.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

use super::StreamId;

/// Names and values of an entry, in order.
pub type Fields = Vec<(Bytes, Bytes)>;

/// What a store does natively. What it does not is emulated, at the price named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A read hands out idle entries too; elsewhere they are claimed by a call of their own, now and then. That call
    /// is needed everywhere, if less often: a read passes over pending entries that are gone from the stream.
    pub read_claims: bool,
    /// Rows are released natively; elsewhere they are made to look idle for long.
    pub releases: bool,
    /// Leases are extended natively and only for their owner; elsewhere by a script.
    pub extends: bool,
    /// Entries can be added once only; elsewhere a repeated send is a second entry.
    pub idempotent_adds: bool,
    /// Lag is always known and exact; elsewhere it may have to be counted.
    pub exact_lag: bool,
    /// Whether the store has told all this. One that cannot write now cannot tell: it is taken to be able until it is
    /// asked again, by the first call that relies on it.
    pub certain: bool,
}

/// An entry to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewEntry {
    /// Its fields, at least one.
    pub fields: Fields,
    /// Under which name it is added only once.
    pub idempotence: Option<Idempotence>,
}

/// The name under which an entry is added only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotence {
    /// Who sends.
    pub producer: String,
    /// The sender's name for the entry.
    pub iid: String,
}

/// How long a stream may grow; older entries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// About this many entries stay.
    About(u64),
    /// Exactly this many entries stay at most.
    Exactly(u64),
}

/// Where a group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest entry there is.
    Beginning,
    /// With the next entry that comes.
    End,
    /// After this entry.
    After(StreamId),
}

/// A consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The group.
    pub group: &'a str,
    /// Its name in the group.
    pub name: &'a str,
}

impl<'a> Consumer<'a> {
    /// The consumer of this name.
    pub fn new(stream: &'a str, group: &'a str, name: &'a str) -> Consumer<'a> {
        Consumer { stream, group, name }
    }
}

/// Who reads, where, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The group.
    pub group: &'a str,
    /// The consumer, which comes to be when it first reads.
    pub consumer: &'a str,
    /// The most entries.
    pub count: usize,
    /// How long to wait for the first entry; `None` does not wait.
    pub block: Option<Duration>,
    /// Where the store can: also hand out entries that nobody has touched for so long.
    pub claim_idle: Option<Duration>,
}

/// An entry handed to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The entry.
    pub id: StreamId,
    /// Its fields; `None` if it was deleted or trimmed while it was pending.
    pub fields: Option<Fields>,
    /// How often it has been delivered, this time included.
    pub deliveries: u64,
}

/// What taking over idle entries gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Entries that are now the caller's, and idle rows whose entry is gone from the stream: those have no fields, are as they
    /// were before the call, whoever owns them, and end with [`Backend::dead_letter`](super::Backend::dead_letter), which takes
    /// them from anyone.
    pub deliveries: Vec<Delivery>,
    /// From where to go on; 0-0 when the whole group has been walked.
    pub next: StreamId,
}

/// Entries that are done, and what to remember of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The entries to acknowledge.
    pub ids: Vec<StreamId>,
    /// Keys to remember as seen, and for how long; before anything is acknowledged.
    pub remember: Vec<(String, Duration)>,
}

/// A delivery to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The entry.
    pub id: StreamId,
    /// Which delivery it is: how often the entry had been delivered with it. A row that has been delivered again since is left
    /// alone, even if it is the same consumer's.
    pub delivery: u64,
    /// How often it counts as delivered from now on.
    pub deliveries: u64,
}

impl Release {
    /// A delivery that counts as before.
    pub fn counted(id: StreamId, delivery: u64) -> Release {
        Release { id, delivery, deliveries: delivery }
    }
}

/// An entry for the dead letters, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The pending entry that ends here.
    pub origin: StreamId,
    /// The dead-letter stream, in the same slot as the stream on a cluster.
    pub to: String,
    /// What is added there.
    pub fields: Fields,
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: StreamId,
    /// Its fields.
    pub fields: Fields,
}

/// Which entries to look at: from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The smallest id.
    pub first: StreamId,
    /// The greatest id.
    pub last: StreamId,
    /// From which end.
    pub order: Order,
    /// The most entries.
    pub count: usize,
}

impl Range {
    /// Up to `count` entries from an id on, oldest first.
    pub fn rising(first: StreamId, count: usize) -> Range {
        Range { first, last: StreamId::MAX, order: Order::Rising, count }
    }

    /// The entry of this id.
    pub fn one(id: StreamId) -> Range {
        Range { last: id, ..Range::rising(id, 1) }
    }
}

/// From which end entries are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Rising,
    /// Newest first.
    Falling,
}

/// What a server tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its version, state and counters, by the server's own names.
    pub facts: HashMap<String, String>,
    /// The settings that were asked for, as far as the server has them and tells them.
    pub settings: HashMap<String, String>,
}

/// A stream, as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// How many entries it has.
    pub length: u64,
    /// How many groups.
    pub groups: u64,
    /// How many entries were ever added, where the store knows.
    pub entries_added: Option<u64>,
    /// The id of the last entry ever added.
    pub last_id: StreamId,
    /// The greatest deleted id, where the store knows.
    pub max_deleted_id: Option<StreamId>,
    /// The oldest entry's id.
    pub first_entry: Option<StreamId>,
    /// The newest entry's id.
    pub last_entry: Option<StreamId>,
}

/// A group, as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// How many consumers it has.
    pub consumers: u64,
    /// How many entries are pending.
    pub pending: u64,
    /// The last entry delivered.
    pub last_delivered: StreamId,
    /// How many entries it has read, where known.
    pub entries_read: Option<u64>,
    /// How many entries it has yet to read, where the store knows.
    pub lag: Option<u64>,
}

/// A consumer, as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// How many entries are pending with it.
    pub pending: u64,
    /// How long ago it last asked.
    pub idle: Duration,
    /// How long ago it last got something, where the store knows.
    pub inactive: Option<Duration>,
}

/// What is pending in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingSummary {
    /// How many rows.
    pub total: u64,
    /// The smallest and the greatest id.
    pub ids: Option<(StreamId, StreamId)>,
    /// How many rows each consumer has; released rows are nobody's.
    pub consumers: Vec<(String, u64)>,
}

/// Which pending rows to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFilter {
    /// The smallest id.
    pub first: StreamId,
    /// The greatest id.
    pub last: StreamId,
    /// The most rows, of those that match.
    pub count: usize,
    /// Only rows of this consumer.
    pub consumer: Option<String>,
    /// Only rows that nobody has touched for so long. Released rows always match.
    pub min_idle: Option<Duration>,
}

impl PendingFilter {
    /// Up to `count` rows from an id on, of any consumer.
    pub fn rising(first: StreamId, count: usize) -> PendingFilter {
        PendingFilter { first, last: StreamId::MAX, count, consumer: None, min_idle: None }
    }

    /// The row of this id.
    pub fn one(id: StreamId) -> PendingFilter {
        PendingFilter { last: id, ..PendingFilter::rising(id, 1) }
    }
}

/// A pending row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// The entry.
    pub id: StreamId,
    /// Whose it is; `None` if it was released.
    pub consumer: Option<String>,
    /// How long ago it was delivered or extended; `None` if it was released.
    pub idle: Option<Duration>,
    /// How often it was delivered.
    pub deliveries: u64,
}
