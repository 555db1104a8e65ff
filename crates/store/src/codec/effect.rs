//! Changes as bytes, one tag a variant.
//!
//! ```text
//! texts := count:number  text…
//! pairs := count:number  (text text)…
//! ids   := count:number  step…      step := ms:signed  (seq:signed within a millisecond | seq:number)
//! rows  := count:number  (step  delivered_at_ms:signed from the row before  deliveries:number)…
//! given := count:number  (step  deliveries:number)…
//! ```
//!
//! The first step is from 0-0. A time beside an id is written as its distance from the id's milliseconds:
//! entries are delivered soon after they were added.

use millstream_engine::{
    ClaimedRow, Effect, KeyPlace, ListEnd, Rearrangement, ReleasedRow, StreamEffect, StreamId,
};
use smallvec::SmallVec;

use super::entries::{NextValue, put_entry};
use super::wire::{CodecError, Reader, put_id, put_number, put_optional, put_step, put_text};

/// What a change begins with. A number is never given to another variant.
pub(super) mod tag {
    pub(super) const DELETE: u8 = 1;
    pub(super) const EXPIRE_AT: u8 = 2;
    pub(super) const PERSIST: u8 = 3;
    pub(super) const STRING_SET: u8 = 4;
    pub(super) const STRING_SET_EXPIRING: u8 = 5;
    pub(super) const STRING_APPEND: u8 = 6;
    pub(super) const HASH_SET: u8 = 7;
    pub(super) const HASH_DELETE: u8 = 8;
    pub(super) const LIST_PUSH_HEAD: u8 = 9;
    pub(super) const LIST_PUSH_TAIL: u8 = 10;
    pub(super) const LIST_POP_HEAD: u8 = 11;
    pub(super) const LIST_POP_TAIL: u8 = 12;
    pub(super) const SET_ADD: u8 = 13;
    pub(super) const SET_REMOVE: u8 = 14;

    pub(super) const STREAM_CREATE: u8 = 32;
    pub(in crate::codec) const APPEND: u8 = 33;
    pub(super) const TRIM_THROUGH: u8 = 34;
    pub(super) const DELETE_ENTRIES: u8 = 35;
    pub(super) const SET_ID: u8 = 36;
    pub(super) const GROUP_CREATE: u8 = 37;
    pub(super) const GROUP_SET_ID: u8 = 38;
    pub(super) const GROUP_DESTROY: u8 = 39;
    pub(super) const CONSUMER_CREATE: u8 = 40;
    pub(super) const CONSUMER_DELETE: u8 = 41;
    pub(super) const CONSUMER_SEEN: u8 = 42;
    pub(super) const DELIVER_PENDING: u8 = 43;
    pub(super) const DELIVER_FOR_GOOD: u8 = 44;
    pub(super) const REDELIVER: u8 = 45;
    pub(super) const ACK: u8 = 46;
    pub(super) const CLAIM: u8 = 47;
    pub(super) const TRIM_ENTRIES: u8 = 48;
    pub(super) const FORGET: u8 = 49;
    pub(super) const RELEASE: u8 = 50;
    pub(super) const ADOPT: u8 = 51;
    pub(super) const IDEMPOTENCE_CONFIGURE: u8 = 52;
    pub(super) const REMEMBER: u8 = 53;
    pub(super) const REPEAT: u8 = 54;
    // 55 had another form of what 56 is, before there was a release.
    pub(in crate::codec) const APPEND_NEXT: u8 = 56;

    pub(super) const MOVE: u8 = 64;
    pub(super) const COPY: u8 = 65;
    pub(super) const SWAP: u8 = 66;
    pub(super) const CLEAR: u8 = 67;
}

/// One change of a record.
pub(crate) enum RecordedChange<'a> {
    /// What lives under a key changes.
    Key { db: u32, key: &'a [u8], effect: Effect<'a> },
    /// Values change places, or databases do.
    Rearrange(Rearrangement<'a>),
}

// ---- Writing ------------------------------------------------------------------------------------

