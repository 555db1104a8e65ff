//! Messages that are dead-lettered, and redrives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_worker::Message;
use millstream_worker::backend::{Acknowledgement, Admin, Embedded, ErrorKind, Start};
use millstream_worker::handler::{Data, Raw};
use millstream_worker::outcome::{HandlerError, Outcome, Reason};
use millstream_worker::redrive::{Destination, Filter, Progress, Redrive, redrive};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_too_often_becomes_a_complete_dead_letter() {
    let backend = store().await;
    let ids = add(&backend, 0..1).await;
    let handler = async |_: Raw| Err::<(), _>(std::io::Error::other("the bank is closed"));
    let running = run(worker(&backend).handler(handler).max_attempts(3).consumer_name("clerk"));
    wait_until("dead", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.dead, report.retried, report.received), (1, 2, 3));
    let dead_letter = dead_letters(&backend).await.remove(0);
    assert_eq!(
        (dead_letter.stream.as_str(), dead_letter.group.as_str(), dead_letter.consumer.as_str()),
        (STREAM, GROUP, "clerk")
    );
    assert_eq!((dead_letter.origin, dead_letter.deliveries, dead_letter.redrives), (Some(ids[0]), 3, 0));
    assert_eq!(dead_letter.reason, Some(Reason::MaxAttempts));
    assert_eq!(dead_letter.error, "the bank is closed");
    assert!(dead_letter.error_type.contains("Error"), "{}", dead_letter.error_type);
    assert_eq!(dead_letter.fields, [("n".into(), "0".into())]);
    assert!(dead_letter.dead_at >= dead_letter.first_seen.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_message_is_dead_lettered_immediately() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let handler = async |message: Message| match message.text("n") {
        Some("0") => Err(HandlerError::reject("never")),
        _ => Ok(()),
    };
    let running = run(worker(&backend).handler(handler).dead_letter("failed-orders"));
    wait_until("dead", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.dead, report.acknowledged, report.retried), (1, 1, 0));
    assert_eq!(backend.stream("failed-orders").await.unwrap().unwrap().length, 1);
}

