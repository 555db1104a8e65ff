//! Finds the streams that match a worker's pattern. The worker joins new ones, and leaves those that were deleted.
//!
//! A stream counts as deleted only if the store says so when asked for it by name. The list of all streams does not
//! suffice: while a slot of a cluster moves, a list can miss its streams.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::backend::{Admin, Error, ErrorKind, Start};
use crate::names::can_match_pattern;
use crate::worker::core::Core;
use crate::worker::own::joining;
use crate::worker::stream::{Operation, Pattern, StoreBackoff, StreamTrouble, Subscription};
use crate::worker::watch::heartbeat;

/// Maximum number of streams of a pattern that a worker reads.
pub(crate) const PATTERN_STREAMS_MAX: usize = 10_000;
/// How often a worker looks for streams.
const INTERVAL: Duration = Duration::from_secs(1);
/// If the store has many keys, the worker looks less often: after this number of times as long as listing the streams
/// took.
const PAUSE_FACTOR: u32 = 20;
/// The longest pause before the worker looks again.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Number of streams that the worker joins or leaves at the same time.
const CONCURRENCY: usize = 16;
/// After this time the worker tries again to join a stream that it could not read.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Checks that the worker may list streams, and may do everything with the first one that matches.
pub(crate) async fn check(core: &Core) -> Result<(), Error> {
    let (Some(pattern), Some(admin)) = (&core.pattern, &core.admin) else { return Ok(()) };
    let listed = admin.streams(&pattern.glob).await?;
    let first = listed.iter().find(|name| can_match_pattern(name));
    if let Some(name) = first {
        joining::check_access(core, &new_subscription(core, pattern, name)).await?;
    }
    info!(
        pattern = pattern.glob,
        group = &*core.settings.group,
        consumer = &*core.settings.consumer,
        streams = listed.len(),
        store = core.backend.location(),
        "worker started"
    );
    Ok(())
}

fn new_subscription(core: &Core, pattern: &Pattern, name: &str) -> Arc<Subscription> {
    let dead_letters = pattern.dead_letters.as_deref();
    let (group, consumer) = (&core.settings.group, &core.settings.consumer);
    Arc::new(Subscription::new(name, group, consumer, dead_letters, &pattern.metrics, None).discovered())
}

/// Looks for streams until the worker drains. Sends each stream that the worker has joined to `joined`.
pub(crate) async fn discover(core: Arc<Core>, joined: mpsc::UnboundedSender<Arc<Subscription>>) {
    let (Some(pattern), Some(admin)) = (&core.pattern, &core.admin) else { return };
    let mut search = Search { start: core.settings.start, refused: HashMap::new(), is_over_limit: false };
    let mut backoff = StoreBackoff::new();
    loop {
        let pause = tokio::select! {
            result = search.run(&core, pattern, &**admin, &joined) => match result {
                Ok(listing_took) => {
                    backoff.reset();
                    pattern.record_success(&core.backend.location(), Operation::Discovering);
                    (listing_took * PAUSE_FACTOR).clamp(INTERVAL, PAUSE_MAX)
                }
                Err(error) if error.kind() == ErrorKind::Closed => {
                    core.fail(error);
                    return;
                }
                Err(error) => {
                    pattern.record_failure(&core.backend.location(), Operation::Discovering, &error);
                    backoff.next_delay()
                }
            },
            () = core.draining.cancelled() => return,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = pattern.attention() => {}
            () = core.draining.cancelled() => return,
        }
    }
}

/// What a search remembers from one run to the next.
struct Search {
    /// Where groups of new streams start.
    start: Start,
    /// Streams that could not be joined or read, and when that was.
    refused: HashMap<String, Instant>,
    /// Whether the last run found more streams than a worker reads.
    is_over_limit: bool,
}

impl Search {
    /// Joins new streams and leaves deleted ones. Returns how long listing the streams took.
    async fn run(
        &mut self,
        core: &Arc<Core>,
        pattern: &Pattern,
        admin: &dyn Admin,
        joined: &mpsc::UnboundedSender<Arc<Subscription>>,
    ) -> Result<Duration, Error> {
        let subscriptions = core.subscriptions.all();
        let (ours, named): (Vec<_>, Vec<_>) =
            subscriptions.iter().partition(|subscription| subscription.is_discovered);
        let named: HashSet<&str> = named.iter().map(|subscription| &*subscription.stream).collect();
        let began = Instant::now();
        let listed = admin.streams(&pattern.glob).await?;
        let listing_took = began.elapsed();
        let listed: HashSet<String> = listed
            .into_iter()
            .filter(|name| can_match_pattern(name) && !named.contains(&**name))
            .filter(|name| pattern.dead_letters.as_ref() != Some(name))
            .collect();
        let mut left = HashSet::new();
        for subscription in ours.iter().filter(|subscription| !listed.contains(&*subscription.stream)) {
            if core.backend.stream(&subscription.stream).await?.is_none() {
                left.insert(Arc::clone(&subscription.stream));
                leave(core, pattern, subscription, "it was deleted").await;
            }
        }
        for subscription in ours.iter().filter(|subscription| !left.contains(&subscription.stream)) {
            self.attend(core, pattern, subscription).await?;
        }
        let known: HashSet<&str> = ours.iter().map(|subscription| &*subscription.stream).collect();
        let now = Instant::now();
        self.refused.retain(|_, since| now.duration_since(*since) < REFUSED_FOR);
        let new = listed.iter().filter(|name| !known.contains(&***name) && !self.refused.contains_key(*name));
        let mut new: Vec<&String> = new.collect();
        new.sort_unstable();
        self.limit(pattern, known.len(), &mut new);
        for some in new.chunks(CONCURRENCY) {
            self.join_all(core, pattern, some, joined).await?;
        }
        // The configured start is for streams that exist when the worker starts. Nothing of a later stream is skipped.
        self.start = Start::Beginning;
        Ok(listing_took)
    }

