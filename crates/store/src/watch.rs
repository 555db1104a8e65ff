//! WATCH: a change to a watched key raises the flag of each client that watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::dbkey::{DbKeyMap, DbKeyRef};

/// A client's flag, raised when one of its watched keys is changed. Its transaction must not run then.
pub type WatchFlag = Arc<AtomicBool>;

/// The watched keys of one shard, each with the flags of its watchers.
#[derive(Default)]
pub(crate) struct WatchedKeys {
    flags: DbKeyMap<KeyFlags>,
}

/// The flags of one key's watchers, in ascending order of their addresses. Most keys have one watcher.
#[derive(Default)]
struct KeyFlags(SmallVec<[WatchFlag; 2]>);

impl KeyFlags {
    fn position(&self, flag: &WatchFlag) -> Result<usize, usize> {
        self.0.binary_search_by_key(&Arc::as_ptr(flag), Arc::as_ptr)
    }
}

impl WatchedKeys {
    pub(crate) fn add(&mut self, db: u32, key: &[u8], flag: &WatchFlag) -> bool {
        let flags = self.flags.entry(DbKeyRef { db, key }.into()).or_default();
        let Err(at) = flags.position(flag) else { return false };
        flags.0.insert(at, Arc::clone(flag));
        true
    }

    pub(crate) fn remove(&mut self, db: u32, key: &[u8], flag: &WatchFlag) {
        let at = DbKeyRef { db, key };
        let Some(flags) = self.flags.get_mut(&at) else { return };
        if let Ok(known) = flags.position(flag) {
            flags.0.remove(known);
        }
        if flags.0.is_empty() {
            self.flags.remove(&at);
        }
    }

    #[inline(always)]
    pub(crate) fn touch(&self, db: u32, key: &[u8]) {
        if !self.flags.is_empty() {
            self.raise_flags(db, key);
        }
    }

    #[inline(never)]
    fn raise_flags(&self, db: u32, key: &[u8]) {
        for flag in self.flags.get(&DbKeyRef { db, key }).into_iter().flat_map(|flags| &flags.0) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn keys_of(&self, db: u32) -> Vec<Box<[u8]>> {
        self.flags.keys().filter(|at| at.db == db).map(|at| at.key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_raises_the_flags_of_all_watchers_that_have_not_left() {
        let (mut watched, flags): (_, [WatchFlag; 5]) = (WatchedKeys::default(), Default::default());
        for flag in &flags {
            assert!(watched.add(0, b"k", flag));
            assert!(!watched.add(0, b"k", flag));
            assert!(watched.add(1, b"k", flag));
        }
        watched.remove(0, b"k", &flags[2]);
        watched.remove(0, b"k", &flags[2]);
        watched.touch(0, b"k");
        let raised = flags.each_ref().map(|flag| flag.load(Ordering::Relaxed));
        assert_eq!(raised, [true, true, false, true, true]);
        for flag in &flags {
            watched.remove(0, b"k", flag);
        }
        assert!(watched.keys_of(0).is_empty() && watched.keys_of(1) == [Box::from(&b"k"[..])]);
    }
}
