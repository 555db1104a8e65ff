//! Entries that wait after a release, and their retry records.

use std::time::{Duration, Instant};

use millstream_worker::Admin;
use millstream_worker::backend::{
    Acknowledgement, Capability, Claimed, ErrorKind, Read, Release, Retry, StreamId,
};
use millstream_worker::names::retry_key;
use millstream_worker::retry_record::RetryRecord;

use super::{TIMEOUT, consumer, dead_letter, done, ids_of, kind, make_a_string, pending, reader, reading};

const LONG: Duration = Duration::from_secs(3600);

pub(crate) async fn all(backend: &dyn Admin) {
    a_released_entry_waits(backend).await;
    an_entry_that_waited_is_delivered(backend).await;
    only_the_owner_writes_a_record(backend).await;
    records_are_deleted_with_their_entries(backend).await;
    a_key_of_another_type_changes_nothing(backend).await;
}

const SURVIVOR: &str = "survivor:waiting";

/// Leaves an entry that waits, and one that will be due after the restart.
pub(crate) async fn leave_data(backend: &dyn Admin) {
    let ids = reading::make_stream(backend, SURVIVOR, 2).await;
    backend.read(&reader(SURVIVOR, "a", 2)).await.unwrap();
    let rows = [retry(ids[0], 1, LONG, 3), retry(ids[1], 1, Duration::from_millis(1), 4)];
    assert_eq!(backend.release(consumer(SURVIVOR, "a"), &rows).await.unwrap(), 2);
}

/// Checks the data of [`leave_data`].
pub(crate) async fn check_data(backend: &dyn Admin) {
    let ids: Vec<StreamId> = pending(backend, SURVIVOR).await.into_iter().map(|row| row.id).collect();
    let claimed = claim(backend, SURVIVOR, "b").await;
    assert_eq!(ids_of(&claimed.deliveries), ids[1..], "the store forgot how long an entry waits");
    for (id, attempts) in ids.iter().zip([3, 4]) {
        assert_eq!(record(backend, SURVIVOR, *id).await.unwrap().attempts, attempts);
    }
    assert!(backend.delete_stream(SURVIVOR).await.unwrap());
    forget_all(backend, SURVIVOR).await;
}

/// A release that waits, with a record of this number of attempts.
fn retry(id: StreamId, delivery: u64, after: Duration, attempts: u64) -> Release {
    let record = RetryRecord { attempts, error: "no".into(), ..RetryRecord::default() };
    Release { retry: Some(Retry { after, record }), ..Release::uncounted(id, delivery) }
}

async fn record(backend: &dyn Admin, stream: &str, id: StreamId) -> Option<RetryRecord> {
    let values = backend.hash_get(&retry_key(stream, "g"), &[id.to_string()]).await.unwrap();
    values[0].as_ref().map(|json| RetryRecord::parse(json))
}

async fn claim(backend: &dyn Admin, stream: &str, name: &str) -> Claimed {
    backend.autoclaim(consumer(stream, name), LONG, StreamId::MIN, 99).await.unwrap()
}

/// Reads as a worker does: on stores whose reads claim, the read claims too.
async fn read(backend: &dyn Admin, stream: &str, name: &str) -> Vec<StreamId> {
    let read = Read { claim_idle: Some(LONG), ..reader(stream, name, 99) };
    ids_of(&backend.read(&read).await.unwrap())
}

