//! The queue of prefetched messages: those that were read, but that no handler has started. It also decides how many
//! messages to read ahead.
//!
//! All slots and fetchers of a worker share the queue. It knows the target number of slots, so that a slot finds
//! out under the same lock whether there is a message for it and whether it is surplus.
//!
//! Suspects have a queue of their own, in order of their levels. A slot takes a suspect if the rules of `suspects.rs`
//! allow another one, and any other message otherwise. If the next suspect must run alone, slots take nothing until no
//! handler of the process runs; `process.rs` makes sure of that.
//!
//! If the worker orders messages by key, they come into the queue through lanes: `ordered.rs`.

mod alone;
pub(crate) mod breaker;
mod lanes;
mod ordered;
mod prefetch;
mod probe;
mod process;
mod slots;
pub(crate) mod suspects;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::ordered::Ordered;
use self::prefetch::PrefetchBudget;
use self::probe::Probe;
pub(crate) use self::process::Process;
use self::slots::{Slots, Work};
use self::suspects::Suspects;
use crate::worker::message::{Job, SubscriptionId};

/// Prefetched messages, shared by all slots and fetchers of a worker.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// Wakes slots: a job was added, or the mode or the target has changed.
    job_added: Notify,
    /// Wakes fetchers: the queue has room, or the mode or the target has changed.
    room: Notify,
    /// Wakes the task that probes: the probe has ended.
    probe_ended: Notify,
    /// Wakes the tasks for suspects that run alone: one of them waits, ended, or was removed.
    alone_changed: Notify,
    /// Wakes the task that checks messages which came out of their lanes and cannot run at once.
    heads_added: Notify,
    /// The process with all workers.
    process: Arc<Process>,
}

#[derive(Debug)]
struct QueueState {
    /// The lanes, if the worker orders messages by key.
    ordered: Option<Ordered>,
    /// Jobs that are not suspects.
    jobs: VecDeque<Job>,
    /// Suspects by level, the highest first, and then in the order in which they were added.
    suspects: BTreeMap<(Reverse<u64>, u64), Job>,
    /// Number of suspects added so far.
    suspects_added: u64,
    rules: Suspects,
    /// Since when the first suspect waits to run alone.
    alone_since: Option<Instant>,
    /// Whether the next suspect can run alone: no other worker of the process runs a handler.
    has_turn: bool,
    /// Whether another worker of the process runs a suspect alone, or waits for that. Then nothing is handed out,
    /// except in this worker's turn.
    others_wait: bool,
    mode: QueueMode,
    /// Whether the circuit breaker is open: only a probe is accepted and handed out.
    on_hold: bool,
    probe: Probe,
    /// Target number of slots.
    target: usize,
    slots: Slots,
    /// Number of slots that wait for a job.
    idle: usize,
    budget: PrefetchBudget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueMode {
    Open,
    /// Jobs are neither accepted nor handed out for now.
    Paused,
    /// Jobs are neither accepted nor handed out any more, and slots end.
    Closed,
}

/// What a slot can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    Probe,
    /// This number of suspects.
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
        self.mode == QueueMode::Open && !self.on_hold
    }

    /// Maximum number of messages that handlers run at the same time.
    fn width(&self) -> usize {
        self.target.saturating_mul(self.budget.batch)
    }

    /// Level of the next suspect.
    fn next_level(&self) -> Option<u64> {
        self.suspects.first_key_value().map(|((Reverse(level), _), _)| *level)
    }

    /// Returns what a slot can take now.
    fn next(&self) -> Next {
        if self.mode != QueueMode::Open || self.alone_is_running() || self.must_wait_for_others() {
            return Next::Nothing;
        }
        if let Probe::Queued(_) = self.probe {
            return Next::Probe;
        }
        if self.on_hold {
            return Next::Nothing;
        }
        if let Some(level) = self.next_level() {
            if self.rules.runs_alone(level) {
                let is_alone = self.has_turn && self.slots.busy() == 0;
                return if is_alone { Next::Suspects(1) } else { Next::Nothing };
            }
            let limit = self.rules.limit(level.max(self.slots.highest_level()), self.width());
            let count = limit.saturating_sub(self.slots.suspects()).min(self.budget.batch);
            if count > 0 {
                return Next::Suspects(count);
            }
        }
        if self.jobs.is_empty() { Next::Nothing } else { Next::Jobs }
    }

    fn add(&mut self, job: Job) {
        match job.suspect_level {
            None => self.jobs.push_back(job),
            Some(level) => {
                self.suspects_added += 1;
                self.suspects.insert((Reverse(level), self.suspects_added), job);
            }
        }
    }
}

