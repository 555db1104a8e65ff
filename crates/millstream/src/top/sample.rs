//! A snapshot of an in-memory store, for the tests of this folder.

use std::sync::Arc;

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{NewEntry, Read, Start};
use millstream_worker::monitor::Monitor;

use super::poller::{ALL_STREAMS, StoreSnapshot};

/// Returns a snapshot of two streams.
///
/// `events` has one entry and no group. `orders` has five entries and two groups: `audit` has no consumer; for
/// `billing`, `worker-1` has read two entries and acknowledged none.
pub(super) async fn snapshot() -> StoreSnapshot {
    let backend = millstream_worker::connect("memory:").await.unwrap();
    add(&*backend, "events", 1).await;
    add(&*backend, "orders", 5).await;
    for group in ["audit", "billing"] {
        backend.create_group("orders", group, Start::Beginning).await.unwrap();
    }
    read(&*backend, 2).await;
    snapshot_of(backend).await
}

async fn add(backend: &dyn Admin, stream: &str, count: usize) {
    let field = (Bytes::from("item"), Bytes::from("book"));
    let entry = NewEntry { fields: vec![field], idempotence: None };
    backend.add(stream, &vec![entry; count], None).await.unwrap();
}

async fn read(backend: &dyn Admin, count: usize) {
    let read = Read {
        stream: "orders",
        group: "billing",
        consumer: "worker-1",
        count,
        block: None,
        claim_idle: None,
    };
    assert_eq!(backend.read(&read).await.unwrap().len(), count);
}

async fn snapshot_of(backend: Arc<dyn Admin>) -> StoreSnapshot {
    let streams = Monitor::new(Arc::clone(&backend)).streams(ALL_STREAMS).await.unwrap();
    StoreSnapshot { location: backend.location(), pattern: ALL_STREAMS.to_owned(), streams }
}
