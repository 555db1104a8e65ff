//! Listing streams, entries and pending rows.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{ErrorKind, IdOrder, PendingFilter, Range, StreamId};

use super::{all_rows, entry, kind, make_a_string, reader, reading, wait_until};

pub(crate) async fn all(backend: &dyn Admin) {
    list_streams(backend).await;
    describe_a_stream(backend).await;
    read_ranges(backend).await;
    list_pending_rows(backend).await;
}

async fn list_streams(backend: &dyn Admin) {
    let names: Vec<String> = (0..40).map(|n| format!("listing:{n:02}")).collect();
    for name in &names {
        backend.add(name, &[entry("n", "1")], None).await.unwrap();
    }
    make_a_string(backend, "listing:string").await;
    assert_eq!(backend.streams("listing:*").await.unwrap(), names);
    assert_eq!(backend.streams("listing:[01]?").await.unwrap(), names[..20]);
    assert_eq!(backend.streams("listing").await.unwrap(), [""; 0]);
    assert!(backend.streams("*").await.unwrap().len() >= 40);
    for name in &names {
        assert!(backend.delete_stream(name).await.unwrap());
    }
}

async fn describe_a_stream(backend: &dyn Admin) {
    let stream = "listing:one";
    let ids = reading::make_stream(backend, stream, 3).await;
    assert_eq!(backend.delete_entries(stream, &ids[2..]).await.unwrap(), 1);
    let info = backend.stream(stream).await.unwrap().unwrap();
    assert_eq!((info.length, info.groups, info.last_id), (2, 1, ids[2]));
    assert_eq!((info.first_entry, info.last_entry), (Some(ids[0]), Some(ids[1])));
    assert!(info.entries_added.is_none_or(|added| added == 3));
    assert!(info.max_deleted_id.is_none_or(|id| id == ids[2]));
    assert!(backend.delete_stream(stream).await.unwrap());
    assert_eq!(backend.stream(stream).await.unwrap(), None);
    make_a_string(backend, "listing:string").await;
    assert_eq!(kind(backend.stream("listing:string").await), Some(ErrorKind::WrongType));
}

async fn read_ranges(backend: &dyn Admin) {
    let stream = "listing:ranges";
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 100 };
    assert_eq!(backend.range(stream, all).await.unwrap(), []);
    let ids = reading::make_stream(backend, stream, 5).await;
    let listed = async |range| -> Vec<StreamId> {
        backend.range(stream, range).await.unwrap().into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(listed(all).await, ids);
    assert_eq!(listed(Range { count: 0, ..all }).await, []);
    assert_eq!(listed(Range { count: 2, ..all }).await, ids[..2]);
    assert_eq!(listed(Range { count: 2, order: IdOrder::Descending, ..all }).await, [ids[4], ids[3]]);
    assert_eq!(listed(Range { first: ids[1], last: ids[3], ..all }).await, ids[1..4]);
    assert_eq!(listed(Range { first: ids[3], last: ids[1], ..all }).await, []);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn list_pending_rows(backend: &dyn Admin) {
    let stream = "listing:pending";
    for _ in 0..2 {
        assert_eq!(kind(backend.pending_summary(stream, "g").await), Some(ErrorKind::NoGroup));
        assert_eq!(kind(backend.pending(stream, "g", &all_rows()).await), Some(ErrorKind::NoGroup));
        backend.add(stream, &[entry("n", "1")], None).await.unwrap();
    }
    let ids = reading::make_stream(backend, stream, 4).await;
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
    let of = |name: &str| PendingFilter { consumer: Some(name.to_owned()), ..all_rows() };
    assert_eq!(listed(all_rows()).await, ids[..3]);
    assert_eq!(listed(of("a")).await, ids[1..3]);
    assert_eq!(listed(of("nobody")).await, []);
    assert_eq!(listed(PendingFilter { first: ids[1], count: 1, ..all_rows() }).await, ids[1..2]);
    assert_eq!(listed(PendingFilter { last: ids[0], ..all_rows() }).await, ids[..1]);
    assert_eq!(listed(PendingFilter { count: 0, ..all_rows() }).await, []);
    let old = |idle| PendingFilter { min_idle: Some(idle), ..all_rows() };
    assert_eq!(listed(old(Duration::from_secs(3600))).await, []);
    assert_eq!(listed(old(Duration::ZERO)).await, ids[..3]);
    wait_until(|| async { listed(old(Duration::from_millis(20))).await == ids[..3] }).await;
    assert!(backend.delete_stream(stream).await.unwrap());
}
