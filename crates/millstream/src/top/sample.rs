//! A look at a real store in memory, for the tests of this folder.

use std::sync::Arc;

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{NewEntry, Read, Start};
use millstream_worker::monitor::Monitor;

use super::watcher::{EVERYTHING, Look};

/// A stream `events` with one entry and no group; a stream `orders` with five entries and two groups: `audit`, which nobody
/// reads for, and `billing`, for which `worker-1` has read two entries and acknowledged none.
pub(super) async fn look() -> Look {
    let backend = millstream_worker::connect("memory:").await.unwrap();
    add(&*backend, "events", 1).await;
    add(&*backend, "orders", 5).await;
    for group in ["audit", "billing"] {
        backend.create_group("orders", group, Start::Beginning).await.unwrap();
    }
    read(&*backend, 2).await;
    look_at(backend).await
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

async fn look_at(backend: Arc<dyn Admin>) -> Look {
    let streams = Monitor::new(Arc::clone(&backend)).streams(EVERYTHING).await.unwrap();
    Look {
        place: backend.place(),
        pattern: EVERYTHING.to_owned(),
        capabilities: backend.capabilities(),
        streams,
    }
}
