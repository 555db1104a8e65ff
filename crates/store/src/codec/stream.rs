//! Encodes streams: the blocks as they are in memory, and everything around them.
//!
//! ```text
//! stream   := last:id  max_deleted:id  gone_through:id  entries_added:number
//!             count:number  block…   count:number  (group  count:number  released_entry:id…  settings)…
//!             has-history:1  [history]  settings
//! settings := length:number  (tag:number  value:text)…
//! block    := base:id  last:id  name_count:number  slots:number  node_bytes:number  bytes:text
//! group    := name:text  last:id  entries_read:optional
//!             count:number  consumer…   count:number  row…
//! consumer := name:text  seen_at_ms:number  active_at_ms:optional
//! row      := head:1  [ms:number]  seq:number  [consumer:number]  [delivered_at_ms:signed]  [deliveries:number]
//! history  := duration_s:number  max_size:number  added:number  duplicates:number
//!             count:number  producer:text…   count:number  kept…
//! waiting  := due_ms:number, relative to the one before it; the first to 0…
//! missed   := count:number  through:id
//! policy   := see `policy.rs`
//! delayed  := last_number:number  count:number  block…
//! kept     := producer:number  iid:text  entry:id  since_ms:signed, relative to the entry's milliseconds
//! head     := ms-step:5 bits | delivered-once:1 | same-time:1 | same-consumer:1     ms-step 31: [ms] has the step
//! ```
//!
//! A row is a pending entry. It is encoded relative to the row before it, and the first row relative to id 0-0, time 0
//! and consumer 0. If the milliseconds are the same, `seq` is a difference too. So rows of one delivery take two bytes
//! each. Consumers and producers are numbered in the order of their names. A released entry has no owner: its consumer
//! number is the one after the last consumer, and its time is that of the row before it.
//!
//! Settings are optional parts of a stream or a group. They are encoded with their tags in ascending order.
//! A group has the setting `waiting` with tag 1 if released entries wait for due times: it has the due times of the
//! last released entries. It has the setting `missed` with tag 2 if entries were removed before the group read them: it
//! has their number, and an id that none of them exceeds. A group has the setting `policy` with tag 3, and a stream the
//! setting `policy` with tag 1, if one is set. The owners of both have tags of their own. A stream has the setting
//! `delayed` with tag 2 if an entry was ever delayed: it has the number of the last ticket and the blocks of delayed
//! entries. The reader refuses unknown tags: a newer version wrote them, and a stream without its settings would behave
//! differently.
//!
//! Snapshots of version 1 have streams without settings, and some of these also lack released entries and the producer
//! history: see [`StreamKind`].

use std::ops::ControlFlow;

use millstream_engine::pending::{ConsumerHandle, PendingEntry};
use millstream_engine::policy::Policy;
use millstream_engine::stream::{
    BlockParts, Counters, Group, HistoryCounters, HistoryItem, IdempotenceLimits, InvalidPart, MissedEntries,
    StreamBuilder,
};
use millstream_engine::{Stream, StreamId};

use super::policy::{put_policy, read_policy};
use super::wire::{ByteReader, CodecError, put_id, put_number, put_optional, put_step, put_text};

const SAME_CONSUMER: u8 = 1;
const SAME_TIME: u8 = 2;
const DELIVERED_ONCE: u8 = 4;
const MS_STEP_SHIFT: u32 = 3;
/// Smallest ms step that does not fit the head byte.
const MS_STEP_FOLLOWS: u64 = 31;

/// A pending entry as it is encoded.
#[derive(Clone, Copy)]
struct Row {
    id: StreamId,
    /// Number of the consumer in the order of names.
    consumer: u32,
    delivered_at_ms: u64,
    deliveries: u64,
}

const UNKNOWN_SETTING: &str = "a stream or a group has a setting that this version does not know: a newer version of Millstream wrote it";

/// The setting of a group with the due times of its released entries that wait.
const WAITING: u64 = 1;

/// The setting of a group with the entries that were removed before the group read them.
const MISSED: u64 = 2;

