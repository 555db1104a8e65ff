//! Deletes orphaned retry records: those of messages that are no longer pending.

use std::time::Duration;

use millstream_protocol::ids::parse_id;
use tracing::debug;

use super::core::Core;
use super::recovery::PAGE_ROWS;
use super::subscription::Subscription;
use crate::backend::{Admin, Error, PendingFilter, StreamId};
use crate::retry_record::RetryRecord;

/// How often the worker looks for orphaned records.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// With more records than this, the worker looks less often.
const RECORDS_PER_SEARCH: u64 = 2000;

/// Deletes retry records of messages that are no longer pending, about once a minute, until the worker drains.
///
/// The call that acknowledges or dead-letters a message deletes its record. A record stays if another program acknowledges
/// the message, or if the group is deleted.
pub(crate) async fn delete_orphaned(core: &Core, subscription: &Subscription, admin: &dyn Admin) {
    let mut pause = SEARCH_INTERVAL;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = core.draining.cancelled() => return,
        }
        // An error is ignored: nothing depends on the deletion, and the next round tries again.
        let records = search_orphaned(subscription, admin).await.unwrap_or(0);
        // With many records, a search costs more, so the worker searches less often.
        pause = SEARCH_INTERVAL * u32::try_from(records / RECORDS_PER_SEARCH).unwrap_or(u32::MAX).max(1);
    }
}

/// Deletes the retry records of messages that are no longer pending. Returns the number of all records.
async fn search_orphaned(subscription: &Subscription, admin: &dyn Admin) -> Result<u64, Error> {
    let (stream, group, key) = (&*subscription.stream, &*subscription.group, &*subscription.retry_key);
    let count = admin.hash_len(key).await?;
    if count == 0 {
        return Ok(0);
    }
    // A message that waits is pending. Leave a minute to those that are due.
    let due_before_ms = admin.now_ms(stream).await?.saturating_sub(60_000);
    let records = admin.hash_get_all(key).await?.into_iter();
    let due = records.filter(|(_, json)| RetryRecord::parse(json).due_at_ms <= due_before_ms);
    let mut unsure: Vec<StreamId> = due.filter_map(|(field, _)| parse_id(field.as_bytes()).ok()).collect();
    unsure.sort_unstable();
    let mut orphaned: Vec<String> = Vec::new();
    while let (Some(&first), Some(&last)) = (unsure.first(), unsure.last()) {
        let range = PendingFilter { last, ..PendingFilter::starting_at(first, PAGE_ROWS) };
        let rows = admin.pending(stream, group, &range).await?;
        let examined = rows.last().filter(|_| rows.len() == PAGE_ROWS).map_or(last, |row| row.id);
        let later = unsure.split_off(unsure.partition_point(|id| *id <= examined));
        let is_pending = |id: &StreamId| rows.binary_search_by_key(id, |row| row.id).is_ok();
        orphaned.extend(unsure.iter().filter(|id| !is_pending(id)).map(StreamId::to_string));
        unsure = later;
    }
    let deleted = admin.hash_delete(key, &orphaned).await?;
    if deleted > 0 {
        debug!(stream, deleted, "deleted retry records of messages that are no longer pending");
    }
    Ok(count)
}
