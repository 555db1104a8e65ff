//! Dead-letters the pending entries that are never redelivered: the delivery limit of their group is reached, or their
//! entry was removed. In a group without a limit, the rows of removed entries are only removed.
//!
//! A dead letter and the acknowledgement of its entry are changes of one transaction, so they are in one record of the
//! log. The transaction locks the stream and the dead-letter stream together.
//!
//! If the dead-letter stream cannot take an entry, memory is full, or the owner of the policy may not add entries to
//! the dead-letter stream, the row stays, and the group tries again after [`RETRY_MS`]. Other groups do not wait.

use std::sync::atomic::Ordering;

use millstream_engine::pending::PendingEntry;
use millstream_engine::policy::{actual_deliveries, is_rejected};
use millstream_engine::stream::{Group, PolicyCounters};
use millstream_engine::{Addition, Refusal};

use crate::dead_letter::{self, Failure};
use crate::schedule::GroupSearch;
use crate::store::MemoryPurpose;
use crate::txn::Txn;
use crate::verbs::{add, dead_letters_of, denied_owner};

/// Maximum number of dead letters in one transaction.
const ROWS_MAX: usize = 32;
/// A transaction ends when its dead letters have this many bytes.
const BYTES_MAX: u64 = 64 << 10;
/// Maximum number of groups that one transaction looks at, so that it does not delay clients.
pub(super) const GROUPS_MAX: usize = 256;
/// How long a group waits after a failed attempt.
const RETRY_MS: u64 = 1000;
/// Maximum bytes of the dead-letter stream's name, and of a user's, in an error. Each group keeps its last error.
const SHOWN_NAME_BYTES: usize = 100;

pub(super) enum Found {
    Group(DeadLetterWork),
    NothingYet,
    Nothing,
}

/// A group that has final rows.
pub(super) struct DeadLetterWork {
    group: Box<[u8]>,
    /// The dead-letter stream; `None` if the group has no delivery limit.
    dead_letters: Option<Vec<u8>>,
}

impl DeadLetterWork {
    /// Returns the next group of the stream that has final rows, and notes how far the search has come. Looks at up to
    /// [`GROUPS_MAX`] groups.
    ///
    /// After the last group, the search begins again, until it has looked at all groups without finding one. So groups
    /// with many final rows take turns.
    pub(super) fn find(txn: &Txn<'_>, key: &[u8], search: &mut GroupSearch) -> Found {
        let Some(stream) = txn.stream(key).ok().flatten() else { return Found::Nothing };
        let has_final = |group: &Group| !stream.query_final(group, txn.now_ms(), 1).is_empty();
        let mut left = GROUPS_MAX;
        loop {
            let mut last = None;
            for (name, group) in stream.groups_after(search.after.as_deref()).take(left) {
                left -= 1;
                last = Some(name);
                if group.rules().is_some() && has_final(group) {
                    *search = GroupSearch { after: Some(name.into()), has_found: true };
                    return Self::of(txn, key, name).map_or(Found::NothingYet, Found::Group);
                }
            }
            if left == 0 {
                search.after = last.map(Into::into);
                return Found::NothingYet;
            }
            if !std::mem::take(search).has_found {
                return Found::Nothing;
            }
        }
    }

    fn of(txn: &Txn<'_>, key: &[u8], group: &[u8]) -> Option<DeadLetterWork> {
        let found = txn.group(key, group).ok().flatten().filter(|group| group.rules().is_some())?;
        Some(DeadLetterWork { group: group.into(), dead_letters: dead_letters_of(key, found) })
    }

    pub(super) fn keys<'k>(&'k self, key: &'k [u8]) -> impl Iterator<Item = &'k [u8]> {
        [key].into_iter().chain(self.dead_letters.as_deref())
    }

