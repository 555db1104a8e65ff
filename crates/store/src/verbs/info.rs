//! Describing streams, groups and consumers (XINFO).

use std::iter;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_engine::stream::{Group, IdRange, IdempotenceInfo, MissedEntries};
use millstream_engine::{Refusal, Stream, StreamId, Value};

use super::{Entry, EntrySelection, Verb};
use crate::txn::Txn;

/// Returns the keys of all streams, sorted.
#[derive(Clone, Copy, Debug)]
pub struct ListStreams;

impl Verb for ListStreams {
    type Output = Vec<Vec<u8>>;
    const CHANGES: bool = false;
    const ALL_KEYS: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::empty()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
        let mut names = Vec::new();
        txn.visit_keys(|key| {
            if let Some(Value::Stream(_)) = txn.get(key) {
                names.push(key.to_vec());
            }
        });
        names.sort_unstable();
        Ok(names)
    }
}

/// The description of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Number of entries.
    pub length: u64,
    /// The greatest id that the stream has ever used.
    pub last_id: StreamId,
    /// The greatest id deleted by XDEL or a similar command; trims do not count.
    pub max_deleted_id: StreamId,
    /// Number of entries ever added.
    pub entries_added: u64,
    /// The first entry.
    pub first: Option<Entry>,
    /// The last entry.
    pub last: Option<Entry>,
    /// Memory that the stream takes, in bytes.
    pub memory_bytes: usize,
    /// The producer history.
    pub idempotence: IdempotenceInfo,
    /// The groups, sorted by name.
    pub groups: Vec<GroupInfo>,
}

/// The description of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    pub name: Vec<u8>,
    /// The id of the last delivered entry.
    pub last_id: StreamId,
    /// Number of entries read, as Redis counts them; `None` if unknown.
    pub entries_read: Option<u64>,
    /// Number of entries that the group has not delivered yet. `None` only if the setting `exact_lag` is off and
    /// Redis would not know the number.
    pub lag: Option<u64>,
    /// The entries that were trimmed or deleted before the group read them.
    pub missed: MissedEntries,
    /// Number of entries that are delivered and not acknowledged.
    pub pending: u64,
    /// Number of pending entries that were released and belong to no consumer.
    pub released: u64,
    /// The consumers, sorted by name.
    pub consumers: Vec<ConsumerInfo>,
}

/// The description of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    pub name: Vec<u8>,
    /// Number of its pending entries.
    pub pending: u64,
    /// Time since the last request of the consumer.
    pub idle: Duration,
    /// Time since the last delivery to the consumer; `None` if there was none.
    pub inactive: Option<Duration>,
}

/// Describes a stream, its groups and their consumers.
#[derive(Clone, Copy, Debug)]
pub struct DescribeStream<B = Vec<u8>> {
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for DescribeStream<B> {
    type Output = StreamInfo;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamInfo, Refusal> {
        let view = self.view(txn)?;
        let stream = view.stream;
        Ok(StreamInfo {
            length: stream.len(),
            last_id: stream.last_id(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: stream.entries_added(),
            first: stream.first_entry().as_ref().map(Entry::from),
            last: stream.last_entry().as_ref().map(Entry::from),
            memory_bytes: stream.memory_bytes(),
            groups: view.groups().map(|group| group.info(txn.now_ms())).collect(),
            idempotence: view.idempotence,
        })
    }
}

/// Describes a stream without its entries, and a page of its groups without their consumers.
///
/// Copies little, so it holds the lock only briefly, whatever the stream contains.
#[derive(Clone, Copy, Debug)]
pub struct LookAtStream<B = Vec<u8>> {
    pub key: B,
    /// Only groups whose names follow this one. `None` begins with the first.
    pub after: Option<B>,
    /// Maximum number of groups.
    pub groups_max: usize,
}

/// A short description of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLook {
    /// Number of entries.
    pub length: u64,
    /// The greatest id that the stream has ever used.
    pub last_id: StreamId,
    /// The greatest id deleted by XDEL or a similar command; trims do not count.
    pub max_deleted_id: StreamId,
    /// Number of entries ever added.
    pub entries_added: u64,
    /// The ids of the first and the last entry. `None` if the stream is empty.
    pub ends: Option<(StreamId, StreamId)>,
    /// Number of all groups.
    pub groups_len: u64,
    /// The groups, sorted by name.
    pub groups: Vec<GroupLook>,
}

/// A short description of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLook {
    pub name: Vec<u8>,
    /// The id of the last delivered entry.
    pub last_id: StreamId,
    /// See [`GroupInfo::entries_read`].
    pub entries_read: Option<u64>,
    /// See [`GroupInfo::lag`].
    pub lag: Option<u64>,
    /// The entries that were trimmed or deleted before the group read them.
    pub missed: MissedEntries,
    /// Number of entries that are delivered and not acknowledged.
    pub pending: u64,
    /// Number of consumers.
    pub consumers: u64,
}

