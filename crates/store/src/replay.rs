//! Applies the records of a log to a store, one after the other.
//!
//! Recovery replays a whole log into an empty store, which it keeps locked. A store that is in use can replay records
//! as they arrive, for as long as it runs: [`Replayer::apply`] locks only what a record changes.
//!
//! If a key was loaded from a snapshot, only records after its stamp are applied to it.

use hashbrown::HashMap;
use millstream_engine::{Effect, KeyPlace, Rearrangement, StreamEffect};
use smallvec::SmallVec;

use crate::codec::{RecordedChange, replay};
use crate::dbkey::{DbKeyMap, DbKeyRef};
use crate::fits::check_fits;
use crate::store::Store;
use crate::txn::{Origin, Txn};

/// Applies records to a store that nothing else changes: an empty store, or one that makes no changes of its own
/// ([`Store::set_own_changes`]). The records must come in the order of their positions.
#[derive(Default)]
pub struct Replayer {
    /// Stamps of the keys in the snapshot.
    stamps: DbKeyMap<u64>,
    newest_stamp: u64,
    /// Records up to this position can change a key that was removed before the snapshot captured its slot. Such a
    /// change may not fit.
    pub(crate) captured_until: u64,
    newest_ms: u64,
    missing_database: Option<u32>,
}

impl Replayer {
    /// Applies a record in a transaction of its own, so that readers see all of its changes or none.
    ///
    /// Fails if the record cannot be decoded or one of its changes does not fit the data. In that case this log does
    /// not belong to this store, or an earlier record was lost. Continuing would produce a state that never existed.
    pub fn apply(&mut self, store: &Store, position: u64, payload: &[u8]) -> Result<(), String> {
        let mut txn = lock_for(store, payload)?;
        self.apply_in(&mut txn, position, payload)
    }

    /// Like [`Replayer::apply`], in a transaction that has locked at least the shards of the changed keys.
    pub(crate) fn apply_in(
        &mut self,
        txn: &mut Txn<'_>,
        position: u64,
        payload: &[u8],
    ) -> Result<(), String> {
        if position > self.newest_stamp && !self.stamps.is_empty() {
            self.stamps = HashMap::default();
        }
        let mut fits = Ok(());
        let read = replay(payload, &mut |change| {
            // After a missing database was found, changes are no longer applied, so they need not fit. The rest of the
            // log is only searched for higher databases.
            if fits.is_ok()
                && self.must_apply(txn.store(), position, &change)
                && self.missing_database.is_none()
            {
                match check_fits(txn, &change) {
                    Ok(()) => self.apply_change(txn, change),
                    Err(_) if position <= self.captured_until => {}
                    Err(why) => fits = Err(why),
                }
            }
        });
        read.map_err(|error| error.to_string())?;
        fits.map_err(|why| format!("a change does not fit the data: {why}"))
    }

    /// Returns true if the change must be applied: its database exists, and its key does not contain the change yet.
    fn must_apply(&mut self, store: &Store, position: u64, change: &RecordedChange<'_>) -> bool {
        match *change {
            RecordedChange::Key { db, key, .. } => {
                self.has_database(store, db) && self.is_newer(position, KeyPlace { db, key })
            }
            RecordedChange::Rearrange(Rearrangement::Move(from, to) | Rearrangement::Copy(from, to)) => {
                self.has_database(store, from.db.max(to.db))
            }
            RecordedChange::Rearrange(Rearrangement::Swap(a, b)) => self.has_database(store, a.max(b)),
            // FLUSHALL clears every database, including ones that no longer exist.
            RecordedChange::Rearrange(Rearrangement::Clear(db)) => db < store.databases(),
        }
    }

    /// Applies a change that fits.
    pub(crate) fn apply_change(&mut self, txn: &mut Txn<'_>, change: RecordedChange<'_>) {
        match change {
            RecordedChange::Key { db, key, effect } => {
                self.saw_time(time_ms_of(&effect));
                txn.select(db);
                txn.apply(key, &effect);
            }
            // A rearrangement restarts a running snapshot, so it is newer than every stamp.
            RecordedChange::Rearrange(change) => txn.rearrange(&change),
        }
    }

    /// Returns whether the key does not contain the changes of this record yet.
    pub(crate) fn is_newer(&self, position: u64, KeyPlace { db, key }: KeyPlace<'_>) -> bool {
        self.stamps.get(&DbKeyRef { db, key }).is_none_or(|stamp| position > *stamp)
    }

