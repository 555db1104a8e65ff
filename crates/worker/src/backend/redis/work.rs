//! Implements [`Backend`]: the operations of producers and workers on a server.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};

use crate::names::retry_key;
use crate::slots::slot_of;

use super::super::{
    Acknowledgement, AddOptions, AddOutcome, Admin, Backend, BackendFuture, Capability, Claimant, Claimed,
    Consumer, Delivery, Entry, Error, ErrorKind, InspectStore, NewDeadLetter, NewEntry, OwnStreams,
    PendingFilter, PolicyInfo, Read, ReadMany, ReadMessages, Release, Retry, SettleMessages, Start, StreamId,
    StreamInfo, StreamOwner, StreamRead, Trim, WorkerAccess, no_stream,
};
use super::commands::{self, Id, Ids, command, millis};
use super::connection::CallOutcome;
use super::errors::{is_missing_key, starts_with};
use super::look::time_ms;
use super::probe::Feature;
use super::reply::{
    array, bytes, checked, count, deliveries, entries, id, integer, only_stream, pairs, pending_row,
    stream_info, sum_of_counts, text,
};
use super::scripts::{self, ROWS_PER_SCRIPT};
use super::{CLAIMABLE_IDLE_MS, RELEASED_CONSUMER, Redis};

impl ReadMessages for Redis {
    fn set_client_name<'a>(&'a self, name: &'a str) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            self.set_client_name(name).await;
            Ok(())
        })
    }

    fn supports<'a>(&'a self, capability: Capability, stream: &'a str) -> BackendFuture<'a, bool> {
        let feature = match capability {
            Capability::ReadClaims => return Box::pin(self.read_claims(stream)),
            Capability::DelayedRelease => Feature::NackDelay,
            Capability::DelayedEntries => Feature::Delays,
            Capability::Policies => Feature::Policies,
            Capability::Releases => Feature::Nack,
            Capability::Extends => Feature::Extend,
            Capability::IdempotentAdds => Feature::Idempotence,
            Capability::ExactLag => Feature::ExactLag,
        };
        Box::pin(self.has(feature, stream))
    }

    fn check_access<'a>(&'a self, access: &'a WorkerAccess<'a>) -> BackendFuture<'a, ()> {
        Box::pin(self.check_worker_access(access))
    }

    fn now_ms<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, u64> {
        Box::pin(async move { time_ms(self.connection.command(stream, redis::cmd("TIME")).await?) })
    }

    fn policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
    ) -> BackendFuture<'a, Option<PolicyInfo>> {
        self.get_policy(stream, group)
    }

    fn location(&self) -> String {
        self.location.clone()
    }

    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let start = commands::start_id(start);
            let create = command!("XGROUP", "CREATE", stream, group, start, "MKSTREAM");
            match self.connection.command(stream, create).await {
                Ok(_) => Ok(true),
                Err(error) if starts_with(&error, "BUSYGROUP") => Ok(false),
                // A full server rejects the command even if the group exists.
                Err(error) if error.kind() == ErrorKind::NotWritable => {
                    let groups = self.groups(stream).await?;
                    if groups.iter().any(|found| found.name == group) { Ok(false) } else { Err(error) }
                }
                Err(error) => Err(error),
            }
        })
    }

    fn join_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let create = command!("XGROUP", "CREATE", stream, group, commands::start_id(start));
            match self.connection.command(stream, create).await {
                Ok(_) => Ok(true),
                Err(error) if starts_with(&error, "BUSYGROUP") => Ok(true),
                Err(error) if is_missing_key(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn stream<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Option<StreamInfo>> {
        Box::pin(async move {
            match self.connection.command(stream, command!("XINFO", "STREAM", stream)).await {
                Ok(reply) => stream_info(reply).map(Some),
                Err(error) if is_missing_key(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> BackendFuture<'a, Vec<Delivery>> {
        Box::pin(async move {
            if read.count == 0 {
                return Ok(Vec::new());
            }
            let claim_idle = match read.claim_idle {
                Some(idle) if self.read_claims(read.stream).await? => Some(idle),
                _ => None,
            };
            let read = &Read { claim_idle, ..*read };
            let Some(block) = read.block else {
                let reply = self.connection.command(read.stream, commands::read_group(read, None)).await?;
                return deliveries(only_stream(reply)?);
            };
            let command = |block_ms| commands::read_group(read, Some(block_ms));
            deliveries(self.read_blocking(read.stream, block, command).await?)
        })
    }

    fn read_many<'a>(&'a self, read: &'a ReadMany<'a>) -> BackendFuture<'a, Vec<StreamRead>> {
        Box::pin(self.read_streams(read))
    }

    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Vec<Delivery>> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            let Some(first) = after.next() else { return Ok(Vec::new()) };
            // XREADGROUP with an id would increment the delivery counts; XPENDING does not.
            let consumer = Some(name.to_owned());
            let filter = PendingFilter { consumer, ..PendingFilter::starting_at(first, count) };
            let rows = self.pending(stream, group, &filter).await?;
            let contents = self.fetch_fields(stream, rows.iter().map(|row| row.id)).await?;
            let rows = rows.into_iter().zip(contents);
            Ok(rows
                .map(|(row, fields)| Delivery {
                    id: row.id,
                    fields,
                    deliveries: row.deliveries,
                    claimed: true,
                })
                .collect())
        })
    }

    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed> {
        Box::pin(async move {
            if count == 0 {
                return Ok(Claimed { next: from, ..Claimed::default() });
            }
            match self.has(Feature::Scripts, consumer.stream).await? {
                true => self.autoclaim_by_script(consumer, min_idle, from, count).await,
                false => self.autoclaim_in_steps(consumer, min_idle, from, count).await,
            }
        })
    }
}

