//! Messages that were read and wait for a slot, and how many more to read.
//!
//! The queue is shared by all slots and all fetchers of a worker. It also knows how many slots there should be, so that
//! a slot learns in the same look whether it has work or is one too many.
//!
//! How much is read ahead follows how fast messages are taken: about a tenth of a second's worth, at least one for each
//! slot, at most `prefetch`. So a slow handler does not hoard what other workers could do now, and a fast one
//! reads in large batches.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::job::Job;

/// How much time what is read ahead should last.
const AHEAD: Duration = Duration::from_millis(100);
/// Over how long at least the speed is measured.
const MEASURED_OVER: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// There is something to take, or to learn, for a slot.
    work: Notify,
    /// There is room for more, or something to learn for a fetcher.
    room: Notify,
}

#[derive(Debug)]
struct State {
    jobs: VecDeque<Job>,
    gate: Gate,
    /// How many slots there should be.
    target: usize,
    /// Which slots there are.
    alive: Vec<bool>,
    /// How many slots wait.
    idle: usize,
    budget: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Nothing goes in or out.
    Paused,
    /// Nothing will go in or out any more.
    Shut,
}

impl Queue {
    pub(crate) fn new(batch: usize, prefetch: usize) -> Queue {
        let state = State {
            jobs: VecDeque::new(),
            gate: Gate::Open,
            target: 0,
            alive: Vec::new(),
            idle: 0,
            budget: Budget::new(batch, prefetch, Instant::now()),
        };
        Queue { state: Mutex::new(state), work: Notify::new(), room: Notify::new() }
    }

    /// Puts jobs in at the end. Gives back those that may not go in.
    pub(crate) fn put(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.gate != Gate::Open {
            return jobs;
        }
        state.jobs.extend(jobs);
        self.wake_one(&state);
        Vec::new()
    }

    /// Puts jobs that were taken and not begun back to the front. Gives back those that may not go in.
    pub(crate) fn put_back(&self, jobs: impl DoubleEndedIterator<Item = Job>) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.gate != Gate::Open {
            return jobs.collect();
        }
        jobs.rev().for_each(|job| {
            state.jobs.push_front(job);
            // A measurement may have begun anew in between.
            state.budget.taken = state.budget.taken.saturating_sub(1);
        });
        self.wake_one(&state);
        Vec::new()
    }

    /// Takes up to `most` jobs for a slot, as soon as there are any. False if the slot is to end.
    pub(crate) async fn take(&self, slot: usize, most: usize, jobs: &mut Vec<Job>) -> bool {
        loop {
            let work = self.work.notified();
            let mut work = std::pin::pin!(work);
            work.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.gate == Gate::Shut || slot >= state.target {
                    state.alive[slot] = false;
                    // The wake-up was perhaps meant for one that stays.
                    self.wake_one(&state);
                    return false;
                }
                if self.take_now(&mut state, most, jobs) {
                    return true;
                }
                state.idle += 1;
            }
            work.await;
            self.state.lock().idle -= 1;
        }
    }

    /// Tops up what a slot has taken to `size`, waiting no longer than until `by`.
    pub(crate) async fn fill_up(&self, size: usize, by: Instant, jobs: &mut Vec<Job>) {
        while jobs.len() < size {
            let work = self.work.notified();
            let mut work = std::pin::pin!(work);
            work.as_mut().enable();
            {
                let mut state = self.state.lock();
                let missing = size - jobs.len();
                if state.gate == Gate::Shut
                    || (self.take_now(&mut state, missing, jobs) && jobs.len() >= size)
                {
                    return;
                }
                state.idle += 1;
            }
            let in_time = tokio::time::timeout_at(by, work).await.is_ok();
            self.state.lock().idle -= 1;
            if !in_time {
                return;
            }
        }
    }

    fn take_now(&self, state: &mut State, most: usize, jobs: &mut Vec<Job>) -> bool {
        let count = state.jobs.len().min(most);
        if state.gate != Gate::Open || count == 0 {
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

    /// Who is woken and leaves something wakes the next: no more slots run than there is work for.
    fn wake_one(&self, state: &State) {
        if state.idle > 0 && !state.jobs.is_empty() {
            self.work.notify_one();
        }
    }

    /// How many messages to read, as soon as there is room for some. `None` if it is over.
    pub(crate) async fn wait_for_room(&self) -> Option<usize> {
        loop {
            let room = self.room.notified();
            let mut room = std::pin::pin!(room);
            room.as_mut().enable();
            {
                let mut state = self.state.lock();
                match state.gate {
                    Gate::Shut => return None,
                    Gate::Paused => {}
                    Gate::Open => {
                        let (target, waiting) = (state.target, state.jobs.len());
                        if waiting <= state.budget.low_mark(target) {
                            let budget = state.budget.now(target, Instant::now());
                            return Some(budget.saturating_sub(waiting).max(1));
                        }
                    }
                }
            }
            room.await;
        }
    }

    /// From now on there should be so many slots. Gives the numbers of those to be started.
    pub(crate) fn resize(&self, slots: usize) -> Vec<usize> {
        let mut state = self.state.lock();
        state.target = slots;
        if state.alive.len() < slots {
            state.alive.resize(slots, false);
        }
        let new = (0..slots).filter(|slot| !std::mem::replace(&mut state.alive[*slot], true)).collect();
        drop(state);
        self.work.notify_waiters();
        self.room.notify_waiters();
        new
    }

    /// Lets nothing through for a while. Gives what waited.
    pub(crate) fn pause(&self) -> Vec<Job> {
        self.turn(Gate::Paused)
    }

    /// Lets everything through again.
    pub(crate) fn resume(&self) {
        self.turn(Gate::Open);
    }

    /// Lets nothing through any more, and ends the slots. Gives what waited.
    pub(crate) fn shut(&self) -> Vec<Job> {
        self.turn(Gate::Shut)
    }

    fn turn(&self, gate: Gate) -> Vec<Job> {
        let mut state = self.state.lock();
        if state.gate != Gate::Shut {
            state.gate = gate;
        }
        let waiting = if gate == Gate::Open { VecDeque::new() } else { std::mem::take(&mut state.jobs) };
        drop(state);
        self.work.notify_waiters();
        self.room.notify_waiters();
        waiting.into()
    }

    /// Whether anything may go in.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().gate == Gate::Open
    }

    /// How many messages wait for a slot.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }
}

