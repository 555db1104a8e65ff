//! What is known of a stream, its groups and their consumers.

use std::iter;
use std::time::Duration;

use millstream_engine::stream::Group;
use millstream_engine::{Refusal, Stream, Value};

use super::{Call, Command, ConsumerInfo, Entry, Error, GroupInfo, Millstream, StreamInfo, owned};
use crate::txn::Txn;

impl Millstream {
    /// The names of all streams, in order.
    pub fn streams(&self) -> Call<ListStreams> {
        self.call(ListStreams)
    }

    /// What is known of a stream, its groups and their consumers.
    pub fn stream_info(&self, key: impl AsRef<[u8]>) -> Call<DescribeStream> {
        self.call(DescribeStream { key: owned(key) })
    }
}

/// See [`Millstream::streams`].
#[derive(Clone, Debug)]
pub struct ListStreams;

impl Command for ListStreams {
    type Output = Vec<Vec<u8>>;
    const CHANGES: bool = false;
    const EVERYTHING: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::empty()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Vec<u8>>, Error> {
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

/// See [`Millstream::stream_info`].
#[derive(Clone, Debug)]
pub struct DescribeStream {
    key: Vec<u8>,
}

impl Command for DescribeStream {
    type Output = StreamInfo;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamInfo, Error> {
        let stream = txn.stream(&self.key).and_then(|stream| stream.ok_or(Refusal::NoSuchKey));
        let stream = stream.map_err(Error::refused(&self.key))?;
        let now_ms = txn.now_ms();
        Ok(StreamInfo {
            length: stream.len(),
            last_id: stream.last_id(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: stream.entries_added(),
            first: stream.first_entry().as_ref().map(Entry::from),
            last: stream.last_entry().as_ref().map(Entry::from),
            memory_bytes: stream.memory_bytes(),
            idempotence: txn.idempotence_info(stream),
            groups: stream
                .groups()
                .map(|(name, group)| describe_group(stream, name, group, now_ms))
                .collect(),
        })
    }
}

fn describe_group(stream: &Stream, name: &[u8], group: &Group, now_ms: u64) -> GroupInfo {
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
