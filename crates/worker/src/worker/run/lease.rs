//! The lease keeper: extends the leases of all messages in flight three times per lease, many in one call.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, debug, debug_span};

use crate::backend::StreamId;
use crate::worker::core::Core;
use crate::worker::message::InFlightRef;
use crate::worker::stream::{Operation, Subscription};

/// Maximum number of leases extended in one call.
const EXTEND_MAX: usize = 4096;

/// Extends the leases of all messages in flight, three times per lease.
pub(crate) async fn keep(core: &Core, subscription: &Subscription) {
    loop {
        let every = (core.lease_of(subscription) / 3).max(Duration::from_millis(10));
        tokio::time::sleep(every).await;
        for some in subscription.in_flight.all().chunks(EXTEND_MAX) {
            extend(core, subscription, some).await;
        }
    }
}

/// Extends the leases of messages, and cancels messages whose lease is lost.
///
/// Returns false if the call did not succeed (see [`Core::call_until_ok`]). Then no message was cancelled.
pub(crate) async fn extend(core: &Core, subscription: &Subscription, messages: &[InFlightRef]) -> bool {
    let ids: Vec<StreamId> = messages.iter().map(|message| message.id).collect();
    let asked = Instant::now();
    let span = debug_span!(
        "extend",
        messaging.destination.name = &*subscription.stream,
        messaging.batch.message_count = ids.len()
    );
    let call = || core.backend.extend(subscription.as_consumer(), &ids);
    // If the group was deleted, `call_until_ok` recreates it, so that it starts to read before the first message in
    // flight. The next call then shows that the messages are no longer pending for this worker.
    let Some(ours) = core.call_until_ok(subscription, Operation::Extending, call).instrument(span).await
    else {
        return false;
    };
    let lost = subscription.in_flight.apply_extension(asked, messages, &ours);
    subscription.metrics.lease_extensions.add(ours.len() as u64);
    core.counters.lost(subscription, lost as u64);
    if lost > 0 {
        debug!(
            stream = &*subscription.stream,
            lost, "leases lost: other workers have taken over these messages"
        );
    }
    true
}
