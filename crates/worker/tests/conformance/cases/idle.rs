//! A minimum idle time means the same on every backend: released rows match any idle time, and counts apply to the
//! rows that match.

use std::time::Duration;

use millstream_worker::backend::{Admin, Capability, PendingFilter, Read, Release, Retry, StreamId};
use millstream_worker::retry_record::RetryRecord;

use super::{all_rows, consumer, ids_of, reader, reading};

const MINUTE: Duration = Duration::from_secs(60);
/// Longer than any entry can have been idle.
const LONGER_THAN_POSSIBLE: Duration = Duration::from_secs(200 * 365 * 24 * 3600);

pub(super) async fn all(backend: &dyn Admin) {
    released_rows_are_listed(backend).await;
    counts_apply_after_the_filter(backend).await;
    released_rows_are_claimed(backend).await;
    released_rows_are_read(backend).await;
    pages_without_a_match_do_not_end_an_autoclaim(backend).await;
    deleted_entries_do_not_count_in_a_claiming_read(backend).await;
    deleted_entries_count_in_an_autoclaim(backend).await;
    a_takeover_gets_everything_in_order(backend).await;
}

/// Creates a stream with this number of entries, all delivered to consumer `a`, some of them released.
async fn make_released(
    backend: &dyn Admin,
    stream: &str,
    count: usize,
    released: std::ops::Range<usize>,
) -> Vec<StreamId> {
    let ids = reading::make_stream(backend, stream, count).await;
    assert_eq!(backend.read(&reader(stream, "a", count)).await.unwrap().len(), count);
    let back: Vec<Release> = ids[released].iter().map(|id| Release::counted(*id, 1)).collect();
    assert_eq!(backend.release(consumer(stream, "a"), &back).await.unwrap(), back.len() as u64);
    ids
}

async fn listed(backend: &dyn Admin, stream: &str, filter: PendingFilter) -> Vec<StreamId> {
    backend.pending(stream, "g", &filter).await.unwrap().into_iter().map(|row| row.id).collect()
}

fn idle(min_idle: Duration, count: usize) -> PendingFilter {
    PendingFilter { min_idle: Some(min_idle), count, ..all_rows() }
}

