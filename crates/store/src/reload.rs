//! Reading everything back while the store is open, as a restart would: to try out that it comes back.

use std::fmt;
use std::sync::Arc;

use millstream_engine::KeyPlace;
use millstream_engine::keyspace::Entry;

use crate::clock::ManualClock;
use crate::codec::{put_value, take_value};
use crate::journal::Journal;
use crate::log::{LogError, Recovery};
use crate::progress::Progress;
use crate::recovery::{FolderError, Rebuild};
use crate::store::Store;
use crate::txn::Txn;

/// Why the data was not read back. What is in memory is as it was.
#[derive(Debug)]
pub enum ReloadFailed {
    /// The log could not be made complete first.
    Log(LogError),
    /// The folder could not be read.
    Folder(FolderError),
    /// A value could not be read from what was written of it.
    Value(String),
}

impl fmt::Display for ReloadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadFailed::Log(error) => error.fmt(f),
            ReloadFailed::Folder(error) => error.fmt(f),
            ReloadFailed::Value(what) => write!(f, "a value cannot be read back: {what}"),
        }
    }
}

impl std::error::Error for ReloadFailed {}

impl Store {
    /// Drops what is in memory for what is read back: the folder's snapshot and log, or in a store in memory every
    /// value's encoding. Nobody does anything meanwhile. If it fails, everything is as it was.
    pub fn reload(&self) -> Result<(), ReloadFailed> {
        let _no_snapshot = self.journal().map(|journal| journal.snapshotting.lock());
        // Without a look at expiry, which would change what is in memory and not yet in the log.
        let mut txn = Txn::of_everything(self, 0, self.now_ms());
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

    /// Fills this store, which is empty, with what the folder of another holds. Everything of that one is locked.
    fn read_folder(&self, journal: &Journal) -> Result<(), ReloadFailed> {
        journal.log.commit().map_err(ReloadFailed::Log)?;
        let read = || -> Result<(), FolderError> {
            let recovery = Recovery::inspect(Arc::clone(&journal.disk))?;
            let mut rebuild = Rebuild::of(self);
            let (clock, tell_nobody) = (ManualClock::new(0), &mut |_| {});
            rebuild.load_snapshot(&recovery, &*journal.disk, &mut Progress::new(&clock, tell_nobody))?;
            recovery.read(&mut |position, payload| rebuild.replay(position, payload))?;
            rebuild.check_databases()
        };
        read().map_err(ReloadFailed::Folder)
    }

    /// Fills this store, which is empty, with another's values, each written and read.
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
                    match take_value(&bytes, hashing) {
                        Ok(value) => into.load(KeyPlace { db, key }, Entry { value, expires_at_ms }),
                        Err(error) => copied = Err(ReloadFailed::Value(error.to_string())),
                    }
                });
                copied?;
            }
        }
        Ok(())
    }
}
