//! What all tasks of a running worker share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::held::Leaving;
use super::job::{Ended, Job};
use super::lane::Lane;
use super::queue::Queue;
use super::report::Tally;
use super::trouble::{Doing, Patience};
use super::verdict::End;
use crate::autoscale::{Autoscale, Decision};
use crate::backend::{Admin, Answer, Backend, Error, ErrorKind, Start, StreamId};
use crate::backoff::Backoff;
use crate::dedupe::{AtWork, Dedupe};

/// How many steps of the autoscaler are kept.
const DECISIONS_MAX: usize = 256;

/// How a worker works.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) start: Start,
    pub(crate) survives_restart: bool,
    pub(crate) backoff: Backoff,
    pub(crate) max_deliveries: u64,
    pub(crate) lease: Duration,
    pub(crate) dedupe: Option<Dedupe>,
    pub(crate) autoscale: Option<Autoscale>,
    pub(crate) drain: Duration,
    pub(crate) reap_after: Option<Duration>,
    pub(crate) waiting_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            start: Start::Beginning,
            survives_restart: false,
            backoff: Backoff::default(),
            max_deliveries: 5,
            lease: Duration::from_secs(30),
            dedupe: None,
            autoscale: None,
            drain: Duration::from_secs(25),
            reap_after: Some(Duration::from_secs(60 * 60)),
            waiting_max: 10_000,
        }
    }
}

impl Settings {
    /// How long a read waits. Short, because it is never cut off: draining waits for it.
    pub(crate) fn block(&self) -> Duration {
        let most = Duration::from_secs(1).min(self.lease / 3).min(self.drain / 4);
        most.max(Duration::from_millis(20))
    }
}

/// What all tasks of a running worker share.
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same store for looking at it and removing consumers, where it can be administered.
    pub(crate) admin: Option<Arc<dyn Admin>>,
    pub(crate) settings: Settings,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) queue: Queue,
    pub(crate) tally: Tally,
    pub(crate) at_work: AtWork,
    /// How many slots there should be.
    pub(crate) slots: watch::Sender<usize>,
    /// Nothing new is begun.
    pub(crate) draining: CancellationToken,
    /// What cannot be told to the store now will not be told.
    pub(crate) giving_up: CancellationToken,
    busy: AtomicUsize,
    decisions: Mutex<VecDeque<Decision>>,
    pub(crate) failure: Mutex<Option<Error>>,
}

impl Core {
    /// How often idle messages are looked for. Where a read brings them it is only for those whose entries are gone: no read
    /// brings these.
    pub(crate) fn claim_every(&self) -> Duration {
        let lease = self.settings.lease;
        if self.read_claims() {
            return lease;
        }
        (lease / 4).clamp(Duration::from_millis(50), Duration::from_secs(5))
    }

