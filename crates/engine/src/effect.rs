//! What commands change, as values.
//!
//! A request is decided once (`decide_*`, on `&self`) and becomes an effect, which `apply` makes. Whatever changes state has an effect (or a
//! rearrangement) that says all of it, and replaying them in order rebuilds the state. So an effect holds
//! outcomes, never intentions: "XADD * at noon" is `Append { id, .. }`, `MAXLEN ~ 1000` is the exact
//! id up to which entries go. Effects borrow from the request; nothing is copied that is not kept.

use crate::StreamId;

/// A change to what lives under one key.
#[expect(missing_docs, reason = "a variant's sentence speaks of its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect<'a> {
    /// The key and everything under it goes.
    Delete,
    /// The key lives until this time (Unix milliseconds).
    ExpireAt { at_ms: u64 },
    /// The key no longer expires.
    Persist,
    /// The key becomes this string, whatever it was before. Its expiry is `expires_at_ms`.
    StringSet { value: &'a [u8], expires_at_ms: Option<u64> },
    /// The string grows at its end (a missing key is an empty string).
    StringAppend { tail: &'a [u8] },
    /// Fields of a hash get these values: field, value, field, value…
    HashSet { pairs: &'a [&'a [u8]] },
    /// Fields leave a hash; an empty hash is no key.
    HashDelete { fields: &'a [&'a [u8]] },
    /// Values join a list at one end, one after the other.
    ListPush { end: ListEnd, values: &'a [&'a [u8]] },
    /// Values leave a list at one end; an empty list is no key.
    ListPop { end: ListEnd, count: u64 },
    /// Members join a set.
    SetAdd { members: &'a [&'a [u8]] },
    /// Members leave a set; an empty set is no key.
    SetRemove { members: &'a [&'a [u8]] },
    /// A change to a stream; a missing key becomes an empty stream first.
    Stream(StreamEffect<'a>),
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// Where LPUSH and LPOP work.
    Head,
    /// Where RPUSH and RPOP work.
    Tail,
}

/// A change to one stream. Groups and consumers are named, so that a record of it stands alone.
#[expect(missing_docs, reason = "a variant's sentence speaks of its fields")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamEffect<'a> {
    /// The stream exists, empty if it was not there.
    Create,
    /// One entry joins the end. `id` is greater than the stream's last id. `fields`: name, value, name, value…
    Append { id: StreamId, fields: &'a [&'a [u8]] },
    /// Every entry up to and including `last` goes; deletion marks are not left for the lag rules.
    TrimThrough { last: StreamId },
    /// These entries go by a trim, each of them present: a trim that passes over some. Deletion marks are not
    /// left for the lag rules.
    TrimEntries { ids: &'a [StreamId] },
    /// These entries go, each of them present.
    DeleteEntries { ids: &'a [StreamId] },
    /// The pending entries of these ids go from every group.
    Forget { ids: &'a [StreamId] },
    /// The stream's counters are set by hand.
    SetId { last_id: StreamId, entries_added: Option<u64>, max_deleted_id: Option<StreamId> },
    /// A group begins, positioned after `last_id`.
    GroupCreate { group: &'a [u8], last_id: StreamId, entries_read: Option<u64> },
    /// A group moves, forwards or back.
    GroupSetId { group: &'a [u8], last_id: StreamId, entries_read: Option<u64> },
    /// A group goes with its consumers and pending entries.
    GroupDestroy { group: &'a [u8] },
    /// A consumer joins its group.
    ConsumerCreate { group: &'a [u8], consumer: &'a [u8], at_ms: u64 },
    /// A consumer leaves, and its pending entries with it.
    ConsumerDelete { group: &'a [u8], consumer: &'a [u8] },
    /// A consumer asked, and got nothing.
    ConsumerSeen { group: &'a [u8], consumer: &'a [u8], at_ms: u64 },
    /// The `count` live entries after the group's position, the last of them `last`, go to a consumer
    /// and the group stands at `last`. With `pending` they await acknowledgement.
    Deliver { group: &'a [u8], consumer: &'a [u8], last: StreamId, count: u64, at_ms: u64, pending: bool },
    /// Entries pending with this consumer were shown to it again.
    Redeliver { group: &'a [u8], consumer: &'a [u8], ids: &'a [StreamId], at_ms: u64 },
    /// Those of these that are pending are done with, or their entry is gone.
    Ack { group: &'a [u8], ids: &'a [StreamId] },
    /// Pending entries move to a consumer with these times and counts; rows that were not there begin.
    Claim { group: &'a [u8], consumer: &'a [u8], rows: &'a [ClaimedRow], at_ms: u64 },
    /// Pending entries belong to nobody and wait to be claimed, one behind the other; rows that were not there begin.
    Release { group: &'a [u8], rows: &'a [ReleasedRow] },
    /// Everything pending with one consumer passes to another, which joins if it is new; the first one leaves.
    Adopt { group: &'a [u8], from: &'a [u8], to: &'a [u8], at_ms: u64 },
    /// How long and how much of each producer is remembered. If that differs from before, nothing is any more.
    IdempotenceConfigure { duration_s: u64, max_size: u64 },
    /// A producer's entry of this name is remembered as the entry `id`.
    Remember { producer: &'a [u8], iid: &'a [u8], id: StreamId, at_ms: u64 },
    /// A producer sent what is remembered, and no entry was added.
    Repeat,
}

/// A pending entry as it stands after a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedRow {
    /// The entry.
    pub id: StreamId,
    /// When it counts as delivered (Unix milliseconds).
    pub delivered_at_ms: u64,
    /// How often it counts as delivered.
    pub deliveries: u64,
}

/// A pending entry as it stands when its consumer has given it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedRow {
    /// The entry.
    pub id: StreamId,
    /// How often it counts as delivered.
    pub deliveries: u64,
}

/// A change to where values are: over two keys, or over whole databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearrangement<'a> {
    /// What is at the first place goes to the second, over whatever is there.
    Move(KeyPlace<'a>, KeyPlace<'a>),
    /// What is at the first place is put at the second too, over whatever is there.
    Copy(KeyPlace<'a>, KeyPlace<'a>),
    /// Two databases exchange their content.
    Swap(u32, u32),
    /// A database becomes empty.
    Clear(u32),
}

/// A key of a numbered database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPlace<'a> {
    /// The database.
    pub db: u32,
    /// The key.
    pub key: &'a [u8],
}
