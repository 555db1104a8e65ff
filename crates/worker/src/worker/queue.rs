//! The queue of prefetched messages: those that were read, but that no handler has started. It also decides how many
//! messages to read ahead.
//!
//! All slots and fetchers of a worker share the queue. It knows the target number of slots, so that a slot finds
//! out under the same lock whether there is a message for it and whether it is surplus.
//!
//! The number of prefetched messages follows the speed of the handlers: about as many as they take in 100 ms, at
//! least one (or one batch) for each slot, at most `prefetch`. So a worker with slow handlers leaves messages to other
//! workers, and a worker with fast handlers reads many messages in one call.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::job::Job;

/// How long the prefetched messages should last.
const PREFETCH_TIME: Duration = Duration::from_millis(100);
/// Minimum time over which the speed of the handlers is measured.
const MEASURE_TIME_MIN: Duration = Duration::from_millis(10);

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
}

#[derive(Debug)]
struct QueueState {
    jobs: VecDeque<Job>,
    mode: QueueMode,
    /// Whether the circuit breaker is open: only a probe is accepted and handed out.
    on_hold: bool,
    probe: Probe,
    /// Target number of slots.
    target: usize,
    /// For each slot, whether its task runs.
    alive: Vec<bool>,
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

/// The message that probes whether handlers succeed again.
#[derive(Debug)]
enum Probe {
    None,
    /// The next job becomes the probe.
    Expected,
    Queued(Job),
    /// This slot runs it.
    Running(usize),
}

impl QueueState {
    /// Whether all jobs are accepted and handed out.
    fn is_open(&self) -> bool {
        self.mode == QueueMode::Open && !self.on_hold
    }

    /// Whether a slot can take a job.
    fn has_job(&self) -> bool {
        let has_probe = self.mode == QueueMode::Open && matches!(self.probe, Probe::Queued(_));
        has_probe || (self.is_open() && !self.jobs.is_empty())
    }

    /// Accepts the first job as the probe, if one is expected. Returns the others.
    fn accept_probe(&mut self, mut jobs: Vec<Job>) -> Vec<Job> {
        if self.mode == QueueMode::Open && matches!(self.probe, Probe::Expected) && !jobs.is_empty() {
            self.probe = Probe::Queued(Job { is_probe: true, ..jobs.remove(0) });
        }
        jobs
    }
}

impl Queue {
    pub(crate) fn new(batch: usize, prefetch: usize) -> Queue {
        let state = QueueState {
            jobs: VecDeque::new(),
            mode: QueueMode::Open,
            on_hold: false,
            probe: Probe::None,
            target: 0,
            alive: Vec::new(),
            idle: 0,
            budget: PrefetchBudget::new(batch, prefetch, Instant::now()),
        };
        Queue {
            state: Mutex::new(state),
            job_added: Notify::new(),
            room: Notify::new(),
            probe_ended: Notify::new(),
        }
    }