    /// Dead-letters or removes some final rows of the group.
    pub(super) fn run(&self, txn: &mut Txn<'_>, key: &[u8]) {
        // Other transactions may have changed the group, or its policy, since the group was found.
        let is_current =
            Self::of(txn, key, &self.group).is_some_and(|now| now.dead_letters == self.dead_letters);
        let Ok((stream, group)) = txn.existing_group(key, &self.group) else { return };
        if !is_current {
            return;
        }
        let rows = stream.query_final(group, txn.now_ms(), ROWS_MAX);
        let Some(dead_letters) = &self.dead_letters else {
            let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
            let removed =
                txn.acknowledge(key, &self.group, &ids).map_or(0, |acknowledged| acknowledged.count);
            self.count(txn, key, |counters| counters.gone.fetch_add(removed.into(), Ordering::Relaxed));
            return;
        };
        if let Some(owner) = denied_owner(txn, key, group, dead_letters).filter(|_| !rows.is_empty()) {
            txn.store().policy_rights().inspect(|rights| rights.note_denied(owner, key, dead_letters));
            let (owner, name) = (shown(owner), shown(dead_letters));
            let error = format!("{name}: user {owner}, who owns the policy, may not add entries to it");
            return self.note_failure(txn, key, &error);
        }
        let mut bytes = 0;
        for row in rows {
            match self.move_row(txn, key, dead_letters, &row) {
                Ok(added) => bytes += added,
                Err(error) => return self.note_failure(txn, key, &error),
            }
            if bytes >= BYTES_MAX {
                return;
            }
        }
    }

    /// Notes a failed attempt. The group tries again later.
    fn note_failure(&self, txn: &Txn<'_>, key: &[u8], error: &str) {
        let retry_at_ms = txn.now_ms().saturating_add(RETRY_MS);
        self.count(txn, key, |counters| counters.note_error(error, retry_at_ms));
        txn.store().duties.dead_letter_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the dead letter of a row and acknowledges the row. Returns the bytes of the dead letter.
    fn move_row(
        &self,
        txn: &mut Txn<'_>,
        key: &[u8],
        dead_letters: &[u8],
        row: &PendingEntry,
    ) -> Result<u64, String> {
        let refused = |refusal: Refusal| format!("{}: {refusal}", shown(dead_letters));
        if dead_letters == key {
            return Err(refused(Refusal::DeadLettersToItself));
        }
        let (stream, group) = txn.existing_group(key, &self.group).map_err(refused)?;
        let entry = stream.get(row.id);
        let failure = Failure {
            stream: key,
            id: row.id.to_string(),
            group: &self.group,
            consumer: group.owner_name(row.consumer),
            deliveries: actual_deliveries(row.deliveries),
            reason: match &entry {
                None => dead_letter::PAYLOAD_GONE,
                Some(_) if is_rejected(row.deliveries) => dead_letter::REJECTED,
                Some(_) => dead_letter::MAX_DELIVERIES,
            },
            first_seen_ms: row.id.ms,
            dead_at_ms: txn.now_ms(),
        };
        let bytes = failure.bytes(entry.as_ref());
        // Checked before the dead letter is built: it can be as large as the memory that is left.
        txn.store().check_memory(MemoryPurpose::Policies, bytes).map_err(refused)?;
        let fields = failure.fields(entry.as_ref());
        txn.store().check_writable(bytes).map_err(|error| error.to_string())?;
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        let is_gone = entry.is_none();
        add(txn, dead_letters, &Addition::new(&fields)).map_err(refused)?;
        txn.acknowledge(key, &self.group, &[row.id]).map_err(refused)?;
        self.count(txn, key, |counters| {
            counters.dead_lettered.fetch_add(1, Ordering::Relaxed);
            counters.forget_error();
            counters.gone.fetch_add(u64::from(is_gone), Ordering::Relaxed);
        });
        txn.store().duties.dead_lettered.fetch_add(1, Ordering::Relaxed);
        Ok(bytes)
    }

    fn count<T>(&self, txn: &Txn<'_>, key: &[u8], add: impl FnOnce(&PolicyCounters) -> T) {
        let group = txn.group(key, &self.group).ok().flatten();
        if let Some(counters) = group.and_then(Group::policy_counters) {
            add(counters);
        }
    }
}

/// Returns the start of a name, for an error.
fn shown(name: &[u8]) -> impl std::fmt::Display {
    name[..name.len().min(SHOWN_NAME_BYTES)].escape_ascii()
}