/// Tag of the setting of a group with its policy.
const GROUP_POLICY: u64 = 3;

/// Tag of the setting of a group with the owner of its policy.
const GROUP_POLICY_OWNER: u64 = 4;

/// Tag of the setting of a stream with its policy.
const POLICY: u64 = 1;
/// The setting of a stream with its delayed entries.
const DELAYED: u64 = 2;
/// Tag of the setting of a stream with the owner of its policy.
const POLICY_OWNER: u64 = 3;

/// The row that the first row is encoded relative to.
const BEFORE_ROWS: Row = Row { id: StreamId::MIN, consumer: 0, delivered_at_ms: 0, deliveries: 0 };

/// Minimum encoded size of a block, a group, a consumer, a row, an id and an entry of the producer history.
const BLOCK_BYTES_MIN: usize = 8;
const GROUP_BYTES_MIN: usize = 6;
const CONSUMER_BYTES_MIN: usize = 3;
const ROW_BYTES_MIN: usize = 2;
const ID_BYTES_MIN: usize = 2;
const HISTORY_ITEM_BYTES_MIN: usize = 5;

/// Which parts an encoded stream has. The older kinds are only read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// No released entries, no producer history, no settings.
    Plain,
    Full,
    WithSettings,
}

/// Callback between two parts of a stream. It can write the output so far to a file and clear it.
pub(super) type Pause<'p> = &'p mut dyn FnMut(&mut Vec<u8>);

pub(super) fn put_stream(out: &mut Vec<u8>, stream: &Stream, pause: Pause<'_>) {
    let counters = stream.counters();
    put_id(out, counters.last_id);
    put_id(out, counters.max_deleted_id);
    put_id(out, counters.gone_through);
    put_number(out, counters.entries_added);
    put_number(out, stream.block_count() as u64);
    stream.blocks().for_each(|block| {
        put_block(out, &block);
        pause(out);
    });
    put_number(out, stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        put_group(out, name, group, pause);
        put_number(out, group.pending().released_len());
        group.pending().released().for_each(|row| put_id(out, row.id));
        put_text(out, &group_settings(stream, group));
    }
    let counters = stream.history_counters();
    out.push(u8::from(counters.is_some()));
    counters.into_iter().for_each(|counters| put_producer_history(out, stream, &counters));
    put_stream_settings(out, stream, pause);
}

/// Appends the settings of a stream. Delayed entries can take much memory, so they are never copied as a whole: their
/// length is computed first.
fn put_stream_settings(out: &mut Vec<u8>, stream: &Stream, pause: Pause<'_>) {
    let mut settings = Vec::new();
    stream
        .policy()
        .into_iter()
        .for_each(|policy| put_setting(&mut settings, POLICY, |value| put_policy(value, policy)));
    let mut owner = Vec::new();
    if let Some(name) = stream.policy_owner() {
        put_setting(&mut owner, POLICY_OWNER, |value| put_text(value, name));
    }
    let Some(delayed) = stream.delayed() else {
        settings.extend_from_slice(&owner);
        return put_text(out, &settings);
    };
    let mut counts = Vec::new();
    put_number(&mut counts, delayed.last_number());
    put_number(&mut counts, delayed.block_count() as u64);
    let blocks_bytes: usize = delayed.blocks().map(|block| block_bytes(&block)).sum();
    put_number(&mut settings, DELAYED);
    put_number(&mut settings, (counts.len() + blocks_bytes) as u64);
    settings.extend_from_slice(&counts);
    put_number(out, (settings.len() + blocks_bytes + owner.len()) as u64);
    out.extend_from_slice(&settings);
    delayed.blocks().for_each(|block| {
        put_block(out, &block);
        pause(out);
    });
    out.extend_from_slice(&owner);
}

/// Returns the number of bytes of an encoded block.
fn block_bytes(block: &BlockParts<'_>) -> usize {
    let mut head = Vec::with_capacity(64);
    put_block_head(&mut head, block);
    head.len() + block.bytes.len()
}

