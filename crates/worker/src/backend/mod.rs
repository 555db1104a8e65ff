//! The operations that the worker runtime and its tools need from a store of streams.
//!
//! The operations are grouped by need. A new backend implements the first two; [`OwnStreams`] has defaults.
//!
//! ```text
//! ReadMessages     find out about a store, join a group, get its messages
//! SettleMessages   add entries; acknowledge, release, extend, dead-letter; hashes for what workers must remember
//! OwnStreams       one worker at a time owns a stream: only for workers that order messages
//!   Backend        all three
//! InspectStore     look at streams, groups, consumers and the server
//! ChangeStore      change them
//!   Admin          both
//! ```
//!
//! On a store that implements only [`Backend`], workers have no autoscaling and no backlog metrics, and they do not
//! remove dead consumers.
//!
//! There are three implementations: the embedded engine, a server that speaks the Redis protocol, and a Redis or
//! Valkey Cluster. The traits use none of their types. If a server lacks an operation, its backend emulates it, so
//! callers see the same behaviour everywhere. Exceptions: idempotent adds and delayed entries cannot be emulated. The
//! backend detects missing operations by probing the server, never by its version.
//!
//! A *pending entry* is a row of a group's pending list. The stream entry it refers to may have been deleted or
//! trimmed; the pending entry then stays until it is acknowledged or dead-lettered.
//!
//! All calls can run concurrently, from any task. A blocking read has its own connection and delays no other call. If
//! a call is dropped before it returns, the store may still execute it. For this reason the runtime never drops
//! reads.

mod embedded;
mod error;
mod look;
mod redis;
mod types;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use embedded::Embedded;
pub use error::{AddOutcome, Error, ErrorKind};
pub use look::{GroupDetail, GroupLook, LookDetail, StreamCursor, StreamLook, StreamNames};
pub use millstream_engine::{Due, StreamId, policy};
pub use redis::{Redis, ServerOptions};
pub use types::{
    Acknowledgement, AddOptions, Capability, Claimant, Claimed, ClientInfo, Consumer, ConsumerInfo, Delivery,
    Entry, Fields, GroupInfo, GroupMissed, IdOrder, Idempotence, NewDeadLetter, NewEntry, PendingFilter,
    PendingRow, PendingSummary, PolicyInfo, Range, Read, ReadMany, Release, Retry, ServerInfo, SlowCommand,
    SnapshotRequest, Start, StreamInfo, StreamOwner, StreamRead, Trim, TrimLimit, WorkerAccess,
};

/// Number of entries or pending entries to request per call when listing all of them.
const PAGE_SIZE: usize = 1000;