impl SettleMessages for Redis {
    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> BackendFuture<'a, Vec<StreamId>> {
        self.add_with(stream, entries, AddOptions { trim, ..AddOptions::default() })
    }

    fn add_with<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        options: AddOptions,
    ) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(async move {
            let id = match options.due {
                None => Cow::Borrowed("*"),
                Some(due) => self.delayed_id(stream, due).await?,
            };
            super::super::check_fields(entries.iter().map(|entry| &entry.fields))?;
            let once_only = entries.iter().any(|entry| entry.idempotence.is_some())
                && self.has(Feature::Idempotence, stream).await?;
            let trim = self.trim_before_adding(stream, entries.len(), options.trim).await?;
            let add = |(at, entry): (usize, &NewEntry)| {
                let once = entry.idempotence.as_ref().filter(|_| once_only);
                let options = AddOptions { trim: trim.filter(|_| at + 1 == entries.len()), ..options };
                commands::add(stream, &id, &entry.fields, once, options)
            };
            let adds: Vec<Cmd> = entries.iter().enumerate().map(add).collect();
            let (outcomes, error) = self.connection.in_order(stream, adds).await;
            added_ids(stream, outcomes, error)
        })
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            let slot = slot_of(stream);
            let can_join_transaction = |key: &str| !self.connection.is_cluster() || slot_of(key) == slot;
            let mut commands = Vec::new();
            for (key, lifetime) in &done.remember {
                let set = command!("SET", key, 1, "PX", millis(*lifetime).max(1));
                if can_join_transaction(key) {
                    commands.push(set);
                } else {
                    // The key may be on another node, which cannot join the transaction: store it first.
                    self.connection.command(key, set).await?;
                }
            }
            let keys = commands.len();
            if !done.ids.is_empty() {
                commands.push(commands::acknowledge(stream, group, &done.ids));
            }
            // After the acknowledgement: if the server stops in between, a record stays, and a worker deletes it later.
            // Without deduplication keys this needs no transaction, which a server without memory would refuse.
            if !done.forget.is_empty() {
                commands.push(commands::forget(stream, group, &done.forget));
            }
            let replies = match keys {
                1.. if !done.ids.is_empty() => self.connection.transaction(stream, commands).await?,
                _ => self.connection.pipeline(stream, commands).await?,
            };
            let replies = replies.into_iter().map(checked).collect::<Result<Vec<_>, _>>()?;
            let acknowledged = replies.into_iter().nth(keys).filter(|_| !done.ids.is_empty());
            acknowledged.map_or(Ok(0), count)
        })
    }

    fn delete_done<'a>(&'a self, stream: &'a str, gaps: bool) -> BackendFuture<'a, u64> {
        Box::pin(self.delete_acknowledged(stream, gaps))
    }

    fn seen<'a>(&'a self, keys: &'a [String]) -> BackendFuture<'a, Vec<bool>> {
        Box::pin(async move {
            let Some(first) = keys.first() else { return Ok(Vec::new()) };
            let is_one_slot = || keys.iter().all(|key| slot_of(key) == slot_of(first));
            if !self.connection.is_cluster() || is_one_slot() {
                let replies = array(self.connection.command(first, command!("MGET", keys)).await?)?;
                return Ok(replies.iter().map(|reply| !matches!(reply, Value::Nil)).collect());
            }
            let mut seen = Vec::with_capacity(keys.len());
            for key in keys {
                seen.push(integer(self.connection.command(key, command!("EXISTS", key)).await?)? > 0);
            }
            Ok(seen)
        })
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            let mut ours = Vec::with_capacity(ids.len());
            if ids.is_empty() {
                return Ok(ours);
            }
            if self.has(Feature::Extend, stream).await? {
                let extend = commands::extend(consumer, ids);
                for (id, reply) in ids.iter().zip(array(self.connection.command(stream, extend).await?)?) {
                    if integer(reply)? == 1 {
                        ours.push(*id);
                    }
                }
                return Ok(ours);
            }
            for chunk in ids.chunks(ROWS_PER_SCRIPT) {
                let arguments = (group, name, Ids(chunk));
                for extended in array(scripts::EXTEND.run(self, &[stream], arguments).await?)? {
                    ours.push(id(extended)?);
                }
            }
            Ok(ours)
        })
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            if rows.is_empty() {
                return Ok(0);
            }
            if self.has(Feature::NackDelay, stream).await? {
                return self.release_natively(consumer, rows).await;
            }
            let (records, mut released) = (retry_key(stream, group), 0);
            for chunk in rows.chunks(ROWS_PER_SCRIPT) {
                let row = |row: &Release| {
                    let retry = row.retry.as_ref();
                    let delay_ms = retry.map_or(0, Retry::after_ms);
                    let record = retry.map_or(String::new(), |retry| retry.record.without_times().to_json());
                    (Id(row.id), row.delivery, row.deliveries, delay_ms, record)
                };
                let rows: Vec<_> = chunk.iter().map(row).collect();
                let arguments = (group, name, RELEASED_CONSUMER, CLAIMABLE_IDLE_MS, rows);
                let more = count(scripts::RELEASE.run(self, &[stream, &records], arguments).await?)?;
                released = more.saturating_add(released);
            }
            Ok(released)
        })
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        dead_letters: &'a [NewDeadLetter],
    ) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(async move {
            super::super::check_fields(dead_letters.iter().map(|dead_letter| &dead_letter.fields))?;
            self.dead_letter_all(consumer, dead_letters).await
        })
    }

    fn hash_get<'a>(&'a self, key: &'a str, fields: &'a [String]) -> BackendFuture<'a, Vec<Option<Bytes>>> {
        Box::pin(async move {
            if fields.is_empty() {
                return Ok(Vec::new());
            }
            let reply = self.connection.command(key, command!("HMGET", key, fields)).await?;
            let value = |value| if matches!(value, Value::Nil) { Ok(None) } else { bytes(value).map(Some) };
            array(reply)?.into_iter().map(value).collect()
        })
    }

    fn hash_len<'a>(&'a self, key: &'a str) -> BackendFuture<'a, u64> {
        Box::pin(async move { count(self.connection.command(key, command!("HLEN", key)).await?) })
    }

    fn hash_get_all<'a>(&'a self, key: &'a str) -> BackendFuture<'a, Vec<(String, Bytes)>> {
        Box::pin(async move {
            let reply = self.connection.command(key, command!("HGETALL", key)).await?;
            pairs(reply)?.into_iter().map(|(field, value)| Ok((text(field)?, bytes(value)?))).collect()
        })
    }

    fn hash_fields<'a>(&'a self, key: &'a str) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let reply = self.connection.command(key, command!("HKEYS", key)).await?;
            array(reply)?.into_iter().map(text).collect()
        })
    }

    fn hash_set<'a>(&'a self, key: &'a str, pairs: &'a [(String, Bytes)]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            if pairs.is_empty() {
                return Ok(());
            }
            self.connection.command(key, commands::hash_set(key, pairs)).await.map(drop)
        })
    }

    fn hash_delete<'a>(&'a self, key: &'a str, fields: &'a [String]) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            if fields.is_empty() {
                return Ok(0);
            }
            count(self.connection.command(key, command!("HDEL", key, fields)).await?)
        })
    }
}

