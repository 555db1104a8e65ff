//! Moves groups and removes consumers without losing messages. Operations that need only one call are in
//! [`Admin`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use millstream_worker::backend::Start;
//! use millstream_worker::group_manager::{GroupManager, Position};
//!
//! let backend = millstream_worker::connect("memory:").await?;
//! backend.create_group("orders", "billing", Start::Beginning).await?;
//! let groups = GroupManager::new(backend);
//! let plan = groups.preview_reset("orders", "billing", Position::End).await?;
//! println!("{} -> {}", plan.before.last_delivered, plan.after.last_delivered);
//! groups.reset(&plan).await?;
//! # Ok::<(), millstream_worker::Error>(())
//! # }).unwrap();
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;

use crate::backend::{
    Admin, Consumer, ConsumerInfo, Error, ErrorKind, GroupInfo, IdOrder, Range, Start, StreamId, StreamInfo,
};
use crate::heartbeat::{WorkerInfo, known_workers};
use crate::monitor::{Lag, count_after, lag_of};
use crate::names::{retry_key, workers_key};

/// Maximum number of entries to read when counting what a reset changes.
const ENTRIES_COUNTED_MAX: usize = 10_000;
/// Number of fields of a hash to delete per call.
const FIELDS_PER_DELETE: usize = 1_000;
/// A consumer with a shorter idle time counts as active.
const ACTIVE_IDLE_MAX: Duration = Duration::from_secs(60);

/// Manages the groups of a store. Cheap to clone.
#[derive(Clone)]
pub struct GroupManager {
    backend: Arc<dyn Admin>,
}

/// The position to move a group to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// The oldest entry of the stream.
    Beginning,
    /// The end of the stream: only entries added from now on.
    End,
    /// After the entry with this id.
    After(StreamId),
    /// The first entry added at this time or later.
    Time(SystemTime),
    /// The first entry added within this duration before now.
    Ago(Duration),
    /// This number of entries forwards, or backwards if negative.
    Shift(i64),
    /// The position of another group of the stream.
    Group(String),
}

/// The effect that a reset would have. [`GroupManager::reset`] executes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ResetPlan {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// Whether the group was moved.
    pub executed: bool,
    /// The current position of the group.
    #[schemars(with = "PositionJson")]
    pub before: GroupPosition,
    /// The position after the reset.
    #[schemars(with = "PositionJson")]
    pub after: GroupPosition,
    /// Number of pending entries. A reset does not change them.
    pub pending: u64,
    /// The active consumers. They would immediately continue from the new position.
    pub active_consumers: Vec<String>,
}

/// A position of a group, and its lag there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "PositionJson")]
pub struct GroupPosition {
    /// The id after which the group continues to read.
    pub last_delivered: StreamId,
    /// Number of entries after this position.
    pub lag: Lag,
}

#[derive(Serialize, JsonSchema)]
struct PositionJson {
    last_delivered: String,
    lag: u64,
    lag_exact: bool,
}

impl From<GroupPosition> for PositionJson {
    fn from(GroupPosition { last_delivered, lag }: GroupPosition) -> PositionJson {
        PositionJson { last_delivered: last_delivered.to_string(), lag: lag.count, lag_exact: lag.is_exact() }
    }
}

/// The result of [`GroupManager::remove_consumer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemovedConsumer {
    /// The name of the removed consumer.
    pub consumer: String,
    /// The consumer that now owns its pending entries. `None` if it had none and was the only consumer of the group.
    pub heir: Option<String>,
    /// Number of pending entries that moved to the heir.
    pub adopted: u64,
    /// Number of pending entries that could not move, because the stream no longer has them. If there are any, the
    /// consumer was not removed.
    pub left: u64,
}

impl GroupManager {
    /// Creates a manager for the groups of a store.
    pub fn new(backend: Arc<dyn Admin>) -> GroupManager {
        GroupManager { backend }
    }

