//! Replaces the data in memory with the data on disk while the store is open, to test that a restart would recover it.

use std::fmt;

use millstream_engine::KeyPlace;
use millstream_engine::keyspace::ValueWithExpiry;

use crate::codec::{put_value, take_value};
use crate::journal::Journal;
use crate::log::LogError;
use crate::recovery::{FolderError, read_folder};
use crate::store::Store;
use crate::txn::{Origin, Txn};

/// Why the data was not reloaded. The data in memory is unchanged.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts below say what each means")]
pub enum ReloadFailed {
    Log(LogError),
    Folder(FolderError),
    Value(String),
}

impl fmt::Display for ReloadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadFailed::Log(error) => error.fmt(f),
            ReloadFailed::Folder(error) => error.fmt(f),
            ReloadFailed::Value(what) => write!(f, "cannot decode an encoded value: {what}"),
        }
    }
}

impl std::error::Error for ReloadFailed {}

impl Store {
    /// Replaces the data in memory with the snapshot and log of the folder. A store without a folder encodes and
    /// decodes every value instead.
    ///
    /// Locks everything meanwhile. If it fails, the data in memory is unchanged.
    pub fn reload(&self) -> Result<(), ReloadFailed> {
        let _no_snapshot = self.journal().map(|journal| journal.snapshotting.lock());
        // Does not remove expired keys: that would change the data in memory before the log has the change.
        let mut txn = Txn::of_all_shards(self, Origin::Client, 0, self.now_ms());
        let fresh = self.sibling();
        match self.journal() {
            Some(journal) => fresh.read_folder(journal)?,
            None => fresh.copy_encoded(&txn)?,
        }
        for (number, shard) in txn.shards_mut().enumerate() {
            std::mem::swap(&mut shard.keys, &mut fresh.shard(number).lock().keys);
        }
        Ok(())
    }

    /// Fills this empty store from the folder of another store. That store is locked completely.
    fn read_folder(&self, journal: &Journal) -> Result<(), ReloadFailed> {
        journal.log.commit().map_err(ReloadFailed::Log)?;
        read_folder(self, &journal.disk).map_err(ReloadFailed::Folder)
    }

    /// Fills this empty store with the values of another store, after encoding and decoding each.
    fn copy_encoded(&self, from: &Txn<'_>) -> Result<(), ReloadFailed> {
        let (hashing, mut bytes) = (self.hashing(), Vec::new());
        for (number, shard) in from.shards().enumerate() {
            let into = &mut self.shard(number).lock().keys;
            for db in 0..self.databases() {
                let mut copied = Ok(());
                shard.keys.scan(db, 0, usize::MAX, 0, |key, value| {
                    bytes.clear();
                    put_value(&mut bytes, value);
                    let expires_at_ms = shard.keys.expires_at_ms(db, key, 0).flatten();
                    match take_value(&bytes, &hashing) {
                        Ok(value) => {
                            into.load(KeyPlace { db, key }, ValueWithExpiry { value, expires_at_ms })
                        }
                        Err(error) => copied = Err(ReloadFailed::Value(error.to_string())),
                    }
                });
                copied?;
            }
        }
        Ok(())
    }
}
