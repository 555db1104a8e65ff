//! The reasons why a request is refused, as one typed list. `protocol` has the texts that clients see.

use std::fmt;

use crate::policy::PolicyField;

/// Why a valid request cannot be carried out. A refused request has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The key holds a value of another type.
    WrongType,
    /// The key does not exist, but the command needs it.
    NoSuchKey,
    /// The key or the group does not exist, but the command needs both.
    NoGroup,
    /// XGROUP on a key that does not exist, without MKSTREAM.
    GroupNeedsKey,
    /// The group exists already.
    GroupExists,
    /// The stream has the maximum number of groups.
    TooManyGroups,
    /// The id is `0-0`, which no entry can have.
    IdIsZero,
    /// The id is not greater than the stream's last id.
    IdNotGreater,
    /// The stream's last id is the greatest possible id.
    IdsExhausted,
    /// The entry is larger than 1 GiB.
    EntryTooLarge,
    /// The entry has no field.
    NoFields,
    /// XSETID with an id smaller than the greatest deleted id.
    SetIdBelowMaxDeleted,
    /// XSETID with an id smaller than that of the last entry.
    SetIdBelowLastEntry,
    /// XSETID with a number of added entries smaller than the stream's length.
    SetIdTooFewAdded,
    /// The value is not a 64-bit integer.
    NotAnInteger,
    /// The value is not a floating-point number.
    NotAFloat,
    /// The hash field is not a 64-bit integer.
    HashNotAnInteger,
    /// The hash field is not a floating-point number.
    HashNotAFloat,
    /// The sum does not fit into 64 bits.
    IntegerOverflow,
    /// The sum is not a finite number.
    FloatOverflow,
    /// The string would be longer than the maximum.
    StringTooLong,
    /// The stream has no entry with this id.
    NoSuchEntry,
    /// The producer history has recorded another entry for this `iid`.
    IidConflict,
    /// The delay of a release is longer than the maximum.
    DelayOutOfRange,
    /// The field of a policy does nothing without a lease, and no lease is in force.
    PolicyNeedsLease(PolicyField),
    /// A group has this field and no lease of its own, so it needs the lease of the stream.
    GroupNeedsLeaseOfStream(PolicyField),
    /// The policy names the stream itself as its dead-letter stream.
    DeadLettersToItself,
    /// The program that uses the store allows it no more memory.
    OutOfMemory,
    /// The name of a new group or consumer is longer than [`NAME_BYTES_MAX`](crate::stream::NAME_BYTES_MAX).
    NameTooLong,
    /// The due time of a delayed entry is more than ten years away.
    DueOutOfRange,
    /// XADOPT with the same consumer as source and destination.
    AdoptsItself,
    /// Source and destination are the same key.
    SameObject,
    /// The database number is out of range.
    NoSuchDatabase,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::PolicyNeedsLease(_) => "the policy has a field that needs LEASE",
            Refusal::GroupNeedsLeaseOfStream(_) => "the policy of a group has a field that needs LEASE",
            Refusal::DeadLettersToItself => "the dead letters of a stream cannot go to the stream itself",
            Refusal::OutOfMemory => "memory is full: this would exceed maxmemory and its reserve",
            Refusal::NameTooLong => "the name of a group or a consumer can have at most 1024 bytes",
            Refusal::WrongType => "the key holds another type of value",
            Refusal::NoSuchKey => "the key does not exist",
            Refusal::NoGroup => "the key or the group does not exist",
            Refusal::GroupNeedsKey => {
                "the stream does not exist; create it first, or create it with the group (MKSTREAM)"
            }
            Refusal::GroupExists => "the group exists already",
            Refusal::TooManyGroups => "the stream has 65536 groups, the maximum",
            Refusal::IdIsZero => "an entry cannot have the id 0-0",
            Refusal::IdNotGreater => "the id must be greater than the stream's last id",
            Refusal::IdsExhausted => {
                "the stream's last id is the greatest possible id, so the stream accepts no more entries"
            }
            Refusal::EntryTooLarge => "the entry is larger than 1 GiB",
            Refusal::NoFields => "an entry needs at least one field",
            Refusal::SetIdBelowMaxDeleted => "the id is smaller than the greatest deleted id",
            Refusal::SetIdBelowLastEntry => "the id is smaller than that of the last entry",
            Refusal::SetIdTooFewAdded => "the number of entries added is smaller than the stream's length",
            Refusal::NotAnInteger => "the value is not a 64-bit integer",
            Refusal::NotAFloat => "the value is not a floating-point number",
            Refusal::HashNotAnInteger => "the hash field is not a 64-bit integer",
            Refusal::HashNotAFloat => "the hash field is not a floating-point number",
            Refusal::IntegerOverflow => "the result does not fit a 64-bit integer",
            Refusal::FloatOverflow => "the result is not a finite number",
            Refusal::StringTooLong => "the string would be longer than the maximum",
            Refusal::NoSuchEntry => "the stream has no entry with this id",
            Refusal::IidConflict => "the producer already used this iid for another entry",
            Refusal::DelayOutOfRange => "the delay is longer than ten years",
            Refusal::DueOutOfRange => "the entry would be delayed by more than ten years",
            Refusal::AdoptsItself => "a consumer cannot adopt its own pending entries",
            Refusal::SameObject => "source and destination are the same",
            Refusal::NoSuchDatabase => "the database number is out of range",
        })
    }
}

impl std::error::Error for Refusal {}
