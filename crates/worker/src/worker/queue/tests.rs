//! Tests of the queue.

use std::sync::Arc;
use std::time::Duration;

use super::prefetch::MEASURE_TIME_MIN;
use super::*;
use crate::backend::StreamId;
use crate::worker::message::{AtHead, InFlight, Origin, Place};

#[tokio::test]
async fn surplus_slots_end_and_start_again() {
    let queue = new_queue(1);
    assert_eq!(queue.resize(3), [0, 1, 2]);
    assert!(queue.resize(1).is_empty());
    assert!(!queue.take(2, 1, &mut Vec::new()).await);
    // Slot 1 has not noticed that it was surplus and stays. Only slot 2 is started again.
    assert_eq!(queue.resize(3), [2]);
}

fn new_queue(batch: usize) -> Arc<Queue> {
    Arc::new(Queue::new(batch, 100, SuspectRules::new(5)))
}

pub(super) fn suspect(ms: u64, level: u64) -> Job {
    Job { suspect_level: Some(level), ..job(ms) }
}

pub(super) fn job(ms: u64) -> Job {
    let id = StreamId::new(ms, 0);
    let taken = InFlight::default().add(Instant::now(), std::iter::once((id, 1))).remove(0);
    let (tag, cancelled) = taken.expect("the message was not in flight");
    Job {
        origin: Arc::new(Origin {
            subscription: SubscriptionId::new(),
            stream: "s".into(),
            group: "g".into(),
            consumer: "c".into(),
            key_field: None,
            logical: "s".into(),
            ownership: None,
        }),
        tag,
        id,
        delivery: 1,
        record: None,
        fields: Arc::default(),
        cancelled,
        key: None,
        place: Place::Free,
        at_head: AtHead::Run,
        is_probe: false,
        suspect_level: None,
    }
}

