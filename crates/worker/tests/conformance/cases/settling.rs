//! Settling pending entries: acknowledging, extending, releasing, dead-lettering and restoring.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{Acknowledgement, ErrorKind, IdOrder, Range, Release, StreamId};

use super::{
    consumer, dead_letter, done, entry, fields, ids_of, kind, make_a_string, pending, reader, reading,
    wait_until,
};

pub(super) async fn all(backend: &dyn Admin) {
    acknowledge(backend).await;
    remember_handled_keys(backend).await;
    extend_leases(backend).await;
    release_entries(backend).await;
    release_ignores_older_deliveries(backend).await;
    extend_and_release_keep_rows_of_deleted_entries(backend).await;
    move_to_dead_letters(backend).await;
    dead_letter_released_rows_only_if_their_entry_is_deleted(backend).await;
    a_failed_dead_letter_acknowledges_nothing(backend).await;
    restore_entries(backend).await;
    calls_on_missing_groups_fail(backend).await;
    empty_requests_do_nothing(backend).await;
}

async fn acknowledge(backend: &dyn Admin) {
    let stream = "settling:done";
    let ids = reading::make_stream(backend, stream, 1500).await;
    backend.read(&reader(stream, "a", 1500)).await.unwrap();
    assert_eq!(backend.acknowledge(stream, "g", &Acknowledgement::default()).await.unwrap(), 0);
    assert_eq!(
        backend.acknowledge(stream, "g", &done(&[ids[0], ids[0], StreamId::new(1, 1)])).await.unwrap(),
        1
    );
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids)).await.unwrap(), 1499);
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids)).await.unwrap(), 0);
    assert_eq!(pending(backend, stream).await, []);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn remember_handled_keys(backend: &dyn Admin) {
    let stream = "{settling:seen}";
    let ids = reading::make_stream(backend, stream, 1).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    assert_eq!(backend.seen(&[]).await.unwrap(), [false; 0]);
    // One key in the cluster slot of the stream, one in another slot.
    let run = ids[0];
    let keys = [format!("{stream}:{run}"), format!("far:{run}"), format!("{stream}:{run}:short")];
    assert_eq!(backend.seen(&keys).await.unwrap(), [false; 3]);
    let (long, short) = (Duration::from_secs(3600), Duration::from_millis(80));
    let remember = vec![(keys[0].clone(), long), (keys[1].clone(), long), (keys[2].clone(), short)];
    let done = Acknowledgement { ids: ids.clone(), remember, forget: Vec::new() };
    assert_eq!(backend.acknowledge(stream, "g", &done).await.unwrap(), 1);
    assert_eq!(backend.seen(&keys[..2]).await.unwrap(), [true; 2]);
    wait_until(|| async { backend.seen(&keys).await.unwrap() == [true, true, false] }).await;
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn extend_leases(backend: &dyn Admin) {
    let stream = "settling:extended";
    let ids = reading::make_stream(backend, stream, 4).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    backend.read(&reader(stream, "b", 1)).await.unwrap();
    assert_eq!(backend.extend(consumer(stream, "a"), &[]).await.unwrap(), []);
    assert_eq!(backend.extend(consumer(stream, "nobody"), &ids).await.unwrap(), []);
    // Sleep longer than `idle`, because the server's wall clock may be adjusted meanwhile.
    let idle = Duration::from_millis(100);
    tokio::time::sleep(idle * 2).await;
    // The entry of another consumer, one that is not pending, and one that does not exist.
    let requested = [ids[0], ids[2], ids[3], StreamId::new(1, 1)];
    assert_eq!(backend.extend(consumer(stream, "a"), &requested).await.unwrap(), ids[..1]);
    let rows = pending(backend, stream).await;
    assert!(rows[0].idle < rows[1].idle && rows[1].idle >= Some(idle) && rows[2].idle >= Some(idle));
    assert!(rows.iter().all(|row| row.deliveries == 1), "extending counted as a delivery");
    assert_eq!(rows[2].consumer.as_deref(), Some("b"), "extending changed the owner");
    // An entry that another consumer claimed is not extended any more.
    backend.autoclaim(consumer(stream, "b"), Duration::ZERO, StreamId::MIN, 9).await.unwrap();
    assert_eq!(backend.extend(consumer(stream, "a"), &ids).await.unwrap(), []);
    assert_eq!(backend.extend(consumer(stream, "b"), &ids).await.unwrap(), ids[..3]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn release_entries(backend: &dyn Admin) {
    let stream = "settling:released";
    let ids = reading::make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    backend.read(&reader(stream, "b", 1)).await.unwrap();
    assert_eq!(backend.release(consumer(stream, "a"), &[]).await.unwrap(), 0);
    let back = |id, deliveries| Release { deliveries, ..Release::counted(id, 1) };
    let rows = [back(ids[0], 4), back(ids[1], 0), back(ids[2], 9), back(StreamId::new(1, 1), 1)];
    assert_eq!(backend.release(consumer(stream, "nobody"), &rows).await.unwrap(), 0);
    assert_eq!(backend.release(consumer(stream, "a"), &rows).await.unwrap(), 2);
    assert_eq!(
        backend.release(consumer(stream, "a"), &rows).await.unwrap(),
        0,
        "a released entry was released again"
    );
    let rows = pending(backend, stream).await;
    let shown: Vec<_> = rows.iter().map(|row| (row.consumer.as_deref(), row.deliveries)).collect();
    assert_eq!(shown, [(None, 4), (None, 0), (Some("b"), 1)]);
    assert!(rows[0].idle.is_none() && rows[2].idle.is_some());
    assert_eq!(backend.own_pending(consumer(stream, "a"), StreamId::MIN, 9).await.unwrap(), []);
    assert_eq!(backend.extend(consumer(stream, "a"), &ids).await.unwrap(), []);
    let summary = backend.pending_summary(stream, "g").await.unwrap();
    assert_eq!((summary.total, summary.consumers), (3, vec![("b".to_owned(), 1)]));
    assert_eq!(backend.remove_consumer(consumer(stream, "a"), "b").await.unwrap(), 0);
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids)).await.unwrap(), 3);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Only the latest delivery can be released. An older delivery of the same consumer is ignored.
async fn release_ignores_older_deliveries(backend: &dyn Admin) {
    let stream = "settling:older";
    let ids = reading::make_stream(backend, stream, 1).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    backend.autoclaim(consumer(stream, "a"), Duration::ZERO, StreamId::MIN, 1).await.unwrap();
    let shown = async || pending(backend, stream).await.into_iter().map(|row| (row.consumer, row.deliveries));
    assert_eq!(backend.release(consumer(stream, "a"), &[Release::counted(ids[0], 1)]).await.unwrap(), 0);
    assert_eq!(shown().await.collect::<Vec<_>>(), [(Some("a".to_owned()), 2)]);
    assert_eq!(backend.release(consumer(stream, "a"), &[Release::counted(ids[0], 2)]).await.unwrap(), 1);
    assert_eq!(shown().await.collect::<Vec<_>>(), [(None, 2)]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Extending and releasing keep a pending row whose entry was deleted.
async fn extend_and_release_keep_rows_of_deleted_entries(backend: &dyn Admin) {
    let stream = "settling:gone";
    let ids = reading::make_stream(backend, stream, 2).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    assert_eq!(backend.delete_entries(stream, &ids[..1]).await.unwrap(), 1);
    assert_eq!(backend.extend(consumer(stream, "a"), &ids).await.unwrap(), ids, "the consumer lost a row");
    let back = ids.iter().map(|id| Release::counted(*id, 1)).collect::<Vec<_>>();
    let released = backend.release(consumer(stream, "a"), &back).await.unwrap();
    assert!((1..=2).contains(&released), "{released}");
    assert_eq!(pending(backend, stream).await.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    let taken = backend.autoclaim(consumer(stream, "b"), Duration::ZERO, StreamId::MIN, 9).await.unwrap();
    assert_eq!(ids_of(&taken.deliveries), ids);
    assert!(taken.deliveries[0].fields.is_none() && taken.deliveries[1].fields.is_some());
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn move_to_dead_letters(backend: &dyn Admin) {
    let (stream, dead, other) = ("{settling:moved}", "{settling:moved}:dlq", "{settling:moved}:other");
    let ids = reading::make_stream(backend, stream, 5).await;
    backend.read(&reader(stream, "a", 4)).await.unwrap();
    backend.read(&reader(stream, "b", 1)).await.unwrap();
    assert_eq!(backend.dead_letter(consumer(stream, "a"), &[]).await.unwrap(), []);
    // Another consumer cannot dead-letter an entry, and an entry that is not pending is ignored.
    assert_eq!(backend.dead_letter(consumer(stream, "b"), &[dead_letter(ids[0], dead)]).await.unwrap(), []);
    assert_eq!(
        backend.dead_letter(consumer(stream, "a"), &[dead_letter(StreamId::new(1, 1), dead)]).await.unwrap(),
        []
    );
    assert_eq!(backend.stream(dead).await.unwrap(), None);
    assert_eq!(pending(backend, stream).await.len(), 5);
    let mut large = dead_letter(ids[3], dead);
    large.fields = (0..1500).flat_map(|n| fields(&format!("f{n}"), "v")).collect();
    let dead_letters = [
        dead_letter(ids[0], dead),
        dead_letter(ids[1], other),
        dead_letter(ids[4], dead),
        dead_letter(ids[2], dead),
        large.clone(),
    ];
    let mut moved = backend.dead_letter(consumer(stream, "a"), &dead_letters).await.unwrap();
    moved.sort_unstable();
    assert_eq!(moved, ids[..4]);
    assert_eq!(
        backend.dead_letter(consumer(stream, "a"), &dead_letters).await.unwrap(),
        [],
        "an entry was moved twice"
    );
    let rows = pending(backend, stream).await;
    assert_eq!((rows.len(), rows[0].id), (1, ids[4]));
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 9 };
    let mut moved: Vec<_> =
        backend.range(dead, all).await.unwrap().into_iter().map(|entry| entry.fields).collect();
    moved.sort_by_key(Vec::len);
    assert_eq!(moved, [fields("why", "poison"), fields("why", "poison"), large.fields]);
    assert_eq!(backend.stream(other).await.unwrap().unwrap().length, 1);
    assert_eq!(backend.stream(stream).await.unwrap().unwrap().length, 5, "the original entry was deleted");
    for stream in [stream, dead, other] {
        assert!(backend.delete_stream(stream).await.unwrap());
    }
}

/// A released row cannot be dead-lettered unless its entry was deleted. Each row is moved once.
async fn dead_letter_released_rows_only_if_their_entry_is_deleted(backend: &dyn Admin) {
    let (stream, dead) = ("{settling:released}", "{settling:released}:dlq");
    let ids = reading::make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 3)).await.unwrap();
    let back: Vec<Release> = ids[..2].iter().map(|id| Release::counted(*id, 1)).collect();
    assert_eq!(backend.release(consumer(stream, "a"), &back).await.unwrap(), 2);
    assert_eq!(backend.delete_entries(stream, &ids[1..2]).await.unwrap(), 1);
    let dead_letters = [ids[0], ids[1], ids[2], ids[2]].map(|id| dead_letter(id, dead));
    let mut moved = backend.dead_letter(consumer(stream, "a"), &dead_letters).await.unwrap();
    moved.sort_unstable();
    assert_eq!(moved, ids[1..]);
    assert_eq!(backend.stream(dead).await.unwrap().unwrap().length, 2);
    assert_eq!(pending(backend, stream).await.iter().map(|row| row.id).collect::<Vec<_>>(), ids[..1]);
    assert!(backend.delete_stream(stream).await.unwrap() && backend.delete_stream(dead).await.unwrap());
}

/// If the dead letter cannot be written, nothing is acknowledged.
async fn a_failed_dead_letter_acknowledges_nothing(backend: &dyn Admin) {
    let (stream, taken) = ("{settling:vain}", "{settling:vain}:string");
    let ids = reading::make_stream(backend, stream, 1).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    make_a_string(backend, taken).await;
    let moved = backend.dead_letter(consumer(stream, "a"), &[dead_letter(ids[0], taken)]).await;
    assert_eq!(kind(moved), Some(ErrorKind::WrongType));
    let mut empty = dead_letter(ids[0], "{settling:vain}:dlq");
    empty.fields.clear();
    assert_eq!(kind(backend.dead_letter(consumer(stream, "a"), &[empty]).await), Some(ErrorKind::Refused));
    assert_eq!(pending(backend, stream).await.len(), 1);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn restore_entries(backend: &dyn Admin) {
    let stream = "settling:restored";
    let ids = reading::make_stream(backend, stream, 2).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    assert!(backend.restore(stream, "g", ids[1]).await.unwrap());
    assert_eq!(
        pending(backend, stream).await[1].consumer.as_deref(),
        Some("a"),
        "a pending entry changed its owner"
    );
    assert_eq!(backend.delete_entries(stream, &ids[1..]).await.unwrap(), 1);
    assert!(!backend.restore(stream, "g", ids[1]).await.unwrap(), "a deleted entry was restored");
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids)).await.unwrap(), 2);
    assert!(backend.restore(stream, "g", ids[0]).await.unwrap());
    assert!(!backend.restore(stream, "g", StreamId::new(1, 1)).await.unwrap());
    let rows = pending(backend, stream).await;
    assert_eq!((rows.len(), rows[0].id, rows[0].deliveries), (1, ids[0], 0));
    assert_eq!((&rows[0].consumer, rows[0].idle), (&None, None));
    let long = Duration::from_secs(3600);
    let taken = backend.autoclaim(consumer(stream, "b"), long, StreamId::MIN, 9).await.unwrap();
    assert_eq!((ids_of(&taken.deliveries), taken.deliveries[0].deliveries), (ids[..1].to_vec(), 1));
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn calls_on_missing_groups_fail(backend: &dyn Admin) {
    let none = "{settling:none}";
    let id = StreamId::new(1, 1);
    for _ in 0..2 {
        assert_eq!(backend.acknowledge(none, "g", &done(&[id])).await.unwrap(), 0);
        assert_eq!(kind(backend.extend(consumer(none, "a"), &[id]).await), Some(ErrorKind::NoGroup));
        let back = [Release::counted(id, 0)];
        assert_eq!(kind(backend.release(consumer(none, "a"), &back).await), Some(ErrorKind::NoGroup));
        let moved = backend.dead_letter(consumer(none, "a"), &[dead_letter(id, "{settling:none}:dlq")]).await;
        assert_eq!(kind(moved), Some(ErrorKind::NoGroup));
        assert_eq!(kind(backend.restore(none, "g", id).await), Some(ErrorKind::NoGroup));
        backend.add(none, &[entry("n", "1")], None).await.unwrap();
    }
    assert_eq!(backend.stream("{settling:none}:dlq").await.unwrap(), None);
    assert!(backend.delete_stream(none).await.unwrap());
}

/// Requests without ids or with a count of zero return nothing, whether the stream and the group exist or not.
async fn empty_requests_do_nothing(backend: &dyn Admin) {
    let (none, from) = ("settling:nothing", StreamId::new(1, 1));
    for _ in 0..2 {
        assert_eq!(backend.extend(consumer(none, "a"), &[]).await.unwrap(), []);
        assert_eq!(backend.release(consumer(none, "a"), &[]).await.unwrap(), 0);
        assert_eq!(backend.dead_letter(consumer(none, "a"), &[]).await.unwrap(), []);
        assert_eq!(backend.acknowledge(none, "g", &done(&[])).await.unwrap(), 0);
        assert_eq!(backend.read(&reader(none, "a", 0)).await.unwrap(), []);
        let claimed = backend.autoclaim(consumer(none, "a"), Duration::ZERO, from, 0).await.unwrap();
        assert_eq!((claimed.deliveries, claimed.next), (Vec::new(), from));
        assert_eq!(backend.delete_entries(none, &[]).await.unwrap(), 0);
        backend.add(none, &[entry("n", "1")], None).await.unwrap();
    }
    assert!(backend.delete_stream(none).await.unwrap());
}

/// A server without memory for the dead letter keeps the original entry pending.
pub(crate) async fn without_memory(backend: &dyn Admin, limit: impl Fn(&str)) {
    let (stream, dead) = ("{settling:memory}", "{settling:memory}:dlq");
    let ids = reading::make_stream(backend, stream, 1).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    limit("1");
    assert_eq!(kind(backend.add(stream, &[entry("n", "1")], None).await), Some(ErrorKind::NotWritable));
    assert_eq!(
        kind(backend.dead_letter(consumer(stream, "a"), &[dead_letter(ids[0], dead)]).await),
        Some(ErrorKind::NotWritable)
    );
    let remember = vec![("{settling:memory}:seen".to_owned(), Duration::from_secs(60))];
    let done = Acknowledgement { ids: ids.clone(), remember, forget: Vec::new() };
    assert_eq!(kind(backend.acknowledge(stream, "g", &done).await), Some(ErrorKind::NotWritable));
    assert_eq!(pending(backend, stream).await.len(), 1, "acknowledged although the key was not stored");
    limit("0");
    assert_eq!(backend.dead_letter(consumer(stream, "a"), &[dead_letter(ids[0], dead)]).await.unwrap(), ids);
}
