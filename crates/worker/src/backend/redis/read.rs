//! Reading: new entries, one's own pending ones, those that others left.

use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd, pipe};

use super::super::{Claimed, Delivery, Entry, Error, Fields, PendingFilter, PendingRow, Read, StreamId};
use super::Redis;
use super::reply::{array, count, deliveries, entries, fields, id, only_stream, tuple};
use super::request::{Id, idle_millis, millis};
use super::scripts::Argument;

/// The longest that a server is asked to wait at a stretch. If it is gone without a word, this is found out soon.
const WAIT_AT_MOST: Duration = Duration::from_secs(10);

/// How many rows are looked at in search of idle ones, for each that is wanted, and at least.
const ROWS_LOOKED_AT_PER_ROW: usize = 10;
const ROWS_LOOKED_AT_MIN: usize = 1000;

impl Redis {
    pub(super) async fn read(&self, read: &Read<'_>) -> Result<Vec<Delivery>, Error> {
        if read.count == 0 {
            return Ok(Vec::new());
        }
        let claim_idle = match read.claim_idle {
            Some(idle) if self.has(|natives| natives.read_claims).await? => Some(idle),
            _ => None,
        };
        let read = &Read { claim_idle, ..*read };
        let Some(block) = read.block else {
            let answer = self.link.command(read.stream, read_command(read, None)).await?;
            return deliveries(only_stream(answer)?);
        };
        let command = |wait| read_command(read, Some(wait));
        deliveries(self.wait_for(read.stream, block, command).await?)
    }

    pub(super) async fn follow(
        &self,
        stream: &str,
        after: StreamId,
        most: usize,
        block: Duration,
    ) -> Result<Vec<Entry>, Error> {
        let command = |wait| {
            let mut command = cmd("XREAD");
            command.arg("COUNT").arg(most).arg("BLOCK").arg(wait).arg("STREAMS").arg(stream).arg(Id(after));
            command
        };
        entries(self.wait_for(stream, block, command).await?)
    }

    /// Asks again and again until something was read or the time is over. Zero would be for ever, so a wait lasts
    /// at least a millisecond.
    async fn wait_for(
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

    pub(super) async fn own_pending(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        after: StreamId,
        most: usize,
    ) -> Result<Vec<Delivery>, Error> {
        let Some(first) = after.next() else { return Ok(Vec::new()) };
        // Reading one's history would count as a delivery; looking at it does not.
        let filter = PendingFilter {
            first,
            last: StreamId::MAX,
            count: most,
            consumer: Some(consumer.to_owned()),
            min_idle: None,
        };
        let rows = self.pending(stream, group, &filter).await?;
        let contents = self.contents(stream, rows.iter().map(|row| row.id)).await?;
        let delivery = |(row, fields): (PendingRow, Option<Fields>)| Delivery {
            id: row.id,
            fields,
            deliveries: row.deliveries,
        };
        Ok(rows.into_iter().zip(contents).map(delivery).collect())
    }

    pub(super) async fn autoclaim(
        &self,
        read: &Read<'_>,
        min_idle: Duration,
        from: StreamId,
    ) -> Result<Claimed, Error> {
        if read.count == 0 {
            return Ok(Claimed { deliveries: Vec::new(), next: from });
        }
        let look = read.count.saturating_mul(ROWS_LOOKED_AT_PER_ROW).max(ROWS_LOOKED_AT_MIN);
        if !self.has(|natives| natives.scripts).await? {
            return self.autoclaim_in_steps(read, min_idle, from, look).await;
        }
        let arguments: [&dyn Argument; 6] =
            [&read.group, &read.consumer, &idle_millis(min_idle), &Id(from), &read.count, &look];
        let answer = self.scripts.autoclaim.run(self, &[read.stream], &arguments).await?;
        let [last, taken] = tuple(answer)?;
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
    async fn autoclaim_in_steps(
        &self,
        read: &Read<'_>,
        min_idle: Duration,
        from: StreamId,
        look: usize,
    ) -> Result<Claimed, Error> {
        let everything =
            PendingFilter { first: from, last: StreamId::MAX, count: look, consumer: None, min_idle: None };
        let rows = self.pending(read.stream, read.group, &everything).await?;
        let is_last_page = rows.len() < look;
        let is_idle = |row: &&PendingRow| row.idle.is_none_or(|idle| idle >= min_idle);
        let mut last = rows.last().map(|row| row.id);
        let idle: Vec<&PendingRow> = rows.iter().filter(is_idle).take(read.count).collect();
        if idle.len() == read.count {
            last = idle.last().map(|row| row.id);
        } else if is_last_page {
            last = None;
        }
        let contents = self.contents(read.stream, idle.iter().map(|row| row.id)).await?;
        let mut command = cmd("XCLAIM");
        command.arg(read.stream).arg(read.group).arg(read.consumer).arg(idle_millis(min_idle));
        let there = idle.iter().zip(&contents).filter(|(_, content)| content.is_some());
        there.clone().for_each(|(row, _)| {
            command.arg(Id(row.id));
        });
        let mut claimed: Vec<StreamId> = Vec::new();
        if there.count() > 0 {
            // Not only the ids: this is a delivery, and counts as one.
            let taken = entries(self.link.command(read.stream, command).await?)?;
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
    async fn contents(
        &self,
        stream: &str,
        ids: impl Iterator<Item = StreamId>,
    ) -> Result<Vec<Option<Fields>>, Error> {
        let mut batch = pipe();
        for id in ids {
            batch.cmd("XRANGE").arg(stream).arg(Id(id)).arg(Id(id));
        }
        let answers = self.link.pipeline(stream, batch).await?.into_iter();
        answers.map(|answer| Ok(entries(answer)?.pop().map(|entry| entry.fields))).collect()
    }
}

fn read_command(read: &Read<'_>, wait: Option<u64>) -> Cmd {
    let mut command = cmd("XREADGROUP");
    command.arg("GROUP").arg(read.group).arg(read.consumer).arg("COUNT").arg(read.count);
    if let Some(wait) = wait {
        command.arg("BLOCK").arg(wait);
    }
    if let Some(idle) = read.claim_idle {
        command.arg("CLAIM").arg(millis(idle));
    }
    command.arg("STREAMS").arg(read.stream).arg(">");
    command
}

/// Where a walk goes on that has come to here.
fn after(last: Option<StreamId>) -> StreamId {
    last.and_then(StreamId::next).unwrap_or(StreamId::MIN)
}
