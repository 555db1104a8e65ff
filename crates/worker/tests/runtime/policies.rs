//! What a worker leaves to a store that has policies.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::backend::policy::Policy;
use millstream_worker::backend::{Admin, Start};
use millstream_worker::handler::{Data, Raw};
use millstream_worker::outcome::HandlerError;

use crate::support::*;

async fn store_with_policy(policy: Policy) -> Arc<dyn Admin> {
    let backend = store().await;
    backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    backend.set_policy(STREAM, Some(GROUP), &policy, &[]).await.unwrap();
    backend
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_the_group_applies_instead_of_the_workers() {
    // With the worker's lease of an hour, nobody would extend the lease, and the other worker would take the message.
    let backend = store_with_policy(Policy { lease_ms: Some(1500), ..Policy::default() }).await;
    add(&backend, 0..1).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let builder = worker(&backend).concurrency(1).lease(Duration::from_secs(3600)).state(gate.clone());
    let slow = run(builder.handler(handler));
    wait_until("started", async || gate.started() == 1).await;
    let other = run(worker(&backend).lease(Duration::from_secs(3600)).handler(async |_: Raw| {}));
    tokio::time::sleep(ms(3500)).await;
    assert_eq!(other.drain().await.received, 0);
    gate.open();
    wait_until("done", async || all_done(&backend).await).await;
    let report = slow.drain().await;
    assert_eq!((report.acknowledged, report.lost_leases), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_go_where_the_policy_says_unless_the_worker_was_told_otherwise() {
    let dead_letters = Some(Box::from(*b"dead:orders"));
    let backend = store_with_policy(Policy { lease_ms: Some(5000), dead_letters, ..Policy::default() }).await;
    let reject = async |_: Raw| Err::<(), _>(HandlerError::reject("never"));
    for (told, expected) in [(None, "dead:orders"), (Some("failed-orders"), "failed-orders")] {
        add(&backend, 0..1).await;
        let builder = worker(&backend).handler(reject);
        let running = run(match told {
            Some(stream) => builder.dead_letter(stream),
            None => builder,
        });
        wait_until("dead", async || all_done(&backend).await).await;
        assert_eq!(running.drain().await.dead, 1);
        assert_eq!(backend.stream(expected).await.unwrap().unwrap().length, 1, "{told:?}");
    }
    assert!(backend.stream(DEAD).await.unwrap().is_none());
}
