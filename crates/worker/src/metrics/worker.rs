//! The metrics of one worker.

use std::sync::Arc;
use std::time::Duration;

use super::definitions::*;
use super::registry::Registry;
use super::value::{Counter, Gauge, Histogram};
use crate::outcome::Reason;

/// The outcome of a delivery: the label `outcome` of `millstream_messages_processed_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
    /// The handler succeeded, and the message was acknowledged.
    Ack,
    /// The attempt failed; the message waits for its next attempt.
    Retry,
    /// Released before a handler finished it.
    Nack,
    /// Dead-lettered.
    Dead,
    /// A duplicate, acknowledged without running the handler.
    Dedup,
    /// Acknowledged because the handler skipped it.
    Skip,
}

impl Processed {
    const ALL: [Processed; 6] = [
        Processed::Ack,
        Processed::Retry,
        Processed::Nack,
        Processed::Dead,
        Processed::Dedup,
        Processed::Skip,
    ];

    /// Returns the value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Processed::Ack => "ack",
            Processed::Retry => "retry",
            Processed::Nack => "nack",
            Processed::Dead => "dead",
            Processed::Dedup => "dedup",
            Processed::Skip => "skip",
        }
    }
}

/// Declares [`WorkerMetrics`]: the series with the labels `stream` and `group`, then those that have `handler` too.
macro_rules! worker_metrics {
    (
        group { $($field:ident: $kind:ident($create:ident) = $definition:ident;)+ }
        handler { $($of_handler:ident: $handler_kind:ident($create_of_handler:ident) = $handler_definition:ident;)+ }
    ) => {
        /// The metrics of one worker for one stream and group. All series exist from the start, except those of scaling
        /// events.
        #[derive(Debug)]
        pub struct WorkerMetrics {
            registry: Registry,
            stream: String,
            group: String,
            processed: [Arc<Counter>; Processed::ALL.len()],
            dead: [Arc<Counter>; Reason::ALL.len()],
            /// Handler slots that run a handler.
            pub workers_busy: Arc<Gauge>,
            /// Handler slots that wait for a message.
            pub workers_idle: Arc<Gauge>,
            $(
                #[doc = concat!("[`", stringify!($definition), "`](super::definitions::", stringify!($definition), ")")]
                pub $field: Arc<$kind>,
            )+
            $(
                #[doc = concat!("[`", stringify!($handler_definition), "`](super::definitions::", stringify!($handler_definition), ")")]
                pub $of_handler: Arc<$handler_kind>,
            )+
        }

        impl WorkerMetrics {
            /// Creates the series for a stream, a group and the name of the handler.
            pub fn new(registry: &Registry, stream: &str, group: &str, handler: &str) -> WorkerMetrics {
                let labels = [("stream", stream), ("group", group)];
                let handler_labels = [("stream", stream), ("group", group), ("handler", handler)];
                let with = |name, value| [("stream", stream), ("group", group), (name, value)];
                registry.gauge(&BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
                WorkerMetrics {
                    registry: registry.clone(),
                    stream: stream.to_owned(),
                    group: group.to_owned(),
                    processed: Processed::ALL.map(|outcome| {
                        let [stream, group, handler] = handler_labels;
                        registry.counter(&PROCESSED, &[stream, group, handler, ("outcome", outcome.as_str())])
                    }),
                    dead: Reason::ALL
                        .map(|reason| registry.counter(&DLQ_MESSAGES, &with("reason", reason.as_str()))),
                    workers_busy: registry.gauge(&WORKERS, &with("state", "busy")),
                    workers_idle: registry.gauge(&WORKERS, &with("state", "idle")),
                    $($field: registry.$create(&$definition, &labels),)+
                    $($of_handler: registry.$create_of_handler(&$handler_definition, &handler_labels),)+
                }
            }
        }
    };
}

worker_metrics! {
    group {
        received: Counter(counter) = RECEIVED;
        inflight: Gauge(gauge) = INFLIGHT;
        prefetched: Gauge(gauge) = PREFETCHED;
        retrying: Gauge(gauge) = RETRYING;
        streams: Gauge(gauge) = STREAMS;
        pool_target: Gauge(gauge) = POOL_TARGET;
        group_lag: Gauge(gauge) = GROUP_LAG;
        group_lag_exact: Gauge(gauge) = GROUP_LAG_EXACT;
        group_missed: Gauge(gauge) = GROUP_MISSED;
        group_missed_exact: Gauge(gauge) = GROUP_MISSED_EXACT;
        group_oldest_unread_age: Gauge(gauge) = GROUP_OLDEST_UNREAD_AGE;
        group_oldest_pending_age: Gauge(gauge) = GROUP_OLDEST_PENDING_AGE;
        dlq_length: Gauge(gauge) = DLQ_LENGTH;
        reclaimed: Counter(counter) = RECLAIMED;
        reaped_consumers: Counter(counter) = REAPED_CONSUMERS;
        lease_extensions: Counter(counter) = LEASE_EXTENSIONS;
        lease_lost: Counter(counter) = LEASE_LOST;
        ack_errors: Counter(counter) = ACK_ERRORS;
        dedupe_hits: Counter(counter) = DEDUPE_HITS;
        backend_up: Gauge(gauge) = BACKEND_UP;
        backend_reconnects: Counter(counter) = BACKEND_RECONNECTS;
        breaker_open: Gauge(gauge) = BREAKER_OPEN;
        breaker_openings: Counter(counter) = BREAKER_OPENINGS;
        blocked_keys: Gauge(gauge) = BLOCKED_KEYS;
        failing_keys: Gauge(gauge) = FAILING_KEYS;
        longest_running: Gauge(gauge) = LONGEST_RUNNING;
        window_full: Gauge(gauge) = WINDOW_FULL;
        delivery_latency: Histogram(histogram) = DELIVERY_LATENCY;
        deliveries: Histogram(histogram) = DELIVERIES;
        ack_batch_size: Histogram(histogram) = ACK_BATCH_SIZE;
    }
    handler {
        process_duration: Histogram(histogram) = PROCESS_DURATION;
        panics: Counter(counter) = PANICS;
        timeouts: Counter(counter) = TIMEOUTS;
    }
}

impl WorkerMetrics {
    /// Returns the counter of messages with this outcome.
    pub fn processed(&self, outcome: Processed) -> &Counter {
        &self.processed[outcome as usize]
    }

    /// Returns the counter of messages dead-lettered for this reason.
    pub fn dead_lettered(&self, reason: Reason) -> &Counter {
        &self.dead[reason as usize]
    }

    /// Counts a change of the pool size. `reason` is one of a few fixed words, such as `lag`, `idle` or `manual`.
    pub fn record_scaling(&self, from: usize, to: usize, reason: &str) {
        let direction = if to > from { "up" } else { "down" };
        let labels = [
            ("stream", self.stream.as_str()),
            ("group", &self.group),
            ("direction", direction),
            ("reason", reason),
        ];
        self.registry.counter(&POOL_SCALE_EVENTS, &labels).increment();
    }

    /// Sets the metrics of the group's backlog.
    pub fn set_backlog(
        &self,
        lag: u64,
        exact: bool,
        oldest_unread: Option<Duration>,
        oldest_pending: Option<Duration>,
    ) {
        self.group_lag.set(lag as f64);
        self.group_lag_exact.set(f64::from(u8::from(exact)));
        // Export 0 if there is no entry: a gap in a graph would look like a dead worker.
        self.group_oldest_unread_age.set(oldest_unread.unwrap_or_default().as_secs_f64());
        self.group_oldest_pending_age.set(oldest_pending.unwrap_or_default().as_secs_f64());
    }

    /// Sets the metrics of the entries that were removed before the group read them.
    pub fn set_missed(&self, count: u64, exact: bool) {
        self.group_missed.set(count as f64);
        self.group_missed_exact.set(f64::from(u8::from(exact)));
    }

    /// Returns the stream, or the pattern of streams, that these metrics describe.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Returns the registry of these metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_series_exist_from_the_start() {
        let registry = Registry::default();
        let metrics = WorkerMetrics::new(&registry, "orders", "billing", "charge");
        metrics.record_scaling(2, 4, "lag");
        let text = registry.text();
        let of_exporter = [
            GROUP_STUCK,
            GROUP_HEALTH,
            GROUP_WORKERS,
            GROUP_DEAD_WORKERS,
            GROUP_LONGEST_RUNNING,
            GROUP_SLOW_WORKERS,
            GROUP_BLOCKED_KEYS,
            GROUP_BLOCKED_MESSAGES,
            GROUP_FAILING_KEYS,
            DLQ_ADDED,
            METRICS_LEFT_OUT,
            LOOK_AGE,
            LOOK_DURATION,
        ];
        let is_of_exporter = |definition: &Definition| {
            of_exporter.contains(definition) || definition.name.starts_with("millstream_store_")
        };
        for definition in ALL.iter().filter(|definition| !is_of_exporter(definition)) {
            assert!(
                text.contains(&format!("# TYPE {} {}\n", definition.name, definition.kind)),
                "{}",
                definition.name
            );
        }
        assert!(text.contains(
            "millstream_pool_scale_events_total{stream=\"orders\",group=\"billing\",direction=\"up\",reason=\"lag\"} 1"
        ));
    }

    #[test]
    fn outcomes_and_reasons_have_their_own_counters() {
        let registry = Registry::default();
        let metrics = WorkerMetrics::new(&registry, "o", "b", "h");
        for outcome in Processed::ALL {
            metrics.processed(outcome).add(1 + outcome as u64);
        }
        for reason in Reason::ALL {
            metrics.dead_lettered(reason).add(1 + reason as u64);
        }
        metrics.workers_busy.set(3.0);
        let text = registry.text();
        for outcome in Processed::ALL {
            let line = format!(
                "millstream_messages_processed_total{{stream=\"o\",group=\"b\",handler=\"h\",outcome=\"{}\"}} {}\n",
                outcome.as_str(),
                1 + outcome as u64
            );
            assert!(text.contains(&line), "{line}");
        }
        for reason in Reason::ALL {
            let line = format!(
                "millstream_dlq_messages_total{{stream=\"o\",group=\"b\",reason=\"{reason}\"}} {}\n",
                1 + reason as u64
            );
            assert!(text.contains(&line), "{line}");
        }
        assert!(text.contains("millstream_workers{stream=\"o\",group=\"b\",state=\"busy\"} 3\n"));
    }

    #[test]
    fn set_backlog_sets_lag_exactness_and_ages() {
        let registry = Registry::default();
        let metrics = WorkerMetrics::new(&registry, "o", "b", "h");
        metrics.set_backlog(12, false, Some(Duration::from_millis(1500)), None);
        metrics.set_missed(400, true);
        let text = registry.text();
        assert!(text.contains("millstream_group_missed_entries{stream=\"o\",group=\"b\"} 400\n"));
        assert!(text.contains("millstream_group_missed_exact{stream=\"o\",group=\"b\"} 1\n"));
        assert!(text.contains("millstream_group_lag{stream=\"o\",group=\"b\"} 12\n"));
        assert!(text.contains("millstream_group_lag_exact{stream=\"o\",group=\"b\"} 0\n"));
        assert!(text.contains("millstream_group_oldest_unread_age_seconds{stream=\"o\",group=\"b\"} 1.5\n"));
        assert!(text.contains("millstream_group_oldest_pending_age_seconds{stream=\"o\",group=\"b\"} 0\n"));
    }
}
