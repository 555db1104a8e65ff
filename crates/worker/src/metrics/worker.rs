//! The metrics of one worker.

use std::sync::Arc;
use std::time::Duration;

use super::definitions::*;
use super::registry::Registry;
use super::value::{Counter, Gauge, Histogram};
use crate::outcome::Reason;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
    /// Acknowledged.
    Ack,
    /// To be tried again.
    Retry,
    /// Released without being handled to the end.
    Nack,
    /// Moved to the dead letters.
    Dead,
    /// Acknowledged without being handled: it had been before.
    Dedup,
    /// Acknowledged as not for us.
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

    /// Its name as a label.
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

/// The metrics of one worker, each ready to be touched.
#[derive(Debug)]
pub struct WorkerMetrics {
    registry: Registry,
    stream: String,
    group: String,
    /// Messages read or claimed.
    pub received: Arc<Counter>,
    processed: [Arc<Counter>; Processed::ALL.len()],
    dead: [Arc<Counter>; Reason::ALL.len()],
    /// How long handlers ran.
    pub process_duration: Arc<Histogram>,
    /// How long messages had been in the stream when first handled.
    pub delivery_latency: Arc<Histogram>,
    /// How often messages had been delivered when done with.
    pub deliveries: Arc<Histogram>,
    /// Handlers that panicked.
    pub panics: Arc<Counter>,
    /// Handlers that took too long.
    pub timeouts: Arc<Counter>,
    /// Messages in handlers.
    pub inflight: Arc<Gauge>,
    /// Messages read and waiting for a handler.
    pub prefetched: Arc<Gauge>,
    /// Messages waiting for their next try.
    pub retrying: Arc<Gauge>,
    /// Slots that run a handler.
    pub workers_busy: Arc<Gauge>,
    /// Slots that wait for a message.
    pub workers_idle: Arc<Gauge>,
    /// Slots the pool is meant to have.
    pub pool_target: Arc<Gauge>,
    /// Entries the group has yet to read.
    pub group_lag: Arc<Gauge>,
    /// Whether the lag is exact.
    pub group_lag_exact: Arc<Gauge>,
    /// Age of the oldest entry the group has yet to read, in seconds.
    pub group_oldest_unread_age: Arc<Gauge>,
    /// Age of the oldest pending entry, in seconds.
    pub group_oldest_pending_age: Arc<Gauge>,
    /// Dead letters there are.
    pub dlq_length: Arc<Gauge>,
    /// Messages taken over from other consumers.
    pub reclaimed: Arc<Counter>,
    /// Consumers removed.
    pub reaped_consumers: Arc<Counter>,
    /// Leases extended.
    pub lease_extensions: Arc<Counter>,
    /// Leases lost.
    pub lease_lost: Arc<Counter>,
    /// Messages acknowledged at once.
    pub ack_batch_size: Arc<Histogram>,
    /// Acknowledgements that failed.
    pub ack_errors: Arc<Counter>,
    /// Messages that had been processed before.
    pub dedupe_hits: Arc<Counter>,
    /// Whether the store answers: 1 or 0.
    pub backend_up: Arc<Gauge>,
    /// Times the store was back.
    pub backend_reconnects: Arc<Counter>,
}

