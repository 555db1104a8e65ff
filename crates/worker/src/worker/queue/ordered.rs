//! Lanes in the queue: messages come out of their lanes into the queue, and lanes go on when messages have ended.
//!
//! A queue with lanes keeps its messages at a pause and while the circuit breaker is open: if it returned them, later
//! messages of their keys could begin first. Only when it is closed does it return them.

use super::gates::{Mode, Probe};
use super::lanes::Lanes;
use super::{Queue, QueueState};
use crate::heartbeat::LanesInfo;
use crate::worker::message::{AtHead, Job, LaneId, Place, SubscriptionId};

#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) lanes: Lanes<Job>,
    /// Messages that came out of their lanes and cannot run at once.
    pub(super) heads: Vec<Job>,
    /// The streams that the worker is leaving: it accepts no more messages of them.
    refused: Vec<SubscriptionId>,
}

impl Ordered {
    pub(super) fn new(window: usize) -> Ordered {
        Ordered { lanes: Lanes::new(window), heads: Vec::new(), refused: Vec::new() }
    }
}

/// At which end of the queue a message is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Front,
    Back,
}

impl QueueState {
    /// Adds a message to its lane, or to the queue if it comes out at once.
    fn add_in_order(&mut self, mut job: Job) {
        let Some(ordered) = &mut self.ordered else { return self.add(job) };
        let Place::Behind(lane) = job.place else { return self.add(job) };
        job.place = Place::Out(lane);
        if let Some(head) = ordered.lanes.add(lane, job.id, job) {
            self.add_head(head, Side::Back);
        }
    }

    /// Splits messages into those of streams that the worker is leaving, and the others.
    fn split_refused(&self, jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let refused = self.ordered.as_ref().map_or(&[][..], |ordered| &ordered.refused);
        if refused.is_empty() {
            return (Vec::new(), jobs);
        }
        jobs.into_iter().partition(|job| refused.contains(&job.origin.subscription))
    }

    /// Adds a message that came out of its lane.
    fn add_head(&mut self, head: Job, side: Side) {
        // Most messages never failed, and need no lookup.
        if let (Some(record), Place::Out(lane), Some(ordered)) = (&head.record, head.place, &mut self.ordered)
        {
            ordered.lanes.set_failed(lane, record.attempts);
        }
        match (&head.at_head, &mut self.ordered) {
            (AtHead::Run, _) | (_, None) if side == Side::Front && head.suspect_level.is_none() => {
                self.jobs.push_front(head);
            }
            (AtHead::Run, _) | (_, None) => self.add(head),
            (_, Some(ordered)) => ordered.heads.push(head),
        }
    }

    /// Takes messages after the last `count` of `jobs` from their lanes, until there are `size`. A suspect and a
    /// message that cannot run at once end the run of their key.
    pub(super) fn take_runs(&mut self, count: usize, size: usize, jobs: &mut Vec<Job>) {
        let Some(ordered) = &mut self.ordered else { return };
        let may_join = |job: &Job| job.suspect_level.is_none() && matches!(job.at_head, AtHead::Run);
        for at in jobs.len() - count..jobs.len() {
            let Place::Out(lane) = jobs[at].place else { continue };
            ordered.lanes.take_run(lane, size - jobs.len(), may_join, |job| jobs.push(job));
        }
    }

    /// Makes a message that is ready the probe, if one is expected. A suspect that must run alone is no probe, because
    /// other handlers may still run.
    fn promote_probe(&mut self) {
        if self.ordered.is_none() || self.mode != Mode::Open || !self.hold.is_expecting() {
            return;
        }
        let job = self.jobs.pop_front().or_else(|| {
            let lowest = self.waiting_suspects.last_entry()?;
            let runs_alone = self.suspects.rules.runs_alone(lowest.get().suspect_level.unwrap_or_default());
            (!runs_alone).then(|| lowest.remove())
        });
        if let Some(job) = job {
            self.hold.set_probe(job);
        }
    }

    /// Returns how many more messages of a stream the window allows.
    pub(super) fn room_in_window(&self, subscription: Option<SubscriptionId>) -> usize {
        match (&self.ordered, subscription) {
            (Some(ordered), Some(subscription)) => ordered.lanes.room(subscription),
            _ => usize::MAX,
        }
    }

    /// Whether the worker must read a message, because none in hand can probe whether handlers succeed again.
    pub(super) fn needs_probe(&self) -> bool {
        let is_empty = self.ordered.as_ref().is_some_and(|ordered| ordered.lanes.is_empty());
        is_empty && self.mode == Mode::Open && self.hold.is_expecting()
    }

    /// Number of messages in lanes that are not in the queue itself.
    pub(super) fn waiting_in_lanes(&self) -> usize {
        self.ordered.as_ref().map_or(0, |ordered| ordered.lanes.waiting() + ordered.heads.len())
    }
}

impl Queue {
    /// Adds messages to their lanes. Returns those that the queue does not accept: it is closed, or the worker is
    /// leaving their stream.
    pub(super) fn put_in_order(&self, state: &mut QueueState, jobs: Vec<Job>) -> Vec<Job> {
        if state.mode == Mode::Closed {
            return jobs;
        }
        let (refused, accepted) = state.split_refused(jobs);
        accepted.into_iter().for_each(|job| state.add_in_order(job));
        self.after_lanes_changed(state);
        refused
    }

