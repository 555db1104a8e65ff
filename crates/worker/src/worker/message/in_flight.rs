//! The messages in flight: read by this worker and not settled yet.
//!
//! A message is in flight while it is prefetched or running. If the store answers that a message belongs
//! to another consumer now, the worker cancels its handler and ignores its outcome. A worker never takes a message
//! back.
//!
//! The store does not check who acknowledges a message. So each message in flight has the time at which its lease was
//! last extended. Within one lease from then, no other worker can claim the message. After that, the settler asks the
//! store for the owner before it acknowledges.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use millstream_store::SecretState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::{Release, Retry, StreamId};

/// The messages of one stream that are in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    state: Mutex<InFlightState>,
    /// Notified when messages are settled, or are no longer in flight for another reason.
    settled: Notify,
}

#[derive(Debug, Default)]
struct InFlightState {
    // A fast hash, because the map is used several times for each message. A secret one, because producers can choose
    // the ids.
    by_id: HashMap<StreamId, InFlightMessage, SecretState>,
    /// Ids that are no longer in flight, but may not be released in the store yet.
    releasing: Vec<StreamId>,
    last_tag: u64,
}

/// Messages that are no longer in flight and are being released in the store.
pub(crate) struct Releasing<'a> {
    in_flight: &'a InFlight,
    pub(crate) releases: Vec<Release>,
}

impl Releasing<'_> {
    /// Returns the releases to send.
    ///
    /// If the store has delivered a message to this worker again, the store has already executed the release, and only
    /// the reply was lost. Such messages are left out.
    pub(crate) fn not_redelivered(&self) -> Vec<Release> {
        let state = self.in_flight.state.lock();
        self.releases.iter().filter(|release| !state.by_id.contains_key(&release.id)).cloned().collect()
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        let mut released: HashSet<StreamId> = self.releases.iter().map(|release| release.id).collect();
        self.in_flight.state.lock().releasing.retain(|id| !released.remove(id));
        self.in_flight.settled.notify_waiters();
    }
}

/// Identifies one period of a message in flight. If the same message is delivered again later, it gets a new tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeliveryTag(u64);

#[derive(Debug)]
struct InFlightMessage {
    tag: DeliveryTag,
    /// When the call that last extended the lease was sent. No other worker can claim the message within a lease from
    /// then.
    leased_at: Instant,
    cancelled: CancellationToken,
    delivery: u64,
    /// The settler is settling the message. The store's reply will show whether the message still belonged to this
    /// worker.
    settling: bool,
}

/// A message in flight as it was at some moment: the argument of a call that extends leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightRef {
    pub(crate) id: StreamId,
    pub(crate) tag: DeliveryTag,
    pub(crate) delivery: u64,
}

impl InFlight {
    /// Adds messages of a read that was sent at `leased_at`. Returns `None` for a message that is already in flight.
    pub(crate) fn add(
        &self,
        leased_at: Instant,
        messages: impl Iterator<Item = (StreamId, u64)>,
    ) -> Vec<Option<(DeliveryTag, CancellationToken)>> {
        let mut state = self.state.lock();
        messages.map(|(id, delivery)| state.add(id, delivery, leased_at)).collect()
    }

    /// Returns for each message whether it is still in flight.
    pub(crate) fn contains_each(&self, ids: impl Iterator<Item = (StreamId, DeliveryTag)>) -> Vec<bool> {
        let state = self.state.lock();
        ids.map(|(id, tag)| state.contains(id, tag)).collect()
    }

    /// Returns for each id whether a message with it is in flight or being released.
    pub(crate) fn contains_ids(&self, ids: impl Iterator<Item = StreamId>) -> Vec<bool> {
        let state = self.state.lock();
        ids.map(|id| state.by_id.contains_key(&id) || state.releasing.contains(&id)).collect()
    }

