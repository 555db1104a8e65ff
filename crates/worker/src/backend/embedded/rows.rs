//! Pending rows in the embedded store: whose they are, and what changes about them.

use std::time::Duration;

use millstream_engine::stream::{Group, IdRange, OwnRelease, PendingQuery};
use millstream_engine::{Effect, Stream, StreamEffect, StreamId};
use millstream_store::embedded::Refusal;
use millstream_store::{Reader, Txn};

use super::super::{Claimed, Delivery, PendingFilter, PendingRow, Release};
use super::values::{fields_of, millis, text};

/// The group, which must be there.
pub(super) fn group<'t>(txn: &'t Txn<'_>, key: &[u8], name: &[u8]) -> Result<&'t Group, Refusal> {
    txn.group(key, name)?.ok_or(Refusal::NoGroup)
}

/// Gives back those of these deliveries that are this consumer's and the last, and says how many that were.
pub(super) fn release(
    txn: &mut Txn<'_>,
    (key, group_name, consumer): (&[u8], &[u8], &[u8]),
    rows: &[Release],
) -> Result<u64, Refusal> {
    let (stream, group) = stream_and_group(txn, key, group_name)?;
    let given: Vec<OwnRelease> = rows.iter().map(own_release).collect();
    let ours = stream.decide_release(group, consumer, &given);
    if !ours.is_empty() {
        txn.apply(key, &Effect::Stream(StreamEffect::Release { group: group_name, rows: &ours }));
    }
    Ok(ours.len() as u64)
}

/// Takes over idle rows from an id on. A row whose entry is gone changes hands and does not count as delivered again.
pub(super) fn claim_idle(
    txn: &mut Txn<'_>,
    (key, group_name, consumer): (&[u8], &[u8], &[u8]),
    (min_idle_ms, from, count): (u64, StreamId, usize),
) -> Result<Claimed, Refusal> {
    let now_ms = txn.now_ms();
    let (stream, group) = stream_and_group(txn, key, group_name)?;
    let mut claimed = Claimed { deliveries: Vec::new(), next: from };
    if count == 0 {
        return Ok(claimed);
    }
    let (rows, next) =
        stream.visit_claim(group, (from, count as u64), min_idle_ms, now_ms, |id, entry, deliveries| {
            claimed.deliveries.push(Delivery { id, fields: entry.map(fields_of), deliveries });
        });
    claimed.next = next.unwrap_or(StreamId::MIN);
    if !rows.is_empty() {
        let effect = StreamEffect::Claim { group: group_name, consumer, rows: &rows, at_ms: now_ms };
        txn.apply(key, &Effect::Stream(effect));
    }
    Ok(claimed)
}

/// Removes a consumer unless it holds something. Whether it is gone.
pub(super) fn dismiss(
    txn: &mut Txn<'_>,
    (key, group_name, consumer): (&[u8], &[u8], &[u8]),
) -> Result<bool, Refusal> {
    let group = group(txn, key, group_name)?;
    let holds = group.consumer(consumer).is_some_and(|handle| group.consumer_at(handle).pending > 0);
    if !holds {
        txn.xgroup_delete_consumer(Reader { key, group: group_name, consumer })?;
    }
    Ok(!holds)
}

/// Whether a row may end in the dead letters by this consumer: its own, or one whose entry is gone, which nobody
/// can work on.
pub(super) fn may_bury(
    txn: &Txn<'_>,
    (key, group_name, consumer): (&[u8], &[u8], &[u8]),
    id: StreamId,
) -> Result<bool, Refusal> {
    let (stream, group) = stream_and_group(txn, key, group_name)?;
    Ok(stream.may_dead_letter(group, consumer, id))
}

/// The rows that a filter lets through, by id.
pub(super) fn list(group: &Group, filter: &PendingFilter, now_ms: u64) -> Result<Vec<PendingRow>, Refusal> {
    let query = PendingQuery {
        ids: IdRange { first: filter.first, last: filter.last },
        consumer: filter.consumer.as_ref().map(String::as_bytes),
        min_idle_ms: filter.min_idle.map_or(0, millis),
        count: filter.count as u64,
    };
    let mut found = Vec::new();
    group.visit_pending(&query, now_ms, |row| {
        found.push(PendingRow {
            id: row.id,
            consumer: row.consumer.map(text),
            idle: row.idle_ms.map(Duration::from_millis),
            deliveries: row.deliveries,
        });
    });
    Ok(found)
}

fn own_release(given: &Release) -> OwnRelease {
    OwnRelease { id: given.id, delivery: given.delivery, deliveries: given.deliveries }
}

fn stream_and_group<'t>(
    txn: &'t Txn<'_>,
    key: &[u8],
    group: &[u8],
) -> Result<(&'t Stream, &'t Group), Refusal> {
    let stream = txn.stream(key)?.ok_or(Refusal::NoGroup)?;
    Ok((stream, stream.group(group).ok_or(Refusal::NoGroup)?))
}
