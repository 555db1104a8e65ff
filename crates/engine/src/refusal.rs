//! Why a request is refused: one typed list. The words a client sees are the protocol's.

use std::fmt;

/// A request that was understood and cannot be done. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The key holds another type.
    WrongType,
    /// The key must exist and does not.
    NoSuchKey,
    /// The key or the group must exist and does not.
    NoGroup,
    /// XGROUP on a key that does not exist.
    GroupNeedsKey,
    /// The group exists already.
    GroupExists,
    /// `0-0` is the id of no entry.
    IdIsZero,
    /// The id is not greater than the stream's last.
    IdNotGreater,
    /// The stream has used the greatest id.
    IdsExhausted,
    /// An entry may hold at most 1 GiB.
    EntryTooLarge,
    /// An entry has at least one field.
    NoFields,
    /// XSETID below the greatest deleted id.
    SetIdBelowMaxDeleted,
    /// XSETID below the last entry.
    SetIdBelowLastEntry,
    /// XSETID with fewer entries added than there are.
    SetIdTooFewAdded,
    /// The value is no 64-bit integer.
    NotAnInteger,
    /// The value is no floating-point number.
    NotAFloat,
    /// The hash field is no 64-bit integer.
    HashNotAnInteger,
    /// The hash field is no floating-point number.
    HashNotAFloat,
    /// The sum does not fit 64 bits.
    IntegerOverflow,
    /// The sum is no finite number.
    FloatOverflow,
    /// A string would exceed the greatest allowed size.
    StringTooLong,
    /// There is no such entry in the stream.
    NoSuchEntry,
    /// The producer's entry of this name is remembered as another one.
    RememberedOtherwise,
    /// A consumer was to adopt its own pending entries.
    AdoptsItself,
    /// Source and destination are one and the same.
    SameObject,
    /// There is no database of that number.
    NoSuchDatabase,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::WrongType => "the key holds another type of value",
            Refusal::NoSuchKey => "the key does not exist",
            Refusal::NoGroup => "the key or the group does not exist",
            Refusal::GroupNeedsKey => "the stream does not exist; ask for it to be created with the group",
            Refusal::GroupExists => "the group exists already",
            Refusal::IdIsZero => "0-0 cannot be the id of an entry",
            Refusal::IdNotGreater => "the id must be greater than the stream's last id",
            Refusal::IdsExhausted => "the stream has used the greatest possible id",
            Refusal::EntryTooLarge => "the entry is larger than 1 GiB",
            Refusal::NoFields => "an entry needs at least one field",
            Refusal::SetIdBelowMaxDeleted => "the id is smaller than the greatest deleted id",
            Refusal::SetIdBelowLastEntry => "the id is smaller than the last entry's",
            Refusal::SetIdTooFewAdded => "the number of entries added is smaller than the stream's length",
            Refusal::NotAnInteger => "the value is not a 64-bit integer",
            Refusal::NotAFloat => "the value is not a floating-point number",
            Refusal::HashNotAnInteger => "the hash field is not a 64-bit integer",
            Refusal::HashNotAFloat => "the hash field is not a floating-point number",
            Refusal::IntegerOverflow => "the result does not fit a 64-bit integer",
            Refusal::FloatOverflow => "the result is not a finite number",
            Refusal::StringTooLong => "the string would exceed the greatest allowed size",
            Refusal::NoSuchEntry => "there is no such entry in the stream",
            Refusal::RememberedOtherwise => {
                "the producer's entry of this name is remembered under another id"
            }
            Refusal::AdoptsItself => "a consumer cannot adopt its own entries",
            Refusal::SameObject => "source and destination are the same",
            Refusal::NoSuchDatabase => "there is no database of that number",
        })
    }
}

impl std::error::Error for Refusal {}
