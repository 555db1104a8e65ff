//! Messages that end in the dead letters, and those that get another chance.

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
async fn too_many_tries_end_with_everything_one_wants_to_know() {
    let backend = store().await;
    let ids = add(&backend, 0..1).await;
    let handler = async |_: Raw| Err::<(), _>(std::io::Error::other("the bank is closed"));
    let running = run(worker(&backend).handler(handler).max_deliveries(3).consumer_name("clerk"));
    until("dead", async || all_done(&backend).await).await;
    let report = running.end().await;
    assert_eq!((report.dead, report.retried, report.received), (1, 2, 3));
    let letter = letters(&backend).await.remove(0);
    assert_eq!(
        (letter.stream.as_str(), letter.group.as_str(), letter.consumer.as_str()),
        (STREAM, GROUP, "clerk")
    );
    assert_eq!((letter.origin, letter.deliveries, letter.redrives), (ids[0], 3, 0));
    assert_eq!(letter.reason, Some(Reason::MaxDeliveries));
    assert_eq!(letter.error, "the bank is closed");
    assert!(letter.error_type.contains("Error"), "{}", letter.error_type);
    assert_eq!(letter.fields, [("n".into(), "0".into())]);
    assert!(letter.dead_at >= letter.first_seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_message_ends_at_once() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let handler = async |message: Message| match message.text("n") {
        Some("0") => Err(HandlerError::reject("never")),
        _ => Ok(()),
    };
    let running = run(worker(&backend).handler(handler).dead_letter("graveyard"));
    until("dead", async || all_done(&backend).await).await;
    let report = running.end().await;
    assert_eq!((report.dead, report.acknowledged, report.retried), (1, 1, 0));
    assert_eq!(backend.stream("graveyard").await.unwrap().unwrap().length, 1);
}

/// Something else lies where dead letters should go.
async fn take_the_place_of_letters(backend: &Arc<dyn Admin>) {
    backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    let other = vec![(DEAD.to_owned(), Duration::from_secs(3600))];
    let done = Acknowledgement { ids: Vec::new(), remember: other };
    backend.acknowledge(STREAM, GROUP, &done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_refused_holds_up_nobody_and_is_written_later() {
    let embedded = Embedded::in_memory();
    let db = embedded.store().clone();
    let backend: Arc<dyn Admin> = Arc::new(embedded);
    add(&backend, 0..50).await;
    take_the_place_of_letters(&backend).await;
    let handler = async |message: Message| match number(&message) % 10 {
        0 => Err(HandlerError::reject("never")),
        _ => Ok(()),
    };
    let running = run(worker(&backend).handler(handler));
    until("all but the rejected", async || pending(&backend).await.len() == 5).await;
    add(&backend, 50..100).await;
    until("all but the rejected of those after them", async || {
        let group = &backend.groups(STREAM).await.unwrap()[0];
        group.lag == Some(0) && group.pending == 10
    })
    .await;
    assert_eq!(backend.stream(DEAD).await.unwrap_err().kind(), ErrorKind::WrongType);
    db.remove(DEAD).await.unwrap();
    until("buried", async || all_done(&backend).await).await;
    let report = running.end().await;
    assert_eq!((report.dead, report.acknowledged, report.lost_leases), (10, 90, 0));
    assert_eq!(letters(&backend).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_ends_gives_back_what_it_could_not_bury() {
    let backend = store().await;
    add(&backend, 0..1).await;
    take_the_place_of_letters(&backend).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| {
        gate.begun.fetch_add(1, Ordering::SeqCst);
        Err::<(), _>(HandlerError::reject("never"))
    };
    let running = run(worker(&backend).handler(handler).state(gate.clone()));
    until("rejected", async || gate.begun() == 1).await;
    let report = running.end().await;
    // Our own last read may have brought it once more.
    assert!(report.dead == 0 && report.released >= 1, "{report}");
    assert!(pending(&backend).await.iter().all(|row| row.consumer.is_none() && row.deliveries == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_kills_workers_ends_before_a_handler_sees_it() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..1).await;
    // Two workers read it and die; it has had its two deliveries.
    read_and_die(&backend, "first", 1).await;
    assert_eq!(steal(&backend, "second").await, 1);
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(worker(&backend).handler(handler).state(gate.clone()).max_deliveries(2).lease(ms(100)));
    until("dead", async || all_done(&backend).await).await;
    running.end().await;
    let letter = letters(&backend).await.remove(0);
    assert_eq!((letter.reason, letter.deliveries), (Some(Reason::MaxDeliveries), 2));
    assert!(letter.error.contains("2 times"), "{}", letter.error);
    assert_eq!(gate.begun(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_entry_is_gone_ends_as_such() {
    let backend = store().await;
    let ids = add(&backend, 0..3).await;
    read_and_die(&backend, "dead", 3).await;
    backend.delete_entries(STREAM, &ids[1..2]).await.unwrap();
    let running = run(worker(&backend).handler(async |_: Raw| {}).lease(ms(100)));
    until("dead", async || all_done(&backend).await).await;
    let report = running.end().await;
    assert_eq!((report.acknowledged, report.dead), (2, 1));
    let letter = letters(&backend).await.remove(0);
    assert_eq!((letter.reason, letter.origin), (Some(Reason::PayloadGone), ids[1]));
    assert!(letter.fields.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_goes_to_one_group_and_is_counted() {
    let (backend, mended, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..6).await;
    backend.create_group(STREAM, "other", Start::End).await.unwrap();
    let handler = async |message: Message, handled: Data<Handled>, mended: Data<Arc<Gate>>| {
        handled.count(number(&message));
        match (number(&message), mended.is_open()) {
            (0..3, false) => Outcome::reject("card expired"),
            (3..5, false) => Outcome::reject("no such customer"),
            _ => Outcome::Ack,
        }
    };
    let running = run(worker(&backend).handler(handler).state(handled.clone()).state(mended.clone()));
    until("dead", async || all_done(&backend).await && letters(&backend).await.len() == 5).await;

    // Looking changes nothing.
    let mut request = Redrive { dry_run: true, ..Redrive::default() };
    request.filter = Filter { error: Some("card".into()), ..Filter::default() };
    let looked = redrive(&*backend, DEAD, &request, |_| {}).await.unwrap();
    assert_eq!((looked.total, looked.looked_at, looked.matched, looked.redriven), (5, 5, 3, 0));
    assert_eq!(letters(&backend).await.len(), 5);

    // Not mended yet: they come back, and say how often they have had a chance.
    let mut told: Vec<Progress> = Vec::new();
    request.dry_run = false;
    request.rate = Some(200.0);
    let done = redrive(&*backend, DEAD, &request, |progress| told.push(*progress)).await.unwrap();
    assert_eq!((done.redriven, done.gone), (3, 0));
    assert_eq!(told.last(), Some(&done));
    until("dead again", async || letters(&backend).await.len() == 5).await;
    let mut redrives: Vec<u64> = letters(&backend).await.iter().map(|letter| letter.redrives).collect();
    redrives.sort();
    assert_eq!(redrives, [0, 0, 1, 1, 1]);

    // Mended: they are done. The other group sees nothing of it.
    mended.open();
    let limited = Redrive { limit: Some(4), ..Redrive::default() };
    assert_eq!(redrive(&*backend, DEAD, &limited, |_| {}).await.unwrap().redriven, 4);
    until("all done", async || all_done(&backend).await && letters(&backend).await.len() == 1).await;
    let report = running.end().await;
    assert_eq!((report.acknowledged, report.dead), (5, 8));
    let other =
        backend.groups(STREAM).await.unwrap().into_iter().find(|group| group.name == "other").unwrap();
    assert_eq!((other.lag, other.pending), (Some(0), 0));
    assert_eq!(handled.times(5), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_to_all_groups_is_a_new_entry() {
    let backend = store().await;
    add(&backend, 0..1).await;
    backend.create_group(STREAM, "other", Start::End).await.unwrap();
    let handler = async |message: Message| match message.text("dlq.redrives") {
        None => Outcome::reject("first time"),
        Some(_) => Outcome::reject("second time"),
    };
    let running = run(worker(&backend).handler(handler));
    until("dead", async || letters(&backend).await.len() == 1).await;
    let request = Redrive { to: Destination::AllGroups, ..Redrive::default() };
    assert_eq!(redrive(&*backend, DEAD, &request, |_| {}).await.unwrap().redriven, 1);
    until("dead again", async || letters(&backend).await.first().is_some_and(|letter| letter.redrives == 1))
        .await;
    running.end().await;
    let letter = letters(&backend).await.remove(0);
    assert_eq!((letter.error.as_str(), letter.fields.len()), ("second time", 1));
    assert_eq!(backend.stream(STREAM).await.unwrap().unwrap().length, 2);
    let groups = backend.groups(STREAM).await.unwrap();
    assert_eq!(groups.iter().find(|group| group.name == "other").unwrap().lag, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_from_the_stream_stays_a_dead_letter() {
    let backend = store().await;
    let ids = add(&backend, 0..1).await;
    let running = run(worker(&backend).handler(async |_: Raw| Outcome::reject("no")));
    until("dead", async || letters(&backend).await.len() == 1).await;
    running.end().await;
    backend.delete_entries(STREAM, &ids).await.unwrap();
    let done = redrive(&*backend, DEAD, &Redrive::default(), |_| {}).await.unwrap();
    assert_eq!((done.matched, done.redriven, done.gone), (1, 0, 1));
    assert_eq!(letters(&backend).await.len(), 1);
}
