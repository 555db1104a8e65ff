//! What is known of a stream, its groups and their consumers.

use std::iter;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_engine::stream::{Group, IdRange, IdempotenceInfo};
use millstream_engine::{Refusal, Stream, StreamId, Value};

use super::{Entry, Found, Verb};
use crate::txn::Txn;

/// The names of all streams, in order.
#[derive(Clone, Copy, Debug)]
pub struct ListStreams;

impl Verb for ListStreams {
    type Output = Vec<Vec<u8>>;
    const CHANGES: bool = false;
    const EVERYTHING: bool = true;

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
    /// Entries it has not delivered yet. `None` only where the store's setting `exact_lag` is off and Redis would not know.
    pub lag: Option<u64>,
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// Those of them that were released and belong to nobody.
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

/// What is known of a stream, its groups and their consumers.
#[derive(Clone, Copy, Debug)]
pub struct DescribeStream<B = Vec<u8>> {
    /// The stream.
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for DescribeStream<B> {
    type Output = StreamInfo;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamInfo, Refusal> {
        let view = self.look(txn)?;
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

/// What is known of a group and its consumers.
#[derive(Clone, Copy, Debug)]
pub struct DescribeGroup<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
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
    /// The same where it lies, for those who want only some of it or write it elsewhere.
    pub fn look<'t>(&self, txn: &'t Txn<'t>) -> Result<StreamView<'t>, Refusal> {
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        Ok(StreamView { stream, idempotence: txn.idempotence_info(stream), txn })
    }
}

/// A stream that is being looked at.
pub struct StreamView<'t> {
    /// The stream.
    pub stream: &'t Stream,
    /// What is remembered of producers.
    pub idempotence: IdempotenceInfo,
    txn: &'t Txn<'t>,
}

impl<'t> StreamView<'t> {
    /// Its first entries, at most `count`.
    pub fn entries(&self, count: Option<u64>) -> Found<'t> {
        Found { stream: self.stream, ids: IdRange::ALL, count, reversed: false }
    }

    /// Its groups, by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupView<'t>> {
        self.stream.groups().map(|(name, group)| GroupView::new(self.txn, self.stream, name, group))
    }
}

/// A group that is being looked at.
pub struct GroupView<'t> {
    /// Its name.
    pub name: &'t [u8],
    /// The group.
    pub group: &'t Group,
    /// See [`GroupInfo::lag`].
    pub lag: Option<u64>,
}

impl<'t> GroupView<'t> {
    fn new(txn: &Txn<'_>, stream: &Stream, name: &'t [u8], group: &'t Group) -> GroupView<'t> {
        let lag = match txn.settings().exact_lag.load(Ordering::Relaxed) {
            true => Some(stream.query_lag_exact(group)),
            false => stream.query_lag_estimated(group),
        };
        GroupView { name, group, lag }
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
            pending: self.group.pending().len(),
            released: self.group.pending().released_len(),
            consumers: consumers.collect(),
        }
    }
}