impl OwnStreams for Redis {
    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> BackendFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            if count == 0 {
                return Ok(Vec::new());
            }
            let command = |block_ms| commands::read(stream, after, count, block_ms);
            entries(self.read_blocking(stream, block, command).await?)
        })
    }

    fn take_over<'a>(
        &'a self,
        consumer: Consumer<'a>,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed> {
        Box::pin(self.take_over_in_steps(consumer, from, count))
    }

    fn acquire<'a>(&'a self, claimant: Claimant<'a>, lease: Duration) -> BackendFuture<'a, StreamOwner> {
        Box::pin(self.acquire_stream(claimant, lease))
    }

    fn renew<'a>(&'a self, claimant: Claimant<'a>, fence: u64, lease: Duration) -> BackendFuture<'a, bool> {
        Box::pin(self.renew_lease(claimant, fence, lease))
    }

    fn give_up<'a>(&'a self, claimant: Claimant<'a>, fence: u64) -> BackendFuture<'a, bool> {
        Box::pin(self.give_stream_up(claimant, fence))
    }

    fn owner<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, Option<StreamOwner>> {
        Box::pin(self.find_owner(stream, group))
    }

    fn read_owned<'a>(
        &'a self,
        read: &'a Read<'a>,
        claimant: Claimant<'a>,
        fence: u64,
    ) -> BackendFuture<'a, Option<Vec<Delivery>>> {
        Box::pin(self.read_as_owner(read, claimant, fence))
    }

    fn repair_lag<'a>(&'a self, claimant: Claimant<'a>, fence: u64) -> BackendFuture<'a, bool> {
        Box::pin(self.repair_lag_as_owner(claimant, fence))
    }
}

