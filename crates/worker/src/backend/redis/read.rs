//! Blocking reads, and claiming idle entries of other consumers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value};

use crate::names::retry_key;
use crate::retry_record::RetryRecord;

use super::super::{
    Claimed, Consumer, Delivery, Error, Fields, InspectStore, PendingFilter, PendingRow, ReadMessages,
    SettleMessages, StreamId,
};
use super::commands::{self, Id, Ids, command, idle_millis, millis};
use super::reply::{array, count, entries, fields, id, integer, only_stream, tuple};
use super::{CLAIMABLE_IDLE_MS, RELEASED_CONSUMER, Redis, scripts};

/// Maximum time that one command blocks. Limits how long a dead server stays undetected.
pub(super) const BLOCK_MAX: Duration = Duration::from_secs(10);

/// Pending entries that one call examines for each idle entry it should claim.
const ROWS_SCANNED_PER_CLAIM: usize = 10;
/// Minimum number of pending entries that one call examines.
const ROWS_SCANNED_MIN: usize = 1000;

impl Redis {
    /// Repeats a blocking command until it returns entries or `block` has passed.
    ///
    /// Each command blocks for at least 1 ms: a BLOCK of 0 would wait without limit.
    pub(super) async fn read_blocking(
        &self,
        stream: &str,
        block: Duration,
        command: impl Fn(u64) -> Cmd,
    ) -> Result<Value, Error> {
        let begin = Instant::now();
        loop {
            let left = block.saturating_sub(begin.elapsed());
            let wait = left.min(BLOCK_MAX).max(Duration::from_millis(1));
            let reply = self.blocking.call(&self.connection, stream, &command(millis(wait)), wait).await?;
            let read = only_stream(reply)?;
            if !matches!(read, Value::Nil) || left <= wait {
                return Ok(read);
            }
        }
    }

    pub(super) async fn autoclaim_by_script(
        &self,
        consumer: Consumer<'_>,
        min_idle: Duration,
        from: StreamId,
        most: usize,
    ) -> Result<Claimed, Error> {
        let Consumer { stream, group, name } = consumer;
        let rows = (Id(from), most, scan_limit(most));
        let arguments = (group, name, idle_millis(min_idle), rows, RELEASED_CONSUMER, CLAIMABLE_IDLE_MS);
        let [last, taken, due] = tuple(scripts::AUTOCLAIM.run(self, &[stream], arguments).await?)?;
        let delivery = |row| {
            let [at, counted, content] = tuple(row)?;
            let (id, deliveries, fields) = (id(at)?, count(counted)?, fields(content)?);
            Ok(Delivery { id, fields, deliveries, claimed: true })
        };
        let taken: Result<_, Error> = array(taken)?.into_iter().map(delivery).collect();
        let last = if matches!(last, Value::Nil) { None } else { Some(id(last)?) };
        let due_in = u64::try_from(integer(due)?).ok().map(Duration::from_millis);
        Ok(Claimed { deliveries: taken?, next: next_cursor(last), due_in })
    }

    /// Claims idle entries without a script, in steps: list pending entries, leave out those that wait, fetch the
    /// fields of the others, claim those that still exist.
    ///
    /// If another consumer claims an entry in between, the entry is no longer idle, and the server does not claim it
    /// again.
    pub(super) async fn autoclaim_in_steps(
        &self,
        consumer: Consumer<'_>,
        min_idle: Duration,
        from: StreamId,
        most: usize,
    ) -> Result<Claimed, Error> {
        let Consumer { stream, group, .. } = consumer;
        let page = scan_limit(most);
        let rows = self.pending(stream, group, &PendingFilter::starting_at(from, page)).await?;
        let is_last_page = rows.len() < page;
        let waiting = self.waiting_rows(stream, group, &rows).await?;
        let is_idle = |row: &&PendingRow| {
            row.idle.is_none_or(|idle| idle >= min_idle) && waiting.binary_search(&row.id).is_err()
        };
        let mut last = rows.last().map(|row| row.id);
        let idle: Vec<&PendingRow> = rows.iter().filter(is_idle).take(most).collect();
        if idle.len() == most {
            last = idle.last().map(|row| row.id);
        } else if is_last_page {
            last = None;
        }
        let contents = self.fetch_fields(stream, idle.iter().map(|row| row.id)).await?;
        let idle: Vec<PendingRow> = idle.into_iter().cloned().collect();
        let taken = self.claim_existing(consumer, idle_millis(min_idle), idle, contents).await?;
        Ok(Claimed { deliveries: taken, next: next_cursor(last), due_in: None })
    }