    /// Removes what exceeds the maximum number of streams.
    fn limit(&mut self, pattern: &Pattern, known: usize, new: &mut Vec<&String>) {
        let room = PATTERN_STREAMS_MAX.saturating_sub(known);
        let is_over_limit = new.len() > room;
        if is_over_limit && !self.is_over_limit {
            warn!(
                pattern = pattern.glob,
                not_read = new.len() - room,
                "more than {PATTERN_STREAMS_MAX} streams match: use a narrower pattern, and several workers"
            );
        }
        self.is_over_limit = is_over_limit;
        new.truncate(room);
    }

    async fn join_all(
        &mut self,
        core: &Arc<Core>,
        pattern: &Pattern,
        names: &[&String],
        joined: &mpsc::UnboundedSender<Arc<Subscription>>,
    ) -> Result<(), Error> {
        let mut joining = JoinSet::new();
        for name in names {
            let (core, name) = (Arc::clone(core), (*name).clone());
            let start = self.start;
            joining.spawn(async move { (join(&core, &name, start).await, name) });
        }
        let (mut failure, mut new) = (None, Vec::new());
        while let Some(ended) = joining.join_next().await {
            let Ok((result, name)) = ended else { continue };
            match result {
                Ok(Some(subscription)) => {
                    debug!(stream = name, pattern = pattern.glob, "joined a stream");
                    new.push(subscription);
                }
                // The stream was deleted since it was listed.
                Ok(None) => {}
                Err(error) if error.is_transient() || error.kind() == ErrorKind::Closed => {
                    failure = Some(error);
                }
                Err(error) if error.kind() == ErrorKind::NameInUse => {
                    core.fail(error);
                    return Ok(());
                }
                Err(error) => {
                    warn!(stream = name, pattern = pattern.glob, %error, "cannot join a stream");
                    self.refused.insert(name, Instant::now());
                }
            }
        }
        core.subscriptions.add(&new);
        pattern.change();
        for subscription in new {
            // This fails only if the worker is draining.
            let _ = joined.send(subscription);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Deals with the trouble of a stream, if it has any.
    async fn attend(
        &mut self,
        core: &Core,
        pattern: &Pattern,
        subscription: &Arc<Subscription>,
    ) -> Result<(), Error> {
        match subscription.trouble() {
            None => Ok(()),
            Some(StreamTrouble::NoGroup) => {
                let start = core.start_of_recreated_group(subscription).await?;
                let Subscription { stream, group, .. } = &**subscription;
                if core.backend.join_group(stream, group, start).await? {
                    warn!(
                        stream = &**stream,
                        group = &**group,
                        "the consumer group did not exist: created it again"
                    );
                    core.counters.group_recreated();
                    subscription.clear_trouble();
                    pattern.change();
                } else {
                    leave(core, pattern, subscription, "it was deleted").await;
                }
                Ok(())
            }
            Some(StreamTrouble::Refused) => {
                self.refused.insert(subscription.stream.to_string(), Instant::now());
                leave(core, pattern, subscription, "the store refuses to read it").await;
                Ok(())
            }
        }
    }
}

/// Joins a stream. Returns `None` if it no longer exists.
async fn join(core: &Core, name: &str, start: Start) -> Result<Option<Arc<Subscription>>, Error> {
    let Some(pattern) = &core.pattern else { return Ok(None) };
    let subscription = new_subscription(core, pattern, name);
    let joined = joining::join_existing(core, &subscription, start).await?;
    Ok(joined.then_some(subscription))
}

/// Leaves a stream. Its tasks end, and what they remember is dropped.
async fn leave(core: &Core, pattern: &Pattern, subscription: &Arc<Subscription>, reason: &str) {
    info!(stream = &*subscription.stream, pattern = pattern.glob, reason, "left a stream");
    core.subscriptions.remove(subscription);
    pattern.change();
    subscription.left.cancel();
    subscription.outbox.close();
    subscription.in_flight.cancel_all();
    heartbeat::remove_from(core, subscription).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Registry, WorkerMetrics};

    #[test]
    fn a_worker_reads_a_limited_number_of_streams() {
        let metrics = Arc::new(WorkerMetrics::new(&Registry::default(), "s:*", "g", "h"));
        let pattern = Pattern::new("s:*".to_owned(), None, metrics);
        let mut search = Search { start: Start::Beginning, refused: HashMap::new(), is_over_limit: false };
        let names: Vec<String> = (0..=PATTERN_STREAMS_MAX).map(|n| format!("s:{n}")).collect();
        let mut joined = |known: usize| {
            let mut new: Vec<&String> = names.iter().collect();
            search.limit(&pattern, known, &mut new);
            (new.len(), search.is_over_limit)
        };
        assert_eq!(joined(0), (PATTERN_STREAMS_MAX, true));
        assert_eq!(joined(PATTERN_STREAMS_MAX - 1), (1, true));
        assert_eq!(joined(PATTERN_STREAMS_MAX), (0, true));
        let mut fitting: Vec<&String> = names[1..].iter().collect();
        search.limit(&pattern, 0, &mut fitting);
        assert_eq!((fitting.len(), search.is_over_limit), (PATTERN_STREAMS_MAX, false));
    }
}