impl Backend for Redis {
    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(self)
    }
}
/// Returns the ids of added entries. If some were not added, the error says which. `error` is the error of the call.
///
/// The server replies with nil if the stream does not exist and must not be created.
fn added_ids(stream: &str, outcomes: Vec<CallOutcome>, error: Option<Error>) -> Result<Vec<StreamId>, Error> {
    let (mut ids, mut added, mut first) = (Vec::with_capacity(outcomes.len()), Vec::new(), error);
    for outcome in outcomes {
        added.push(match outcome {
            CallOutcome::NotExecuted => AddOutcome::NotAdded,
            CallOutcome::Unknown => AddOutcome::Unknown,
            CallOutcome::Replied(Value::Nil) => {
                first.get_or_insert_with(|| no_stream(stream));
                AddOutcome::NotAdded
            }
            CallOutcome::Replied(reply) => match id(reply) {
                Ok(id) => {
                    ids.push(id);
                    AddOutcome::Added(id)
                }
                Err(error) => {
                    first.get_or_insert(error);
                    AddOutcome::NotAdded
                }
            },
        });
    }
    let Some(error) = first else { return Ok(ids) };
    if error.kind() == ErrorKind::NotWritable && ids.is_empty() {
        let message =
            format!("the store is full: {error}; nothing was added, so try again when there is space");
        return Err(Error::new(ErrorKind::NotWritable, message).with_source(error));
    }
    Err(error.with_outcomes(added))
}

