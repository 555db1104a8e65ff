//! The argument and result types of the backend traits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::policy::{Policy, PolicyField};
use super::{Due, Error, StreamId};
use crate::retry_record::RetryRecord;

/// The fields of an entry, as name and value, in order.
pub type Fields = Vec<(Bytes, Bytes)>;

/// An operation that not every store has natively. The backend emulates the others, at the cost stated for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// A read also claims idle entries. Without it, the worker claims them with a separate call at intervals.
    ///
    /// With it, that call is still needed, but less often: a read skips pending entries that were deleted from the
    /// stream.
    ReadClaims,
    /// Pending entries can be released. Without it, a release sets their idle time to decades.
    Releases,
    /// One command extends a lease if the consumer still owns it. Without it, a script does.
    Extends,
    /// Entries can be added idempotently. Without it, a repeated send adds a second entry.
    IdempotentAdds,
    /// The store always reports the exact lag. Without it, the lag may have to be counted.
    ExactLag,
    /// Entries can be delayed. Without it, the store refuses to delay an entry.
    DelayedEntries,
    /// The store has policies: an operator sets them on a stream or a group, and the store does their work.
    Policies,
    /// Pending entries can be released so that they wait. Without it, a script sets their idle time, and workers claim
    /// them with a separate call when they are due.
    DelayedRelease,
}

/// The policy of a stream or of a group, on a store that has policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyInfo {
    /// The values in force. The policy of a stream is the default of its groups.
    pub in_force: Policy,
    /// The fields that were set on the group itself. Empty for a stream.
    pub own: Vec<PolicyField>,
    /// Names and numbers: the current state, such as entries in hand, and what the policy has done since the server
    /// started. Empty if the store does not report them.
    pub counters: Vec<(String, i64)>,
    /// Why the server cannot dead-letter entries of the group; `None` if the last attempt succeeded.
    pub dead_letter_error: Option<String>,
    /// The ticket of the delayed entry of the stream that becomes due next.
    pub delayed_first: Option<StreamId>,
    /// The groups of the stream whose policy in force names a dead-letter stream, each with that name. Empty for a
    /// group.
    pub group_dead_letters: Vec<(String, String)>,
    /// The user with whose rights the policy acts. `None`: it acts with all rights, or does not act.
    pub owner: Option<String>,
    /// Whether the owner may not add dead letters of the group, so that its entries stay pending.
    pub is_owner_denied: bool,
}

impl PolicyInfo {
    /// Returns the dead-letter stream that the policy names. `None` if it names none.
    pub fn dead_letters(&self) -> Option<String> {
        let key = self.in_force.dead_letters.as_ref().filter(|key| !key.is_empty())?;
        Some(String::from_utf8_lossy(key).into_owned())
    }
}

/// The streams and keys that a worker uses, for [`Backend::check_access`](super::ReadMessages::check_access).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerAccess<'a> {
    /// The stream that the worker reads.
    pub stream: &'a str,
    /// The stream to which the worker adds dead letters.
    pub dead_letters: &'a str,
    /// Examples of the keys that the worker reads with [`Backend::seen`](super::SettleMessages::seen).
    pub read_keys: Vec<String>,
    /// Examples of the keys that the worker stores with an [`Acknowledgement`].
    pub written_keys: Vec<String>,
    /// The hashes that the worker reads and changes.
    pub hashes: Vec<String>,
    /// The group for which the worker owns streams, and the control stream. `None` if it owns none.
    pub owned_for: Option<(&'a str, String)>,
    /// Whether the worker deletes what every group has acknowledged.
    pub deletes_done: bool,
}

/// An entry to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewEntry {
    /// The fields of the entry, at least one.
    pub fields: Fields,
    /// If set, the store adds the entry only once under this key.
    pub idempotence: Option<Idempotence>,
}

/// The key under which the store adds an entry only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotence {
    /// The name of the producer.
    pub producer: String,
    /// The idempotent id: the producer's own id for the entry.
    pub iid: String,
}

/// The options of an add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// When the store appends the entries. `None` means now.
    pub due: Option<Due>,
    /// How the add trims the stream.
    pub trim: Option<Trim>,
    /// Whether the add fails with [`ErrorKind::NoGroup`](super::ErrorKind::NoGroup) if the stream does not exist,
    /// instead of creating it.
    pub only_existing: bool,
}

/// How an add trims the stream. Trimming removes the oldest entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Which entries the stream keeps.
    pub limit: TrimLimit,
    /// Whether the limit is exact. If not, the stream keeps slightly more, which is cheaper.
    pub exact: bool,
    /// Whether the stream also keeps entries beyond the limit that a group has not read or not acknowledged.
    pub keep_unread: bool,
}

