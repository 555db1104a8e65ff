//! WATCH: a change to a watched key raises the flag of each client that watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::dbkey::{DbKeyMap, DbKeyRef};

/// A client's flag, raised when one of its watched keys is changed. Its transaction must not run then.
pub type WatchFlag = Arc<AtomicBool>;

/// The watched keys of one shard, each with the flags of its watchers.
#[derive(Default)]
pub(crate) struct WatchedKeys {
    flags: DbKeyMap<Vec<WatchFlag>>,
}

impl WatchedKeys {
    pub(crate) fn add(&mut self, db: u32, key: &[u8], flag: &WatchFlag) {
        let flags = self.flags.entry(DbKeyRef { db, key }.into()).or_default();
        if !flags.iter().any(|known| Arc::ptr_eq(known, flag)) {
            flags.push(Arc::clone(flag));
        }
    }

    pub(crate) fn remove(&mut self, db: u32, key: &[u8], flag: &WatchFlag) {
        let at = DbKeyRef { db, key };
        let Some(flags) = self.flags.get_mut(&at) else { return };
        flags.retain(|known| !Arc::ptr_eq(known, flag));
        if flags.is_empty() {
            self.flags.remove(&at);
        }
    }

    /// Raises the flags of a key's watchers.
    #[inline(always)]
    pub(crate) fn touch(&self, db: u32, key: &[u8]) {
        if !self.flags.is_empty() {
            self.raise_flags(db, key);
        }
    }

    #[inline(never)]
    fn raise_flags(&self, db: u32, key: &[u8]) {
        for flag in self.flags.get(&DbKeyRef { db, key }).into_iter().flatten() {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the watched keys of a database.
    pub(crate) fn keys_of(&self, db: u32) -> Vec<Box<[u8]>> {
        self.flags.keys().filter(|at| at.db == db).map(|at| at.key.clone()).collect()
    }
}
