//! What this worker holds.
//!
//! Every message in the worker's hands, prefetched, running or waiting to be tried again, is a row of [`Held`]. A row that
//! the store says is no longer ours was taken over: the message is cancelled and its outcome will not count. Nothing
//! is ever taken back.
//!
//! The store does not check who acknowledges. So every row knows since when it is surely ours: as long as that is less
//! than a lease ago nobody else can have claimed it. Past that, the settler asks before it acknowledges.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::{Release, StreamId};

/// The messages of one stream that this worker holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    // Asked several times for every message.
    by_id: HashMap<StreamId, Row, foldhash::fast::RandomState>,
    /// Let go of, and perhaps not yet released in the store.
    leaving: Vec<StreamId>,
    last_ticket: u64,
}

/// Messages that were let go of and are being released.
pub(crate) struct Leaving<'a> {
    held: &'a Held,
    pub(crate) rows: Vec<Release>,
}

impl Leaving<'_> {
    /// What the store is to be told: not what we were handed again meanwhile, of that it has been told, though its answer was lost.
    pub(crate) fn still_away(&self) -> Vec<Release> {
        let held = self.held.rows.lock();
        self.rows.iter().filter(|row| !held.by_id.contains_key(&row.id)).copied().collect()
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut left: HashSet<StreamId> = self.rows.iter().map(|row| row.id).collect();
        self.held.rows.lock().leaving.retain(|id| !left.remove(id));
    }
}

/// Tells this time of holding a message from another time of holding the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
struct Row {
    ticket: Ticket,
    /// Surely ours a lease long from here.
    touched: Instant,
    cancelled: CancellationToken,
    attempt: u64,
    /// On its way to the store: whether it is still ours will be told by the answer.
    settling: bool,
}

/// A row as it was, for a call to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) id: StreamId,
    pub(crate) ticket: Ticket,
    pub(crate) attempt: u64,
}

impl Held {
    /// Takes messages into hand that were delivered after `touched`; `None` for those that are in hand already.
    pub(crate) fn take(
        &self,
        touched: Instant,
        messages: impl Iterator<Item = (StreamId, u64)>,
    ) -> Vec<Option<(Ticket, CancellationToken)>> {
        let mut rows = self.rows.lock();
        messages.map(|(id, attempt)| rows.take(id, attempt, touched)).collect()
    }

    /// Whether each of these is still in hand.
    pub(crate) fn are_held(&self, ids: impl Iterator<Item = (StreamId, Ticket)>) -> Vec<bool> {
        let rows = self.rows.lock();
        ids.map(|(id, ticket)| rows.is_held(id, ticket)).collect()
    }

    /// Marks those that are still in hand as on their way to the store, and says for each whether it is in hand and
    /// how long it has surely been ours.
    pub(crate) fn begin_settling(
        &self,
        ids: impl Iterator<Item = (StreamId, Ticket)>,
    ) -> Vec<Option<Duration>> {
        let now = Instant::now();
        let mut rows = self.rows.lock();
        ids.map(|(id, ticket)| {
            let row = rows.by_id.get_mut(&id).filter(|row| row.ticket == ticket)?;
            row.settling = true;
            Some(now.duration_since(row.touched))
        })
        .collect()
    }

    /// They did not reach the store, and are in hand as before.
    pub(crate) fn end_settling(&self, ids: impl Iterator<Item = (StreamId, Ticket)>) {
        let mut rows = self.rows.lock();
        ids.for_each(|(id, ticket)| {
            if let Some(row) = rows.by_id.get_mut(&id).filter(|row| row.ticket == ticket) {
                row.settling = false;
            }
        });
    }

    /// Lets go of messages. Gives how many of them were in hand.
    pub(crate) fn let_go(&self, ids: impl Iterator<Item = (StreamId, Ticket)>) -> usize {
        let mut rows = self.rows.lock();
        ids.filter_map(|(id, ticket)| rows.let_go(id, ticket)).count()
    }

    /// Lets go of messages and says how to release them, counting as delivered so often: each as it was last delivered to us.
    pub(crate) fn let_go_to_release(
        &self,
        messages: impl Iterator<Item = ((StreamId, Ticket), u64)>,
    ) -> Leaving<'_> {
        let mut held = self.rows.lock();
        let rows: Vec<Release> = messages
            .filter_map(|((id, ticket), deliveries)| {
                Some(Release { id, delivery: held.let_go(id, ticket)?.attempt, deliveries })
            })
            .collect();
        held.leaving.extend(rows.iter().map(|row| row.id));
        Leaving { held: self, rows }
    }

    /// Everything in hand.
    pub(crate) fn all(&self) -> Vec<Kept> {
        let rows = self.rows.lock();
        rows.by_id
            .iter()
            .map(|(id, row)| Kept { id: *id, ticket: row.ticket, attempt: row.attempt })
            .collect()
    }

    /// The smallest id in hand, or on its way back.
    pub(crate) fn smallest(&self) -> Option<StreamId> {
        let rows = self.rows.lock();
        rows.by_id.keys().chain(&rows.leaving).min().copied()
    }

    /// The store was asked about rows at `asked` and says which are still ours. The others are let go of and cancelled,
    /// except what is being settled, and what has become ours again since. Gives how many were lost.
    pub(crate) fn renew(&self, asked: Instant, about: &[Kept], ours: &[StreamId]) -> usize {
        let ours: HashSet<StreamId> = ours.iter().copied().collect();
        let mut rows = self.rows.lock();
        let mut lost = 0;
        for kept in about {
            let Some(row) = rows.by_id.get_mut(&kept.id).filter(|row| row.ticket == kept.ticket) else {
                continue;
            };
            if ours.contains(&kept.id) {
                row.touched = row.touched.max(asked);
            } else if !row.settling && row.touched <= asked {
                row.cancelled.cancel();
                rows.by_id.remove(&kept.id);
                lost += 1;
            }
        }
        lost
    }

    /// Tells every handler that its time is over.
    pub(crate) fn cancel_all(&self) {
        self.rows.lock().by_id.values().for_each(|row| row.cancelled.cancel());
    }
}

