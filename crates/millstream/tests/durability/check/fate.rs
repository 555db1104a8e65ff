//! What deletes and trims allow and require for the entries of one stream.

use std::collections::HashMap;

use crate::entry::Id;
use crate::ledger::{Action, Op};

/// What must be true of an entry that once existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// No client requested its removal.
    Present,
    /// A client requested its removal and got no reply: the entry may exist or not.
    Either,
    /// The server acknowledged its removal.
    Gone,
}

/// The fates of one stream's entries.
pub(super) struct Fates {
    deleted: HashMap<Id, Fate>,
    /// The server acknowledged that ids below this are trimmed.
    trimmed_below: Id,
    /// Ids below this may have been trimmed.
    maybe_below: Id,
}

impl Fates {
    /// Derives the fates from the ledger.
    pub(super) fn of(key: &str, ops: &[Op]) -> Fates {
        let mut fates =
            Fates { deleted: HashMap::new(), trimmed_below: Id::default(), maybe_below: Id::default() };
        for op in ops.iter().filter(|op| !op.refused) {
            let fate = if op.is_acknowledged() { Fate::Gone } else { Fate::Either };
            match &op.action {
                Action::Delete { key: of, ids, .. } if *of == key => fates.delete(ids, fate),
                Action::Trim { key: of, below } if *of == key => {
                    fates.maybe_below = fates.maybe_below.max(*below);
                    if fate == Fate::Gone {
                        fates.trimmed_below = fates.trimmed_below.max(*below);
                    }
                }
                _ => {}
            }
        }
        fates
    }

    fn delete(&mut self, ids: &[Id], fate: Fate) {
        for &id in ids {
            let known = self.deleted.entry(id).or_insert(fate);
            *known = (*known).max(fate);
        }
    }

    /// Returns what must be true of this entry.
    pub(super) fn of_entry(&self, id: Id) -> Fate {
        let deleted = self.deleted.get(&id).copied().unwrap_or(Fate::Present);
        let trimmed = if id < self.trimmed_below {
            Fate::Gone
        } else if id < self.maybe_below {
            Fate::Either
        } else {
            Fate::Present
        };
        deleted.max(trimmed)
    }

    /// Whether entries whose ids no client knows may have been trimmed.
    pub(super) fn may_trim_unknown_ids(&self) -> bool {
        self.maybe_below > Id::default()
    }
}
