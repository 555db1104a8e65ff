//! Queue: messages that were read and that no handler has started; which of them may run now; and how many to read
//! ahead.
//!
//! * **In**: jobs, from `read`.
//! * **Out**: jobs that may run now, to the slots; the number of messages that the worker should read.
//! * **Must not know** the store, handlers, and what becomes of a job.
//!
//! A job runs if all gates admit it ([`gates`]). Every change of a gate wakes one slot if a job may run now. Each slot
//! that takes a job wakes the next one, so no more slots wake than there are jobs. The queue knows the target number of
//! slots, so a slot finds out under the same lock whether there is a job for it and whether it is surplus.
//!
//! Suspects wait apart from the other jobs, and go first, in order of their levels. If the worker orders messages by
//! key, all jobs come into the queue through lanes: `ordered.rs`.

pub(crate) mod breaker;
mod gates;
mod lanes;
mod ordered;
mod prefetch;
mod probe;
mod process;
pub(crate) mod suspects;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::gates::{Answer, Hold, Mode, Probe, Suspects};
use self::ordered::Ordered;
use self::prefetch::PrefetchBudget;
pub(crate) use self::process::Entered;
pub use self::process::Process;
use self::suspects::SuspectRules;
use crate::worker::message::{Job, SubscriptionId};

/// Prefetched messages, shared by all slots and fetchers of a worker.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// Wakes slots: a job may run now, or the target has changed.
    job_ready: Notify,
    /// Wakes fetchers: the queue has room, or the mode or the target has changed.
    room: Notify,
    /// Wakes the task that probes: a job has become the probe, or the probe has ended.
    probe_changed: Notify,
    /// Wakes the task that checks messages which came out of their lanes and cannot run at once.
    heads_added: Notify,
}

#[derive(Debug)]
struct QueueState {
    mode: Mode,
    hold: Hold,
    suspects: Suspects,
    /// The lanes, if the worker orders messages by key.
    ordered: Option<Ordered>,
    /// Jobs that are not suspects.
    jobs: VecDeque<Job>,
    /// Suspects by level, the highest first, and then in the order in which they were added.
    waiting_suspects: BTreeMap<(Reverse<u64>, u64), Job>,
    /// Number of suspects added so far.
    suspects_added: u64,
    slots: Slots,
    budget: PrefetchBudget,
}

#[derive(Debug, Default)]
struct Slots {
    target: usize,
    /// For each slot, whether its task runs.
    is_alive: Vec<bool>,
    /// Number of slots that wait for a job.
    idle: usize,
}

/// What a slot can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Probe,
    Suspects(usize),
    Jobs,
}

/// How many messages the worker should read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) count: usize,
    /// Whether it should also claim pending messages, which can be suspects.
    pub(crate) may_claim: bool,
}

impl QueueState {
    /// Whether all jobs are accepted and handed out.
    fn is_open(&self) -> bool {
        self.mode == Mode::Open && !self.hold.is_on
    }

    /// Maximum number of messages that handlers run at the same time.
    fn width(&self) -> usize {
        self.slots.target.saturating_mul(self.budget.batch)
    }

    /// Asks all gates about a job.
    fn admits(&self, job: &Job) -> Answer {
        self.mode.admits()?;
        self.hold.admits(job)?;
        self.suspects.admits(job, self.width())
    }

    /// Returns what a slot can take now.
    fn next(&self) -> Option<Next> {
        let may_run = |job: &Job| self.admits(job).is_ok();
        if self.hold.queued().is_some_and(may_run) {
            return Some(Next::Probe);
        }
        if let Some(((Reverse(level), _), job)) = self.waiting_suspects.first_key_value()
            && may_run(job)
        {
            return Some(Next::Suspects(self.suspects.room(*level, self.width()).min(self.budget.batch)));
        }
        self.jobs.front().is_some_and(may_run).then_some(Next::Jobs)
    }

    fn add(&mut self, job: Job) {
        match job.suspect_level {
            None => self.jobs.push_back(job),
            Some(level) => {
                self.suspects_added += 1;
                self.waiting_suspects.insert((Reverse(level), self.suspects_added), job);
            }
        }
    }
}

impl Queue {
    pub(crate) fn new(batch: usize, prefetch: usize, rules: SuspectRules) -> Queue {
        let state = QueueState {
            mode: Mode::Open,
            hold: Hold::new(),
            suspects: Suspects::new(rules),
            ordered: None,
            jobs: VecDeque::new(),
            waiting_suspects: BTreeMap::new(),
            suspects_added: 0,
            slots: Slots::default(),
            budget: PrefetchBudget::new(batch, prefetch, Instant::now()),
        };
        Queue {
            state: Mutex::new(state),
            job_ready: Notify::new(),
            room: Notify::new(),
            probe_changed: Notify::new(),
            heads_added: Notify::new(),
        }
    }

    /// Orders messages by key, with at most `window` messages of each stream in hand. Only before the queue has
    /// messages.
    pub(crate) fn order(&self, window: usize) {
        self.state.lock().ordered.get_or_insert_with(|| Ordered::new(window));
    }

