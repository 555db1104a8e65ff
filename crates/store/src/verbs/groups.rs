//! Creating, moving and removing groups and consumers.

use std::iter;

use millstream_engine::stream::check_name;
use millstream_engine::{GroupStart, Refusal, Stream, StreamEffect, StreamId};

use super::lease::apply_release;
use super::{ConsumerPath, Verb};
use crate::store::MemoryPurpose;
use crate::txn::Txn;

/// Creates a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupCreate<B = Vec<u8>> {
    pub key: B,
    pub group: B,
    /// Where the group starts to read.
    pub start: GroupStart,
    /// Whether to create the stream if it does not exist.
    pub make_stream: bool,
    /// Number of entries that the group counts as read; `None` if unknown.
    pub entries_read: Option<u64>,
}

impl<B: AsRef<[u8]>> Verb for GroupCreate<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref());
        let new = Stream::new();
        let stream = match txn.stream(key)? {
            None if !self.make_stream => return Err(Refusal::GroupNeedsKey),
            stream => stream,
        };
        check_name(group)?;
        let found = stream.unwrap_or(&new);
        found.decide_group(group)?;
        let last_id = found.decide_group_start(self.start);
        let entries_read = found.decide_entries_read(self.entries_read);
        if stream.is_none() {
            txn.apply_stream(key, StreamEffect::Create);
        }
        txn.apply_stream(key, StreamEffect::GroupCreate { group, last_id, entries_read });
        Ok(())
    }
}

/// Moves a group to another position in its stream.
#[derive(Clone, Copy, Debug)]
pub struct GroupSetId<B = Vec<u8>> {
    pub key: B,
    pub group: B,
    /// Where the group continues to read.
    pub start: GroupStart,
    /// Number of entries that the group counts as read; `None` if unknown.
    pub entries_read: Option<u64>,
}

impl<B: AsRef<[u8]>> Verb for GroupSetId<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref());
        let (stream, _) = txn.existing_group(key, group)?;
        let last_id = stream.decide_group_start(self.start);
        let entries_read = stream.decide_entries_read(self.entries_read);
        txn.apply_stream(key, StreamEffect::GroupSetId { group, last_id, entries_read });
        Ok(())
    }
}

/// Sets the position of a group if it has not moved. Returns false, without any change, if it has.
#[derive(Clone, Copy, Debug)]
pub struct MoveGroup<B = Vec<u8>> {
    /// The position that the group must have.
    pub from: StreamId,
    /// The group and its new position.
    pub to: GroupSetId<B>,
}

impl<B: AsRef<[u8]>> Verb for MoveGroup<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.to.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let (_, group) = txn.existing_group(self.to.key.as_ref(), self.to.group.as_ref())?;
        if group.last_id() != self.from {
            return Ok(false);
        }
        self.to.run(txn).map(|()| true)
    }
}

/// Removes a group and its pending list. Returns false if the group does not exist.
#[derive(Clone, Copy, Debug)]
pub struct GroupDestroy<B = Vec<u8>> {
    pub key: B,
    pub group: B,
}

impl<B: AsRef<[u8]>> Verb for GroupDestroy<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref());
        let stream = txn.stream(key)?.ok_or(Refusal::GroupNeedsKey)?;
        let exists = stream.group(group).is_some();
        if exists {
            txn.apply_stream(key, StreamEffect::GroupDestroy { group });
        }
        Ok(exists)
    }
}

/// Creates a consumer; reading does that too. Returns false if the consumer already exists.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerCreate<B = Vec<u8>>(pub ConsumerPath<B>);

impl<B: AsRef<[u8]>> Verb for ConsumerCreate<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.0.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        txn.ensure_consumer(self.0.borrowed())
    }
}

/// Removes a consumer and its pending entries. Returns the number of removed pending entries.
///
/// In a group with a lease, the entries are released instead, so that other consumers get them. Released entries take
/// memory: if it is full, the consumer keeps those that are not released yet.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerDelete<B = Vec<u8>>(pub ConsumerPath<B>);

impl<B: AsRef<[u8]>> Verb for ConsumerDelete<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.0.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let ConsumerPath { key, group, consumer } = self.0.borrowed();
        let Some(pending) = pending_count(txn, self.0.borrowed())? else { return Ok(0) };
        let (_, found) = txn.existing_group(key, group)?;
        if found.rules().is_some() {
            check_release(txn, pending)?;
            let rows = found.query_owned(consumer, StreamId::MIN, usize::MAX);
            apply_release(txn, key, group, &rows);
        }
        txn.apply_stream(key, StreamEffect::ConsumerDelete { group, consumer });
        Ok(pending)
    }
}

/// Returns an error if memory has no room for this many released entries.
fn check_release(txn: &Txn<'_>, rows: u64) -> Result<(), Refusal> {
    match rows {
        0 => Ok(()),
        _ => txn.store().check_memory(MemoryPurpose::Consumers, rows.saturating_mul(RELEASED_BYTES)),
    }
}

