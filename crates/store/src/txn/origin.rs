//! The origin of a transaction decides what happens besides the requested changes.
//!
//! A store that follows another one must change only as the other one did. So [`Store::set_own_changes`] is one switch
//! for everything that a store changes because of its own clock: duties, the removal of expired keys, and deliveries to
//! readers whose time has come. Reads hide expired keys all the same.

use std::sync::atomic::Ordering;

use crate::store::Store;

/// Who makes the changes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A command or a call. It also removes the expired keys among its keys.
    Client,
    /// The store, because of the time.
    Duty,
    /// A record of a log: exactly its changes are made. They are not logged again, and no blocked reader is served.
    Replay,
}

impl Origin {
    #[inline]
    pub(super) fn is_logged(self) -> bool {
        self != Origin::Replay
    }

    #[inline]
    pub(super) fn serves_readers(self) -> bool {
        self != Origin::Replay
    }

    /// Returns whether a transaction may make changes that no client requested.
    pub(super) fn may_act_on_its_own(self, store: &Store) -> bool {
        self != Origin::Replay && store.makes_own_changes()
    }

    /// Returns whether a transaction may change data at all. While the store makes no changes of its own, only replay
    /// may.
    pub(super) fn may_change(self, store: &Store) -> bool {
        self == Origin::Replay || store.makes_own_changes()
    }
}

impl Store {
    /// Lets the store make changes that no client requested, or stops them. Initially it makes them.
    ///
    /// While it makes none, clients must only read. When this returns, no such change is under way.
    pub fn set_own_changes(&self, on: bool) {
        let now_ms = self.now_ms();
        let txn = self.lock_for_replay();
        if !self.own_changes.swap(on, Ordering::Relaxed) && on {
            // The store does not know when consumers last asked for entries in vain, as after a restart.
            self.opened_at_ms.store(now_ms, Ordering::Relaxed);
            self.work_at(now_ms);
        }
        drop(txn);
    }

    pub(crate) fn makes_own_changes(&self) -> bool {
        self.own_changes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_engine::{Due, IdSpec};

    use crate::verbs::add;
    use crate::{Addition, ManualClock, SetExpiry, SetIf, Store, StoreOptions};

    #[test]
    fn one_switch_stops_duties_and_the_removal_of_expired_keys() {
        let clock = Arc::new(ManualClock::new(1_000));
        let store = Store::new(StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() });
        let lock = || store.lock(0, [&b"k"[..], b"s"], store.now_ms());
        let entry = Addition { id: IdSpec::Delayed(Due::In(100)), ..Addition::new(&[b"n", b"1"]) };
        add(&mut lock(), b"s", &entry).unwrap();
        lock().set(b"k", b"v", SetIf::Always, SetExpiry::At(1_100));
        store.set_own_changes(false);
        clock.advance(200);
        let act = || {
            while store.run_duties() {}
            store.expire_due(store.now_ms(), 10) + store.lock_all(0, store.now_ms()).expire_due(10)
        };
        let state = || {
            let txn = lock();
            let found = (txn.exists(b"k"), txn.get_including_expired(b"k").is_some());
            (found, txn.stream(b"s").unwrap().unwrap().len())
        };
        assert_eq!((act(), state()), (0, ((false, true), 0)), "an expired key is hidden and stays");
        store.set_own_changes(true);
        assert_eq!((act(), state()), (1, ((false, false), 1)));
    }
}
