//! Collecting the entries that verbs return into owned values.

use std::marker::PhantomData;
use std::time::Duration;

use millstream_engine::stream::EntryRef;
use millstream_engine::{Refusal, StreamId};

use super::{BlockUntil, EntryVerb, FromReturned, ResultSink, ReturnedEntry, Verb};
use crate::txn::Txn;

/// Runs an [`EntryVerb`] and collects its entries into a sink `S`, which is the result.
#[derive(Clone, Debug)]
pub struct Collect<V, S> {
    /// The verb.
    pub verb: V,
    into: PhantomData<fn() -> S>,
}

impl<V, S> Collect<V, S> {
    /// Collects the entries that `verb` returns.
    pub fn new(verb: V) -> Collect<V, S> {
        Collect { verb, into: PhantomData }
    }
}

impl<V: EntryVerb, S: ResultSink + Default> Verb for Collect<V, S> {
    type Output = S;
    const CHANGES: bool = V::CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.verb.keys()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<S, Refusal> {
        let mut sink = S::default();
        self.verb.run_into(txn, &mut sink)?;
        sink.finish();
        Ok(sink)
    }

    fn block_until(&self, output: &S) -> Option<BlockUntil> {
        if output.is_empty() { self.verb.block_until() } else { None }
    }

    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> &'v [u8] {
        let refused =
            self.verb.refused_key(txn).or_else(|| self.verb.keys().find(|key| txn.stream(key).is_err()));
        refused.or_else(|| self.verb.keys().next()).unwrap_or_default()
    }
}

impl<T: FromReturned> ResultSink for Vec<T> {
    fn receive(&mut self, returned: &ReturnedEntry<'_, '_>) {
        self.extend(T::from_returned(returned));
    }

    fn is_empty(&self) -> bool {
        <[T]>::is_empty(self)
    }
}

/// The result of one scan over the pending list: the claimed entries, or only their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed<T = Entry> {
    /// The claimed entries, which now belong to the consumer.
    pub claimed: Vec<T>,
    /// Ids of entries that were deleted from the stream. They were removed from the pending list.
    pub deleted: Vec<StreamId>,
    /// The first id of the next scan; `None` if the whole list was scanned.
    pub next: Option<StreamId>,
}

impl<T> Default for Claimed<T> {
    fn default() -> Self {
        Claimed { claimed: Vec::new(), deleted: Vec::new(), next: None }
    }
}

impl<T: FromReturned> ResultSink for Claimed<T> {
    fn receive(&mut self, returned: &ReturnedEntry<'_, '_>) {
        self.claimed.receive(returned);
    }

    fn scanned(&mut self, deleted: Vec<StreamId>, next: Option<StreamId>) {
        (self.deleted, self.next) = (deleted, next);
    }

    fn is_empty(&self) -> bool {
        self.claimed.is_empty()
    }
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id.
    pub id: StreamId,
    /// The fields: names and values, in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Returns the value of the first field with this name.
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

impl FromReturned for Entry {
    fn from_returned(returned: &ReturnedEntry<'_, '_>) -> Option<Entry> {
        returned.entry.map(Entry::from)
    }
}

/// The result of a read, by stream. It is empty if there was nothing to read before the timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBatch<T = Entry> {
    /// The streams that had entries, in the order of the request.
    pub streams: Vec<StreamBatch<T>>,
}

/// The result of a read that also claims: for each stream first the claimed entries, then the new ones.
pub type ClaimingBatch = ReadBatch<Delivered>;

/// The result of a read of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBatch<T = Entry> {
    pub key: Vec<u8>,
    /// The entries, in order.
    pub entries: Vec<T>,
    /// Ids of pending entries that were deleted from the stream; only in a read of the history. The consumer should
    /// acknowledge them.
    pub deleted: Vec<StreamId>,
}

/// A delivered entry, and its state before this delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub entry: Entry,
    /// Whether the entry was pending. If not, it is new.
    pub was_pending: bool,
    /// How long the entry had been idle; `None` if it is new or had been released.
    pub idle: Option<Duration>,
    /// Number of earlier deliveries; 0 if the entry is new.
    pub deliveries: u64,
}

impl FromReturned for Delivered {
    fn from_returned(returned: &ReturnedEntry<'_, '_>) -> Option<Delivered> {
        let before = returned.before;
        Some(Delivered {
            entry: returned.entry?.into(),
            was_pending: before.is_some(),
            idle: before.and_then(|before| before.idle_ms).map(Duration::from_millis),
            deliveries: before.map_or(0, |before| before.deliveries),
        })
    }
}

impl<T> ReadBatch<T> {
    /// Returns all entries, stream by stream.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.streams.iter().flat_map(|stream| &stream.entries)
    }

    /// Returns the entries of one stream.
    pub fn of(&self, key: impl AsRef<[u8]>) -> &[T] {
        let key = key.as_ref();
        self.streams.iter().find(|stream| stream.key == key).map_or(&[], |stream| &stream.entries)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.streams.iter().map(|stream| stream.entries.len()).sum()
    }

    /// Returns whether nothing was read: no entries and no ids of deleted entries.
    pub fn is_empty(&self) -> bool {
        self.streams.iter().all(StreamBatch::is_empty)
    }
}

impl<T> StreamBatch<T> {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.deleted.is_empty()
    }
}

impl<T> Default for ReadBatch<T> {
    fn default() -> Self {
        ReadBatch { streams: Vec::new() }
    }
}

impl<T: FromReturned> ResultSink for ReadBatch<T> {
    fn start_stream(&mut self, key: &[u8]) {
        self.streams.push(StreamBatch { key: key.to_vec(), entries: Vec::new(), deleted: Vec::new() });
    }

    fn receive(&mut self, returned: &ReturnedEntry<'_, '_>) {
        let Some(stream) = self.streams.last_mut() else { return };
        match returned.entry {
            Some(_) => stream.entries.receive(returned),
            None => stream.deleted.push(returned.id),
        }
    }

    fn finish(&mut self) {
        self.streams.retain(|stream| !stream.is_empty());
    }

    fn is_empty(&self) -> bool {
        ReadBatch::is_empty(self)
    }
}