async fn a_released_entry_waits(backend: &dyn Admin) {
    let stream = "waiting:long";
    let ids = reading::make_stream(backend, stream, 4).await;
    backend.read(&reader(stream, "a", 4)).await.unwrap();
    let before_ms = backend.now_ms(stream).await.unwrap();
    let rows = [
        retry(ids[0], 1, LONG, 1),
        Release::uncounted(ids[1], 1),
        retry(ids[2], 1, LONG / 2, 7),
        retry(ids[3], 1, Duration::MAX, 1),
    ];
    assert_eq!(backend.release(consumer(stream, "a"), &rows).await.unwrap(), 4);
    let after_ms = backend.now_ms(stream).await.unwrap();

    let written = record(backend, stream, ids[0]).await.unwrap();
    assert_eq!((written.attempts, &*written.error), (1, "no"));
    assert!((before_ms..=after_ms).contains(&written.failed_at_ms), "{before_ms} {written:?} {after_ms}");
    assert_eq!(written.due_at_ms, written.failed_at_ms + LONG.as_millis() as u64);
    assert_eq!(record(backend, stream, ids[1]).await, None);
    assert_eq!(record(backend, stream, ids[2]).await.unwrap().attempts, 7);
    let ten_years_ms = Retry::AFTER_MAX.as_millis() as u64;
    let longest = record(backend, stream, ids[3]).await.unwrap();
    assert_eq!(longest.due_at_ms - longest.failed_at_ms, ten_years_ms);

    // The rows belong to nobody, and the delivery was given back.
    let rows = pending(backend, stream).await;
    assert!(rows.iter().all(|row| (row.consumer.as_deref(), row.idle, row.deliveries) == (None, None, 0)));
    let claimed = claim(backend, stream, "b").await;
    assert_eq!(ids_of(&claimed.deliveries), ids[1..2], "an entry that waits was claimed");
    assert_eq!((claimed.deliveries[0].deliveries, claimed.deliveries[0].claimed), (1, true));
    if backend.supports(Capability::DelayedRelease, stream).await.unwrap() {
        assert_eq!(claimed.due_in, None);
    } else {
        let due_in = claimed.due_in.unwrap();
        assert!(due_in <= LONG / 2 && due_in > LONG / 4, "{due_in:?}");
    }
    assert_eq!(read(backend, stream, "b").await, [], "an entry that waits was read");
    // It also waits when it is not idle, as after a lease.
    let none = backend.autoclaim(consumer(stream, "b"), Duration::ZERO, ids[2], 99).await.unwrap();
    assert_eq!(none.deliveries, []);
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids)).await.unwrap(), 4, "a row was lost");
    assert!(backend.delete_stream(stream).await.unwrap());
    forget_all(backend, stream).await;
}

async fn forget_all(backend: &dyn Admin, stream: &str) {
    let key = retry_key(stream, "g");
    let fields: Vec<String> =
        backend.hash_get_all(&key).await.unwrap().into_iter().map(|(field, _)| field).collect();
    backend.hash_delete(&key, &fields).await.unwrap();
}

