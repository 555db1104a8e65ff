//! The definitions of all metrics of a worker: name, help text, kind and buckets.

use millstream_protocol::prometheus::MetricKind;

/// The definition of a metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name of the metric.
    pub name: &'static str,
    /// The help text, as Prometheus shows it.
    pub help: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// The bucket bounds of a histogram.
    pub(super) buckets: Buckets,
}

/// The bucket bounds of a histogram, and the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buckets {
    /// Not a histogram.
    None,
    /// Durations: bounds in milliseconds, observed values in nanoseconds, exported in seconds.
    Seconds(&'static [u64]),
    /// Counts.
    Count(&'static [u64]),
}

impl Buckets {
    /// Returns the bounds in the unit of the observed values.
    pub(super) fn bounds(self) -> impl ExactSizeIterator<Item = u64> {
        let (bounds, unit): (&[u64], u64) = match self {
            Buckets::None => (&[], 1),
            Buckets::Seconds(bounds) => (bounds, 1_000_000),
            Buckets::Count(bounds) => (bounds, 1),
        };
        bounds.iter().map(move |bound| bound * unit)
    }

    /// Converts an observed value to the exported unit.
    pub(super) fn in_units(self, value: u64) -> f64 {
        match self {
            Buckets::Seconds(_) => value as f64 / 1e9,
            Buckets::None | Buckets::Count(_) => value as f64,
        }
    }
}

/// Bounds in milliseconds, as OpenTelemetry recommends for `messaging.process.duration`.
const PROCESS_BOUNDS: &[u64] = &[5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10_000];

/// Bounds in milliseconds. They extend to six hours because a message can wait that long for its first delivery.
const LATENCY_BOUNDS: &[u64] =
    &[1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000];

macro_rules! definitions {
    ($($constant:ident $name:literal $kind:ident $buckets:expr, $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Definition =
                Definition { name: concat!("millstream_", $name), help: $help, kind: MetricKind::$kind, buckets: $buckets };
        )+

        /// All definitions.
        pub const ALL: &[&Definition] = &[$(&$constant),+];
    };
}

definitions! {
    RECEIVED "messages_received_total" Counter Buckets::None, "Messages read or claimed by the worker.";
    PROCESSED "messages_processed_total" Counter Buckets::None, "Messages by outcome of the delivery.";
    PROCESS_DURATION "process_duration_seconds" Histogram Buckets::Seconds(PROCESS_BOUNDS), "Duration of handler runs in seconds.";
    DELIVERY_LATENCY "delivery_latency_seconds" Histogram Buckets::Seconds(LATENCY_BOUNDS), "Time in seconds from adding a message to the start of its first handler run.";
    DELIVERIES "message_deliveries" Histogram Buckets::Count(&[1, 2, 3, 4, 5, 7, 10, 20]), "Delivery count of the message, observed after each handler run.";
    PANICS "handler_panics_total" Counter Buckets::None, "Handler runs that panicked.";
    TIMEOUTS "handler_timeouts_total" Counter Buckets::None, "Handler runs that exceeded the timeout.";
    INFLIGHT "inflight" Gauge Buckets::None, "Handler calls that are running, each for one message or one batch.";
    LONGEST_RUNNING "longest_running_seconds" Gauge Buckets::None, "How long the longest-running handler call has been running, in seconds; 0 if none runs.";
    PREFETCHED "prefetched" Gauge Buckets::None, "Messages that the worker has read but no handler has started.";
    RETRYING "retrying" Gauge Buckets::None, "Messages of the group that have failed and are not done yet.";
    WORKERS "workers" Gauge Buckets::None, "Handler slots of the pool by state, busy or idle.";
    STREAMS "streams" Gauge Buckets::None, "Streams that the worker reads: one, or those that match its pattern.";
    POOL_TARGET "pool_target" Gauge Buckets::None, "Target number of handler slots.";
    POOL_SCALE_EVENTS "pool_scale_events_total" Counter Buckets::None, "Changes to the pool size by direction and reason.";
    GROUP_LAG "group_lag" Gauge Buckets::None, "Entries of the stream that the group has not read yet.";
    GROUP_LAG_EXACT "group_lag_exact" Gauge Buckets::None, "1 if the lag is exact, 0 if it is a lower bound.";
    GROUP_MISSED "group_missed_entries" Gauge Buckets::None, "Entries that were trimmed or deleted before the group read them, as far as the store shows it.";
    GROUP_MISSED_EXACT "group_missed_exact" Gauge Buckets::None, "1 if the number of missed entries is exact, 0 if it is a bound or unknown.";
    GROUP_OLDEST_UNREAD_AGE "group_oldest_unread_age_seconds" Gauge Buckets::None, "Age in seconds of the oldest entry that the group has not read yet, 0 if there is none.";
    GROUP_OLDEST_PENDING_AGE "group_oldest_pending_age_seconds" Gauge Buckets::None, "Age in seconds of the oldest pending entry of the group, 0 if there is none.";
    GROUP_STUCK "group_stuck_messages" Gauge Buckets::None, "Pending entries that were delivered many times or have been idle for a long time.";
    GROUP_WORKERS "group_workers" Gauge Buckets::None, "Workers of the group that send heartbeats.";
    GROUP_DEAD_WORKERS "group_dead_workers" Gauge Buckets::None, "Workers of the group that stopped sending heartbeats within the last hour and did not drain.";
    GROUP_LONGEST_RUNNING "group_longest_running_seconds" Gauge Buckets::None, "How long the longest-running handler call of the group has been running, in seconds, as its worker said in its last heartbeat; 0 if none runs.";
    GROUP_SLOW_WORKERS "group_slow_workers" Gauge Buckets::None, "Workers of the group with a handler call that runs for longer than --slow-after.";
    GROUP_BLOCKED_KEYS "group_blocked_keys" Gauge Buckets::None, "Keys with messages that wait for earlier messages of the key, if workers order messages.";
    GROUP_BLOCKED_MESSAGES "group_blocked_messages" Gauge Buckets::None, "Messages that wait for earlier messages of their keys, if workers order messages.";
    GROUP_FAILING_KEYS "group_failing_keys" Gauge Buckets::None, "Keys whose first message has failed and is retried, if workers order messages.";
    GROUP_HEALTH "group_health" Gauge Buckets::None, "Health of the group: 0 ok, 1 degraded, 2 critical; absent while it is unknown.";
    STORE_STREAMS "store_streams" Gauge Buckets::None, "Streams of the store.";
    STORE_GROUPS "store_groups" Gauge Buckets::None, "Groups of the store by health: ok, unknown (details not read yet), degraded or critical.";
    STORE_ENTRIES "store_entries" Gauge Buckets::None, "Entries in all streams.";
    STORE_UNREAD "store_unread_entries" Gauge Buckets::None, "Entries that groups have not read yet, the sum over all groups.";
    STORE_MISSED "store_missed_entries" Gauge Buckets::None, "Entries that were trimmed or deleted before a group read them, the sum over all groups.";
    STORE_PENDING "store_pending_entries" Gauge Buckets::None, "Pending entries of all groups.";
    STORE_STUCK "store_stuck_messages" Gauge Buckets::None, "Stuck pending entries of all groups.";
    STORE_DEAD_LETTERS "store_dead_letters" Gauge Buckets::None, "Entries in all dead-letter streams.";
    STORE_WORKERS "store_workers" Gauge Buckets::None, "Workers of all groups that send heartbeats.";
    STORE_DEAD_WORKERS "store_dead_workers" Gauge Buckets::None, "Workers of all groups that stopped sending heartbeats within the last hour and did not drain.";
    STORE_OLDEST_UNREAD_AGE "store_oldest_unread_age_seconds" Gauge Buckets::None, "Age in seconds of the oldest unread entry of any group, 0 if there is none.";
    STORE_OLDEST_PENDING_AGE "store_oldest_pending_age_seconds" Gauge Buckets::None, "Age in seconds of the oldest pending entry of any group, 0 if there is none.";
    METRICS_LEFT_OUT "metrics_left_out" Gauge Buckets::None, "Groups and streams without series of their own, because the store has too many. Totals include them.";
    LOOK_AGE "look_age_seconds" Gauge Buckets::None, "Age in seconds of the look at the store that the values of streams and groups come from.";
    LOOK_DURATION "look_duration_seconds" Gauge Buckets::None, "Time in seconds that the store took to answer this look.";
    DLQ_LENGTH "dlq_length" Gauge Buckets::None, "Entries in the dead-letter stream.";
    DLQ_ADDED "dlq_added_total" Counter Buckets::None, "Entries ever added to the dead-letter streams of the stream.";
    DLQ_MESSAGES "dlq_messages_total" Counter Buckets::None, "Messages that the worker dead-lettered, by reason.";
    RECLAIMED "reclaimed_total" Counter Buckets::None, "Messages that the worker claimed because they were idle or released.";
    REAPED_CONSUMERS "reaped_consumers_total" Counter Buckets::None, "Consumers that the worker removed because they were idle for too long.";
    LEASE_EXTENSIONS "lease_extensions_total" Counter Buckets::None, "Leases that the worker extended.";
    LEASE_LOST "lease_lost_total" Counter Buckets::None, "Messages that another consumer claimed while the worker had them in flight.";
    ACK_BATCH_SIZE "ack_batch_size" Histogram Buckets::Count(&[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]), "Messages acknowledged per call.";
    ACK_ERRORS "ack_errors_total" Counter Buckets::None, "Failed calls to acknowledge, release or dead-letter messages; the worker retries them.";
    DEDUPE_HITS "dedupe_hits_total" Counter Buckets::None, "Duplicate messages that the worker acknowledged without running the handler.";
    BACKEND_UP "backend_up" Gauge Buckets::None, "1 if the store is reachable, 0 if not.";
    BACKEND_RECONNECTS "backend_reconnects_total" Counter Buckets::None, "Times that the store became reachable again.";
    BREAKER_OPEN "breaker_open" Gauge Buckets::None, "1 if the circuit breaker is open because every handler call fails, 0 if not.";
    BREAKER_OPENINGS "breaker_openings_total" Counter Buckets::None, "Times that the circuit breaker opened.";
    BLOCKED_KEYS "blocked_keys" Gauge Buckets::None, "Keys with messages that wait for earlier messages of the key, if the worker orders messages.";
    FAILING_KEYS "failing_keys" Gauge Buckets::None, "Keys whose first message has failed and is retried, if the worker orders messages.";
    WINDOW_FULL "window_full" Gauge Buckets::None, "1 if the worker does not read because messages that wait for others of their keys fill the window, 0 if not.";
    BUILD_INFO "build_info" Gauge Buckets::None, "Always 1; the label version is the version of the worker.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_follow_prometheus_conventions() {
        for definition in ALL {
            assert_eq!(
                definition.name.ends_with("_total"),
                definition.kind == MetricKind::Counter,
                "{}",
                definition.name
            );
            assert!(definition.help.ends_with('.'), "{}", definition.name);
            assert_eq!(
                definition.buckets == Buckets::None,
                definition.kind != MetricKind::Histogram,
                "{}",
                definition.name
            );
            assert!(definition.buckets.bounds().is_sorted(), "{}", definition.name);
        }
        let mut names: Vec<_> = ALL.iter().map(|definition| definition.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len(), "two metrics share a name");
    }
}
