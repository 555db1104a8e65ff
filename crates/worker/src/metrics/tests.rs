//! Tests of the exported text: its size, its limit, and the last look of a sampler.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::backend::{Admin, Embedded, Read, ReadMessages, Start};
use crate::monitor::{Limits, Monitor, StreamSnapshot};
use crate::observe::{Sampler, SamplerOptions};
use crate::partitions::Partitions;
use crate::producer::Producer;

/// Returns a stream with groups of three consumers each, as the monitor sees it.
async fn stream(groups: usize) -> StreamSnapshot {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    Producer::new(backend.clone(), "orders").send_all((0..10).map(|n| [("n", n.to_string())])).await.unwrap();
    for group in (0..groups).map(|n| format!("group-{n}")) {
        backend.create_group("orders", &group, Start::Beginning).await.unwrap();
        for consumer in ["worker-1", "worker-2", "worker-3"] {
            let read =
                Read { stream: "orders", group: &group, consumer, count: 1, block: None, claim_idle: None };
            backend.read(&read).await.unwrap();
        }
    }
    Monitor::new(backend).stream("orders").await.unwrap().unwrap()
}

/// Returns copies of a stream with names of their own.
fn copies(stream: &StreamSnapshot, count: usize) -> Vec<StreamSnapshot> {
    let renamed = |n: usize| {
        let mut stream = stream.clone();
        stream.name = format!("orders-{n}");
        stream.groups.iter_mut().for_each(|group| group.stream.clone_from(&stream.name));
        stream
    };
    (0..count).map(renamed).collect()
}

fn text(streams: &[StreamSnapshot], more: MoreSeries) -> String {
    exporter_text(streams, &Limits::default(), more)
}

/// Prints the sizes: `cargo test -p millstream-worker metrics::tests -- --nocapture`.
#[tokio::test]
async fn beyond_the_limit_the_worst_groups_have_series_and_totals_include_all() {
    let mut streams = copies(&stream(10).await, EXPORTED_GROUPS_MAX);
    let few = &streams[..EXPORTED_GROUPS_MAX / 10];
    let at_the_limit = text(few, MoreSeries::default());
    let with_consumers = text(few, MoreSeries { consumers: true, ..MoreSeries::default() });
    let beyond = text(&streams, MoreSeries::default());
    let sizes = [("1,000", &at_the_limit), ("1,000 with consumers", &with_consumers), ("10,000", &beyond)];
    for (what, text) in sizes {
        println!("{what} groups: {} bytes, {} compressed", text.len(), gzip(text.as_bytes()).len());
    }
    let lags = |text: &str| text.matches("\nredis_stream_group_lag{").count();
    assert!(at_the_limit.contains("\nmillstream_metrics_left_out 0\n"), "the limit is exceeded");
    assert_eq!(lags(&at_the_limit), EXPORTED_GROUPS_MAX);
    assert_eq!(with_consumers.matches("\nredis_stream_group_consumer_idle_seconds{").count(), 3_000);

    // All groups have the same health, so the one with the greatest lag comes first. Streams have series with their
    // groups.
    let last = streams.last_mut().unwrap();
    last.groups[7].lag.count = 1_000_000;
    let beyond = text(&streams, MoreSeries::default());
    assert_eq!(lags(&beyond), EXPORTED_GROUPS_MAX);
    assert!(beyond.contains("group=\"group-7\"} 1000000\n"), "{beyond}");
    assert!(beyond.contains("\nmillstream_metrics_left_out 9000\n"), "{beyond}");
    for total in ["store_streams 1000", "store_unread_entries 1069993", "store_pending_entries 30000"] {
        assert!(beyond.contains(&format!("\nmillstream_{total}\n")), "{total} is missing from {beyond}");
    }
    assert!(beyond.len() < 3_000_000, "{} bytes", beyond.len());
}

#[tokio::test]
async fn a_logical_stream_has_sums_and_its_partitions_have_series_on_request() {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    let partitions = Partitions::plan("orders", 3, None).unwrap();
    partitions.create(&*backend).await.unwrap();
    for (name, unread) in partitions.names().into_iter().zip([2, 5, 0]) {
        backend.create_group(name, "billing", Start::Beginning).await.unwrap();
        let entries = (0..unread).map(|n| [("n", n.to_string())]);
        Producer::new(backend.clone(), name).send_all(entries).await.unwrap();
    }
    let streams = Monitor::new(backend).streams("*").await.unwrap();
    let sums = text(&streams, MoreSeries::default());
    for line in [
        "redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\"} 7",
        "redis_stream_length{db=\"db0\",stream=\"orders\"} 7",
        "millstream_store_unread_entries 7",
        "millstream_store_streams 1",
    ] {
        assert!(sums.lines().any(|found| found == line), "{line} is missing from {sums}");
    }
    assert!(!sums.contains("partition") && !sums.contains("{ae}"), "{sums}");
    let all = text(&streams, MoreSeries { partitions: true, ..MoreSeries::default() });
    for line in [
        "redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\"} 7",
        "redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\",partition=\"1\"} 5",
        "redis_stream_length{db=\"db0\",stream=\"orders\",partition=\"0\"} 2",
        "millstream_store_unread_entries 7",
        "millstream_metrics_left_out 0",
    ] {
        assert!(all.lines().any(|found| found == line), "{line} is missing from {all}");
    }
}

#[tokio::test]
async fn details_that_are_not_known_are_absent() {
    let mut stream = stream(1).await;
    stream.groups[0].detail_at = None;
    let text = text(&[stream], MoreSeries::default());
    for absent in [
        "redis_stream_group_consumers{",
        "millstream_group_stuck_messages{",
        "age_seconds{",
        "millstream_group_health{",
    ] {
        assert!(!text.contains(absent), "{text}");
    }
    assert!(text.contains("\nredis_stream_group_lag{"), "{text}");
    assert!(text.contains("\nmillstream_store_groups{health=\"unknown\"} 1\n"), "{text}");
}

#[tokio::test]
async fn the_last_look_of_a_sampler_is_exported_with_its_age() {
    let embedded = Embedded::in_memory();
    embedded.create_group("orders", "billing", Start::Beginning).await.unwrap();
    embedded.create_group("secret", "billing", Start::Beginning).await.unwrap();
    let store = embedded.store().clone();
    let sampler =
        Sampler::start(Arc::new(embedded), SamplerOptions::default().interval(Duration::from_millis(10)));
    let text =
        || observed_text(&sampler, |stream| stream != "secret", &Limits::default(), MoreSeries::default());
    // No look yet: the task of the sampler has not run.
    assert_eq!(text().lines().last(), Some("millstream_backend_up 0"));
    let mut viewer = sampler.subscribe();
    while viewer.changed().await.number < 2 {}
    let first = text();
    for line in ["millstream_backend_up 1", "millstream_store_streams 1"] {
        assert!(first.lines().any(|found| found == line), "{line} is missing from {first}");
    }
    assert!(
        first.contains("\nmillstream_look_age_seconds ")
            && first.contains("\nmillstream_look_duration_seconds ")
    );
    assert!(!first.contains("secret"), "{first}");
    store.close().unwrap();
    while viewer.changed().await.trouble.is_none() {}
    let last = text();
    assert!(last.contains("\nmillstream_group_health{stream=\"orders\",group=\"billing\"}"), "{last}");
    assert!(last.lines().any(|line| line == "millstream_backend_up 0"), "{last}");
}
