//! Exports snapshots of streams as Prometheus text, with names that existing dashboards for Redis streams use.
//!
//! Names with the prefix `redis_` are those of redis_exporter. As in redis_exporter, the value of an id is its
//! millisecond part. Values that redis_exporter lacks (ages, exactness, stuck entries, health) have the prefix
//! `millstream_`. Totals of the store have the prefix `millstream_store_`.
//!
//! A value that is not known, because the details of a group have not been read yet, has no sample.

use std::borrow::{Borrow, Cow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millstream_protocol::prometheus::{MetricKind, PrometheusText, render_labels};

use super::definitions::{
    BACKEND_UP, DLQ_ADDED, DLQ_LENGTH, Definition, GROUP_BLOCKED_KEYS, GROUP_BLOCKED_MESSAGES,
    GROUP_DEAD_WORKERS, GROUP_FAILING_KEYS, GROUP_HEALTH, GROUP_LAG_EXACT, GROUP_LONGEST_RUNNING,
    GROUP_MISSED, GROUP_MISSED_EXACT, GROUP_OLDEST_PENDING_AGE, GROUP_OLDEST_UNREAD_AGE, GROUP_SLOW_WORKERS,
    GROUP_STUCK, GROUP_WORKERS, LOOK_AGE, LOOK_DURATION, METRICS_LEFT_OUT, STORE_DEAD_LETTERS,
    STORE_DEAD_WORKERS, STORE_ENTRIES, STORE_GROUPS, STORE_MISSED, STORE_OLDEST_PENDING_AGE,
    STORE_OLDEST_UNREAD_AGE, STORE_PENDING, STORE_STREAMS, STORE_STUCK, STORE_UNREAD, STORE_WORKERS,
};
use crate::backend::StreamId;
use crate::monitor::{GroupSnapshot, Health, Limits, StreamSnapshot};
use crate::observe::Sampler;

/// Maximum number of groups that get series of their own. If a store has more, these are the groups with the worst
/// health, then those with the greatest lag. A megabyte of text is about as much as Prometheus reads from other
/// programs.
pub const EXPORTED_GROUPS_MAX: usize = 1_000;
/// Maximum number of streams without exported groups that get series of their own, the longest ones.
const EXPORTED_STREAMS_MAX: usize = 1_000;

/// The value of redis_exporter's label `db`. It is constant here.
const DB: &str = "db0";

/// A group with its health.
type JudgedGroup<'a> = (&'a GroupSnapshot, Health);

/// Which series to export beyond those of streams and groups. There can be very many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoreSeries {
    /// Series of each consumer.
    pub consumers: bool,
    /// Series of each partition of a logical stream, with the label `partition`.
    pub partitions: bool,
}

/// Formats the last look of a sampler as Prometheus text, with those streams that `may_see` allows. Does not ask the
/// store.
pub fn observed_text(
    sampler: &Sampler,
    may_see: impl Fn(&str) -> bool,
    limits: &Limits,
    more: MoreSeries,
) -> String {
    let (look, state) = (sampler.look(), sampler.state());
    let streams: Vec<_> = look.streams.iter().filter(|stream| stream.is_seen(&may_see)).cloned().collect();
    let is_first = look.number == 0;
    let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_millis(look.at_ms));
    let up = store_text(
        state.trouble.is_none() && !is_first,
        (!is_first).then(|| (age.unwrap_or_default(), look.took)),
    );
    if is_first { up } else { exporter_text(&streams, limits, more) + &up }
}

/// Formats whether the store is reachable, and the age and the duration of the look that other metrics come from.
pub fn store_text(is_up: bool, look: Option<(Duration, Duration)>) -> String {
    let mut text = PrometheusText::default();
    let mut one = |definition: &Definition, value: &dyn Display| {
        text.family(definition.name, definition.help, definition.kind);
        text.sample::<&str, &str>(definition.name, &[], value);
    };
    one(&BACKEND_UP, &u8::from(is_up));
    if let Some((age, took)) = look {
        one(&LOOK_AGE, &age.as_secs_f64());
        one(&LOOK_DURATION, &took.as_secs_f64());
    }
    text.finish()
}

