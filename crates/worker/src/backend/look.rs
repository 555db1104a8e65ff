//! A look at many streams at once: what [`Admin::look`](super::InspectStore::look) reads and returns, and walks over
//! stream names.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;

use super::{ConsumerInfo, Error, GroupInfo, GroupMissed, PendingRow, PolicyInfo, StreamId, StreamInfo};
use crate::retry_record::RetryRecord;

/// What a look reads in addition to the properties of streams and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookDetail {
    groups: DetailedGroups,
    /// Maximum number of pending entries to read of each of these groups, oldest first.
    pub pending_rows: usize,
    /// Maximum number of entries to read to count the unread ones, if the store does not know their number. At least
    /// one is read if a group has unread entries.
    pub unread_entries: usize,
}

/// The groups whose details a look reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum DetailedGroups {
    #[default]
    None,
    All,
    /// Names of streams, each with names of groups.
    These(HashMap<String, HashSet<String>>),
}

impl LookDetail {
    /// Reads the details of no group.
    pub fn none() -> LookDetail {
        LookDetail::default()
    }

    /// Reads the details of all groups.
    pub fn all(pending_rows: usize) -> LookDetail {
        LookDetail { groups: DetailedGroups::All, pending_rows, unread_entries: 1 }
    }

    /// Reads the details of these groups: names of streams and groups.
    pub fn of<S: Into<String>>(groups: impl IntoIterator<Item = (S, S)>, pending_rows: usize) -> LookDetail {
        let mut by_stream: HashMap<String, HashSet<String>> = HashMap::new();
        for (stream, group) in groups {
            by_stream.entry(stream.into()).or_default().insert(group.into());
        }
        LookDetail { groups: DetailedGroups::These(by_stream), pending_rows, unread_entries: 1 }
    }

    pub(super) fn wants_stream(&self, stream: &str) -> bool {
        match &self.groups {
            DetailedGroups::None => false,
            DetailedGroups::All => true,
            DetailedGroups::These(groups) => groups.contains_key(stream),
        }
    }

    pub(super) fn wants(&self, stream: &str, group: &str) -> bool {
        match &self.groups {
            DetailedGroups::None => false,
            DetailedGroups::All => true,
            DetailedGroups::These(groups) => groups.get(stream).is_some_and(|groups| groups.contains(group)),
        }
    }

    /// Whether the details of all groups are wanted: then nothing is left out to spare the store.
    pub(super) fn is_complete(&self) -> bool {
        self.groups == DetailedGroups::All
    }
}

/// A stream, as a look found it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct StreamLook {
    /// The properties of the stream, read before those of the groups.
    ///
    /// If the first and the last entry are large and the look need not be complete, a server is asked for them only
    /// every 30 seconds: [`info_age`](StreamLook::info_age) says how old they are.
    pub info: StreamInfo,
    /// The age of `info`. Zero if it was read now.
    pub info_age: Duration,
    /// Number of entries now.
    pub length: u64,
    /// Number of entries ever added. `None` if the store does not know, or not now.
    pub entries_added: Option<u64>,
    /// The policy of the stream, if the details of one of its groups were read. `None` if the store has no policies.
    pub policy: Option<PolicyInfo>,
    /// The groups, sorted by name.
    pub groups: Vec<GroupLook>,
}

/// A group, as a look found it.
#[derive(Debug)]
#[non_exhaustive]
pub struct GroupLook {
    /// The properties of the group. On a server without XNACK, its consumers are counted exactly only with details:
    /// otherwise the consumer that holds released entries is included.
    pub info: GroupInfo,
    /// The details, if they were asked for. An error if the store refused one of them.
    pub detail: Option<Result<GroupDetail, Error>>,
}

/// The details of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDetail {
    /// The consumers, sorted by name.
    pub consumers: Vec<ConsumerInfo>,
    /// The oldest pending entries.
    pub pending: Vec<PendingRow>,
    /// The records of released entries among them that have failed.
    pub retries: Vec<(StreamId, RetryRecord)>,
    /// The oldest unread entries: as many as [`LookDetail::unread_entries`] asks for. `None` if they were not read
    /// because they are large.
    pub unread: Option<Vec<StreamId>>,
    /// The entries that the group missed. `None` if the store does not count them.
    pub missed: Option<GroupMissed>,
    /// The heartbeats of the group's workers: instance ids and JSON.
    pub heartbeats: Vec<(String, Bytes)>,
    /// The time of the store, in milliseconds since 1970. 0 if neither heartbeats nor records were found.
    pub now_ms: u64,
}

/// Where a walk over the names of all streams continues. The default is its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamCursor {
    /// The node of a cluster.
    pub(super) node: Option<String>,
    /// The cursor of the server.
    pub(super) cursor: String,
}

/// A part of a walk over the names of all streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamNames {
    /// Names, in any order. A name that is no valid UTF-8 is complete too. A walk can return a name more than once.
    pub names: Vec<Bytes>,
    /// Where the walk continues. `None` if it is complete.
    pub next: Option<StreamCursor>,
}
