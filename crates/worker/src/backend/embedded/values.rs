//! The store's values as the worker's, and its errors.

use std::time::Duration;

use bytes::BytesMut;
use millstream_engine::bytes::number::IntegerText;
use millstream_engine::stream::{EntryRef, ValueRef};
use millstream_store::embedded as store;
use millstream_store::embedded::Refusal;
use millstream_store::log::LogError;
use smallvec::SmallVec;

use super::super::{Error, ErrorKind, Fields, Idempotence, Trim};

/// The fields of an entry, cut from one copy of its bytes.
pub(super) fn fields_of(entry: &EntryRef<'_>) -> Fields {
    let mut copy = BytesMut::with_capacity(FIELD_BYTES * entry.field_count());
    let mut ends = SmallVec::<[(usize, usize); 16]>::with_capacity(entry.field_count());
    for (name, value) in entry.fields() {
        copy.extend_from_slice(name);
        let name_end = copy.len();
        match value {
            ValueRef::Bytes(bytes) => copy.extend_from_slice(bytes),
            ValueRef::Int(number) => copy.extend_from_slice(IntegerText::new(number).as_bytes()),
        }
        ends.push((name_end, copy.len()));
    }
    let (copy, mut start) = (copy.freeze(), 0);
    let cut = |(name_end, end)| {
        let field = (copy.slice(start..name_end), copy.slice(name_end..end));
        start = end;
        field
    };
    ends.into_iter().map(cut).collect()
}

/// What a field is expected to take; more is found out while copying.
const FIELD_BYTES: usize = 32;

/// Names and values in a row, as the store takes them.
pub(super) fn flat(fields: &Fields) -> Vec<&[u8]> {
    fields.iter().flat_map(|(name, value)| [&**name, &**value]).collect()
}

pub(super) fn store_trim(trim: Trim) -> store::Trim {
    let (length, exactness) = match trim {
        Trim::About(length) => (length, store::Exactness::Approximate),
        Trim::Exactly(length) => (length, store::Exactness::Exact),
    };
    store::Trim { by: store::TrimBy::MaxLen(length), exactness, limit: store::TrimLimit::Default }
}

pub(super) fn store_idempotence(once: &Idempotence) -> millstream_engine::Idempotence<'_> {
    millstream_engine::Idempotence::Given { producer: once.producer.as_bytes(), iid: once.iid.as_bytes() }
}

/// Names in the store are bytes; here they are text.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn error(error: store::Error) -> Error {
    let kind = match &error {
        store::Error::Refused { refusal: Refusal::NoGroup | Refusal::GroupNeedsKey, .. } => {
            ErrorKind::NoGroup
        }
        store::Error::Refused { refusal: Refusal::WrongType, .. } => ErrorKind::WrongType,
        store::Error::Closed => ErrorKind::Closed,
        store::Error::Log(LogError::Full(_)) => ErrorKind::NotWritable,
        store::Error::Log(_) | store::Error::Thread(_) | store::Error::Snapshot(_) => ErrorKind::Busy,
        store::Error::Folder(_) => ErrorKind::Unreachable,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, error.to_string()).with_source(error)
}
