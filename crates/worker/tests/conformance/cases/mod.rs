//! What every backend must do, verb by verb. Each case has a stream of its own.

pub(crate) mod groups;
pub(crate) mod idle;
pub(crate) mod looking;
pub(crate) mod producing;
pub(crate) mod reading;
pub(crate) mod settling;
pub(crate) mod waiting;

use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{
    Acknowledgement, Consumer, DeadLetter, Delivery, ErrorKind, Fields, NewEntry, PendingFilter, PendingRow,
    Read, Start, StreamId,
};

use super::PATIENCE;

/// Runs every case.
pub(crate) async fn all(backend: &dyn Admin) {
    backend.ping().await.unwrap();
    producing::all(backend).await;
    groups::all(backend).await;
    reading::all(backend).await;
    waiting::all(backend).await;
    settling::all(backend).await;
    looking::all(backend).await;
    idle::all(backend).await;
}

/// Leaves something behind, and a read that waits while the store goes away.
pub(crate) async fn survive<F: Future<Output = ()>>(backend: &dyn Admin, go_away: impl FnOnce() -> F) {
    let ids = reading::make(backend, "survivor", 2).await;
    let read = backend.read(&reader("survivor", "a", 1)).await.unwrap();
    assert_eq!(read[0].id, ids[0]);
    backend.create_group("survivor:none", "g", Start::Beginning).await.unwrap();
    let waiting = Read { block: Some(Duration::from_secs(3)), ..reader("survivor:none", "a", 1) };
    let (waited, ()) = tokio::join!(backend.read(&waiting), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        go_away().await;
    });
    match waited {
        Ok(read) => assert_eq!(read, []),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
    }
}

/// Finds what was left behind.
pub(crate) async fn survived(backend: &dyn Admin) {
    let rows = pending(backend, "survivor").await;
    assert_eq!((rows.len(), rows[0].consumer.as_deref(), rows[0].deliveries), (1, Some("a"), 1));
    let waiting = Read { block: Some(PATIENCE), ..reader("survivor", "b", 5) };
    let read = backend.read(&waiting).await.unwrap();
    assert_eq!(read.len(), 1);
    assert!(backend.delete_stream("survivor").await.unwrap());
}

/// Waits for a condition.
pub(crate) async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "it does not come true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn entry(name: &str, value: &str) -> NewEntry {
    NewEntry { fields: fields(name, value), idempotence: None }
}

pub(crate) fn fields(name: &str, value: &str) -> Fields {
    vec![(Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))]
}

/// A reader of group `g` that does not wait.
pub(crate) fn reader<'a>(stream: &'a str, consumer: &'a str, count: usize) -> Read<'a> {
    Read { stream, group: "g", consumer, count, block: None, claim_idle: None }
}

pub(crate) fn ids_of(deliveries: &[Delivery]) -> Vec<StreamId> {
    deliveries.iter().map(|delivery| delivery.id).collect()
}

/// Everything pending in group `g`.
pub(crate) async fn pending(backend: &dyn Admin, stream: &str) -> Vec<PendingRow> {
    backend.pending(stream, "g", &everything()).await.unwrap()
}

pub(crate) fn everything() -> PendingFilter {
    PendingFilter { first: StreamId::MIN, last: StreamId::MAX, count: 1000, consumer: None, min_idle: None }
}

/// A consumer of the group of all cases.
pub(crate) fn consumer<'a>(stream: &'a str, name: &'a str) -> Consumer<'a> {
    Consumer::new(stream, "g", name)
}

pub(crate) fn done(ids: &[StreamId]) -> Acknowledgement {
    Acknowledgement { ids: ids.to_vec(), remember: Vec::new() }
}

pub(crate) fn letter(origin: StreamId, to: &str) -> DeadLetter {
    DeadLetter { origin, to: to.to_owned(), fields: fields("why", "poison") }
}

pub(crate) fn kind<T>(answer: Result<T, millstream_worker::Error>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

/// Makes the key something else than a stream.
pub(crate) async fn make_a_string(backend: &dyn Admin, key: &str) {
    let remember = vec![(key.to_owned(), Duration::from_secs(3600))];
    let done = Acknowledgement { ids: Vec::new(), remember };
    assert_eq!(backend.acknowledge(key, "g", &done).await.unwrap(), 0);
}
