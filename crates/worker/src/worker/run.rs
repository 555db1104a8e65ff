//! A worker's life: prepare, work, drain.
//!
//! ```text
//!         read                         take         hand in               acknowledge, dead-letter, release
//! store -------> fetcher -> admission -> queue -> pool -------> outbox -> settler -------> store
//!                   ^           |                                           |
//!                   |           +--- gone, too often, seen before ----------+
//!        recovery --+-- retries <---- waiting <------- try again -----------+
//! ```
//!
//! Draining goes with the stream: nothing new is read, what waits is released, what runs may finish, and when the
//! deadline has passed it is cancelled and released; then the settlers tell the store the last of it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::autoscaler::autoscale;
use super::core::Core;
use super::fetcher::fetch;
use super::lane::Lane;
use super::lease;
use super::pool::{GRACE, run_slot};
use super::recovery;
use super::report::Report;
use super::retry;

use super::settler::settle;
use super::status;
use super::trouble::{Doing, Patience};
use crate::backend::{Error, ErrorKind, Release};
use crate::handler::Work;
use crate::monitor::Monitor;

/// How long cancelled handlers may take to end, beyond the moment of grace they have.
const AFTER_CANCELLING: Duration = Duration::from_secs(1);
/// How long the last outcomes may take to reach the store.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long taking leave of a group may take. Nothing depends on it: others remove what is left behind.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Runs until told to drain, by the future or by a handle.
pub(crate) async fn run(
    core: Arc<Core>,
    work: Work,
    listen: Option<&str>,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, Error> {
    let mut shutdown = pin!(shutdown);
    // Answers probes until this function ends.
    let _status = match listen {
        Some(address) => Some(status::serve(&core, address).await?),
        None => None,
    };
    if !prepare(&core, shutdown.as_mut()).await? {
        return Ok(core.tally.report());
    }
    let mut slots = Slots { core: Arc::clone(&core), work, tasks: JoinSet::new() };
    slots.start_missing(*core.slots.borrow());
    let mut tasks = Tasks::start(&core);
    tokio::select! {
        () = slots.follow_until(shutdown) => {}
        // A mistake of ours. What it held would be held for ever: better to end, and let others have it.
        () = tasks.panicked() => core.fail(panicked()),
    }
    drain(&core, &mut tasks, &mut slots).await;
    match core.failure.lock().take() {
        Some(error) => Err(error),
        None => Ok(core.tally.report()),
    }
}

/// Makes the groups, and releases what the worker had there before a restart. False if it was told to end before it could.
async fn prepare(core: &Core, mut shutdown: Pin<&mut impl Future<Output = ()>>) -> Result<bool, Error> {
    for lane in &core.lanes {
        let mut patience = Patience::new();
        loop {
            let made = core.backend.create_group(&lane.stream, &lane.group, core.settings.start).await;
            match made {
                Ok(_) => {
                    core.works(lane, Doing::Preparing);
                    lane.metrics.backend_up.set(1.0);
                    break;
                }
                // What is wrong with the request is the caller's to mend, and now is when somebody looks.
                Err(error) if !error.is_passing() => return Err(error),
                Err(error) => tokio::select! {
                    _ = core.cope(lane, Doing::Preparing, &error, &mut patience) => {}
                    () = &mut shutdown => return Ok(false),
                    () = core.draining.cancelled() => return Ok(false),
                },
            }
        }
        if core.settings.survives_restart {
            tokio::select! {
                () = recovery::release_history(core, lane) => {}
                () = &mut shutdown => return Ok(false),
                () = core.draining.cancelled() => return Ok(false),
            }
        }
        info!(
            stream = &*lane.stream,
            group = &*lane.group,
            consumer = &*lane.consumer,
            place = core.backend.place(),
            "at work"
        );
    }
    Ok(true)
}

/// The tasks beside the slots.
struct Tasks {
    /// Those that bring messages. They end when the worker drains.
    bringing: JoinSet<()>,
    /// Those that tell the store. They end when there is nothing more to tell.
    settling: JoinSet<()>,
    /// Those that keep leases. They are needed to the last and end by being dropped.
    keeping: JoinSet<()>,
}

/// Spawns a task that works on one stream.
macro_rules! spawn {
    ($tasks:expr, $core:expr, $index:expr, $task:expr) => {{
        let core = Arc::clone($core);
        $tasks.spawn(async move { $task(&core, &core.lanes[$index]).await });
    }};
}

impl Tasks {
    fn start(core: &Arc<Core>) -> Tasks {
        let (mut bringing, mut settling, mut keeping) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        for index in 0..core.lanes.len() {
            spawn!(settling, core, index, settle);
            spawn!(keeping, core, index, lease::keep);
            spawn!(bringing, core, index, fetch);
            spawn!(bringing, core, index, retry::retry);
            spawn!(bringing, core, index, recovery::recover);
            if let (Some(gone_for), Some(admin)) = (core.settings.reap_after, core.admin.clone()) {
                spawn!(bringing, core, index, async |core, lane| {
                    recovery::reap(core, lane, &*admin, gone_for).await;
                });
            }
        }
        if let (Some(policy), Some(admin)) = (core.settings.autoscale.clone(), core.admin.clone()) {
            let core = Arc::clone(core);
            bringing.spawn(async move { autoscale(&core, Monitor::new(admin), policy).await });
        }
        Tasks { bringing, settling, keeping }
    }
}

impl Tasks {
    /// Waits until one of them panics.
    async fn panicked(&mut self) {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.bringing.join_next() => ended,
                Some(ended) = self.settling.join_next() => ended,
                Some(ended) = self.keeping.join_next() => ended,
            };
            if ended.is_err() {
                return;
            }
        }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Closed, "a task of the worker panicked; what it held is released")
}