/// Memory that a released entry takes at most, in its group and in the sets of released and final ones.
const RELEASED_BYTES: u64 = 128;

/// Maximum number of pending entries that one step of the removal of a consumer removes or releases.
const STEP_PENDING: usize = if cfg!(test) { 3 } else { 1000 };

/// What is left of the removal of a consumer in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerDeleteRest {
    /// The next step begins with this id.
    from: StreamId,
    /// Number of pending entries that the consumer had at the beginning and that no step has removed yet.
    left: u64,
}

impl<B: AsRef<[u8]>> ConsumerDelete<B> {
    /// Returns where [steps](ConsumerDelete::step) begin; `None` if the consumer has few pending entries or does not
    /// exist.
    pub fn needs_steps(&self, txn: &Txn<'_>) -> Result<Option<ConsumerDeleteRest>, Refusal> {
        let pending = pending_count(txn, self.0.borrowed())?.filter(|pending| *pending > STEP_PENDING as u64);
        Ok(pending.map(|left| ConsumerDeleteRest { from: StreamId::MIN, left }))
    }

    /// Does a part of the work, so that other clients can run in between: removes or releases some pending entries.
    /// Returns their number, and what is left; `None` after the last step, which removes the consumer.
    ///
    /// If the consumer reads all the time, the last step leaves it what it has read meanwhile.
    pub fn step(
        &mut self,
        txn: &mut Txn<'_>,
        ConsumerDeleteRest { from, left }: ConsumerDeleteRest,
    ) -> Result<(u64, Option<ConsumerDeleteRest>), Refusal> {
        if self.needs_steps(txn)?.is_none() {
            return Ok((self.run(txn)?, None));
        }
        let ConsumerPath { key, group, consumer } = self.0.borrowed();
        let (_, found) = txn.existing_group(key, group)?;
        let most = STEP_PENDING.min(usize::try_from(left).unwrap_or(usize::MAX));
        let rows = found.query_owned(consumer, from, most);
        let next = rows.last().filter(|_| rows.len() == most).and_then(|last| last.id.next());
        let count = match found.rules() {
            Some(_) => {
                check_release(txn, rows.len() as u64)?;
                apply_release(txn, key, group, &rows)
            }
            None => {
                let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
                txn.acknowledge(key, group, &ids)?.count.into()
            }
        };
        // The consumer can have read entries before `from` again.
        let from = next.unwrap_or(StreamId::MIN);
        let left = left.saturating_sub(rows.len() as u64);
        Ok((count, (left > 0).then_some(ConsumerDeleteRest { from, left })))
    }
}

/// Removes a consumer that has no pending entries. If it has some, returns false and does nothing.
#[derive(Clone, Copy, Debug)]
pub struct RemoveEmptyConsumer<B = Vec<u8>>(pub ConsumerPath<B>);

impl<B: AsRef<[u8]>> Verb for RemoveEmptyConsumer<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.0.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let is_empty = pending_count(txn, self.0.borrowed())?.is_none_or(|pending| pending == 0);
        if is_empty {
            ConsumerDelete(self.0.borrowed()).run(txn)?;
        }
        Ok(is_empty)
    }
}

/// Moves all pending entries of one consumer to another, and removes the first. Returns the number of moved entries.
///
/// Creates the other consumer if it does not exist and there are entries to move. If the first consumer does not
/// exist, nothing happens.
#[derive(Clone, Copy, Debug)]
pub struct Adopt<B = Vec<u8>> {
    /// The consumer to remove.
    pub from: ConsumerPath<B>,
    /// The name of the consumer that gets the entries.
    pub to: B,
}

impl<B: AsRef<[u8]>> Verb for Adopt<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.from.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let (ConsumerPath { key, group, consumer: from }, to) = (self.from.borrowed(), self.to.as_ref());
        let pending = pending_count(txn, self.from.borrowed())?;
        if from == to {
            return Err(Refusal::AdoptsItself);
        }
        let Some(pending) = pending else { return Ok(0) };
        if pending > 0 && txn.existing_group(key, group)?.1.consumer(to).is_none() {
            // No check of memory: one consumer takes the place of the other.
            check_name(to)?;
        }
        let at_ms = txn.now_ms();
        let effect = match pending {
            0 => StreamEffect::ConsumerDelete { group, consumer: from },
            _ => StreamEffect::Adopt { group, from, to, at_ms },
        };
        txn.apply_stream(key, effect);
        Ok(pending)
    }
}

/// Returns the number of pending entries of a consumer; `None` if it does not exist.
fn pending_count(txn: &Txn<'_>, path: ConsumerPath<&[u8]>) -> Result<Option<u64>, Refusal> {
    let (_, group) = txn.existing_group(path.key, path.group)?;
    Ok(group.consumer(path.consumer).map(|handle| group.consumer_at(handle).pending))
}
