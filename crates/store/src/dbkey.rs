//! A key of a numbered database, and how to look one up without copying it.

use hashbrown::{Equivalent, HashMap};

/// Owns its key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct DbKey {
    pub(crate) db: u32,
    pub(crate) key: Box<[u8]>,
}

/// Borrows its key; hashes as the owning one does.
#[derive(Clone, Copy, Hash)]
pub(crate) struct DbKeyRef<'a> {
    pub(crate) db: u32,
    pub(crate) key: &'a [u8],
}

impl Equivalent<DbKey> for DbKeyRef<'_> {
    fn equivalent(&self, other: &DbKey) -> bool {
        self.db == other.db && *self.key == *other.key
    }
}

impl From<DbKeyRef<'_>> for DbKey {
    fn from(key: DbKeyRef<'_>) -> DbKey {
        DbKey { db: key.db, key: key.key.into() }
    }
}

/// Something for each of some keys.
pub(crate) type DbKeyMap<V> = HashMap<DbKey, V, foldhash::fast::RandomState>;