impl Queue {
    pub(crate) fn new(batch: usize, prefetch: usize, rules: Suspects, process: Arc<Process>) -> Queue {
        let state = QueueState {
            ordered: None,
            jobs: VecDeque::new(),
            suspects: BTreeMap::new(),
            suspects_added: 0,
            rules,
            alone_since: None,
            has_turn: false,
            others_wait: false,
            mode: QueueMode::Open,
            on_hold: false,
            probe: Probe::None,
            target: 0,
            slots: Slots::default(),
            idle: 0,
            budget: PrefetchBudget::new(batch, prefetch, Instant::now()),
        };
        Queue {
            state: Mutex::new(state),
            job_added: Notify::new(),
            room: Notify::new(),
            probe_ended: Notify::new(),
            alone_changed: Notify::new(),
            heads_added: Notify::new(),
            process,
        }
    }

    /// Orders messages by key, with at most `window` messages of each stream in hand. Only before the queue has messages.
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
            self.measure_alone_wait(&mut state);
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
            let mut added = std::pin::pin!(self.job_added.notified());
            added.as_mut().enable();
            {
                let mut state = self.state.lock();
                self.end_work_of(&mut state, slot);
                if state.mode == QueueMode::Closed || slot >= state.target {
                    state.slots.end(slot);
                    // This slot may have consumed a wake-up that another slot needs.
                    self.wake_one(&state);
                    return false;
                }
                if self.take_next(&mut state, slot, max, jobs) {
                    return true;
                }
                state.idle += 1;
            }
            added.await;
            self.state.lock().idle -= 1;
        }
    }

    /// Records that a slot has finished its work.
    fn end_work_of(&self, state: &mut QueueState, slot: usize) {
        let was_alone = state.alone_is_running();
        state.slots.set_work(slot, Work::Nothing);
        if was_alone && !state.alone_is_running() {
            self.alone_changed.notify_waiters();
        }
        if state.others_wait && state.slots.busy() == 0 {
            self.process.record_quiet();
        }
        self.end_probe_of(state, slot);
    }

    fn take_next(&self, state: &mut QueueState, slot: usize, max: usize, jobs: &mut Vec<Job>) -> bool {
        let work = match state.next() {
            Next::Nothing => return false,
            Next::Probe => self.take_probe(state, slot, jobs),
            Next::Suspects(count) => {
                let work = state.take_suspects(count, jobs);
                // The next suspect gets the full time to wait, and waits for its own turn.
                (state.alone_since, state.has_turn) = (None, false);
                self.measure_alone_wait(state);
                self.room.notify_waiters();
                work
            }
            Next::Jobs => {
                self.take_jobs(state, max, jobs);
                Work::Messages
            }
        };
        state.slots.set_work(slot, work);
        self.wake_one(state);
        true
    }

    /// Takes more jobs that are not suspects until `jobs` contains `size` of them. Waits for them until `by` at most.
    pub(crate) async fn fill_up(&self, size: usize, by: Instant, jobs: &mut Vec<Job>) {
        while jobs.len() < size {
            let mut added = std::pin::pin!(self.job_added.notified());
            added.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_open() && !state.alone_is_waiting() && !state.must_wait_for_others() {
                    self.take_jobs(&mut state, size - jobs.len(), jobs);
                    self.wake_one(&state);
                }
                if state.mode == QueueMode::Closed || jobs.len() >= size {
                    return;
                }
                state.idle += 1;
            }
            let in_time = tokio::time::timeout_at(by, added).await.is_ok();
            let mut state = self.state.lock();
            state.idle -= 1;
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
        if state.jobs.len() <= state.budget.low_mark(state.target) {
            self.room.notify_waiters();
        }
    }

    /// Wakes one slot if jobs are left. Each slot that takes a job wakes the next, so no more slots wake than there
    /// are jobs.
    fn wake_one(&self, state: &QueueState) {
        if state.idle > 0 && state.next() != Next::Nothing {
            self.job_added.notify_one();
        }
    }

    /// Waits until the queue has room. Returns how many messages to read, or `None` if the queue is closed.
    /// For a stream with a window, the number fits into the window.
    pub(crate) async fn wait_for_room(&self, subscription: Option<SubscriptionId>) -> Option<Room> {
        self.wait_for(subscription, |_| true).await
    }

    /// Waits until the queue has room for messages that are claimed. Returns how many to claim, or `None` if the queue is
    /// closed.
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
                if state.mode == QueueMode::Closed {
                    return None;
                }
                let (target, queued) = (state.target, state.jobs.len());
                let in_window = state.room_in_window(subscription);
                if state.on_hold && state.needs_probe() {
                    return Some(Room { count: 1, may_claim: true });
                }
                if state.is_open() && in_window > 0 && queued <= state.budget.low_mark(target) {
                    let budget = state.budget.now(target, Instant::now());
                    // With one suspect for each message that can run, no slot waits for suspects.
                    let may_claim = state.suspects.len() < state.width().max(1);
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
        state.target = slots;
        let new = state.slots.start(slots);
        self.wake_all(state);
        new
    }

    /// Pauses the queue. Returns the jobs in it. A queue with lanes keeps them.
    pub(crate) fn pause(&self) -> Vec<Job> {
        self.set_mode(QueueMode::Paused)
    }

    /// Opens the queue again after a pause.
    pub(crate) fn resume(&self) {
        self.set_mode(QueueMode::Open);
    }

    /// Closes the queue and ends the slots. Returns the jobs in it.
    pub(crate) fn close(&self) -> Vec<Job> {
        self.set_mode(QueueMode::Closed)
    }

    fn set_mode(&self, mode: QueueMode) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.mode != QueueMode::Closed {
            state.mode = mode;
        }
        let keeps = mode == QueueMode::Open || mode == QueueMode::Paused && state.ordered.is_some();
        let queued = if keeps { Vec::new() } else { self.take_all(&mut state) };
        if mode == QueueMode::Open && state.ordered.is_some() {
            self.after_lanes_changed(&mut state);
        }
        self.wake_all(state);
        queued
    }

    /// Holds the queue while the circuit breaker is open. Returns the jobs in it. A queue with lanes keeps them.
    pub(crate) fn hold(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        state.on_hold = true;
        let queued = if state.ordered.is_some() { Vec::new() } else { self.take_all(&mut state) };
        self.wake_all(state);
        queued
    }

    /// Ends the hold. A queued probe becomes a job like the others.
    pub(crate) fn end_hold(&self) {
        let mut state = self.state.lock();
        state.on_hold = false;
        if state.ordered.is_some() && matches!(state.probe, Probe::Expected) {
            state.probe = Probe::None;
            self.probe_ended.notify_waiters();
        }
        self.wake_all(state);
    }

    fn take_all(&self, state: &mut QueueState) -> Vec<Job> {
        let mut queued = Vec::from(std::mem::take(&mut state.jobs));
        queued.extend(std::mem::take(&mut state.suspects).into_values());
        if let Some(ordered) = &mut state.ordered {
            queued.append(&mut ordered.heads);
            queued.extend(ordered.lanes.clear());
        }
        self.end_alone_wait(state);
        if let Probe::Queued(_) = state.probe
            && let Probe::Queued(job) = std::mem::replace(&mut state.probe, Probe::None)
        {
            queued.push(job);
            self.probe_ended.notify_waiters();
        }
        queued
    }

    fn wake_all(&self, state: MutexGuard<'_, QueueState>) {
        drop(state);
        self.job_added.notify_waiters();
        self.room.notify_waiters();
    }

    /// Whether the queue accepts jobs.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open()
    }

    /// Returns whether this job may start: the queue is open, or the job is a probe.
    pub(crate) fn lets_start(&self, job: &Job) -> bool {
        let state = self.state.lock();
        state.mode == QueueMode::Open && (!state.on_hold || job.is_probe)
    }

    /// Returns the number of prefetched messages.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        let probe = usize::from(matches!(state.probe, Probe::Queued(_)));
        state.jobs.len() + state.suspects.len() + state.waiting_in_lanes() + probe
    }
}
