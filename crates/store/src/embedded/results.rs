//! What calls answer with: values of their own, nothing borrowed.

use std::time::Duration;

use millstream_engine::StreamId;
use millstream_engine::stream::{EntryRef, IdempotenceInfo};

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: StreamId,
    /// Names and values in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// The value of the first field of that name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }
}

impl From<&EntryRef<'_>> for Entry {
    fn from(entry: &EntryRef<'_>) -> Entry {
        let fields = entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec()));
        Entry { id: entry.id(), fields: fields.collect() }
    }
}

/// What was read, stream by stream. Empty if there was nothing in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Streams that had something, in the order asked for.
    pub streams: Vec<StreamBatch>,
}

/// What was read of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamBatch {
    /// The stream.
    pub key: Vec<u8>,
    /// Its entries in order.
    pub entries: Vec<Entry>,
    /// Pending entries that were deleted from the stream. Only where history was asked for; acknowledge them.
    pub gone: Vec<StreamId>,
}

impl Batch {
    /// Every entry, stream by stream.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.streams.iter().flat_map(|stream| &stream.entries)
    }

    /// The entries of one stream.
    pub fn of(&self, key: impl AsRef<[u8]>) -> &[Entry] {
        let key = key.as_ref();
        self.streams.iter().find(|stream| stream.key == key).map_or(&[], |stream| &stream.entries)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.streams.iter().map(|stream| stream.entries.len()).sum()
    }

    /// Whether nothing was read: no entries, and none found gone.
    pub fn is_empty(&self) -> bool {
        self.streams.iter().all(|stream| stream.entries.is_empty() && stream.gone.is_empty())
    }
}

/// What was read by a consumer that also takes over what others left, stream by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimingBatch {
    /// Streams that had something, in the order asked for.
    pub streams: Vec<StreamDeliveries>,
}

/// What was so read of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamDeliveries {
    /// The stream.
    pub key: Vec<u8>,
    /// Its entries: what was taken over, then what is new.
    pub entries: Vec<Delivered>,
}

/// An entry, and how it was pending before this delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The entry.
    pub entry: Entry,
    /// Whether it was pending; otherwise it is new.
    pub was_pending: bool,
    /// For how long nobody had touched it; `None` if it is new or had been given back.
    pub idle: Option<Duration>,
    /// How often it had been delivered before; 0 if it is new.
    pub deliveries: u64,
}

impl ClaimingBatch {
    /// Every entry, stream by stream.
    pub fn iter(&self) -> impl Iterator<Item = &Delivered> {
        self.streams.iter().flat_map(|stream| &stream.entries)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.streams.iter().map(|stream| stream.entries.len()).sum()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

/// What a sweep over pending entries has claimed: entries, or only their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoClaimed<T = Entry> {
    /// What is now the consumer's.
    pub claimed: Vec<T>,
    /// Pending entries that were deleted from the stream; they are pending no more.
    pub gone: Vec<StreamId>,
    /// Where to go on; `None` when everything was looked at.
    pub next: Option<StreamId>,
}

/// What a group has pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSummary {
    /// How many entries.
    pub count: u64,
    /// The smallest and the greatest id, if there are any.
    pub ids: Option<(StreamId, StreamId)>,
    /// Consumers that have any, and how many.
    pub consumers: Vec<(Vec<u8>, u64)>,
}

/// A pending entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// The entry.
    pub id: StreamId,
    /// Who it was last delivered to; `None` if it was given back.
    pub consumer: Option<Vec<u8>>,
    /// How long ago; `None` if it was given back.
    pub idle: Option<Duration>,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// What is known of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Entries in it.
    pub length: u64,
    /// The greatest id ever given.
    pub last_id: StreamId,
    /// The greatest id deleted by name.
    pub max_deleted_id: StreamId,
    /// Entries ever added.
    pub entries_added: u64,
    /// The first entry.
    pub first: Option<Entry>,
    /// The last entry.
    pub last: Option<Entry>,
    /// What the stream takes in memory, in bytes.
    pub memory_bytes: usize,
    /// What is remembered of producers.
    pub idempotence: IdempotenceInfo,
    /// Its groups, by name.
    pub groups: Vec<GroupInfo>,
}

/// What is known of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// The last entry it has delivered.
    pub last_id: StreamId,
    /// Entries it has read, as Redis counts them; `None` when that is not known.
    pub entries_read: Option<u64>,
    /// Entries it has not delivered yet.
    pub lag: u64,
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// Those of them that were given back and belong to nobody.
    pub released: u64,
    /// Its consumers, by name.
    pub consumers: Vec<ConsumerInfo>,
}

/// What is known of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// Entries pending with it.
    pub pending: u64,
    /// Since it last asked for something.
    pub idle: Duration,
    /// Since it last got something; `None` if never.
    pub inactive: Option<Duration>,
}