    /// Marks messages as being settled. Returns for each the time since its lease was last extended, or `None` if it
    /// is no longer in flight.
    pub(crate) fn begin_settling(
        &self,
        ids: impl Iterator<Item = (StreamId, DeliveryTag)>,
    ) -> Vec<Option<Duration>> {
        let now = Instant::now();
        let mut state = self.state.lock();
        ids.map(|(id, tag)| {
            let row = state.by_id.get_mut(&id).filter(|row| row.tag == tag)?;
            row.settling = true;
            Some(now.duration_since(row.leased_at))
        })
        .collect()
    }

    /// Marks messages as no longer being settled. They stay in flight.
    pub(crate) fn end_settling(&self, ids: impl Iterator<Item = (StreamId, DeliveryTag)>) {
        let mut state = self.state.lock();
        ids.for_each(|(id, tag)| {
            if let Some(row) = state.by_id.get_mut(&id).filter(|row| row.tag == tag) {
                row.settling = false;
            }
        });
    }

    /// Keeps a message that was settled in this worker alone, for another attempt. Returns its new tag, or `None` if it
    /// is no longer in flight.
    pub(crate) fn begin_again(&self, id: StreamId, tag: DeliveryTag) -> Option<DeliveryTag> {
        let mut state = self.state.lock();
        let next = DeliveryTag(state.last_tag + 1);
        let row = state.by_id.get_mut(&id).filter(|row| row.tag == tag)?;
        (row.tag, row.settling) = (next, false);
        state.last_tag = next.0;
        drop(state);
        self.settled.notify_waiters();
        Some(next)
    }

    /// Removes messages. Returns how many of them were in flight.
    pub(crate) fn remove(&self, ids: impl Iterator<Item = (StreamId, DeliveryTag)>) -> usize {
        let removed = {
            let mut state = self.state.lock();
            ids.filter_map(|(id, tag)| state.remove(id, tag)).count()
        };
        self.settled.notify_waiters();
        removed
    }

    /// Waits until a message is settled, or is no longer in flight for another reason.
    pub(crate) async fn until_settled(&self, id: StreamId, tag: DeliveryTag) {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            {
                let state = self.state.lock();
                if !state.contains(id, tag) && !state.releasing.contains(&id) {
                    return;
                }
            }
            settled.await;
        }
    }

    /// Removes messages in order to release them, each with the delivery count that the store should set, and how it
    /// waits.
    pub(crate) fn remove_for_release(
        &self,
        messages: impl Iterator<Item = ((StreamId, DeliveryTag), u64, Option<Retry>)>,
    ) -> Releasing<'_> {
        let mut state = self.state.lock();
        let releases: Vec<Release> = messages
            .filter_map(|((id, tag), deliveries, retry)| {
                Some(Release { id, delivery: state.remove(id, tag)?.delivery, deliveries, retry })
            })
            .collect();
        state.releasing.extend(releases.iter().map(|release| release.id));
        Releasing { in_flight: self, releases }
    }

    pub(crate) fn all(&self) -> Vec<InFlightRef> {
        let state = self.state.lock();
        let rows = state.by_id.iter();
        rows.map(|(id, row)| InFlightRef { id: *id, tag: row.tag, delivery: row.delivery }).collect()
    }

    /// Returns the smallest id that is in flight or being released.
    pub(crate) fn smallest_id(&self) -> Option<StreamId> {
        let state = self.state.lock();
        state.by_id.keys().chain(&state.releasing).min().copied()
    }

    /// Applies the reply to a call that extended the leases of `messages` and was sent at `asked`. `ours` are the
    /// messages that still belong to this worker.
    ///
    /// The other messages are cancelled and removed, unless they are being settled or were delivered to this worker
    /// again after `asked`. Returns how many leases were lost.
    pub(crate) fn apply_extension(
        &self,
        asked: Instant,
        messages: &[InFlightRef],
        ours: &[StreamId],
    ) -> usize {
        let ours: HashSet<StreamId> = ours.iter().copied().collect();
        let mut state = self.state.lock();
        let mut lost = 0;
        for message in messages {
            let Some(row) = state.by_id.get_mut(&message.id).filter(|row| row.tag == message.tag) else {
                continue;
            };
            if ours.contains(&message.id) {
                row.leased_at = row.leased_at.max(asked);
            } else if !row.settling && row.leased_at <= asked {
                row.cancelled.cancel();
                state.by_id.remove(&message.id);
                lost += 1;
            }
        }
        drop(state);
        self.settled.notify_waiters();
        lost
    }

    /// Cancels and removes all messages, because they belong to another worker now. Returns how many leases were lost.
    pub(crate) fn lose_all(&self) -> usize {
        let lost = self.state.lock().by_id.drain().map(|(_, row)| row.cancelled.cancel()).count();
        self.settled.notify_waiters();
        lost
    }

    /// Whether no message is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().by_id.is_empty()
    }

    pub(crate) fn cancel_all(&self) {
        self.state.lock().by_id.values().for_each(|row| row.cancelled.cancel());
    }
}

