//! What the store holds when everybody is gone.

use std::collections::{BTreeMap, HashSet};

use millstream_worker::backend::{Admin, Entry, Error, StreamId};
use millstream_worker::dead_letter::Letter;
use millstream_worker::names::dead_letters_of;

use crate::kind::Kind;
use crate::role::{GROUP, STREAM};

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
            backend.all_entries(STREAM).await?.iter().map(|entry| (entry.id, sent(entry))).collect();
        let groups = backend.groups(STREAM).await?;
        let group = groups.iter().find(|group| group.name == GROUP).expect("the group is there");
        let unread = entries.keys().filter(|id| **id > group.last_delivered).copied();
        let mut pending: HashSet<StreamId> = unread.collect();
        pending.extend(backend.all_pending(STREAM, GROUP).await?.into_iter().map(|row| row.id));
        let letters = backend.all_entries(&dead_letters_of(STREAM)).await?;
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
