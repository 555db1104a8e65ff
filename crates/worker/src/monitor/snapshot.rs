//! What a look at a stream and its groups has found.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::backend::{ConsumerInfo, PendingRow, StreamId, StreamInfo};

/// A stream at one moment, with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Its name.
    pub name: String,
    /// When the look was taken.
    pub at: SystemTime,
    /// The stream itself.
    pub info: StreamInfo,
    /// Its groups by name.
    pub groups: Vec<GroupSnapshot>,
    /// The name of its dead-letter stream.
    pub dead_letters: String,
    /// How many dead letters there are.
    pub dead_letters_length: u64,
}

impl StreamSnapshot {
    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&GroupSnapshot> {
        self.groups.iter().find(|group| group.name == name)
    }
}

/// A group at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupSnapshot {
    /// The stream.
    pub stream: String,
    /// Its name.
    pub name: String,
    /// When the look was taken.
    pub at: SystemTime,
    /// How many entries the stream has.
    pub stream_length: u64,
    /// How many entries were ever added to the stream, where the store knows.
    pub entries_added: Option<u64>,
    /// How many entries it has yet to read.
    pub lag: Lag,
    /// The oldest entry it has yet to read, and how long ago that was added.
    pub oldest_unread: Option<Waiting>,
    /// How many entries are pending.
    pub pending: u64,
    /// The oldest pending entry, and how long ago that was added.
    pub oldest_pending: Option<Waiting>,
    /// A closer look at the pending entries, as far as it went.
    pub scan: PendingScan,
    /// Its consumers by name.
    pub consumers: Vec<ConsumerInfo>,
    /// The last entry delivered.
    pub last_delivered: StreamId,
    /// How many entries it has read, where known.
    pub entries_read: Option<u64>,
    /// How many dead letters the stream has.
    pub dead_letters_length: u64,
}

impl GroupSnapshot {
    /// How long ago the oldest entry that the group has yet to read was added, where its id tells.
    pub fn unread_age(&self) -> Option<Duration> {
        self.oldest_unread.and_then(|unread| unread.age)
    }

    /// How long ago the oldest pending entry was added, where its id tells.
    pub fn pending_age(&self) -> Option<Duration> {
        self.oldest_pending.and_then(|pending| pending.age)
    }

    /// How many entries the group has read. A store may not say before the first read: then it is what was added
    /// without what is yet to read.
    pub(super) fn read_so_far(&self) -> Option<u64> {
        let rest = || self.entries_added.filter(|_| self.lag.is_exact())?.checked_sub(self.lag.count);
        self.entries_read.or_else(rest)
    }
}

/// An entry that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The entry.
    pub id: StreamId,
    /// How long ago it was added; `None` if its id tells no time of the past, as ids made by hand.
    pub age: Option<Duration>,
}

/// How many entries a group has yet to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The number.
    pub count: u64,
    /// How it is known.
    pub known: LagKnown,
}

/// How a lag is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LagKnown {
    /// The store keeps it.
    Kept,
    /// The store does not know; the entries were counted to the end.
    Counted,
    /// The store does not know, and there are too many to count: at least so many.
    AtLeast,
}

impl Lag {
    /// A lag that the store keeps.
    pub(crate) fn kept(count: u64) -> Lag {
        Lag { count, known: LagKnown::Kept }
    }

    /// Whether it is the number, and not only a lower bound.
    pub fn is_exact(self) -> bool {
        self.known != LagKnown::AtLeast
    }
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_exact() { "" } else { "≥" };
        write!(f, "{prefix}{}", self.count)
    }
}

/// A look at the pending entries, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingScan {
    /// How many were looked at.
    pub looked_at: u64,
    /// Whether these were all of them.
    pub complete: bool,
    /// How many were released and wait for anyone to claim them.
    pub released: u64,
    /// The longest time nobody has touched one of them.
    pub longest_idle: Option<Duration>,
    /// The most deliveries of one of them.
    pub most_deliveries: u64,
    /// How many look stuck: delivered often, or not touched for long.
    pub stuck: u64,
    /// The first of those.
    pub stuck_rows: Vec<PendingRow>,
}