    /// Appends jobs. Returns the jobs that the queue does not accept: it is not open, or expects only a probe.
    pub(crate) fn put(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.ordered.is_some() {
            return self.put_in_order(&mut state, jobs);
        }
        let refused = if state.is_open() {
            jobs.into_iter().for_each(|job| state.add(job));
            Vec::new()
        } else {
            state.accept_probe(jobs)
        };
        self.wake_one(&state);
        refused
    }

    /// Puts jobs that were taken and not started back to the front. Returns them if the queue is not open.
    pub(crate) fn put_back(&self, jobs: impl DoubleEndedIterator<Item = Job>) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.ordered.is_some() {
            return self.put_back_in_order(&mut state, jobs);
        }
        if !state.is_open() {
            return jobs.collect();
        }
        jobs.rev().for_each(|job| {
            match job.suspect_level {
                None => state.jobs.push_front(job),
                Some(_) => state.add(job),
            }
            // A measurement may have reset the count in between.
            state.budget.taken = state.budget.taken.saturating_sub(1);
        });
        self.wake_one(&state);
        Vec::new()
    }

    /// Waits for jobs and takes up to `max` of them. Returns false if the slot should end.
    pub(crate) async fn take(&self, slot: usize, max: usize, jobs: &mut Vec<Job>) -> bool {
        loop {
            let mut ready = std::pin::pin!(self.job_ready.notified());
            ready.as_mut().enable();
            {
                let mut state = self.state.lock();
                self.end_work_of(&mut state, slot);
                if state.mode == Mode::Closed || slot >= state.slots.target {
                    state.slots.is_alive[slot] = false;
                    // This slot may have consumed a wake-up that another slot needs.
                    self.wake_one(&state);
                    return false;
                }
                if self.take_next(&mut state, slot, max, jobs) {
                    return true;
                }
                state.slots.idle += 1;
            }
            ready.await;
            self.state.lock().slots.idle -= 1;
        }
    }

    /// Records that a slot has finished its work.
    fn end_work_of(&self, state: &mut QueueState, slot: usize) {
        state.suspects.end(slot);
        if state.hold.end_of(slot) {
            self.probe_changed.notify_waiters();
        }
    }

    fn take_next(&self, state: &mut QueueState, slot: usize, max: usize, jobs: &mut Vec<Job>) -> bool {
        match state.next() {
            None => return false,
            Some(Next::Probe) => jobs.extend(state.hold.take_queued(Probe::Running(slot))),
            Some(Next::Suspects(count)) => {
                let taken = std::iter::from_fn(|| state.waiting_suspects.pop_first()).take(count);
                jobs.extend(taken.map(|(_, job)| job));
                self.room.notify_waiters();
            }
            Some(Next::Jobs) => self.take_jobs(state, max, jobs),
        }
        state.suspects.begin(slot, jobs);
        self.wake_one(state);
        true
    }

    /// Removes all suspects that must run alone.
    pub(crate) fn take_alone(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        let rules = state.suspects.rules;
        let mut taken = Vec::new();
        while let Some(first) = state.waiting_suspects.first_entry()
            && rules.runs_alone(first.key().0.0)
        {
            taken.push(first.remove());
        }
        self.room.notify_waiters();
        taken
    }

    /// Takes more jobs that are not suspects until `jobs` contains `size` of them. Waits for them until `by` at most.
    pub(crate) async fn fill_up(&self, size: usize, by: Instant, jobs: &mut Vec<Job>) {
        while jobs.len() < size {
            let mut ready = std::pin::pin!(self.job_ready.notified());
            ready.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_open() {
                    self.take_jobs(&mut state, size - jobs.len(), jobs);
                    self.wake_one(&state);
                }
                if state.mode == Mode::Closed || jobs.len() >= size {
                    return;
                }
                state.slots.idle += 1;
            }
            let in_time = tokio::time::timeout_at(by, ready).await.is_ok();
            let mut state = self.state.lock();
            state.slots.idle -= 1;
            // Messages that came behind those of the batch wake no slot.
            if state.is_open() {
                state.take_runs(jobs.len(), size, jobs);
            }
            if !in_time {
                return;
            }
        }
    }

    fn take_jobs(&self, state: &mut QueueState, max: usize, jobs: &mut Vec<Job>) {
        let count = state.jobs.len().min(max);
        let before = jobs.len();
        jobs.extend(state.jobs.drain(..count));
        if state.budget.batch > 1 {
            state.take_runs(count, before + max, jobs);
        }
        state.budget.taken += (jobs.len() - before) as u64;
        if state.jobs.len() <= state.budget.low_mark(state.slots.target) {
            self.room.notify_waiters();
        }
    }

    /// Wakes one slot if a job may run now.
    fn wake_one(&self, state: &QueueState) {
        if state.slots.idle > 0 && state.next().is_some() {
            self.job_ready.notify_one();
        }
    }

    /// Waits until the queue has room. Returns how many messages to read, or `None` if the queue is closed.
    /// For a stream with a window, the number fits into the window.
    pub(crate) async fn wait_for_room(&self, subscription: Option<SubscriptionId>) -> Option<Room> {
        self.wait_for(subscription, |_| true).await
    }

    /// Waits until the queue has room for messages that are claimed. Returns how many to claim, or `None` if the queue
    /// is closed.
    pub(crate) async fn wait_for_room_to_claim(&self, subscription: SubscriptionId) -> Option<usize> {
        self.wait_for(Some(subscription), |room| room.may_claim).await.map(|room| room.count)
    }

    async fn wait_for(
        &self,
        subscription: Option<SubscriptionId>,
        is_enough: impl Fn(Room) -> bool,
    ) -> Option<Room> {
        loop {
            let mut changed = std::pin::pin!(self.room.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.mode == Mode::Closed {
                    return None;
                }
                let (target, queued) = (state.slots.target, state.jobs.len());
                let in_window = state.room_in_window(subscription);
                if state.hold.is_on && state.needs_probe() {
                    return Some(Room { count: 1, may_claim: true });
                }
                if state.is_open() && in_window > 0 && queued <= state.budget.low_mark(target) {
                    let budget = state.budget.now(target, Instant::now());
                    // With one suspect for each message that can run, no slot waits for suspects.
                    let may_claim = state.waiting_suspects.len() < state.width().max(1);
                    let count = budget.saturating_sub(queued).max(1).min(in_window);
                    let room = Room { count, may_claim };
                    if is_enough(room) {
                        return Some(room);
                    }
                }
            }
            changed.await;
        }
    }

    /// Sets the target number of slots. Returns the numbers of the slots to start.
    pub(crate) fn resize(&self, slots: usize) -> Vec<usize> {
        let mut state = self.state.lock();
        state.slots.target = slots;
        let alive = &mut state.slots.is_alive;
        alive.resize(alive.len().max(slots), false);
        let new = (0..slots).filter(|slot| !std::mem::replace(&mut alive[*slot], true)).collect();
        self.wake_all(state);
        new
    }

    /// Pauses the queue. Returns the jobs in it. A queue with lanes keeps them.
    pub(crate) fn pause(&self) -> Vec<Job> {
        self.set_mode(Mode::Paused)
    }

    /// Opens the queue again after a pause.
    pub(crate) fn resume(&self) {
        self.set_mode(Mode::Open);
    }

    /// Closes the queue and ends the slots. Returns the jobs in it.
    pub(crate) fn close(&self) -> Vec<Job> {
        self.set_mode(Mode::Closed)
    }

    fn set_mode(&self, mode: Mode) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.mode != Mode::Closed {
            state.mode = mode;
        }
        let keeps = mode == Mode::Open || mode == Mode::Paused && state.ordered.is_some();
        let queued = if keeps { Vec::new() } else { self.take_all(&mut state) };
        if mode == Mode::Open && state.ordered.is_some() {
            self.after_lanes_changed(&mut state);
        }
        self.wake_all(state);
        queued
    }

    /// Holds the queue while the circuit breaker is open. Returns the jobs in it. A queue with lanes keeps them.
    pub(crate) fn hold(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        state.hold.is_on = true;
        let queued = if state.ordered.is_some() { Vec::new() } else { self.take_all(&mut state) };
        self.wake_all(state);
        queued
    }

    /// Ends the hold. A queued probe becomes a job like the others.
    pub(crate) fn end_hold(&self) {
        let mut state = self.state.lock();
        state.hold.is_on = false;
        if state.ordered.is_some() && state.hold.is_expecting() {
            state.hold.stop_expecting();
            self.probe_changed.notify_waiters();
        }
        self.wake_all(state);
    }

    fn take_all(&self, state: &mut QueueState) -> Vec<Job> {
        let mut queued = Vec::from(std::mem::take(&mut state.jobs));
        queued.extend(std::mem::take(&mut state.waiting_suspects).into_values());
        if let Some(ordered) = &mut state.ordered {
            queued.append(&mut ordered.heads);
            queued.extend(ordered.lanes.clear());
        }
        if let Some(probe) = state.hold.take_queued(Probe::None) {
            queued.push(probe);
            self.probe_changed.notify_waiters();
        }
        queued
    }

    fn wake_all(&self, state: MutexGuard<'_, QueueState>) {
        drop(state);
        self.job_ready.notify_waiters();
        self.room.notify_waiters();
    }

    /// Whether the queue accepts jobs.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open()
    }

    /// Returns whether a job that a slot has taken may still start: the queue was not paused, held or closed meanwhile.
    pub(crate) fn lets_start(&self, job: &Job) -> bool {
        let state = self.state.lock();
        state.mode.admits().and_then(|()| state.hold.admits(job)).is_ok()
    }

    /// Returns the number of prefetched messages.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        let probe = usize::from(state.hold.queued().is_some());
        state.jobs.len() + state.waiting_suspects.len() + state.waiting_in_lanes() + probe
    }
}
