//! Looking: streams by name, their content, what is pending.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{ErrorKind, Order, PendingFilter, Range, StreamId};

use super::{entry, everything, kind, make_a_string, reader, reading, until};

pub(super) async fn all(backend: &dyn Admin) {
    streams(backend).await;
    one_stream(backend).await;
    ranges(backend).await;
    pending_rows(backend).await;
}

async fn streams(backend: &dyn Admin) {
    let names: Vec<String> = (0..40).map(|n| format!("looking:{n:02}")).collect();
    for name in &names {
        backend.add(name, &[entry("n", "1")], None).await.unwrap();
    }
    make_a_string(backend, "looking:string").await;
    assert_eq!(backend.streams("looking:*").await.unwrap(), names);
    assert_eq!(backend.streams("looking:[01]?").await.unwrap(), names[..20]);
    assert_eq!(backend.streams("looking").await.unwrap(), [""; 0]);
    assert!(backend.streams("*").await.unwrap().len() >= 40);
    for name in &names {
        assert!(backend.delete_stream(name).await.unwrap());
    }
}

async fn one_stream(backend: &dyn Admin) {
    let stream = "looking:one";
    let ids = reading::make(backend, stream, 3).await;
    assert_eq!(backend.delete_entries(stream, &ids[2..]).await.unwrap(), 1);
    let info = backend.stream(stream).await.unwrap().unwrap();
    assert_eq!((info.length, info.groups, info.last_id), (2, 1, ids[2]));
    assert_eq!((info.first_entry, info.last_entry), (Some(ids[0]), Some(ids[1])));
    assert!(info.entries_added.is_none_or(|added| added == 3));
    assert!(info.max_deleted_id.is_none_or(|id| id == ids[2]));
    assert!(backend.delete_stream(stream).await.unwrap());
    assert_eq!(backend.stream(stream).await.unwrap(), None);
    make_a_string(backend, "looking:string").await;
    assert_eq!(kind(backend.stream("looking:string").await), Some(ErrorKind::WrongType));
}

async fn ranges(backend: &dyn Admin) {
    let stream = "looking:ranges";
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: Order::Rising, count: 100 };
    assert_eq!(backend.range(stream, all).await.unwrap(), []);
    let ids = reading::make(backend, stream, 5).await;
    let listed = async |range| -> Vec<StreamId> {
        backend.range(stream, range).await.unwrap().into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(listed(all).await, ids);
    assert_eq!(listed(Range { count: 0, ..all }).await, []);
    assert_eq!(listed(Range { count: 2, ..all }).await, ids[..2]);
    assert_eq!(listed(Range { count: 2, order: Order::Falling, ..all }).await, [ids[4], ids[3]]);
    assert_eq!(listed(Range { first: ids[1], last: ids[3], ..all }).await, ids[1..4]);
    assert_eq!(listed(Range { first: ids[3], last: ids[1], ..all }).await, []);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn pending_rows(backend: &dyn Admin) {
    let stream = "looking:pending";
    for _ in 0..2 {
        assert_eq!(kind(backend.pending_summary(stream, "g").await), Some(ErrorKind::NoGroup));
        assert_eq!(kind(backend.pending(stream, "g", &everything()).await), Some(ErrorKind::NoGroup));
        backend.add(stream, &[entry("n", "1")], None).await.unwrap();
    }
    let ids = reading::make(backend, stream, 4).await;
    let empty = backend.pending_summary(stream, "g").await.unwrap();
    assert_eq!((empty.total, empty.ids, empty.consumers.len()), (0, None, 0));
    backend.read(&reader(stream, "b", 1)).await.unwrap();
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let summary = backend.pending_summary(stream, "g").await.unwrap();
    assert_eq!((summary.total, summary.ids), (3, Some((ids[0], ids[2]))));
    assert_eq!(summary.consumers, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let listed = async |filter: PendingFilter| -> Vec<StreamId> {
        backend.pending(stream, "g", &filter).await.unwrap().into_iter().map(|row| row.id).collect()
    };
    let of = |name: &str| PendingFilter { consumer: Some(name.to_owned()), ..everything() };
    assert_eq!(listed(everything()).await, ids[..3]);
    assert_eq!(listed(of("a")).await, ids[1..3]);
    assert_eq!(listed(of("nobody")).await, []);
    assert_eq!(listed(PendingFilter { first: ids[1], count: 1, ..everything() }).await, ids[1..2]);
    assert_eq!(listed(PendingFilter { last: ids[0], ..everything() }).await, ids[..1]);
    assert_eq!(listed(PendingFilter { count: 0, ..everything() }).await, []);
    let old = |idle| PendingFilter { min_idle: Some(idle), ..everything() };
    assert_eq!(listed(old(Duration::from_secs(3600))).await, []);
    assert_eq!(listed(old(Duration::ZERO)).await, ids[..3]);
    until(|| async { listed(old(Duration::from_millis(20))).await == ids[..3] }).await;
    assert!(backend.delete_stream(stream).await.unwrap());
}
