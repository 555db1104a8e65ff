//! What the circuit breaker does to the worker.
//!
//! While it is open, the queue holds: the worker reads nothing, and prefetched messages are released. One task reads
//! a single message when a probe is due, and only this message runs. A new message is the best probe, because no
//! handler has failed on it. Without one, the task claims a pending message that is due, each time another one. A
//! worker that orders messages by key keeps them, and probes with the next one that can run.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::admission::admit;
use super::recovery::claim;
use crate::backend::{Error, StreamId};
use crate::worker::core::Core;
use crate::worker::stream::{Operation, StoreBackoff, Subscription};

/// Maximum number of calls that search for a pending message for one probe. The next probe continues the search.
const CLAIMS_MAX: usize = 100;

/// Probes while the circuit breaker is open, until the worker drains.
pub(crate) async fn probe(core: &Core) {
    let mut cursor = ProbeCursor::default();
    let mut backoff = StoreBackoff::new();
    while until_probe_is_due(core).await {
        if !core.queue.expect_probe() {
            // The worker is paused. Probes continue when it is resumed.
            core.breaker.record_no_answer();
            continue;
        }
        if core.queue.has_lanes() {
            // The probe is the next message that can run. If none is in hand, the fetcher reads one: a second reader
            // could change the order.
            tokio::select! {
                () = core.queue.probe_found() => {}
                () = core.draining.cancelled() => return,
            }
        } else {
            match cursor.read_one(core).await {
                Ok(()) => backoff.reset(),
                Err((subscription, error)) => tokio::select! {
                    _ = core.handle_error(&subscription, Operation::Reading, &error, &mut backoff) => {}
                    () = core.draining.cancelled() => {}
                },
            }
        }
        core.queue.stop_expecting_probe();
        tokio::select! {
            () = core.queue.probe_ended() => {}
            () = core.draining.cancelled() => return,
        }
        core.breaker.record_no_answer();
    }
}

/// Waits until a probe is due, and repeats meanwhile in the log that the breaker is open. Returns false if the worker
/// drains.
async fn until_probe_is_due(core: &Core) -> bool {
    loop {
        let due = core.breaker.next_probe();
        tokio::select! {
            () = core.draining.cancelled() => return false,
            () = core.breaker.changed.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                // A failure may have moved the time, or a success may have closed the breaker.
                if core.breaker.next_probe().is_some_and(|due| due <= Instant::now()) {
                    return true;
                }
            }
        }
    }
}

#[derive(Default)]
struct ProbeCursor {
    stream: usize,
    /// For each stream, the id at which the next claim starts, so that each probe claims another message.
    claim_from: HashMap<Arc<str>, StreamId>,
}

impl ProbeCursor {
    /// Reads or claims one message. The queue accepts it as the probe.
    async fn read_one(&mut self, core: &Core) -> Result<(), (Arc<Subscription>, Error)> {
        let subscriptions = core.subscriptions.all();
        for _ in 0..subscriptions.len() {
            let subscription = &subscriptions[self.stream % subscriptions.len()];
            self.stream = (self.stream + 1) % subscriptions.len();
            match self.read_from(core, subscription).await {
                Ok(has_probe) => {
                    core.record_success(subscription, Operation::Reading);
                    if has_probe {
                        break;
                    }
                }
                Err(error) => return Err((Arc::clone(subscription), error)),
            }
        }
        Ok(())
    }

    /// Returns whether the queue has accepted a message.
    async fn read_from(&mut self, core: &Core, subscription: &Subscription) -> Result<bool, Error> {
        let sent_at = Instant::now();
        let deliveries = core.backend.read(&subscription.read(1)).await?;
        admit(core, subscription, deliveries, sent_at).await;
        let from = self.claim_from.entry(Arc::clone(&subscription.stream)).or_insert(StreamId::MIN);
        // The first pass starts where the last probe ended, and the second at the first pending message.
        let mut passes = if *from == StreamId::MIN { 1 } else { 2 };
        for _ in 0..CLAIMS_MAX {
            if !core.queue.expects_probe() {
                break;
            }
            *from = claim(core, subscription, 1, *from).await?.next;
            passes -= usize::from(*from == StreamId::MIN);
            if passes == 0 {
                break;
            }
        }
        Ok(!core.queue.expects_probe())
    }
}
