//! Pending rows in the embedded store: whose they are, and what changes about them.

use std::ops::ControlFlow;
use std::time::Duration;

use millstream_engine::pending::{Filter, PendingEntry};
use millstream_engine::stream::Group;
use millstream_engine::{ClaimedRow, Effect, ReleasedRow, StreamEffect, StreamId};
use millstream_store::embedded::Refusal;
use millstream_store::{Reader, Txn};

use super::super::{Claimed, Delivery, PendingFilter, PendingRow, Release};
use super::values::{fields_of, millis, text};

/// The group, which must be there.
pub(super) fn group<'t>(txn: &'t Txn<'_>, key: &[u8], name: &[u8]) -> Result<&'t Group, Refusal> {
    txn.group(key, name)?.ok_or(Refusal::NoGroup)
}

/// The name of a row's owner.
pub(super) fn owner<'g>(group: &'g Group, row: &PendingEntry) -> Option<&'g [u8]> {
    row.consumer.is_some().then(|| group.owner_name(row.consumer))
}

/// Gives back those of these deliveries that are this consumer's and the last, and says how many that were.
pub(super) fn release(
    txn: &mut Txn<'_>,
    (key, group_name, consumer): (&[u8], &[u8], &[u8]),
    rows: &[Release],
) -> Result<u64, Refusal> {
    let group = group(txn, key, group_name)?;
    let Some(consumer) = group.consumer(consumer) else { return Ok(0) };
    let is_ours = |given: &&Release| {
        let row = group.pending().get(given.id);
        row.is_some_and(|row| row.consumer == Some(consumer) && row.deliveries == given.delivery)
    };
    let ours = rows.iter().filter(is_ours);
    let ours: Vec<ReleasedRow> =
        ours.map(|row| ReleasedRow { id: row.id, deliveries: row.deliveries }).collect();
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
    let stream = txn.stream(key)?.ok_or(Refusal::NoGroup)?;
    let group = stream.group(group_name).ok_or(Refusal::NoGroup)?;
    let mut claimed = Claimed::default();
    let mut idle: Vec<PendingEntry> = Vec::new();
    if let Some(limit) = now_ms.checked_sub(min_idle_ms) {
        let filter = Filter { delivered_at_or_before_ms: Some(limit), ..Filter::default() };
        group.pending().walk(from, filter, |row| {
            if idle.len() == count {
                claimed.next = row.id;
                return ControlFlow::Break(());
            }
            idle.push(row);
            ControlFlow::Continue(())
        });
    }
    let mut rows = Vec::with_capacity(idle.len());
    let ids: Vec<StreamId> = idle.iter().map(|row| row.id).collect();
    let mut counts = idle.iter().map(|row| row.deliveries);
    stream.visit_ids(&ids, |id, entry| {
        let before = counts.next().unwrap_or_default();
        let deliveries = if entry.is_some() { before.saturating_add(1) } else { before };
        rows.push(ClaimedRow { id, delivered_at_ms: now_ms, deliveries });
        claimed.deliveries.push(Delivery { id, fields: entry.map(fields_of), deliveries });
    });
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
    let group = group(txn, key, group_name)?;
    let Some(row) = group.pending().get(id) else { return Ok(false) };
    let is_gone = || txn.stream(key).is_ok_and(|stream| stream.is_none_or(|stream| !stream.contains(id)));
    Ok(owner(group, &row) == Some(consumer) || is_gone())
}

/// The rows that a filter lets through, by id.
pub(super) fn list(group: &Group, filter: &PendingFilter, now_ms: u64) -> Result<Vec<PendingRow>, Refusal> {
    let mut found = Vec::new();
    let consumer = match &filter.consumer {
        Some(name) => match group.consumer(name.as_bytes()) {
            Some(handle) => Some(handle),
            None => return Ok(found),
        },
        None => None,
    };
    let min_idle_ms = filter.min_idle.map(millis).filter(|min_idle_ms| *min_idle_ms > 0);
    let delivered_at_or_before_ms = match min_idle_ms.map(|min_idle_ms| now_ms.checked_sub(min_idle_ms)) {
        Some(None) => return Ok(found),
        Some(limit) => limit,
        None => None,
    };
    group.pending().walk(filter.first, Filter { consumer, delivered_at_or_before_ms }, |row| {
        if row.id > filter.last || found.len() == filter.count {
            return ControlFlow::Break(());
        }
        let owner = owner(group, &row);
        if owner.is_none() && min_idle_ms.is_some() {
            return ControlFlow::Continue(());
        }
        found.push(PendingRow {
            id: row.id,
            consumer: owner.map(text),
            idle: owner.map(|_| Duration::from_millis(now_ms.saturating_sub(row.delivered_at_ms))),
            deliveries: row.deliveries,
        });
        ControlFlow::Continue(())
    });
    Ok(found)
}
