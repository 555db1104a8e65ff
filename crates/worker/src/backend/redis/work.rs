//! What producers and workers ask of a server.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::{Cmd, Value};

use super::super::{
    Acknowledgement, Admin, Answer, Backend, Capabilities, Claimed, Consumer, DeadLetter, Delivery, Error,
    NewEntry, PendingFilter, Read, Release, Start, StreamId, StreamInfo, Trim,
};
use super::commands::{self, Id, Ids, command, millis};
use super::errors::{is_missing_key, says};
use super::link::Link;
use super::reply::{array, checked, count, deliveries, id, integer, only_stream, pending_row, stream_info};
use super::scripts::{self, ROWS_PER_SCRIPT};
use super::{NOBODY, Redis};

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        self.probe.capabilities()
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(self)
    }

    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> Answer<'a, Vec<StreamId>> {
        Box::pin(async move {
            super::super::check_entries(entries)?;
            let once_only = entries.iter().any(|entry| entry.idempotence.is_some())
                && self.has(|natives| natives.idempotence).await?;
            let add = |(at, entry): (usize, &NewEntry)| {
                let once = entry.idempotence.as_ref().filter(|_| once_only);
                commands::add(stream, &entry.fields, once, trim.filter(|_| at + 1 == entries.len()))
            };
            let batch: Vec<Cmd> = entries.iter().enumerate().map(add).collect();
            self.link.pipeline(stream, batch).await?.into_iter().map(id).collect()
        })
    }

    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, bool> {
        Box::pin(async move {
            let start = commands::start_id(start);
            let create = command!("XGROUP", "CREATE", stream, group, start, "MKSTREAM");
            match self.link.command(stream, create).await {
                Ok(_) => Ok(true),
                Err(error) if says(&error, "BUSYGROUP") => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn stream<'a>(&'a self, stream: &'a str) -> Answer<'a, Option<StreamInfo>> {
        Box::pin(async move {
            match self.link.command(stream, command!("XINFO", "STREAM", stream)).await {
                Ok(answer) => stream_info(answer).map(Some),
                Err(error) if is_missing_key(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>> {
        Box::pin(async move {
            if read.count == 0 {
                return Ok(Vec::new());
            }
            let claim_idle = match read.claim_idle {
                Some(idle) if self.has(|natives| natives.read_claims).await? => Some(idle),
                _ => None,
            };
            let read = &Read { claim_idle, ..*read };
            let Some(block) = read.block else {
                let answer = self.link.command(read.stream, commands::read_group(read, None)).await?;
                return deliveries(only_stream(answer)?);
            };
            let command = |wait_ms| commands::read_group(read, Some(wait_ms));
            deliveries(self.wait_for(read.stream, block, command).await?)
        })
    }

    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> Answer<'a, Vec<Delivery>> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            let Some(first) = after.next() else { return Ok(Vec::new()) };
            // Reading one's history would count as a delivery; looking at it does not.
            let consumer = Some(name.to_owned());
            let filter = PendingFilter { consumer, ..PendingFilter::rising(first, count) };
            let rows = self.pending(stream, group, &filter).await?;
            let contents = self.contents(stream, rows.iter().map(|row| row.id)).await?;
            let rows = rows.into_iter().zip(contents);
            Ok(rows
                .map(|(row, fields)| Delivery { id: row.id, fields, deliveries: row.deliveries })
                .collect())
        })
    }

    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> Answer<'a, Claimed> {
        Box::pin(async move {
            if count == 0 {
                return Ok(Claimed { deliveries: Vec::new(), next: from });
            }
            match self.has(|natives| natives.scripts).await? {
                true => self.autoclaim_by_script(consumer, min_idle, from, count).await,
                false => self.autoclaim_in_steps(consumer, min_idle, from, count).await,
            }
        })
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            let slot = Slot::for_key(stream);
            let is_near = |key: &str| matches!(self.link, Link::Server(_)) || Slot::for_key(key) == slot;
            let mut step = Vec::new();
            for (key, lifetime) in &done.remember {
                let set = command!("SET", key, 1, "PX", millis(*lifetime).max(1));
                if is_near(key) {
                    step.push(set);
                } else {
                    // On another server of the cluster: no common step, so it comes first.
                    self.link.command(key, set).await?;
                }
            }
            if !done.ids.is_empty() {
                step.push(commands::acknowledge(stream, group, &done.ids));
            }
            let mut answers = match step.len() {
                0 | 1 => self.link.pipeline(stream, step).await?,
                _ => self.link.transaction(stream, step).await?,
            };
            let last = answers.pop().filter(|_| !done.ids.is_empty());
            answers.into_iter().try_for_each(|answer| checked(answer).map(drop))?;
            last.map_or(Ok(0), count)
        })
    }

    fn seen<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<bool>> {
        Box::pin(async move {
            let Some(first) = keys.first() else { return Ok(Vec::new()) };
            let is_one_slot = || keys.iter().all(|key| Slot::for_key(key) == Slot::for_key(first));
            if matches!(self.link, Link::Server(_)) || is_one_slot() {
                let answers = array(self.link.command(first, command!("MGET", keys)).await?)?;
                return Ok(answers.iter().map(|answer| !matches!(answer, Value::Nil)).collect());
            }
            let mut seen = Vec::with_capacity(keys.len());
            for key in keys {
                seen.push(integer(self.link.command(key, command!("EXISTS", key)).await?)? > 0);
            }
            Ok(seen)
        })
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> Answer<'a, Vec<StreamId>> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            let mut ours = Vec::with_capacity(ids.len());
            if ids.is_empty() {
                return Ok(ours);
            }
            if self.has(|natives| natives.extend).await? {
                let extend = commands::extend(consumer, ids);
                for (id, answer) in ids.iter().zip(array(self.link.command(stream, extend).await?)?) {
                    if integer(answer)? == 1 {
                        ours.push(*id);
                    }
                }
                return Ok(ours);
            }
            for some in ids.chunks(ROWS_PER_SCRIPT) {
                let arguments = (group, name, Ids(some));
                for extended in array(scripts::EXTEND.run(self, &[stream], arguments).await?)? {
                    ours.push(id(extended)?);
                }
            }
            Ok(ours)
        })
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> Answer<'a, u64> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            if rows.is_empty() {
                return Ok(0);
            }
            if self.has(|natives| natives.nack).await? {
                return self.release_natively(consumer, rows).await;
            }
            let mut released = 0;
            for some in rows.chunks(ROWS_PER_SCRIPT) {
                let some: Vec<_> =
                    some.iter().map(|row| (Id(row.id), row.delivery, row.deliveries)).collect();
                let arguments = (group, name, NOBODY, some);
                released += count(scripts::RELEASE.run(self, &[stream], arguments).await?)?;
            }
            Ok(released)
        })
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>> {
        Box::pin(async move {
            super::super::check_letters(letters)?;
            self.dead_letter_all(consumer, letters).await
        })
    }
}

