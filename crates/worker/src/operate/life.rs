//! What each group of a stream did with an entry.

use crate::backend::{Admin, Error, PendingFilter, PendingRow, StreamId};
use crate::monitor::known_records;
use crate::retry_record::RetryRecord;

/// What a group did with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInGroup {
    /// The name of the group.
    pub group: String,
    /// What it did.
    pub state: EntryState,
}

/// The state of an entry in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// The group has not read the entry.
    Unread,
    /// The entry was delivered and not acknowledged, or it was released.
    Pending(PendingRow, RetryRecord),
    /// The group has passed the entry: it was acknowledged, dead-lettered, or skipped by a reset.
    Read,
}

impl EntryState {
    /// Returns the name of the state, as in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            EntryState::Unread => "unread",
            EntryState::Pending(..) => "pending",
            EntryState::Read => "read",
        }
    }
}

/// Returns the state of an entry in each group of its stream.
pub async fn states_of(backend: &dyn Admin, stream: &str, id: StreamId) -> Result<Vec<EntryInGroup>, Error> {
    let mut states = Vec::new();
    for group in backend.groups(stream).await? {
        // After a reset, an entry after the position of its group can be pending.
        let rows = match group.pending {
            0 => Vec::new(),
            _ => backend.pending(stream, &group.name, &PendingFilter::single(id)).await?,
        };
        let state = match rows.into_iter().next() {
            Some(row) => {
                let (records, _) = known_records(backend, stream, &group.name, &[id]).await?;
                EntryState::Pending(row, records.into_iter().flatten().next().unwrap_or_default())
            }
            None if id > group.last_delivered => EntryState::Unread,
            None => EntryState::Read,
        };
        states.push(EntryInGroup { group: group.name, state });
    }
    Ok(states)
}