/// Formats snapshots as Prometheus text: totals of all streams and groups, and series of up to [`EXPORTED_GROUPS_MAX`]
/// groups.
pub fn exporter_text<S: Borrow<StreamSnapshot>>(streams: &[S], limits: &Limits, more: MoreSeries) -> String {
    let mut text = PrometheusText::default();
    let streams: Vec<&StreamSnapshot> = streams.iter().map(Borrow::borrow).collect();
    let judged = |group| (group, GroupSnapshot::verdict(group, limits).health);
    let groups: Vec<JudgedGroup<'_>> = streams.iter().flat_map(|stream| &stream.groups).map(judged).collect();
    write_totals(&mut text, &streams, &groups);
    let mut exported = worst(&groups, EXPORTED_GROUPS_MAX);
    let mut exported_streams = streams_of(&exported, &streams);
    let mut left_out = groups.len() - exported.len() + streams.len() - exported_streams.len();
    if more.partitions {
        // They are not in the totals, because the logical streams are.
        let parts: Vec<&StreamSnapshot> =
            streams.iter().flat_map(|stream| stream.parts()).map(Arc::as_ref).collect();
        let groups: Vec<JudgedGroup<'_>> = parts.iter().flat_map(|part| &part.groups).map(judged).collect();
        let exported_groups = worst(&groups, EXPORTED_GROUPS_MAX - exported.len());
        let exported_parts = streams_of(&exported_groups, &parts);
        left_out += groups.len() - exported_groups.len() + parts.len() - exported_parts.len();
        exported.extend(exported_groups);
        exported_streams.extend(exported_parts);
    }
    text.family(METRICS_LEFT_OUT.name, METRICS_LEFT_OUT.help, METRICS_LEFT_OUT.kind);
    text.sample::<&str, &str>(METRICS_LEFT_OUT.name, &[], left_out);
    write_streams(&mut text, &exported_streams);
    write_groups(&mut text, &exported);
    if more.consumers {
        write_consumers(&mut text, &exported);
    }
    write_health(&mut text, &exported_streams, &exported, &entries_added(&streams));
    text.finish()
}

/// Returns the groups that get series of their own, in the order of `groups`.
fn worst<'a>(groups: &[JudgedGroup<'a>], count_max: usize) -> Vec<JudgedGroup<'a>> {
    let mut chosen: Vec<usize> = (0..groups.len()).collect();
    if chosen.len() > count_max {
        chosen.sort_by_key(|at| Reverse((groups[*at].1, groups[*at].0.lag.count)));
        chosen.truncate(count_max);
        chosen.sort_unstable();
    }
    chosen.into_iter().map(|at| groups[at]).collect()
}