    /// Moves a consumer's pending entries to its heir and removes the consumer, atomically.
    ///
    /// If `heir` is `None`, the most recently active of the other consumers is the heir. The only consumer of a group
    /// can be removed without an heir if it has no pending entries.
    ///
    /// Redis and Valkey cannot move a pending entry that was deleted from the stream. The consumer then stays with
    /// these [left](RemovedConsumer::left), until a worker dead-letters them or somebody acknowledges them.
    pub async fn remove_consumer(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        heir: Option<&str>,
    ) -> Result<RemovedConsumer, Error> {
        let consumers = self.backend.consumers(stream, group).await?;
        if !consumers.iter().any(|found| found.name == consumer) {
            return Err(refused(format!("group {group} of stream {stream} has no consumer {consumer}")));
        }
        let removed = |heir: Option<&str>, adopted, left| RemovedConsumer {
            consumer: consumer.to_owned(),
            heir: heir.map(str::to_owned),
            adopted,
            left,
        };
        let path = Consumer::new(stream, group, consumer);
        match heir.or_else(|| most_recently_active(&consumers, consumer)) {
            Some(heir) => {
                let adopted = self.backend.remove_consumer(path, heir).await?;
                let consumers = self.backend.consumers(stream, group).await?;
                let left =
                    consumers.iter().find(|found| found.name == consumer).map_or(0, |found| found.pending);
                Ok(removed(Some(heir), adopted, left))
            }
            None if self.backend.remove_empty_consumer(path).await? => Ok(removed(None, 0, 0)),
            None => Err(refused(format!(
                "{consumer} is the only consumer of group {group}; name an heir for its pending entries"
            ))),
        }
    }

    /// Returns what moving a group would change, without moving it.
    pub async fn preview_reset(&self, stream: &str, group: &str, to: Position) -> Result<ResetPlan, Error> {
        let info = self.backend.stream(stream).await?;
        let info = info.ok_or_else(|| no_group(format!("there is no stream {stream}")))?;
        let groups = self.backend.groups(stream).await?;
        let found = find(&groups, stream, group)?;
        let target = self.resolve(stream, &info, &groups, found.last_delivered, to).await?;
        let lag = lag_of(&*self.backend, stream, &info, found, ENTRIES_COUNTED_MAX).await?;
        Ok(ResetPlan {
            stream: stream.to_owned(),
            group: group.to_owned(),
            executed: false,
            before: GroupPosition { last_delivered: found.last_delivered, lag },
            after: GroupPosition {
                last_delivered: target,
                lag: self.lag_after(stream, &info, target).await?,
            },
            pending: found.pending,
            active_consumers: self.active_consumers(stream, group).await?,
        })
    }

    /// Returns the names of the consumers that have tried to read within the last minute, and of workers that send
    /// heartbeats.
    ///
    /// If the group is moved or deleted, they skip or repeat entries, or fail.
    pub async fn active_consumers(&self, stream: &str, group: &str) -> Result<Vec<String>, Error> {
        let consumers = self.backend.consumers(stream, group).await?;
        let workers = known_workers(&*self.backend, stream, group).await?;
        let readers = consumers.into_iter().filter(|consumer| consumer.idle < ACTIVE_IDLE_MAX);
        let live = workers.into_iter().filter(WorkerInfo::is_alive);
        let names = readers.map(|consumer| consumer.name).chain(live.map(|worker| worker.heartbeat.consumer));
        Ok(names.collect::<BTreeSet<String>>().into_iter().collect())
    }

    /// Deletes a group with its pending entries, and what workers remember about it. Returns false if it does not
    /// exist.
    pub async fn delete(&self, stream: &str, group: &str) -> Result<bool, Error> {
        let deleted = self.backend.delete_group(stream, group).await?;
        self.delete_records(stream, group).await?;
        Ok(deleted)
    }

