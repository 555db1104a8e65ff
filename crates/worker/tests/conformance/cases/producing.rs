//! Adding and deleting entries.

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{
    AddOptions, Capability, ErrorKind, IdOrder, Idempotence, NewEntry, Range, Start, StreamId, Trim,
};

use super::{done, entry, fields, ids_of, kind, make_a_string, pending, reader};

pub(crate) async fn all(backend: &dyn Admin) {
    batches(backend).await;
    only_to_a_stream_that_exists(backend).await;
    add_arbitrary_bytes(backend).await;
    add_with_trim(backend).await;
    add_with_trim_that_keeps_unread_entries(backend).await;
    refusals(backend).await;
    once(backend).await;
    deletion(backend).await;
    time(backend).await;
}

/// The time of the store is the time in the ids that it generates.
async fn time(backend: &dyn Admin) {
    let stream = "producing:time";
    let before = backend.now_ms(stream).await.unwrap();
    let id = backend.add(stream, &[entry("n", "1")], None).await.unwrap()[0];
    let after = backend.now_ms(stream).await.unwrap();
    assert!((before..=after).contains(&id.ms), "{before} {id} {after}");
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn batches(backend: &dyn Admin) {
    let stream = "producing:batches";
    assert_eq!(backend.add(stream, &[], None).await.unwrap(), []);
    assert_eq!(backend.stream(stream).await.unwrap(), None);
    let batch: Vec<NewEntry> = (0..2000).map(|n| entry("n", &n.to_string())).collect();
    let ids = backend.add(stream, &batch, None).await.unwrap();
    assert_eq!(ids.len(), batch.len());
    assert!(ids.is_sorted_by(|a, b| a < b));
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 5000 };
    let listed = backend.range(stream, all).await.unwrap();
    assert!(listed.iter().map(|entry| entry.id).eq(ids));
    assert!(listed.into_iter().map(|entry| entry.fields).eq(batch.into_iter().map(|entry| entry.fields)));
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// An add that must not create its stream.
async fn only_to_a_stream_that_exists(backend: &dyn Admin) {
    let (stream, two) = ("producing:existing", [entry("n", "1"), entry("n", "2")]);
    let only_existing = AddOptions { only_existing: true, ..AddOptions::default() };
    let error = backend.add_with(stream, &two, only_existing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoGroup, "{error}");
    assert!(error.outcomes().iter().all(|outcome| outcome.id().is_none()), "{error:?}");
    assert_eq!(backend.stream(stream).await.unwrap(), None);
    backend.add_with(stream, &two, AddOptions::default()).await.unwrap();
    backend.add_with(stream, &two, only_existing).await.unwrap();
    assert_eq!(backend.stream(stream).await.unwrap().unwrap().length, 4);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Field names may repeat, names and values may be empty, and all bytes are preserved.
async fn add_arbitrary_bytes(backend: &dyn Admin) {
    let stream = "producing:bytes";
    let odd = vec![
        (Bytes::from_static(b"same"), Bytes::from_static(b"-17")),
        (Bytes::from_static(b"same"), Bytes::from_static(b"017")),
        (Bytes::from_static(b""), Bytes::from_static(b"")),
        (Bytes::from_static(b"\r\n\0"), Bytes::from_static(b"\xff\xfe\n$-1\r\n")),
        (Bytes::from_static(b"large"), Bytes::from(vec![7u8; 200_000])),
    ];
    let added = NewEntry { fields: odd.clone(), idempotence: None };
    backend.add(stream, &[added], None).await.unwrap();
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Descending, count: 1 };
    assert_eq!(backend.range(stream, all).await.unwrap()[0].fields, odd);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn add_with_trim(backend: &dyn Admin) {
    let stream = "producing:add_with_trim";
    let batch: Vec<NewEntry> = (0..300).map(|n| entry("n", &n.to_string())).collect();
    backend.add(stream, &batch, Some(Trim::exactly(10))).await.unwrap();
    assert_eq!(backend.stream(stream).await.unwrap().unwrap().length, 10);
    backend.add(stream, &batch, Some(Trim::about(50))).await.unwrap();
    let about = backend.stream(stream).await.unwrap().unwrap().length;
    assert!((50..=200).contains(&about), "{about}");
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn add_with_trim_that_keeps_unread_entries(backend: &dyn Admin) {
    let stream = "producing:keep_unread";
    backend.delete_stream(stream).await.unwrap();
    let length = || async { backend.stream(stream).await.unwrap().unwrap().length };
    let add = |trim: Trim| async move {
        backend.add(stream, &[entry("n", "1")], Some(trim.keep_unread())).await.unwrap()[0]
    };
    // Without groups, the trim is like any other.
    for _ in 0..5 {
        add(Trim::exactly(3)).await;
    }
    assert_eq!(length().await, 3);
    let last = add(Trim::exactly(3)).await;
    let exactly_before = |id| Trim { exact: true, ..Trim::before(id) };
    add(exactly_before(last)).await;
    assert_eq!(length().await, 2);
    // A group that has read nothing keeps everything.
    backend.create_group(stream, "g", Start::Beginning).await.unwrap();
    let last = add(Trim::exactly(1)).await;
    add(exactly_before(last)).await;
    add(Trim::about(1)).await;
    assert_eq!(length().await, 5);
    // So does a pending entry. What is before it goes, down to the limit.
    let read = ids_of(&backend.read(&reader(stream, "a", 9)).await.unwrap());
    assert_eq!(read.len(), 5);
    backend.acknowledge(stream, "g", &done(&read[..3])).await.unwrap();
    add(Trim::exactly(4)).await;
    assert_eq!(length().await, 4);
    add(Trim::exactly(2)).await;
    assert_eq!(length().await, 4, "two are pending, and two are unread");
    // Many entries, all of them acknowledged. Other groups count too.
    let batch: Vec<NewEntry> = (0..300).map(|n| entry("n", &n.to_string())).collect();
    let ids = backend.add(stream, &batch, None).await.unwrap();
    backend.create_group(stream, "h", Start::After(ids[99])).await.unwrap();
    let read = ids_of(&backend.read(&reader(stream, "a", 999)).await.unwrap());
    backend.acknowledge(stream, "g", &done(&read)).await.unwrap();
    let pending: Vec<StreamId> = pending(backend, stream).await.iter().map(|row| row.id).collect();
    backend.acknowledge(stream, "g", &done(&pending)).await.unwrap();
    add(Trim::exactly(10)).await;
    assert_eq!(length().await, 201, "h has not read the last 201");
    backend.move_group(stream, "h", Start::End).await.unwrap();
    backend.move_group(stream, "g", Start::End).await.unwrap();
    add(Trim::about(50)).await;
    let about = length().await;
    assert!((50..=202).contains(&about), "{about}");
    add(Trim::exactly(10)).await;
    assert_eq!(length().await, 10);
    add(exactly_before(StreamId::MAX)).await;
    assert_eq!(length().await, 3, "no group has read the last three");
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn refusals(backend: &dyn Admin) {
    let stream = "producing:refusals";
    let none = NewEntry::default();
    assert_eq!(kind(backend.add(stream, &[entry("n", "1"), none], None).await), Some(ErrorKind::Refused));
    assert_eq!(backend.stream(stream).await.unwrap(), None);
    make_a_string(backend, "{producing}:string").await;
    let added = backend.add("{producing}:string", &[entry("n", "1")], None).await;
    assert_eq!(kind(added), Some(ErrorKind::WrongType));
}

async fn once(backend: &dyn Admin) {
    if !backend.supports(Capability::IdempotentAdds, "orders").await.unwrap() {
        return;
    }
    let stream = "producing:once";
    let sent = |iid: &str, value: &str| NewEntry {
        fields: fields("n", value),
        idempotence: Some(Idempotence { producer: "p".to_owned(), iid: iid.to_owned() }),
    };
    let first = backend.add(stream, &[sent("a", "1"), sent("b", "2")], None).await.unwrap();
    let again = backend.add(stream, &[sent("b", "2"), sent("c", "3")], None).await.unwrap();
    assert_eq!(first[1], again[0]);
    assert_eq!(backend.stream(stream).await.unwrap().unwrap().length, 3);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn deletion(backend: &dyn Admin) {
    let stream = "producing:deletion";
    assert_eq!(backend.delete_entries(stream, &[StreamId::new(1, 1)]).await.unwrap(), 0);
    assert!(!backend.delete_stream(stream).await.unwrap());
    let ids = backend.add(stream, &[entry("n", "1"), entry("n", "2")], None).await.unwrap();
    assert_eq!(backend.delete_entries(stream, &[]).await.unwrap(), 0);
    assert_eq!(backend.delete_entries(stream, &[ids[0], ids[0], StreamId::new(1, 1)]).await.unwrap(), 1);
    assert_eq!(backend.stream(stream).await.unwrap().unwrap().first_entry, Some(ids[1]));
    assert!(backend.delete_stream(stream).await.unwrap());
    assert!(!backend.delete_stream(stream).await.unwrap());
    make_a_string(backend, "{producing}:kept").await;
    assert_eq!(kind(backend.delete_stream("{producing}:kept").await), Some(ErrorKind::WrongType));
    assert_eq!(backend.seen(&["{producing}:kept".to_owned()]).await.unwrap(), [true]);
}