    /// Remembers the stamp of a key that was loaded from a snapshot. Returns false if the key has one already.
    pub(crate) fn add_stamp(&mut self, KeyPlace { db, key }: KeyPlace<'_>, stamp: u64) -> bool {
        self.newest_stamp = self.newest_stamp.max(stamp);
        self.stamps.insert(DbKeyRef { db, key }.into(), stamp).is_none()
    }

    /// Returns the highest stamp of a key; 0 if there is none.
    pub(crate) fn newest_stamp(&self) -> u64 {
        self.newest_stamp
    }

    /// Returns true if the database exists. Otherwise remembers it for [`Replayer::missing_database`].
    pub(crate) fn has_database(&mut self, store: &Store, db: u32) -> bool {
        let is_there = db < store.databases();
        if !is_there {
            self.missing_database = self.missing_database.max(Some(db));
        }
        is_there
    }

    /// Returns the highest database that had data and does not exist with the current settings.
    pub fn missing_database(&self) -> Option<u32> {
        self.missing_database
    }

    pub(crate) fn saw_time(&mut self, at_ms: u64) {
        self.newest_ms = self.newest_ms.max(at_ms);
    }

    /// Returns the latest time in the snapshot or in any record, in Unix milliseconds. Before the store makes changes
    /// of its own, its clock must be advanced to it.
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms
    }
}

/// Locks the shards whose keys a record changes.
fn lock_for<'s>(store: &'s Store, payload: &[u8]) -> Result<Txn<'s>, String> {
    let (mut shards, mut needs_all) = (SmallVec::<[usize; 8]>::new(), false);
    let read = replay(payload, &mut |change| match change {
        RecordedChange::Key { key, .. } => shards.push(store.shard_of(key)),
        RecordedChange::Rearrange(Rearrangement::Move(from, to) | Rearrangement::Copy(from, to)) => {
            shards.extend([from, to].map(|at| store.shard_of(at.key)));
        }
        RecordedChange::Rearrange(Rearrangement::Swap(..) | Rearrangement::Clear(_)) => needs_all = true,
    });
    read.map_err(|error| error.to_string())?;
    if needs_all {
        return Ok(store.lock_for_replay());
    }
    shards.sort_unstable();
    shards.dedup();
    Ok(Txn::new(store, Origin::Replay, 0, 0, &shards))
}

/// Returns the time at which a change was made; 0 if the change does not contain it.
fn time_ms_of(effect: &Effect<'_>) -> u64 {
    match effect {
        Effect::Stream(effect) => match effect {
            StreamEffect::ConsumerCreate { at_ms, .. }
            | StreamEffect::ConsumerSeen { at_ms, .. }
            | StreamEffect::Deliver { at_ms, .. }
            | StreamEffect::Redeliver { at_ms, .. }
            | StreamEffect::Claim { at_ms, .. }
            // The due times of rows are in the future, so they do not count.
            | StreamEffect::ReleaseUntil { at_ms, .. }
            // Nor does the due time in a ticket.
            | StreamEffect::Delay { at_ms, .. }
            | StreamEffect::Promote { at_ms, .. }
            | StreamEffect::PromoteTickets { at_ms, .. }
            | StreamEffect::Adopt { at_ms, .. }
            | StreamEffect::Remember { at_ms, .. } => *at_ms,
            StreamEffect::Create
            | StreamEffect::Append { .. }
            | StreamEffect::TrimThrough { .. }
            | StreamEffect::TrimEntries { .. }
            | StreamEffect::DeleteEntries { .. }
            | StreamEffect::Forget { .. }
            | StreamEffect::SetId { .. }
            | StreamEffect::GroupCreate { .. }
            | StreamEffect::GroupSetId { .. }
            | StreamEffect::GroupDestroy { .. }
            | StreamEffect::ConsumerDelete { .. }
            | StreamEffect::Ack { .. }
            | StreamEffect::Release { .. }
            | StreamEffect::IdempotenceConfigure { .. }
            | StreamEffect::SetPolicy { .. }
            | StreamEffect::GroupSetPolicy { .. }
            | StreamEffect::OwnPolicies { .. }
            | StreamEffect::Undelay { .. }
            | StreamEffect::Repeat => 0,
        },
        // The expiry time of a key is not the time of a change.
        Effect::Delete
        | Effect::ExpireAt { .. }
        | Effect::Persist
        | Effect::String(_)
        | Effect::Hash(_)
        | Effect::List(_)
        | Effect::Set(_) => 0,
    }
}
