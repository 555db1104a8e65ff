//! The content of the store after all processes have ended.

use std::collections::{BTreeMap, HashSet};

use millstream_worker::backend::{Admin, Entry, Error, StreamId};
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::names::dead_letters_of;

use crate::kind::MessageKind;
use crate::role::{GROUP, STREAM};

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub number: u64,
    pub kind: MessageKind,
    /// The moment before which it may not be delivered, if its producer delayed it.
    pub due_ms: Option<u64>,
}

/// The content of the store.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub entries: BTreeMap<StreamId, Sent>,
    /// Messages that are pending or not read yet.
    pub pending: HashSet<StreamId>,
    pub dead_letters: Vec<DeadLetter>,
}

impl Snapshot {
    /// Reads the whole content.
    pub(crate) async fn take(backend: &dyn Admin) -> Result<Snapshot, Error> {
        let entries: BTreeMap<StreamId, Sent> =
            backend.all_entries(STREAM).await?.iter().map(|entry| (entry.id, sent(entry))).collect();
        let groups = backend.groups(STREAM).await?;
        let group = groups.iter().find(|group| group.name == GROUP).expect("the group exists");
        let unread = entries.keys().filter(|id| **id > group.last_delivered).copied();
        let mut pending: HashSet<StreamId> = unread.collect();
        pending.extend(backend.all_pending(STREAM, GROUP).await?.into_iter().map(|row| row.id));
        let dead_letters = backend.all_entries(&dead_letters_of(STREAM)).await?;
        let dead_letters =
            dead_letters.iter().map(|entry| DeadLetter::read(entry).expect("a dead letter")).collect();
        Ok(Snapshot { entries, pending, dead_letters })
    }
}

fn sent(entry: &Entry) -> Sent {
    sent_fields(&entry.fields).unwrap_or_else(|| panic!("not a message of this campaign: {entry:?}"))
}

/// Parses the fields of a message.
pub(crate) fn sent_fields(fields: &[(bytes::Bytes, bytes::Bytes)]) -> Option<Sent> {
    let field = |name: &str| {
        let value = fields.iter().find(|(key, _)| key == name.as_bytes());
        value.and_then(|(_, value)| std::str::from_utf8(value).ok())
    };
    Some(Sent {
        number: field("n")?.parse().ok()?,
        kind: MessageKind::parse(field("kind")?)?,
        due_ms: field("due").and_then(|due| due.parse().ok()),
    })
}