/// Which entries a trim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimLimit {
    /// This number of entries: the newest ones.
    Length(u64),
    /// The entry with this id and those after it.
    MinId(StreamId),
}

impl Trim {
    /// Keeps this number of entries or slightly more. Cheaper than [`Trim::exactly`].
    pub fn about(length: u64) -> Trim {
        Trim { limit: TrimLimit::Length(length), exact: false, keep_unread: false }
    }

    /// Keeps at most this number of entries.
    pub fn exactly(length: u64) -> Trim {
        Trim { exact: true, ..Trim::about(length) }
    }

    /// Removes most or all entries before this id.
    pub fn before(id: StreamId) -> Trim {
        Trim { limit: TrimLimit::MinId(id), exact: false, keep_unread: false }
    }

    /// Removes only entries that every group has acknowledged. Without groups, this changes nothing.
    ///
    /// Otherwise a trim also removes entries that a slow or stopped group has not read yet.
    #[must_use]
    pub fn keep_unread(self) -> Trim {
        Trim { keep_unread: true, ..self }
    }
}

/// The position where a group starts to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest entry of the stream.
    Beginning,
    /// After the newest entry: only entries added from now on.
    End,
    /// After the entry with this id.
    After(StreamId),
}

/// The name of a consumer, with its group and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'a> {
    /// The name of the stream.
    pub stream: &'a str,
    /// The name of the group.
    pub group: &'a str,
    /// The name of the consumer in the group.
    pub name: &'a str,
}

impl<'a> Consumer<'a> {
    /// Names a consumer of a group.
    pub fn new(stream: &'a str, group: &'a str, name: &'a str) -> Consumer<'a> {
        Consumer { stream, group, name }
    }
}

/// The arguments of [`Backend::read`](super::ReadMessages::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read<'a> {
    /// The name of the stream.
    pub stream: &'a str,
    /// The name of the group.
    pub group: &'a str,
    /// The name of the consumer. The store creates the consumer with its first read.
    pub consumer: &'a str,
    /// Maximum number of entries to return.
    pub count: usize,
    /// How long to wait for the first entry. `None` returns immediately.
    pub block: Option<Duration>,
    /// If the store has [`Capability::ReadClaims`]: also claim pending entries with at least this idle time.
    pub claim_idle: Option<Duration>,
}

/// The arguments of [`Backend::read_many`](super::ReadMessages::read_many).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMany<'a> {
    /// The names of the streams, each once.
    pub streams: &'a [Arc<str>],
    /// The name of the group on each stream.
    pub group: &'a str,
    /// The name of the consumer.
    pub consumer: &'a str,
    /// Maximum number of entries of each stream.
    pub count: usize,
    /// Maximum number of entries of all streams together, at least `count`. Streams are served in order. Some stores
    /// cannot limit this, and return up to `count` entries of every stream.
    pub max: usize,
    /// How long to wait for the first entry. `None` returns immediately.
    pub block: Option<Duration>,
    /// If the store has [`Capability::ReadClaims`]: also claim pending entries with at least this idle time.
    pub claim_idle: Option<Duration>,
}

/// A worker that owns a stream in a group, or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant<'a> {
    /// The name of the stream.
    pub stream: &'a str,
    /// The name of the group.
    pub group: &'a str,
    /// The id of the worker, which no other worker has. Without spaces.
    pub instance: &'a str,
}

/// The worker that owns a stream in a group, or owned it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOwner {
    /// The number of this owner: greater than that of every earlier one.
    pub fence: u64,
    /// The id of the worker.
    pub instance: String,
    /// Time until its lease expires. Zero if nobody owns the stream now.
    pub lease_left: Duration,
}

/// What [`Backend::read_many`](super::ReadMessages::read_many) returns for one stream.
#[derive(Debug)]
pub struct StreamRead {
    /// The index of the stream in [`ReadMany::streams`].
    pub stream: usize,
    /// The entries, at least one, or why the stream cannot be read.
    pub result: Result<Vec<Delivery>, Error>,
}

/// An entry delivered to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The id of the entry.
    pub id: StreamId,
    /// The fields of the entry. `None` if it was deleted or trimmed while it was pending.
    pub fields: Option<Fields>,
    /// The delivery count of the entry, including this delivery.
    pub deliveries: u64,
    /// Whether the entry was already pending: it was delivered before, or made pending again. Only such an entry can
    /// have a [`RetryRecord`].
    pub claimed: bool,
}

