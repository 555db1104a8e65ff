//! What verbs show, collected: values of their own, nothing borrowed.

use std::marker::PhantomData;
use std::time::Duration;

use millstream_engine::stream::EntryRef;
use millstream_engine::{Refusal, StreamId};

use super::{FromShown, Patience, Shown, Shows, Sink, Verb};
use crate::txn::Txn;

/// A verb that shows entries, and what they are collected into.
#[derive(Clone, Debug)]
pub struct Collect<V, S> {
    /// The verb.
    pub verb: V,
    into: PhantomData<fn() -> S>,
}

impl<V, S> Collect<V, S> {
    /// Collects what the verb shows.
    pub fn new(verb: V) -> Collect<V, S> {
        Collect { verb, into: PhantomData }
    }
}

impl<V: Shows, S: Sink + Default> Verb for Collect<V, S> {
    type Output = S;
    const CHANGES: bool = V::CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.verb.keys()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<S, Refusal> {
        let mut sink = S::default();
        self.verb.show(txn, &mut sink)?;
        sink.end();
        Ok(sink)
    }

    fn patience(&self, answer: &S) -> Option<Patience> {
        if answer.is_empty() { self.verb.patience() } else { None }
    }

    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> &'v [u8] {
        let blamed =
            self.verb.refused_key(txn).or_else(|| self.verb.keys().find(|key| txn.stream(key).is_err()));
        blamed.or_else(|| self.verb.keys().next()).unwrap_or_default()
    }
}

impl<T: FromShown> Sink for Vec<T> {
    fn take(&mut self, shown: &Shown<'_, '_>) {
        self.extend(T::from_shown(shown));
    }

    fn is_empty(&self) -> bool {
        <[T]>::is_empty(self)
    }
}

/// What a walk over pending entries has claimed: entries, or only their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed<T = Entry> {
    /// What is now the consumer's.
    pub claimed: Vec<T>,
    /// Pending entries that were deleted from the stream; they are pending no more.
    pub gone: Vec<StreamId>,
    /// Where to go on; `None` when everything was looked at.
    pub next: Option<StreamId>,
}

impl<T> Default for Claimed<T> {
    fn default() -> Self {
        Claimed { claimed: Vec::new(), gone: Vec::new(), next: None }
    }
}

impl<T: FromShown> Sink for Claimed<T> {
    fn take(&mut self, shown: &Shown<'_, '_>) {
        self.claimed.take(shown);
    }

    fn walked(&mut self, gone: Vec<StreamId>, next: Option<StreamId>) {
        (self.gone, self.next) = (gone, next);
    }

    fn is_empty(&self) -> bool {
        self.claimed.is_empty()
    }
}

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

impl FromShown for Entry {
    fn from_shown(shown: &Shown<'_, '_>) -> Option<Entry> {
        shown.entry.map(Entry::from)
    }
}

/// What was read, stream by stream. Empty if there was nothing in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<T = Entry> {
    /// Streams that had something, in the order asked for.
    pub streams: Vec<StreamBatch<T>>,
}

/// What was read by a consumer that also takes over what others left: of each stream what was taken over, then what is new.
pub type ClaimingBatch = Batch<Delivered>;

/// What was read of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBatch<T = Entry> {
    /// The stream.
    pub key: Vec<u8>,
    /// Its entries in order.
    pub entries: Vec<T>,
    /// Pending entries that were deleted from the stream. Only where history was asked for; acknowledge them.
    pub gone: Vec<StreamId>,
}

/// An entry, and how it was pending before this delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The entry.
    pub entry: Entry,
    /// Whether it was pending; otherwise it is new.
    pub was_pending: bool,
    /// For how long nobody had touched it; `None` if it is new or had been released.
    pub idle: Option<Duration>,
    /// How often it had been delivered before; 0 if it is new.
    pub deliveries: u64,
}

impl FromShown for Delivered {
    fn from_shown(shown: &Shown<'_, '_>) -> Option<Delivered> {
        let before = shown.before;
        Some(Delivered {
            entry: shown.entry?.into(),
            was_pending: before.is_some(),
            idle: before.and_then(|before| before.idle_ms).map(Duration::from_millis),
            deliveries: before.map_or(0, |before| before.deliveries),
        })
    }
}

impl<T> Batch<T> {
    /// Every entry, stream by stream.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.streams.iter().flat_map(|stream| &stream.entries)
    }

    /// The entries of one stream.
    pub fn of(&self, key: impl AsRef<[u8]>) -> &[T] {
        let key = key.as_ref();
        self.streams.iter().find(|stream| stream.key == key).map_or(&[], |stream| &stream.entries)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.streams.iter().map(|stream| stream.entries.len()).sum()
    }

    /// Whether nothing was read: no entries, and none found gone.
    pub fn is_empty(&self) -> bool {
        self.streams.iter().all(StreamBatch::is_empty)
    }
}

impl<T> StreamBatch<T> {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.gone.is_empty()
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch { streams: Vec::new() }
    }
}

impl<T: FromShown> Sink for Batch<T> {
    fn stream(&mut self, key: &[u8]) {
        self.streams.push(StreamBatch { key: key.to_vec(), entries: Vec::new(), gone: Vec::new() });
    }

    fn take(&mut self, shown: &Shown<'_, '_>) {
        let Some(stream) = self.streams.last_mut() else { return };
        match shown.entry {
            Some(_) => stream.entries.take(shown),
            None => stream.gone.push(shown.id),
        }
    }

    fn end(&mut self) {
        self.streams.retain(|stream| !stream.is_empty());
    }

    fn is_empty(&self) -> bool {
        Batch::is_empty(self)
    }
}
