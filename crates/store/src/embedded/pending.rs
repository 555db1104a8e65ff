//! Pending entries: acknowledged, counted, listed.

use std::iter;
use std::ops::RangeBounds;
use std::time::Duration;

use millstream_engine::stream::{Group, IdRange, PendingQuery};
use millstream_engine::{Refusal, StreamId};

use super::range::id_range;
use super::{Call, Command, Error, Millstream, PendingRow, PendingSummary, owned};
use crate::txn::Txn;

impl Millstream {
    /// Acknowledges entries and answers with how many of them were pending.
    pub fn ack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Ack> {
        self.call(Ack { key: owned(key), group: owned(group), ids: ids.into_iter().collect() })
    }

    /// How much a group has pending, and with whom.
    pub fn pending(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<Pending> {
        self.call(Pending { key: owned(key), group: owned(group) })
    }

    /// The pending entries of a group, by id.
    pub fn pending_rows(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<PendingRows> {
        self.call(PendingRows {
            key: owned(key),
            group: owned(group),
            ids: Some(IdRange::ALL),
            consumer: None,
            min_idle: Duration::ZERO,
            count: u64::MAX,
        })
    }
}

/// See [`Millstream::ack`].
#[derive(Clone, Debug)]
pub struct Ack {
    key: Vec<u8>,
    group: Vec<u8>,
    ids: Vec<StreamId>,
}

impl Command for Ack {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xack(&self.key, &self.group, &self.ids).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::pending`].
#[derive(Clone, Debug)]
pub struct Pending {
    key: Vec<u8>,
    group: Vec<u8>,
}

impl Command for Pending {
    type Output = PendingSummary;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<PendingSummary, Error> {
        let group = existing_group(txn, &self.key, &self.group)?;
        let pending = group.pending();
        let owners = group.consumers().filter(|(_, _, consumer)| consumer.pending > 0);
        Ok(PendingSummary {
            count: pending.len(),
            ids: pending.first().zip(pending.last()).map(|(first, last)| (first.id, last.id)),
            consumers: owners.map(|(name, _, consumer)| (name.to_vec(), consumer.pending)).collect(),
        })
    }
}

/// See [`Millstream::pending_rows`].
#[derive(Clone, Debug)]
pub struct PendingRows {
    key: Vec<u8>,
    group: Vec<u8>,
    ids: Option<IdRange>,
    consumer: Option<Vec<u8>>,
    min_idle: Duration,
    count: u64,
}

impl Call<PendingRows> {
    /// Only these ids.
    pub fn range(mut self, ids: impl RangeBounds<StreamId>) -> Self {
        self.command.ids = id_range(&ids);
        self
    }

    /// Only what is pending with this consumer.
    pub fn consumer(mut self, consumer: impl AsRef<[u8]>) -> Self {
        self.command.consumer = Some(owned(consumer));
        self
    }

    /// Only what was delivered at least this long ago, or given back.
    pub fn min_idle(mut self, idle: Duration) -> Self {
        self.command.min_idle = idle;
        self
    }

    /// At most so many.
    pub fn count(mut self, count: u64) -> Self {
        self.command.count = count;
        self
    }
}

impl Command for PendingRows {
    type Output = Vec<PendingRow>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<PendingRow>, Error> {
        let group = existing_group(txn, &self.key, &self.group)?;
        let now_ms = txn.now_ms();
        let mut rows = Vec::new();
        let Some(ids) = self.ids else { return Ok(rows) };
        let (consumer, min_idle_ms) = (self.consumer.as_deref(), millis(self.min_idle));
        let query = PendingQuery { ids, consumer, min_idle_ms, count: self.count };
        group.visit_pending(&query, now_ms, |row| {
            rows.push(PendingRow {
                id: row.id,
                consumer: row.consumer.map(<[u8]>::to_vec),
                idle: row.idle_ms.map(Duration::from_millis),
                deliveries: row.deliveries,
            });
        });
        Ok(rows)
    }
}

fn existing_group<'t>(txn: &'t Txn<'_>, key: &[u8], group: &[u8]) -> Result<&'t Group, Error> {
    let found = txn.group(key, group).and_then(|group| group.ok_or(Refusal::NoGroup));
    found.map_err(Error::refused(key))
}

/// Milliseconds, as many as there can be.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
