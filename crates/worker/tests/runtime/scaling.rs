//! Scaling the number of slots, manually and automatically.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::Autoscale;
use millstream_worker::autoscale::Cause;
use millstream_worker::handler::{Data, Raw};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_changes_the_number_of_slots() {
    let backend = store().await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(worker(&backend).concurrency(2).handler(handler).state(gate.clone()));
    add(&backend, 0..200).await;
    wait_until("two", async || running.handle.busy() == 2).await;
    running.handle.scale(5);
    wait_until("five", async || running.handle.busy() == 5).await;
    assert_eq!((gate.started(), running.handle.slots()), (5, 5));
    running.handle.scale(1);
    gate.open();
    wait_until("all done", async || all_done(&backend).await && running.handle.busy() == 0).await;
    gate.shut();
    add(&backend, 200..210).await;
    wait_until("one", async || running.handle.busy() == 1).await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(running.handle.busy(), 1);
    running.handle.scale(3);
    wait_until("three", async || running.handle.busy() == 3).await;
    gate.open();
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, gate.started()), (210, 210));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autoscale_follows_the_backlog() {
    let backend = store().await;
    let policy =
        Autoscale::between(1..=8).lag_per_slot(5).every(ms(20)).patience(ms(20), ms(100)).cool_down(ms(20));
    let running = run(worker(&backend).autoscale(policy).handler(async |_: Raw| {
        tokio::time::sleep(ms(10)).await;
    }));
    assert_eq!(running.handle.slots(), 1);
    add(&backend, 0..2000).await;
    wait_until("grown", async || running.handle.slots() == 8).await;
    wait_until("all done", async || all_done(&backend).await).await;
    wait_until("shrunk", async || running.handle.slots() == 1).await;
    let decisions = running.handle.decisions();
    let text = running.handle.metrics_text().await;
    let report = running.drain().await;
    assert_eq!(report.acknowledged, 2000);
    assert!(
        decisions.iter().any(|decision| decision.cause == Cause::Lag && decision.to == 8),
        "{decisions:?}"
    );
    assert_eq!(decisions.last().map(|decision| (decision.cause, decision.to)), Some((Cause::Idle, 1)));
    assert!(decisions.iter().all(|decision| decision.sample.lag_exact));
    assert!(text.contains("millstream_pool_target{stream=\"orders\",group=\"billing\"} 1\n"), "{text}");
    assert!(text.contains("millstream_group_lag{stream=\"orders\",group=\"billing\"} 0\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_the_messages() {
    let backend = store().await;
    let builder = || {
        worker(&backend).concurrency(1).handler(async |_: Raw| {
            tokio::time::sleep(Duration::from_millis(5)).await;
        })
    };
    let (one, two) = (run(builder()), run(builder()));
    add(&backend, 0..200).await;
    wait_until("all done", async || all_done(&backend).await).await;
    let (one, two) = (one.drain().await, two.drain().await);
    assert_eq!(one.acknowledged + two.acknowledged, 200);
    assert_eq!((one.redelivered, two.redelivered), (0, 0));
    // A worker with a slow handler does not prefetch nearly all messages.
    assert!(one.acknowledged > 20 && two.acknowledged > 20, "{one:?} {two:?}");
}
