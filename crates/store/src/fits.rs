//! Checks whether a change that was read from a folder fits the data, before it is applied.
//!
//! Changes of an undamaged log fit, except some changes to keys that were removed while the snapshot was taken. After a
//! gap some changes do not fit, because they refer to lost data.

use millstream_engine::pending::NOT_BEFORE_MS_MAX;
use millstream_engine::stream::{COUNT_MAX, DelayedSet, Promotion, TICKET_NUMBER_MAX};
use millstream_engine::value::Kind;
use millstream_engine::{
    Effect, HashEffect, KeyPlace, ListEffect, Rearrangement, SetEffect, Stream, StreamEffect, StreamId,
    StringEffect, Value,
};

use crate::codec::RecordedChange;
use crate::txn::Txn;

/// Returns why a change cannot be applied to the data of `txn`. Selects the database of the change.
pub(crate) fn check_fits(txn: &mut Txn<'_>, change: &RecordedChange<'_>) -> Result<(), String> {
    match change {
        RecordedChange::Key { db, key, effect } => {
            check_database(txn, *db)?;
            txn.select(*db);
            effect_fits(txn.get_including_expired(key), effect)
        }
        RecordedChange::Rearrange(change) => rearrangement_fits(txn, change),
    }
}

fn rearrangement_fits(txn: &mut Txn<'_>, change: &Rearrangement<'_>) -> Result<(), String> {
    match *change {
        Rearrangement::Move(from, to) | Rearrangement::Copy(from, to) => {
            check_database(txn, from.db)?;
            check_database(txn, to.db)?;
            txn.select(from.db);
            match txn.get_including_expired(from.key) {
                Some(_) => Ok(()),
                None => Err(format!("its source key {} does not exist", name_of(from))),
            }
        }
        Rearrangement::Swap(a, b) => check_database(txn, a).and(check_database(txn, b)),
        Rearrangement::Clear(db) => check_database(txn, db),
    }
}

fn name_of(place: KeyPlace<'_>) -> String {
    format!("\"{}\" of database {}", place.key.escape_ascii(), place.db)
}

pub(super) fn check_database(txn: &Txn<'_>, db: u32) -> Result<(), String> {
    let databases = txn.store().databases();
    if db < databases { Ok(()) } else { Err(format!("database {db} does not exist; there are {databases}")) }
}

fn effect_fits(value: Option<&Value>, effect: &Effect<'_>) -> Result<(), String> {
    let (wanted, may_begin) = match effect {
        Effect::Delete
        | Effect::ExpireAt { .. }
        | Effect::Persist
        | Effect::String(StringEffect::Set { .. }) => {
            return Ok(());
        }
        Effect::String(StringEffect::Append { .. }) => (Kind::String, true),
        Effect::Hash(HashEffect::Set { .. }) => (Kind::Hash, true),
        Effect::Hash(HashEffect::Delete { .. }) => (Kind::Hash, false),
        Effect::List(ListEffect::Push { .. }) => (Kind::List, true),
        Effect::List(ListEffect::Pop { .. }) => (Kind::List, false),
        Effect::Set(SetEffect::Add { .. }) => (Kind::Set, true),
        Effect::Set(SetEffect::Remove { .. }) => (Kind::Set, false),
        Effect::Stream(effect) => {
            let begins = matches!(
                effect,
                StreamEffect::Create | StreamEffect::Append { .. } | StreamEffect::Delay { .. }
            );
            (Kind::Stream, begins)
        }
    };
    match (value, effect) {
        (None, Effect::Stream(effect)) if may_begin => stream_effect_fits(&Stream::new(), effect),
        (None, _) if may_begin => Ok(()),
        (None, _) => Err(format!("it changes a {wanted:?}, but the key does not exist")),
        (Some(value), _) if value.kind() != wanted => {
            Err(format!("it changes a {wanted:?}, but the key has a {:?}", value.kind()))
        }
        (Some(Value::Stream(stream)), Effect::Stream(effect)) => stream_effect_fits(stream, effect),
        _ => Ok(()),
    }
}