impl WorkerMetrics {
    /// The metrics of the worker of a group, whose handler has a name.
    pub fn new(registry: &Registry, stream: &str, group: &str, handler: &str) -> WorkerMetrics {
        let labels = &[("stream", stream), ("group", group)];
        let handled = &[("stream", stream), ("group", group), ("handler", handler)];
        let with = |name, value| [("stream", stream), ("group", group), (name, value)];
        let counter = |definition| registry.counter(definition, labels);
        let gauge = |definition| registry.gauge(definition, labels);
        registry.gauge(&BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        WorkerMetrics {
            registry: registry.clone(),
            stream: stream.to_owned(),
            group: group.to_owned(),
            received: counter(&RECEIVED),
            processed: Processed::ALL.map(|outcome| {
                let [stream, group, handler] = *handled;
                registry.counter(&PROCESSED, &[stream, group, handler, ("outcome", outcome.as_str())])
            }),
            dead: Reason::ALL.map(|reason| registry.counter(&DLQ_MESSAGES, &with("reason", reason.as_str()))),
            process_duration: registry.histogram(&PROCESS_DURATION, handled),
            delivery_latency: registry.histogram(&DELIVERY_LATENCY, labels),
            deliveries: registry.histogram(&DELIVERIES, labels),
            panics: registry.counter(&PANICS, handled),
            timeouts: registry.counter(&TIMEOUTS, handled),
            inflight: gauge(&INFLIGHT),
            prefetched: gauge(&PREFETCHED),
            retrying: gauge(&RETRYING),
            workers_busy: registry.gauge(&WORKERS, &with("state", "busy")),
            workers_idle: registry.gauge(&WORKERS, &with("state", "idle")),
            pool_target: gauge(&POOL_TARGET),
            group_lag: gauge(&GROUP_LAG),
            group_lag_exact: gauge(&GROUP_LAG_EXACT),
            group_oldest_unread_age: gauge(&GROUP_OLDEST_UNREAD_AGE),
            group_oldest_pending_age: gauge(&GROUP_OLDEST_PENDING_AGE),
            dlq_length: gauge(&DLQ_LENGTH),
            reclaimed: counter(&RECLAIMED),
            reaped_consumers: counter(&REAPED_CONSUMERS),
            lease_extensions: counter(&LEASE_EXTENSIONS),
            lease_lost: counter(&LEASE_LOST),
            ack_batch_size: registry.histogram(&ACK_BATCH_SIZE, labels),
            ack_errors: counter(&ACK_ERRORS),
            dedupe_hits: counter(&DEDUPE_HITS),
            backend_up: gauge(&BACKEND_UP),
            backend_reconnects: counter(&BACKEND_RECONNECTS),
        }
    }

    /// The counter of messages that ended so.
    pub fn processed(&self, outcome: Processed) -> &Counter {
        &self.processed[outcome as usize]
    }

    /// The counter of messages moved to the dead letters for this reason.
    pub fn dead(&self, reason: Reason) -> &Counter {
        &self.dead[reason as usize]
    }

    /// The pool was scaled, for a reason of a few fixed words such as `lag`, `idle` or `manual`.
    pub fn scaled(&self, from: usize, to: usize, reason: &str) {
        let direction = if to > from { "up" } else { "down" };
        let labels = [
            ("stream", self.stream.as_str()),
            ("group", &self.group),
            ("direction", direction),
            ("reason", reason),
        ];
        self.registry.counter(&POOL_SCALE_EVENTS, &labels).increment();
    }

    /// What was found out about the group's backlog.
    pub fn backlog(
        &self,
        lag: u64,
        exact: bool,
        oldest_unread: Option<Duration>,
        oldest_pending: Option<Duration>,
    ) {
        self.group_lag.set(lag as f64);
        self.group_lag_exact.set(f64::from(u8::from(exact)));
        // Nothing unread is an age of nothing: a gap in a graph would look like a worker that has died.
        self.group_oldest_unread_age.set(oldest_unread.unwrap_or_default().as_secs_f64());
        self.group_oldest_pending_age.set(oldest_pending.unwrap_or_default().as_secs_f64());
    }

    /// The registry these metrics are in.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_a_worker_is_there_from_the_start() {
        let registry = Registry::default();
        let metrics = WorkerMetrics::new(&registry, "orders", "billing", "charge");
        metrics.scaled(2, 4, "lag");
        let text = registry.text();
        for definition in ALL.iter().filter(|d| ![GROUP_STUCK.name, GROUP_HEALTH.name].contains(&d.name)) {
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
    fn labels_say_what_the_counter_counts() {
        let registry = Registry::default();
        let metrics = WorkerMetrics::new(&registry, "o", "b", "h");
        for outcome in Processed::ALL {
            metrics.processed(outcome).add(1 + outcome as u64);
        }
        for reason in Reason::ALL {
            metrics.dead(reason).add(1 + reason as u64);
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
    fn a_backlog_is_told_with_its_exactness() {
        let registry = Registry::default();
        let metrics = WorkerMetrics::new(&registry, "o", "b", "h");
        metrics.backlog(12, false, Some(Duration::from_millis(1500)), None);
        let text = registry.text();
        assert!(text.contains("millstream_group_lag{stream=\"o\",group=\"b\"} 12\n"));
        assert!(text.contains("millstream_group_lag_exact{stream=\"o\",group=\"b\"} 0\n"));
        assert!(text.contains("millstream_group_oldest_unread_age_seconds{stream=\"o\",group=\"b\"} 1.5\n"));
        assert!(text.contains("millstream_group_oldest_pending_age_seconds{stream=\"o\",group=\"b\"} 0\n"));
    }
}
