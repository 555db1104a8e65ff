//! Deleting entries that every group has acknowledged.

use std::sync::Arc;

use millstream_worker::backend::{Consumer, Start, StreamId};
use millstream_worker::names::dead_letters_of;
use millstream_worker::{Admin, HandlerError, Message, Worker};

use super::{dead_letter, done, entry, ids_of, reader, reading};

pub(super) async fn all(backend: &dyn Admin) {
    deletes_only_what_every_group_has_acknowledged(backend).await;
    entries_after_one_that_a_group_keeps(backend).await;
    groups_keep_entries_from_their_position_on(backend).await;
    without_groups_nothing_is_deleted(backend).await;
    many_entries_are_deleted_in_several_steps(backend).await;
}

async fn length(backend: &dyn Admin, stream: &str) -> u64 {
    backend.stream(stream).await.unwrap().map_or(0, |info| info.length)
}

async fn read(backend: &dyn Admin, stream: &str, group: &str, count: usize) -> Vec<StreamId> {
    let read = millstream_worker::backend::Read { group, ..reader(stream, "a", count) };
    ids_of(&backend.read(&read).await.unwrap())
}

async fn acknowledge(backend: &dyn Admin, stream: &str, group: &str, ids: &[StreamId]) {
    let acknowledged = backend.acknowledge(stream, group, &done(ids)).await.unwrap();
    assert_eq!(acknowledged, ids.len() as u64);
}

async fn delete(backend: &dyn Admin, stream: &str) -> u64 {
    backend.delete_done(stream, false).await.unwrap()
}

async fn deletes_only_what_every_group_has_acknowledged(backend: &dyn Admin) {
    let stream = "deleting:groups";
    let ids = reading::make_stream(backend, stream, 4).await;
    backend.create_group(stream, "h", Start::Beginning).await.unwrap();
    assert_eq!(read(backend, stream, "g", 3).await, ids[..3]);
    // `h` has read nothing.
    acknowledge(backend, stream, "g", &ids[..2]).await;
    for gaps in [false, true] {
        assert_eq!(backend.delete_done(stream, gaps).await.unwrap(), 0);
    }
    // `h` has read all, and acknowledged the first.
    assert_eq!(read(backend, stream, "h", 9).await, ids);
    assert_eq!(delete(backend, stream).await, 0);
    acknowledge(backend, stream, "h", &ids[..1]).await;
    assert_eq!((delete(backend, stream).await, length(backend, stream).await), (1, 3));
    acknowledge(backend, stream, "h", &ids[1..2]).await;
    assert_eq!((delete(backend, stream).await, length(backend, stream).await), (1, 2));
    // A dead letter counts as acknowledged.
    let letters = [dead_letter(ids[2], &dead_letters_of(stream))];
    let moved = backend.dead_letter(Consumer::new(stream, "g", "a"), &letters).await;
    assert_eq!(moved.unwrap(), ids[2..3]);
    acknowledge(backend, stream, "h", &ids[2..]).await;
    // `g` has not read the last entry.
    assert_eq!((delete(backend, stream).await, length(backend, stream).await), (1, 1));
    assert_eq!(read(backend, stream, "g", 9).await, ids[3..]);
    for gaps in [false, true] {
        assert_eq!(backend.delete_done(stream, gaps).await.unwrap(), 0);
    }
    acknowledge(backend, stream, "g", &ids[3..]).await;
    assert_eq!((delete(backend, stream).await, length(backend, stream).await), (1, 0));
    let groups = backend.groups(stream).await.unwrap();
    assert!(
        groups.iter().all(|group| group.pending == 0 && group.lag.is_none_or(|lag| lag == 0)),
        "{groups:?}"
    );
}

