//! Ownership: one worker of a group owns a stream at a time, or each partition of a stream. Workers that order messages
//! need it, because only one worker may know the messages of a key.
//!
//! ```text
//! members    who should own what: a hash that every worker reads, and what every worker computes from it (balance.rs)
//! lease      who owns a stream now: renewed while the worker owns it (ownership.rs, renewal.rs)
//! fence      grows with each owner: a read of an earlier owner is refused by the store
//! control    a stream that wakes the other workers when one of them joins, leaves, or gives up a partition
//! ```
//!
//! A stream without partitions is one partition. Each ownership has a [`Subscription`] of its own: it begins by taking
//! over all pending messages in the order of their ids, and it ends when no handler of it runs. So a stream that comes
//! back to the same worker never meets handlers of its last ownership.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info};

use super::balance::{Assignment, assign};
use super::joining;
use super::leaving::{leave_group, release_remaining};
use super::members::{self, MemberRecord, exchange};
use super::renewal::claimant;
use crate::backend::{Claimant, Error, ErrorKind, NewEntry, StreamId, Trim};
use crate::names::{control_stream, members_key};
use crate::partitions::Partitions;
use crate::worker::core::Core;
use crate::worker::message::{LEASE, Ownership};
use crate::worker::stream::{Operation, OwnedStream, StoreBackoff, Subscription};

/// How long handlers can run on before a partition moves to another worker. Then they are cancelled.
const HANDOVER: Duration = Duration::from_secs(5);
/// How long the members must be the same before a worker gives partitions up: others may be starting.
pub(super) const STABLE_FOR: Duration = Duration::from_millis(300);
/// How often a worker that gives a stream up looks whether its handlers have ended.
const LEAVING_INTERVAL: Duration = Duration::from_millis(10);
/// Longest wait for the lease of another worker before the worker tries again.
pub(super) const HELD_PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long one read of the control stream waits.
const CONTROL_BLOCK: Duration = Duration::from_secs(1);
/// Number of entries to keep in the control stream.
const CONTROL_LENGTH: u64 = 1_000;
/// Maximum time for waking the other workers. If it fails, they find out within [`members::INTERVAL`].
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(1);
/// After this time without a partition, a worker says that it stands by.
const STANDBY_AFTER: Duration = Duration::from_secs(3);
/// Number of partitions on which groups are created at the same time.
const CONCURRENCY: usize = 16;

/// Finds out which of the worker's streams have partitions. If the worker orders messages or one of them has, all of
/// them become owned streams.
pub(crate) async fn find_partitions(core: &Core) -> Result<(), Error> {
    let named = core.subscriptions.all();
    let mut found = Vec::with_capacity(named.len());
    for subscription in named.iter() {
        found.push(Partitions::find(&*core.backend, &subscription.stream).await?);
    }
    if !core.settings.is_exclusive && found.iter().all(Option::is_none) {
        return Ok(());
    }
    let plain = named.iter().zip(&found).find(|(_, partitions)| partitions.is_none());
    if let (false, Some((plain, _))) = (core.settings.is_exclusive, plain) {
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "stream {} has no partitions, but another stream of this worker has: run a worker for each of them, or order \
                 both by a key",
                plain.stream
            ),
        ));
    }
    if core.pattern.is_some() {
        return Err(Error::new(
            ErrorKind::Refused,
            "a pattern of streams cannot be read together with a partitioned stream: run a worker for each",
        ));
    }
    let owned = named.iter().zip(found).map(|(subscription, partitions)| {
        let key_field = partitions.as_ref().and_then(Partitions::key_field);
        let root = Arc::new(subscription.as_root(key_field));
        OwnedStream { root, partitions }
    });
    core.become_ordered(owned.map(Arc::new).collect());
    named.iter().for_each(|subscription| core.subscriptions.remove(subscription));
    Ok(())
}