impl Rows {
    fn take(&mut self, id: StreamId, attempt: u64, touched: Instant) -> Option<(Ticket, CancellationToken)> {
        if let Some(row) = self.by_id.get_mut(&id) {
            // Our own lease ran out and we were the first to claim it: it is still ours, and still at work.
            row.touched = row.touched.max(touched);
            row.attempt = attempt;
            return None;
        }
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let cancelled = CancellationToken::new();
        self.by_id
            .insert(id, Row { ticket, touched, cancelled: cancelled.clone(), attempt, settling: false });
        Some((ticket, cancelled))
    }

    fn let_go(&mut self, id: StreamId, ticket: Ticket) -> Option<Row> {
        match self.by_id.entry(id) {
            Entry::Occupied(row) if row.get().ticket == ticket => Some(row.remove()),
            _ => None,
        }
    }

    fn is_held(&self, id: StreamId, ticket: Ticket) -> bool {
        self.by_id.get(&id).is_some_and(|row| row.ticket == ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamId = StreamId::new(1, 0);
    const TWO: StreamId = StreamId::new(2, 0);

    fn held() -> (Held, Vec<(StreamId, Ticket)>, Vec<CancellationToken>) {
        let held = Held::default();
        let taken = held.take(Instant::now(), [(ONE, 1), (TWO, 3)].into_iter());
        let (tickets, tokens) = [ONE, TWO]
            .into_iter()
            .zip(taken)
            .map(|(id, taken)| taken.map(|(ticket, token)| ((id, ticket), token)).unwrap())
            .unzip();
        (held, tickets, tokens)
    }

    #[test]
    fn what_is_not_ours_any_more_is_cancelled_and_let_go() {
        let (held, tickets, tokens) = held();
        assert_eq!(held.renew(Instant::now(), &held.all(), &[TWO]), 1);
        assert!(tokens[0].is_cancelled() && !tokens[1].is_cancelled());
        assert_eq!(held.are_held(tickets.iter().copied()), [false, true]);
        assert_eq!(held.let_go(tickets.into_iter()), 1);
    }

    #[test]
    fn what_is_being_settled_is_not_lost_by_it() {
        let (held, tickets, tokens) = held();
        assert!(held.begin_settling(tickets[..1].iter().copied()).iter().all(Option::is_some));
        assert_eq!(held.renew(Instant::now(), &held.all(), &[TWO]), 0);
        assert!(!tokens[0].is_cancelled());
        held.end_settling(tickets[..1].iter().copied());
        assert_eq!(held.renew(Instant::now(), &held.all(), &[TWO]), 1);
    }

    #[test]
    fn an_old_answer_does_not_undo_a_later_delivery() {
        let (held, _, tokens) = held();
        let (asked, about) = (Instant::now(), held.all());
        let later = asked + Duration::from_millis(1);
        assert!(held.take(later, [(ONE, 2)].into_iter())[0].is_none());
        assert_eq!(held.renew(asked, &about, &[TWO]), 0);
        assert!(!tokens[0].is_cancelled());
        assert_eq!(held.renew(later, &about, &[TWO]), 1);
    }

    #[test]
    fn what_is_on_its_way_back_counts_until_the_store_has_answered() {
        let (held, tickets, _) = held();
        let leaving = held.let_go_to_release([(tickets[0], 1), (tickets[1], 3)].into_iter());
        assert_eq!((leaving.rows.len(), held.all().len(), held.smallest()), (2, 0, Some(ONE)));
        // We are handed one of them again: the store has been told of it.
        assert!(held.take(Instant::now(), [(TWO, 4)].into_iter())[0].is_some());
        assert_eq!(leaving.still_away(), [Release::counted(ONE, 1)]);
        drop(leaving);
        assert_eq!(held.smallest(), Some(TWO));
    }

    #[test]
    fn holding_it_again_is_another_time() {
        let (held, tickets, _) = held();
        assert!(held.take(Instant::now(), [(ONE, 2)].into_iter())[0].is_none());
        let before = held.all();
        assert_eq!(held.let_go(tickets[..1].iter().copied()), 1);
        assert!(held.take(Instant::now(), [(ONE, 2)].into_iter())[0].is_some());
        // An answer about the first time does not touch the second.
        assert_eq!(held.renew(Instant::now(), &before, &[TWO]), 0);
        assert_eq!(held.are_held(tickets[..1].iter().copied()), [false]);
        assert_eq!(held.let_go(tickets[..1].iter().copied()), 0);
        assert_eq!(held.all().len(), 2);
    }
}
