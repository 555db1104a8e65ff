//! Progress of a running worker: a status line on a terminal, or a log line at intervals; and its final report as JSON.

use std::time::Duration;

use millstream_worker::WorkerHandle;
use millstream_worker::worker::Report;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::info;

use super::backlog::Backlog;
use super::console::Console;
use crate::ops::value::count;

const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of progress lines in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time to query the lag.
const LAG_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn report_progress(handle: &WorkerHandle, backlog: &Backlog, console: &Console) {
    let interval = if console.has_status() { STATUS_INTERVAL } else { LOG_INTERVAL };
    loop {
        sleep(Backlog::pause(interval, handle.streams().len())).await;
        let lag = timeout(LAG_TIMEOUT, backlog.lag()).await.ok().and_then(Result::ok).flatten();
        let Report { received, acknowledged: done, retried, dead, .. } = handle.stats();
        let (slots, busy) = (handle.slots(), handle.busy());
        let breaker_open = handle.open_breaker().is_some();
        if console.has_status() {
            let breaker = if breaker_open { ", circuit breaker open" } else { "" };
            let lag = lag.map_or_else(|| "unknown".to_owned(), |lag| lag.to_string());
            console.set_status(format!(
                "{} received, {} done, {} retried, {} dead, lag {lag}, {busy} of {slots} busy{breaker}",
                count(received),
                count(done),
                count(retried),
                count(dead),
            ));
        } else {
            let count = |is_exact| lag.filter(|lag| lag.is_exact() == is_exact).map(|lag| lag.count);
            let (lag, lag_at_least) = (count(true), count(false));
            info!(received, done, retried, dead, lag, lag_at_least, busy, slots, breaker_open, "working");
        }
    }
}

/// Returns the final report as JSON.
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
        "breaker_openings": report.breaker_openings,
        "groups_recreated": report.groups_recreated,
    })
}