/// Appends a change to one key.
pub(crate) fn put_change(out: &mut Vec<u8>, db: u32, key: &[u8], effect: &Effect<'_>) {
    if let Effect::Stream(StreamEffect::Append { id, fields }) = *effect {
        return put_entry(&mut None, out, (db, key), (id, fields), None);
    }
    out.push(tag_of(effect));
    put_place(out, KeyPlace { db, key });
    match *effect {
        Effect::Delete | Effect::Persist => {}
        Effect::ExpireAt { at_ms } => put_number(out, at_ms),
        Effect::StringSet { value, expires_at_ms } => {
            put_text(out, value);
            expires_at_ms.into_iter().for_each(|at_ms| put_number(out, at_ms));
        }
        Effect::StringAppend { tail } => put_text(out, tail),
        Effect::HashSet { pairs } => put_pairs(out, pairs),
        Effect::HashDelete { fields: texts }
        | Effect::ListPush { values: texts, .. }
        | Effect::SetAdd { members: texts }
        | Effect::SetRemove { members: texts } => put_texts(out, texts),
        Effect::ListPop { count, .. } => put_number(out, count),
        Effect::Stream(ref effect) => put_stream_effect(out, effect),
    }
}

/// Appends a change of places.
pub(crate) fn put_rearrangement(out: &mut Vec<u8>, change: &Rearrangement<'_>) {
    match *change {
        Rearrangement::Move(from, to) => {
            out.push(tag::MOVE);
            put_place(out, from);
            put_place(out, to);
        }
        Rearrangement::Copy(from, to) => {
            out.push(tag::COPY);
            put_place(out, from);
            put_place(out, to);
        }
        Rearrangement::Swap(a, b) => {
            out.push(tag::SWAP);
            put_number(out, u64::from(a));
            put_number(out, u64::from(b));
        }
        Rearrangement::Clear(db) => {
            out.push(tag::CLEAR);
            put_number(out, u64::from(db));
        }
    }
}

fn tag_of(effect: &Effect<'_>) -> u8 {
    match effect {
        Effect::Delete => tag::DELETE,
        Effect::ExpireAt { .. } => tag::EXPIRE_AT,
        Effect::Persist => tag::PERSIST,
        Effect::StringSet { expires_at_ms: None, .. } => tag::STRING_SET,
        Effect::StringSet { expires_at_ms: Some(_), .. } => tag::STRING_SET_EXPIRING,
        Effect::StringAppend { .. } => tag::STRING_APPEND,
        Effect::HashSet { .. } => tag::HASH_SET,
        Effect::HashDelete { .. } => tag::HASH_DELETE,
        Effect::ListPush { end: ListEnd::Head, .. } => tag::LIST_PUSH_HEAD,
        Effect::ListPush { end: ListEnd::Tail, .. } => tag::LIST_PUSH_TAIL,
        Effect::ListPop { end: ListEnd::Head, .. } => tag::LIST_POP_HEAD,
        Effect::ListPop { end: ListEnd::Tail, .. } => tag::LIST_POP_TAIL,
        Effect::SetAdd { .. } => tag::SET_ADD,
        Effect::SetRemove { .. } => tag::SET_REMOVE,
        Effect::Stream(effect) => stream_tag_of(effect),
    }
}

fn stream_tag_of(effect: &StreamEffect<'_>) -> u8 {
    match effect {
        StreamEffect::Create => tag::STREAM_CREATE,
        StreamEffect::Append { .. } => tag::APPEND,
        StreamEffect::TrimThrough { .. } => tag::TRIM_THROUGH,
        StreamEffect::DeleteEntries { .. } => tag::DELETE_ENTRIES,
        StreamEffect::SetId { .. } => tag::SET_ID,
        StreamEffect::GroupCreate { .. } => tag::GROUP_CREATE,
        StreamEffect::GroupSetId { .. } => tag::GROUP_SET_ID,
        StreamEffect::GroupDestroy { .. } => tag::GROUP_DESTROY,
        StreamEffect::ConsumerCreate { .. } => tag::CONSUMER_CREATE,
        StreamEffect::ConsumerDelete { .. } => tag::CONSUMER_DELETE,
        StreamEffect::ConsumerSeen { .. } => tag::CONSUMER_SEEN,
        StreamEffect::Deliver { pending: true, .. } => tag::DELIVER_PENDING,
        StreamEffect::Deliver { pending: false, .. } => tag::DELIVER_FOR_GOOD,
        StreamEffect::Redeliver { .. } => tag::REDELIVER,
        StreamEffect::Ack { .. } => tag::ACK,
        StreamEffect::Claim { .. } => tag::CLAIM,
        StreamEffect::TrimEntries { .. } => tag::TRIM_ENTRIES,
        StreamEffect::Forget { .. } => tag::FORGET,
        StreamEffect::Release { .. } => tag::RELEASE,
        StreamEffect::Adopt { .. } => tag::ADOPT,
        StreamEffect::IdempotenceConfigure { .. } => tag::IDEMPOTENCE_CONFIGURE,
        StreamEffect::Remember { .. } => tag::REMEMBER,
        StreamEffect::Repeat => tag::REPEAT,
    }
}