/// How many messages may wait for a slot.
#[derive(Debug)]
struct Budget {
    /// How many messages a slot takes at once.
    batch: usize,
    /// Never more.
    most: usize,
    /// What the last measurement said.
    measured: usize,
    /// How many messages were taken since, and since when.
    taken: u64,
    since: Instant,
}

impl Budget {
    fn new(batch: usize, most: usize, now: Instant) -> Budget {
        Budget { batch, most, measured: 0, taken: 0, since: now }
    }

    fn now(&mut self, slots: usize, now: Instant) -> usize {
        let elapsed = now.duration_since(self.since);
        if elapsed >= MEASURED_OVER {
            let worth = self.taken as f64 * AHEAD.as_secs_f64() / elapsed.as_secs_f64();
            self.measured = worth as usize;
            self.taken = 0;
            self.since = now;
        }
        self.bounded(slots)
    }

    fn bounded(&self, slots: usize) -> usize {
        self.measured.max(slots * self.batch).min(self.most).max(1)
    }

    /// When so few are left, it is time to read.
    fn low_mark(&self, slots: usize) -> usize {
        self.bounded(slots) / 2
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::StreamId;
    use crate::worker::held::Held;

    #[test]
    fn what_is_read_ahead_follows_the_speed() {
        let start = Instant::now();
        let mut budget = Budget::new(1, 1000, start);
        assert_eq!(budget.now(8, start), 8, "one for each slot at first");
        budget.taken = 5;
        assert_eq!(budget.now(8, start + Duration::from_secs(1)), 8, "a slow handler hoards nothing");
        budget.taken = 2_000;
        assert_eq!(budget.now(8, start + Duration::from_secs(2)), 200, "a tenth of a second's worth");
        budget.taken = 1_000_000;
        assert_eq!(budget.now(8, start + Duration::from_secs(3)), 1000, "bounded");
        assert_eq!(budget.low_mark(8), 500);
    }

    #[test]
    fn batches_are_read_whole() {
        let mut budget = Budget::new(50, 1000, Instant::now());
        assert_eq!(budget.now(4, Instant::now()), 200);
    }

    #[tokio::test]
    async fn slots_end_when_they_are_too_many_and_begin_again() {
        let queue = Queue::new(1, 100);
        assert_eq!(queue.resize(3), [0, 1, 2]);
        assert!(queue.resize(1).is_empty());
        assert!(!queue.take(2, 1, &mut Vec::new()).await);
        // The second has not noticed yet: it stays, only the third is started anew.
        assert_eq!(queue.resize(3), [2]);
    }

    fn job(ms: u64) -> Job {
        let id = StreamId::new(ms, 0);
        let taken = Held::default().take(Instant::now(), std::iter::once((id, 1))).remove(0);
        let (ticket, cancelled) = taken.expect("it was not in hand");
        Job { lane: 0, ticket, id, attempt: 1, fields: Arc::default(), cancelled, key: None }
    }

    #[tokio::test]
    async fn what_comes_back_is_first_again_whatever_was_measured_meanwhile() {
        let queue = Queue::new(1, 100);
        queue.resize(1);
        assert!(queue.put((1..=3).map(job).collect()).is_empty());
        let mut taken = Vec::new();
        assert!(queue.take(0, 2, &mut taken).await);
        queue.state.lock().budget.now(1, Instant::now() + MEASURED_OVER);
        assert!(queue.put_back(taken.drain(..)).is_empty());
        assert!(queue.take(0, 3, &mut taken).await);
        let order: Vec<u64> = taken.iter().map(|job| job.id.ms).collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_paused_queue_refuses_and_gives_back() {
        let queue = Queue::new(1, 100);
        assert!(queue.put(vec![job(1)]).is_empty());
        assert_eq!(queue.pause().len(), 1);
        assert_eq!(queue.put(vec![job(2)]).len(), 1);
        assert_eq!(queue.put_back([job(3)].into_iter()).len(), 1);
        queue.resume();
        assert!(queue.put(vec![job(4)]).is_empty());
    }

    #[tokio::test]
    async fn a_shut_queue_ends_everyone() {
        let queue = Queue::new(1, 100);
        queue.resize(1);
        assert_eq!(queue.wait_for_room().await, Some(1));
        assert!(queue.shut().is_empty());
        assert_eq!(queue.wait_for_room().await, None);
        assert!(!queue.take(0, 1, &mut Vec::new()).await);
    }
}
