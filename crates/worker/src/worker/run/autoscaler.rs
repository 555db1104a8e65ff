//! Measures the backlog from time to time and scales the pool as the autoscaler decides.

use std::time::SystemTime;

use tokio::time::Instant;
use tracing::info;

use crate::autoscale::{Autoscale, Decision, Sample, Scaler};
use crate::backend::Error;
use crate::monitor::Monitor;
use crate::worker::core::Core;

/// Scales the pool until the worker drains.
pub(crate) async fn autoscale(core: &Core, monitor: Monitor, policy: Autoscale) {
    let every = policy.every;
    let mut scaler = Scaler::new(policy);
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.stretched(every)) => {}
            () = core.draining.cancelled() => return,
        }
        if core.breaker.is_open() {
            // More slots do not help while every handler call fails.
            continue;
        }
        // Without a measurement there is nothing to decide. The fetcher reports that the store is unreachable.
        let Ok(sample) = measure_backlog(core, &monitor).await else { continue };
        if let Some((to, cause)) = scaler.decide(Instant::now(), &sample) {
            let decision = Decision { at: SystemTime::now(), to, cause, sample };
            info!(
                from = sample.slots,
                to,
                cause = cause.as_str(),
                lag = sample.lag,
                is_lag_exact = sample.lag_exact,
                oldest_age_s = (sample.oldest_age.as_secs_f64() * 10.0).round() / 10.0,
                busy = sample.busy,
                "scaling the pool"
            );
            core.metrics.iter().for_each(|metrics| metrics.record_scaling(sample.slots, to, cause.as_str()));
            core.record_decision(decision);
            core.slots.send_replace(to);
        }
    }
}

/// Measures the backlog of all streams.
async fn measure_backlog(core: &Core, monitor: &Monitor) -> Result<Sample, Error> {
    let slots = *core.slots.borrow();
    let mut sample = Sample {
        lag: core.queue.len() as u64,
        lag_exact: true,
        slots,
        busy: core.busy_slots(),
        ..Sample::default()
    };
    for subscription in core.subscriptions.all().iter() {
        let Some((lag, oldest)) = monitor.backlog(&subscription.stream, &subscription.group).await? else {
            continue;
        };
        sample.lag = sample.lag.saturating_add(lag.count);
        sample.lag_exact &= lag.is_exact();
        sample.oldest_age = sample.oldest_age.max(oldest.and_then(|oldest| oldest.age).unwrap_or_default());
    }
    Ok(sample)
}
