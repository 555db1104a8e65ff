//! Looking at the backlog now and then, and following the autoscaler.

use std::time::SystemTime;

use tokio::time::Instant;
use tracing::info;

use super::core::Core;
use crate::autoscale::{Autoscale, Decision, Sample, Scaler};
use crate::backend::Error;
use crate::monitor::Monitor;

/// Follows the autoscaler until the worker drains.
pub(crate) async fn autoscale(core: &Core, monitor: Monitor, policy: Autoscale) {
    let every = policy.every;
    let mut scaler = Scaler::new(policy);
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = core.draining.cancelled() => return,
        }
        // Without an answer there is nothing to decide on; whoever reads tells that the store is away.
        let Ok(sample) = look(core, &monitor).await else { continue };
        if let Some((to, cause)) = scaler.decide(Instant::now(), &sample) {
            let decision = Decision { at: SystemTime::now(), to, cause, sample };
            info!(%decision, "scaling the pool");
            core.lanes.iter().for_each(|lane| lane.metrics.scaled(sample.slots, to, cause.as_str()));
            core.note(decision);
            core.slots.send_replace(to);
        }
    }
}

/// What there is to do, over all streams.
async fn look(core: &Core, monitor: &Monitor) -> Result<Sample, Error> {
    let slots = *core.slots.borrow();
    let mut sample = Sample {
        lag: core.queue.len() as u64,
        lag_exact: true,
        slots,
        busy: core.busy_slots(),
        ..Sample::default()
    };
    for lane in &core.lanes {
        let Some((lag, oldest)) = monitor.backlog(&lane.stream, &lane.group).await? else { continue };
        sample.lag += lag.count;
        sample.lag_exact &= lag.is_exact();
        sample.oldest_age = sample.oldest_age.max(oldest.and_then(|oldest| oldest.age).unwrap_or_default());
    }
    Ok(sample)
}