fn put_stream_effect(out: &mut Vec<u8>, effect: &StreamEffect<'_>) {
    match *effect {
        StreamEffect::Append { .. } => unreachable!("an entry is put as a whole"),
        StreamEffect::Create | StreamEffect::Repeat => {}
        StreamEffect::TrimThrough { last } => put_id(out, last),
        StreamEffect::TrimEntries { ids }
        | StreamEffect::DeleteEntries { ids }
        | StreamEffect::Forget { ids } => put_ids(out, ids),
        StreamEffect::SetId { last_id, entries_added, max_deleted_id } => {
            put_id(out, last_id);
            put_optional(out, entries_added);
            out.push(u8::from(max_deleted_id.is_some()));
            max_deleted_id.into_iter().for_each(|id| put_id(out, id));
        }
        StreamEffect::GroupCreate { group, last_id, entries_read }
        | StreamEffect::GroupSetId { group, last_id, entries_read } => {
            put_text(out, group);
            put_id(out, last_id);
            put_optional(out, entries_read);
        }
        StreamEffect::GroupDestroy { group } => put_text(out, group),
        StreamEffect::ConsumerDelete { group, consumer } => {
            put_text(out, group);
            put_text(out, consumer);
        }
        StreamEffect::ConsumerCreate { group, consumer, at_ms }
        | StreamEffect::ConsumerSeen { group, consumer, at_ms } => {
            put_text(out, group);
            put_text(out, consumer);
            put_number(out, at_ms);
        }
        StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: _ } => {
            put_text(out, group);
            put_text(out, consumer);
            put_id(out, last);
            put_number(out, count);
            put_step(out, last.ms, at_ms);
        }
        StreamEffect::Redeliver { group, consumer, ids, at_ms } => {
            put_text(out, group);
            put_text(out, consumer);
            put_number(out, at_ms);
            put_ids(out, ids);
        }
        StreamEffect::Ack { group, ids } => {
            put_text(out, group);
            put_ids(out, ids);
        }
        StreamEffect::Claim { group, consumer, rows, at_ms } => {
            put_text(out, group);
            put_text(out, consumer);
            put_number(out, at_ms);
            put_rows(out, rows, at_ms);
        }
        StreamEffect::Release { group, rows } => {
            put_text(out, group);
            put_released(out, rows);
        }
        StreamEffect::Adopt { group, from, to, at_ms } => {
            put_text(out, group);
            put_text(out, from);
            put_text(out, to);
            put_number(out, at_ms);
        }
        StreamEffect::IdempotenceConfigure { duration_s, max_size } => {
            put_number(out, duration_s);
            put_number(out, max_size);
        }
        StreamEffect::Remember { producer, iid, id, at_ms } => {
            put_text(out, producer);
            put_text(out, iid);
            put_id(out, id);
            put_step(out, id.ms, at_ms);
        }
    }
}

fn put_place(out: &mut Vec<u8>, place: KeyPlace<'_>) {
    put_number(out, u64::from(place.db));
    put_text(out, place.key);
}

fn put_texts(out: &mut Vec<u8>, texts: &[&[u8]]) {
    put_number(out, texts.len() as u64);
    texts.iter().for_each(|text| put_text(out, text));
}

fn put_pairs(out: &mut Vec<u8>, pairs: &[&[u8]]) {
    debug_assert!(pairs.len().is_multiple_of(2));
    put_number(out, pairs.len() as u64 / 2);
    pairs.iter().for_each(|text| put_text(out, text));
}

fn put_ids(out: &mut Vec<u8>, ids: &[StreamId]) {
    put_number(out, ids.len() as u64);
    let mut before = StreamId::MIN;
    for &id in ids {
        put_id_step(out, before, id);
        before = id;
    }
}

fn put_id_step(out: &mut Vec<u8>, before: StreamId, id: StreamId) {
    put_step(out, before.ms, id.ms);
    match id.ms == before.ms {
        true => put_step(out, before.seq, id.seq),
        false => put_number(out, id.seq),
    }
}

fn put_rows(out: &mut Vec<u8>, rows: &[ClaimedRow], at_ms: u64) {
    put_number(out, rows.len() as u64);
    let mut before = ClaimedRow { id: StreamId::MIN, delivered_at_ms: at_ms, deliveries: 0 };
    for row in rows {
        put_id_step(out, before.id, row.id);
        put_step(out, before.delivered_at_ms, row.delivered_at_ms);
        put_number(out, row.deliveries);
        before = *row;
    }
}

