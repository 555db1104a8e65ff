//! Encodes and decodes changes. Each variant of an effect has its own tag.
//!
//! ```text
//! texts    := count:number  text…
//! pairs    := count:number  (text text)…
//! id_step  := ms:signed  (seq:signed if ms is 0 | seq:number)      relative to the id before it
//! ids      := count:number  id_step…
//! claimed  := count:number  (id_step  delivered_at_ms:signed, relative to the row before it  deliveries:number)…
//! released := count:number  (id_step  deliveries:number)…
//! waiting  := count:number  (id_step  deliveries:number  not_before_ms:signed, relative to the time of the release)…
//! ```
//!
//! `policy` is described in `policy.rs`. The first `id_step` is relative to 0-0, and the first time in `claimed` is
//! relative to the time of the claim. A time that belongs to a single id is encoded relative to the id's milliseconds,
//! because the two are close to each other.

use millstream_engine::ListEnd::{Head, Tail};
use millstream_engine::policy::Policy;
use millstream_engine::{
    ClaimedRow, Effect, HashEffect, KeyPlace, ListEffect, Rearrangement, ReleasedRow, SetEffect,
    StreamEffect, StreamId, StringEffect,
};
use smallvec::SmallVec;

use super::entries::{NextValue, put_entry};
use super::policy::{put_policy, read_policy};
use super::wire::{ByteReader, CodecError, put_id, put_number, put_optional, put_step, put_text};

/// Tags of changes that are not in the tables below.
///
/// A tag is never reused for another change. 55 was an earlier form of 56, before the first release.
pub(super) mod tag {
    pub(in crate::codec) const APPEND: u8 = 33;
    pub(in crate::codec) const APPEND_NEXT: u8 = 56;
    pub(super) const MOVE: u8 = 64;
    pub(super) const COPY: u8 = 65;
    pub(super) const SWAP: u8 = 66;
    pub(super) const CLEAR: u8 = 67;
}

/// Generates the functions that encode and decode the effects of a table.
///
/// A row consists of the tag, the variant, in brackets the field that the tag implies, and the fields in the order and
/// form in which they follow the key.
macro_rules! layouts {
    ($effect:ident, $put:ident, $read:ident $(, except $except:pat)? =>
     $($tag:literal $variant:ident $([$implied:ident = $value:tt])? {
         $($field:ident: $form:ident $(($from:expr))?),*
     };)+) => {
        fn $put(out: &mut Vec<u8>, place: KeyPlace<'_>, effect: &$effect<'_>) {
            match *effect {
                $($effect::$variant { $($implied: $value,)? $($field),* } => {
                    out.push($tag);
                    put_place(out, place);
                    $(put!(out, $field, $form $(($from))?);)*
                })+
                $($except => unreachable!("{effect:?} is encoded elsewhere"),)?
            }
        }

        /// Reads the fields after the key. Returns `None` if the tag is unknown.
        fn $read<'a, 'p: 'a>(
            tag: u8,
            reader: &mut ByteReader<'p>,
            scratch: &'a mut Scratch<'p>,
        ) -> Result<Option<$effect<'a>>, CodecError> {
            // Not every table needs both.
            let _ = (&reader, &scratch);
            Ok(Some(match tag {
                $($tag => {
                    $(let $field = read!(reader, scratch, $form $(($from))?);)*
                    $effect::$variant { $($implied: $value,)? $($field),* }
                })+
                _ => return Ok(None),
            }))
        }
    };
}

