//! Lanes: the messages of each key in the order of their ids. A message leaves its lane only when every earlier message
//! of its key has ended. Knows nothing of slots, handlers and stores, and does no I/O.
//!
//! ```text
//! key 17   [ 4 at work ]  9  12        9 becomes the head when 4 ends
//! key 23   [ 5 backs off ]  6  8       6 and 8 wait until 5 is done or dead-lettered
//! key 31   [ 7 ready ]                 the lane ends with its last message
//! ```
//!
//! The head of a lane is *out*: it was given to the caller, and stays out while it is ready, at work or backing off.
//! The caller says when it has ended. A batch can take the messages after the head too. Then the next head comes out
//! when all of them have ended.
//!
//! A lane knows only a hash of its key. Two keys with the same hash share a lane, which is right, only slower.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use millstream_store::SecretState;

use crate::backend::StreamId;
use crate::heartbeat::LanesInfo;
use crate::worker::message::{LaneId, SubscriptionId};

/// Part of a full window, as its divisor, that must be free before the worker reads again. So it does not read
/// messages one by one.
const FREE_SHARE: usize = 8;

/// Passes a hash on.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The lanes of a worker.
///
/// How to drive it: [`add`](Lanes::add) each message that was read. Each message that a method returns is out; call
/// [`end`](Lanes::end) once when it is done, dead-lettered or lost, or [`put_back`](Lanes::put_back) if it must come
/// out again.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: HashMap<LaneId, Lane<T>, BuildHasherDefault<Identity>>,
    /// Number of messages in hand of each stream: waiting or out.
    in_hand: HashMap<SubscriptionId, usize, SecretState>,
    /// Number of messages that wait behind others.
    waiting: usize,
    /// Maximum number of messages in hand of each stream.
    window: usize,
}

/// The messages in hand of one key.
#[derive(Debug)]
struct Lane<T> {
    /// Number of messages that are out, at least one.
    out: usize,
    /// Messages that wait, in the order of their ids.
    waiting: VecDeque<(StreamId, T)>,
    /// How often the message that is out has failed.
    failed_attempts: u64,
}

impl<T> Lane<T> {
    fn insert(&mut self, id: StreamId, item: T) {
        let at = match self.waiting.back() {
            // A message that is delivered again has a smaller id than those that were read meanwhile.
            Some((last, _)) if *last > id => self.waiting.partition_point(|(other, _)| *other < id),
            _ => self.waiting.len(),
        };
        self.waiting.insert(at, (id, item));
    }
}

impl<T> Lanes<T> {
    pub(crate) fn new(window: usize) -> Lanes<T> {
        Lanes { lanes: HashMap::default(), in_hand: HashMap::default(), waiting: 0, window: window.max(1) }
    }

    /// Adds a message. Returns it if it is the head of its lane.
    pub(crate) fn add(&mut self, lane: LaneId, id: StreamId, item: T) -> Option<T> {
        *self.in_hand.entry(lane.subscription).or_default() += 1;
        match self.lanes.entry(lane) {
            Entry::Vacant(vacant) => {
                vacant.insert(Lane { out: 1, waiting: VecDeque::new(), failed_attempts: 0 });
                Some(item)
            }
            Entry::Occupied(mut lane) => {
                lane.get_mut().insert(id, item);
                self.waiting += 1;
                None
            }
        }
    }

    /// Takes out up to `max` messages after those of the lane that are out, for the same batch, as long as `may_join`.
    pub(crate) fn take_run(
        &mut self,
        lane: LaneId,
        max: usize,
        may_join: impl Fn(&T) -> bool,
        mut take: impl FnMut(T),
    ) {
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        let mut taken = 0;
        while taken < max && lane.waiting.front().is_some_and(|(_, item)| may_join(item)) {
            lane.waiting.pop_front().into_iter().for_each(|(_, item)| take(item));
            taken += 1;
        }
        lane.out += taken;
        self.waiting -= taken;
    }

    /// Ends a message that is out. Returns the next head of the lane, if no other message of it is out.
    pub(crate) fn end(&mut self, lane: LaneId) -> Option<T> {
        let Entry::Occupied(mut entry) = self.lanes.entry(lane) else { return None };
        if let Some(in_hand) = self.in_hand.get_mut(&lane.subscription) {
            *in_hand = in_hand.saturating_sub(1);
        }
        let state = entry.get_mut();
        state.out -= 1;
        if state.out > 0 {
            return None;
        }
        match state.waiting.pop_front() {
            Some((_, next)) => {
                state.out = 1;
                state.failed_attempts = 0;
                self.waiting -= 1;
                Some(next)
            }
            None => {
                entry.remove();
                None
            }
        }
    }

