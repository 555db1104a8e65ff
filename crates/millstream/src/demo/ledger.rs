//! The ledger of the demo: compares the messages that producers sent, and those that handlers finished, with the final
//! contents of the store.

use std::collections::{BTreeMap, BTreeSet};

use millstream_worker::backend::StreamId;
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::{Admin, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Records which messages were produced and which were finished, while the demo runs.
#[derive(Debug, Default)]
pub(super) struct MessageTracker {
    ids: Mutex<TrackedIds>,
}

#[derive(Debug, Default)]
struct TrackedIds {
    produced: BTreeSet<StreamId>,
    /// How many times each message was finished.
    finished: BTreeMap<StreamId, u64>,
}

impl MessageTracker {
    pub(super) fn produced(&self, produced: &[StreamId]) {
        self.ids.lock().produced.extend(produced);
    }

    pub(super) fn finished(&self, id: StreamId) {
        *self.ids.lock().finished.entry(id).or_default() += 1;
    }

    /// Returns the numbers of produced and of finished messages.
    pub(super) fn counts(&self) -> (u64, u64) {
        let ids = self.ids.lock();
        (ids.produced.len() as u64, ids.finished.len() as u64)
    }

    /// Compares the recorded messages with the pending entries and the dead letters of the store.
    pub(super) async fn ledger(
        &self,
        backend: &dyn Admin,
        stream: &str,
        group: &str,
        dead_letters: &str,
    ) -> Result<Ledger, Error> {
        let entries = backend.all_entries(dead_letters).await?;
        let dead: BTreeSet<StreamId> = entries
            .iter()
            .filter_map(DeadLetter::read)
            .filter_map(|dead_letter| dead_letter.origin)
            .collect();
        let rows = backend.all_pending(stream, group).await?;
        let pending: BTreeSet<StreamId> = rows.iter().map(|row| row.id).collect();
        let ids = self.ids.lock();
        let is_done = |id: &StreamId| ids.finished.contains_key(id) && !pending.contains(id);
        let states = |id: &StreamId| {
            [is_done(id), dead.contains(id), pending.contains(id)].into_iter().filter(|found| *found).count()
        };
        let count =
            |wanted: &dyn Fn(&StreamId) -> bool| ids.produced.iter().filter(|id| wanted(id)).count() as u64;
        Ok(Ledger {
            produced: ids.produced.len() as u64,
            done: count(&is_done),
            dead: count(&|id| dead.contains(id)),
            pending: count(&|id| pending.contains(id)),
            lost: count(&|id| states(id) == 0),
            in_several_states: count(&|id| states(id) > 1),
            finished_again: ids.finished.values().map(|times| times - 1).sum(),
        })
    }
}

/// The messages of the demo, counted by their final state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Messages produced.
    pub(super) produced: u64,
    /// Messages finished and acknowledged.
    pub(super) done: u64,
    /// Messages that are dead letters.
    pub(super) dead: u64,
    /// Messages still pending.
    pub(super) pending: u64,
    /// Messages that are not finished, not pending and not dead letters.
    pub(super) lost: u64,
    /// Messages in more than one state, for example finished and dead-lettered.
    pub(super) in_several_states: u64,
    /// Number of repeated runs: a worker finished a message that had already been finished, but not acknowledged.
    pub(super) finished_again: u64,
}

impl Ledger {
    /// Whether every message is in exactly one state.
    pub(super) fn balances(&self) -> bool {
        self.lost == 0 && self.in_several_states == 0 && self.produced == self.done + self.dead + self.pending
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "in": self.produced,
            "done": self.done,
            "dead": self.dead,
            "pending": self.pending,
            "lost": self.lost,
            "finished_again": self.finished_again,
        })
    }
}

#[cfg(test)]
mod tests {
    use millstream_worker::backend::{NewEntry, Read, Start};

    use super::*;

    #[tokio::test]
    async fn an_unaccounted_message_is_counted_as_lost() {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        let entry = NewEntry { fields: vec![("n".into(), "1".into())], idempotence: None };
        let ids = backend.add("s", &[entry.clone(), entry.clone(), entry], None).await.unwrap();
        backend.create_group("s", "g", Start::Beginning).await.unwrap();
        let read = Read { stream: "s", group: "g", consumer: "c", count: 1, block: None, claim_idle: None };
        backend.read(&read).await.unwrap();
        let tracker = MessageTracker::default();
        tracker.produced(&ids);
        tracker.finished(ids[1]);
        tracker.finished(ids[1]);
        let ledger = tracker.ledger(&*backend, "s", "g", "dead").await.unwrap();
        let expected = Ledger {
            produced: 3,
            done: 1,
            dead: 0,
            pending: 1,
            lost: 1,
            in_several_states: 0,
            finished_again: 1,
        };
        assert_eq!(ledger, expected);
        assert!(!ledger.balances());
    }
}