    /// Appends jobs. Returns the jobs that the queue does not accept: it is not open, or expects only a probe.
    pub(crate) fn put(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut state = self.state.lock();
        let refused = if state.is_open() {
            state.jobs.extend(jobs);
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
        if !state.is_open() {
            return jobs.collect();
        }
        jobs.rev().for_each(|job| {
            state.jobs.push_front(job);
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
                self.end_probe_of(&mut state, slot);
                if state.mode == QueueMode::Closed || slot >= state.target {
                    state.alive[slot] = false;
                    // This slot may have consumed a wake-up that another slot needs.
                    self.wake_one(&state);
                    return false;
                }
                if self.take_probe(&mut state, slot, jobs) || self.take_now(&mut state, max, jobs) {
                    return true;
                }
                state.idle += 1;
            }
            added.await;
            self.state.lock().idle -= 1;
        }
    }

    /// Takes more jobs until `jobs` contains `size` of them. Waits for them until `by` at most.
    pub(crate) async fn fill_up(&self, size: usize, by: Instant, jobs: &mut Vec<Job>) {
        while jobs.len() < size {
            let mut added = std::pin::pin!(self.job_added.notified());
            added.as_mut().enable();
            {
                let mut state = self.state.lock();
                let missing = size - jobs.len();
                if state.mode == QueueMode::Closed
                    || (self.take_now(&mut state, missing, jobs) && jobs.len() >= size)
                {
                    return;
                }
                state.idle += 1;
            }
            let in_time = tokio::time::timeout_at(by, added).await.is_ok();
            self.state.lock().idle -= 1;
            if !in_time {
                return;
            }
        }
    }

    fn take_now(&self, state: &mut QueueState, max: usize, jobs: &mut Vec<Job>) -> bool {
        let count = state.jobs.len().min(max);
        if !state.is_open() || count == 0 {
            return false;
        }
        jobs.extend(state.jobs.drain(..count));
        state.budget.taken += count as u64;
        if state.jobs.len() <= state.budget.low_mark(state.target) {
            self.room.notify_waiters();
        }
        self.wake_one(state);
        true
    }

    /// Wakes one slot if jobs are left. Each slot that takes a job wakes the next, so no more slots wake than there
    /// are jobs.
    fn wake_one(&self, state: &QueueState) {
        if state.idle > 0 && state.has_job() {
            self.job_added.notify_one();
        }
    }

    /// Waits until the queue has room. Returns how many messages to read, or `None` if the queue is closed.
    pub(crate) async fn wait_for_room(&self) -> Option<usize> {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.mode == QueueMode::Closed {
                    return None;
                }
                let (target, queued) = (state.target, state.jobs.len());
                if state.is_open() && queued <= state.budget.low_mark(target) {
                    let budget = state.budget.now(target, Instant::now());
                    return Some(budget.saturating_sub(queued).max(1));
                }
            }
            room.await;
        }
    }

    /// Sets the target number of slots. Returns the numbers of the slots to start.
    pub(crate) fn resize(&self, slots: usize) -> Vec<usize> {
        let mut state = self.state.lock();
        state.target = slots;
        if state.alive.len() < slots {
            state.alive.resize(slots, false);
        }
        let new = (0..slots).filter(|slot| !std::mem::replace(&mut state.alive[*slot], true)).collect();
        drop(state);
        self.job_added.notify_waiters();
        self.room.notify_waiters();
        new
    }

    /// Pauses the queue. Returns the jobs in it.
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
        let queued = if mode == QueueMode::Open { Vec::new() } else { self.take_all(&mut state) };
        self.wake_all(state);
        queued
    }

    /// Holds the queue while the circuit breaker is open. Returns the jobs in it.
    pub(crate) fn hold(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        state.on_hold = true;
        let queued = self.take_all(&mut state);
        self.wake_all(state);
        queued
    }

    /// Ends the hold. A queued probe becomes a job like the others.
    pub(crate) fn end_hold(&self) {
        let mut state = self.state.lock();
        state.on_hold = false;
        self.wake_all(state);
    }

    fn take_all(&self, state: &mut QueueState) -> Vec<Job> {
        let mut queued = Vec::from(std::mem::take(&mut state.jobs));
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

    /// Lets the next job in as a probe, although the queue is on hold. Returns false if the queue is paused or closed.
    pub(crate) fn expect_probe(&self) -> bool {
        let mut state = self.state.lock();
        let accepts = state.mode == QueueMode::Open && matches!(state.probe, Probe::None);
        if accepts {
            state.probe = Probe::Expected;
        }
        accepts
    }

    /// Whether no job has become the probe yet.
    pub(crate) fn expects_probe(&self) -> bool {
        matches!(self.state.lock().probe, Probe::Expected)
    }

    /// Takes back `expect_probe`, unless a job has become the probe.
    pub(crate) fn stop_expecting_probe(&self) {
        let mut state = self.state.lock();
        if let Probe::Expected = state.probe {
            state.probe = Probe::None;
        }
    }

    /// Waits until there is no probe.
    pub(crate) async fn probe_ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.probe_ended.notified());
            ended.as_mut().enable();
            if let Probe::None = self.state.lock().probe {
                return;
            }
            ended.await;
        }
    }

    fn take_probe(&self, state: &mut QueueState, slot: usize, jobs: &mut Vec<Job>) -> bool {
        if state.mode != QueueMode::Open || !matches!(state.probe, Probe::Queued(_)) {
            return false;
        }
        if let Probe::Queued(job) = std::mem::replace(&mut state.probe, Probe::Running(slot)) {
            jobs.push(job);
        }
        self.wake_one(state);
        true
    }

    /// Ends the probe if this slot ran it.
    fn end_probe_of(&self, state: &mut QueueState, slot: usize) {
        if matches!(state.probe, Probe::Running(running) if running == slot) {
            state.probe = Probe::None;
            self.probe_ended.notify_waiters();
        }
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
        state.jobs.len() + usize::from(matches!(state.probe, Probe::Queued(_)))
    }
}

