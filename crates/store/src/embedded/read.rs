//! Reading on: what comes after an id, and what a group has for a consumer. Both can wait.

use std::time::Duration;

use millstream_engine::stream::IdRange;
use millstream_engine::{Refusal, StreamId};

use super::range::collect;
use super::{Batch, Call, Command, Entry, Error, Millstream, Patience, StreamBatch, owned};
use crate::queues::Interest;
use crate::streams::Reader;
use crate::txn::Txn;

impl Millstream {
    /// Entries after a place in a stream; of several streams with `.and(…)`.
    pub fn read(&self, key: impl AsRef<[u8]>, from: ReadFrom) -> Call<Read> {
        self.call(Read { streams: vec![(owned(key), from)], count: None, block: None })
    }

    /// Entries that the group has delivered to nobody yet. They become pending with the consumer, which joins if it is
    /// new, until they are acknowledged.
    pub fn read_group(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ReadGroup> {
        self.call(ReadGroup {
            keys: vec![owned(key)],
            group: owned(group),
            consumer: owned(consumer),
            history_after: None,
            acknowledge: true,
            count: None,
            block: None,
        })
    }
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// After this id.
    After(StreamId),
    /// After the last entry at the moment the call begins.
    Last,
    /// With the last entry, whatever it is.
    LastEntry,
}

/// See [`Millstream::read`].
#[derive(Clone, Debug)]
pub struct Read {
    streams: Vec<(Vec<u8>, ReadFrom)>,
    count: Option<u64>,
    block: Option<Duration>,
}

impl Call<Read> {
    /// And of this stream.
    pub fn and(mut self, key: impl AsRef<[u8]>, from: ReadFrom) -> Self {
        self.command.streams.push((owned(key), from));
        self
    }

    /// At most so many of each stream.
    pub fn count(mut self, count: u64) -> Self {
        self.command.count = Some(count);
        self
    }

    /// Waits this long for something to read, and then answers with an empty batch. [`Duration::MAX`] is for ever.
    pub fn block(mut self, at_most: Duration) -> Self {
        self.command.block = Some(at_most);
        self
    }
}

impl Command for Read {
    type Output = Batch;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.streams.iter().map(|(key, _)| &**key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        for (key, from) in &mut self.streams {
            let stream = txn.stream(key).map_err(Error::refused(key))?;
            let after = match (*from, stream) {
                (ReadFrom::After(id), _) => id,
                (_, None) => StreamId::MIN,
                (ReadFrom::Last, Some(stream)) => stream.last_id(),
                (ReadFrom::LastEntry, Some(stream)) => stream.last_entry_id().prev().unwrap_or(StreamId::MIN),
            };
            if *from == ReadFrom::Last {
                // What comes after this moment is new, however often the command is run again.
                *from = ReadFrom::After(after);
            }
            let (Some(stream), Some(ids)) = (stream, IdRange::after(after)) else { continue };
            let mut entries = Vec::new();
            stream.visit_range(ids, self.count, &mut collect(&mut entries));
            if !entries.is_empty() {
                batch.streams.push(StreamBatch { key: key.clone(), entries, gone: Vec::new() });
            }
        }
        Ok(batch)
    }

    fn patience(&self, batch: &Batch) -> Option<Patience> {
        let at_most = self.block.filter(|_| batch.is_empty())?;
        let interests = self.streams.iter().map(|(key, _)| (key.as_slice().into(), Interest::Entries));
        Some(Patience { interests: interests.collect(), at_most })
    }
}

/// See [`Millstream::read_group`].
#[derive(Clone, Debug)]
pub struct ReadGroup {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) group: Vec<u8>,
    pub(super) consumer: Vec<u8>,
    history_after: Option<StreamId>,
    pub(super) acknowledge: bool,
    pub(super) count: Option<u64>,
    pub(super) block: Option<Duration>,
}

impl Call<ReadGroup> {
    /// And of this stream, where the group has the same name.
    pub fn and(mut self, key: impl AsRef<[u8]>) -> Self {
        self.command.keys.push(owned(key));
        self
    }

    /// At most so many of each stream.
    pub fn count(mut self, count: u64) -> Self {
        self.command.count = Some(count);
        self
    }

    /// Waits this long for something to read, and then answers with an empty batch. [`Duration::MAX`] is for ever.
    /// History is there or not: it is never waited for.
    pub fn block(mut self, at_most: Duration) -> Self {
        self.command.block = Some(at_most);
        self
    }

    /// Instead of new entries, those pending with the consumer beyond this id: what it must do first after a restart.
    pub fn history(mut self, after: StreamId) -> Self {
        self.command.history_after = Some(after);
        self
    }

    /// Entries do not become pending: each is delivered once, and lost if the consumer fails.
    pub fn no_ack(mut self) -> Self {
        self.command.acknowledge = false;
        self
    }
}

impl ReadGroup {
    /// Every stream is looked at before any is read.
    pub(super) fn check_groups(&self, txn: &Txn<'_>) -> Result<(), Error> {
        for key in &self.keys {
            let group = txn.group(key, &self.group).and_then(|group| group.ok_or(Refusal::NoGroup));
            group.map_err(Error::refused(key))?;
        }
        Ok(())
    }

    fn read_one(&self, txn: &mut Txn<'_>, key: &[u8]) -> Result<StreamBatch, Refusal> {
        let reader = Reader { key, group: &self.group, consumer: &self.consumer };
        let (mut entries, mut gone) = (Vec::new(), Vec::new());
        match self.history_after {
            None => {
                txn.xreadgroup_new(reader, self.count, self.acknowledge, &mut collect(&mut entries))?;
            }
            Some(after) => {
                txn.xreadgroup_history(reader, after, self.count, |id, entry| match entry {
                    Some(entry) => entries.push(Entry::from(entry)),
                    None => gone.push(id),
                })?;
            }
        }
        Ok(StreamBatch { key: key.to_vec(), entries, gone })
    }
}

impl Command for ReadGroup {
    type Output = Batch;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Batch, Error> {
        self.check_groups(txn)?;
        let mut batch = Batch::default();
        for key in &self.keys {
            let read = self.read_one(txn, key).map_err(Error::refused(key))?;
            if !read.entries.is_empty() || !read.gone.is_empty() {
                batch.streams.push(read);
            }
        }
        Ok(batch)
    }

    fn patience(&self, batch: &Batch) -> Option<Patience> {
        let at_most = self.block.filter(|_| batch.is_empty() && self.history_after.is_none())?;
        let interest = Interest::Group(self.group.as_slice().into());
        let interests = self.keys.iter().map(|key| (key.as_slice().into(), interest.clone()));
        Some(Patience { interests: interests.collect(), at_most })
    }
}