fn put_released(out: &mut Vec<u8>, rows: &[ReleasedRow]) {
    put_number(out, rows.len() as u64);
    let mut before = StreamId::MIN;
    for row in rows {
        put_id_step(out, before, row.id);
        put_number(out, row.deliveries);
        before = row.id;
    }
}

// ---- Reading ------------------------------------------------------------------------------------

/// Hands every change of a record to `visit`, in order. An error comes after the changes before it have been
/// visited.
pub(crate) fn replay(payload: &[u8], visit: &mut impl FnMut(RecordedChange<'_>)) -> Result<(), CodecError> {
    let mut reader = Reader::new(payload);
    let mut scratch = Scratch::default();
    while reader.left() > 0 {
        read_change(&mut reader, &mut scratch, visit)?;
    }
    Ok(())
}

/// Where the lists of a change are put together. Kept from change to change.
#[derive(Default)]
struct Scratch<'p> {
    texts: SmallVec<[&'p [u8]; 16]>,
    ids: SmallVec<[StreamId; 16]>,
    rows: SmallVec<[ClaimedRow; 4]>,
    released: SmallVec<[ReleasedRow; 4]>,
    values: SmallVec<[NextValue<'p>; 8]>,
    /// Where an entry was added, if that is what the change before did. Its names are still in `texts`.
    entry: Option<(KeyPlace<'p>, StreamId)>,
}

fn read_change<'p>(
    reader: &mut Reader<'p>,
    scratch: &mut Scratch<'p>,
    visit: &mut impl FnMut(RecordedChange<'_>),
) -> Result<(), CodecError> {
    let begin = reader.clone();
    let entry = scratch.entry.take();
    let change = match reader.byte()? {
        tag::APPEND => return scratch.read_entry(read_place(reader)?, reader, visit),
        tag::APPEND_NEXT => {
            let after = entry.and_then(|(place, id)| Some((place, id.next()?)));
            let (place, id) = after.ok_or(begin.error("no entry comes before"))?;
            return scratch.read_next_entry(place, id, reader, visit);
        }
        tag::MOVE => Rearrangement::Move(read_place(reader)?, read_place(reader)?),
        tag::COPY => Rearrangement::Copy(read_place(reader)?, read_place(reader)?),
        tag::SWAP => Rearrangement::Swap(reader.small_number()?, reader.small_number()?),
        tag::CLEAR => Rearrangement::Clear(reader.small_number()?),
        tag => {
            let KeyPlace { db, key } = read_place(reader)?;
            let effect = read_effect(tag, reader, scratch)?
                .ok_or(begin.error("a kind of change that this version does not know"))?;
            visit(RecordedChange::Key { db, key, effect });
            return Ok(());
        }
    };
    visit(RecordedChange::Rearrange(change));
    Ok(())
}

/// What follows the key. `None`: there is no such tag.
fn read_effect<'a, 'p: 'a>(
    tag: u8,
    reader: &mut Reader<'p>,
    scratch: &'a mut Scratch<'p>,
) -> Result<Option<Effect<'a>>, CodecError> {
    Ok(Some(match tag {
        tag::DELETE => Effect::Delete,
        tag::EXPIRE_AT => Effect::ExpireAt { at_ms: reader.number()? },
        tag::PERSIST => Effect::Persist,
        tag::STRING_SET => Effect::StringSet { value: reader.text()?, expires_at_ms: None },
        tag::STRING_SET_EXPIRING => {
            Effect::StringSet { value: reader.text()?, expires_at_ms: Some(reader.number()?) }
        }
        tag::STRING_APPEND => Effect::StringAppend { tail: reader.text()? },
        tag::HASH_SET => Effect::HashSet { pairs: scratch.read_pairs(reader)? },
        tag::HASH_DELETE => Effect::HashDelete { fields: scratch.read_texts(reader)? },
        tag::LIST_PUSH_HEAD => Effect::ListPush { end: ListEnd::Head, values: scratch.read_texts(reader)? },
        tag::LIST_PUSH_TAIL => Effect::ListPush { end: ListEnd::Tail, values: scratch.read_texts(reader)? },
        tag::LIST_POP_HEAD => Effect::ListPop { end: ListEnd::Head, count: reader.number()? },
        tag::LIST_POP_TAIL => Effect::ListPop { end: ListEnd::Tail, count: reader.number()? },
        tag::SET_ADD => Effect::SetAdd { members: scratch.read_texts(reader)? },
        tag::SET_REMOVE => Effect::SetRemove { members: scratch.read_texts(reader)? },
        _ => return Ok(read_stream_effect(tag, reader, scratch)?.map(Effect::Stream)),
    }))
}

fn read_stream_effect<'a, 'p: 'a>(
    tag: u8,
    reader: &mut Reader<'p>,
    scratch: &'a mut Scratch<'p>,
) -> Result<Option<StreamEffect<'a>>, CodecError> {
    // The fields of a variant are read in the order in which they are named here.
    Ok(Some(match tag {
        tag::STREAM_CREATE => StreamEffect::Create,
        tag::TRIM_THROUGH => StreamEffect::TrimThrough { last: reader.id()? },
        tag::DELETE_ENTRIES => StreamEffect::DeleteEntries { ids: scratch.read_ids(reader)? },
        tag::SET_ID => StreamEffect::SetId {
            last_id: reader.id()?,
            entries_added: reader.optional()?,
            max_deleted_id: if reader.flag()? { Some(reader.id()?) } else { None },
        },
        tag::GROUP_CREATE => StreamEffect::GroupCreate {
            group: reader.text()?,
            last_id: reader.id()?,
            entries_read: reader.optional()?,
        },
        tag::GROUP_SET_ID => StreamEffect::GroupSetId {
            group: reader.text()?,
            last_id: reader.id()?,
            entries_read: reader.optional()?,
        },
        tag::GROUP_DESTROY => StreamEffect::GroupDestroy { group: reader.text()? },
        tag::TRIM_ENTRIES => StreamEffect::TrimEntries { ids: scratch.read_ids(reader)? },
        tag::FORGET => StreamEffect::Forget { ids: scratch.read_ids(reader)? },
        tag::IDEMPOTENCE_CONFIGURE => {
            StreamEffect::IdempotenceConfigure { duration_s: reader.number()?, max_size: reader.number()? }
        }
        tag::REMEMBER => {
            let (producer, iid, id) = (reader.text()?, reader.text()?, reader.id()?);
            StreamEffect::Remember { producer, iid, id, at_ms: reader.step(id.ms)? }
        }
        tag::REPEAT => StreamEffect::Repeat,
        _ => return read_consumer_effect(tag, reader, scratch),
    }))
}