impl Redis {
    /// XNACK asks neither whose a row is nor how often it was delivered. Extending asks the first and keeps the row from being
    /// claimed in between; then the second is looked up.
    async fn release_natively(&self, consumer: Consumer<'_>, rows: &[Release]) -> Result<u64, Error> {
        let Consumer { stream, group, name } = consumer;
        let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
        let ours = self.extend(consumer, &ids).await?;
        let mut rows: Vec<&Release> = rows.iter().filter(|row| ours.contains(&row.id)).collect();
        let lookup = |row: &&Release| {
            let filter = PendingFilter { consumer: Some(name.to_owned()), ..PendingFilter::one(row.id) };
            commands::pending(stream, group, &filter)
        };
        let found = self.link.pipeline(stream, rows.iter().map(lookup).collect()).await?.into_iter();
        let found = found.map(|answer| array(answer)?.into_iter().map(pending_row).next().transpose());
        let mut found = found.collect::<Result<Vec<_>, _>>()?.into_iter();
        rows.retain(|row| found.next().flatten().is_some_and(|found| found.deliveries == row.delivery));
        rows.sort_by_key(|row| row.deliveries);
        let mut batch = Vec::new();
        for same in rows.chunk_by(|a, b| a.deliveries == b.deliveries) {
            let ids: Vec<StreamId> = same.iter().map(|row| row.id).collect();
            let mut release = commands::release(stream, group, &ids);
            release.arg("RETRYCOUNT").arg(same[0].deliveries);
            batch.push(release);
        }
        self.link.pipeline(stream, batch).await?.into_iter().map(count).sum()
    }
}