/// The slots there are.
struct Slots {
    core: Arc<Core>,
    work: Work,
    tasks: JoinSet<()>,
}

impl Slots {
    /// Starts those that are missing. Those that are too many notice by themselves.
    fn start_missing(&mut self, wanted: usize) {
        for slot in self.core.queue.resize(wanted) {
            let (core, work) = (Arc::clone(&self.core), self.work.clone());
            self.tasks.spawn(async move { run_slot(&core, slot, work).await });
        }
        for lane in &self.core.lanes {
            lane.metrics.pool_target.set(wanted as f64);
        }
    }

    /// Keeps as many slots as there should be, until told to drain.
    async fn follow_until(&mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) {
        let core = Arc::clone(&self.core);
        let mut wanted = core.slots.subscribe();
        loop {
            let now = *wanted.borrow_and_update();
            self.start_missing(now);
            tokio::select! {
                () = &mut shutdown => return,
                () = core.draining.cancelled() => return,
                _ = wanted.changed() => {}
                Some(ended) = self.tasks.join_next() => {
                    if ended.is_err() {
                        core.fail(panicked());
                    }
                }
            }
        }
    }
}

async fn drain(core: &Core, tasks: &mut Tasks, slots: &mut Slots) {
    let deadline = Instant::now() + core.settings.drain;
    info!(running = core.busy_slots(), "draining");
    // First the queue: what is released now must not come in again.
    core.hand_in_unstarted(core.queue.shut());
    core.draining.cancel();
    let in_time = timeout_at(deadline, async {
        all_ended(&mut slots.tasks).await;
        all_ended(&mut tasks.bringing).await;
    });
    if in_time.await.is_err() {
        warn!(running = core.busy_slots(), "draining takes too long; cancelling what still runs");
        core.lanes.iter().for_each(|lane| lane.held.cancel_all());
        if timeout(GRACE + AFTER_CANCELLING, all_ended(&mut slots.tasks)).await.is_err() {
            warn!(
                running = core.busy_slots(),
                "handlers that never wait cannot be cancelled; leaving them behind"
            );
            slots.tasks.abort_all();
        }
        tasks.bringing.abort_all();
    }
    core.lanes.iter().for_each(|lane| retry::give_up_waiting(core, lane));
    core.lanes.iter().for_each(|lane| lane.outbox.close());
    if timeout(LAST_WORDS, all_ended(&mut tasks.settling)).await.is_err() {
        core.giving_up.cancel();
        all_ended(&mut tasks.settling).await;
    }
    tasks.keeping.abort_all();
    for lane in &core.lanes {
        release_rest(core, lane).await;
        leave(core, lane).await;
    }
    info!(report = %core.tally.report(), "drained");
}

/// Takes a name out of the group that nobody will have again, if nothing is left with it.
async fn leave(core: &Core, lane: &Lane) {
    let Some(admin) = &core.admin else { return };
    if core.settings.survives_restart || core.giving_up.is_cancelled() {
        return;
    }
    let left = admin.remove_empty_consumer(lane.as_consumer());
    // A failure leaves an empty consumer behind, as a crash does.
    let _ = timeout(LEAVE_TIME, left).await;
}

async fn all_ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

/// Releases what nobody has handed in: of handlers that could not be cancelled.
async fn release_rest(core: &Core, lane: &Lane) {
    let rest = lane.held.all();
    if rest.is_empty() {
        return;
    }
    let rows: Vec<Release> = rest.iter().map(|kept| Release::counted(kept.id, kept.attempt)).collect();
    let released = core.backend.release(lane.as_consumer(), &rows);
    match timeout(LAST_WORDS, released).await {
        Ok(Ok(count)) => core.tally.released(lane, count),
        Ok(Err(_)) | Err(_) => core.tally.left_unsettled(rows.len() as u64),
    }
    lane.held.let_go(rest.iter().map(|kept| (kept.id, kept.ticket)));
}
