//! Runs a worker: prepare, work, drain.
//!
//! ```text
//!         read                                                            acknowledge, dead-letter, release
//! store -------> fetcher -> admission -> queue -> pool -------> outbox -> settler -------> store
//!                   ^           |                                           |
//!                   |           +-- deleted, too many deliveries, duplicate +
//!        recovery --+-- delayed <-- possible duplicate, refused dead letter +
//! ```
//!
//! A message that failed is released and waits in the store. If the worker orders messages by key, it stays in its lane
//! instead (`settle/keep.rs`). Draining empties the stages in the same order. The worker
//! reads no more messages, releases prefetched and delayed messages, and lets running handlers finish. At the deadline
//! it cancels the remaining handlers and releases their messages. Finally the settlers settle the jobs that are left in
//! the outboxes.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::backend::{BackendFuture, Error, ErrorKind};
use crate::handler::HandlerService;
use crate::monitor::Monitor;
use crate::worker::core::{Core, Report};
use crate::worker::own::beat::beat;
use crate::worker::own::leaving::{leave_group, release_remaining};
use crate::worker::own::{joining, predecessors, renewal, sharing};
use crate::worker::read::fetcher::fetch;
use crate::worker::read::{delayed, discovery, owned_fetcher, pattern_fetcher, probing, recovery};
use crate::worker::run::autoscaler::autoscale;
use crate::worker::run::lease;
use crate::worker::run::{CANCEL_GRACE, remind, run_slot};
use crate::worker::settle::delete_done::{delete_done, delete_last};
use crate::worker::settle::{records, settle};
use crate::worker::stream::{Operation, StoreBackoff, Subscription, for_each};
use crate::worker::watch::{heartbeat, policy_task, status};

/// How long to wait for cancelled handlers to end, in addition to `CANCEL_GRACE`.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the settlers can take to settle the last messages.
const FINAL_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long leaving all groups can take.
const LEAVE_ALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Spawns a task for one subscription. The task ends when the worker leaves the stream. Exception: the settler ends by
/// itself.
macro_rules! spawn {
    ($tasks:expr, $core:expr, $subscription:expr, settle) => {{
        let (core, subscription) = (Arc::clone($core), Arc::clone($subscription));
        let tasks = subscription.tasks.clone();
        $tasks.spawn(tasks.track_future(async move { settle(&core, &subscription).await }));
    }};
    ($tasks:expr, $core:expr, $subscription:expr, $task:expr) => {{
        let (core, subscription) = (Arc::clone($core), Arc::clone($subscription));
        let tasks = subscription.tasks.clone();
        $tasks.spawn(tasks.track_future(async move {
            tokio::select! {
                () = async { $task(&core, &subscription).await } => {}
                () = subscription.left.cancelled() => {}
            }
        }));
    }};
}