/// The future that a backend call returns.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Reading: what a worker needs to find out about a store, join a group, and get its messages.
pub trait ReadMessages: Send + Sync + 'static {
    /// Returns the location of the store, for display: a URL without its password, or a folder.
    fn location(&self) -> String;

    /// Returns whether the store has an optional operation natively.
    ///
    /// The backend probes a server once, when the answer is first needed. The probe names this stream and changes
    /// nothing. The call fails with [`ErrorKind::Denied`] if the user may not run the command in question.
    fn supports<'a>(&'a self, capability: Capability, stream: &'a str) -> BackendFuture<'a, bool>;

    /// Checks that the user may run every command that a worker needs, with these streams and keys. Changes nothing.
    ///
    /// If something is missing, the error is [`ErrorKind::Denied`] and lists all of it.
    fn check_access<'a>(&'a self, _access: &'a WorkerAccess<'a>) -> BackendFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Tells the store the name of its client, which the store can show to operators.
    fn set_client_name<'a>(&'a self, _name: &'a str) -> BackendFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the time of the store that has this stream, in milliseconds since 1970.
    ///
    /// Times that several processes compare come from this clock, because the clocks of their machines can differ.
    fn now_ms<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, u64>;

    /// Creates the group, and the stream if it does not exist. Returns false, without any change, if the group exists.
    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, bool>;

    /// Creates the group if the stream exists and has no such group. Returns whether the stream exists.
    fn join_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, bool>;

    /// Returns the length, last id and other properties of a stream, or `None` if it does not exist.
    fn stream<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Option<StreamInfo>>;

    /// Returns the policy of a stream, or the values in force in a group. `None` if the store has no policies, if the
    /// stream or the group does not exist, or if the user lacks the permission.
    fn policy<'a>(
        &'a self,
        _stream: &'a str,
        _group: Option<&'a str>,
    ) -> BackendFuture<'a, Option<PolicyInfo>> {
        Box::pin(async { Ok(None) })
    }

    /// Reads new entries for a consumer. If the store has [`Capability::ReadClaims`], also claims idle entries.
    ///
    /// Returns an empty list if no entry arrived within [`Read::block`].
    fn read<'a>(&'a self, read: &'a Read<'a>) -> BackendFuture<'a, Vec<Delivery>>;

    /// Reads new entries of several streams for a consumer, as [`read`](ReadMessages::read) does of one.
    ///
    /// Returns the streams that have entries, or that cannot be read, for example because the group does not exist.
    /// Empty if no entry arrived within [`ReadMany::block`]. Uses at most one connection, however many streams there
    /// are. Exception: on a cluster no command can read streams of different nodes, so the backend polls the nodes over
    /// the connections that other calls use. If there are many streams, it polls less often.
    fn read_many<'a>(&'a self, read: &'a ReadMany<'a>) -> BackendFuture<'a, Vec<StreamRead>>;

    /// Returns the consumer's own pending entries after an id. Delivery counts do not change.
    ///
    /// An entry that was deleted from the stream has no fields.
    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Vec<Delivery>>;

    /// Claims up to `count` pending entries that have been idle for `min_idle` or were released, starting at id `from`.
    /// Leaves entries that [wait](Release::retry).
    ///
    /// The search includes the entries of all consumers. To search the whole group, repeat the call from
    /// [`Claimed::next`]. If a call claims nothing, later entries may still be claimable.
    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed>;
}

/// Settling: adding entries, what becomes of those that were read, and hashes for what workers must remember about
/// them.
///
/// With this and [`ReadMessages`], a store can be used by producers and workers.
pub trait SettleMessages: ReadMessages {
    /// Appends entries to a stream in one round trip and returns their ids in the same order.
    ///
    /// The backend never sends an entry again that the store may have added. If the call fails, [`Error::outcomes`]
    /// says for each entry whether it was added; without outcomes, none was.
    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> BackendFuture<'a, Vec<StreamId>>;

