//! Every metric of a worker: its name, what it says, and its kind.

use super::text::Kind;

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The bounds of a histogram.
    pub(super) buckets: Buckets,
}

/// The bounds of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buckets {
    /// Not a histogram.
    None,
    /// Times: bounds in milliseconds, values in nanoseconds, told in seconds.
    Seconds(&'static [u64]),
    /// Numbers of things.
    Count(&'static [u64]),
}

impl Buckets {
    /// The bounds, in the unit of the values.
    pub(super) fn bounds(self) -> impl ExactSizeIterator<Item = u64> {
        let (bounds, unit): (&[u64], u64) = match self {
            Buckets::None => (&[], 1),
            Buckets::Seconds(bounds) => (bounds, 1_000_000),
            Buckets::Count(bounds) => (bounds, 1),
        };
        bounds.iter().map(move |bound| bound * unit)
    }

    pub(super) fn in_units(self, value: u64) -> f64 {
        match self {
            Buckets::Seconds(_) => value as f64 / 1e9,
            Buckets::None | Buckets::Count(_) => value as f64,
        }
    }
}

/// The bounds that OpenTelemetry names for `messaging.process.duration`, in milliseconds.
const PROCESS_BOUNDS: &[u64] = &[5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10_000];

/// A message may have waited for hours before it is delivered. In milliseconds.
const LATENCY_BOUNDS: &[u64] =
    &[1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000];

macro_rules! definitions {
    ($($constant:ident $name:literal $kind:ident $buckets:expr, $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Definition =
                Definition { name: concat!("millstream_", $name), help: $help, kind: Kind::$kind, buckets: $buckets };
        )+

        /// All of them.
        pub const ALL: &[&Definition] = &[$(&$constant),+];
    };
}

definitions! {
    RECEIVED "messages_received_total" Counter Buckets::None, "Messages read or claimed for handlers.";
    PROCESSED "messages_processed_total" Counter Buckets::None, "Messages by what became of them.";
    PROCESS_DURATION "process_duration_seconds" Histogram Buckets::Seconds(PROCESS_BOUNDS), "How long handlers ran.";
    DELIVERY_LATENCY "delivery_latency_seconds" Histogram Buckets::Seconds(LATENCY_BOUNDS), "How long messages had been in the stream when they were first handled.";
    DELIVERIES "message_deliveries" Histogram Buckets::Count(&[1, 2, 3, 4, 5, 7, 10, 20]), "How often messages had been delivered when they were done with.";
    PANICS "handler_panics_total" Counter Buckets::None, "Handlers that panicked.";
    TIMEOUTS "handler_timeouts_total" Counter Buckets::None, "Handlers that took too long.";
    INFLIGHT "inflight" Gauge Buckets::None, "Messages in handlers now.";
    PREFETCHED "prefetched" Gauge Buckets::None, "Messages read and waiting for a handler now.";
    RETRYING "retrying" Gauge Buckets::None, "Messages waiting for their next try now.";
    WORKERS "workers" Gauge Buckets::None, "Slots of the pool by what they do now.";
    POOL_TARGET "pool_target" Gauge Buckets::None, "Slots the pool is meant to have.";
    POOL_SCALE_EVENTS "pool_scale_events_total" Counter Buckets::None, "Changes of the size of the pool.";
    GROUP_LAG "group_lag" Gauge Buckets::None, "Entries the group has yet to read.";
    GROUP_LAG_EXACT "group_lag_exact" Gauge Buckets::None, "1 if the lag is exact, 0 if it is a lower bound.";
    GROUP_OLDEST_UNREAD_AGE "group_oldest_unread_age_seconds" Gauge Buckets::None, "How long ago the oldest entry that the group has yet to read was added.";
    GROUP_OLDEST_PENDING_AGE "group_oldest_pending_age_seconds" Gauge Buckets::None, "How long ago the oldest pending entry of the group was added.";
    GROUP_STUCK "group_stuck_messages" Gauge Buckets::None, "Pending entries that were delivered often or that nobody has touched for long.";
    GROUP_HEALTH "group_health" Gauge Buckets::None, "0 if the group is well, 1 if degraded, 2 if critical.";
    DLQ_LENGTH "dlq_length" Gauge Buckets::None, "Dead letters there are.";
    DLQ_MESSAGES "dlq_messages_total" Counter Buckets::None, "Messages moved to the dead letters.";
    RECLAIMED "reclaimed_total" Counter Buckets::None, "Messages taken over from other consumers.";
    REAPED_CONSUMERS "reaped_consumers_total" Counter Buckets::None, "Consumers removed after being idle for long.";
    LEASE_EXTENSIONS "lease_extensions_total" Counter Buckets::None, "Leases of messages extended.";
    LEASE_LOST "lease_lost_total" Counter Buckets::None, "Messages that others took over while they were ours.";
    ACK_BATCH_SIZE "ack_batch_size" Histogram Buckets::Count(&[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]), "Messages acknowledged at once.";
    ACK_ERRORS "ack_errors_total" Counter Buckets::None, "Acknowledgements that failed and were tried again.";
    DEDUPE_HITS "dedupe_hits_total" Counter Buckets::None, "Messages that had been processed before.";
    BACKEND_UP "backend_up" Gauge Buckets::None, "1 if the store answers.";
    BACKEND_RECONNECTS "backend_reconnects_total" Counter Buckets::None, "Times the store was back after it could not be reached.";
    BUILD_INFO "build_info" Gauge Buckets::None, "Always 1; the labels say what runs.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for definition in ALL {
            assert_eq!(
                definition.name.ends_with("_total"),
                definition.kind == Kind::Counter,
                "{}",
                definition.name
            );
            assert!(definition.help.ends_with('.'), "{}", definition.name);
            assert_eq!(
                definition.buckets == Buckets::None,
                definition.kind != Kind::Histogram,
                "{}",
                definition.name
            );
            assert!(definition.buckets.bounds().is_sorted(), "{}", definition.name);
        }
        let mut names: Vec<_> = ALL.iter().map(|definition| definition.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len(), "every name is there once");
    }
}