/// Checks permissions, and creates the group of a stream or of all its partitions.
pub(crate) async fn begin(core: &Arc<Core>, stream: &OwnedStream) -> Result<(), Error> {
    let Some(partitions) = &stream.partitions else {
        joining::check_access(core, &stream.root).await?;
        return joining::create_group(core, &stream.root).await;
    };
    // The permissions for one partition are those for all of them.
    let first = stream.subscription(
        core.settings.dead_letters.as_deref(),
        0,
        Ownership::new(0, Some(0), Instant::now()),
    );
    joining::check_access(core, &first).await?;
    let mut creating = JoinSet::new();
    let mut failure = None;
    for name in partitions.names() {
        if creating.len() >= CONCURRENCY
            && let Some(Ok(Err(error))) = creating.join_next().await
        {
            failure = Some(error);
        }
        let (core, name) = (Arc::clone(core), name.to_owned());
        creating.spawn(async move {
            core.backend.create_group(&name, &core.settings.group, core.settings.start).await.map(drop)
        });
    }
    while let Some(created) = creating.join_next().await {
        if let Ok(Err(error)) = created {
            failure = Some(error);
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Shares a stream with the other workers of the group, until the worker drains: acquires what the assignment gives to
/// this worker, and gives up what it has too much. Sends the subscription of each ownership to `joined`.
pub(crate) async fn share(
    core: Arc<Core>,
    stream: Arc<OwnedStream>,
    joined: mpsc::UnboundedSender<Arc<Subscription>>,
) {
    let mut sharing = Sharing::new(core, stream, joined);
    let core = Arc::clone(&sharing.core);
    let mut backoff = StoreBackoff::new();
    while !core.draining.is_cancelled() {
        let pause = tokio::select! {
            result = sharing.turn() => match result {
                Ok(pause) => {
                    core.record_success(&sharing.stream.root, Operation::Sharing);
                    backoff.reset();
                    pause
                }
                Err(error) if !error.is_transient() && error.kind() != ErrorKind::NoGroup => {
                    core.fail(error);
                    break;
                }
                Err(error) => {
                    let handled = core.handle_error(&sharing.stream.root, Operation::Sharing, &error, &mut backoff);
                    tokio::select! { _ = handled => {} () = core.draining.cancelled() => {} }
                    Duration::ZERO
                }
            },
            () = core.draining.cancelled() => break,
        };
        tokio::select! {
            () = sharing.until_changed(pause) => {}
            () = core.draining.cancelled() => {}
        }
    }
    sharing.end().await;
}

/// A stream that the worker owns.
struct Held {
    subscription: Arc<Subscription>,
    is_leaving: bool,
}

/// What one acquisition led to.
enum Acquisition {
    Ours(Arc<Subscription>),
    /// Another worker owns the stream. Its lease expires after this time.
    Held(Duration),
}

/// The state of [`share`].
struct Sharing {
    core: Arc<Core>,
    stream: Arc<OwnedStream>,
    joined: mpsc::UnboundedSender<Arc<Subscription>>,
    members_key: String,
    held: HashMap<usize, Held>,
    acquiring: JoinSet<(usize, Result<Acquisition, Error>)>,
    in_progress: BTreeSet<usize>,
    /// When to try again to acquire a partition that another worker owned.
    retry_at: HashMap<usize, Instant>,
    /// Partitions that this worker has left.
    leaving: JoinSet<usize>,
    /// Wakes this worker: another one has written to the control stream.
    woken: Arc<Notify>,
    _listening_task: JoinSet<()>,
    /// The live members, and since when they are the same.
    live: BTreeSet<String>,
    live_since: Instant,
    idle_since: Option<Instant>,
    /// Number of partitions that the log mentioned last.
    logged: Option<usize>,
}

impl Sharing {
    fn new(
        core: Arc<Core>,
        stream: Arc<OwnedStream>,
        joined: mpsc::UnboundedSender<Arc<Subscription>>,
    ) -> Sharing {
        let woken = Arc::new(Notify::new());
        let mut listening_task = JoinSet::new();
        let (listening, from, waking) = (Arc::clone(&core), Arc::clone(&stream.root), Arc::clone(&woken));
        listening_task.spawn(async move { listen(&listening, &from, &waking).await });
        Sharing {
            members_key: members_key(&stream.root.stream, &stream.root.group),
            core,
            stream,
            joined,
            held: HashMap::new(),
            acquiring: JoinSet::new(),
            in_progress: BTreeSet::new(),
            retry_at: HashMap::new(),
            leaving: JoinSet::new(),
            woken,
            _listening_task: listening_task,
            live: BTreeSet::new(),
            live_since: Instant::now(),
            idle_since: Some(Instant::now()),
            logged: None,
        }
    }

    /// Exchanges heartbeats with the other members and acts on the assignment. Returns when the next turn is due.
    async fn turn(&mut self) -> Result<Duration, Error> {
        self.leave_lost();
        let is_first = self.live.is_empty();
        let members = self.exchange().await?;
        if is_first {
            announce(&self.core, &self.stream.root, "join", None).await;
        }
        let now = Instant::now();
        let live: BTreeSet<String> = members.keys().cloned().collect();
        if live != self.live {
            (self.live, self.live_since) = (live, now);
        }
        let view: BTreeMap<&str, BTreeSet<usize>> =
            members.iter().map(|(worker, held)| (&**worker, held.clone())).collect();
        let Assignment { acquire, surplus } = assign(self.stream.len(), &view, &self.core.instance);
        // Others leave alone what this worker tries to acquire, but it may belong to one of them.
        let surplus = surplus.saturating_sub(self.in_progress.len());
        let mut next = now + members::INTERVAL;
        for number in acquire {
            match self.retry_at.get(&number) {
                Some(at) if *at > now => next = next.min(*at),
                _ => self.acquire(number),
            }
        }
        if surplus > 0 {
            let settled_at = self.live_since + STABLE_FOR;
            if settled_at <= now { self.leave_surplus(surplus) } else { next = next.min(settled_at) }
        }
        self.report(now);
        Ok(next.saturating_duration_since(Instant::now()))
    }

    /// The partitions that this worker owns and keeps.
    fn owned(&self) -> BTreeSet<usize> {
        self.held.keys().copied().collect()
    }

    async fn exchange(&self) -> Result<BTreeMap<String, BTreeSet<usize>>, Error> {
        let mut held = self.owned();
        held.extend(&self.in_progress);
        let record = MemberRecord { consumer: self.core.settings.consumer.to_string(), at_ms: 0, held };
        let backend = &*self.core.backend;
        exchange(backend, &self.stream.root.stream, &self.members_key, &self.core.instance, record).await
    }

    /// Waits until the next turn is due, or something has changed.
    async fn until_changed(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        let lost = self.held.values().filter(|held| !held.is_leaving);
        let lost = lost.filter_map(|held| held.subscription.origin.ownership.as_ref());
        let lost: Vec<_> = lost.map(|ownership| Box::pin(ownership.lost.cancelled())).collect();
        tokio::select! {
            () = sleep_until(until) => {}
            // Another worker may have given something up.
            () = self.woken.notified() => self.retry_at.clear(),
            () = any_of(lost) => {}
            Some(Ok((number, result))) = self.acquiring.join_next() => self.acquired(number, result).await,
            Some(Ok(number)) = self.leaving.join_next() => {
                self.held.remove(&number);
                // The others learn what is free before they are woken.
                let _ = self.exchange().await;
                announce(&self.core, &self.stream.root, "released", Some(number)).await;
            }
        }
    }

    fn acquire(&mut self, number: usize) {
        if self.held.contains_key(&number) || !self.in_progress.insert(number) {
            return;
        }
        let (core, stream) = (Arc::clone(&self.core), Arc::clone(&self.stream));
        self.acquiring.spawn(async move { (number, acquire(&core, &stream, number).await) });
    }

    async fn acquired(&mut self, number: usize, result: Result<Acquisition, Error>) {
        self.in_progress.remove(&number);
        match result {
            Ok(Acquisition::Ours(subscription)) => {
                self.retry_at.remove(&number);
                self.core.subscriptions.add(&[Arc::clone(&subscription)]);
                // This fails only if the worker is draining.
                let _ = self.joined.send(Arc::clone(&subscription));
                self.held.insert(number, Held { subscription, is_leaving: false });
            }
            Ok(Acquisition::Held(left)) => {
                let pause = left.clamp(Duration::from_millis(5), HELD_PAUSE_MAX);
                self.retry_at.insert(number, Instant::now() + pause);
            }
            Err(error) => {
                self.retry_at.insert(number, Instant::now() + HELD_PAUSE_MAX);
                match error.is_transient() || error.kind() == ErrorKind::NoGroup {
                    true => {
                        debug!(stream = &*self.stream.root.stream, number, %error, "cannot acquire a stream")
                    }
                    false => self.core.fail(error),
                }
            }
        }
    }

    /// Leaves the streams that this worker has lost.
    fn leave_lost(&mut self) {
        let is_lost = |held: &Held| {
            let ownership = held.subscription.origin.ownership.as_ref();
            !held.is_leaving && ownership.is_some_and(|ownership| ownership.lost.is_cancelled())
        };
        let lost: Vec<usize> =
            self.held.iter().filter(|(_, held)| is_lost(held)).map(|(number, _)| *number).collect();
        lost.into_iter().for_each(|number| self.leave(number));
    }

    /// Gives up some of the partitions: those with the fewest messages in hand.
    fn leave_surplus(&mut self, surplus: usize) {
        let leaving = self.held.values().filter(|held| held.is_leaving).count();
        let mut kept: Vec<(usize, usize)> = self
            .held
            .iter()
            .filter(|(_, held)| !held.is_leaving)
            .map(|(number, held)| (self.core.queue.in_hand(held.subscription.origin.subscription), *number))
            .collect();
        kept.sort_unstable();
        for (_, number) in kept.into_iter().take(surplus.saturating_sub(leaving)) {
            self.leave(number);
        }
    }

    fn leave(&mut self, number: usize) {
        let Some(held) = self.held.get_mut(&number) else { return };
        held.is_leaving = true;
        let (core, subscription) = (Arc::clone(&self.core), Arc::clone(&held.subscription));
        self.leaving.spawn(async move {
            leave(&core, &subscription).await;
            number
        });
    }

    /// Logs how many partitions the worker owns, and that it stands by.
    fn report(&mut self, now: Instant) {
        let (owned, of) = (self.held.values().filter(|held| !held.is_leaving).count(), self.stream.len());
        let (stream, group) = (&*self.stream.root.stream, &*self.stream.root.group);
        if owned > 0 {
            self.idle_since = None;
        } else if *self.idle_since.get_or_insert(now) + STANDBY_AFTER > now {
            return;
        }
        if self.logged == Some(owned) || !self.in_progress.is_empty() {
            return;
        }
        self.logged = Some(owned);
        match (owned, self.stream.partitions.is_some()) {
            (0, false) => info!(stream, group, "standing by: another worker owns the stream"),
            (0, true) => {
                info!(stream, group, partitions = of, "standing by: other workers own all partitions")
            }
            (_, false) => {
                let fences =
                    self.held.values().filter_map(|held| held.subscription.origin.ownership.as_ref());
                let fence = fences.map(|ownership| ownership.fence).max();
                info!(stream, group, fence, "owning the stream");
            }
            (_, true) => info!(stream, group, owned, partitions = of, "owning partitions"),
        }
    }

    /// Ends the membership. The streams that the worker still owns are given up when it has drained.
    async fn end(mut self) {
        let Sharing { core, stream, members_key, .. } = &self;
        let gone = core.backend.hash_delete(members_key, std::slice::from_ref(&core.instance));
        // If this fails, the others find out after a second.
        let _ = timeout(ANNOUNCE_TIMEOUT, gone).await;
        announce(core, &stream.root, "leave", None).await;
        while let Some(Ok((_, result))) = self.acquiring.join_next().await {
            if let Ok(Acquisition::Ours(subscription)) = result {
                give_up(&self.core, &subscription).await;
            }
        }
        while self.leaving.join_next().await.is_some() {}
    }
}

/// Waits until one of the futures is ready. If the list is empty, waits forever.
async fn any_of<F: Future<Output = ()> + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|cx| {
        let is_ready = futures.iter_mut().any(|future| std::pin::Pin::new(future).poll(cx).is_ready());
        if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Acquires a stream, and prepares to read it.
async fn acquire(core: &Core, stream: &OwnedStream, number: usize) -> Result<Acquisition, Error> {
    let name = stream.name(number);
    let claimant = Claimant { stream: &name, group: &stream.root.group, instance: &core.instance };
    let sent_at = Instant::now();
    let owner = core.backend.acquire(claimant, LEASE).await?;
    if owner.instance != core.instance {
        return Ok(Acquisition::Held(owner.lease_left));
    }
    let partition = stream.partitions.is_some().then_some(number);
    let dead_letters = core.settings.dead_letters.as_deref();
    let subscription =
        stream.subscription(dead_letters, number, Ownership::new(owner.fence, partition, sent_at));
    if let Err(error) = joining::create_group(core, &subscription).await {
        let _ = core.backend.give_up(claimant, owner.fence).await;
        return Err(error);
    }
    debug!(stream = &*name, fence = owner.fence, "acquired a stream");
    Ok(Acquisition::Ours(Arc::new(subscription)))
}

/// Leaves a stream: stops reading, lets its handlers finish, returns to the store what none began with, and gives the
/// stream up. If the stream is lost, the messages belong to another worker, and are only dropped.
async fn leave(core: &Arc<Core>, subscription: &Arc<Subscription>) {
    let id = subscription.origin.subscription;
    subscription.stopping.cancel();
    core.queue.refuse(id);
    let deadline = Instant::now() + HANDOVER;
    let mut is_cancelled = false;
    loop {
        core.release_unstarted(core.queue.take_back(id));
        core.release_delayed(subscription);
        if core.queue.in_hand(id) == 0 && subscription.in_flight.is_empty() {
            break;
        }
        if !is_cancelled && Instant::now() >= deadline {
            is_cancelled = true;
            subscription.in_flight.cancel_all();
        }
        sleep(LEAVING_INTERVAL).await;
    }
    subscription.left.cancel();
    subscription.outbox.close();
    // A task that is still in a call to the store could read once more, and create the consumer again.
    subscription.tasks.close();
    subscription.tasks.wait().await;
    core.subscriptions.remove(subscription);
    core.queue.forget(id);
    if subscription.origin.ownership.as_ref().is_some_and(|ownership| !ownership.lost.is_cancelled()) {
        release_remaining(core, subscription).await;
        leave_group(core, subscription).await;
        give_up(core, subscription).await;
    }
}

/// Gives up the stream of a subscription, if the worker owns it.
pub(crate) async fn give_up(core: &Core, subscription: &Subscription) {
    let Some(ownership) = &subscription.origin.ownership else { return };
    if ownership.lost.is_cancelled() {
        return;
    }
    ownership.lost.cancel();
    let given_up = core.backend.give_up(claimant(core, subscription), ownership.fence);
    // If this fails, the lease expires.
    let _ = timeout(ANNOUNCE_TIMEOUT, given_up).await;
}

/// Wakes the other workers: this one has drained, and has given up everything.
pub(crate) async fn wake_others(core: &Core) {
    for stream in core.owned_streams() {
        announce(core, &stream.root, "drained", None).await;
    }
}

/// Writes to the control stream, which wakes the other workers.
async fn announce(core: &Core, root: &Subscription, event: &str, partition: Option<usize>) {
    let mut fields = vec![
        ("event".into(), event.to_owned().into()),
        ("worker".into(), core.instance.clone().into()),
        ("consumer".into(), root.consumer.to_string().into()),
    ];
    fields.extend(partition.map(|number| ("partition".into(), number.to_string().into())));
    let entry = [NewEntry { fields, idempotence: None }];
    let control = control_stream(&root.stream, &root.group);
    let added = core.backend.add(&control, &entry, Some(Trim::about(CONTROL_LENGTH)));
    // If this fails, the others find out with their next heartbeat.
    let _ = timeout(ANNOUNCE_TIMEOUT, added).await;
}

/// Rings the woken whenever a worker writes to the control stream.
async fn listen(core: &Core, root: &Subscription, woken: &Notify) {
    let control = control_stream(&root.stream, &root.group);
    // Until it is known what is new, any entry rings the woken.
    let mut last = StreamId::MIN;
    if let Ok(Some(info)) = core.backend.stream(&control).await {
        last = info.last_id;
    }
    loop {
        match core.backend.follow(&control, last, 100, CONTROL_BLOCK).await {
            Ok(found) => {
                if let Some(entry) = found.last() {
                    last = entry.id;
                    woken.notify_one();
                }
            }
            // The task that exchanges heartbeats reports an outage.
            Err(_) => sleep(members::INTERVAL).await,
        }
    }
}