    /// Adds entries as [`add`](SettleMessages::add) does, with more options.
    ///
    /// With [`AddOptions::due`], the store appends the entries when they are due. It returns their tickets in the same
    /// order, or the ids of entries that are due already, and trims at once. This fails on a store without
    /// [`Capability::DelayedEntries`].
    fn add_with<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        options: AddOptions,
    ) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(async move {
            if options.due.is_some() {
                return Err(no_delays(&self.location()));
            }
            if options.only_existing && self.stream(stream).await?.is_none() {
                return Err(no_stream(stream));
            }
            self.add(stream, entries, options.trim).await
        })
    }

    /// Stores the deduplication keys, acknowledges the entries and deletes retry records. Returns the number of entries
    /// acknowledged.
    ///
    /// Takes one round trip. In a cluster, it takes another one for each key in a different slot from the stream.
    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> BackendFuture<'a, u64>;

    /// Resets the idle time of those entries that are still pending for this consumer, and returns their ids.
    ///
    /// Delivery counts do not change.
    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> BackendFuture<'a, Vec<StreamId>>;

    /// Releases pending entries, so that any consumer can claim them: immediately, or after they have
    /// [waited](Release::retry). Returns the number released.
    ///
    /// Skips an entry that is no longer pending for this consumer, or whose delivery count has changed. Some stores
    /// cannot release a pending entry whose stream entry was deleted; it then stays with the consumer until it is
    /// dead-lettered.
    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> BackendFuture<'a, u64>;

    /// Adds dead letters, acknowledges the entries they come from and deletes their retry records, for each entry
    /// atomically. Returns the ids moved.
    ///
    /// Moves only entries that are still pending for this consumer. Exception: a pending entry whose stream entry was
    /// deleted is moved even if another consumer owns it.
    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        dead_letters: &'a [NewDeadLetter],
    ) -> BackendFuture<'a, Vec<StreamId>>;

    /// Deletes the entries that every group has acknowledged, up to the first one that a group still needs. Returns the
    /// number deleted. Without groups, deletes nothing.
    ///
    /// Never deletes an entry that a group has not read or not acknowledged. With `gaps`, a store that can do so also
    /// deletes entries after the first one that a group needs. It looks at each entry that a group has read and not
    /// acknowledged.
    fn delete_done<'a>(&'a self, stream: &'a str, gaps: bool) -> BackendFuture<'a, u64>;

    /// Returns, for each key, whether an [`Acknowledgement`] stored it and it has not expired.
    fn seen<'a>(&'a self, keys: &'a [String]) -> BackendFuture<'a, Vec<bool>>;

    /// Returns the value of each field of a hash. `None` for a field that does not exist.
    fn hash_get<'a>(&'a self, key: &'a str, fields: &'a [String]) -> BackendFuture<'a, Vec<Option<Bytes>>>;

    /// Returns the number of fields of a hash, 0 if it does not exist.
    fn hash_len<'a>(&'a self, key: &'a str) -> BackendFuture<'a, u64>;

    /// Returns all fields of a hash with their values, in any order. Empty if the hash does not exist.
    fn hash_get_all<'a>(&'a self, key: &'a str) -> BackendFuture<'a, Vec<(String, Bytes)>>;

    /// Returns the names of all fields of a hash, in any order. Empty if the hash does not exist.
    fn hash_fields<'a>(&'a self, key: &'a str) -> BackendFuture<'a, Vec<String>>;

    /// Sets fields of a hash. Creates the hash if it does not exist.
    fn hash_set<'a>(&'a self, key: &'a str, pairs: &'a [(String, Bytes)]) -> BackendFuture<'a, ()>;

    /// Deletes fields of a hash. Returns the number deleted. The store deletes a hash without fields.
    fn hash_delete<'a>(&'a self, key: &'a str, fields: &'a [String]) -> BackendFuture<'a, u64>;
}

/// Owning: one worker at a time owns a stream. Workers that order messages need this; others do not.
///
/// The default of each operation fails with [`ErrorKind::Unsupported`].
pub trait OwnStreams: ReadMessages {
    /// Acquires a stream in a group, if nobody owns it or this worker does. Returns the owner after the call.
    ///
    /// The owner keeps the stream until its lease expires, or until it [gives it up](OwnStreams::give_up).
    fn acquire<'a>(&'a self, _claimant: Claimant<'a>, _lease: Duration) -> BackendFuture<'a, StreamOwner> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Renews the lease of an owner. Returns false if the lease has expired or another worker owns the stream.
    ///
    /// On some servers, the lease of another worker becomes longer by this, once.
    fn renew<'a>(
        &'a self,
        _claimant: Claimant<'a>,
        _fence: u64,
        _lease: Duration,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Gives a stream up. Returns false if the lease has expired or another worker owns the stream.
    fn give_up<'a>(&'a self, _claimant: Claimant<'a>, _fence: u64) -> BackendFuture<'a, bool> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Returns the worker that owns a stream in a group, or owned it last. `None` if none ever did.
    fn owner<'a>(&'a self, _stream: &'a str, _group: &'a str) -> BackendFuture<'a, Option<StreamOwner>> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Reads new entries for an owner, as [`read`](ReadMessages::read) does, and neither blocks nor claims. Returns
    /// `None`, without any delivery, if another worker has acquired the stream since.
    fn read_owned<'a>(
        &'a self,
        _read: &'a Read<'a>,
        _claimant: Claimant<'a>,
        _fence: u64,
    ) -> BackendFuture<'a, Option<Vec<Delivery>>> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Claims up to `count` pending entries in the order of their ids, starting at id `from`, whoever owns them and
    /// however long they have been idle, also those that [wait](Release::retry). Each claim is a delivery.
    ///
    /// Only for a worker that knows that no other one is at work in the group. Returns entries that were deleted from
    /// the stream as [`autoclaim`](ReadMessages::autoclaim) does.
    fn take_over<'a>(
        &'a self,
        _consumer: Consumer<'a>,
        _from: StreamId,
        _count: usize,
    ) -> BackendFuture<'a, Claimed> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Waits for entries after an id and returns them, without a group.
    ///
    /// Returns an empty list if no entry arrived within `block`.
    fn follow<'a>(
        &'a self,
        _stream: &'a str,
        _after: StreamId,
        _count: usize,
        _block: Duration,
    ) -> BackendFuture<'a, Vec<Entry>> {
        Box::pin(async { Err(no_owners(&self.location())) })
    }

    /// Tells the store how many entries a group has read, if the store does not know: some servers forget it in a
    /// failover, and then they report no lag, or one that is too large. Returns whether the store knows it now because
    /// of this call.
    ///
    /// Only for the owner of the stream. Does nothing while the group has many unread entries.
    fn repair_lag<'a>(&'a self, _claimant: Claimant<'a>, _fence: u64) -> BackendFuture<'a, bool> {
        Box::pin(async { Ok(false) })
    }
}