    /// Puts back messages that were taken and not started. Returns those that the queue does not accept.
    pub(super) fn put_back_in_order(
        &self,
        state: &mut QueueState,
        jobs: impl DoubleEndedIterator<Item = Job>,
    ) -> Vec<Job> {
        if state.mode == Mode::Closed {
            return jobs.collect();
        }
        let (refused, accepted) = state.split_refused(jobs.collect());
        for job in accepted.into_iter().rev() {
            state.budget.taken = state.budget.taken.saturating_sub(1);
            let head = match (job.place, &mut state.ordered) {
                (Place::Out(lane), Some(ordered)) => ordered.lanes.put_back(lane, job.id, job),
                _ => Some(job),
            };
            head.into_iter().for_each(|head| state.add_head(head, Side::Front));
        }
        self.after_lanes_changed(state);
        refused
    }

    /// Accepts no more messages of a stream that the worker is leaving.
    pub(crate) fn refuse(&self, subscription: SubscriptionId) {
        if let Some(ordered) = &mut self.state.lock().ordered {
            ordered.refused.push(subscription);
        }
    }

    /// Forgets a stream that the worker has left.
    pub(crate) fn forget(&self, subscription: SubscriptionId) {
        if let Some(ordered) = &mut self.state.lock().ordered {
            ordered.refused.retain(|refused| *refused != subscription);
            ordered.lanes.forget(subscription);
        }
    }

    /// Removes the messages of a stream that no slot has taken, and returns them.
    pub(crate) fn take_back(&self, subscription: SubscriptionId) -> Vec<Job> {
        let mut state = self.state.lock();
        let is_of_stream = |job: &Job| job.origin.subscription == subscription;
        let Some(ordered) = &mut state.ordered else { return Vec::new() };
        let waiting = ordered.lanes.remove_waiting(subscription).into_iter();
        let mut taken: Vec<Job> = waiting.map(|job| Job { place: Place::Free, ..job }).collect();
        taken.extend(ordered.heads.extract_if(.., |job| is_of_stream(job)));
        for job in std::mem::take(&mut state.jobs) {
            if is_of_stream(&job) { taken.push(job) } else { state.jobs.push_back(job) }
        }
        let suspects = state.waiting_suspects.iter().filter(|(_, job)| is_of_stream(job)).map(|(at, _)| *at);
        for at in suspects.collect::<Vec<_>>() {
            taken.extend(state.waiting_suspects.remove(&at));
        }
        if state.hold.queued().is_some_and(is_of_stream) {
            let probe = state.hold.take_queued(Probe::Expected);
            taken.extend(probe.map(|job| Job { is_probe: false, ..job }));
        }
        if !taken.is_empty() {
            self.after_lanes_changed(&mut state);
        }
        taken
    }

    /// Returns the number of messages of a stream that are in hand, waiting or out.
    pub(crate) fn in_hand(&self, subscription: SubscriptionId) -> usize {
        self.state.lock().ordered.as_ref().map_or(0, |ordered| ordered.lanes.in_hand(subscription))
    }

    /// Lets lanes go on whose messages have ended.
    pub(crate) fn end_lanes(&self, ended: impl Iterator<Item = LaneId>) {
        let mut ended = ended.peekable();
        if ended.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        let mut has_changed = false;
        for lane in ended {
            let Some(ordered) = &mut state.ordered else { return };
            let next = ordered.lanes.end(lane);
            if ordered.lanes.has_just_got_room(lane.subscription) {
                self.room.notify_waiters();
            }
            has_changed |= next.is_some();
            next.into_iter().for_each(|head| state.add_head(head, Side::Back));
        }
        if has_changed || state.needs_probe() {
            self.after_lanes_changed(&mut state);
        }
    }

    /// Wakes the tasks that wait for what came out of lanes.
    pub(super) fn after_lanes_changed(&self, state: &mut QueueState) {
        state.promote_probe();
        if !state.hold.is_expecting() {
            self.probe_changed.notify_waiters();
        }
        if state.needs_probe() {
            self.room.notify_waiters();
        }
        if state.ordered.as_ref().is_some_and(|ordered| !ordered.heads.is_empty()) {
            self.heads_added.notify_one();
        }
        self.wake_one(state);
    }

    /// Waits for messages that came out of their lanes and cannot run at once.
    pub(crate) async fn heads_to_check(&self) -> Vec<Job> {
        loop {
            {
                let mut state = self.state.lock();
                let heads = state.ordered.as_mut().map(|ordered| std::mem::take(&mut ordered.heads));
                if let Some(heads) = heads.filter(|heads| !heads.is_empty()) {
                    return heads;
                }
            }
            self.heads_added.notified().await;
        }
    }

    pub(crate) fn has_lanes(&self) -> bool {
        self.state.lock().ordered.is_some()
    }

    /// Records that the message of a lane that is out has failed.
    pub(crate) fn record_failure(&self, lane: LaneId, attempts: u64) {
        if let Some(ordered) = &mut self.state.lock().ordered {
            ordered.lanes.set_failed(lane, attempts);
        }
    }

    /// Returns what the lanes of a stream hold, if the worker has lanes.
    pub(crate) fn lanes_of(&self, subscription: SubscriptionId) -> LanesInfo {
        let state = self.state.lock();
        let Some(ordered) = &state.ordered else { return LanesInfo::default() };
        ordered.lanes.info(subscription)
    }

    /// Whether messages that wait for others fill the window of a stream.
    pub(crate) fn is_window_full(&self, subscription: SubscriptionId) -> bool {
        self.state.lock().room_in_window(Some(subscription)) == 0
    }
}