fn read_consumer_effect<'a, 'p: 'a>(
    tag: u8,
    reader: &mut Reader<'p>,
    scratch: &'a mut Scratch<'p>,
) -> Result<Option<StreamEffect<'a>>, CodecError> {
    Ok(Some(match tag {
        tag::CONSUMER_CREATE => StreamEffect::ConsumerCreate {
            group: reader.text()?,
            consumer: reader.text()?,
            at_ms: reader.number()?,
        },
        tag::CONSUMER_DELETE => {
            StreamEffect::ConsumerDelete { group: reader.text()?, consumer: reader.text()? }
        }
        tag::CONSUMER_SEEN => StreamEffect::ConsumerSeen {
            group: reader.text()?,
            consumer: reader.text()?,
            at_ms: reader.number()?,
        },
        tag::DELIVER_PENDING | tag::DELIVER_FOR_GOOD => {
            let (group, consumer) = (reader.text()?, reader.text()?);
            let (last, count) = (reader.id()?, reader.number()?);
            let (at_ms, pending) = (reader.step(last.ms)?, tag == tag::DELIVER_PENDING);
            StreamEffect::Deliver { group, consumer, last, count, at_ms, pending }
        }
        tag::REDELIVER => {
            let (group, consumer, at_ms) = (reader.text()?, reader.text()?, reader.number()?);
            StreamEffect::Redeliver { group, consumer, ids: scratch.read_ids(reader)?, at_ms }
        }
        tag::ACK => StreamEffect::Ack { group: reader.text()?, ids: scratch.read_ids(reader)? },
        tag::CLAIM => {
            let (group, consumer, at_ms) = (reader.text()?, reader.text()?, reader.number()?);
            StreamEffect::Claim { group, consumer, rows: scratch.read_rows(reader, at_ms)?, at_ms }
        }
        tag::RELEASE => StreamEffect::Release { group: reader.text()?, rows: scratch.read_released(reader)? },
        tag::ADOPT => StreamEffect::Adopt {
            group: reader.text()?,
            from: reader.text()?,
            to: reader.text()?,
            at_ms: reader.number()?,
        },
        _ => return Ok(None),
    }))
}

