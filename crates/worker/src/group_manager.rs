//! Moving a group and removing a consumer, without losing a message. What takes one call is in [`Admin`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use millstream_worker::backend::Start;
//! use millstream_worker::group_manager::{GroupManager, Position};
//!
//! let backend = millstream_worker::connect("memory:").await?;
//! backend.create_group("orders", "billing", Start::Beginning).await?;
//! let groups = GroupManager::new(backend);
//! let change = groups.preview_reset("orders", "billing", Position::End).await?;
//! println!("{} -> {}", change.before.last_delivered, change.after.last_delivered);
//! groups.reset(&change).await?;
//! # Ok::<(), millstream_worker::Error>(())
//! # }).unwrap();
//! ```

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::{
    Admin, Consumer, ConsumerInfo, Error, ErrorKind, GroupInfo, Order, Range, Start, StreamId, StreamInfo,
};
use crate::monitor::{Lag, count_after};

/// The most entries that are read to count what a reset changes.
const COUNT_AT_MOST: usize = 10_000;
/// A consumer that has asked within this time is at work.
const ACTIVE_WITHIN: Duration = Duration::from_secs(60);

/// Manages the groups of a store. Cheap to clone.
#[derive(Clone)]
pub struct GroupManager {
    backend: Arc<dyn Admin>,
}

/// Where a group is to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position<'a> {
    /// With the oldest entry there is.
    Beginning,
    /// With the next entry that comes.
    End,
    /// After this entry.
    After(StreamId),
    /// With the first entry that was added at this time or later.
    Time(SystemTime),
    /// With the first entry that was added so long ago or later.
    Ago(Duration),
    /// So many entries further on, or back if negative.
    Shift(i64),
    /// Where another group of the stream is.
    Group(&'a str),
}

/// What a reset would do. Nothing has happened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The stream.
    pub stream: String,
    /// The group.
    pub group: String,
    /// Where the group is.
    pub before: Place,
    /// Where it would be.
    pub after: Place,
    /// How many entries are pending: they stay, whatever the position.
    pub pending: u64,
    /// The consumers at work. They would go on from the new position at once.
    pub active_consumers: Vec<String>,
}

/// A position of a group, and what lies before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The entry after which the group reads on.
    pub last_delivered: StreamId,
    /// How many entries it has yet to read from there.
    pub lag: Lag,
}

/// A consumer that has been removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Its name.
    pub consumer: String,
    /// Who has its messages now.
    pub heir: String,
    /// How many these are.
    pub adopted: u64,
}

impl GroupManager {
    /// A manager of the groups of a store.
    pub fn new(backend: Arc<dyn Admin>) -> GroupManager {
        GroupManager { backend }
    }

    /// Removes a consumer once its messages are the heir's, in one step. Without an heir the consumer that asked last
    /// inherits.
    pub async fn remove_consumer(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        heir: Option<&str>,
    ) -> Result<Removed, Error> {
        let consumers = self.backend.consumers(stream, group).await?;
        if !consumers.iter().any(|found| found.name == consumer) {
            return Err(refused(format!("group {group} of {stream} has no consumer {consumer}")));
        }
        let heir = match heir {
            Some(heir) => heir,
            None => last_to_ask(&consumers, consumer).ok_or_else(|| {
                refused(format!("{consumer} is the only consumer of {group}: name an heir for its messages"))
            })?,
        };
        let adopted = self.backend.remove_consumer(Consumer::new(stream, group, consumer), heir).await?;
        Ok(Removed { consumer: consumer.to_owned(), heir: heir.to_owned(), adopted })
    }

    /// What moving a group would change. Moves nothing.
    pub async fn preview_reset(&self, stream: &str, group: &str, to: Position<'_>) -> Result<Reset, Error> {
        let info = self.backend.stream(stream).await?;
        let info = info.ok_or_else(|| no_group(format!("there is no stream {stream}")))?;
        let groups = self.backend.groups(stream).await?;
        let found = find(&groups, stream, group)?;
        let target = self.resolve(stream, &info, &groups, found.last_delivered, to).await?;
        let lag = match found.lag {
            Some(count) => Lag::kept(count),
            None => self.lag_after(stream, &info, found.last_delivered).await?,
        };
        let consumers = self.backend.consumers(stream, group).await?;
        let active = consumers.into_iter().filter(|consumer| consumer.idle < ACTIVE_WITHIN);
        Ok(Reset {
            stream: stream.to_owned(),
            group: group.to_owned(),
            before: Place { last_delivered: found.last_delivered, lag },
            after: Place { last_delivered: target, lag: self.lag_after(stream, &info, target).await? },
            pending: found.pending,
            active_consumers: active.map(|consumer| consumer.name).collect(),
        })
    }

    /// Moves the group as previewed, to exactly the entry shown.
    pub async fn reset(&self, reset: &Reset) -> Result<(), Error> {
        let target = reset.after.last_delivered;
        let start = if target == StreamId::MIN { Start::Beginning } else { Start::After(target) };
        self.backend.move_group(&reset.stream, &reset.group, start).await
    }

    async fn lag_after(&self, stream: &str, info: &StreamInfo, after: StreamId) -> Result<Lag, Error> {
        count_after(&*self.backend, stream, info, after, COUNT_AT_MOST).await
    }

    /// The entry after which the group would read on.
    async fn resolve(
        &self,
        stream: &str,
        info: &StreamInfo,
        groups: &[GroupInfo],
        now_at: StreamId,
        to: Position<'_>,
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
            Position::Shift(0) => Ok(now_at),
            Position::Shift(by) => self.shifted(stream, info, now_at, by).await,
            Position::Group(other) => Ok(find(groups, stream, other)?.last_delivered),
        }
    }

    /// So many entries further on or back, but not beyond the ends of the stream.
    async fn shifted(
        &self,
        stream: &str,
        info: &StreamInfo,
        from: StreamId,
        by: i64,
    ) -> Result<StreamId, Error> {
        let count = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
        if count > COUNT_AT_MOST {
            return Err(refused(format!(
                "a shift of {by} is more than {COUNT_AT_MOST} entries: give a time or an id instead"
            )));
        }
        if by > 0 {
            let Some(first) = from.next() else { return Ok(from) };
            let passed = self.backend.range(stream, Range::rising(first, count)).await?;
            let reached = passed.get(count - 1).map(|entry| entry.id);
            return Ok(reached.unwrap_or(info.last_id.max(from)));
        }
        // Of the entries up to here, the last `count` are to be read again: the group stands before the first of them.
        let range = Range { first: StreamId::MIN, last: from, order: Order::Falling, count };
        let back = self.backend.range(stream, range).await?;
        let reached = back.get(count - 1).and_then(|entry| entry.id.prev());
        Ok(reached.unwrap_or(StreamId::MIN))
    }
}

/// The greatest id before every entry of this time.
fn before_time(time: SystemTime) -> StreamId {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    StreamId::new(ms, 0).prev().unwrap_or(StreamId::MIN)
}

fn last_to_ask<'a>(consumers: &'a [ConsumerInfo], except: &str) -> Option<&'a str> {
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