    /// Deletes what workers remember about a group.
    pub(crate) async fn delete_records(&self, stream: &str, group: &str) -> Result<(), Error> {
        for key in [retry_key(stream, group), workers_key(stream, group)] {
            match self.delete_hash(&key).await {
                // What is left of a deleted group does no harm.
                Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::WrongType) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Deletes a hash.
    pub(crate) async fn delete_hash(&self, key: &str) -> Result<(), Error> {
        for page in self.backend.hash_fields(key).await?.chunks(FIELDS_PER_DELETE) {
            self.backend.hash_delete(key, page).await?;
        }
        Ok(())
    }

    /// Moves the group to the position in the plan. Fails, without any change, if the group has moved since the
    /// preview.
    pub async fn reset(&self, plan: &ResetPlan) -> Result<(), Error> {
        match self.reset_unless_moved(plan).await? {
            true => Ok(()),
            false => Err(refused(format!(
                "group {} of stream {} has moved since the preview; nothing was changed; preview the reset again",
                plan.group, plan.stream
            ))),
        }
    }

    /// Moves the group to the position in the plan. Returns false, without any change, if the group has moved since
    /// the preview.
    pub(crate) async fn reset_unless_moved(&self, plan: &ResetPlan) -> Result<bool, Error> {
        let (from, target) = (plan.before.last_delivered, plan.after.last_delivered);
        let start = if target == StreamId::MIN { Start::Beginning } else { Start::After(target) };
        self.backend.move_group_from(&plan.stream, &plan.group, from, start).await
    }

    async fn lag_after(&self, stream: &str, info: &StreamInfo, after: StreamId) -> Result<Lag, Error> {
        count_after(&*self.backend, stream, info, after, ENTRIES_COUNTED_MAX).await
    }

    /// Returns the id after which a group at this position continues to read.
    async fn resolve(
        &self,
        stream: &str,
        info: &StreamInfo,
        groups: &[GroupInfo],
        current: StreamId,
        to: Position,
    ) -> Result<StreamId, Error> {
        match to {
            Position::Beginning => Ok(StreamId::MIN),
            Position::End => Ok(info.last_id),
            Position::After(id) => Ok(id),
            Position::Time(time) => Ok(before_time(time)),
            Position::Ago(ago) => {
                let time = SystemTime::now().checked_sub(ago);
                Ok(time.map_or(StreamId::MIN, before_time))
            }
            Position::Shift(0) => Ok(current),
            Position::Shift(by) => self.shifted(stream, info, current, by).await,
            Position::Group(other) => Ok(find(groups, stream, &other)?.last_delivered),
        }
    }

    /// Returns the position `by` entries after `from`, or before it if negative, within the ends of the stream.
    async fn shifted(
        &self,
        stream: &str,
        info: &StreamInfo,
        from: StreamId,
        by: i64,
    ) -> Result<StreamId, Error> {
        let count = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
        if count > ENTRIES_COUNTED_MAX {
            return Err(refused(format!(
                "cannot shift by {by} entries: the maximum is {ENTRIES_COUNTED_MAX}; give a time or an id instead"
            )));
        }
        if by > 0 {
            let Some(first) = from.next() else { return Ok(from) };
            let passed = self.backend.range(stream, Range::starting_at(first, count)).await?;
            let reached = passed.get(count - 1).map(|entry| entry.id);
            return Ok(reached.unwrap_or(info.last_id.max(from)));
        }
        // The group should read the last `count` entries up to `from` again: move it before the first of them.
        let range = Range { first: StreamId::MIN, last: from, order: IdOrder::Descending, count };
        let back = self.backend.range(stream, range).await?;
        let reached = back.get(count - 1).and_then(|entry| entry.id.prev());
        Ok(reached.unwrap_or(StreamId::MIN))
    }
}

/// Returns the greatest id before all entries of this time.
fn before_time(time: SystemTime) -> StreamId {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    StreamId::new(ms, 0).prev().unwrap_or(StreamId::MIN)
}

fn most_recently_active<'a>(consumers: &'a [ConsumerInfo], except: &str) -> Option<&'a str> {
    let others = consumers.iter().filter(|consumer| consumer.name != except);
    others.min_by_key(|consumer| consumer.idle).map(|consumer| consumer.name.as_str())
}

fn find<'a>(groups: &'a [GroupInfo], stream: &str, group: &str) -> Result<&'a GroupInfo, Error> {
    let found = groups.iter().find(|found| found.name == group);
    found.ok_or_else(|| no_group(format!("stream {stream} has no group {group}")))
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}

fn no_group(message: String) -> Error {
    Error::new(ErrorKind::NoGroup, message)
}