fn read_place<'p>(reader: &mut Reader<'p>) -> Result<KeyPlace<'p>, CodecError> {
    Ok(KeyPlace { db: reader.small_number()?, key: reader.text()? })
}

fn read_id_step(reader: &mut Reader<'_>, before: StreamId) -> Result<StreamId, CodecError> {
    let ms = reader.step(before.ms)?;
    let seq = if ms == before.ms { reader.step(before.seq)? } else { reader.number()? };
    Ok(StreamId::new(ms, seq))
}

/// The change that adds an entry.
fn added<'a>(place: KeyPlace<'a>, id: StreamId, fields: &'a [&'a [u8]]) -> RecordedChange<'a> {
    let effect = Effect::Stream(StreamEffect::Append { id, fields });
    RecordedChange::Key { db: place.db, key: place.key, effect }
}

impl<'p> Scratch<'p> {
    fn read_texts(&mut self, reader: &mut Reader<'p>) -> Result<&[&'p [u8]], CodecError> {
        let count = reader.count(1)?;
        self.read_texts_of(count, reader)
    }

    fn read_pairs(&mut self, reader: &mut Reader<'p>) -> Result<&[&'p [u8]], CodecError> {
        let count = reader.count(2)?;
        self.read_texts_of(2 * count, reader)
    }

    fn read_entry(
        &mut self,
        place: KeyPlace<'p>,
        reader: &mut Reader<'p>,
        visit: &mut impl FnMut(RecordedChange<'_>),
    ) -> Result<(), CodecError> {
        let id = reader.id()?;
        visit(added(place, id, self.read_pairs(reader)?));
        self.entry = Some((place, id));
        Ok(())
    }

    /// The names of the entry before, with other values.
    fn read_next_entry(
        &mut self,
        place: KeyPlace<'p>,
        id: StreamId,
        reader: &mut Reader<'p>,
        visit: &mut impl FnMut(RecordedChange<'_>),
    ) -> Result<(), CodecError> {
        let names = self.texts.iter().step_by(2);
        let length = reader.count(1)?;
        let left = reader.left() - length;
        self.values.clear();
        for _ in names.clone() {
            self.values.push(NextValue::read(reader)?);
        }
        if reader.left() != left {
            return Err(reader.error("the values are not as long as announced"));
        }
        let mut fields = SmallVec::<[&[u8]; 32]>::new();
        names.zip(&self.values).for_each(|(name, value)| fields.extend([*name, value.as_bytes()]));
        visit(added(place, id, &fields));
        self.entry = Some((place, id));
        Ok(())
    }

    fn read_texts_of(&mut self, count: usize, reader: &mut Reader<'p>) -> Result<&[&'p [u8]], CodecError> {
        self.texts.clear();
        self.texts.reserve(count);
        for _ in 0..count {
            self.texts.push(reader.text()?);
        }
        Ok(&self.texts)
    }

    fn read_ids(&mut self, reader: &mut Reader<'_>) -> Result<&[StreamId], CodecError> {
        let count = reader.count(2)?;
        self.ids.clear();
        self.ids.reserve(count);
        let mut before = StreamId::MIN;
        for _ in 0..count {
            before = read_id_step(reader, before)?;
            self.ids.push(before);
        }
        Ok(&self.ids)
    }

    fn read_rows(&mut self, reader: &mut Reader<'_>, at_ms: u64) -> Result<&[ClaimedRow], CodecError> {
        let count = reader.count(4)?;
        self.rows.clear();
        self.rows.reserve(count);
        let mut before = ClaimedRow { id: StreamId::MIN, delivered_at_ms: at_ms, deliveries: 0 };
        for _ in 0..count {
            before = ClaimedRow {
                id: read_id_step(reader, before.id)?,
                delivered_at_ms: reader.step(before.delivered_at_ms)?,
                deliveries: reader.number()?,
            };
            self.rows.push(before);
        }
        Ok(&self.rows)
    }

    fn read_released(&mut self, reader: &mut Reader<'_>) -> Result<&[ReleasedRow], CodecError> {
        let count = reader.count(3)?;
        self.released.clear();
        self.released.reserve(count);
        let mut before = StreamId::MIN;
        for _ in 0..count {
            before = read_id_step(reader, before)?;
            self.released.push(ReleasedRow { id: before, deliveries: reader.number()? });
        }
        Ok(&self.released)
    }
}