fn put_setting(settings: &mut Vec<u8>, tag: u64, put: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    put(&mut value);
    put_number(settings, tag);
    put_text(settings, &value);
}

fn group_settings(stream: &Stream, group: &Group) -> Vec<u8> {
    let (mut settings, mut waiting, mut before_ms) = (Vec::new(), Vec::new(), 0);
    for (due_ms, _) in group.pending().waiting() {
        put_number(&mut waiting, due_ms - before_ms);
        before_ms = due_ms;
    }
    if !waiting.is_empty() {
        put_number(&mut settings, WAITING);
        put_text(&mut settings, &waiting);
    }
    let missed = stream.missed(group);
    if missed.count > 0 {
        put_setting(&mut settings, MISSED, |value| {
            put_number(value, missed.count);
            put_id(value, missed.through);
        });
    }
    if let Some(policy) = group.own_policy() {
        put_setting(&mut settings, GROUP_POLICY, |value| put_policy(value, policy));
    }
    if let Some(owner) = stream.group_policy_owner(group) {
        put_setting(&mut settings, GROUP_POLICY_OWNER, |value| put_text(value, owner));
    }
    settings
}

fn put_producer_history(out: &mut Vec<u8>, stream: &Stream, counters: &HistoryCounters) {
    put_number(out, counters.limits.duration_s);
    put_number(out, counters.limits.max_size);
    put_number(out, counters.added);
    put_number(out, counters.duplicates);
    let mut producers: Vec<&[u8]> = stream.history_items().map(|kept| kept.producer).collect();
    producers.sort_unstable();
    producers.dedup();
    put_number(out, producers.len() as u64);
    producers.iter().for_each(|name| put_text(out, name));
    put_number(out, stream.history_items().len() as u64);
    for kept in stream.history_items() {
        let producer = producers.binary_search(&kept.producer).expect("every producer is in the list");
        put_number(out, producer as u64);
        put_text(out, kept.iid);
        put_id(out, kept.id);
        put_step(out, kept.id.ms, kept.since_ms);
    }
}

fn put_block(out: &mut Vec<u8>, block: &BlockParts<'_>) {
    put_block_head(out, block);
    out.extend_from_slice(block.bytes);
}

fn put_block_head(out: &mut Vec<u8>, block: &BlockParts<'_>) {
    put_id(out, block.base);
    put_id(out, block.last_id);
    put_number(out, u64::from(block.name_count));
    put_number(out, u64::from(block.slots));
    put_number(out, block.node_bytes);
    put_number(out, block.bytes.len() as u64);
}

fn put_group(out: &mut Vec<u8>, name: &[u8], group: &Group, pause: Pause<'_>) {
    put_text(out, name);
    put_id(out, group.last_id());
    put_optional(out, group.entries_read());
    put_number(out, group.consumers().len() as u64);
    for (name, _, consumer) in group.consumers() {
        put_text(out, name);
        put_number(out, consumer.seen_at_ms);
        put_optional(out, consumer.active_at_ms);
    }
    let (numbers, no_owner) = (consumer_numbers(group), group.consumers().len() as u32);
    let mut before = BEFORE_ROWS;
    put_number(out, group.pending().len());
    group.pending().walk(StreamId::MIN, Default::default(), |row| {
        let (consumer, delivered_at_ms) = match row.consumer {
            Some(owner) => (numbers[owner.0 as usize], row.delivered_at_ms),
            None => (no_owner, before.delivered_at_ms),
        };
        let row = Row { id: row.id, consumer, delivered_at_ms, deliveries: row.deliveries };
        put_row(out, &before, &row);
        pause(out);
        before = row;
        ControlFlow::Continue(())
    });
}

/// Returns the number of each consumer in the order of names, indexed by handle.
fn consumer_numbers(group: &Group) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (number, (_, handle, _)) in (0..).zip(group.consumers()) {
        let slot = handle.0 as usize;
        numbers.resize(numbers.len().max(slot + 1), 0);
        numbers[slot] = number;
    }
    numbers
}

