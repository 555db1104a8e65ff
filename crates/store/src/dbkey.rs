//! A key together with its database number, as the key of hash maps. Lookups do not copy the key.

use hashbrown::{Equivalent, HashMap};

use crate::secret::SecretState;

/// A key of a numbered database, owned.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DbKey {
    pub(crate) db: u32,
    pub(crate) key: Box<[u8]>,
}

/// A borrowed [`DbKey`]. It has the same hash.
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

impl PartialEq<DbKey> for DbKeyRef<'_> {
    fn eq(&self, other: &DbKey) -> bool {
        self.equivalent(other)
    }
}

impl From<DbKeyRef<'_>> for DbKey {
    fn from(key: DbKeyRef<'_>) -> DbKey {
        DbKey { db: key.db, key: key.key.into() }
    }
}

pub(crate) type DbKeyMap<V> = HashMap<DbKey, V, SecretState>;