/// Writes a field in one of the forms used in the tables.
#[rustfmt::skip]
macro_rules! put {
    ($out:ident, $field:expr, text) => { put_text($out, $field) };
    ($out:ident, $field:expr, texts) => { put_texts($out, $field) };
    ($out:ident, $field:expr, pairs) => { put_pairs($out, $field) };
    ($out:ident, $field:expr, number) => { put_number($out, $field) };
    ($out:ident, $field:expr, present) => { $field.into_iter().for_each(|number| put_number($out, number)) };
    ($out:ident, $field:expr, present_text) => { $field.into_iter().for_each(|text| put_text($out, text)) };
    ($out:ident, $field:expr, optional) => { put_optional($out, $field) };
    ($out:ident, $field:expr, step($from:expr)) => { put_step($out, $from, $field) };
    ($out:ident, $field:expr, id) => { put_id($out, $field) };
    ($out:ident, $field:expr, optional_id) => { put_optional_id($out, $field) };
    ($out:ident, $field:expr, ids) => { put_ids($out, $field) };
    ($out:ident, $field:expr, claimed($from:expr)) => { put_claimed($out, $field, $from) };
    ($out:ident, $field:expr, released) => { put_released($out, $field, None) };
    ($out:ident, $field:expr, waiting($from:expr)) => { put_released($out, $field, Some($from)) };
    ($out:ident, $field:expr, policy) => { put_policy($out, $field) };
}

/// Reads a field in one of the forms used in the tables.
#[rustfmt::skip]
macro_rules! read {
    ($reader:ident, $scratch:ident, text) => { $reader.text()? };
    ($reader:ident, $scratch:ident, texts) => { $scratch.read_texts($reader)? };
    ($reader:ident, $scratch:ident, pairs) => { $scratch.read_pairs($reader)? };
    ($reader:ident, $scratch:ident, number) => { $reader.number()? };
    ($reader:ident, $scratch:ident, present) => { Some($reader.number()?) };
    ($reader:ident, $scratch:ident, present_text) => { Some($reader.text()?) };
    ($reader:ident, $scratch:ident, optional) => { $reader.optional()? };
    ($reader:ident, $scratch:ident, step($from:expr)) => { $reader.step($from)? };
    ($reader:ident, $scratch:ident, id) => { $reader.id()? };
    ($reader:ident, $scratch:ident, optional_id) => { if $reader.flag()? { Some($reader.id()?) } else { None } };
    ($reader:ident, $scratch:ident, ids) => { $scratch.read_ids($reader)? };
    ($reader:ident, $scratch:ident, claimed($from:expr)) => { $scratch.read_claimed($reader, $from)? };
    ($reader:ident, $scratch:ident, released) => { $scratch.read_released($reader, None)? };
    ($reader:ident, $scratch:ident, waiting($from:expr)) => { $scratch.read_released($reader, Some($from))? };
    ($reader:ident, $scratch:ident, policy) => { $scratch.read_policy($reader)? };
}

layouts! { Effect, put_key_effect, read_key_effect,
    except Effect::String(_) | Effect::Hash(_) | Effect::List(_) | Effect::Set(_) | Effect::Stream(_) =>
    1 Delete {};
    2 ExpireAt { at_ms: number };
    3 Persist {};
}

layouts! { StringEffect, put_string_effect, read_string_effect =>
    4 Set [expires_at_ms = None] { value: text };
    5 Set { value: text, expires_at_ms: present };
    6 Append { tail: text };
}

layouts! { HashEffect, put_hash_effect, read_hash_effect =>
    7 Set { pairs: pairs };
    8 Delete { fields: texts };
}

layouts! { ListEffect, put_list_effect, read_list_effect =>
    9 Push [end = Head] { values: texts };
    10 Push [end = Tail] { values: texts };
    11 Pop [end = Head] { count: number };
    12 Pop [end = Tail] { count: number };
}

layouts! { SetEffect, put_set_effect, read_set_effect =>
    13 Add { members: texts };
    14 Remove { members: texts };
}