/// The result of [`Backend::autoclaim`](super::ReadMessages::autoclaim).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Entries that the caller now owns, and idle pending entries whose stream entry was deleted.
    ///
    /// The latter have no fields and keep their owner, idle time and delivery count. Pass them to
    /// [`Backend::dead_letter`](super::SettleMessages::dead_letter), which accepts them whichever consumer owns them.
    pub deliveries: Vec<Delivery>,
    /// The id from which to continue. 0-0 after the last pending entry of the group.
    pub next: StreamId,
    /// Time until the first of the examined entries that wait can be claimed. `None` if none of them waits.
    ///
    /// A store with [`Capability::DelayedRelease`] always returns `None`: its reads return such an entry when it is
    /// due.
    pub due_in: Option<Duration>,
}

/// Entries to acknowledge, deduplication keys to store with them, and retry records to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The ids of the entries to acknowledge.
    pub ids: Vec<StreamId>,
    /// Deduplication keys and their lifetimes. The store records them before it acknowledges the entries.
    pub remember: Vec<(String, Duration)>,
    /// The ids of entries whose [`RetryRecord`] is deleted.
    pub forget: Vec<StreamId>,
}

/// A delivery to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The id of the entry.
    pub id: StreamId,
    /// The delivery count of the delivery to release.
    ///
    /// An entry that has been delivered again since, even to the same consumer, is not released.
    pub delivery: u64,
    /// The delivery count that the entry gets.
    pub deliveries: u64,
    /// If set, the entry waits, and the store remembers why. If not, the entry can be claimed at once.
    pub retry: Option<Retry>,
}

impl Release {
    /// Releases a delivery and keeps its delivery count.
    pub fn counted(id: StreamId, delivery: u64) -> Release {
        Release { id, delivery, deliveries: delivery, retry: None }
    }

    /// Releases a delivery that does not count: no handler has answered for it, and none can have crashed with it.
    pub fn uncounted(id: StreamId, delivery: u64) -> Release {
        Release { id, delivery, deliveries: delivery.saturating_sub(1), retry: None }
    }
}

/// How long a released entry waits, and what its group remembers about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How long the entry waits before it can be claimed. Longer than [`Retry::AFTER_MAX`] counts as that.
    pub after: Duration,
    /// The record of the entry. The store sets its time of failure to now, and its due time to `after` from now.
    pub record: RetryRecord,
}

impl Retry {
    /// Maximum time that an entry waits: ten years of 365 days.
    pub const AFTER_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

    /// Returns the JSON form of the record, with the times of a release at `now_ms`.
    pub(crate) fn record_at(&self, now_ms: u64) -> String {
        let due_at_ms = now_ms.saturating_add(self.after_ms());
        RetryRecord { due_at_ms, failed_at_ms: now_ms, ..self.record.clone() }.to_json()
    }

    /// Returns `after` in milliseconds, limited to [`Retry::AFTER_MAX`].
    pub(super) fn after_ms(&self) -> u64 {
        // The limit fits into 64 bits.
        self.after.min(Retry::AFTER_MAX).as_millis() as u64
    }
}

/// A dead letter to add, and the pending entry it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeadLetter {
    /// The id of the pending entry to acknowledge.
    pub origin: StreamId,
    /// The name of the dead-letter stream. On a cluster it must be in the same slot as the stream.
    pub to: String,
    /// The fields of the dead letter.
    pub fields: Fields,
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id of the entry.
    pub id: StreamId,
    /// The fields of the entry.
    pub fields: Fields,
}

/// The entries to return: those from `first` to `last`, both included, at most `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The smallest id of the range.
    pub first: StreamId,
    /// The greatest id of the range.
    pub last: StreamId,
    /// The order of the returned entries.
    pub order: IdOrder,
    /// Maximum number of entries.
    pub count: usize,
}

impl Range {
    /// Selects up to `count` entries from an id on, oldest first.
    pub fn starting_at(first: StreamId, count: usize) -> Range {
        Range { first, last: StreamId::MAX, order: IdOrder::Ascending, count }
    }

    /// Selects the entry with this id.
    pub fn single(id: StreamId) -> Range {
        Range { last: id, ..Range::starting_at(id, 1) }
    }
}

/// The order in which entries are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOrder {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

/// The state and the settings of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// The fields of the server's INFO reply: version, state and counters.
    pub facts: HashMap<String, String>,
    /// The requested settings. A setting that the server lacks or hides is missing.
    pub settings: HashMap<String, String>,
    /// Why fields or settings are missing, if the user lacks the permission to read them.
    pub denied: Option<String>,
}

/// A command in the slow log of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowCommand {
    /// The number of the record. Each server counts for itself.
    pub id: u64,
    /// When the command ran, in milliseconds since 1970. Servers report whole seconds.
    pub at_ms: u64,
    /// How long the command ran, without waiting and sending.
    pub took: Duration,
    /// The command and its arguments, as the server keeps them: long ones are cut, secret ones hidden.
    pub command: Vec<Bytes>,
    /// The address of the client.
    pub client: String,
    /// The name of the client. Empty if it has none.
    pub client_name: String,
    /// The address of the node that ran the command. `None` if the store is not a cluster.
    pub node: Option<String>,
}

