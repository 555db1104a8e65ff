//! Effects: the changes that commands make, as values.
//!
//! A `decide_*` method, which takes `&self`, turns a request into an effect. `apply` then applies the effect.
//! An effect or a rearrangement describes a change of state completely. Replaying all effects and
//! rearrangements in order rebuilds the state.
//!
//! So an effect holds outcomes, never intentions: "XADD * at noon" becomes `Append { id, .. }`, and `MAXLEN ~
//! 1000` becomes the exact id up to which entries are removed. Effects borrow from the request, so only data
//! that is stored gets copied.

use crate::StreamId;
use crate::policy::Policy;

/// A change to the value of one key.
#[expect(missing_docs, reason = "the comment on a variant describes its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect<'a> {
    /// Deletes the key and its value.
    Delete,
    /// Makes the key expire at this time (Unix milliseconds).
    ExpireAt { at_ms: u64 },
    /// Removes the expiry of the key.
    Persist,
    /// Changes a string.
    String(StringEffect<'a>),
    /// Changes a hash.
    Hash(HashEffect<'a>),
    /// Changes a list.
    List(ListEffect<'a>),
    /// Changes a set.
    Set(SetEffect<'a>),
    /// Changes a stream. A missing key becomes an empty stream first.
    Stream(StreamEffect<'a>),
}

/// A change to one string.
#[expect(missing_docs, reason = "the comment on a variant describes its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StringEffect<'a> {
    /// Sets the key to this string, whatever it held before, and its expiry to `expires_at_ms`.
    Set { value: &'a [u8], expires_at_ms: Option<u64> },
    /// Appends to the string. A missing key counts as an empty string.
    Append { tail: &'a [u8] },
}

/// A change to one hash.
#[expect(missing_docs, reason = "the comment on a variant describes its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HashEffect<'a> {
    /// Sets fields. `pairs`: field, value, field, value…
    Set { pairs: &'a [&'a [u8]] },
    /// Removes fields. The key is deleted if no field is left.
    Delete { fields: &'a [&'a [u8]] },
}

/// A change to one list.
#[expect(missing_docs, reason = "the comment on a variant describes its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ListEffect<'a> {
    /// Pushes values at one end, one after the other.
    Push { end: ListEnd, values: &'a [&'a [u8]] },
    /// Removes `count` values from one end. The key is deleted if no value is left.
    Pop { end: ListEnd, count: u64 },
}

/// A change to one set.
#[expect(missing_docs, reason = "the comment on a variant describes its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SetEffect<'a> {
    /// Adds members.
    Add { members: &'a [&'a [u8]] },
    /// Removes members. The key is deleted if no member is left.
    Remove { members: &'a [&'a [u8]] },
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// The end at which LPUSH and LPOP work.
    Head,
    /// The end at which RPUSH and RPOP work.
    Tail,
}