    /// Whether a read brings idle messages too. Not kept: a store that was busy at first tells it later.
    pub(crate) fn read_claims(&self) -> bool {
        self.backend.capabilities().read_claims
    }

    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        settings: Settings,
        lanes: Vec<Lane>,
        queue: Queue,
        slots: usize,
    ) -> Core {
        Core {
            admin: Arc::clone(&backend).admin(),
            backend,
            settings,
            lanes,
            queue,
            tally: Tally::default(),
            at_work: AtWork::default(),
            slots: watch::Sender::new(slots),
            draining: CancellationToken::new(),
            giving_up: CancellationToken::new(),
            busy: AtomicUsize::new(0),
            decisions: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Counts a slot as busy until the answer is dropped.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(&self.busy)
    }

    pub(crate) fn busy_slots(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Hands messages whose end is known to those who tell the store.
    pub(crate) fn hand_in(&self, ended: &mut Vec<Ended>) {
        if let [lane] = &*self.lanes {
            lane.outbox.put(ended.drain(..));
            return;
        }
        for lane in &self.lanes {
            lane.outbox.put(ended.extract_if(.., |ended| ended.job.lane == lane.index));
        }
    }

    /// Hands in messages that no handler will see.
    pub(crate) fn hand_in_unstarted(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut ended = jobs.into_iter().map(|job| Ended::at_once(job, End::NotStarted)).collect();
        self.hand_in(&mut ended);
    }

    /// Gives messages back that were let go of. `None` if that could not be told.
    pub(crate) async fn release(&self, lane: &Lane, leaving: Leaving<'_>) -> Option<u64> {
        let call = || {
            let rows = leaving.still_away();
            Box::pin(async move { self.backend.release(lane.as_consumer(), &rows).await }) as Answer<'_, u64>
        };
        self.insist(lane, Doing::Settling, call).await
    }

    /// Calls until it works. `None` if it will not: the group is gone (and made again), the store is closed, or
    /// the worker ends.
    pub(crate) async fn insist<'a, T>(
        &self,
        lane: &Lane,
        doing: Doing,
        call: impl Fn() -> Answer<'a, T>,
    ) -> Option<T> {
        self.insist_unless(lane, doing, |_| false, call).await?.ok()
    }

    /// The same, unless it fails in a way that calling again will not mend.
    pub(crate) async fn insist_unless<'a, T>(
        &self,
        lane: &Lane,
        doing: Doing,
        is_final: impl Fn(&Error) -> bool,
        call: impl Fn() -> Answer<'a, T>,
    ) -> Option<Result<T, Error>> {
        let mut patience = Patience::new();
        loop {
            match call().await {
                Ok(answer) => {
                    self.works(lane, doing);
                    return Some(Ok(answer));
                }
                Err(error) if is_final(&error) => return Some(Err(error)),
                Err(error) => self.cope(lane, doing, &error, &mut patience).await?,
            }
        }
    }

    /// What to do about an error: wait, and then `Some` to try again, or `None` if that is no use.
    pub(crate) async fn cope(
        &self,
        lane: &Lane,
        doing: Doing,
        error: &Error,
        patience: &mut Patience,
    ) -> Option<()> {
        if doing == Doing::Settling {
            lane.metrics.ack_errors.increment();
        }
        match error.kind() {
            ErrorKind::NoGroup => {
                self.heal(lane, patience).await;
                None
            }
            ErrorKind::Closed => {
                self.fail(Error::new(ErrorKind::Closed, error.to_string()));
                None
            }
            _ => {
                if lane.trouble.begins(&self.backend.place(), &lane.stream, doing, error) {
                    lane.metrics.backend_up.set(0.0);
                }
                self.pause_for(patience.next()).await
            }
        }
    }

    /// A call worked.
    pub(crate) fn works(&self, lane: &Lane, doing: Doing) {
        if lane.trouble.is_over(&self.backend.place(), &lane.stream, doing) {
            lane.metrics.backend_up.set(1.0);
            lane.metrics.backend_reconnects.increment();
        }
    }

    /// Waits, unless the worker ends.
    async fn pause_for(&self, time: Duration) -> Option<()> {
        tokio::select! {
            () = tokio::time::sleep(time) => Some(()),
            () = self.giving_up.cancelled() => None,
        }
    }

    /// Makes the group again.
    async fn heal(&self, lane: &Lane, patience: &mut Patience) {
        let _one_at_a_time = lane.healing.lock().await;
        // If it fails, or somebody was faster, the next call will tell.
        if let Ok(start) = self.start_again(lane).await
            && let Ok(true) = self.backend.create_group(&lane.stream, &lane.group, start).await
        {
            let (stream, group) = (&*lane.stream, &*lane.group);
            let from = match start {
                Start::Beginning => "the beginning".to_owned(),
                Start::End => "the end".to_owned(),
                Start::After(id) => format!("after {id}"),
            };
            warn!(stream, group, from, "the group was gone; made it again");
        }
        // Where it is deleted again and again, this is not a busy loop.
        self.pause_for(patience.next()).await;
    }

    /// Where a group that is made again begins: before the first message that is still in hand, so that nothing of ours is
    /// left out. If the stream is another one, at its beginning.
    async fn start_again(&self, lane: &Lane) -> Result<Start, Error> {
        let last = lane.last_read();
        if last == StreamId::MIN {
            return Ok(self.settings.start);
        }
        match self.backend.stream(&lane.stream).await {
            Ok(Some(info)) if info.last_id >= last => {
                let first = lane.held.smallest().and_then(StreamId::prev);
                Ok(Start::After(first.map_or(last, |first| first.min(last))))
            }
            Err(error) if error.is_passing() => Err(error),
            _ => Ok(Start::Beginning),
        }
    }

    /// The worker cannot go on.
    pub(crate) fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.draining.cancel();
        self.giving_up.cancel();
    }

    /// Keeps a step of the autoscaler.
    pub(crate) fn note(&self, decision: Decision) {
        let mut decisions = self.decisions.lock();
        if decisions.len() == DECISIONS_MAX {
            decisions.pop_front();
        }
        decisions.push_back(decision);
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.lock().iter().cloned().collect()
    }
}

/// A slot that is busy.
pub(crate) struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
