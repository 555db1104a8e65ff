//! What the store holds when everybody is gone.

use std::collections::{BTreeMap, HashSet};

use millstream_worker::backend::{Admin, Entry, Error, Order, PendingFilter, Range, StreamId};
use millstream_worker::dead_letter::Letter;
use millstream_worker::names::dead_letters_of;

use crate::kind::Kind;
use crate::role::{GROUP, STREAM};

/// How much is read at once.
const PAGE: usize = 1000;

/// A message as it is in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub number: u64,
    pub kind: Kind,
}

/// What the store holds.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub entries: BTreeMap<StreamId, Sent>,
    /// Pending, or not read yet.
    pub pending: HashSet<StreamId>,
    pub letters: Vec<Letter>,
}

impl Snapshot {
    /// Reads all of it.
    pub(crate) async fn take(backend: &dyn Admin) -> Result<Snapshot, Error> {
        let entries: BTreeMap<StreamId, Sent> =
            all_of(backend, STREAM).await?.iter().map(|entry| (entry.id, sent(entry))).collect();
        let groups = backend.groups(STREAM).await?;
        let group = groups.iter().find(|group| group.name == GROUP).expect("the group is there");
        let unread = entries.keys().filter(|id| **id > group.last_delivered).copied();
        let mut pending: HashSet<StreamId> = unread.collect();
        pending.extend(pending_rows(backend).await?);
        let letters = all_of(backend, &dead_letters_of(STREAM)).await?;
        let letters = letters.iter().map(|entry| Letter::read(entry).expect("a dead letter")).collect();
        Ok(Snapshot { entries, pending, letters })
    }
}

fn sent(entry: &Entry) -> Sent {
    sent_fields(&entry.fields).unwrap_or_else(|| panic!("not a message of ours: {entry:?}"))
}

/// What the fields of a message say.
pub(crate) fn sent_fields(fields: &[(bytes::Bytes, bytes::Bytes)]) -> Option<Sent> {
    let field = |name: &str| {
        let value = fields.iter().find(|(key, _)| key == name.as_bytes());
        value.and_then(|(_, value)| std::str::from_utf8(value).ok())
    };
    Some(Sent { number: field("n")?.parse().ok()?, kind: Kind::parse(field("kind")?)? })
}

async fn all_of(backend: &dyn Admin, stream: &str) -> Result<Vec<Entry>, Error> {
    let (mut all, mut first) = (Vec::new(), StreamId::MIN);
    loop {
        let range = Range { first, last: StreamId::MAX, order: Order::Rising, count: PAGE };
        let some = backend.range(stream, range).await?;
        let Some(next) = some.last().and_then(|entry| entry.id.next()) else { return Ok(all) };
        first = next;
        all.extend(some);
    }
}

async fn pending_rows(backend: &dyn Admin) -> Result<Vec<StreamId>, Error> {
    let (mut all, mut first) = (Vec::new(), StreamId::MIN);
    loop {
        let filter =
            PendingFilter { first, last: StreamId::MAX, count: PAGE, consumer: None, min_idle: None };
        let some = backend.pending(STREAM, GROUP, &filter).await?;
        let Some(next) = some.last().and_then(|row| row.id.next()) else { return Ok(all) };
        first = next;
        all.extend(some.into_iter().map(|row| row.id));
    }
}