/// A store for producers and workers.
pub trait Backend: SettleMessages + OwnStreams {
    /// Returns the same store as an [`Admin`], or `None` if the store does not support administration.
    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        None
    }
}

/// Looking: operations that inspect the streams, groups and consumers of a store, and its server.
pub trait InspectStore: Backend {
    /// Returns `Ok` if the store replies.
    fn ping(&self) -> BackendFuture<'_, ()>;

    /// Returns the server's INFO fields and the named settings, or `None` if the store has no server.
    ///
    /// On a cluster, one of its nodes replies.
    fn server<'a>(&'a self, _settings: &'a [&'a str]) -> BackendFuture<'a, Option<ServerInfo>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns the slowest commands of late, newest first, at most `count`. On a cluster: of all its masters.
    ///
    /// This and the four calls below fail with [`ErrorKind::Unsupported`] if the store has no server.
    fn slow_log(&self, _count: usize) -> BackendFuture<'_, Vec<SlowCommand>> {
        Box::pin(async { Err(no_server(&self.location())) })
    }

    /// Returns the connected clients. On a cluster: those of all its masters.
    fn clients(&self) -> BackendFuture<'_, Vec<ClientInfo>> {
        Box::pin(async { Err(no_server(&self.location())) })
    }

    /// Returns the address of the node that has a stream, as far as it is known. `None` if the store is not a cluster.
    fn node_of(&self, _stream: &str) -> Option<String> {
        None
    }

    /// Returns the names of all streams that match a glob pattern, sorted.
    fn streams<'a>(&'a self, pattern: &'a str) -> BackendFuture<'a, Vec<String>>;

    /// Returns the names of some streams that match a glob pattern. Begin with the default cursor, and call again with
    /// [`StreamNames::next`] until that is `None`.
    ///
    /// A server visits about `steps` times 1,000 keys, of any type. A stream that exists during the whole walk is
    /// found.
    fn walk_streams<'a>(
        &'a self,
        pattern: &'a str,
        from: &'a StreamCursor,
        steps: usize,
    ) -> BackendFuture<'a, StreamNames>;

    /// Looks at many streams and their groups in few round trips. Returns them in the order of their names: `None` for
    /// a stream that does not exist, or an error if the store refused to describe it. Fails if the store does not
    /// answer; on a cluster, only the streams of the nodes that do not answer have errors.
    ///
    /// Changes nothing: it joins no group and creates no consumer.
    fn look<'a>(
        &'a self,
        streams: &'a [String],
        detail: &'a LookDetail,
    ) -> BackendFuture<'a, Vec<Result<Option<StreamLook>, Error>>>;

    /// Returns the address of each master of a cluster, and how many of these keys it has. Empty if the store is no
    /// cluster.
    ///
    /// Does not ask the store: this is what the backend knows from its last calls.
    fn keys_per_node(&self, _keys: &[&str]) -> Vec<(String, usize)> {
        Vec::new()
    }

    /// Returns the number of entries of each of these streams, 0 if it does not exist.
    fn lengths<'a>(&'a self, streams: &'a [String]) -> BackendFuture<'a, Vec<Result<u64, Error>>>;

    /// Returns the entries of a range of ids.
    fn range<'a>(&'a self, stream: &'a str, range: Range) -> BackendFuture<'a, Vec<Entry>>;

    /// Returns all entries of a stream, in as many calls as needed.
    fn all_entries<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            let (mut all, mut next) = (Vec::new(), Some(StreamId::MIN));
            while let Some(first) = next {
                let page = self.range(stream, Range::starting_at(first, PAGE_SIZE)).await?;
                next = page.last().filter(|_| page.len() == PAGE_SIZE).and_then(|entry| entry.id.next());
                all.extend(page);
            }
            Ok(all)
        })
    }

    /// Returns delayed entries in the order of their tickets, starting at the ticket `first`. The id of each is its
    /// ticket.
    ///
    /// This and the two calls below fail on a store without [`Capability::DelayedEntries`].
    fn delayed<'a>(
        &'a self,
        _stream: &'a str,
        _first: StreamId,
        _count: usize,
    ) -> BackendFuture<'a, Vec<Entry>> {
        Box::pin(async { Err(no_delays(&self.location())) })
    }

    /// Returns the memory that a stream takes, in bytes. `None` if it does not exist.
    ///
    /// Some servers estimate it from samples.
    fn memory_usage<'a>(&'a self, _stream: &'a str) -> BackendFuture<'a, Option<u64>> {
        Box::pin(async { Err(unsupported(&self.location(), "tell how much memory a stream takes")) })
    }

    /// Returns the groups of a stream, sorted by name. Empty if the stream does not exist.
    fn groups<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Vec<GroupInfo>>;

    /// Returns the entries that each group of a stream missed. Empty if the store does not count them, or if the user
    /// may not know.
    fn missed<'a>(&'a self, _stream: &'a str) -> BackendFuture<'a, Vec<GroupMissed>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns a summary of the pending entries of a group.
    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, PendingSummary>;

    /// Returns the pending entries of a group that match the filter, sorted by id.
    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> BackendFuture<'a, Vec<PendingRow>>;

    /// Returns all pending entries of a group, in as many calls as needed.
    fn all_pending<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, Vec<PendingRow>> {
        Box::pin(async move {
            let (mut all, mut next) = (Vec::new(), Some(StreamId::MIN));
            while let Some(first) = next {
                let page = self.pending(stream, group, &PendingFilter::starting_at(first, PAGE_SIZE)).await?;
                next = page.last().filter(|_| page.len() == PAGE_SIZE).and_then(|row| row.id.next());
                all.extend(page);
            }
            Ok(all)
        })
    }

    /// Returns the consumers of a group, sorted by name.
    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, Vec<ConsumerInfo>>;
}

