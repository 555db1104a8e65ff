//! The behaviour that every backend must have, verb by verb. Each case has its own stream.

pub(crate) mod blocking;
pub(crate) mod delaying;
pub(crate) mod deleting;
pub(crate) mod groups;
pub(crate) mod hashes;
pub(crate) mod idle;
pub(crate) mod listing;
pub(crate) mod looking;
pub(crate) mod many;
pub(crate) mod operating;
pub(crate) mod owning;
pub(crate) mod policies;
pub(crate) mod producing;
pub(crate) mod reading;
pub(crate) mod settling;
pub(crate) mod waiting;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{
    Acknowledgement, Consumer, Delivery, ErrorKind, Fields, NewDeadLetter, NewEntry, PendingFilter,
    PendingRow, Read, Start, StreamId,
};

use super::TIMEOUT;

/// Runs every case, and fails with the needs that the backend does not meet.
pub(crate) async fn all(backend: &dyn Admin) {
    type Cases<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
    backend.ping().await.unwrap();
    let needs: [(&str, Vec<Cases<'_>>); 5] = [
        (
            "ReadMessages",
            vec![
                Box::pin(groups::all(backend)),
                Box::pin(reading::all(backend)),
                Box::pin(many::all(backend)),
                Box::pin(blocking::all(backend)),
                Box::pin(idle::all(backend)),
            ],
        ),
        (
            "SettleMessages",
            vec![
                Box::pin(producing::all(backend)),
                Box::pin(settling::all(backend)),
                Box::pin(deleting::all(backend)),
                Box::pin(hashes::all(backend)),
                Box::pin(waiting::all(backend)),
            ],
        ),
        ("OwnStreams", vec![Box::pin(owning::all(backend))]),
        ("InspectStore", vec![Box::pin(listing::all(backend)), Box::pin(looking::all(backend))]),
        (
            "ChangeStore",
            vec![
                Box::pin(policies::all(backend)),
                Box::pin(delaying::all(backend)),
                Box::pin(operating::all(backend)),
            ],
        ),
    ];
    let mut lacks = Vec::new();
    for (need, cases) in needs {
        for mut cases in cases {
            let passed = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| cases.as_mut().poll(cx))) {
                Ok(polled) => polled.map(|()| true),
                Err(_) => Poll::Ready(false),
            });
            if !passed.await && !lacks.contains(&need) {
                lacks.push(need);
            }
        }
    }
    assert!(lacks.is_empty(), "{} lacks {lacks:?}: the failed cases are above", backend.location());
}

/// Stores data, and disconnects the store during a blocked read.
pub(crate) async fn leave_data<F: Future<Output = ()>>(backend: &dyn Admin, disconnect: impl FnOnce() -> F) {
    let ids = reading::make_stream(backend, "survivor", 2).await;
    let read = backend.read(&reader("survivor", "a", 1)).await.unwrap();
    assert_eq!(read[0].id, ids[0]);
    waiting::leave_data(backend).await;
    backend.create_group("survivor:none", "g", Start::Beginning).await.unwrap();
    let blocking = Read { block: Some(Duration::from_secs(3)), ..reader("survivor:none", "a", 1) };
    let (result, ()) = tokio::join!(backend.read(&blocking), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        disconnect().await;
    });
    match result {
        Ok(read) => assert_eq!(read, []),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
    }
}

/// Checks the data of [`leave_data`].
pub(crate) async fn check_data(backend: &dyn Admin) {
    let rows = pending(backend, "survivor").await;
    assert_eq!((rows.len(), rows[0].consumer.as_deref(), rows[0].deliveries), (1, Some("a"), 1));
    let blocking = Read { block: Some(TIMEOUT), ..reader("survivor", "b", 5) };
    let read = backend.read(&blocking).await.unwrap();
    assert_eq!(read.len(), 1);
    assert!(backend.delete_stream("survivor").await.unwrap());
    waiting::check_data(backend).await;
}

/// Waits until a condition holds.
pub(crate) async fn wait_until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "the condition did not become true in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn entry(name: &str, value: &str) -> NewEntry {
    NewEntry { fields: fields(name, value), idempotence: None }
}

pub(crate) fn fields(name: &str, value: &str) -> Fields {
    vec![(Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))]
}

/// A reader of group `g` that does not block.
pub(crate) fn reader<'a>(stream: &'a str, consumer: &'a str, count: usize) -> Read<'a> {
    Read { stream, group: "g", consumer, count, block: None, claim_idle: None }
}

pub(crate) fn ids_of(deliveries: &[Delivery]) -> Vec<StreamId> {
    deliveries.iter().map(|delivery| delivery.id).collect()
}

/// Returns all pending rows of group `g`.
pub(crate) async fn pending(backend: &dyn Admin, stream: &str) -> Vec<PendingRow> {
    backend.pending(stream, "g", &all_rows()).await.unwrap()
}

pub(crate) fn all_rows() -> PendingFilter {
    PendingFilter { first: StreamId::MIN, last: StreamId::MAX, count: 1000, consumer: None, min_idle: None }
}

/// A consumer of group `g`.
pub(crate) fn consumer<'a>(stream: &'a str, name: &'a str) -> Consumer<'a> {
    Consumer::new(stream, "g", name)
}

pub(crate) fn done(ids: &[StreamId]) -> Acknowledgement {
    Acknowledgement { ids: ids.to_vec(), ..Acknowledgement::default() }
}

pub(crate) fn dead_letter(origin: StreamId, to: &str) -> NewDeadLetter {
    NewDeadLetter { origin, to: to.to_owned(), fields: fields("why", "poison") }
}

pub(crate) fn kind<T>(answer: Result<T, millstream_worker::Error>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

/// Creates a key that is not a stream.
pub(crate) async fn make_a_string(backend: &dyn Admin, key: &str) {
    let remember = vec![(key.to_owned(), Duration::from_secs(3600))];
    let done = Acknowledgement { remember, ..Acknowledgement::default() };
    assert_eq!(backend.acknowledge(key, "g", &done).await.unwrap(), 0);
}