/// Creates a string key with the name of the dead-letter stream, so that adding dead letters fails.
async fn block_dead_letter_stream(backend: &Arc<dyn Admin>) {
    backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    let other = vec![(DEAD.to_owned(), Duration::from_secs(3600))];
    let done = Acknowledgement { remember: other, ..Acknowledgement::default() };
    backend.acknowledge(STREAM, GROUP, &done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_dead_letter_is_written_later_and_delays_no_other_message() {
    let embedded = Embedded::in_memory();
    let db = embedded.store().clone();
    let backend: Arc<dyn Admin> = Arc::new(embedded);
    add(&backend, 0..50).await;
    block_dead_letter_stream(&backend).await;
    let handler = async |message: Message| match number(&message) % 10 {
        0 => Err(HandlerError::reject("never")),
        _ => Ok(()),
    };
    let running = run(worker(&backend).handler(handler));
    wait_until("all but the rejected", async || pending(&backend).await.len() == 5).await;
    add(&backend, 50..100).await;
    wait_until("all but the rejected of those after them", async || {
        let group = &backend.groups(STREAM).await.unwrap()[0];
        group.lag == Some(0) && group.pending == 10
    })
    .await;
    assert_eq!(backend.stream(DEAD).await.unwrap_err().kind(), ErrorKind::WrongType);
    db.remove(DEAD).await.unwrap();
    wait_until("dead-lettered", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.dead, report.acknowledged, report.lost_leases), (10, 90, 0));
    assert_eq!(dead_letters(&backend).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_releases_messages_it_could_not_dead_letter() {
    let backend = store().await;
    add(&backend, 0..1).await;
    block_dead_letter_stream(&backend).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| {
        gate.started.fetch_add(1, Ordering::SeqCst);
        Err::<(), _>(HandlerError::reject("never"))
    };
    let running = run(worker(&backend).handler(handler).state(gate.clone()));
    wait_until("rejected", async || gate.started() == 1).await;
    let report = running.drain().await;
    // The worker's last read may have delivered the message once more.
    assert!(report.dead == 0 && report.released >= 1, "{report}");
    // The handler answered, so its delivery does not count.
    assert!(pending(&backend).await.iter().all(|row| row.consumer.is_none() && row.deliveries == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_entry_was_deleted_is_dead_lettered_with_that_reason() {
    let backend = store().await;
    let ids = add(&backend, 0..3).await;
    read_and_die(&backend, "dead", 3).await;
    backend.delete_entries(STREAM, &ids[1..2]).await.unwrap();
    let running = run(worker(&backend).handler(async |_: Raw| {}).lease(ms(100)));
    wait_until("dead", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.dead), (2, 1));
    let dead_letter = dead_letters(&backend).await.remove(0);
    assert_eq!((dead_letter.reason, dead_letter.origin), (Some(Reason::PayloadGone), Some(ids[1])));
    assert!(dead_letter.fields.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redrive_delivers_to_one_group_and_counts_redrives() {
    let (backend, fixed, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..6).await;
    backend.create_group(STREAM, "other", Start::End).await.unwrap();
    let handler = async |message: Message, handled: Data<Handled>, fixed: Data<Arc<Gate>>| {
        handled.count(number(&message));
        match (number(&message), fixed.is_open()) {
            (0..3, false) => Outcome::reject("card expired"),
            (3..5, false) => Outcome::reject("no such customer"),
            _ => Outcome::Ack,
        }
    };
    let running = run(worker(&backend).handler(handler).state(handled.clone()).state(fixed.clone()));
    wait_until("dead", async || all_done(&backend).await && dead_letters(&backend).await.len() == 5).await;

    // A dry run changes nothing.
    let mut request = Redrive { dry_run: true, ..Redrive::default() };
    request.filter = Filter { error: Some("card".into()), ..Filter::default() };
    let preview = redrive(&*backend, DEAD, &request, |_| {}).await.unwrap();
    assert_eq!((preview.total, preview.scanned, preview.matched, preview.redriven), (5, 5, 3, 0));
    assert_eq!(dead_letters(&backend).await.len(), 5);

    // The bug is not fixed yet: the messages are dead-lettered again, with their redrive counts.
    let mut reported: Vec<Progress> = Vec::new();
    request.dry_run = false;
    request.rate = Some(200.0);
    let done = redrive(&*backend, DEAD, &request, |progress| reported.push(*progress)).await.unwrap();
    assert_eq!((done.redriven, done.gone), (3, 0));
    assert_eq!(reported.last(), Some(&done));
    wait_until("dead again", async || dead_letters(&backend).await.len() == 5).await;
    let mut redrives: Vec<u64> =
        dead_letters(&backend).await.iter().map(|dead_letter| dead_letter.redrives).collect();
    redrives.sort();
    assert_eq!(redrives, [0, 0, 1, 1, 1]);

    // The bug is fixed: the messages succeed. The other group does not see them.
    fixed.open();
    let limited = Redrive { limit: Some(4), ..Redrive::default() };
    assert_eq!(redrive(&*backend, DEAD, &limited, |_| {}).await.unwrap().redriven, 4);
    wait_until("all done", async || all_done(&backend).await && dead_letters(&backend).await.len() == 1)
        .await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.dead), (5, 8));
    let other =
        backend.groups(STREAM).await.unwrap().into_iter().find(|group| group.name == "other").unwrap();
    assert_eq!((other.lag, other.pending), (Some(0), 0));
    assert_eq!(handled.times(5), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redrive_to_all_groups_adds_a_new_entry() {
    let backend = store().await;
    add(&backend, 0..1).await;
    backend.create_group(STREAM, "other", Start::End).await.unwrap();
    let handler = async |message: Message| match message.text("dlq.redrives") {
        None => Outcome::reject("first time"),
        Some(_) => Outcome::reject("second time"),
    };
    let running = run(worker(&backend).handler(handler));
    wait_until("dead", async || dead_letters(&backend).await.len() == 1).await;
    let request = Redrive { to: Destination::AllGroups, ..Redrive::default() };
    assert_eq!(redrive(&*backend, DEAD, &request, |_| {}).await.unwrap().redriven, 1);
    wait_until("dead again", async || {
        dead_letters(&backend).await.first().is_some_and(|dead_letter| dead_letter.redrives == 1)
    })
    .await;
    running.drain().await;
    let dead_letter = dead_letters(&backend).await.remove(0);
    assert_eq!((dead_letter.error.as_str(), dead_letter.fields.len()), ("second time", 1));
    assert_eq!(backend.stream(STREAM).await.unwrap().unwrap().length, 2);
    let groups = backend.groups(STREAM).await.unwrap();
    assert_eq!(groups.iter().find(|group| group.name == "other").unwrap().lag, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redrive_keeps_dead_letters_whose_entry_was_deleted() {
    let backend = store().await;
    let ids = add(&backend, 0..1).await;
    let running = run(worker(&backend).handler(async |_: Raw| Outcome::reject("no")));
    wait_until("dead", async || dead_letters(&backend).await.len() == 1).await;
    running.drain().await;
    backend.delete_entries(STREAM, &ids).await.unwrap();
    let done = redrive(&*backend, DEAD, &Redrive::default(), |_| {}).await.unwrap();
    assert_eq!((done.matched, done.redriven, done.gone), (1, 0, 1));
    assert_eq!(dead_letters(&backend).await.len(), 1);
}
