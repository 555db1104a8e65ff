//! What deletes and trims allow and demand of the entries of one stream.

use std::collections::HashMap;

use crate::entry::Id;
use crate::ledger::{Act, Op};

/// What must be true of an entry that once was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// Nobody asked for its removal.
    Present,
    /// Somebody asked and was never answered.
    Either,
    /// Somebody was told that it is removed.
    Gone,
}

/// The fates of one stream's entries.
pub(super) struct Fates {
    deleted: HashMap<Id, Fate>,
    /// Ids below were told to be trimmed.
    trimmed_below: Id,
    /// Ids below may have been trimmed.
    maybe_below: Id,
}

impl Fates {
    /// Reads them out of the ledger.
    pub(super) fn of(key: &str, ops: &[Op]) -> Fates {
        let mut fates =
            Fates { deleted: HashMap::new(), trimmed_below: Id::default(), maybe_below: Id::default() };
        for op in ops.iter().filter(|op| !op.refused) {
            let fate = if op.is_acknowledged() { Fate::Gone } else { Fate::Either };
            match &op.act {
                Act::Delete { key: of, ids, .. } if *of == key => fates.delete(ids, fate),
                Act::Trim { key: of, below } if *of == key => {
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

    /// What must be true of this entry.
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

    /// Whether entries nobody knows the ids of may have been trimmed.
    pub(super) fn trims_unseen(&self) -> bool {
        self.maybe_below > Id::default()
    }
}