/// Computes how many messages may be prefetched.
#[derive(Debug)]
struct PrefetchBudget {
    /// Number of messages in one handler call.
    batch: usize,
    /// Maximum number of prefetched messages.
    max: usize,
    /// Number of messages that handlers take in `PREFETCH_TIME`, as last measured.
    measured: usize,
    /// Number of messages taken since the last measurement.
    taken: u64,
    /// Time of the last measurement.
    since: Instant,
}

impl PrefetchBudget {
    fn new(batch: usize, max: usize, now: Instant) -> PrefetchBudget {
        PrefetchBudget { batch, max, measured: 0, taken: 0, since: now }
    }

    /// Returns how many messages may be prefetched, after a new measurement if it is time for one.
    fn now(&mut self, slots: usize, now: Instant) -> usize {
        let elapsed = now.duration_since(self.since);
        if elapsed >= MEASURE_TIME_MIN {
            let worth = self.taken as f64 * PREFETCH_TIME.as_secs_f64() / elapsed.as_secs_f64();
            self.measured = worth as usize;
            self.taken = 0;
            self.since = now;
        }
        self.bounded(slots)
    }

    fn bounded(&self, slots: usize) -> usize {
        self.measured.max(slots * self.batch).min(self.max).max(1)
    }

    /// Number of prefetched messages at which the fetcher reads more.
    fn low_mark(&self, slots: usize) -> usize {
        self.bounded(slots) / 2
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::StreamId;
    use crate::worker::in_flight::InFlight;
    use crate::worker::job::{Origin, SubscriptionId};

    #[test]
    fn the_number_of_prefetched_messages_follows_the_speed_of_handlers() {
        let start = Instant::now();
        let mut budget = PrefetchBudget::new(1, 1000, start);
        assert_eq!(budget.now(8, start), 8, "one for each slot at first");
        budget.taken = 5;
        assert_eq!(budget.now(8, start + Duration::from_secs(1)), 8, "slow handlers: one for each slot");
        budget.taken = 2_000;
        assert_eq!(budget.now(8, start + Duration::from_secs(2)), 200, "as many as handlers take in 100 ms");
        budget.taken = 1_000_000;
        assert_eq!(budget.now(8, start + Duration::from_secs(3)), 1000, "limited to `max`");
        assert_eq!(budget.low_mark(8), 500);
    }

    #[test]
    fn the_budget_fits_one_batch_for_each_slot() {
        let mut budget = PrefetchBudget::new(50, 1000, Instant::now());
        assert_eq!(budget.now(4, Instant::now()), 200);
    }

    #[tokio::test]
    async fn surplus_slots_end_and_start_again() {
        let queue = Queue::new(1, 100);
        assert_eq!(queue.resize(3), [0, 1, 2]);
        assert!(queue.resize(1).is_empty());
        assert!(!queue.take(2, 1, &mut Vec::new()).await);
        // Slot 1 has not noticed that it was surplus and stays. Only slot 2 is started again.
        assert_eq!(queue.resize(3), [2]);
    }

    fn job(ms: u64) -> Job {
        let id = StreamId::new(ms, 0);
        let taken = InFlight::default().add(Instant::now(), std::iter::once((id, 1))).remove(0);
        let (tag, cancelled) = taken.expect("the message was not in flight");
        Job {
            origin: Arc::new(Origin {
                subscription: SubscriptionId::new(),
                stream: "s".into(),
                group: "g".into(),
                consumer: "c".into(),
            }),
            tag,
            id,
            delivery: 1,
            record: None,
            fields: Arc::default(),
            cancelled,
            key: None,
            is_probe: false,
        }
    }

    #[tokio::test]
    async fn jobs_that_are_put_back_come_first_again_even_after_a_measurement() {
        let queue = Queue::new(1, 100);
        queue.resize(1);
        assert!(queue.put((1..=3).map(job).collect()).is_empty());
        let mut taken = Vec::new();
        assert!(queue.take(0, 2, &mut taken).await);
        queue.state.lock().budget.now(1, Instant::now() + MEASURE_TIME_MIN);
        assert!(queue.put_back(taken.drain(..)).is_empty());
        assert!(queue.take(0, 3, &mut taken).await);
        let order: Vec<u64> = taken.iter().map(|job| job.id.ms).collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_paused_queue_returns_its_jobs_and_refuses_new_ones() {
        let queue = Queue::new(1, 100);
        assert!(queue.put(vec![job(1)]).is_empty());
        assert_eq!(queue.pause().len(), 1);
        assert_eq!(queue.put(vec![job(2)]).len(), 1);
        assert_eq!(queue.put_back([job(3)].into_iter()).len(), 1);
        queue.resume();
        assert!(queue.put(vec![job(4)]).is_empty());
    }

    #[tokio::test]
    async fn a_queue_on_hold_hands_out_one_probe_and_nothing_else() {
        let queue = Queue::new(1, 100);
        queue.resize(2);
        assert!(queue.put(vec![job(1)]).is_empty());
        assert_eq!(queue.hold().len(), 1);
        assert_eq!(queue.put(vec![job(2)]).len(), 1, "no probe is expected");
        assert!(queue.expect_probe() && !queue.expect_probe());
        assert_eq!(queue.put(vec![job(3), job(4), job(5)]).len(), 2);
        assert!(!queue.expects_probe());
        let mut taken = Vec::new();
        assert!(queue.take(1, 64, &mut taken).await);
        assert_eq!((taken.len(), taken[0].id.ms, taken[0].is_probe), (1, 3, true));
        assert!(queue.lets_start(&taken[0]) && !queue.lets_start(&job(6)));
        assert!(!queue.expect_probe(), "one probe at a time");
        // The slot asks for its next job: the probe has ended.
        let asked = tokio::time::timeout(Duration::ZERO, queue.take(1, 64, &mut taken)).await;
        assert!(asked.is_err());
        queue.probe_ended().await;
        queue.end_hold();
        assert!(queue.put(vec![job(7)]).is_empty());
    }

    #[tokio::test]
    async fn a_paused_queue_returns_its_probe_and_expects_none() {
        let queue = Queue::new(1, 100);
        queue.hold();
        assert!(queue.expect_probe() && queue.put(vec![job(1)]).is_empty());
        assert_eq!((queue.len(), queue.pause().len()), (1, 1));
        queue.probe_ended().await;
        assert!(!queue.expect_probe());
        queue.resume();
        assert!(!queue.is_open(), "the hold is still on");
        assert!(queue.expect_probe());
    }

    #[tokio::test]
    async fn a_closed_queue_ends_slots_and_fetchers() {
        let queue = Queue::new(1, 100);
        queue.resize(1);
        assert_eq!(queue.wait_for_room().await, Some(1));
        assert!(queue.close().is_empty());
        assert_eq!(queue.wait_for_room().await, None);
        assert!(!queue.take(0, 1, &mut Vec::new()).await);
    }
}