fn put_row(out: &mut Vec<u8>, before: &Row, row: &Row) {
    let ms_step = row.id.ms - before.id.ms;
    let same_consumer = row.consumer == before.consumer;
    let same_time = row.delivered_at_ms == before.delivered_at_ms;
    let once = row.deliveries == 1;
    out.push(
        ((ms_step.min(MS_STEP_FOLLOWS) as u8) << MS_STEP_SHIFT)
            | (u8::from(same_consumer) * SAME_CONSUMER)
            | (u8::from(same_time) * SAME_TIME)
            | (u8::from(once) * DELIVERED_ONCE),
    );
    if ms_step >= MS_STEP_FOLLOWS {
        put_number(out, ms_step);
    }
    put_number(out, if ms_step == 0 { row.id.seq - before.id.seq } else { row.id.seq });
    if !same_consumer {
        put_number(out, u64::from(row.consumer));
    }
    if !same_time {
        put_step(out, before.delivered_at_ms, row.delivered_at_ms);
    }
    if !once {
        put_number(out, row.deliveries);
    }
}

pub(super) fn read_stream(reader: &mut ByteReader<'_>, kind: StreamKind) -> Result<Stream, CodecError> {
    let counters = Counters {
        last_id: reader.id()?,
        max_deleted_id: reader.id()?,
        gone_through: reader.id()?,
        entries_added: reader.number()?,
    };
    let mut builder = at(reader, StreamBuilder::new(&counters))?;
    read_blocks(reader, &mut builder)?;
    for _ in 0..reader.count(GROUP_BYTES_MIN)? {
        read_group(reader, &mut builder)?;
        if kind != StreamKind::Plain {
            read_released(reader, &mut builder)?;
        }
        if kind == StreamKind::WithSettings {
            read_group_settings(reader, &mut builder)?;
        }
    }
    if kind != StreamKind::Plain && reader.flag()? {
        read_producer_history(reader, &mut builder)?;
    }
    if kind == StreamKind::WithSettings {
        read_stream_settings(reader, &mut builder)?;
    }
    Ok(builder.finish())
}

fn read_stream_settings(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    let (mut settings, mut last_tag) = (ByteReader::new(reader.text()?), 0);
    while settings.left() > 0 {
        let setting = read_stream_setting(&mut settings, last_tag, builder);
        last_tag = setting.map_err(|error| reader.error(error.what))?;
    }
    Ok(())
}

fn read_stream_setting(
    settings: &mut ByteReader<'_>,
    last_tag: u64,
    builder: &mut StreamBuilder,
) -> Result<u64, CodecError> {
    let (tag, mut value) = next_setting(settings, last_tag)?;
    match tag {
        POLICY => {
            let policy = read_policy(&mut value)?;
            at(&value, builder.policy(&policy))?;
        }
        DELAYED => read_delayed(&mut value, builder)?,
        POLICY_OWNER => {
            let owner = value.text()?;
            at(&value, builder.policy_owner(owner))?;
        }
        _ => return Err(settings.error(UNKNOWN_SETTING)),
    }
    end_of_setting(&value).map(|()| tag)
}

fn read_delayed(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    let last_number = reader.number()?;
    at(reader, builder.delayed(last_number))?;
    for _ in 0..reader.count(BLOCK_BYTES_MIN)? {
        let parts = read_block(reader)?;
        if parts.node_bytes != 0 {
            return Err(reader.error("a block of delayed entries counts the bytes of a Redis node"));
        }
        at(reader, builder.delayed_block(&parts))?;
    }
    Ok(())
}

/// Decodes the tag of the next setting, which is greater than the one before it. Returns its value too.
fn next_setting<'a>(
    settings: &mut ByteReader<'a>,
    last_tag: u64,
) -> Result<(u64, ByteReader<'a>), CodecError> {
    let tag = settings.number()?;
    match tag > last_tag {
        true => Ok((tag, ByteReader::new(settings.text()?))),
        false => Err(settings.error("settings are not in the order of their tags")),
    }
}

fn end_of_setting(value: &ByteReader<'_>) -> Result<(), CodecError> {
    match value.left() {
        0 => Ok(()),
        _ => Err(value.error("a setting is longer than its value")),
    }
}