fn stream_effect_fits(stream: &Stream, effect: &StreamEffect<'_>) -> Result<(), String> {
    match *effect {
        StreamEffect::Append { id, .. } if id <= stream.last_id() => {
            Err(format!("it adds entry {id}, but the last id is {}", stream.last_id()))
        }
        StreamEffect::SetId { last_id, .. } if last_id < stream.last_entry_id() => {
            Err(format!("it sets the last id to {last_id}, which is less than the id of an entry"))
        }
        StreamEffect::SetId { entries_added: Some(count), .. }
        | StreamEffect::GroupCreate { entries_read: Some(count), .. }
        | StreamEffect::GroupSetId { entries_read: Some(count), .. }
            if count > COUNT_MAX =>
        {
            Err(format!("it sets a counter to {count}, which is greater than the maximum"))
        }
        StreamEffect::ReleaseUntil { rows, .. }
            if rows.iter().any(|row| row.not_before_ms > NOT_BEFORE_MS_MAX) =>
        {
            Err("it sets a due time that is greater than the maximum".to_owned())
        }
        StreamEffect::SetPolicy { policy, .. } | StreamEffect::GroupSetPolicy { policy, .. }
            if policy.fields().any(|(field, value)| !value.fits(field)) =>
        {
            Err("it sets a policy with a value that is out of range".to_owned())
        }
        StreamEffect::GroupSetPolicy { policy, .. }
            if policy.fields().any(|(field, _)| field.is_of_stream()) =>
        {
            Err("it sets a field on a group that only streams have".to_owned())
        }
        StreamEffect::GroupSetId { group, .. }
        | StreamEffect::GroupSetPolicy { group, .. }
        | StreamEffect::ConsumerCreate { group, .. }
        | StreamEffect::ConsumerDelete { group, .. }
        | StreamEffect::ConsumerSeen { group, .. }
        | StreamEffect::Deliver { group, .. }
        | StreamEffect::Redeliver { group, .. }
        | StreamEffect::Ack { group, .. }
        | StreamEffect::Claim { group, .. }
        | StreamEffect::Release { group, .. }
        | StreamEffect::ReleaseUntil { group, .. }
        | StreamEffect::Adopt { group, .. } => match stream.group(group) {
            Some(_) => Ok(()),
            None => Err(format!("it changes group \"{}\", which does not exist", group.escape_ascii())),
        },
        StreamEffect::Delay { ticket, .. } => delay_fits(stream, ticket),
        StreamEffect::Promote { through, count, first, .. } => {
            match stream.fits_promotion(&Promotion { through, count, first }) {
                true => Ok(()),
                false => Err(format!(
                    "it appends {count} delayed entries up to ticket {through} as {first}, but there are not exactly \
                     that many, or the last id is not smaller"
                )),
            }
        }
        StreamEffect::PromoteTickets { tickets, first, .. } => match stream.fits_promotion_of(tickets, first)
        {
            true => Ok(()),
            false => Err(format!(
                "it appends delayed entries as {first}, but some do not exist, or the last id is not smaller"
            )),
        },
        StreamEffect::Undelay { tickets } => match stream.decide_undelay(tickets) == tickets {
            true => Ok(()),
            false => Err("it removes delayed entries that do not exist".to_owned()),
        },
        StreamEffect::Remember { .. } | StreamEffect::Repeat => match stream.history_counters() {
            Some(_) => Ok(()),
            None => Err("it changes the producer history, which does not exist".to_owned()),
        },
        StreamEffect::Append { .. }
        | StreamEffect::SetId { .. }
        | StreamEffect::Create
        | StreamEffect::TrimThrough { .. }
        | StreamEffect::TrimEntries { .. }
        | StreamEffect::DeleteEntries { .. }
        | StreamEffect::Forget { .. }
        | StreamEffect::GroupCreate { .. }
        | StreamEffect::GroupDestroy { .. }
        | StreamEffect::SetPolicy { .. }
        | StreamEffect::OwnPolicies { .. }
        | StreamEffect::IdempotenceConfigure { .. } => Ok(()),
    }
}

fn delay_fits(stream: &Stream, ticket: StreamId) -> Result<(), String> {
    let last_number = stream.delayed().map_or(0, DelayedSet::last_number);
    if !(last_number + 1..=TICKET_NUMBER_MAX).contains(&ticket.seq) {
        return Err(format!(
            "it gives the ticket {ticket}, but the number of the last ticket is {last_number}"
        ));
    }
    match ticket.ms <= NOT_BEFORE_MS_MAX {
        true => Ok(()),
        false => Err("it sets a due time that is greater than the maximum".to_owned()),
    }
}
