//! The books of the demonstration: what was produced and what was finished, told by those who did it, against what the
//! store says in the end.

use std::collections::{BTreeMap, BTreeSet};

use millstream_worker::backend::StreamId;
use millstream_worker::dead_letter::Letter;
use millstream_worker::{Admin, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// What was produced and what was finished, as it happens.
#[derive(Debug, Default)]
pub(super) struct Books {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    produced: BTreeSet<StreamId>,
    /// How often each was finished.
    finished: BTreeMap<StreamId, u64>,
}

impl Books {
    pub(super) fn produced(&self, ids: &[StreamId]) {
        self.pages.lock().produced.extend(ids);
    }

    pub(super) fn finished(&self, id: StreamId) {
        *self.pages.lock().finished.entry(id).or_default() += 1;
    }

    /// How many messages were produced, and how many of them are finished.
    pub(super) fn counts(&self) -> (u64, u64) {
        let pages = self.pages.lock();
        (pages.produced.len() as u64, pages.finished.len() as u64)
    }

    /// Closes the books.
    pub(super) async fn close(
        &self,
        backend: &dyn Admin,
        stream: &str,
        group: &str,
        dead_letters: &str,
    ) -> Result<Ledger, Error> {
        let letters = backend.all_entries(dead_letters).await?;
        let dead: BTreeSet<StreamId> =
            letters.iter().filter_map(Letter::read).map(|letter| letter.origin).collect();
        let rows = backend.all_pending(stream, group).await?;
        let pending: BTreeSet<StreamId> = rows.iter().map(|row| row.id).collect();
        let pages = self.pages.lock();
        let is_done = |id: &StreamId| pages.finished.contains_key(id) && !pending.contains(id);
        let places = |id: &StreamId| {
            [is_done(id), dead.contains(id), pending.contains(id)].into_iter().filter(|there| *there).count()
        };
        let count =
            |wanted: &dyn Fn(&StreamId) -> bool| pages.produced.iter().filter(|id| wanted(id)).count() as u64;
        Ok(Ledger {
            produced: pages.produced.len() as u64,
            done: count(&is_done),
            dead: count(&|id| dead.contains(id)),
            pending: count(&|id| pending.contains(id)),
            lost: count(&|id| places(id) == 0),
            in_two_places: count(&|id| places(id) > 1),
            finished_again: pages.finished.values().map(|times| times - 1).sum(),
        })
    }
}

/// The books, closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Messages produced.
    pub(super) produced: u64,
    /// Messages finished and acknowledged.
    pub(super) done: u64,
    /// Messages among the dead letters.
    pub(super) dead: u64,
    /// Messages still pending.
    pub(super) pending: u64,
    /// Messages that are nowhere.
    pub(super) lost: u64,
    /// Messages that are done and dead, or the like.
    pub(super) in_two_places: u64,
    /// How often a message was finished that had been before: by a worker that died before it could say so.
    pub(super) finished_again: u64,
}

impl Ledger {
    /// Whether every message is in exactly one place.
    pub(super) fn balances(&self) -> bool {
        self.lost == 0 && self.in_two_places == 0 && self.produced == self.done + self.dead + self.pending
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
    async fn a_message_that_nobody_has_is_lost_and_told_so() {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        let entry = NewEntry { fields: vec![("n".into(), "1".into())], idempotence: None };
        let ids = backend.add("s", &[entry.clone(), entry.clone(), entry], None).await.unwrap();
        backend.create_group("s", "g", Start::Beginning).await.unwrap();
        let read = Read { stream: "s", group: "g", consumer: "c", count: 1, block: None, claim_idle: None };
        backend.read(&read).await.unwrap();
        let books = Books::default();
        books.produced(&ids);
        books.finished(ids[1]);
        books.finished(ids[1]);
        let ledger = books.close(&*backend, "s", "g", "dead").await.unwrap();
        let expected = Ledger {
            produced: 3,
            done: 1,
            dead: 0,
            pending: 1,
            lost: 1,
            in_two_places: 0,
            finished_again: 1,
        };
        assert_eq!(ledger, expected);
        assert!(!ledger.balances());
    }
}
