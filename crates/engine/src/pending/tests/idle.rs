//! Tests of rows without an owner, of the order by idle time, and of the bytes that rows take.

use super::*;

/// Returns up to `wanted` rows at a time before all due times.
fn longest_idle(list: &PendingList, limit: Option<u64>, wanted: usize) -> Vec<PendingEntry> {
    longest_idle_at(list, 0, limit, wanted)
}

pub(super) fn longest_idle_at(
    list: &PendingList,
    now_ms: u64,
    limit: Option<u64>,
    wanted: usize,
) -> Vec<PendingEntry> {
    let mut seen = Vec::new();
    list.longest_idle(now_ms, limit, |row| {
        seen.push(row);
        if seen.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    seen
}

fn ids(rows: impl IntoIterator<Item = PendingEntry>) -> Vec<u64> {
    rows.into_iter().map(|row| row.id.ms).collect()
}

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

#[test]
fn released_rows_have_no_owner_and_queue_in_release_order() {
    let mut list = ascending(1000);
    assert_eq!(list.release(id(700), 3, 0), Some(row(700, 0, 0, 1_000_700)));
    list.release(id(5), 1, 0);
    list.release(id(999), 0, 0);
    // Releasing a row again moves it to the end of the queue. The replaced row shows no delivery time.
    let before = PendingEntry { id: id(700), consumer: None, delivered_at_ms: 0, deliveries: 3 };
    assert_eq!(list.release(id(700), 4, 0), Some(before));
    // Releasing an id that has no row creates the row.
    assert_eq!(list.release(StreamId::new(3, 1), 0, 0), None);
    list.check().expect("sound");
    assert_eq!(ids(list.released()), [5, 999, 700, 3]);
    assert_eq!((list.len(), list.released_len()), (1001, 4));
    assert_eq!(list.get(id(700)), Some(PendingEntry { deliveries: 4, ..before }));

    // Claimed and acknowledged rows leave the queue.
    let claimed = PendingEntry { consumer: Some(ConsumerHandle(2)), delivered_at_ms: 9, ..before };
    assert_eq!(list.set(claimed), Some(PendingEntry { deliveries: 4, ..before }));
    assert!(list.remove(id(5)).is_some_and(|row| row.consumer.is_none()));
    assert_eq!(ids(list.released()), [999, 3]);
    list.check().expect("sound");
}

#[test]
fn setting_a_row_without_consumer_releases_it() {
    let mut list = ascending(10);
    let unowned = PendingEntry { consumer: None, ..row(4, 0, 0, 77) };
    assert_eq!(list.set(unowned), Some(row(4, 0, 4, 1_000_004)));
    assert_eq!(list.released().collect::<Vec<_>>(), [PendingEntry { delivered_at_ms: 0, ..unowned }]);
    list.check().expect("sound");
}

#[test]
fn rows_with_a_due_time_wait_and_then_follow_the_release_queue() {
    let mut list = ascending(1000);
    for (ms, due_ms) in [(700, 90), (5, 80), (999, 80), (6, 0), (300, NOT_BEFORE_MS_MAX)] {
        list.release(id(ms), 1, due_ms);
    }
    list.check().expect("sound");
    assert_eq!(ids(list.released()), [6, 5, 999, 700, 300]);
    let waiting = [(80, id(5)), (80, id(999)), (90, id(700)), (NOT_BEFORE_MS_MAX, id(300))];
    assert_eq!(list.waiting().collect::<Vec<_>>(), waiting);
    assert!(list.released().all(|row| row.consumer.is_none() && row.delivered_at_ms == 0));
    let claimable = |list: &PendingList, now_ms| {
        let all = ids(longest_idle_at(list, now_ms, None, usize::MAX));
        let filter = Filter { due_at_or_before_ms: Some(now_ms), ..idle_since(5) };
        let mut by_id = all.clone();
        by_id.sort_unstable();
        assert_eq!(ids(walked(list, StreamId::MIN, filter)), by_id);
        assert!(list.has_claimable(now_ms) != all.is_empty());
        all
    };
    assert_eq!(claimable(&list, 79), [6]);
    assert_eq!(claimable(&list, 80), [6, 5, 999]);
    assert_eq!(claimable(&list, 90), [6, 5, 999, 700]);
    assert_eq!(claimable(&list, u64::MAX), [6, 5, 999, 700, 300]);
    let next = [0, 79, 80, 90, NOT_BEFORE_MS_MAX, u64::MAX].map(|now_ms| list.next_due_ms(now_ms));
    assert_eq!(next, [Some(80), Some(80), Some(90), Some(NOT_BEFORE_MS_MAX), None, None]);
    assert!(list.is_waiting(id(5), 79) && !list.is_waiting(id(5), 80));
    assert!(!list.is_waiting(id(6), 0) && !list.is_waiting(id(7), 0));
    // Listing pending entries shows rows that wait, like all released rows.
    assert_eq!(ids(walked(&list, StreamId::MIN, idle_since(5))), [5, 6, 300, 700, 999]);

    // A row leaves its place when it is released again, claimed or acknowledged.
    list.release(id(5), 1, 80);
    list.release(id(999), 1, 95);
    list.release(id(700), 1, 0);
    list.set(row(6, 0, 1, 7));
    list.remove(id(300));
    list.check().expect("sound");
    assert_eq!(ids(list.released()), [700, 5, 999]);
    assert_eq!(list.released_len(), 3);
    for ms in [700, 5, 999] {
        list.set(row(ms, 0, 1, 7));
    }
    assert_eq!((list.released_len(), list.has_claimable(u64::MAX)), (0, false));
    list.check().expect("sound");
}

#[test]
fn filters_treat_released_rows_as_idle_and_without_owner() {
    let mut list = ascending(2000);
    for ms in [3, 1500, 2000] {
        list.release(id(ms), 1, 0);
    }
    assert_eq!(ids(walked(&list, StreamId::MIN, idle_since(5))), [3, 1500, 2000]);
    // Rows 3 and 1500 belonged to consumers 3 and 0.
    assert_eq!(walked(&list, StreamId::MIN, of_consumer(3)).len(), 199);
    assert_eq!(walked(&list, StreamId::MIN, of_consumer(0)).len(), 198);
    assert_eq!(list.remove_consumer(ConsumerHandle(0)), 198);
    assert_eq!(list.released_len(), 3);
    list.check().expect("sound");
    for consumer in 1..10 {
        list.remove_consumer(ConsumerHandle(consumer));
    }
    assert_eq!(ids(walked(&list, StreamId::MIN, Filter::default())), [3, 1500, 2000]);
    assert_eq!(list.oldest_delivery_ms(), None);
    list.check().expect("sound");
}

#[test]
fn longest_idle_visits_released_rows_first_then_oldest() {
    let mut list = ascending(3000);
    list.set(row(2000, 0, 1, 50));
    list.set(row(10, 0, 1, 50));
    list.set(row(2999, 0, 1, 40));
    list.release(id(1234), 1, 0);
    list.release(id(7), 1, 0);
    assert_eq!(list.oldest_delivery_ms(), Some(40));
    assert_eq!(ids(longest_idle(&list, Some(u64::MAX), 8)), [1234, 7, 2999, 10, 2000, 1, 2, 3]);
    assert_eq!(ids(longest_idle(&list, Some(50), usize::MAX)), [1234, 7, 2999, 10, 2000]);
    assert_eq!(ids(longest_idle(&list, Some(49), usize::MAX)), [1234, 7, 2999]);
    assert_eq!(ids(longest_idle(&list, Some(39), usize::MAX)), [1234, 7]);
    assert_eq!(ids(longest_idle(&list, None, usize::MAX)), [1234, 7]);
    assert_eq!(longest_idle(&list, Some(u64::MAX), usize::MAX).len(), 3000);
}

#[test]
fn longest_idle_orders_equal_times_by_id() {
    let rows_per_page = (ROWS_MAX * CHUNKS_MAX) as u64;
    let mut list = PendingList::default();
    for n in 0..rows_per_page * 2 + 100 {
        // Two alternating times, over several pages and the tail.
        list.set(row(n, 0, 1, 500 + n % 2));
    }
    let seen = ids(longest_idle(&list, Some(501), usize::MAX));
    let evens = (0..rows_per_page * 2 + 100).step_by(2);
    assert_eq!(seen, evens.clone().chain(evens.map(|n| n + 1)).collect::<Vec<_>>());
    assert_eq!(longest_idle(&list, Some(499), 1), []);
}

#[test]
fn oldest_delivery_is_exact_after_removals() {
    let mut list = ascending((ROWS_MAX * CHUNKS_MAX * 2) as u64 + 50);
    for n in 1..(ROWS_MAX * CHUNKS_MAX * 2) as u64 + 50 {
        assert_eq!(list.oldest_delivery_ms(), Some(1_000_000 + n));
        if n % 3 == 0 {
            list.release(id(n), 1, 0);
        } else {
            list.remove(id(n));
        }
    }
    list.check().expect("sound");
}

#[test]
fn released_rows_do_not_widen_the_time_column() {
    let count = ROWS_MAX as u64 * 40;
    let mut list = PendingList::default();
    for n in 0..count {
        list.set(row(1_700_000_000_000 + n, 0, 1, 1_700_000_000_000 + n));
    }
    let before = list.memory_bytes();
    for n in (0..count).step_by(100) {
        list.release(StreamId::new(1_700_000_000_000 + n, 0), 1, 0);
    }
    list.check().expect("sound");
    let after = list.memory_bytes() - list.released.memory_bytes();
    // The consumer column takes a byte, because the consumer is no longer the same in all rows.
    assert!(after <= before + count as usize * 3 / 2, "{after} bytes after {before}");
}

#[test]
fn new_rows_take_at_most_twelve_bytes_each() {
    for per_ms in [1, 7, 100] {
        let count = 20_000;
        let mut list = PendingList::default();
        for n in 0..count {
            let ms = 1_700_000_000_000 + n / per_ms;
            list.set(row(ms, n % per_ms, (n / 50 % 20) as u32, ms + 3));
        }
        assert!(list.memory_bytes() as u64 <= count * 12, "{} bytes", list.memory_bytes());
    }
}

#[test]
fn randomly_changed_rows_take_at_most_24_bytes_each() {
    let (count, start) = (40_000u64, 1_700_000_000_000);
    let mut list = PendingList::default();
    for n in 0..count {
        list.set(row(start + n / 3, n % 3, (n % 100) as u32, start + n / 3));
    }
    let mut random = 88_172_645_463_325_252u64;
    for step in 0..count * 2 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let n = random % count;
        if random >> 63 == 0 {
            list.remove(StreamId::new(start + n / 3, n % 3));
        } else if list.get(StreamId::new(start + n / 3, n % 3)).is_some() {
            list.set(row(start + n / 3, n % 3, (step % 100) as u32, start + count + step));
        }
        if step % 1000 == 999 {
            let (bytes, rows) = (list.memory_bytes() as u64, list.len());
            assert!(bytes <= rows * 24, "{bytes} bytes for {rows} rows after {step} steps");
        }
    }
    list.check().expect("sound");
}

#[test]
fn list_keeps_its_memory_when_it_empties_and_fills_again() {
    let mut list = PendingList::default();
    for round in 0..200 {
        for n in 0..10 {
            list.set(row(round * 20 + n, 0, 1, round));
        }
        let full = list.memory_bytes();
        for n in 0..10 {
            list.remove(id(round * 20 + n));
        }
        list.check().expect("sound");
        assert_eq!(list.memory_bytes(), full);
        assert!(full <= KEPT_BYTES_MAX, "{full} bytes");
    }
}