#[tokio::test]
async fn jobs_that_are_put_back_come_first_again_even_after_a_measurement() {
    let queue = new_queue(1);
    queue.resize(1);
    assert!(queue.put((1..=3).map(job).collect()).is_empty());
    let mut taken = Vec::new();
    assert!(queue.take(0, 2, &mut taken).await);
    queue.state.lock().budget.now(1, Instant::now() + MEASURE_TIME_MIN);
    assert!(queue.put_back(taken.drain(..)).is_empty());
    assert!(queue.take(0, 3, &mut taken).await);
    let order: Vec<u64> = taken.iter().map(|job| job.id.ms).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[tokio::test]
async fn a_paused_queue_returns_its_jobs_and_refuses_new_ones() {
    let queue = new_queue(1);
    assert!(queue.put(vec![job(1)]).is_empty());
    assert_eq!(queue.pause().len(), 1);
    assert_eq!(queue.put(vec![job(2)]).len(), 1);
    assert_eq!(queue.put_back([job(3)].into_iter()).len(), 1);
    queue.resume();
    assert!(queue.put(vec![job(4)]).is_empty());
}

#[tokio::test]
async fn a_queue_on_hold_hands_out_one_probe_and_nothing_else() {
    let queue = new_queue(1);
    queue.resize(2);
    assert!(queue.put(vec![job(1)]).is_empty());
    assert_eq!(queue.hold().len(), 1);
    assert_eq!(queue.put(vec![job(2)]).len(), 1, "no probe is expected");
    assert!(queue.expect_probe() && !queue.expect_probe());
    assert_eq!(queue.put(vec![job(3), job(4), job(5)]).len(), 2);
    assert!(!queue.expects_probe());
    let mut taken = Vec::new();
    assert!(queue.take(1, 64, &mut taken).await);
    assert_eq!((taken.len(), taken[0].id.ms, taken[0].is_probe), (1, 3, true));
    assert!(queue.lets_start(&taken[0]) && !queue.lets_start(&job(6)));
    assert!(!queue.expect_probe(), "one probe at a time");
    // The slot asks for its next job: the probe has ended.
    let asked = tokio::time::timeout(Duration::ZERO, queue.take(1, 64, &mut taken)).await;
    assert!(asked.is_err());
    queue.probe_ended().await;
    queue.end_hold();
    assert!(queue.put(vec![job(7)]).is_empty());
}

#[tokio::test]
async fn a_paused_queue_returns_its_probe_and_expects_none() {
    let queue = new_queue(1);
    queue.hold();
    assert!(queue.expect_probe() && queue.put(vec![job(1)]).is_empty());
    assert_eq!((queue.len(), queue.pause().len()), (1, 1));
    queue.probe_ended().await;
    assert!(!queue.expect_probe());
    queue.resume();
    assert!(!queue.is_open(), "the hold is still on");
    assert!(queue.expect_probe());
}

#[tokio::test]
async fn a_closed_queue_ends_slots_and_fetchers() {
    let queue = new_queue(1);
    queue.resize(1);
    assert_eq!(queue.wait_for_room(None).await, Some(Room { count: 1, may_claim: true }));
    assert!(queue.close().is_empty());
    assert_eq!(queue.wait_for_room(None).await, None);
    assert!(!queue.take(0, 1, &mut Vec::new()).await);
}

/// Takes for a slot. `None` if it has to wait.
async fn take_now(queue: &Queue, slot: usize, max: usize) -> Option<Vec<u64>> {
    let mut jobs = Vec::new();
    let taken = tokio::time::timeout(Duration::ZERO, queue.take(slot, max, &mut jobs)).await;
    taken.ok().map(|_| jobs.iter().map(|job| job.id.ms).collect())
}

#[tokio::test]
async fn few_suspects_run_at_the_same_time_the_highest_level_first() {
    let queue = new_queue(1);
    queue.resize(8);
    let suspects = [(1, 2), (2, 2), (3, 3), (4, 3), (5, 2), (6, 3)];
    assert!(queue.put(suspects.map(|(id, level)| suspect(id, level)).into()).is_empty());
    assert!(queue.put((11..=20).map(job).collect()).is_empty());
    // Two suspects of level 3 can run in eight slots. The other slots take messages that are not suspects.
    assert_eq!(take_now(&queue, 0, 64).await, Some(vec![3]));
    assert_eq!(take_now(&queue, 1, 64).await, Some(vec![4]));
    assert_eq!(take_now(&queue, 2, 3).await, Some(vec![11, 12, 13]));
    // A suspect of level 3 has ended, and the next one starts.
    assert_eq!(take_now(&queue, 0, 64).await, Some(vec![6]));
    // While one of level 3 runs, only one other suspect runs, whatever its level.
    assert_eq!(take_now(&queue, 1, 64).await, Some(vec![1]));
    assert_eq!(take_now(&queue, 3, 1).await, Some(vec![14]));
    // Then four of level 2 can run.
    assert_eq!(take_now(&queue, 0, 64).await, Some(vec![2]));
    assert_eq!(take_now(&queue, 4, 64).await, Some(vec![5]));
    assert_eq!(queue.len(), 6);
}

#[tokio::test]
async fn one_suspect_of_the_highest_level_is_handed_out_at_a_time() {
    let queue = new_queue(1);
    queue.resize(3);
    assert!(queue.put(vec![job(1), suspect(9, 5), suspect(8, 3), suspect(10, 6)]).is_empty());
    assert_eq!(take_now(&queue, 0, 1).await, Some(vec![10]));
    assert_eq!(take_now(&queue, 1, 1).await, Some(vec![1]));
    assert_eq!(take_now(&queue, 2, 1).await, None);
    assert_eq!(queue.take_alone().iter().map(|job| job.id.ms).collect::<Vec<_>>(), [9]);
    assert_eq!(take_now(&queue, 0, 1).await, Some(vec![8]));
}

#[tokio::test]
async fn a_waiting_slot_is_woken_when_it_may_take_a_suspect() {
    let queue = new_queue(1);
    queue.resize(2);
    assert!(queue.put(vec![suspect(1, 5), suspect(2, 5)]).is_empty());
    assert_eq!(take_now(&queue, 0, 1).await, Some(vec![1]));
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.take(1, 1, &mut Vec::new()).await }
    });
    tokio::task::yield_now().await;
    // Slot 0 ends because it is surplus.
    queue.state.lock().slots.target = 0;
    assert!(!queue.take(0, 1, &mut Vec::new()).await);
    queue.resize(2);
    assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_batch_has_at_most_as_many_suspects_as_may_run() {
    let queue = new_queue(50);
    queue.resize(2);
    assert!(queue.put((1..=90).map(|id| suspect(id, 2)).collect()).is_empty());
    assert!(queue.put((101..=160).map(job).collect()).is_empty());
    // 100 messages run at the same time: 22 of them may be suspects of level 2.
    assert_eq!(take_now(&queue, 0, 50).await.map(|jobs| jobs.len()), Some(22));
    let mut jobs = Vec::new();
    assert!(queue.take(1, 50, &mut jobs).await);
    assert_eq!(jobs.len(), 50);
    assert!(jobs.iter().all(|job| job.suspect_level.is_none()));
    assert!(queue.put(vec![suspect(99, 5)]).is_empty());
    // It waits for the suspects that run. Other messages do not wait.
    assert_eq!(take_now(&queue, 1, 50).await.map(|jobs| jobs.len()), Some(10));
    assert_eq!(take_now(&queue, 0, 50).await, Some(vec![99]));
}

#[tokio::test]
async fn the_worker_claims_no_more_suspects_than_it_can_run() {
    let queue = new_queue(1);
    queue.resize(4);
    assert!(queue.put((1..=4).map(|id| suspect(id, 2)).collect()).is_empty());
    // It still reads new messages.
    assert_eq!(queue.wait_for_room(None).await, Some(Room { count: 4, may_claim: false }));
    let claiming = tokio::time::timeout(Duration::ZERO, queue.wait_for_room_to_claim(SubscriptionId::new()));
    assert!(claiming.await.is_err());
    assert_eq!(take_now(&queue, 0, 1).await, Some(vec![1]));
    assert_eq!(queue.wait_for_room_to_claim(SubscriptionId::new()).await, Some(4));
}

#[tokio::test]
async fn pauses_and_holds_return_suspects_too() {
    let queue = new_queue(1);
    assert!(queue.put(vec![job(1), suspect(2, 2), suspect(3, 5)]).is_empty());
    assert_eq!(queue.hold().len(), 3);
    // A suspect that must run alone is no probe.
    assert!(queue.expect_probe());
    assert_eq!(queue.put(vec![suspect(3, 5)]).len(), 1);
    assert!(queue.expects_probe());
    assert!(queue.put(vec![suspect(2, 2)]).is_empty());
    assert_eq!(queue.pause().len(), 1);
}
