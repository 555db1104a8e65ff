//! Reads all streams of a pattern in one task, many in one call.
//!
//! As for a single stream, a read is never cancelled. Otherwise messages could be delivered to this worker without its
//! knowledge, and would stay pending until their leases run out.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::admission::admit;
use super::read_plan::{PlannedRead, ReadPlan};
use crate::backend::{Error, ErrorKind, ReadMany, StreamRead};
use crate::worker::core::Core;
use crate::worker::queue::Room;
use crate::worker::stream::{Operation, Pattern, StoreBackoff, StreamTrouble, Subscription};

/// Reads messages until the worker drains.
pub(crate) async fn fetch(core: &Core) {
    let Some(pattern) = &core.pattern else { return };
    let mut streams = StreamsOfPattern::default();
    let mut plan = ReadPlan::new(Instant::now());
    let mut backoff = StoreBackoff::new();
    while let Some(room) = core.queue.wait_for_room(None).await {
        if streams.update(core, pattern) {
            plan.set_streams(streams.by_name.keys().cloned().collect());
        }
        let Some(read) = plan.next(room.count, Instant::now()) else {
            tokio::select! {
                () = pattern.changed() => continue,
                () = core.draining.cancelled() => return,
            }
        };
        tokio::select! {
            () = sleep_until(read.not_before) => {}
            () = core.draining.cancelled() => return,
        }
        // The store delivers the messages after this moment, so each lease lasts at least until one lease after it.
        let sent_at = Instant::now();
        match send(core, &read, room).await {
            Ok(found) => {
                backoff.reset();
                let found = streams.sort_out(core, pattern, &read, found);
                let counts: Vec<(usize, usize)> = found.iter().map(|found| found.count()).collect();
                plan.record(&read, &counts, room.count, Instant::now());
                for FoundStreams { subscription, deliveries, .. } in found {
                    admit(core, &subscription, deliveries, sent_at).await;
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => {
                core.fail(error);
                return;
            }
            Err(error) => {
                pattern.record_failure(&core.backend.location(), Operation::Reading, &error);
                tokio::select! {
                    () = tokio::time::sleep(backoff.next_delay()) => {}
                    () = core.draining.cancelled() => return,
                }
            }
        }
    }
}

async fn send(core: &Core, read: &PlannedRead, room: Room) -> Result<Vec<StreamRead>, Error> {
    let settings = &core.settings;
    let request = ReadMany {
        streams: &read.streams,
        group: &settings.group,
        consumer: &settings.consumer,
        count: read.count,
        max: room.count.max(read.count),
        block: read.block.then(|| settings.block_time().mul_f64(read.share)),
        claim_idle: (core.read_claims() && room.may_claim).then_some(settings.lease),
    };
    core.backend.read_many(&request).await
}

/// The streams of the pattern that can be read.
#[derive(Default)]
struct StreamsOfPattern {
    by_name: HashMap<Arc<str>, Arc<Subscription>>,
    /// The version of the pattern's streams.
    version: Option<u64>,
}

struct FoundStreams {
    /// The index of the stream in the read.
    at: usize,
    subscription: Arc<Subscription>,
    deliveries: Vec<crate::backend::Delivery>,
}

impl FoundStreams {
    fn count(&self) -> (usize, usize) {
        (self.at, self.deliveries.len())
    }
}

impl StreamsOfPattern {
    /// Returns whether the streams have changed.
    fn update(&mut self, core: &Core, pattern: &Pattern) -> bool {
        let version = Some(pattern.version());
        if self.version == version {
            return false;
        }
        self.version = version;
        let all = core.subscriptions.all();
        let readable = all.iter().filter(|one| one.is_discovered && one.trouble().is_none());
        self.by_name = readable.map(|one| (Arc::clone(&one.stream), Arc::clone(one))).collect();
        true
    }

    /// Returns the messages of a read, and reports the streams that could not be read.
    fn sort_out(
        &self,
        core: &Core,
        pattern: &Pattern,
        read: &PlannedRead,
        found: Vec<StreamRead>,
    ) -> Vec<FoundStreams> {
        let mut messages = Vec::new();
        let mut failure = None;
        for StreamRead { stream: at, result } in found {
            let Some(subscription) = self.by_name.get(&read.streams[at]) else { continue };
            match result {
                Ok(deliveries) => {
                    if core.read_claims() {
                        let claimed = deliveries.iter().filter(|delivery| delivery.deliveries > 1).count();
                        subscription.metrics.reclaimed.add(claimed as u64);
                    }
                    messages.push(FoundStreams { at, subscription: Arc::clone(subscription), deliveries });
                }
                Err(error) if error.kind() == ErrorKind::NoGroup => {
                    pattern.report(subscription, StreamTrouble::NoGroup)
                }
                Err(error) if error.is_transient() => failure = Some(error),
                Err(error) => {
                    warn!(stream = &*subscription.stream, %error, "cannot read a stream: leaving it for a while");
                    pattern.report(subscription, StreamTrouble::Refused);
                }
            }
        }
        let store = core.backend.location();
        match failure {
            Some(error) => pattern.record_failure(&store, Operation::Reading, &error),
            None => pattern.record_success(&store, Operation::Reading),
        }
        messages
    }
}