/// The entry is delivered again after its delay, with its own count, and its record stays.
async fn an_entry_that_waited_is_delivered(backend: &dyn Admin) {
    let stream = "waiting:short";
    let ids = reading::make_stream(backend, stream, 2).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    // The store's wall clock may be adjusted meanwhile, so the delays are not too short.
    let delays = [Duration::from_millis(400), Duration::from_millis(200)];
    let rows = [retry(ids[0], 1, delays[0], 3), retry(ids[1], 1, delays[1], 3)];
    let released_at = Instant::now();
    assert_eq!(backend.release(consumer(stream, "a"), &rows).await.unwrap(), 2);
    // A blocked read returns the first entry when it is due, if reads claim.
    let mut found = Vec::new();
    if backend.supports(Capability::ReadClaims, stream).await.unwrap() {
        let blocked = Read { block: Some(TIMEOUT), claim_idle: Some(LONG), ..reader(stream, "b", 1) };
        let deliveries = backend.read(&blocked).await.unwrap();
        assert_eq!((deliveries[0].deliveries, deliveries[0].claimed), (1, true));
        found.push((deliveries[0].id, released_at.elapsed()));
    }
    while found.len() < 2 {
        let claimed = claim(backend, stream, "b").await;
        assert!(claimed.deliveries.iter().all(|delivery| delivery.deliveries == 1 && delivery.claimed));
        found.extend(ids_of(&claimed.deliveries).into_iter().map(|id| (id, released_at.elapsed())));
        assert!(released_at.elapsed() < TIMEOUT, "the entries are not delivered");
        tokio::time::sleep(claimed.due_in.unwrap_or(Duration::from_millis(20))).await;
    }
    let tolerance = Duration::from_millis(50);
    for (id, after) in found {
        let delay = delays[usize::from(id == ids[1])];
        assert!(after + tolerance >= delay, "{id} was delivered after {after:?} instead of {delay:?}");
        assert_eq!(record(backend, stream, id).await.unwrap().attempts, 3);
    }
    let forgotten = Acknowledgement { ids: ids.clone(), forget: ids.clone(), ..Acknowledgement::default() };
    assert_eq!(backend.acknowledge(stream, "g", &forgotten).await.unwrap(), 2);
    assert_eq!(backend.hash_len(&retry_key(stream, "g")).await.unwrap(), 0);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// A release that comes too late changes neither the entry nor its record.
async fn only_the_owner_writes_a_record(backend: &dyn Admin) {
    let stream = "waiting:fenced";
    let ids = reading::make_stream(backend, stream, 1).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    assert_eq!(
        backend.release(consumer(stream, "a"), &[retry(ids[0], 1, Duration::ZERO, 1)]).await.unwrap(),
        1
    );
    let taken = claim(backend, stream, "b").await;
    assert_eq!((ids_of(&taken.deliveries), taken.due_in), (ids.clone(), None));
    for (name, delivery) in [("a", 1), ("b", 2), ("nobody", 1)] {
        let late = [retry(ids[0], delivery, LONG, 9)];
        assert_eq!(backend.release(consumer(stream, name), &late).await.unwrap(), 0, "{name}");
        assert_eq!(
            backend.dead_letter(consumer(stream, "a"), &[dead_letter(ids[0], &dlq(stream))]).await.unwrap(),
            []
        );
    }
    assert_eq!(record(backend, stream, ids[0]).await.unwrap().attempts, 1);
    assert_eq!(pending(backend, stream).await[0].consumer.as_deref(), Some("b"));
    assert!(backend.delete_stream(stream).await.unwrap());
    forget_all(backend, stream).await;
}

fn dlq(stream: &str) -> String {
    millstream_worker::names::dead_letters_of(stream)
}

async fn records_are_deleted_with_their_entries(backend: &dyn Admin) {
    let stream = "waiting:deleted";
    let ids = reading::make_stream(backend, stream, 4).await;
    backend.read(&reader(stream, "a", 4)).await.unwrap();
    let rows: Vec<Release> = ids.iter().map(|id| retry(*id, 1, Duration::ZERO, 1)).collect();
    assert_eq!(backend.release(consumer(stream, "a"), &rows).await.unwrap(), 4);
    assert_eq!(claim(backend, stream, "a").await.deliveries.len(), 4);
    assert_eq!(backend.hash_len(&retry_key(stream, "g")).await.unwrap(), 4);

    let first = Acknowledgement {
        ids: ids[..2].to_vec(),
        forget: vec![ids[0]],
        remember: vec![(format!("{{{stream}}}:seen"), LONG)],
    };
    assert_eq!(backend.acknowledge(stream, "g", &first).await.unwrap(), 2);
    assert_eq!(record(backend, stream, ids[0]).await, None);
    assert!(record(backend, stream, ids[1]).await.is_some());
    // Without an acknowledgement, as for a redrive.
    let forget = Acknowledgement { forget: vec![ids[1]], ..Acknowledgement::default() };
    assert_eq!(backend.acknowledge(stream, "g", &forget).await.unwrap(), 0);
    let mut large = dead_letter(ids[3], &dlq(stream));
    large.fields = (0..1500).flat_map(|n| super::fields(&format!("f{n}"), "v")).collect();
    let moved = backend
        .dead_letter(consumer(stream, "a"), &[dead_letter(ids[2], &dlq(stream)), large])
        .await
        .unwrap();
    assert_eq!(moved, ids[2..]);
    assert_eq!(backend.hash_len(&retry_key(stream, "g")).await.unwrap(), 0);
    assert!(
        backend.delete_stream(stream).await.unwrap() && backend.delete_stream(&dlq(stream)).await.unwrap()
    );
}

async fn a_key_of_another_type_changes_nothing(backend: &dyn Admin) {
    let stream = "waiting:vain";
    let ids = reading::make_stream(backend, stream, 1).await;
    backend.read(&reader(stream, "a", 1)).await.unwrap();
    make_a_string(backend, &retry_key(stream, "g")).await;
    let refused = backend.release(consumer(stream, "a"), &[retry(ids[0], 1, LONG, 1)]).await;
    assert_eq!(kind(refused), Some(ErrorKind::WrongType));
    assert_eq!(pending(backend, stream).await[0].consumer.as_deref(), Some("a"), "released without a record");
    assert!(backend.delete_stream(stream).await.unwrap());
}
