//! The lease keeper: extends everything in hand in one call, three times within a lease.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, debug, debug_span};

use super::core::Core;
use super::held::Kept;
use super::lane::Lane;
use super::trouble::Doing;
use crate::backend::StreamId;

/// How many ids are extended in one call.
const EXTENDED_AT_ONCE: usize = 4096;

/// Extends the leases of everything in hand, three times within a lease.
pub(crate) async fn keep(core: &Core, lane: &Lane) {
    let every = (core.settings.lease / 3).max(Duration::from_millis(10));
    loop {
        tokio::time::sleep(every).await;
        for some in lane.held.all().chunks(EXTENDED_AT_ONCE) {
            extend(core, lane, some).await;
        }
    }
}

/// Extends the leases of these, and finds out which are lost. False if the store did not say: then they are in hand as before.
pub(crate) async fn extend(core: &Core, lane: &Lane, about: &[Kept]) -> bool {
    let ids: Vec<StreamId> = about.iter().map(|kept| kept.id).collect();
    let asked = Instant::now();
    let span = debug_span!(
        "extend",
        messaging.destination.name = &*lane.stream,
        messaging.batch.message_count = ids.len()
    );
    let call = || core.backend.extend(lane.as_consumer(), &ids);
    // If the group is gone, it is made again before the first of what is in hand; then the next answer tells that it is not ours.
    let Some(ours) = core.insist(lane, Doing::Extending, call).instrument(span).await else { return false };
    let lost = lane.held.renew(asked, about, &ours);
    lane.metrics.lease_extensions.add(ours.len() as u64);
    core.tally.lost(lane, lost as u64);
    if lost > 0 {
        debug!(stream = &*lane.stream, lost, "leases lost: others have these messages now");
    }
    true
}