/// Returns the streams that get series of their own: those of the exported groups, and the longest ones of the others.
fn streams_of<'a>(exported: &[JudgedGroup<'_>], streams: &[&'a StreamSnapshot]) -> Vec<&'a StreamSnapshot> {
    let of_groups: BTreeSet<&str> = exported.iter().map(|(group, _)| &*group.stream).collect();
    let (mut chosen, mut others): (Vec<&StreamSnapshot>, Vec<&StreamSnapshot>) =
        streams.iter().partition(|stream| of_groups.contains(&*stream.name));
    if others.len() > EXPORTED_STREAMS_MAX {
        others.sort_by_key(|stream| Reverse(stream.info.length));
        others.truncate(EXPORTED_STREAMS_MAX);
    }
    chosen.append(&mut others);
    chosen.sort_by(|a, b| a.name.cmp(&b.name));
    chosen
}

fn write_totals(text: &mut PrometheusText, streams: &[&StreamSnapshot], groups: &[JudgedGroup<'_>]) {
    text.family(STORE_GROUPS.name, STORE_GROUPS.help, STORE_GROUPS.kind);
    for one in [Health::Ok, Health::Unknown, Health::Degraded, Health::Critical] {
        let count = groups.iter().filter(|(_, health)| *health == one).count();
        text.sample(STORE_GROUPS.name, &[("health", one.to_string())], count);
    }
    // Streams can share a dead-letter stream.
    let dead_letters: BTreeMap<&str, u64> = streams
        .iter()
        .flat_map(|stream| stream.dead_letter_streams.iter().map(|(name, length)| (&**name, *length)))
        .collect();
    let sum = |value: fn(&GroupSnapshot) -> u64| {
        groups.iter().map(|(group, _)| value(group)).fold(0, u64::saturating_add)
    };
    let oldest = |age: fn(&GroupSnapshot) -> Option<Duration>| {
        groups.iter().filter_map(|(group, _)| age(group)).max().unwrap_or_default().as_secs_f64()
    };
    let mut one = |definition: &Definition, value: &dyn Display| {
        text.family(definition.name, definition.help, definition.kind);
        text.sample::<&str, &str>(definition.name, &[], value);
    };
    one(&STORE_STREAMS, &streams.len());
    one(&STORE_ENTRIES, &streams.iter().map(|stream| stream.info.length).fold(0, u64::saturating_add));
    one(&STORE_UNREAD, &sum(|group| group.lag.count));
    one(&STORE_MISSED, &sum(|group| group.missed.count));
    one(&STORE_PENDING, &sum(|group| group.pending));
    one(&STORE_STUCK, &sum(|group| group.scan.stuck));
    one(&STORE_DEAD_LETTERS, &dead_letters.values().copied().fold(0, u64::saturating_add));
    one(&STORE_WORKERS, &sum(|group| count_workers(group, true)));
    one(&STORE_DEAD_WORKERS, &sum(|group| count_workers(group, false)));
    one(&STORE_OLDEST_UNREAD_AGE, &oldest(GroupSnapshot::unread_age));
    one(&STORE_OLDEST_PENDING_AGE, &oldest(GroupSnapshot::pending_age));
}

fn count_workers(group: &GroupSnapshot, alive: bool) -> u64 {
    group.workers.iter().filter(|worker| worker.is_alive() == alive).count() as u64
}

fn write_streams(text: &mut PrometheusText, streams: &[&StreamSnapshot]) {
    let labels: Vec<String> = streams
        .iter()
        .map(|stream| render_labels(&[&[("db", DB.into())], &*stream_labels(stream)].concat()))
        .collect();
    let mut family = |name: &str, help: &str, kind: MetricKind, value: fn(&StreamSnapshot) -> Option<u64>| {
        write_family(text, (name, help, kind), streams, &labels, |stream| value(stream));
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

fn write_groups(text: &mut PrometheusText, groups: &[JudgedGroup<'_>]) {
    let labels: Vec<String> = groups
        .iter()
        .map(|(group, _)| render_labels(&[&[("db", DB.into())], &*group_labels(group)].concat()))
        .collect();
    let mut family = |name: &str, help: &str, value: fn(&GroupSnapshot) -> Option<u64>| {
        write_family(text, (name, help, MetricKind::Gauge), groups, &labels, |(group, _)| value(group));
    };
    family("redis_stream_group_consumers", "Number of consumers of the group", |g| {
        g.detail_at.map(|_| g.consumers.len() as u64)
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

fn write_consumers(text: &mut PrometheusText, groups: &[JudgedGroup<'_>]) {
    let (mut consumers, mut labels) = (Vec::new(), Vec::new());
    for (group, _) in groups {
        for consumer in &group.consumers {
            consumers.push(consumer);
            let of_group = group_labels(group);
            labels.push(render_labels(
                &[&[("db", DB.into())], &*of_group, &[("consumer", consumer.name.as_str().into())]].concat(),
            ));
        }
    }
    let pending = "redis_stream_group_consumer_messages_pending";
    let heading = (pending, "Number of pending entries of the consumer", MetricKind::Gauge);
    write_family(text, heading, &consumers, &labels, |consumer| Some(consumer.pending));
    let idle = "redis_stream_group_consumer_idle_seconds";
    let help = "Time in seconds since the consumer last tried to read or claim entries";
    write_family(text, (idle, help, MetricKind::Gauge), &consumers, &labels, |consumer| {
        Some(consumer.idle.as_secs_f64())
    });
}

/// Returns for each stream how many entries were ever added to it. `None` if the store does not count them.
fn entries_added<'a>(streams: &[&'a StreamSnapshot]) -> BTreeMap<&'a str, Option<u64>> {
    let partitioned = streams.iter().filter_map(|stream| stream.partitioned.as_deref());
    let hidden = partitioned.flat_map(|partitioned| &partitioned.dead_letters).map(Arc::as_ref);
    let all = streams.iter().copied().chain(hidden);
    all.map(|stream| (&*stream.name, stream.info.entries_added)).collect()
}

fn write_health(
    text: &mut PrometheusText,
    streams: &[&StreamSnapshot],
    groups: &[JudgedGroup<'_>],
    added: &BTreeMap<&str, Option<u64>>,
) {
    let labels: Vec<String> = groups.iter().map(|(group, _)| render_labels(&group_labels(group))).collect();
    let mut family = |definition: &Definition, value: fn(&GroupSnapshot) -> f64| {
        write_family(text, heading(definition), groups, &labels, |(group, _)| Some(value(group)));
    };
    family(&GROUP_LAG_EXACT, |group| f64::from(u8::from(group.lag.is_exact())));
    family(&GROUP_MISSED, |group| group.missed.count as f64);
    family(&GROUP_MISSED_EXACT, |group| f64::from(u8::from(group.missed.is_exact())));
    let mut detail = |definition: &Definition, value: fn(&GroupSnapshot) -> f64| {
        write_family(text, heading(definition), groups, &labels, |(group, _)| {
            group.detail_at.map(|_| value(group))
        });
    };
    detail(&GROUP_OLDEST_UNREAD_AGE, |group| group.unread_age().unwrap_or_default().as_secs_f64());
    detail(&GROUP_OLDEST_PENDING_AGE, |group| group.pending_age().unwrap_or_default().as_secs_f64());
    detail(&GROUP_STUCK, |group| group.scan.stuck as f64);
    detail(&GROUP_WORKERS, |group| count_workers(group, true) as f64);
    detail(&GROUP_DEAD_WORKERS, |group| count_workers(group, false) as f64);
    detail(&GROUP_LONGEST_RUNNING, |group| group.longest_running().unwrap_or_default().as_secs_f64());
    detail(&GROUP_SLOW_WORKERS, |group| group.slow_workers() as f64);
    detail(&GROUP_BLOCKED_KEYS, |group| group.lanes().blocked_keys as f64);
    detail(&GROUP_BLOCKED_MESSAGES, |group| group.lanes().blocked_messages as f64);
    detail(&GROUP_FAILING_KEYS, |group| group.lanes().failing_keys as f64);
    write_family(text, heading(&GROUP_HEALTH), groups, &labels, |(_, health)| match health {
        Health::Ok => Some(0),
        Health::Unknown => None,
        Health::Degraded => Some(1),
        Health::Critical => Some(2),
    });
    let labels: Vec<String> = streams.iter().map(|stream| render_labels(&stream_labels(stream))).collect();
    write_family(text, heading(&DLQ_LENGTH), streams, &labels, |stream| Some(stream.dead_letters_length));
    let added = |stream: &&StreamSnapshot| {
        let names = stream.dead_letter_streams.iter();
        // A stream that does not exist yet has no entries.
        names
            .map(|(name, length)| added.get(&**name).copied().unwrap_or((*length == 0).then_some(0)))
            .sum::<Option<u64>>()
    };
    write_family(text, heading(&DLQ_ADDED), streams, &labels, added);
}

/// A label and its value.
type Label<'a> = (&'static str, Cow<'a, str>);

/// Returns the labels of a stream. That of a partition is the name of its logical stream, with its number.
fn stream_labels(stream: &StreamSnapshot) -> Vec<Label<'_>> {
    match &stream.part_of {
        None => vec![("stream", stream.name.as_str().into())],
        Some(part) => vec![("stream", (&*part.stream).into()), ("partition", part.number.to_string().into())],
    }
}

/// Returns the labels of a group.
fn group_labels(group: &GroupSnapshot) -> Vec<Label<'_>> {
    let name = ("group", group.name.as_str().into());
    match &group.part_of {
        None => vec![("stream", group.stream.as_str().into()), name],
        Some(part) => {
            vec![("stream", (&*part.stream).into()), name, ("partition", part.number.to_string().into())]
        }
    }
}

fn heading(definition: &Definition) -> (&'static str, &'static str, MetricKind) {
    (definition.name, definition.help, definition.kind)
}

/// Writes a family with a sample for each item that has a value. `labels` are those of the items.
fn write_family<T, V: Display>(
    text: &mut PrometheusText,
    (name, help, kind): (&str, &str, MetricKind),
    items: &[T],
    labels: &[String],
    value: impl Fn(&T) -> Option<V>,
) {
    text.family(name, help, kind);
    for (item, labels) in items.iter().zip(labels) {
        if let Some(value) = value(item) {
            text.sample_with(name, labels, value);
        }
    }
}

fn ms(id: StreamId) -> u64 {
    id.ms
}