/// A takeover claims entries of other consumers that are not idle, released ones and those that wait.
async fn a_takeover_gets_everything_in_order(backend: &dyn Admin) {
    let stream = "idle:takeover";
    let ids = make_released(backend, stream, 7, 2..4).await;
    let wait = Retry { after: MINUTE, record: RetryRecord { attempts: 1, ..RetryRecord::default() } };
    let waits = Release { retry: Some(wait), ..Release::uncounted(ids[1], 1) };
    assert_eq!(backend.release(consumer(stream, "a"), &[waits]).await.unwrap(), 1);
    assert_eq!(backend.delete_entries(stream, &ids[4..5]).await.unwrap(), 1);
    let first = backend.take_over(consumer(stream, "b"), StreamId::MIN, 5).await.unwrap();
    let counts: Vec<u64> = first.deliveries.iter().map(|delivery| delivery.deliveries).collect();
    assert_eq!((ids_of(&first.deliveries), counts), (ids[..5].to_vec(), vec![2, 1, 2, 2, 1]));
    // The deleted entry keeps its owner and its count.
    let has_fields: Vec<bool> = first.deliveries.iter().map(|delivery| delivery.fields.is_some()).collect();
    assert_eq!(has_fields, [true, true, true, true, false]);
    assert!(first.deliveries.iter().all(|delivery| delivery.claimed));
    let rest = backend.take_over(consumer(stream, "b"), first.next, 5).await.unwrap();
    assert_eq!((ids_of(&rest.deliveries), rest.next), (ids[5..].to_vec(), StreamId::MIN));
    let owners = backend.pending(stream, "g", &all_rows()).await.unwrap();
    let of_b = owners.iter().filter(|row| row.consumer.as_deref() == Some("b"));
    assert_eq!((owners.len(), of_b.count()), (7, 6));
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn released_rows_are_listed(backend: &dyn Admin) {
    let stream = "idle:released";
    let ids = make_released(backend, stream, 110, 0..100).await;
    for min_idle in [Duration::from_millis(1), MINUTE, LONGER_THAN_POSSIBLE, Duration::MAX] {
        let rows = backend.pending(stream, "g", &idle(min_idle, 100)).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids[..100], "{min_idle:?}");
        assert!(rows.iter().all(|row| row.consumer.is_none() && row.idle.is_none()), "{min_idle:?}");
    }
    // Released rows have no owner, so they are not listed for the consumer. Its own rows were delivered just now.
    let of_a = PendingFilter { consumer: Some("a".to_owned()), ..all_rows() };
    assert_eq!(listed(backend, stream, of_a.clone()).await, ids[100..]);
    assert_eq!(listed(backend, stream, PendingFilter { min_idle: Some(MINUTE), ..of_a }).await, []);
    // A deleted entry makes no difference.
    assert_eq!(backend.delete_entries(stream, &ids[1..2]).await.unwrap(), 1);
    assert_eq!(listed(backend, stream, idle(MINUTE, 3)).await, ids[..3]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn counts_apply_after_the_filter(backend: &dyn Admin) {
    let stream = "idle:counted";
    let ids = make_released(backend, stream, 1110, 1100..1110).await;
    assert_eq!(listed(backend, stream, idle(MINUTE, 5)).await, ids[1100..1105]);
    assert_eq!(listed(backend, stream, idle(MINUTE, 100)).await, ids[1100..]);
    let until_there = PendingFilter { last: ids[1102], ..idle(MINUTE, 100) };
    assert_eq!(listed(backend, stream, until_there).await, ids[1100..1103]);
    assert_eq!(listed(backend, stream, idle(MINUTE, 0)).await, []);
    assert_eq!(backend.all_pending(stream, "g").await.unwrap().len(), 1110);
    assert!(backend.all_entries(stream).await.unwrap().iter().map(|entry| entry.id).eq(ids));
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// More rows than a store scans in one call belong to others or are not idle. The rows behind them are found
/// nevertheless.
async fn pages_without_a_match_do_not_end_an_autoclaim(backend: &dyn Admin) {
    let stream = "idle:pages";
    let ids = reading::make_stream(backend, stream, 2110).await;
    assert_eq!(backend.read(&reader(stream, "a", 2100)).await.unwrap().len(), 2100);
    assert_eq!(backend.read(&reader(stream, "b", 10)).await.unwrap().len(), 10);
    let of_b = PendingFilter { consumer: Some("b".to_owned()), count: 4, ..all_rows() };
    assert_eq!(listed(backend, stream, of_b).await, ids[2100..2104]);
    let own = backend.own_pending(consumer(stream, "b"), StreamId::MIN, 4).await.unwrap();
    assert_eq!(ids_of(&own), ids[2100..2104]);
    let back: Vec<Release> = ids[2103..].iter().map(|id| Release::counted(*id, 1)).collect();
    assert_eq!(backend.release(consumer(stream, "b"), &back).await.unwrap(), 7);
    let (mut claimed, mut from, mut pages) = (Vec::new(), StreamId::MIN, 0);
    while pages == 0 || from != StreamId::MIN {
        let page = backend.autoclaim(consumer(stream, "c"), MINUTE, from, 3).await.unwrap();
        assert!(page.deliveries.len() <= 3 && pages < 10, "{page:?}");
        claimed.extend(ids_of(&page.deliveries));
        (from, pages) = (page.next, pages + 1);
    }
    assert_eq!(claimed, ids[2103..]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// A claiming read counts the entries that it returns, not the rows that it skips.
async fn deleted_entries_do_not_count_in_a_claiming_read(backend: &dyn Admin) {
    let stream = "idle:passed";
    let ids = make_released(backend, stream, 5, 0..3).await;
    assert_eq!(backend.delete_entries(stream, &ids[..2]).await.unwrap(), 2);
    if backend.supports(Capability::ReadClaims, "orders").await.unwrap() {
        let claiming = Read { claim_idle: Some(MINUTE), ..reader(stream, "b", 1) };
        assert_eq!(ids_of(&backend.read(&claiming).await.unwrap()), ids[2..3]);
        assert_eq!(backend.read(&claiming).await.unwrap(), []);
    }
    assert_eq!(backend.all_pending(stream, "g").await.unwrap().len(), 5);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// An autoclaim reports rows of deleted entries, released or not, and continues after them.
async fn deleted_entries_count_in_an_autoclaim(backend: &dyn Admin) {
    let stream = "idle:gone";
    let ids = make_released(backend, stream, 5, 0..4).await;
    assert_eq!(backend.delete_entries(stream, &ids[..3]).await.unwrap(), 3);
    let first = backend.autoclaim(consumer(stream, "b"), MINUTE, StreamId::MIN, 2).await.unwrap();
    assert_eq!(ids_of(&first.deliveries), ids[..2]);
    assert!(first.deliveries.iter().all(|row| row.fields.is_none() && row.deliveries == 1));
    let second = backend.autoclaim(consumer(stream, "b"), MINUTE, first.next, 2).await.unwrap();
    let shown: Vec<_> = second.deliveries.iter().map(|row| (row.id, row.fields.is_some())).collect();
    assert_eq!(shown, [(ids[2], false), (ids[3], true)]);
    // The rows are unchanged, so another autoclaim finds them again.
    let rows: Vec<_> = backend.all_pending(stream, "g").await.unwrap();
    let owners: Vec<_> = rows.iter().map(|row| row.consumer.as_deref()).collect();
    assert_eq!(owners, [None, None, None, Some("b"), Some("a")]);
    let again = backend.autoclaim(consumer(stream, "c"), MINUTE, StreamId::MIN, 9).await.unwrap();
    assert_eq!((ids_of(&again.deliveries), again.next), (ids[..3].to_vec(), StreamId::MIN));
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn released_rows_are_claimed(backend: &dyn Admin) {
    let stream = "idle:claimed";
    let ids = make_released(backend, stream, 20, 8..14).await;
    for (at, min_idle) in [(8, MINUTE), (10, LONGER_THAN_POSSIBLE), (12, Duration::MAX)] {
        let claimed = backend.autoclaim(consumer(stream, "b"), min_idle, StreamId::MIN, 2).await.unwrap();
        assert_eq!(ids_of(&claimed.deliveries), ids[at..at + 2], "{min_idle:?}");
        assert!(claimed.deliveries.iter().all(|delivery| delivery.deliveries == 2), "{min_idle:?}");
    }
    let none = backend.autoclaim(consumer(stream, "b"), MINUTE, StreamId::MIN, 2).await.unwrap();
    assert_eq!((none.deliveries, none.next), (Vec::new(), StreamId::MIN));
    // With a count of zero, no row is scanned.
    let nothing = backend.autoclaim(consumer(stream, "b"), Duration::ZERO, ids[3], 0).await.unwrap();
    assert_eq!((nothing.deliveries, nothing.next), (Vec::new(), ids[3]));
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn released_rows_are_read(backend: &dyn Admin) {
    let stream = "idle:read";
    let ids = make_released(backend, stream, 4, 1..3).await;
    if backend.supports(Capability::ReadClaims, "orders").await.unwrap() {
        let claiming = Read { claim_idle: Some(LONGER_THAN_POSSIBLE), ..reader(stream, "b", 10) };
        assert_eq!(ids_of(&backend.read(&claiming).await.unwrap()), ids[1..3]);
    }
    assert!(backend.delete_stream(stream).await.unwrap());
}
