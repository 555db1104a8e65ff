//! Groups and consumers: creating, moving, listing and removing them.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{Acknowledgement, Capability, ErrorKind, Release, Start, StreamId};

use super::{consumer, entry, ids_of, kind, make_a_string, pending, reader, reading};

pub(super) async fn all(backend: &dyn Admin) {
    create_and_delete_groups(backend).await;
    calls_on_missing_groups_fail(backend).await;
    move_groups(backend).await;
    list_consumers(backend).await;
    remove_consumers(backend).await;
    removing_a_consumer_keeps_rows_of_deleted_entries(backend).await;
    concurrent_removals_of_consumers_lose_no_entry(backend).await;
}

async fn create_and_delete_groups(backend: &dyn Admin) {
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
    // Redis before 7.0 does not report the lag.
    assert_eq!(groups[1].lag.unwrap_or(2), 2);
    assert!(groups[1].lag.is_some() || !backend.supports(Capability::ExactLag, "orders").await.unwrap());
    assert!(backend.delete_group(stream, "b").await.unwrap());
    assert!(!backend.delete_group(stream, "b").await.unwrap());
    assert_eq!(backend.groups(stream).await.unwrap().len(), 2);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// The server reports the lag of a group.
pub(crate) async fn lag_is_reported(backend: &dyn Admin) {
    let stream = "groups:lag";
    reading::make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    assert_eq!(backend.groups(stream).await.unwrap()[0].lag, Some(2));
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn calls_on_missing_groups_fail(backend: &dyn Admin) {
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

async fn move_groups(backend: &dyn Admin) {
    let stream = "groups:moving";
    let ids = reading::make_stream(backend, stream, 3).await;
    backend.move_group(stream, "g", Start::End).await.unwrap();
    assert_eq!(backend.read(&reader(stream, "a", 9)).await.unwrap(), []);
    backend.move_group(stream, "g", Start::After(ids[1])).await.unwrap();
    assert_eq!(ids_of(&backend.read(&reader(stream, "a", 9)).await.unwrap()), ids[2..]);
    backend.move_group(stream, "g", Start::Beginning).await.unwrap();
    assert_eq!(ids_of(&backend.read(&reader(stream, "a", 9)).await.unwrap()), ids);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn list_consumers(backend: &dyn Admin) {
    let stream = "groups:consumers";
    let ids = reading::make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "b", 2)).await.unwrap();
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let listed = backend.consumers(stream, "g").await.unwrap();
    let shown: Vec<(&str, u64)> = listed.iter().map(|consumer| (&*consumer.name, consumer.pending)).collect();
    assert_eq!(shown, [("a", 1), ("b", 2)]);
    assert!(listed.iter().all(|consumer| consumer.idle < Duration::from_secs(60)));
    // Released entries have no owner, and the placeholder for it is not listed as a consumer.
    let released = [Release::counted(ids[2], 1)];
    assert_eq!(backend.release(consumer(stream, "a"), &released).await.unwrap(), 1);
    let listed = backend.consumers(stream, "g").await.unwrap();
    let shown: Vec<(&str, u64)> = listed.iter().map(|consumer| (&*consumer.name, consumer.pending)).collect();
    assert_eq!(shown, [("a", 0), ("b", 2)]);
    assert_eq!(backend.groups(stream).await.unwrap()[0].consumers, 2);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn remove_consumers(backend: &dyn Admin) {
    let stream = "groups:passing";
    let ids = reading::make_stream(backend, stream, 4).await;
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
    // A consumer without pending entries is removed, and its heir is not created.
    assert_eq!(backend.read(&reader(stream, "idle", 1)).await.unwrap(), []);
    assert_eq!(backend.remove_consumer(consumer(stream, "idle"), "nobody").await.unwrap(), 0);
    let left = backend.consumers(stream, "g").await.unwrap();
    assert_eq!(left.iter().map(|consumer| &*consumer.name).collect::<Vec<_>>(), ["b"]);
    // The heir need not exist yet.
    assert_eq!(backend.remove_consumer(consumer(stream, "b"), "c").await.unwrap(), 4);
    assert!(pending(backend, stream).await.iter().all(|row| row.consumer.as_deref() == Some("c")));
    // remove_empty_consumer keeps a consumer with pending entries, and removes one without.
    assert!(!backend.remove_empty_consumer(consumer(stream, "c")).await.unwrap());
    assert_eq!(pending(backend, stream).await.len(), 4);
    let done = Acknowledgement { ids: ids.clone(), ..Acknowledgement::default() };
    assert_eq!(backend.acknowledge(stream, "g", &done).await.unwrap(), 4);
    assert!(backend.remove_empty_consumer(consumer(stream, "c")).await.unwrap());
    assert_eq!(backend.consumers(stream, "g").await.unwrap(), []);
    assert!(
        backend.remove_empty_consumer(consumer(stream, "c")).await.unwrap(),
        "removing a missing consumer is no error"
    );
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// A pending row whose entry was deleted survives the removal of its consumer. Its owner may be either consumer.
async fn removing_a_consumer_keeps_rows_of_deleted_entries(backend: &dyn Admin) {
    let stream = "groups:gone";
    let ids = reading::make_stream(backend, stream, 2).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    assert_eq!(backend.delete_entries(stream, &ids[..1]).await.unwrap(), 1);
    let moved = backend.remove_consumer(consumer(stream, "a"), "b").await.unwrap();
    assert!((1..=2).contains(&moved), "{moved}");
    let rows = pending(backend, stream).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    assert_eq!(rows[1].consumer.as_deref(), Some("b"));
    // Once the row is acknowledged, the consumer can be removed.
    assert_eq!(backend.acknowledge(stream, "g", &super::done(&ids[..1])).await.unwrap(), 1);
    assert_eq!(backend.remove_consumer(consumer(stream, "a"), "b").await.unwrap(), 0);
    let listed = backend.consumers(stream, "g").await.unwrap();
    assert_eq!(listed.iter().map(|consumer| &*consumer.name).collect::<Vec<_>>(), ["b"]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Consumers read, acknowledge and are removed concurrently: each entry is either acknowledged or pending.
async fn concurrent_removals_of_consumers_lose_no_entry(backend: &dyn Admin) {
    let stream = "groups:crowd";
    let ids = reading::make_stream(backend, stream, 400).await;
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
    let mut states: BTreeMap<StreamId, u32> = BTreeMap::new();
    [a, b, c, d].into_iter().flatten().for_each(|id| *states.entry(id).or_default() += 1);
    let left = backend.read(&reader(stream, "a", 1000)).await.unwrap();
    drop(left);
    pending(backend, stream).await.iter().for_each(|row| *states.entry(row.id).or_default() += 1);
    assert!(states.keys().copied().eq(ids), "an entry is neither acknowledged nor pending");
    assert!(states.values().all(|times| *times == 1), "an entry is in two states");
    assert!(backend.delete_stream(stream).await.unwrap());
}
