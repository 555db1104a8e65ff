//! What is known of a stream, its groups and their consumers.

use std::iter;
use std::time::Duration;

use millstream_engine::stream::{Group, IdempotenceInfo};
use millstream_engine::{Refusal, Stream, StreamId, Value};

use super::{Entry, Verb};
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
    /// Entries it has not delivered yet.
    pub lag: u64,
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
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        let groups = stream.groups().map(|(name, group)| group_info(stream, name, group, txn.now_ms()));
        Ok(StreamInfo {
            length: stream.len(),
            last_id: stream.last_id(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: stream.entries_added(),
            first: stream.first_entry().as_ref().map(Entry::from),
            last: stream.last_entry().as_ref().map(Entry::from),
            memory_bytes: stream.memory_bytes(),
            idempotence: txn.idempotence_info(stream),
            groups: groups.collect(),
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
        Ok(group_info(stream, self.group.as_ref(), group, txn.now_ms()))
    }
}

fn group_info(stream: &Stream, name: &[u8], group: &Group, now_ms: u64) -> GroupInfo {
    let since = |at_ms: u64| Duration::from_millis(now_ms.saturating_sub(at_ms));
    let consumers = group.consumers().map(|(name, _, consumer)| ConsumerInfo {
        name: name.to_vec(),
        pending: consumer.pending,
        idle: since(consumer.seen_at_ms),
        inactive: consumer.active_at_ms.map(since),
    });
    GroupInfo {
        name: name.to_vec(),
        last_id: group.last_id(),
        entries_read: group.entries_read(),
        lag: stream.query_lag_exact(group),
        pending: group.pending().len(),
        released: group.pending().released_len(),
        consumers: consumers.collect(),
    }
}