/// Runs a worker until the future completes or a handle drains it.
pub(crate) async fn run(
    core: Arc<Core>,
    handler: HandlerService,
    listen: Option<&str>,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, Error> {
    // The HTTP server for health checks and metrics runs until this function returns.
    let _status = match listen {
        Some(address) => Some(status::serve(&core, address).await?),
        None => None,
    };
    let mut heartbeats = JoinSet::new();
    let result = work(&core, handler, &mut heartbeats, pin!(shutdown)).await;
    // Heartbeats end last: until now, no other worker with this consumer name may start.
    heartbeats.abort_all();
    join_all(&mut heartbeats).await;
    heartbeat::remove(&core).await;
    result?;
    match core.failure.lock().take() {
        Some(error) => Err(error),
        None => Ok(core.counters.report()),
    }
}

/// Prepares, works and drains. Adds a task to `heartbeats` for each stream.
async fn work(
    core: &Arc<Core>,
    handler: HandlerService,
    heartbeats: &mut JoinSet<()>,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Error> {
    tokio::select! {
        prepared = prepare(core, heartbeats) => prepared?,
        () = &mut shutdown => return Ok(()),
        () = core.draining.cancelled() => return Ok(()),
    }
    let mut slots = SlotTasks { core: Arc::clone(core), handler, tasks: JoinSet::new() };
    slots.start_missing(*core.slots.borrow());
    let mut tasks = Tasks::start(core);
    tokio::select! {
        () = slots.follow_target_until(shutdown) => {}
        // A panic of such a task is a bug in this crate. The messages of the task would stay in flight forever, so the
        // worker ends and releases them.
        () = tasks.start_joined_until_panic(core, heartbeats) => core.fail(panic_error()),
    }
    drain(core, &mut tasks, &mut slots).await;
    core.failure_log.finish();
    Ok(())
}

/// Creates the groups, starts heartbeats, and releases the entries that the previous process with this consumer name
/// left pending. Can be cancelled.
async fn prepare(core: &Arc<Core>, heartbeats: &mut JoinSet<()>) -> Result<(), Error> {
    // The name is only for operators, so the worker starts without it if the store refuses it.
    let _ = core.backend.set_client_name(&core.settings.consumer).await;
    let named = core.subscriptions.all();
    until_prepared(core, &named, || Box::pin(sharing::find_partitions(core))).await?;
    for stream in core.owned_streams() {
        let root = std::slice::from_ref(&stream.root);
        until_prepared(core, root, || Box::pin(sharing::begin(core, stream))).await?;
    }
    for subscription in core.subscriptions.all().iter() {
        let one = std::slice::from_ref(subscription);
        until_prepared(core, one, || Box::pin(begin(core, subscription))).await?;
    }
    for subscription in core.announced().iter() {
        joining::claim_name(core, subscription).await?;
        spawn!(heartbeats, core, subscription, beat);
        joining::release_history(core, subscription).await;
        info!(
            stream = &*subscription.stream,
            group = &*subscription.group,
            consumer = &*subscription.consumer,
            store = core.backend.location(),
            "worker started"
        );
    }
    prepare_pattern(core).await
}

/// Repeats a step of the preparation until the store executes it. An outage is reported for the first of these
/// subscriptions.
async fn until_prepared<'a>(
    core: &Core,
    subscriptions: &[Arc<Subscription>],
    step: impl Fn() -> BackendFuture<'a, ()>,
) -> Result<(), Error> {
    let mut backoff = StoreBackoff::new();
    let Some(first) = subscriptions.first() else { return step().await };
    loop {
        match step().await {
            Ok(()) => {
                for subscription in subscriptions {
                    core.record_success(subscription, Operation::Preparing);
                    subscription.metrics.backend_up.set(1.0);
                    subscription.metrics.breaker_open.set(0.0);
                }
                return Ok(());
            }
            // Only the caller can correct the request, so the error is returned instead of retried.
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => {
                core.handle_error(first, Operation::Preparing, &error, &mut backoff).await;
            }
        }
    }
}

/// Checks that the worker can find streams, if it has a pattern.
async fn prepare_pattern(core: &Core) -> Result<(), Error> {
    let Some(pattern) = &core.pattern else { return Ok(()) };
    let mut backoff = StoreBackoff::new();
    loop {
        match discovery::check(core).await {
            Ok(()) => break,
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => {
                pattern.record_failure(&core.backend.location(), Operation::Discovering, &error);
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
    pattern.record_success(&core.backend.location(), Operation::Discovering);
    pattern.metrics.backend_up.set(1.0);
    pattern.metrics.breaker_open.set(0.0);
    Ok(())
}

async fn begin(core: &Core, subscription: &Subscription) -> Result<(), Error> {
    joining::check_access(core, subscription).await?;
    joining::create_group(core, subscription).await
}

/// The tasks of a worker other than its slots.
struct Tasks {
    /// Tasks that read and claim messages, handle delayed ones, and scale the pool. They end when the worker drains.
    readers: JoinSet<()>,
    /// Tasks that settle messages. Each ends when its outbox is closed and empty.
    settlers: JoinSet<()>,
    /// Tasks that extend leases. They are aborted at the end of the drain.
    lease_keepers: JoinSet<()>,
    /// Streams that the worker has joined while it runs.
    joined: mpsc::UnboundedReceiver<Arc<Subscription>>,
}

impl Tasks {
    fn start(core: &Arc<Core>) -> Tasks {
        let (joined_sender, joined) = mpsc::unbounded_channel();
        let (settlers, lease_keepers) = (JoinSet::new(), JoinSet::new());
        let mut tasks = Tasks { readers: JoinSet::new(), settlers, lease_keepers, joined };
        for subscription in core.subscriptions.all().iter() {
            tasks.start_for(core, subscription);
            spawn!(tasks.readers, core, subscription, fetch);
        }
        for stream in core.owned_streams() {
            let (core, stream, joined) = (Arc::clone(core), Arc::clone(stream), joined_sender.clone());
            tasks.readers.spawn(sharing::share(core, stream, joined));
        }
        let readers = &mut tasks.readers;
        if core.pattern.is_some() {
            let fetching = Arc::clone(core);
            readers.spawn(async move { pattern_fetcher::fetch(&fetching).await });
            readers.spawn(discovery::discover(Arc::clone(core), joined_sender));
        }
        if core.is_ordered() {
            let ordering = Arc::clone(core);
            readers.spawn(async move { delayed::handle_heads(&ordering).await });
        }
        if core.settings.breaker.is_some() {
            let (probing, reminding) = (Arc::clone(core), Arc::clone(core));
            readers.spawn(async move { probing::probe(&probing).await });
            readers.spawn(async move { remind(&reminding).await });
        }
        if let (Some(policy), Some(admin)) = (core.settings.autoscale.clone(), core.admin.clone()) {
            let core = Arc::clone(core);
            readers.spawn(async move { autoscale(&core, Monitor::new(admin), policy).await });
        }
        tasks
    }

    /// Starts the tasks of one stream, except for the one that reads it.
    fn start_for(&mut self, core: &Arc<Core>, subscription: &Arc<Subscription>) {
        spawn!(self.settlers, core, subscription, settle);
        spawn!(self.lease_keepers, core, subscription, lease::keep);
        if subscription.origin.ownership.is_some() {
            spawn!(self.lease_keepers, core, subscription, renewal::renew);
            spawn!(self.readers, core, subscription, owned_fetcher::fetch);
        }
        spawn!(self.readers, core, subscription, delayed::handle_delayed);
        spawn!(self.readers, core, subscription, recovery::recover);
        spawn!(self.readers, core, subscription, policy_task::watch);
        if core.settings.delete_done {
            spawn!(self.readers, core, subscription, delete_done);
        }
        if let Some(admin) = core.admin.clone() {
            spawn!(self.readers, core, subscription, async |core, subscription| {
                records::delete_orphaned(core, subscription, &*admin).await;
            });
        }
        if let (Some(idle_for), Some(admin)) = (core.settings.reap_after, core.admin.clone()) {
            spawn!(self.readers, core, subscription, async |core, subscription| {
                predecessors::remove_idle_consumers(core, subscription, &*admin, idle_for).await;
            });
        }
    }

    /// Starts the tasks of streams that the worker joins, until a task panics.
    async fn start_joined_until_panic(&mut self, core: &Arc<Core>, heartbeats: &mut JoinSet<()>) {
        loop {
            let ended = tokio::select! {
                Some(subscription) = self.joined.recv() => {
                    self.start_for(core, &subscription);
                    // An owned stream has the heartbeats of its root.
                    if subscription.origin.ownership.is_none() {
                        spawn!(heartbeats, core, &subscription, beat);
                    }
                    continue;
                }
                Some(ended) = self.readers.join_next() => ended,
                Some(ended) = self.settlers.join_next() => ended,
                Some(ended) = self.lease_keepers.join_next() => ended,
                Some(ended) = heartbeats.join_next() => ended,
            };
            if ended.is_err() {
                return;
            }
        }
    }
}

fn panic_error() -> Error {
    Error::new(
        ErrorKind::Closed,
        "a task of the worker panicked, which is a bug; the worker has released its messages",
    )
}

/// The tasks that run handlers, one for each slot.
struct SlotTasks {
    core: Arc<Core>,
    handler: HandlerService,
    tasks: JoinSet<()>,
}

impl SlotTasks {
    /// Starts slots up to the target. Surplus slots end by themselves.
    fn start_missing(&mut self, wanted: usize) {
        for slot in self.core.queue.resize(wanted) {
            let (core, handler) = (Arc::clone(&self.core), self.handler.clone());
            self.tasks.spawn(async move { run_slot(&core, slot, handler).await });
        }
        self.core.metrics.iter().for_each(|metrics| metrics.pool_target.set(wanted as f64));
    }

    /// Keeps the number of slots at the target until the worker should drain.
    async fn follow_target_until(&mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) {
        let core = Arc::clone(&self.core);
        let mut wanted = core.slots.subscribe();
        loop {
            let now = *wanted.borrow_and_update();
            self.start_missing(now);
            tokio::select! {
                () = &mut shutdown => return,
                () = core.draining.cancelled() => return,
                _ = wanted.changed() => {}
                Some(joined) = self.tasks.join_next() => {
                    if joined.is_err() {
                        core.fail(panic_error());
                    }
                }
            }
        }
    }
}

/// Stops a worker: waits for its handlers or cancels them, settles the last messages and leaves the group.
async fn drain(core: &Arc<Core>, tasks: &mut Tasks, slots: &mut SlotTasks) {
    let deadline = Instant::now() + core.settings.drain;
    info!(running_handlers = core.busy_slots(), "draining: waiting for running handlers to finish");
    // The queue closes first, so that no task puts released messages into it again.
    core.release_unstarted(core.queue.close());
    core.draining.cancel();
    let in_time = timeout_at(deadline, async {
        join_all(&mut slots.tasks).await;
        join_all(&mut tasks.readers).await;
    });
    if in_time.await.is_err() {
        warn!(running_handlers = core.busy_slots(), "drain deadline reached: cancelling running handlers");
        core.subscriptions.all().iter().for_each(|subscription| subscription.in_flight.cancel_all());
        if timeout(CANCEL_GRACE + ABORT_TIMEOUT, join_all(&mut slots.tasks)).await.is_err() {
            warn!(
                running_handlers = core.busy_slots(),
                "handlers did not stop after they were cancelled: abandoning them and releasing their messages"
            );
            slots.tasks.abort_all();
        }
        tasks.readers.abort_all();
    }
    let subscriptions = core.subscriptions.all();
    subscriptions.iter().for_each(|subscription| core.release_delayed(subscription));
    subscriptions.iter().for_each(|subscription| subscription.outbox.close());
    if timeout(FINAL_SETTLE_TIMEOUT, join_all(&mut tasks.settlers)).await.is_err() {
        core.giving_up.cancel();
        join_all(&mut tasks.settlers).await;
    }
    tasks.lease_keepers.abort_all();
    let leaving = for_each(&subscriptions, |subscription| {
        let core = Arc::clone(core);
        async move {
            release_remaining(&core, &subscription).await;
            delete_last(&core, &subscription).await;
            leave_group(&core, &subscription).await;
            sharing::give_up(&core, &subscription).await;
        }
    });
    if timeout(LEAVE_ALL_TIMEOUT, leaving).await.is_err() {
        warn!("the store is slow: other workers will remove this worker from its groups");
    }
    sharing::wake_others(core).await;
    let report = core.counters.report();
    let nonzero = |count: u64| Some(count).filter(|count| *count > 0);
    info!(
        received = report.received,
        acknowledged = report.acknowledged,
        skipped = nonzero(report.skipped),
        deduplicated = nonzero(report.deduplicated),
        dead = nonzero(report.dead),
        retried = nonzero(report.retried),
        released = nonzero(report.released),
        redelivered = nonzero(report.redelivered),
        lost_leases = nonzero(report.lost_leases),
        unsettled = nonzero(report.unsettled),
        "drained"
    );
}

async fn join_all(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