fn read_group_settings(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    let mut settings = ByteReader::new(reader.text()?);
    let mut last_tag = 0;
    while settings.left() > 0 {
        let setting = group_setting(&mut settings, last_tag).map_err(|error| reader.error(error.what))?;
        last_tag = setting.tag();
        let part = match setting {
            GroupSetting::Waiting(due_times_ms) => builder.waiting(&due_times_ms),
            GroupSetting::Missed(missed) => builder.missed(missed),
            GroupSetting::Policy(policy) => builder.group_policy(&policy),
            GroupSetting::PolicyOwner(owner) => builder.group_policy_owner(owner),
        };
        at(reader, part)?;
    }
    Ok(())
}

enum GroupSetting<'a> {
    Waiting(Vec<u64>),
    Missed(MissedEntries),
    /// What was set on the group.
    Policy(Policy),
    /// The user who set it.
    PolicyOwner(&'a [u8]),
}

impl GroupSetting<'_> {
    fn tag(&self) -> u64 {
        match self {
            GroupSetting::Waiting(_) => WAITING,
            GroupSetting::Missed(_) => MISSED,
            GroupSetting::Policy(_) => GROUP_POLICY,
            GroupSetting::PolicyOwner(_) => GROUP_POLICY_OWNER,
        }
    }
}

fn group_setting<'a>(settings: &mut ByteReader<'a>, last_tag: u64) -> Result<GroupSetting<'a>, CodecError> {
    let (tag, mut value) = next_setting(settings, last_tag)?;
    let setting = match tag {
        WAITING => GroupSetting::Waiting(due_times(&mut value)?),
        MISSED => GroupSetting::Missed(MissedEntries { count: value.number()?, through: value.id()? }),
        GROUP_POLICY => GroupSetting::Policy(read_policy(&mut value)?),
        GROUP_POLICY_OWNER => GroupSetting::PolicyOwner(value.text()?),
        _ => return Err(settings.error(UNKNOWN_SETTING)),
    };
    end_of_setting(&value).map(|()| setting)
}

fn due_times(waiting: &mut ByteReader<'_>) -> Result<Vec<u64>, CodecError> {
    let (mut due_times_ms, mut before_ms) = (Vec::new(), 0u64);
    while waiting.left() > 0 {
        let due_ms = before_ms.checked_add(waiting.number()?);
        before_ms = due_ms.ok_or_else(|| waiting.error("a due time is larger than the maximum"))?;
        due_times_ms.push(before_ms);
    }
    match due_times_ms.is_empty() {
        true => Err(waiting.error("a group has an empty list of due times")),
        false => Ok(due_times_ms),
    }
}

fn read_released(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    let count = reader.count(ID_BYTES_MIN)?;
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        ids.push(reader.id()?);
    }
    at(reader, builder.released(&ids))
}

fn read_producer_history(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    let limits = IdempotenceLimits { duration_s: reader.number()?, max_size: reader.number()? };
    let counters = HistoryCounters { limits, added: reader.number()?, duplicates: reader.number()? };
    at(reader, builder.history(&counters))?;
    let mut producers: Vec<(&[u8], bool)> = Vec::new();
    for _ in 0..reader.count(1)? {
        let name = reader.text()?;
        if producers.last().is_some_and(|(last, _)| *last >= name) {
            return Err(reader.error("producers are not in the order of their names"));
        }
        producers.push((name, false));
    }
    for _ in 0..reader.count(HISTORY_ITEM_BYTES_MIN)? {
        let number = reader.small_number()? as usize;
        let (iid, id) = (reader.text()?, reader.id()?);
        let since_ms = reader.step(id.ms)?;
        let Some((producer, used)) = producers.get_mut(number) else {
            return Err(reader.error("an entry of the producer history has no producer"));
        };
        *used = true;
        at(reader, builder.history_item(&HistoryItem { producer, iid, id, since_ms }))?;
    }
    match producers.iter().all(|(_, used)| *used) {
        true => Ok(()),
        false => Err(reader.error("a producer has no entry in the producer history")),
    }
}