layouts! { StreamEffect, put_stream_effect, read_stream_effect, except StreamEffect::Append { .. } =>
    32 Create {};
    34 TrimThrough { last: id };
    35 DeleteEntries { ids: ids };
    36 SetId { last_id: id, entries_added: optional, max_deleted_id: optional_id };
    37 GroupCreate { group: text, last_id: id, entries_read: optional };
    38 GroupSetId { group: text, last_id: id, entries_read: optional };
    39 GroupDestroy { group: text };
    40 ConsumerCreate { group: text, consumer: text, at_ms: number };
    41 ConsumerDelete { group: text, consumer: text };
    42 ConsumerSeen { group: text, consumer: text, at_ms: number };
    43 Deliver [pending = true] { group: text, consumer: text, last: id, count: number, at_ms: step(last.ms) };
    44 Deliver [pending = false] { group: text, consumer: text, last: id, count: number, at_ms: step(last.ms) };
    45 Redeliver { group: text, consumer: text, at_ms: number, ids: ids };
    46 Ack { group: text, ids: ids };
    47 Claim { group: text, consumer: text, at_ms: number, rows: claimed(at_ms) };
    48 TrimEntries { ids: ids };
    49 Forget { ids: ids };
    50 Release { group: text, rows: released };
    51 Adopt { group: text, from: text, to: text, at_ms: number };
    52 IdempotenceConfigure { duration_s: number, max_size: number };
    53 Remember { producer: text, iid: text, id: id, at_ms: step(id.ms) };
    54 Repeat {};
    57 ReleaseUntil { group: text, at_ms: number, rows: waiting(at_ms) };
    58 SetPolicy [owner = None] { policy: policy };
    59 GroupSetPolicy [owner = None] { group: text, policy: policy };
    60 Delay { ticket: id, at_ms: step(ticket.ms), fields: pairs };
    61 Promote { through: id, count: number, first: id, at_ms: step(first.ms) };
    62 Undelay { tickets: ids };
    63 PromoteTickets { first: id, at_ms: step(first.ms), tickets: ids };
    68 SetPolicy { policy: policy, owner: present_text };
    69 GroupSetPolicy { group: text, policy: policy, owner: present_text };
    70 OwnPolicies { owner: text };
}

/// One change in a record.
pub(crate) enum RecordedChange<'a> {
    Key {
        db: u32,
        key: &'a [u8],
        effect: Effect<'a>,
    },
    /// A value moves or is copied, or databases are swapped or cleared.
    Rearrange(Rearrangement<'a>),
}

pub(crate) fn put_change(out: &mut Vec<u8>, db: u32, key: &[u8], effect: &Effect<'_>) {
    match *effect {
        Effect::Stream(StreamEffect::Append { id, fields }) => {
            put_entry(&mut None, out, (db, key), (id, fields), None);
        }
        Effect::Stream(ref effect) => put_stream_effect(out, KeyPlace { db, key }, effect),
        Effect::String(ref effect) => put_string_effect(out, KeyPlace { db, key }, effect),
        Effect::Hash(ref effect) => put_hash_effect(out, KeyPlace { db, key }, effect),
        Effect::List(ref effect) => put_list_effect(out, KeyPlace { db, key }, effect),
        Effect::Set(ref effect) => put_set_effect(out, KeyPlace { db, key }, effect),
        Effect::Delete | Effect::ExpireAt { .. } | Effect::Persist => {
            put_key_effect(out, KeyPlace { db, key }, effect);
        }
    }
}

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

