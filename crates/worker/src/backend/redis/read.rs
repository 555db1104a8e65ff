//! Waiting for entries, and claiming what others left.

use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::super::{Admin, Claimed, Consumer, Delivery, Error, Fields, PendingFilter, PendingRow, StreamId};
use super::commands::{self, Id, Ids, command, idle_millis, millis};
use super::reply::{array, count, entries, fields, id, only_stream, tuple};
use super::{Redis, scripts};

/// The longest that a server is asked to wait at a stretch. If it is gone without a word, this is found out soon.
const WAIT_AT_MOST: Duration = Duration::from_secs(10);

/// How many rows are looked at in search of idle ones, for each that is wanted, and at least.
const ROWS_LOOKED_AT_PER_ROW: usize = 10;
const ROWS_LOOKED_AT_MIN: usize = 1000;

impl Redis {
    /// Asks again and again until something was read or the time is over. Zero would be for ever, so a wait lasts
    /// at least a millisecond.
    pub(super) async fn wait_for(
        &self,
        stream: &str,
        block: Duration,
        command: impl Fn(u64) -> Cmd,
    ) -> Result<Value, Error> {
        let begin = Instant::now();
        loop {
            let left = block.saturating_sub(begin.elapsed());
            let wait = left.min(WAIT_AT_MOST).max(Duration::from_millis(1));
            let answer = self.waiters.ask(&self.link, stream, &command(millis(wait)), wait).await?;
            let read = only_stream(answer)?;
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
        let rows = (Id(from), most, rows_looked_at(most));
        let arguments = (group, name, idle_millis(min_idle), rows);
        let [last, taken] = tuple(scripts::AUTOCLAIM.run(self, &[stream], arguments).await?)?;
        let delivery = |row| {
            let [at, counted, content] = tuple(row)?;
            Ok(Delivery { id: id(at)?, deliveries: count(counted)?, fields: fields(content)? })
        };
        let taken: Result<_, Error> = array(taken)?.into_iter().map(delivery).collect();
        let last = if matches!(last, Value::Nil) { None } else { Some(id(last)?) };
        Ok(Claimed { deliveries: taken?, next: after(last) })
    }

    /// The same without a script: look, see which entries are there, claim those. A row that somebody else claims
    /// in between is not idle any more, and the server leaves it to them.
    pub(super) async fn autoclaim_in_steps(
        &self,
        consumer: Consumer<'_>,
        min_idle: Duration,
        from: StreamId,
        most: usize,
    ) -> Result<Claimed, Error> {
        let Consumer { stream, group, name } = consumer;
        let page = rows_looked_at(most);
        let rows = self.pending(stream, group, &PendingFilter::rising(from, page)).await?;
        let is_last_page = rows.len() < page;
        let is_idle = |row: &&PendingRow| row.idle.is_none_or(|idle| idle >= min_idle);
        let mut last = rows.last().map(|row| row.id);
        let idle: Vec<&PendingRow> = rows.iter().filter(is_idle).take(most).collect();
        if idle.len() == most {
            last = idle.last().map(|row| row.id);
        } else if is_last_page {
            last = None;
        }
        let contents = self.contents(stream, idle.iter().map(|row| row.id)).await?;
        let there = idle.iter().zip(&contents).filter(|(_, content)| content.is_some());
        let there: Vec<StreamId> = there.map(|(row, _)| row.id).collect();
        let mut claimed: Vec<StreamId> = Vec::new();
        if !there.is_empty() {
            // Not only the ids: this is a delivery, and counts as one.
            let claim = command!("XCLAIM", stream, group, name, idle_millis(min_idle), Ids(&there));
            let taken = entries(self.link.command(stream, claim).await?)?;
            claimed = taken.into_iter().map(|entry| entry.id).collect();
        }
        let taken = idle.into_iter().zip(contents).filter_map(|(row, fields)| {
            let is_ours = claimed.contains(&row.id);
            let deliveries = row.deliveries.saturating_add(u64::from(is_ours));
            (is_ours || fields.is_none()).then_some(Delivery { id: row.id, fields, deliveries })
        });
        Ok(Claimed { deliveries: taken.collect(), next: after(last) })
    }

    /// The fields of these entries, where they are there.
    pub(super) async fn contents(
        &self,
        stream: &str,
        ids: impl Iterator<Item = StreamId>,
    ) -> Result<Vec<Option<Fields>>, Error> {
        let batch = ids.map(|id| commands::entry(stream, id)).collect();
        let answers = self.link.pipeline(stream, batch).await?.into_iter();
        answers.map(|answer| Ok(entries(answer)?.pop().map(|entry| entry.fields))).collect()
    }
}

fn rows_looked_at(most: usize) -> usize {
    most.saturating_mul(ROWS_LOOKED_AT_PER_ROW).max(ROWS_LOOKED_AT_MIN)
}

/// Where a walk goes on that has come to here.
fn after(last: Option<StreamId>) -> StreamId {
    last.and_then(StreamId::next).unwrap_or(StreamId::MIN)
}
