//! Snapshots of a stream and its groups.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::growth::Growth;
use super::missed::Missed;
use super::partitioned::{PartOf, Partitioned};
use crate::backend::{ConsumerInfo, PendingRow, StreamId, StreamInfo};
use crate::heartbeat::{LanesInfo, WorkerInfo};

/// A snapshot of a stream with its groups.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// The name of the stream.
    pub name: String,
    /// When the snapshot was taken.
    pub at: SystemTime,
    /// The properties of the stream.
    pub info: StreamInfo,
    /// The groups of the stream, sorted by name.
    pub groups: Vec<GroupSnapshot>,
    /// The name of its dead-letter stream. If it has several: the first one with entries.
    pub dead_letters: String,
    /// Number of entries in its dead-letter streams. Other streams can share a stream that a policy names.
    pub dead_letters_length: u64,
    /// The names of its dead-letter streams, each with its number of entries: those that policies name, and the
    /// default.
    pub dead_letter_streams: Vec<(String, u64)>,
    /// Whether the stream can be opened by its name. If the name is not UTF-8, it is escaped here, and nothing else is
    /// known.
    pub openable: bool,
    /// The place of a partition. `None` for any other stream.
    pub part_of: Option<PartOf>,
    /// What is behind the name of a logical stream, of which all other properties are sums. `None` for any other
    /// stream.
    pub partitioned: Option<Box<Partitioned>>,
}

impl StreamSnapshot {
    /// Returns the group with this name.
    pub fn group(&self, name: &str) -> Option<&GroupSnapshot> {
        self.groups.iter().find(|group| group.name == name)
    }
}

/// A snapshot of a group.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupSnapshot {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub name: String,
    /// When the snapshot was taken.
    pub at: SystemTime,
    /// When its consumers, its workers, its oldest entries, its scan of pending entries and its dead letters were read.
    /// `None` if they have not been read yet: they are then empty.
    pub detail_at: Option<SystemTime>,
    /// Number of entries in the stream.
    pub stream_length: u64,
    /// Number of entries ever added to the stream. `None` if the store does not know.
    pub entries_added: Option<u64>,
    /// Number of entries that the group has not read yet.
    pub lag: Lag,
    /// How the lag and the pending entries change. `None` if only one snapshot was taken.
    pub growth: Option<Growth>,
    /// Entries that were trimmed or deleted before the group read them.
    pub missed: Missed,
    /// The oldest entry that the group has not read yet. `None` if there is no unread entry.
    pub oldest_unread: Option<OldestEntry>,
    /// Number of pending entries.
    pub pending: u64,
    /// The oldest pending entry. `None` if no entry is pending.
    pub oldest_pending: Option<OldestEntry>,
    /// What a scan of the pending entries found.
    pub scan: PendingScan,
    /// The consumers of the group, sorted by name.
    pub consumers: Vec<ConsumerInfo>,
    /// The workers of the group that send heartbeats or have crashed recently, sorted by consumer name. Other clients
    /// and workers without heartbeats are missing.
    pub workers: Vec<WorkerInfo>,
    /// The group's position: the next delivery of new entries starts after this id.
    pub last_delivered: StreamId,
    /// Number of entries that the group has read. `None` if the store does not know.
    pub entries_read: Option<u64>,
    /// The dead-letter stream of the group: the one that its policy names, or the default of the stream.
    pub dead_letters: String,
    /// Number of entries in this dead-letter stream, which other groups can share.
    pub dead_letters_length: u64,
    /// The place of a partition. `None` for a group of any other stream.
    pub part_of: Option<PartOf>,
    /// Number of partitions of a logical stream, of which all other properties are sums. 0 for a group of any other
    /// stream.
    pub partitions: usize,
    /// The groups of the partitions of a logical stream, in the order of their numbers.
    pub parts: Vec<Arc<GroupSnapshot>>,
}

impl GroupSnapshot {
    /// Returns the age of the oldest unread entry. `None` if no entry is unread, or its id contains no valid time.
    pub fn unread_age(&self) -> Option<Duration> {
        self.oldest_unread.and_then(|unread| unread.age)
    }

    /// Returns the age of the oldest pending entry. `None` if no entry is pending, or its id contains no valid time.
    pub fn pending_age(&self) -> Option<Duration> {
        self.oldest_pending.and_then(|pending| pending.age)
    }

    /// Returns the number of the partition. `None` for a group of any other stream.
    pub fn number(&self) -> Option<usize> {
        self.part_of.as_ref().map(|part| part.number)
    }

