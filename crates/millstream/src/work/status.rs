//! How a running worker is told to people: a status line on a terminal, a line of the log now and then elsewhere.

use std::time::Duration;

use millstream_worker::WorkerHandle;
use millstream_worker::worker::Report;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::info;

use super::backlog::Backlog;
use super::console::Console;
use crate::ops::value::count;

/// How often the status line changes.
const ON_TERMINAL: Duration = Duration::from_millis(500);
/// How often the log tells.
const IN_LOG: Duration = Duration::from_secs(10);
/// How long a look at the store may take.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// Tells until dropped.
pub(super) async fn tell(handle: &WorkerHandle, backlog: &Backlog, console: &Console) {
    let every = if console.has_status() { ON_TERMINAL } else { IN_LOG };
    loop {
        sleep(every).await;
        let lag = match timeout(LOOK_TIME, backlog.lag()).await {
            Ok(Ok(Some(lag))) => lag.to_string(),
            _ => "unknown".to_owned(),
        };
        let Report { received, acknowledged: done, retried, dead, .. } = handle.stats();
        let (slots, busy) = (handle.slots(), handle.busy());
        if console.has_status() {
            console.set_status(format!(
                "{} received, {} done, {} retried, {} dead, lag {lag}, {busy} of {slots} busy",
                count(received),
                count(done),
                count(retried),
                count(dead),
            ));
        } else {
            info!(received, done, retried, dead, %lag, busy, slots, "working");
        }
    }
}

/// The report for programs.
pub(super) fn report_json(consumer: &str, report: &Report) -> Value {
    json!({
        "consumer": consumer,
        "received": report.received,
        "acknowledged": report.acknowledged,
        "retried": report.retried,
        "dead": report.dead,
        "deduplicated": report.deduplicated,
        "skipped": report.skipped,
        "released": report.released,
        "redelivered": report.redelivered,
        "lost_leases": report.lost_leases,
        "unsettled": report.unsettled,
        "panics": report.panics,
        "timeouts": report.timeouts,
    })
}
