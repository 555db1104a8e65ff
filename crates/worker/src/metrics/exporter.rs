//! Snapshots of streams as Prometheus text, under the names that dashboards for Redis streams know.
//!
//! The names with `redis_` are those of redis_exporter. Ids are told as their milliseconds, as it does. What it has
//! no name for (ages, exactness, stuck messages, health) comes under names with `millstream_`.

use super::definitions::{
    DLQ_LENGTH, Definition, GROUP_HEALTH, GROUP_LAG, GROUP_LAG_EXACT, GROUP_OLDEST_PENDING_AGE,
    GROUP_OLDEST_UNREAD_AGE, GROUP_STUCK,
};
use super::text::{Kind, Text};
use crate::backend::{ConsumerInfo, StreamId};
use crate::monitor::{GroupSnapshot, Limits, StreamSnapshot};

/// The database label of redis_exporter: workers know no other.
const DB: &str = "db0";

/// Whether consumers have series of their own. There may be very many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// One series for each consumer.
    Each,
    /// None.
    Left,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Snapshots as Prometheus text.
pub fn exporter_text(streams: &[StreamSnapshot], limits: &Limits, consumers: Consumers) -> String {
    let mut text = Text::default();
    write_streams(&mut text, streams);
    let groups: Vec<&GroupSnapshot> = streams.iter().flat_map(|stream| &stream.groups).collect();
    write_groups(&mut text, &groups);
    if consumers == Consumers::Each {
        write_consumers(&mut text, &groups);
    }
    write_health(&mut text, streams, &groups, limits);
    text.finish()
}

fn write_streams(text: &mut Text, streams: &[StreamSnapshot]) {
    let mut family = |name: &str, help: &str, kind: Kind, value: fn(&StreamSnapshot) -> Option<u64>| {
        write_family(text, (name, help, kind), streams, |stream| (labels_of_stream(stream), value(stream)));
    };
    use Kind::{Counter, Gauge};
    family("redis_stream_length", "The number of elements of the stream", Gauge, |s| Some(s.info.length));
    family("redis_stream_groups", "Groups count of stream", Gauge, |s| Some(s.info.groups));
    family("redis_stream_entries_added_total", "Entries ever added to the stream", Counter, |s| {
        s.info.entries_added
    });
    family("redis_stream_last_generated_id", "The id of the last entry added", Gauge, |s| {
        Some(s.info.last_id.ms)
    });
    family("redis_stream_first_entry_id", "The id of the first entry", Gauge, |s| s.info.first_entry.map(ms));
    family("redis_stream_last_entry_id", "The id of the last entry", Gauge, |s| s.info.last_entry.map(ms));
    family("redis_stream_max_deleted_entry_id", "The greatest deleted id", Gauge, |s| {
        s.info.max_deleted_id.map(ms)
    });
}

fn write_groups(text: &mut Text, groups: &[&GroupSnapshot]) {
    let mut family = |name: &str, help: &str, value: fn(&GroupSnapshot) -> Option<u64>| {
        write_family(text, (name, help, Kind::Gauge), groups, |group| (labels_of_group(group), value(group)));
    };
    family("redis_stream_group_consumers", "Consumers of the group", |g| Some(g.consumers.len() as u64));
    family("redis_stream_group_messages_pending", "Pending entries of the group", |g| Some(g.pending));
    family("redis_stream_group_last_delivered_id", "The id delivered last", |g| Some(g.last_delivered.ms));
    family("redis_stream_group_entries_read", "Entries the group has read", |g| g.entries_read);
    family("redis_stream_group_lag", "Entries the group has yet to read", |g| Some(g.lag.count));
}

fn write_consumers(text: &mut Text, groups: &[&GroupSnapshot]) {
    let consumers: Vec<(&GroupSnapshot, &ConsumerInfo)> = groups
        .iter()
        .flat_map(|group| group.consumers.iter().map(move |consumer| (*group, consumer)))
        .collect();
    let labels = |group, consumer: &'_ ConsumerInfo| -> Vec<(&'static str, String)> {
        let of_group = labels_of_group(group).into_iter().map(|(name, value)| (name, value.to_owned()));
        of_group.chain([("consumer", consumer.name.clone())]).collect()
    };
    let name = "redis_stream_group_consumer_messages_pending";
    text.family(name, "Pending entries of the consumer", Kind::Gauge);
    for (group, consumer) in &consumers {
        text.sample(name, &labels(group, consumer), consumer.pending);
    }
    let name = "redis_stream_group_consumer_idle_seconds";
    text.family(name, "How long ago the consumer last asked", Kind::Gauge);
    for (group, consumer) in &consumers {
        text.sample(name, &labels(group, consumer), consumer.idle.as_secs_f64());
    }
}

fn write_health(text: &mut Text, streams: &[StreamSnapshot], groups: &[&GroupSnapshot], limits: &Limits) {
    let mut family = |definition: &Definition, value: &dyn Fn(&GroupSnapshot) -> f64| {
        write_family(text, heading(definition), groups, |group| {
            (vec![("stream", &*group.stream), ("group", &*group.name)], Some(value(group)))
        });
    };
    family(&GROUP_LAG, &|group| group.lag.count as f64);
    family(&GROUP_LAG_EXACT, &|group| f64::from(u8::from(group.lag.is_exact())));
    family(&GROUP_OLDEST_UNREAD_AGE, &|group| group.unread_age().unwrap_or_default().as_secs_f64());
    family(&GROUP_OLDEST_PENDING_AGE, &|group| group.pending_age().unwrap_or_default().as_secs_f64());
    family(&GROUP_STUCK, &|group| group.scan.stuck as f64);
    family(&GROUP_HEALTH, &|group| f64::from(group.verdict(limits).health as u8));
    write_family(text, heading(&DLQ_LENGTH), streams, |stream| {
        (vec![("stream", &*stream.name)], Some(stream.dead_letters_length))
    });
}

fn heading(definition: &Definition) -> (&'static str, &'static str, Kind) {
    (definition.name, definition.help, definition.kind)
}

/// A family with a sample for each thing that has a value.
fn write_family<'a, T, V: std::fmt::Display>(
    text: &mut Text,
    (name, help, kind): (&str, &str, Kind),
    things: &'a [T],
    sample: impl Fn(&'a T) -> (Labels<'a>, Option<V>),
) {
    text.family(name, help, kind);
    for (labels, value) in things.iter().map(sample) {
        if let Some(value) = value {
            text.sample(name, &labels, value);
        }
    }
}

fn labels_of_stream(stream: &StreamSnapshot) -> Labels<'_> {
    vec![("db", DB), ("stream", &stream.name)]
}

fn labels_of_group(group: &GroupSnapshot) -> Labels<'_> {
    vec![("db", DB), ("stream", &group.stream), ("group", &group.name)]
}

fn ms(id: StreamId) -> u64 {
    id.ms
}