    /// Puts back a message that is out and has not ended. Returns the head of the lane, if no other message of it is
    /// out.
    pub(crate) fn put_back(&mut self, lane: LaneId, id: StreamId, item: T) -> Option<T> {
        let Some(state) = self.lanes.get_mut(&lane) else { return self.add(lane, id, item) };
        state.insert(id, item);
        state.out -= 1;
        if state.out > 0 {
            self.waiting += 1;
            return None;
        }
        state.out = 1;
        state.failed_attempts = 0;
        state.waiting.pop_front().map(|(_, head)| head)
    }

    /// Removes the messages of a stream that wait. Those that are out stay.
    pub(crate) fn remove_waiting(&mut self, subscription: SubscriptionId) -> Vec<T> {
        let lanes = self.lanes.iter_mut().filter(|(lane, _)| lane.subscription == subscription);
        let removed: Vec<T> =
            lanes.flat_map(|(_, lane)| lane.waiting.drain(..)).map(|(_, item)| item).collect();
        self.waiting -= removed.len();
        if let Some(in_hand) = self.in_hand.get_mut(&subscription) {
            *in_hand -= removed.len();
        }
        removed
    }

    /// Forgets a stream that has no messages in hand any more.
    pub(crate) fn forget(&mut self, subscription: SubscriptionId) {
        self.in_hand.remove(&subscription);
    }

    /// Removes all lanes. Returns the messages that wait. Those that are out need not be ended any more.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.in_hand.clear();
        self.waiting = 0;
        let waiting = self.lanes.drain().flat_map(|(_, lane)| lane.waiting);
        waiting.map(|(_, item)| item).collect()
    }

    /// Returns how many more messages of a stream fit into the window. 0 if less than a share of it is free.
    pub(crate) fn room(&self, subscription: SubscriptionId) -> usize {
        let free = self.window.saturating_sub(self.in_hand(subscription));
        if free >= self.free_min() { free } else { 0 }
    }

    fn free_min(&self) -> usize {
        (self.window / FREE_SHARE).max(1)
    }

    /// Returns whether the window of a stream has just got enough room to read again.
    pub(crate) fn has_just_got_room(&self, subscription: SubscriptionId) -> bool {
        self.window.saturating_sub(self.in_hand(subscription)) == self.free_min()
    }

    /// Returns the number of messages in hand of a stream.
    pub(crate) fn in_hand(&self, subscription: SubscriptionId) -> usize {
        self.in_hand.get(&subscription).copied().unwrap_or_default()
    }

    /// Returns the number of messages that wait behind others.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no message is in hand.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Records how often the message of a lane that is out has failed.
    pub(crate) fn set_failed(&mut self, lane: LaneId, attempts: u64) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.failed_attempts = attempts;
        }
    }

    /// Returns what the lanes of a stream hold.
    pub(crate) fn info(&self, subscription: SubscriptionId) -> LanesInfo {
        let mut info = LanesInfo::default();
        for (_, lane) in self.lanes.iter().filter(|(lane, _)| lane.subscription == subscription) {
            info.blocked_keys += u64::from(!lane.waiting.is_empty());
            info.blocked_messages += lane.waiting.len() as u64;
            info.failing_keys += u64::from(lane.failed_attempts > 0);
            info.failed_attempts = info.failed_attempts.max(lane.failed_attempts);
        }
        info
    }

    /// Verifies the invariants. For tests.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let (mut waiting, mut in_hand) = (0, HashMap::<SubscriptionId, usize>::new());
        for (id, lane) in &self.lanes {
            assert!(lane.out > 0, "a lane without a message that is out");
            assert!(lane.waiting.iter().is_sorted_by_key(|(id, _)| *id));
            waiting += lane.waiting.len();
            *in_hand.entry(id.subscription).or_default() += lane.out + lane.waiting.len();
        }
        assert_eq!(self.waiting, waiting);
        for (subscription, count) in &self.in_hand {
            assert_eq!(*count, in_hand.get(subscription).copied().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod model;