fn put_optional_id(out: &mut Vec<u8>, id: Option<StreamId>) {
    out.push(u8::from(id.is_some()));
    id.into_iter().for_each(|id| put_id(out, id));
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

fn put_claimed(out: &mut Vec<u8>, rows: &[ClaimedRow], at_ms: u64) {
    put_number(out, rows.len() as u64);
    let mut before = ClaimedRow { id: StreamId::MIN, delivered_at_ms: at_ms, deliveries: 0 };
    for row in rows {
        put_id_step(out, before.id, row.id);
        put_step(out, before.delivered_at_ms, row.delivered_at_ms);
        put_number(out, row.deliveries);
        before = *row;
    }
}

/// Appends released rows. If `at_ms` is given, they have due times, which are encoded relative to it.
fn put_released(out: &mut Vec<u8>, rows: &[ReleasedRow], at_ms: Option<u64>) {
    put_number(out, rows.len() as u64);
    let mut before = StreamId::MIN;
    for row in rows {
        put_id_step(out, before, row.id);
        put_number(out, row.deliveries);
        match at_ms {
            Some(at_ms) => put_step(out, at_ms, row.not_before_ms),
            None => debug_assert_eq!(row.not_before_ms, 0, "a release at once has no due times"),
        }
        before = row.id;
    }
}

/// Passes every change of a record to `visit`, in order. If a change is invalid, the changes before it were visited.
pub(crate) fn replay(payload: &[u8], visit: &mut impl FnMut(RecordedChange<'_>)) -> Result<(), CodecError> {
    let mut reader = ByteReader::new(payload);
    let mut scratch = Scratch::default();
    while reader.left() > 0 {
        read_change(&mut reader, &mut scratch, visit)?;
    }
    Ok(())
}

#[derive(Default)]
struct Scratch<'p> {
    texts: SmallVec<[&'p [u8]; 16]>,
    ids: SmallVec<[StreamId; 16]>,
    rows: SmallVec<[ClaimedRow; 4]>,
    released: SmallVec<[ReleasedRow; 4]>,
    values: SmallVec<[NextValue<'p>; 8]>,
    policy: Policy,
    /// Key and id of the previous change if it appended an entry. Its fields are still in `texts`.
    entry: Option<(KeyPlace<'p>, StreamId)>,
}

fn read_change<'p>(
    reader: &mut ByteReader<'p>,
    scratch: &mut Scratch<'p>,
    visit: &mut impl FnMut(RecordedChange<'_>),
) -> Result<(), CodecError> {
    let begin = reader.clone();
    let entry = scratch.entry.take();
    let change = match reader.byte()? {
        tag::APPEND => return scratch.read_entry(read_place(reader)?, reader, visit),
        tag::APPEND_NEXT => {
            let after = entry.and_then(|(place, id)| Some((place, id.next()?)));
            let (place, id) =
                after.ok_or(begin.error("an entry that continues another has no entry before it"))?;
            return scratch.read_next_entry(place, id, reader, visit);
        }
        tag::MOVE => Rearrangement::Move(read_place(reader)?, read_place(reader)?),
        tag::COPY => Rearrangement::Copy(read_place(reader)?, read_place(reader)?),
        tag::SWAP => Rearrangement::Swap(reader.small_number()?, reader.small_number()?),
        tag::CLEAR => Rearrangement::Clear(reader.small_number()?),
        tag => {
            let KeyPlace { db, key } = read_place(reader)?;
            let effect = read_effect(tag, reader, scratch)?
                .ok_or(begin.error("unknown kind of change; a newer version may have written it"))?;
            visit(RecordedChange::Key { db, key, effect });
            return Ok(());
        }
    };
    visit(RecordedChange::Rearrange(change));
    Ok(())
}

fn read_effect<'a, 'p: 'a>(
    tag: u8,
    reader: &mut ByteReader<'p>,
    scratch: &'a mut Scratch<'p>,
) -> Result<Option<Effect<'a>>, CodecError> {
    Ok(match tag {
        ..4 => read_key_effect(tag, reader, scratch)?,
        4..=6 => read_string_effect(tag, reader, scratch)?.map(Effect::String),
        7..=8 => read_hash_effect(tag, reader, scratch)?.map(Effect::Hash),
        9..=12 => read_list_effect(tag, reader, scratch)?.map(Effect::List),
        13..=14 => read_set_effect(tag, reader, scratch)?.map(Effect::Set),
        _ => read_stream_effect(tag, reader, scratch)?.map(Effect::Stream),
    })
}

fn read_place<'p>(reader: &mut ByteReader<'p>) -> Result<KeyPlace<'p>, CodecError> {
    Ok(KeyPlace { db: reader.small_number()?, key: reader.text()? })
}

