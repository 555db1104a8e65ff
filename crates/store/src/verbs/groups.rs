//! Groups and consumers come and go.

use std::iter;

use millstream_engine::{GroupStart, Refusal, Stream, StreamEffect};

use super::{Reader, Verb};
use crate::txn::Txn;

/// Creates a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupCreate<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// From where it reads.
    pub start: GroupStart,
    /// Whether to make the stream if there is none.
    pub make_stream: bool,
    /// It counts as having read so many entries.
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
            Some(stream) if stream.group(group).is_some() => return Err(Refusal::GroupExists),
            stream => stream,
        };
        let found = stream.unwrap_or(&new);
        let last_id = found.decide_group_start(self.start);
        let entries_read = found.decide_entries_read(self.entries_read);
        if stream.is_none() {
            txn.apply_stream(key, StreamEffect::Create);
        }
        txn.apply_stream(key, StreamEffect::GroupCreate { group, last_id, entries_read });
        Ok(())
    }
}

/// Moves a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupSetId<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// From where it reads on.
    pub start: GroupStart,
    /// It counts as having read so many entries.
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

/// Ends a group and what it has pending. False if there was none.
#[derive(Clone, Copy, Debug)]
pub struct GroupDestroy<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
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
        let there = stream.group(group).is_some();
        if there {
            txn.apply_stream(key, StreamEffect::GroupDestroy { group });
        }
        Ok(there)
    }
}

/// Creates a consumer, which reading does too. False if it was there already.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerCreate<B = Vec<u8>>(pub Reader<B>);

impl<B: AsRef<[u8]>> Verb for ConsumerCreate<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.0.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let (Reader { key, group, consumer }, at_ms) = (self.0.lend(), txn.now_ms());
        let (_, found) = txn.existing_group(key, group)?;
        let is_new = found.consumer(consumer).is_none();
        if is_new {
            txn.apply_stream(key, StreamEffect::ConsumerCreate { group, consumer, at_ms });
        }
        Ok(is_new)
    }
}

/// Removes a consumer. Answers with how many pending entries went with it.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerDelete<B = Vec<u8>>(pub Reader<B>);

impl<B: AsRef<[u8]>> Verb for ConsumerDelete<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.0.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let Reader { key, group, consumer } = self.0.lend();
        let Some(pending) = pending_with(txn, self.0.lend())? else { return Ok(0) };
        txn.apply_stream(key, StreamEffect::ConsumerDelete { group, consumer });
        Ok(pending)
    }
}

/// Removes a consumer that has nothing pending. False if it has something, and stays.
#[derive(Clone, Copy, Debug)]
pub struct RemoveEmptyConsumer<B = Vec<u8>>(pub Reader<B>);

impl<B: AsRef<[u8]>> Verb for RemoveEmptyConsumer<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.0.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let is_empty = pending_with(txn, self.0.lend())?.is_none_or(|pending| pending == 0);
        if is_empty {
            ConsumerDelete(self.0.lend()).run(txn)?;
        }
        Ok(is_empty)
    }
}

/// Gives everything pending with one consumer to another, which joins if it is new; the first one is gone. Answers with
/// how many entries that were. If that is none, nobody joins; without such a consumer nothing happens.
#[derive(Clone, Copy, Debug)]
pub struct Adopt<B = Vec<u8>> {
    /// Who leaves.
    pub from: Reader<B>,
    /// The consumer that adopts.
    pub to: B,
}

impl<B: AsRef<[u8]>> Verb for Adopt<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.from.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let (Reader { key, group, consumer: from }, to) = (self.from.lend(), self.to.as_ref());
        let pending = pending_with(txn, self.from.lend())?;
        if from == to {
            return Err(Refusal::AdoptsItself);
        }
        let Some(pending) = pending else { return Ok(0) };
        let at_ms = txn.now_ms();
        let effect = match pending {
            0 => StreamEffect::ConsumerDelete { group, consumer: from },
            _ => StreamEffect::Adopt { group, from, to, at_ms },
        };
        txn.apply_stream(key, effect);
        Ok(pending)
    }
}

/// How many entries a consumer has pending; `None` if there is no such consumer.
fn pending_with(txn: &Txn<'_>, reader: Reader<&[u8]>) -> Result<Option<u64>, Refusal> {
    let (_, group) = txn.existing_group(reader.key, reader.group)?;
    Ok(group.consumer(reader.consumer).map(|handle| group.consumer_at(handle).pending))
}
