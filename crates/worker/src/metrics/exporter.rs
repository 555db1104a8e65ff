//! Exports snapshots of streams as Prometheus text, with names that existing dashboards for Redis streams use.
//!
//! Names with the prefix `redis_` are those of redis_exporter. As in redis_exporter, the value of an id is its
//! millisecond part. Values that redis_exporter lacks (ages, exactness, stuck entries, health) have the prefix
//! `millstream_`.

use super::definitions::{
    DLQ_LENGTH, Definition, GROUP_DEAD_WORKERS, GROUP_HEALTH, GROUP_LAG, GROUP_LAG_EXACT, GROUP_MISSED,
    GROUP_MISSED_EXACT, GROUP_OLDEST_PENDING_AGE, GROUP_OLDEST_UNREAD_AGE, GROUP_STUCK, GROUP_WORKERS,
};
use super::text::{MetricKind, PrometheusText};
use crate::backend::{ConsumerInfo, StreamId};
use crate::monitor::{GroupSnapshot, Limits, StreamSnapshot};

/// The value of redis_exporter's label `db`. It is constant here.
const DB: &str = "db0";

/// Whether to export a series per consumer. A group can have very many consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerSeries {
    /// Export the series of each consumer.
    Each,
    /// Export no series of consumers.
    Omitted,
}

type SampleLabels<'a> = Vec<(&'static str, &'a str)>;

/// Formats snapshots as Prometheus text.
pub fn exporter_text(streams: &[StreamSnapshot], limits: &Limits, consumers: ConsumerSeries) -> String {
    let mut text = PrometheusText::default();
    write_streams(&mut text, streams);
    let groups: Vec<&GroupSnapshot> = streams.iter().flat_map(|stream| &stream.groups).collect();
    write_groups(&mut text, &groups);
    if consumers == ConsumerSeries::Each {
        write_consumers(&mut text, &groups);
    }
    write_health(&mut text, streams, &groups, limits);
    text.finish()
}

fn write_streams(text: &mut PrometheusText, streams: &[StreamSnapshot]) {
    let mut family = |name: &str, help: &str, kind: MetricKind, value: fn(&StreamSnapshot) -> Option<u64>| {
        write_family(text, (name, help, kind), streams, |stream| (labels_of_stream(stream), value(stream)));
    };
    use MetricKind::{Counter, Gauge};
    family("redis_stream_length", "Number of entries in the stream", Gauge, |s| Some(s.info.length));
    family("redis_stream_groups", "Number of groups of the stream", Gauge, |s| Some(s.info.groups));
    family("redis_stream_entries_added_total", "Number of entries ever added to the stream", Counter, |s| {
        s.info.entries_added
    });
    family(
        "redis_stream_last_generated_id",
        "Millisecond part of the id of the last entry ever added",
        Gauge,
        |s| Some(s.info.last_id.ms),
    );
    family("redis_stream_first_entry_id", "Millisecond part of the id of the oldest entry", Gauge, |s| {
        s.info.first_entry.map(ms)
    });
    family("redis_stream_last_entry_id", "Millisecond part of the id of the newest entry", Gauge, |s| {
        s.info.last_entry.map(ms)
    });
    family(
        "redis_stream_max_deleted_entry_id",
        "Millisecond part of the greatest id ever deleted",
        Gauge,
        |s| s.info.max_deleted_id.map(ms),
    );
}

fn write_groups(text: &mut PrometheusText, groups: &[&GroupSnapshot]) {
    let mut family = |name: &str, help: &str, value: fn(&GroupSnapshot) -> Option<u64>| {
        write_family(text, (name, help, MetricKind::Gauge), groups, |group| {
            (labels_of_group(group), value(group))
        });
    };
    family("redis_stream_group_consumers", "Number of consumers of the group", |g| {
        Some(g.consumers.len() as u64)
    });
    family("redis_stream_group_messages_pending", "Number of pending entries of the group", |g| {
        Some(g.pending)
    });
    family(
        "redis_stream_group_last_delivered_id",
        "Millisecond part of the id of the last entry delivered to the group",
        |g| Some(g.last_delivered.ms),
    );
    family("redis_stream_group_entries_read", "Number of entries that the group has read", |g| {
        g.entries_read
    });
    family("redis_stream_group_lag", "Number of entries that the group has not read yet", |g| {
        Some(g.lag.count)
    });
}

