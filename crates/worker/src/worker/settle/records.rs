//! Deletes orphaned retry records: those of messages that are no longer pending.

use std::time::Duration;

use millstream_protocol::ids::parse_id;
use tracing::debug;

use crate::backend::{Admin, Error, PendingFilter, StreamId};
use crate::names::retry_key;
use crate::worker::core::{Core, PAGE_ROWS};
use crate::worker::stream::Subscription;

/// How often the worker looks for orphaned records.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// With more records than this, the worker looks less often.
const RECORDS_PER_SEARCH: u64 = 2000;

/// Deletes retry records of messages that are no longer pending, about once a minute, until the worker drains.
///
/// The call that acknowledges or dead-letters a message deletes its record. A record stays if another program
/// acknowledges the message, or if the group is deleted.
pub(crate) async fn delete_orphaned(core: &Core, subscription: &Subscription, admin: &dyn Admin) {
    let mut pause = core.stretched(SEARCH_INTERVAL);
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = core.draining.cancelled() => return,
        }
        // An error is ignored: nothing depends on the deletion, and the next round tries again.
        let records =
            delete_orphaned_now(admin, &subscription.stream, &subscription.group).await.unwrap_or(0);
        // With many records, a search costs more, so the worker searches less often.
        let factor = u32::try_from(records / RECORDS_PER_SEARCH).unwrap_or(u32::MAX).max(1);
        pause = core.stretched(SEARCH_INTERVAL).saturating_mul(factor);
    }
}

/// Deletes the retry records of messages that are no longer pending. Returns the number of all records.
pub(crate) async fn delete_orphaned_now(admin: &dyn Admin, stream: &str, group: &str) -> Result<u64, Error> {
    let key = &*retry_key(stream, group);
    let count = admin.hash_len(key).await?;
    if count == 0 {
        return Ok(0);
    }
    // Only the names of the fields: the records of many messages would take much memory.
    let records = admin.hash_fields(key).await?.into_iter();
    let mut unsure: Vec<StreamId> = records.filter_map(|field| parse_id(field.as_bytes()).ok()).collect();
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
    let mut deleted = 0;
    for page in orphaned.chunks(PAGE_ROWS) {
        deleted += admin.hash_delete(key, page).await?;
    }
    if deleted > 0 {
        debug!(stream, deleted, "deleted retry records of messages that are no longer pending");
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::backend::{Acknowledgement, NewEntry, Read, Start};

    #[tokio::test]
    async fn records_of_messages_that_are_not_pending_are_deleted() {
        let backend = crate::connect("memory:").await.unwrap();
        assert_eq!(delete_orphaned_now(&*backend, "orders", "g").await.unwrap(), 0);
        backend.create_group("orders", "g", Start::Beginning).await.unwrap();
        let fields = vec![("n".into(), "1".into())];
        let entry = NewEntry { fields, idempotence: None };
        let messages = 3 * PAGE_ROWS;
        let ids = backend.add("orders", &vec![entry; messages], None).await.unwrap();
        let (group, consumer) = ("g", "a");
        let read = Read { stream: "orders", group, consumer, count: messages, block: None, claim_idle: None };
        assert_eq!(backend.read(&read).await.unwrap().len(), messages);
        let pairs: Vec<(String, Bytes)> = ids.iter().map(|id| (id.to_string(), "{}".into())).collect();
        let key = retry_key("orders", "g");
        backend.hash_set(&key, &pairs).await.unwrap();
        // Another program acknowledges some messages. It knows nothing about records.
        let others: Vec<StreamId> = ids.iter().copied().skip(1).step_by(3).collect();
        let done = Acknowledgement { ids: others.clone(), ..Acknowledgement::default() };
        backend.acknowledge("orders", "g", &done).await.unwrap();

        assert_eq!(delete_orphaned_now(&*backend, "orders", "g").await.unwrap(), messages as u64);
        let left = (messages - others.len()) as u64;
        assert_eq!(backend.hash_len(&key).await.unwrap(), left);
        let fields: Vec<String> = others.iter().map(StreamId::to_string).collect();
        assert!(backend.hash_get(&key, &fields).await.unwrap().iter().all(Option::is_none));
        assert_eq!(delete_orphaned_now(&*backend, "orders", "g").await.unwrap(), left);
        assert_eq!(backend.hash_len(&key).await.unwrap(), left);
    }
}
