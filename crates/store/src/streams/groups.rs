//! Groups and consumers come and go.

use millstream_engine::stream::Group;
use millstream_engine::{GroupStart, Refusal, Stream, StreamEffect};

use super::Reader;
use crate::txn::Txn;

impl Txn<'_> {
    /// Begins a group.
    pub fn xgroup_create(
        &mut self,
        key: &[u8],
        group: &[u8],
        start: GroupStart,
        make_stream: bool,
        entries_read: Option<u64>,
    ) -> Result<(), Refusal> {
        let last_id = match self.stream(key)? {
            None if !make_stream => return Err(Refusal::GroupNeedsKey),
            None => {
                self.apply_stream(key, StreamEffect::Create);
                Stream::new().decide_group_start(start)
            }
            Some(stream) if stream.group(group).is_some() => return Err(Refusal::GroupExists),
            Some(stream) => stream.decide_group_start(start),
        };
        let entries_read = self.entries_read(key, entries_read)?;
        self.apply_stream(key, StreamEffect::GroupCreate { group, last_id, entries_read });
        Ok(())
    }

    /// Moves a group.
    pub fn xgroup_set_id(
        &mut self,
        key: &[u8],
        group: &[u8],
        start: GroupStart,
        entries_read: Option<u64>,
    ) -> Result<(), Refusal> {
        let (stream, _) = self.existing_group(key, group)?;
        let last_id = stream.decide_group_start(start);
        let entries_read = stream.decide_entries_read(entries_read);
        self.apply_stream(key, StreamEffect::GroupSetId { group, last_id, entries_read });
        Ok(())
    }

    /// Ends a group. False if there was none.
    pub fn xgroup_destroy(&mut self, key: &[u8], group: &[u8]) -> Result<bool, Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::GroupNeedsKey)?;
        if stream.group(group).is_none() {
            return Ok(false);
        }
        self.apply_stream(key, StreamEffect::GroupDestroy { group });
        Ok(true)
    }

    /// Makes a consumer. False if it was there already.
    pub fn xgroup_create_consumer(&mut self, reader: Reader<'_>) -> Result<bool, Refusal> {
        let (_, group) = self.existing_group(reader.key, reader.group)?;
        if group.consumer(reader.consumer).is_some() {
            return Ok(false);
        }
        let at_ms = self.now_ms();
        let effect = StreamEffect::ConsumerCreate { group: reader.group, consumer: reader.consumer, at_ms };
        self.apply_stream(reader.key, effect);
        Ok(true)
    }

    /// Removes a consumer. Returns how many pending entries went with it.
    pub fn xgroup_delete_consumer(&mut self, reader: Reader<'_>) -> Result<u64, Refusal> {
        let (_, group) = self.existing_group(reader.key, reader.group)?;
        let Some((_, _, consumer)) = group.consumers().find(|(name, ..)| *name == reader.consumer) else {
            return Ok(0);
        };
        let pending = consumer.pending;
        let effect = StreamEffect::ConsumerDelete { group: reader.group, consumer: reader.consumer };
        self.apply_stream(reader.key, effect);
        Ok(pending)
    }

    /// Takes a consumer's pending entries over to another, which joins if it is new; the first one is gone. Returns
    /// how many they were; without such a consumer nothing happens.
    pub fn xadopt(&mut self, from: Reader<'_>, to: &[u8]) -> Result<u64, Refusal> {
        let Reader { key, group, consumer } = from;
        let (_, found) = self.existing_group(key, group)?;
        if consumer == to {
            return Err(Refusal::AdoptsItself);
        }
        let Some(leaving) = found.consumer(consumer) else { return Ok(0) };
        let pending = found.consumer_at(leaving).pending;
        let at_ms = self.now_ms();
        self.apply_stream(key, StreamEffect::Adopt { group, from: consumer, to, at_ms });
        Ok(pending)
    }

    /// The group, or why there is none.
    pub fn group(&self, key: &[u8], group: &[u8]) -> Result<Option<&Group>, Refusal> {
        Ok(self.stream(key)?.and_then(|stream| stream.group(group)))
    }

    fn entries_read(&self, key: &[u8], asked: Option<u64>) -> Result<Option<u64>, Refusal> {
        Ok(self.stream(key)?.and_then(|stream| stream.decide_entries_read(asked)))
    }
}