    /// Claims pending entries of all consumers: lists a page of them, fetches their fields, claims those that still
    /// exist.
    pub(super) async fn take_over_in_steps(
        &self,
        consumer: Consumer<'_>,
        from: StreamId,
        most: usize,
    ) -> Result<Claimed, Error> {
        let Consumer { stream, group, .. } = consumer;
        if most == 0 {
            return Ok(Claimed { next: from, ..Claimed::default() });
        }
        let rows = self.pending(stream, group, &PendingFilter::starting_at(from, most)).await?;
        let last = rows.last().filter(|_| rows.len() == most).map(|row| row.id);
        let contents = self.fetch_fields(stream, rows.iter().map(|row| row.id)).await?;
        let deliveries = self.claim_existing(consumer, 0, rows, contents).await?;
        Ok(Claimed { deliveries, next: next_cursor(last), due_in: None })
    }

    /// Claims those of the pending entries that exist in the stream. Returns them, and those that do not exist.
    async fn claim_existing(
        &self,
        consumer: Consumer<'_>,
        min_idle_ms: u64,
        rows: Vec<PendingRow>,
        contents: Vec<Option<Fields>>,
    ) -> Result<Vec<Delivery>, Error> {
        let Consumer { stream, group, name } = consumer;
        let existing = rows.iter().zip(&contents).filter(|(_, content)| content.is_some());
        let existing: Vec<StreamId> = existing.map(|(row, _)| row.id).collect();
        let mut claimed: Vec<StreamId> = Vec::new();
        if !existing.is_empty() {
            // Without JUSTID: the claim is a delivery and increments the delivery count.
            let claim = command!("XCLAIM", stream, group, name, min_idle_ms, Ids(&existing));
            let taken = entries(self.connection.command(stream, claim).await?)?;
            claimed = taken.into_iter().map(|entry| entry.id).collect();
            claimed.sort_unstable();
        }
        let taken = rows.into_iter().zip(contents).filter_map(|(row, fields)| {
            let is_ours = claimed.binary_search(&row.id).is_ok();
            let deliveries = row.deliveries.saturating_add(u64::from(is_ours));
            let delivery = Delivery { id: row.id, fields, deliveries, claimed: true };
            (is_ours || delivery.fields.is_none()).then_some(delivery)
        });
        Ok(taken.collect())
    }

    /// Returns the ids of released rows whose retry records say that they wait. XPENDING does not show it, and XCLAIM
    /// would claim them.
    async fn waiting_rows(
        &self,
        stream: &str,
        group: &str,
        rows: &[PendingRow],
    ) -> Result<Vec<StreamId>, Error> {
        let released: Vec<StreamId> =
            rows.iter().filter(|row| row.consumer.is_none()).map(|row| row.id).collect();
        if released.is_empty() {
            return Ok(Vec::new());
        }
        let fields: Vec<String> = released.iter().map(StreamId::to_string).collect();
        let records = self.hash_get(&retry_key(stream, group), &fields).await?;
        let now_ms = self.now_ms(stream).await?;
        let waits =
            |record: Option<Bytes>| record.is_some_and(|json| RetryRecord::parse(&json).due_at_ms > now_ms);
        let rows = released.into_iter().zip(records);
        Ok(rows.filter_map(|(id, record)| waits(record).then_some(id)).collect())
    }

    /// Returns the fields of each entry, or `None` if the stream does not have it.
    pub(super) async fn fetch_fields(
        &self,
        stream: &str,
        ids: impl Iterator<Item = StreamId>,
    ) -> Result<Vec<Option<Fields>>, Error> {
        let commands = ids.map(|id| commands::entry(stream, id)).collect();
        let replies = self.connection.pipeline(stream, commands).await?.into_iter();
        replies.map(|reply| Ok(entries(reply)?.pop().map(|entry| entry.fields))).collect()
    }
}

fn scan_limit(most: usize) -> usize {
    most.saturating_mul(ROWS_SCANNED_PER_CLAIM).max(ROWS_SCANNED_MIN)
}

/// Returns the id from which the next call continues after `last`. `None` means that no entries are left.
fn next_cursor(last: Option<StreamId>) -> StreamId {
    last.and_then(StreamId::next).unwrap_or(StreamId::MIN)
}