impl<B: AsRef<[u8]>> Verb for LookAtStream<B> {
    type Output = StreamLook;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamLook, Refusal> {
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        let groups = stream.groups_after(self.after.as_ref().map(AsRef::as_ref)).take(self.groups_max);
        let ends = (stream.first_entry_id(), stream.last_entry_id());
        Ok(StreamLook {
            length: stream.len(),
            last_id: stream.last_id(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: stream.entries_added(),
            ends: Some(ends).filter(|_| !stream.is_empty()),
            groups_len: stream.groups().len() as u64,
            groups: groups.map(|(name, group)| GroupView::new(txn, stream, name, group).look()).collect(),
        })
    }
}

/// Describes a group and its consumers.
#[derive(Clone, Copy, Debug)]
pub struct DescribeGroup<B = Vec<u8>> {
    pub key: B,
    pub group: B,
}

impl<B: AsRef<[u8]>> Verb for DescribeGroup<B> {
    type Output = GroupInfo;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<GroupInfo, Refusal> {
        let (stream, group) = txn.existing_group(self.key.as_ref(), self.group.as_ref())?;
        Ok(GroupView::new(txn, stream, self.group.as_ref(), group).info(txn.now_ms()))
    }
}

impl<B: AsRef<[u8]>> DescribeStream<B> {
    /// Returns a view of the stream that copies nothing, for callers that need only parts or write them into a reply.
    pub fn view<'t>(&self, txn: &'t Txn<'t>) -> Result<StreamView<'t>, Refusal> {
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        Ok(StreamView { stream, idempotence: txn.idempotence_info(stream), txn })
    }
}

/// A view of a stream, for a description without copies.
pub struct StreamView<'t> {
    pub stream: &'t Stream,
    /// The producer history.
    pub idempotence: IdempotenceInfo,
    txn: &'t Txn<'t>,
}

impl<'t> StreamView<'t> {
    /// Selects the first `count` entries.
    pub fn entries(&self, count: Option<u64>) -> EntrySelection<'t> {
        EntrySelection { stream: self.stream, ids: IdRange::ALL, count, reversed: false }
    }

    /// Returns views of the groups, sorted by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupView<'t>> {
        self.stream.groups().map(|(name, group)| GroupView::new(self.txn, self.stream, name, group))
    }
}

/// A view of a group, for a description without copies.
pub struct GroupView<'t> {
    pub name: &'t [u8],
    pub group: &'t Group,
    /// See [`GroupInfo::lag`].
    pub lag: Option<u64>,
    /// The entries that it has missed.
    pub missed: MissedEntries,
}

impl<'t> GroupView<'t> {
    fn new(txn: &Txn<'_>, stream: &Stream, name: &'t [u8], group: &'t Group) -> GroupView<'t> {
        let lag = match txn.settings().exact_lag.load(Ordering::Relaxed) {
            true => Some(stream.query_lag_exact(group)),
            false => stream.query_lag_estimated(group),
        };
        GroupView { name, group, lag, missed: stream.missed(group) }
    }

    fn look(&self) -> GroupLook {
        GroupLook {
            name: self.name.to_vec(),
            last_id: self.group.last_id(),
            entries_read: self.group.entries_read(),
            lag: self.lag,
            missed: self.missed,
            pending: self.group.pending().len(),
            consumers: self.group.consumers().count() as u64,
        }
    }

    fn info(&self, now_ms: u64) -> GroupInfo {
        let consumers = self.group.consumers().map(|(name, _, consumer)| ConsumerInfo {
            name: name.to_vec(),
            pending: consumer.pending,
            idle: Duration::from_millis(consumer.idle_ms(now_ms)),
            inactive: consumer.inactive_ms(now_ms).map(Duration::from_millis),
        });
        GroupInfo {
            name: self.name.to_vec(),
            last_id: self.group.last_id(),
            entries_read: self.group.entries_read(),
            lag: self.lag,
            missed: self.missed,
            pending: self.group.pending().len(),
            released: self.group.pending().released_len(),
            consumers: consumers.collect(),
        }
    }
}