    /// Returns the workers with this consumer name.
    pub fn workers_of(&self, consumer: &str) -> impl Iterator<Item = &WorkerInfo> {
        self.workers.iter().filter(move |worker| worker.heartbeat.consumer == consumer)
    }

    /// Returns the workers that send heartbeats.
    pub fn live_workers(&self) -> impl Iterator<Item = &WorkerInfo> {
        self.workers.iter().filter(|worker| worker.is_alive())
    }

    /// Returns how long the longest-running handler call had been running, as the workers said in their last
    /// heartbeats. `None` if none ran.
    pub fn longest_running(&self) -> Option<Duration> {
        self.live_workers().filter_map(|worker| worker.heartbeat.running_for()).max()
    }

    /// Number of workers with a handler call that runs for longer than they say it should.
    pub fn slow_workers(&self) -> usize {
        let is_slow = |worker: &&WorkerInfo| {
            let heartbeat = &worker.heartbeat;
            heartbeat.running_for().is_some_and(|time| time >= heartbeat.slow_after())
        };
        self.live_workers().filter(is_slow).count()
    }

    /// Returns what the lanes of all workers hold, if they order messages by key.
    pub fn lanes(&self) -> LanesInfo {
        let mut sum = LanesInfo::default();
        self.live_workers().for_each(|worker| sum.add(worker.heartbeat.lanes));
        sum
    }

    /// Whether a consumer may have tried to read since a time. False only if consumers as new as this snapshot show
    /// that none has: then the group's position was moved, if it is another one.
    pub(crate) fn may_have_read_since(&self, time: SystemTime) -> bool {
        if self.detail_at != Some(self.at) {
            return !self.consumers.is_empty() || self.detail_at.is_none();
        }
        let elapsed = self.at.duration_since(time).unwrap_or_default();
        self.consumers.iter().any(|consumer| consumer.idle < elapsed)
    }

    /// Whether a consumer has ever read from the group, as far as the store shows it.
    ///
    /// A group without consumers may still have been read: workers remove their consumers when they end.
    pub fn was_read(&self) -> bool {
        match &self.parts[..] {
            [] => !self.consumers.is_empty() || self.pending > 0 || self.entries_read > Some(0),
            // The sum of the entries read is computed, also where no entry was read.
            parts => parts.iter().any(|part| part.was_read()),
        }
    }

    /// Returns the number of entries that the group has read.
    ///
    /// Some stores do not report it before the first read. It is then the number of entries added minus the lag.
    pub(crate) fn read_so_far(&self) -> Option<u64> {
        let added_minus_lag =
            || self.entries_added.filter(|_| self.lag.is_exact())?.checked_sub(self.lag.count);
        self.entries_read.or_else(added_minus_lag)
    }
}

/// The oldest of the unread or pending entries of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestEntry {
    /// The id of the entry.
    pub id: StreamId,
    /// Time since the entry was added. `None` if its id contains no past time, for example because the producer chose
    /// it.
    pub age: Option<Duration>,
}

/// The lag of a group: the number of entries it has not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Number of unread entries.
    pub count: u64,
    /// How exact the number is.
    pub accuracy: LagAccuracy,
}

/// How exact a lag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LagAccuracy {
    /// Exact: the store reported it.
    Reported,
    /// Exact: the store does not know the lag, and all unread entries were counted.
    Counted,
    /// A lower bound: the store does not know the lag, and counting stopped at its limit.
    LowerBound,
}

impl Lag {
    pub(crate) fn reported(count: u64) -> Lag {
        Lag { count, accuracy: LagAccuracy::Reported }
    }

    /// Returns whether the number is exact, and not only a lower bound.
    pub fn is_exact(self) -> bool {
        self.accuracy != LagAccuracy::LowerBound
    }
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_exact() { "" } else { "≥" };
        write!(f, "{prefix}{}", self.count)
    }
}

/// What a scan of the pending entries, oldest first, found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingScan {
    /// Number of pending entries scanned.
    pub scanned: u64,
    /// Whether all pending entries were scanned.
    pub complete: bool,
    /// Number of released entries, which any consumer can claim.
    pub released: u64,
    /// Number of released entries that have failed and wait for their next attempt.
    pub waiting: u64,
    /// The time until the first of these attempts. `None` if no scanned entry waits.
    pub next_attempt_in: Option<Duration>,
    /// The longest idle time. `None` if no scanned entry has an owner.
    pub longest_idle: Option<Duration>,
    /// The highest delivery count.
    pub most_deliveries: u64,
    /// Number of stuck entries: delivered often, or idle for long.
    pub stuck: u64,
    /// The first of the stuck entries.
    pub stuck_rows: Vec<PendingRow>,
}