fn read_blocks(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    for _ in 0..reader.count(BLOCK_BYTES_MIN)? {
        let parts = read_block(reader)?;
        at(reader, builder.block(&parts))?;
    }
    Ok(())
}

fn read_block<'a>(reader: &mut ByteReader<'a>) -> Result<BlockParts<'a>, CodecError> {
    Ok(BlockParts {
        base: reader.id()?,
        last_id: reader.id()?,
        name_count: reader.small_number()?,
        slots: reader.small_number()?,
        node_bytes: reader.number()?,
        bytes: reader.text()?,
    })
}

fn read_group(reader: &mut ByteReader<'_>, builder: &mut StreamBuilder) -> Result<(), CodecError> {
    let (name, last_id, entries_read) = (reader.text()?, reader.id()?, reader.optional()?);
    at(reader, builder.group(name, last_id, entries_read))?;
    let no_owner = reader.count(CONSUMER_BYTES_MIN)?;
    for _ in 0..no_owner {
        let (name, seen_at_ms, active_at_ms) = (reader.text()?, reader.number()?, reader.optional()?);
        at(reader, builder.consumer(name, seen_at_ms, active_at_ms))?;
    }
    let mut before = BEFORE_ROWS;
    for _ in 0..reader.count(ROW_BYTES_MIN)? {
        let row = read_row(reader, &before)?;
        let is_owned = row.consumer as usize != no_owner;
        if !is_owned && row.delivered_at_ms != before.delivered_at_ms {
            return Err(reader.error("a released entry has a delivery time"));
        }
        before = row;
        let pending = PendingEntry {
            id: row.id,
            consumer: is_owned.then_some(ConsumerHandle(row.consumer)),
            delivered_at_ms: if is_owned { row.delivered_at_ms } else { 0 },
            deliveries: row.deliveries,
        };
        at(reader, builder.pending(pending))?;
    }
    Ok(())
}

fn read_row(reader: &mut ByteReader<'_>, before: &Row) -> Result<Row, CodecError> {
    let head = reader.byte()?;
    let ms_step = match u64::from(head >> MS_STEP_SHIFT) {
        MS_STEP_FOLLOWS => reader.number()?,
        step => step,
    };
    let row = Row {
        id: read_row_id(reader, before.id, ms_step)?,
        consumer: match head & SAME_CONSUMER {
            0 => reader.small_number()?,
            _ => before.consumer,
        },
        delivered_at_ms: match head & SAME_TIME {
            0 => reader.step(before.delivered_at_ms)?,
            _ => before.delivered_at_ms,
        },
        deliveries: if head & DELIVERED_ONCE == 0 { reader.number()? } else { 1 },
    };
    let head_is_right = (row.consumer == before.consumer) == (head & SAME_CONSUMER != 0)
        && (row.delivered_at_ms == before.delivered_at_ms) == (head & SAME_TIME != 0)
        && (row.deliveries == 1) == (head & DELIVERED_ONCE != 0)
        && (ms_step >= MS_STEP_FOLLOWS) == (u64::from(head >> MS_STEP_SHIFT) == MS_STEP_FOLLOWS);
    if head_is_right { Ok(row) } else { Err(reader.error("a pending entry is not in its shortest form")) }
}

fn read_row_id(reader: &mut ByteReader<'_>, before: StreamId, ms_step: u64) -> Result<StreamId, CodecError> {
    let seq = reader.number()?;
    let id = match ms_step {
        0 => before.seq.checked_add(seq).map(|seq| StreamId::new(before.ms, seq)),
        _ => before.ms.checked_add(ms_step).map(|ms| StreamId::new(ms, seq)),
    };
    id.ok_or_else(|| reader.error("an id is larger than the maximum"))
}

/// Adds the current offset to the error of an invalid part.
fn at<T>(reader: &ByteReader<'_>, part: Result<T, InvalidPart>) -> Result<T, CodecError> {
    part.map_err(|InvalidPart(what)| reader.error(what))
}