impl Redis {
    /// Whether reads claim idle entries. If the server cannot make released entries wait, they must not: a read would
    /// claim an entry that waits.
    pub(super) async fn read_claims(&self, stream: &str) -> Result<bool, Error> {
        Ok(self.has(Feature::ReadClaims, stream).await? && self.has(Feature::NackDelay, stream).await?)
    }

    /// Releases entries with XNACK, which checks neither the owner nor the delivery count of an entry.
    ///
    /// 1. Extend the leases. This checks the owner, and keeps other consumers from claiming the entries.
    /// 2. Look up the delivery counts, and skip entries that have been delivered again.
    /// 3. Write the records of the rest and release them, in one transaction.
    async fn release_natively(&self, consumer: Consumer<'_>, rows: &[Release]) -> Result<u64, Error> {
        let Consumer { stream, group, name } = consumer;
        let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
        let ours = self.extend(consumer, &ids).await?;
        let mut rows: Vec<&Release> = rows.iter().filter(|row| ours.contains(&row.id)).collect();
        let lookup = |row: &&Release| {
            let filter = PendingFilter { consumer: Some(name.to_owned()), ..PendingFilter::single(row.id) };
            commands::pending(stream, group, &filter)
        };
        let found = self.connection.pipeline(stream, rows.iter().map(lookup).collect()).await?.into_iter();
        let found = found.map(|reply| array(reply)?.into_iter().map(pending_row).next().transpose());
        let mut found = found.collect::<Result<Vec<_>, _>>()?.into_iter();
        rows.retain(|row| found.next().flatten().is_some_and(|found| found.deliveries == row.delivery));
        let key = |row: &Release| (row.deliveries, row.retry.as_ref().map_or(0, Retry::after_ms));
        rows.sort_by_key(|row| key(row));
        let mut releases = Vec::new();
        for same in rows.chunk_by(|a, b| key(a) == key(b)) {
            let ids: Vec<StreamId> = same.iter().map(|row| row.id).collect();
            let (deliveries, delay_ms) = key(same[0]);
            let mut release = match delay_ms {
                0 => commands::release(stream, group, &ids),
                // At most ten years.
                _ => commands::release_delayed(stream, group, &ids, delay_ms as i64),
            };
            release.arg("RETRYCOUNT").arg(deliveries);
            releases.push(release);
        }
        if rows.iter().all(|row| row.retry.is_none()) {
            return sum_of_counts(self.connection.pipeline(stream, releases).await?);
        }
        // A transaction does not roll back: check now what could make the HSET fail.
        let key = retry_key(stream, group);
        self.hash_len(&key).await?;
        let now_ms = self.now_ms(stream).await?;
        let record = |row: &&Release| {
            let json = row.retry.as_ref()?.record_at(now_ms);
            Some((row.id.to_string(), Bytes::from(json)))
        };
        let records: Vec<(String, Bytes)> = rows.iter().filter_map(record).collect();
        releases.insert(0, commands::hash_set(&key, &records));
        let replies = self.connection.transaction(stream, releases).await?;
        let mut replies = replies.into_iter();
        checked(replies.next().unwrap_or(Value::Nil))?;
        sum_of_counts(replies)
    }
}