fn read_id_step(reader: &mut ByteReader<'_>, before: StreamId) -> Result<StreamId, CodecError> {
    let ms = reader.step(before.ms)?;
    let seq = if ms == before.ms { reader.step(before.seq)? } else { reader.number()? };
    Ok(StreamId::new(ms, seq))
}

/// Returns the change that appends an entry.
fn append_change<'a>(place: KeyPlace<'a>, id: StreamId, fields: &'a [&'a [u8]]) -> RecordedChange<'a> {
    let effect = Effect::Stream(StreamEffect::Append { id, fields });
    RecordedChange::Key { db: place.db, key: place.key, effect }
}

impl<'p> Scratch<'p> {
    fn read_policy(&mut self, reader: &mut ByteReader<'p>) -> Result<&Policy, CodecError> {
        self.policy = read_policy(reader)?;
        Ok(&self.policy)
    }

    fn read_texts(&mut self, reader: &mut ByteReader<'p>) -> Result<&[&'p [u8]], CodecError> {
        let count = reader.count(1)?;
        self.read_texts_of(count, reader)
    }

    fn read_pairs(&mut self, reader: &mut ByteReader<'p>) -> Result<&[&'p [u8]], CodecError> {
        let count = reader.count(2)?;
        self.read_texts_of(2 * count, reader)
    }

    fn read_entry(
        &mut self,
        place: KeyPlace<'p>,
        reader: &mut ByteReader<'p>,
        visit: &mut impl FnMut(RecordedChange<'_>),
    ) -> Result<(), CodecError> {
        let id = reader.id()?;
        visit(append_change(place, id, self.read_pairs(reader)?));
        self.entry = Some((place, id));
        Ok(())
    }

    /// Reads an entry with the field names of the entry before it, and other values.
    fn read_next_entry(
        &mut self,
        place: KeyPlace<'p>,
        id: StreamId,
        reader: &mut ByteReader<'p>,
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
            return Err(reader.error("the values do not have the announced length"));
        }
        let mut fields = SmallVec::<[&[u8]; 32]>::new();
        names.zip(&self.values).for_each(|(name, value)| fields.extend([*name, value.as_bytes()]));
        visit(append_change(place, id, &fields));
        self.entry = Some((place, id));
        Ok(())
    }

    fn read_texts_of(
        &mut self,
        count: usize,
        reader: &mut ByteReader<'p>,
    ) -> Result<&[&'p [u8]], CodecError> {
        self.texts.clear();
        self.texts.reserve(count);
        for _ in 0..count {
            self.texts.push(reader.text()?);
        }
        Ok(&self.texts)
    }

    fn read_ids(&mut self, reader: &mut ByteReader<'_>) -> Result<&[StreamId], CodecError> {
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

    fn read_claimed(&mut self, reader: &mut ByteReader<'_>, at_ms: u64) -> Result<&[ClaimedRow], CodecError> {
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

    /// Reads released rows. If `at_ms` is given, they have due times, which are encoded relative to it.
    fn read_released(
        &mut self,
        reader: &mut ByteReader<'_>,
        at_ms: Option<u64>,
    ) -> Result<&[ReleasedRow], CodecError> {
        let count = reader.count(if at_ms.is_some() { 4 } else { 3 })?;
        self.released.clear();
        self.released.reserve(count);
        let mut before = StreamId::MIN;
        for _ in 0..count {
            before = read_id_step(reader, before)?;
            let deliveries = reader.number()?;
            let not_before_ms = at_ms.map_or(Ok(0), |at_ms| reader.step(at_ms))?;
            self.released.push(ReleasedRow { id: before, deliveries, not_before_ms });
        }
        Ok(&self.released)
    }
}