impl InFlightState {
    fn add(
        &mut self,
        id: StreamId,
        delivery: u64,
        leased_at: Instant,
    ) -> Option<(DeliveryTag, CancellationToken)> {
        if let Some(row) = self.by_id.get_mut(&id) {
            // The lease had run out, and this worker itself claimed the message again. Its job here continues.
            row.leased_at = row.leased_at.max(leased_at);
            row.delivery = delivery;
            return None;
        }
        self.last_tag += 1;
        let tag = DeliveryTag(self.last_tag);
        let cancelled = CancellationToken::new();
        self.by_id.insert(
            id,
            InFlightMessage { tag, leased_at, cancelled: cancelled.clone(), delivery, settling: false },
        );
        Some((tag, cancelled))
    }

    fn remove(&mut self, id: StreamId, tag: DeliveryTag) -> Option<InFlightMessage> {
        match self.by_id.entry(id) {
            Entry::Occupied(row) if row.get().tag == tag => Some(row.remove()),
            _ => None,
        }
    }

    fn contains(&self, id: StreamId, tag: DeliveryTag) -> bool {
        self.by_id.get(&id).is_some_and(|row| row.tag == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamId = StreamId::new(1, 0);
    const TWO: StreamId = StreamId::new(2, 0);

    fn in_flight() -> (InFlight, Vec<(StreamId, DeliveryTag)>, Vec<CancellationToken>) {
        let in_flight = InFlight::default();
        let added = in_flight.add(Instant::now(), [(ONE, 1), (TWO, 3)].into_iter());
        let (tags, tokens) = [ONE, TWO]
            .into_iter()
            .zip(added)
            .map(|(id, added)| added.map(|(tag, token)| ((id, tag), token)).unwrap())
            .unzip();
        (in_flight, tags, tokens)
    }

    #[test]
    fn lost_leases_cancel_and_remove_messages() {
        let (in_flight, tags, tokens) = in_flight();
        assert_eq!(in_flight.apply_extension(Instant::now(), &in_flight.all(), &[TWO]), 1);
        assert!(tokens[0].is_cancelled() && !tokens[1].is_cancelled());
        assert_eq!(in_flight.contains_each(tags.iter().copied()), [false, true]);
        assert_eq!(in_flight.remove(tags.into_iter()), 1);
    }

    #[test]
    fn a_message_being_settled_does_not_lose_its_lease() {
        let (in_flight, tags, tokens) = in_flight();
        assert!(in_flight.begin_settling(tags[..1].iter().copied()).iter().all(Option::is_some));
        assert_eq!(in_flight.apply_extension(Instant::now(), &in_flight.all(), &[TWO]), 0);
        assert!(!tokens[0].is_cancelled());
        in_flight.end_settling(tags[..1].iter().copied());
        assert_eq!(in_flight.apply_extension(Instant::now(), &in_flight.all(), &[TWO]), 1);
    }

    #[test]
    fn an_old_reply_does_not_undo_a_later_delivery() {
        let (in_flight, _, tokens) = in_flight();
        let (asked, about) = (Instant::now(), in_flight.all());
        let later = asked + Duration::from_millis(1);
        assert!(in_flight.add(later, [(ONE, 2)].into_iter())[0].is_none());
        assert_eq!(in_flight.apply_extension(asked, &about, &[TWO]), 0);
        assert!(!tokens[0].is_cancelled());
        assert_eq!(in_flight.apply_extension(later, &about, &[TWO]), 1);
    }

    #[test]
    fn a_message_being_released_counts_until_the_store_replied() {
        let (in_flight, tags, _) = in_flight();
        let releasing = in_flight.remove_for_release([(tags[0], 1, None), (tags[1], 3, None)].into_iter());
        assert_eq!(
            (releasing.releases.len(), in_flight.all().len(), in_flight.smallest_id()),
            (2, 0, Some(ONE))
        );
        // The store delivers a message again, so it has executed the release.
        assert!(in_flight.add(Instant::now(), [(TWO, 4)].into_iter())[0].is_some());
        assert_eq!(releasing.not_redelivered(), [Release::counted(ONE, 1)]);
        drop(releasing);
        assert_eq!(in_flight.smallest_id(), Some(TWO));
    }

    #[tokio::test]
    async fn a_message_is_settled_when_the_store_has_replied() {
        let (in_flight, tags, _) = in_flight();
        let is_settled = async |n: usize| {
            let (id, tag) = tags[n];
            tokio::time::timeout(Duration::ZERO, in_flight.until_settled(id, tag)).await.is_ok()
        };
        assert!(!is_settled(0).await && !is_settled(1).await);
        let releasing = in_flight.remove_for_release([(tags[0], 0, None)].into_iter());
        assert!(!is_settled(0).await, "the store has not replied");
        let ((id, tag), settled) = (tags[0], in_flight.settled.notified());
        drop(releasing);
        settled.await;
        in_flight.until_settled(id, tag).await;
        in_flight.remove(tags[1..].iter().copied());
        assert!(is_settled(1).await);
    }

    #[test]
    fn a_message_that_is_kept_stays_in_flight_with_a_new_tag() {
        let (in_flight, tags, tokens) = in_flight();
        assert!(in_flight.begin_settling(tags[..1].iter().copied()).iter().all(Option::is_some));
        let tag = in_flight.begin_again(ONE, tags[0].1).unwrap();
        assert_eq!(in_flight.contains_each([tags[0], (ONE, tag)].into_iter()), [false, true]);
        assert_eq!(in_flight.begin_again(ONE, tags[0].1), None);
        // It can lose its lease again.
        assert_eq!(in_flight.apply_extension(Instant::now(), &in_flight.all(), &[TWO]), 1);
        assert!(tokens[0].is_cancelled());
    }

    #[test]
    fn a_message_that_is_delivered_again_gets_a_new_tag() {
        let (in_flight, tags, _) = in_flight();
        assert!(in_flight.add(Instant::now(), [(ONE, 2)].into_iter())[0].is_none());
        let before = in_flight.all();
        assert_eq!(in_flight.remove(tags[..1].iter().copied()), 1);
        assert!(in_flight.add(Instant::now(), [(ONE, 2)].into_iter())[0].is_some());
        // The reply is about the first period in flight and does not affect the second.
        assert_eq!(in_flight.apply_extension(Instant::now(), &before, &[TWO]), 0);
        assert_eq!(in_flight.contains_each(tags[..1].iter().copied()), [false]);
        assert_eq!(in_flight.remove(tags[..1].iter().copied()), 0);
        assert_eq!(in_flight.all().len(), 2);
    }
}