/// A change to one stream. Groups and consumers are given by name, so the log record of a change needs no
/// other context. `at_ms` is the time of the request (Unix milliseconds).
#[expect(missing_docs, reason = "the comment on a variant describes its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamEffect<'a> {
    /// Creates the stream, empty, if it does not exist.
    Create,
    /// Appends one entry. `id` is greater than the stream's last id. `fields`: name, value, name, value…
    Append { id: StreamId, fields: &'a [&'a [u8]] },
    /// Trims every entry up to and including `last`. Does not change `max_deleted_id`, which the lag estimate
    /// uses.
    TrimThrough { last: StreamId },
    /// Trims these entries, all of which exist, in ascending order. Used by trims that keep some older entries. Does
    /// not change `max_deleted_id`, which the lag estimate uses.
    TrimEntries { ids: &'a [StreamId] },
    /// Deletes these entries, all of which exist, in ascending order.
    DeleteEntries { ids: &'a [StreamId] },
    /// Removes the pending entries with these ids from every group.
    Forget { ids: &'a [StreamId] },
    /// Sets the counters of the stream (XSETID).
    SetId { last_id: StreamId, entries_added: Option<u64>, max_deleted_id: Option<StreamId> },
    /// Creates a group, positioned after `last_id`.
    GroupCreate { group: &'a [u8], last_id: StreamId, entries_read: Option<u64> },
    /// Moves the position of a group, forwards or backwards.
    GroupSetId { group: &'a [u8], last_id: StreamId, entries_read: Option<u64> },
    /// Destroys a group with its consumers and pending entries.
    GroupDestroy { group: &'a [u8] },
    /// Creates a consumer in a group.
    ConsumerCreate { group: &'a [u8], consumer: &'a [u8], at_ms: u64 },
    /// Deletes a consumer and its pending entries.
    ConsumerDelete { group: &'a [u8], consumer: &'a [u8] },
    /// Records the time at which a consumer asked for entries and got none.
    ConsumerSeen { group: &'a [u8], consumer: &'a [u8], at_ms: u64 },
    /// Delivers the next `count` live entries after the group's position to a consumer. The last of them is
    /// `last`, which becomes the group's position. If `pending` is true, the entries become pending.
    Deliver { group: &'a [u8], consumer: &'a [u8], last: StreamId, count: u64, at_ms: u64, pending: bool },
    /// Delivers pending entries again to the consumer that owns them.
    Redeliver { group: &'a [u8], consumer: &'a [u8], ids: &'a [StreamId], at_ms: u64 },
    /// Removes these ids from the pending entries of the group, because they were acknowledged or their
    /// entries no longer exist. Ids that are not pending are ignored.
    Ack { group: &'a [u8], ids: &'a [StreamId] },
    /// Assigns pending entries to a consumer with these delivery times and counts. Creates rows that do not
    /// exist.
    Claim { group: &'a [u8], consumer: &'a [u8], rows: &'a [ClaimedRow], at_ms: u64 },
    /// Removes the owner of pending entries and queues them, in this order, to be claimed at once. Creates rows that
    /// do not exist.
    Release { group: &'a [u8], rows: &'a [ReleasedRow] },
    /// Like `Release`, but the rows have due times, before which they cannot be claimed.
    ReleaseUntil { group: &'a [u8], rows: &'a [ReleasedRow], at_ms: u64 },
    /// Moves all pending entries of the consumer `from` to the consumer `to`, which is created if needed.
    /// Deletes `from`.
    Adopt { group: &'a [u8], from: &'a [u8], to: &'a [u8], at_ms: u64 },
    /// Sets the limits of the producer history: how long it remembers an entry, and how many entries it
    /// remembers per producer. Clears the history if the limits change.
    IdempotenceConfigure { duration_s: u64, max_size: u64 },
    /// Records in the producer history that the producer sent the entry `id` with the idempotent id `iid`.
    Remember { producer: &'a [u8], iid: &'a [u8], id: StreamId, at_ms: u64 },
    /// Delays an entry. The number of `ticket` is greater than that of every ticket before. `fields`: name, value,
    /// name, value…
    Delay { ticket: StreamId, fields: &'a [&'a [u8]], at_ms: u64 },
    /// Appends the first `count` delayed entries, which are those up to and including the ticket `through`, and removes
    /// them from the delayed entries. The first of them gets the id `first`, and each other one the next id.
    Promote { through: StreamId, count: u64, first: StreamId, at_ms: u64 },
    /// Appends the delayed entries with these tickets, all of which exist, in ascending order, and removes them from
    /// the delayed entries. The first of them gets the id `first`, and each other one the next id.
    PromoteTickets { tickets: &'a [StreamId], first: StreamId, at_ms: u64 },
    /// Removes delayed entries with these tickets, all of which exist, in ascending order.
    Undelay { tickets: &'a [StreamId] },
    /// Counts a duplicate: a producer sent an `iid` again, and no entry was added.
    Repeat,
    /// Replaces the policy of the stream, which is the default of its groups. An empty one removes it. It acts with the
    /// rights of the user `owner`, or with all rights.
    SetPolicy { policy: &'a Policy, owner: Option<&'a [u8]> },
    /// Replaces the policy of a group. An empty one removes it. It acts with the rights of the user `owner`, or with
    /// all rights.
    GroupSetPolicy { group: &'a [u8], policy: &'a Policy, owner: Option<&'a [u8]> },
    /// From now on, the policies of the stream and of its groups act with the rights of this user.
    OwnPolicies { owner: &'a [u8] },
}

/// A pending entry after it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedRow {
    /// The id of the entry.
    pub id: StreamId,
    /// The time to record as its last delivery (Unix milliseconds). XCLAIM can set any time.
    pub delivered_at_ms: u64,
    /// The delivery count to record.
    pub deliveries: u64,
}

/// A pending entry after it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedRow {
    /// The id of the entry.
    pub id: StreamId,
    /// The delivery count to record.
    pub deliveries: u64,
    /// The due time, before which only a claim by id takes the entry (Unix milliseconds). 0 if it can be claimed at
    /// once, as always in [`StreamEffect::Release`].
    pub not_before_ms: u64,
}

/// A change to whole values: a key is moved or copied, or databases are swapped or cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearrangement<'a> {
    /// Moves the value of the first key to the second key and replaces any value there.
    Move(KeyPlace<'a>, KeyPlace<'a>),
    /// Copies the value of the first key to the second key and replaces any value there.
    Copy(KeyPlace<'a>, KeyPlace<'a>),
    /// Swaps the content of two databases.
    Swap(u32, u32),
    /// Removes all keys of a database.
    Clear(u32),
}

/// A key in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPlace<'a> {
    /// The number of the database.
    pub db: u32,
    /// The key.
    pub key: &'a [u8],
}