/// Changing: operations that administer the streams, groups and consumers of a store, and its server.
pub trait ChangeStore: InspectStore {
    /// Removes all commands from the slow log. On a cluster: of all its masters.
    fn reset_slow_log(&self) -> BackendFuture<'_, ()> {
        Box::pin(async { Err(no_server(&self.location())) })
    }

    /// Changes a setting of the running server (CONFIG SET). On a cluster: of all its masters.
    fn set_server_setting<'a>(&'a self, _name: &'a str, _value: &'a str) -> BackendFuture<'a, ()> {
        Box::pin(async { Err(no_server(&self.location())) })
    }

    /// Takes a snapshot of all data, or lets the server take one in the background (BGSAVE). On a cluster: all its
    /// masters.
    fn save_snapshot(&self) -> BackendFuture<'_, SnapshotRequest> {
        Box::pin(async { Err(unsupported(&self.location(), "take snapshots")) })
    }

    /// Deletes entries from a stream. Returns the number deleted.
    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> BackendFuture<'a, u64>;

    /// Cancels delayed entries. Returns how many were cancelled.
    fn cancel_delayed<'a>(&'a self, _stream: &'a str, _tickets: &'a [StreamId]) -> BackendFuture<'a, u64> {
        Box::pin(async { Err(no_delays(&self.location())) })
    }

    /// Appends delayed entries to the stream before they are due. Returns how many were appended.
    fn promote_delayed<'a>(&'a self, _stream: &'a str, _tickets: &'a [StreamId]) -> BackendFuture<'a, u64> {
        Box::pin(async { Err(no_delays(&self.location())) })
    }

    /// Trims a stream. Returns the number of entries removed, 0 if the stream does not exist.
    ///
    /// With [`Trim::keep_unread`], on a store that cannot check each entry, the trim ends at the first entry that a
    /// group still needs.
    fn trim<'a>(&'a self, _stream: &'a str, _trim: Trim) -> BackendFuture<'a, u64> {
        Box::pin(async { Err(unsupported(&self.location(), "trim streams")) })
    }

    /// Deletes a stream with its groups. Returns false if it does not exist.
    fn delete_stream<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, bool>;

    /// Moves the group's position forwards or backwards.
    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, ()>;

    /// Moves the group if its position is `from`. Returns false, without any change, if it has another position.
    ///
    /// A store compares and moves in one step if it can. On a server without scripts whose stream changes all the time,
    /// and on a cluster without scripts, the group can deliver an entry in between.
    fn move_group_from<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        from: StreamId,
        start: Start,
    ) -> BackendFuture<'a, bool>;

    /// Deletes the group with its pending entries. Returns false if it does not exist.
    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, bool>;

    /// Moves pending entries to a consumer. Counts as a delivery. Returns the ids moved.
    ///
    /// Moves only rows whose idle time is at least the given one. So it leaves an entry that was delivered or extended
    /// since the rows were read. The stream must still have the entries: on some servers, claiming another one removes
    /// it from the pending list.
    fn claim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        rows: &'a [PendingRow],
    ) -> BackendFuture<'a, Vec<StreamId>>;

    /// Makes an entry pending again in this group only: claimable immediately, with a delivery count of 0.
    ///
    /// An entry that is already pending does not change. Returns false if the stream has no such entry.
    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> BackendFuture<'a, bool>;

    /// Sets the fields of the policy of a stream, or of a group, that are set in `change`, and switches the fields in
    /// `off` off. Fails if the store has no policies.
    fn set_policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
        change: &'a policy::Policy,
        off: &'a [policy::PolicyField],
    ) -> BackendFuture<'a, ()>;

    /// Removes the policy of a stream, or of a group.
    fn reset_policy<'a>(&'a self, stream: &'a str, group: Option<&'a str>) -> BackendFuture<'a, ()>;

    /// Atomically moves a consumer's pending entries to another consumer, its heir, and removes the consumer. Returns
    /// the number of entries moved.
    ///
    /// Idle times and delivery counts do not change. If the heir is not a consumer yet, it is created only if an entry
    /// moves. Some stores cannot move a pending entry whose stream entry was deleted; the consumer then stays until
    /// such entries are dead-lettered.
    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> BackendFuture<'a, u64>;

    /// Removes a consumer if it has no pending entries.
    ///
    /// No entry is lost: if one is delivered to the consumer during the call, it stays pending, possibly for another
    /// consumer.
    ///
    /// Returns true if the consumer was removed or does not exist, false if it has pending entries.
    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> BackendFuture<'a, bool>;
}

/// A store that can be inspected and administered.
pub trait Admin: ChangeStore {}

impl<T: ChangeStore> Admin for T {}

/// Returns the error of a store that cannot delay entries.
fn no_delays(location: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("{location} cannot delay messages: only Millstream can"))
}

/// Returns the error of an add to a stream that does not exist and must not be created.
fn no_stream(stream: &str) -> Error {
    Error::new(ErrorKind::NoGroup, format!("stream {stream} does not exist: nothing was added"))
}

fn unsupported(location: &str, operation: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{location} cannot {operation}: this store does not support it"),
    )
}

/// Returns the error of a store without [`OwnStreams`].
fn no_owners(location: &str) -> Error {
    unsupported(location, "let workers own streams")
}

fn no_server(location: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{location} has no server: the store is embedded in this process"),
    )
}

/// Returns an error if one of the new entries has no fields.
fn check_fields<'a>(mut entries: impl Iterator<Item = &'a Fields>) -> Result<(), Error> {
    match entries.any(Vec::is_empty) {
        true => Err(Error::new(ErrorKind::Refused, "an entry must have at least one field")),
        false => Ok(()),
    }
}