fn write_consumers(text: &mut PrometheusText, groups: &[&GroupSnapshot]) {
    let consumers: Vec<(&GroupSnapshot, &ConsumerInfo)> = groups
        .iter()
        .flat_map(|group| group.consumers.iter().map(move |consumer| (*group, consumer)))
        .collect();
    let labels = |group, consumer: &'_ ConsumerInfo| -> Vec<(&'static str, String)> {
        let of_group = labels_of_group(group).into_iter().map(|(name, value)| (name, value.to_owned()));
        of_group.chain([("consumer", consumer.name.clone())]).collect()
    };
    let name = "redis_stream_group_consumer_messages_pending";
    text.family(name, "Number of pending entries of the consumer", MetricKind::Gauge);
    for (group, consumer) in &consumers {
        text.sample(name, &labels(group, consumer), consumer.pending);
    }
    let name = "redis_stream_group_consumer_idle_seconds";
    text.family(
        name,
        "Time in seconds since the consumer last tried to read or claim entries",
        MetricKind::Gauge,
    );
    for (group, consumer) in &consumers {
        text.sample(name, &labels(group, consumer), consumer.idle.as_secs_f64());
    }
}

fn write_health(
    text: &mut PrometheusText,
    streams: &[StreamSnapshot],
    groups: &[&GroupSnapshot],
    limits: &Limits,
) {
    let mut family = |definition: &Definition, value: &dyn Fn(&GroupSnapshot) -> f64| {
        write_family(text, heading(definition), groups, |group| {
            (vec![("stream", &*group.stream), ("group", &*group.name)], Some(value(group)))
        });
    };
    family(&GROUP_LAG, &|group| group.lag.count as f64);
    family(&GROUP_LAG_EXACT, &|group| f64::from(u8::from(group.lag.is_exact())));
    family(&GROUP_MISSED, &|group| group.missed.count as f64);
    family(&GROUP_MISSED_EXACT, &|group| f64::from(u8::from(group.missed.is_exact())));
    family(&GROUP_OLDEST_UNREAD_AGE, &|group| group.unread_age().unwrap_or_default().as_secs_f64());
    family(&GROUP_OLDEST_PENDING_AGE, &|group| group.pending_age().unwrap_or_default().as_secs_f64());
    family(&GROUP_STUCK, &|group| group.scan.stuck as f64);
    family(&GROUP_WORKERS, &|group| group.workers.iter().filter(|worker| worker.is_alive()).count() as f64);
    family(&GROUP_DEAD_WORKERS, &|group| {
        group.workers.iter().filter(|worker| !worker.is_alive()).count() as f64
    });
    family(&GROUP_HEALTH, &|group| f64::from(group.verdict(limits).health as u8));
    write_family(text, heading(&DLQ_LENGTH), streams, |stream| {
        (vec![("stream", &*stream.name)], Some(stream.dead_letters_length))
    });
}

fn heading(definition: &Definition) -> (&'static str, &'static str, MetricKind) {
    (definition.name, definition.help, definition.kind)
}

/// Writes a family with a sample for each item that has a value.
fn write_family<'a, T, V: std::fmt::Display>(
    text: &mut PrometheusText,
    (name, help, kind): (&str, &str, MetricKind),
    items: &'a [T],
    sample: impl Fn(&'a T) -> (SampleLabels<'a>, Option<V>),
) {
    text.family(name, help, kind);
    for (labels, value) in items.iter().map(sample) {
        if let Some(value) = value {
            text.sample(name, &labels, value);
        }
    }
}

fn labels_of_stream(stream: &StreamSnapshot) -> SampleLabels<'_> {
    vec![("db", DB), ("stream", &stream.name)]
}

fn labels_of_group(group: &GroupSnapshot) -> SampleLabels<'_> {
    vec![("db", DB), ("stream", &group.stream), ("group", &group.name)]
}

fn ms(id: StreamId) -> u64 {
    id.ms
}