async fn entries_after_one_that_a_group_keeps(backend: &dyn Admin) {
    let stream = "deleting:gap";
    let ids = reading::make_stream(backend, stream, 3).await;
    assert_eq!(read(backend, stream, "g", 9).await, ids);
    acknowledge(backend, stream, "g", &ids[1..]).await;
    assert_eq!(delete(backend, stream).await, 0);
    // Some stores cannot delete them before the first entry is acknowledged.
    let deleted = backend.delete_done(stream, true).await.unwrap();
    assert!([0, 2].contains(&deleted), "{deleted}");
    assert_eq!(super::pending(backend, stream).await.len(), 1);
    acknowledge(backend, stream, "g", &ids[..1]).await;
    assert_eq!((delete(backend, stream).await, length(backend, stream).await), (3 - deleted, 0));
}

async fn groups_keep_entries_from_their_position_on(backend: &dyn Admin) {
    let stream = "deleting:late";
    let ids = reading::make_stream(backend, stream, 4).await;
    read(backend, stream, "g", 9).await;
    acknowledge(backend, stream, "g", &ids).await;
    // A group that was created later, but before the deletion.
    backend.create_group(stream, "late", Start::After(ids[1])).await.unwrap();
    assert_eq!(delete(backend, stream).await, 2);
    assert_eq!(read(backend, stream, "late", 9).await, ids[2..]);
    backend.create_group(stream, "first", Start::Beginning).await.unwrap();
    acknowledge(backend, stream, "late", &ids[2..]).await;
    assert_eq!(delete(backend, stream).await, 0);
    assert_eq!(read(backend, stream, "first", 9).await, ids[2..]);
    // A group that goes back keeps what it may read again.
    acknowledge(backend, stream, "first", &ids[2..]).await;
    backend.move_group(stream, "late", Start::After(ids[2])).await.unwrap();
    assert_eq!((delete(backend, stream).await, length(backend, stream).await), (1, 1));
}

async fn without_groups_nothing_is_deleted(backend: &dyn Admin) {
    assert_eq!(backend.delete_done("deleting:none", true).await.unwrap(), 0);
    let stream = "deleting:alone";
    backend.delete_stream(stream).await.unwrap();
    backend.add(stream, &[entry("n", "1")], None).await.unwrap();
    assert_eq!((backend.delete_done(stream, true).await.unwrap(), length(backend, stream).await), (0, 1));
}

async fn many_entries_are_deleted_in_several_steps(backend: &dyn Admin) {
    let stream = "deleting:many";
    backend.create_group(stream, "g", Start::Beginning).await.unwrap();
    let entries = vec![entry("n", "1"); 1000];
    let mut last = StreamId::MIN;
    for _ in 0..11 {
        last = *backend.add(stream, &entries, None).await.unwrap().last().unwrap();
    }
    // The group has read all but the last, and acknowledged all of these.
    backend.move_group(stream, "g", Start::After(last.prev().unwrap())).await.unwrap();
    assert_eq!(delete(backend, stream).await, 10_999);
    assert_eq!(length(backend, stream).await, 1);
    assert_eq!(read(backend, stream, "g", 9).await, [last]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// A worker leaves an empty stream behind, and another group loses nothing.
pub(crate) async fn by_a_worker(backend: &Arc<dyn Admin>) {
    let stream = "deleting:worker";
    backend.delete_stream(&dead_letters_of(stream)).await.unwrap();
    let ids = reading::make_stream(&**backend, stream, 50).await;
    let worker = |group: &str| {
        let handler = async |message: Message| match message.text("n") {
            Some("7") => Err(HandlerError::reject("poison")),
            _ => Ok(()),
        };
        Worker::builder(backend.clone()).stream(stream).group(group).handler(handler).delete_done(true)
    };
    backend.create_group(stream, "h", Start::Beginning).await.unwrap();
    for (group, left) in [("g", ids.len() as u64), ("h", 0)] {
        let worker = worker(group).build().unwrap();
        let handle = worker.handle();
        let all_done = async {
            super::wait_until(|| async { handle.stats().acknowledged + handle.stats().dead == 50 }).await;
        };
        let report = worker.run_until(all_done).await.unwrap();
        assert_eq!((report.acknowledged, report.dead), (49, 1), "{report}");
        assert_eq!(length(&**backend, stream).await, left, "{group}");
    }
    assert_eq!(length(&**backend, &dead_letters_of(stream)).await, 2);
}