/// A client that is connected to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The number of the connection. Each server counts for itself.
    pub id: u64,
    /// The address of the client.
    pub address: String,
    /// The name of the client. Empty if it has none.
    pub name: String,
    /// The user as whom the client has logged in. Empty if the server does not say.
    pub user: String,
    /// The number of its database.
    pub database: u64,
    /// Time since the client connected. Servers report whole seconds.
    pub age: Duration,
    /// Time since its last command. Servers report whole seconds.
    pub idle: Duration,
    /// Whether the client waits in a blocking command.
    pub is_blocked: bool,
    /// The letters with which servers mark special clients, for example `N` for a normal one.
    pub flags: String,
    /// The last command of the client.
    pub last_command: String,
    /// Memory that the connection takes, in bytes. `None` if the server does not say.
    pub memory_bytes: Option<u64>,
    /// The library of the client, with its version. Empty if unknown.
    pub library: String,
    /// The address of the node to which it is connected. `None` if the store is not a cluster.
    pub node: Option<String>,
}

/// What [`Admin::save_snapshot`](super::ChangeStore::save_snapshot) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotRequest {
    /// The server takes the snapshot in the background. Its INFO fields say when it is done.
    Started,
    /// The snapshot is complete.
    Taken {
        /// Number of keys.
        keys: u64,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Nothing has changed since the last snapshot, or the store is in memory.
    NotNeeded,
}

/// The properties of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Number of entries.
    pub length: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of entries ever added. `None` if the store does not know.
    pub entries_added: Option<u64>,
    /// The id of the last entry ever added, even if it has been deleted.
    pub last_id: StreamId,
    /// The greatest id that was deleted. `None` if the store does not know.
    pub max_deleted_id: Option<StreamId>,
    /// The id of the oldest entry. `None` if the stream is empty.
    pub first_entry: Option<StreamId>,
    /// The id of the newest entry. `None` if the stream is empty.
    pub last_entry: Option<StreamId>,
}

/// The properties of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// The name of the group.
    pub name: String,
    /// Number of consumers.
    pub consumers: u64,
    /// Number of pending entries.
    pub pending: u64,
    /// The group's position: the next delivery of new entries starts after this id.
    pub last_delivered: StreamId,
    /// Number of entries that the group has read. `None` if the store does not know.
    pub entries_read: Option<u64>,
    /// Number of entries that the group has not read yet. `None` if the store does not know.
    pub lag: Option<u64>,
}

/// The entries that were trimmed or deleted before a group read them, as the store counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMissed {
    /// The name of the group.
    pub group: String,
    /// Number of entries, since the group was created or moved.
    pub count: u64,
    /// No missed entry has a greater id. If the group's position is less, the group has not read on yet.
    pub through: StreamId,
}

/// The properties of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// The name of the consumer.
    pub name: String,
    /// Number of entries pending for the consumer.
    pub pending: u64,
    /// Time since the consumer last tried to read or claim entries.
    pub idle: Duration,
    /// Time since the consumer last received entries. `None` if it never did or the store does not know.
    pub inactive: Option<Duration>,
}

/// A summary of the pending entries of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingSummary {
    /// Number of pending entries, including released ones.
    pub total: u64,
    /// The smallest and the greatest id. `None` if no entry is pending.
    pub ids: Option<(StreamId, StreamId)>,
    /// Number of pending entries of each consumer. Released entries have no consumer.
    pub consumers: Vec<(String, u64)>,
}

/// Selects the pending entries to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFilter {
    /// The smallest id of the range.
    pub first: StreamId,
    /// The greatest id of the range.
    pub last: StreamId,
    /// Maximum number of matching entries to return.
    pub count: usize,
    /// If set, only entries of this consumer.
    pub consumer: Option<String>,
    /// If set, only entries with at least this idle time. Released entries always match.
    pub min_idle: Option<Duration>,
}

impl PendingFilter {
    /// Selects up to `count` pending entries of all consumers, from an id on.
    pub fn starting_at(first: StreamId, count: usize) -> PendingFilter {
        PendingFilter { first, last: StreamId::MAX, count, consumer: None, min_idle: None }
    }

    /// Selects the pending entry with this id.
    pub fn single(id: StreamId) -> PendingFilter {
        PendingFilter { last: id, ..PendingFilter::starting_at(id, 1) }
    }
}

/// A pending entry: one row of a group's pending list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// The id of the entry.
    pub id: StreamId,
    /// The consumer that owns it. `None` if it was released.
    pub consumer: Option<String>,
    /// Time since it was delivered or its lease was extended. `None` if it was released.
    pub idle: Option<Duration>,
    /// Number of deliveries.
    pub deliveries: u64,
}
