//! Groups and consumers: made, moved, listed, passed on.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{Acknowledgement, ErrorKind, Release, Start, StreamId};

use super::{consumer, entry, ids_of, kind, make_a_string, pending, reader, reading};

pub(super) async fn all(backend: &dyn Admin) {
    making(backend).await;
    missing(backend).await;
    moving(backend).await;
    consumers(backend).await;
    passing_on(backend).await;
    passing_on_what_is_gone(backend).await;
    passing_on_in_a_crowd(backend).await;
}

async fn making(backend: &dyn Admin) {
    let stream = "groups:making";
    assert!(backend.create_group(stream, "b", Start::Beginning).await.unwrap());
    assert!(!backend.create_group(stream, "b", Start::End).await.unwrap());
    assert_eq!(backend.stream(stream).await.unwrap().unwrap().length, 0);
    let ids = backend.add(stream, &[entry("n", "1"), entry("n", "2")], None).await.unwrap();
    assert!(backend.create_group(stream, "a", Start::After(ids[0])).await.unwrap());
    assert!(backend.create_group(stream, "c", Start::End).await.unwrap());
    let groups = backend.groups(stream).await.unwrap();
    let shown: Vec<(&str, StreamId, u64)> =
        groups.iter().map(|group| (&*group.name, group.last_delivered, group.pending)).collect();
    assert_eq!(shown, [("a", ids[0], 0), ("b", StreamId::MIN, 0), ("c", ids[1], 0)]);
    // Redis before 7.0 does not tell it.
    assert_eq!(groups[1].lag.unwrap_or(2), 2);
    assert!(groups[1].lag.is_some() || !backend.capabilities().exact_lag);
    assert!(backend.delete_group(stream, "b").await.unwrap());
    assert!(!backend.delete_group(stream, "b").await.unwrap());
    assert_eq!(backend.groups(stream).await.unwrap().len(), 2);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// The server tells how far a group is behind.
pub(crate) async fn lag_is_told(backend: &dyn Admin) {
    let stream = "groups:lag";
    reading::make(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    assert_eq!(backend.groups(stream).await.unwrap()[0].lag, Some(2));
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn missing(backend: &dyn Admin) {
    let none = "groups:none";
    assert_eq!(backend.groups(none).await.unwrap(), []);
    assert!(!backend.delete_group(none, "g").await.unwrap());
    assert_eq!(kind(backend.consumers(none, "g").await), Some(ErrorKind::NoGroup));
    assert_eq!(kind(backend.move_group(none, "g", Start::End).await), Some(ErrorKind::NoGroup));
    assert_eq!(kind(backend.remove_consumer(consumer(none, "a"), "b").await), Some(ErrorKind::NoGroup));
    assert_eq!(kind(backend.remove_empty_consumer(consumer(none, "a")).await), Some(ErrorKind::NoGroup));
    assert_eq!(backend.stream(none).await.unwrap(), None);
    backend.add(none, &[entry("n", "1")], None).await.unwrap();
    assert_eq!(kind(backend.consumers(none, "g").await), Some(ErrorKind::NoGroup));
    assert_eq!(kind(backend.move_group(none, "g", Start::End).await), Some(ErrorKind::NoGroup));
    assert_eq!(kind(backend.remove_consumer(consumer(none, "a"), "b").await), Some(ErrorKind::NoGroup));
    assert_eq!(kind(backend.remove_empty_consumer(consumer(none, "a")).await), Some(ErrorKind::NoGroup));
    assert!(backend.delete_stream(none).await.unwrap());
    make_a_string(backend, "{groups}:string").await;
    assert_eq!(kind(backend.groups("{groups}:string").await), Some(ErrorKind::WrongType));
    let made = backend.create_group("{groups}:string", "g", Start::End).await;
    assert_eq!(kind(made), Some(ErrorKind::WrongType));
}

async fn moving(backend: &dyn Admin) {
    let stream = "groups:moving";
    let ids = reading::make(backend, stream, 3).await;
    backend.move_group(stream, "g", Start::End).await.unwrap();
    assert_eq!(backend.read(&reader(stream, "a", 9)).await.unwrap(), []);
    backend.move_group(stream, "g", Start::After(ids[1])).await.unwrap();
    assert_eq!(ids_of(&backend.read(&reader(stream, "a", 9)).await.unwrap()), ids[2..]);
    backend.move_group(stream, "g", Start::Beginning).await.unwrap();
    assert_eq!(ids_of(&backend.read(&reader(stream, "a", 9)).await.unwrap()), ids);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn consumers(backend: &dyn Admin) {
    let stream = "groups:consumers";
    let ids = reading::make(backend, stream, 3).await;
    backend.read(&reader(stream, "b", 2)).await.unwrap();
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let listed = backend.consumers(stream, "g").await.unwrap();
    let shown: Vec<(&str, u64)> = listed.iter().map(|consumer| (&*consumer.name, consumer.pending)).collect();
    assert_eq!(shown, [("a", 1), ("b", 2)]);
    assert!(listed.iter().all(|consumer| consumer.idle < Duration::from_secs(60)));
    // What was given back is nobody's, and nobody is no consumer.
    let released = [Release::counted(ids[2], 1)];
    assert_eq!(backend.release(consumer(stream, "a"), &released).await.unwrap(), 1);
    let listed = backend.consumers(stream, "g").await.unwrap();
    let shown: Vec<(&str, u64)> = listed.iter().map(|consumer| (&*consumer.name, consumer.pending)).collect();
    assert_eq!(shown, [("a", 0), ("b", 2)]);
    assert_eq!(backend.groups(stream).await.unwrap()[0].consumers, 2);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn passing_on(backend: &dyn Admin) {
    let stream = "groups:passing";
    let ids = reading::make(backend, stream, 4).await;
    backend.read(&reader(stream, "a", 3)).await.unwrap();
    backend.read(&reader(stream, "b", 1)).await.unwrap();
    backend.autoclaim(consumer(stream, "a"), Duration::ZERO, ids[1], 1).await.unwrap();
    assert_eq!(kind(backend.remove_consumer(consumer(stream, "a"), "a").await), Some(ErrorKind::Refused));
    assert_eq!(backend.remove_consumer(consumer(stream, "nobody"), "b").await.unwrap(), 0);
    assert_eq!(backend.remove_consumer(consumer(stream, "a"), "b").await.unwrap(), 3);
    let rows = pending(backend, stream).await;
    let shown: Vec<(StreamId, &str, u64)> = rows
        .iter()
        .map(|row| (row.id, row.consumer.as_deref().unwrap_or_default(), row.deliveries))
        .collect();
    assert_eq!(shown, [(ids[0], "b", 1), (ids[1], "b", 2), (ids[2], "b", 1), (ids[3], "b", 1)]);
    let names: Vec<String> =
        backend.consumers(stream, "g").await.unwrap().into_iter().map(|consumer| consumer.name).collect();
    assert_eq!(names, ["b"]);
    // Nobody inherits from one that holds nothing, and it goes all the same.
    assert_eq!(backend.read(&reader(stream, "idle", 1)).await.unwrap(), []);
    assert_eq!(backend.remove_consumer(consumer(stream, "idle"), "nobody").await.unwrap(), 0);
    let left = backend.consumers(stream, "g").await.unwrap();
    assert_eq!(left.iter().map(|consumer| &*consumer.name).collect::<Vec<_>>(), ["b"]);
    // An heir need not be there before.
    assert_eq!(backend.remove_consumer(consumer(stream, "b"), "c").await.unwrap(), 4);
    assert!(pending(backend, stream).await.iter().all(|row| row.consumer.as_deref() == Some("c")));
    // One that holds something is not dismissed; one that holds nothing is gone without a trace.
    assert!(!backend.remove_empty_consumer(consumer(stream, "c")).await.unwrap());
    assert_eq!(pending(backend, stream).await.len(), 4);
    let done = Acknowledgement { ids: ids.clone(), remember: Vec::new() };
    assert_eq!(backend.acknowledge(stream, "g", &done).await.unwrap(), 4);
    assert!(backend.remove_empty_consumer(consumer(stream, "c")).await.unwrap());
    assert_eq!(backend.consumers(stream, "g").await.unwrap(), []);
    assert!(backend.remove_empty_consumer(consumer(stream, "c")).await.unwrap(), "it is gone already");
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// A pending row whose entry is gone outlives its consumer's removal, whoever has it then.
async fn passing_on_what_is_gone(backend: &dyn Admin) {
    let stream = "groups:gone";
    let ids = reading::make(backend, stream, 2).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    assert_eq!(backend.delete_entries(stream, &ids[..1]).await.unwrap(), 1);
    let moved = backend.remove_consumer(consumer(stream, "a"), "b").await.unwrap();
    assert!((1..=2).contains(&moved), "{moved}");
    let rows = pending(backend, stream).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    assert_eq!(rows[1].consumer.as_deref(), Some("b"));
    // Once it is done with, the consumer can go.
    assert_eq!(backend.acknowledge(stream, "g", &super::done(&ids[..1])).await.unwrap(), 1);
    assert_eq!(backend.remove_consumer(consumer(stream, "a"), "b").await.unwrap(), 0);
    let listed = backend.consumers(stream, "g").await.unwrap();
    assert_eq!(listed.iter().map(|consumer| &*consumer.name).collect::<Vec<_>>(), ["b"]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Consumers read, acknowledge and are removed all at once: what was added is either acknowledged or pending.
async fn passing_on_in_a_crowd(backend: &dyn Admin) {
    let stream = "groups:crowd";
    let ids = reading::make(backend, stream, 400).await;
    let names = ["a", "b", "c", "d"];
    let work = names.map(|name| async move {
        let mut acknowledged = Vec::new();
        for _ in 0..25 {
            let read = backend.read(&reader(stream, name, 4)).await.unwrap();
            let claimant = consumer(stream, name);
            let claimed = backend.autoclaim(claimant, Duration::ZERO, StreamId::MIN, 2).await.unwrap();
            let finished: Vec<StreamId> =
                ids_of(&read).into_iter().step_by(2).chain(ids_of(&claimed.deliveries)).collect();
            for id in finished {
                if backend.acknowledge(stream, "g", &super::done(&[id])).await.unwrap() == 1 {
                    acknowledged.push(id);
                }
            }
        }
        acknowledged
    });
    let removals = async {
        for round in 0..20 {
            let (from, to) = (names[round % 4], names[(round + 1) % 4]);
            backend.remove_consumer(consumer(stream, from), to).await.unwrap();
        }
    };
    let [a, b, c, d] = work;
    let (a, b, c, d, ()) = tokio::join!(a, b, c, d, removals);
    let mut fates: BTreeMap<StreamId, u32> = BTreeMap::new();
    [a, b, c, d].into_iter().flatten().for_each(|id| *fates.entry(id).or_default() += 1);
    let left = backend.read(&reader(stream, "a", 1000)).await.unwrap();
    drop(left);
    pending(backend, stream).await.iter().for_each(|row| *fates.entry(row.id).or_default() += 1);
    assert!(fates.keys().copied().eq(ids), "each entry is acknowledged or pending");
    assert!(fates.values().all(|times| *times == 1), "and never both");
    assert!(backend.delete_stream(stream).await.unwrap());
}
