//! Edge cases, and a comparison with plain collections over random histories of operations.

mod histories;
mod idle;
mod ready;

use std::ops::ControlFlow;

use super::chunk::ROWS_MAX;
use super::page::CHUNKS_MAX;
use super::*;
use crate::backoff::Backoff;

/// Maximum bytes that an empty list keeps for future rows.
const KEPT_BYTES_MAX: usize = 288;

fn row(ms: u64, seq: u64, consumer: u32, delivered_at_ms: u64) -> PendingEntry {
    PendingEntry {
        id: StreamId::new(ms, seq),
        consumer: Some(ConsumerHandle(consumer)),
        delivered_at_ms,
        deliveries: 1,
    }
}

fn walked(list: &PendingList, from: StreamId, filter: Filter) -> Vec<PendingEntry> {
    let mut rows = Vec::new();
    list.walk(from, filter, |entry| {
        rows.push(entry);
        ControlFlow::Continue(())
    });
    rows
}

fn selects(filter: &Filter, entry: &PendingEntry) -> bool {
    filter.consumer.is_none_or(|consumer| entry.consumer == Some(consumer))
        && (filter.delivered_at_or_before_ms.is_none_or(|limit| entry.delivered_at_ms <= limit)
            || entry.consumer.is_none())
}

fn idle_since(limit: u64) -> Filter {
    Filter { delivered_at_or_before_ms: Some(limit), ..Filter::default() }
}

fn of_consumer(consumer: u32) -> Filter {
    Filter { consumer: Some(ConsumerHandle(consumer)), ..Filter::default() }
}

/// Returns a list of `count` rows with ids `1-0`, `2-0`, …, delivered one millisecond apart to ten consumers
/// in turn.
fn ascending(count: u64) -> PendingList {
    let mut list = PendingList::default();
    for n in 1..=count {
        assert_eq!(list.set(row(n, 0, (n % 10) as u32, 1_000_000 + n)), None);
    }
    list.check().expect("sound");
    list
}

#[test]
fn empty_list_has_no_rows() {
    let mut list = PendingList::default();
    assert!(list.is_empty());
    assert_eq!((list.first(), list.last(), list.get(StreamId::MIN)), (None, None, None));
    assert_eq!(list.remove(StreamId::MAX), None);
    assert_eq!(list.remove_consumer(ConsumerHandle(0)), 0);
    assert_eq!(walked(&list, StreamId::MIN, Filter::default()), []);
    assert_eq!(list.memory_bytes(), 0);
    list.check().expect("sound");
}

#[test]
fn set_returns_the_replaced_row_and_remove_the_removed_row() {
    let mut list = PendingList::default();
    let first = row(5, 5, 1, 100);
    let claimed =
        PendingEntry { consumer: Some(ConsumerHandle(2)), delivered_at_ms: 50, deliveries: 2, ..first };
    assert_eq!(list.set(first), None);
    assert_eq!(list.set(claimed), Some(first));
    assert_eq!(list.len(), 1);
    assert_eq!(list.get(first.id), Some(claimed));
    assert_eq!(list.remove(StreamId::new(5, 4)), None);
    assert_eq!(list.remove(first.id), Some(claimed));
    assert!(list.is_empty());
    list.check().expect("sound");
}

#[test]
fn smallest_and_greatest_numbers_are_stored() {
    let mut list = PendingList::default();
    let rows = [
        PendingEntry { deliveries: 0, ..row(0, 0, 0, u64::MAX) },
        PendingEntry { deliveries: u64::MAX >> 1, ..row(0, u64::MAX, u32::MAX, 0) },
        PendingEntry { deliveries: 1, ..row(u64::MAX, 0, 7, 1) },
        PendingEntry { deliveries: 2, ..row(u64::MAX, u64::MAX, 7, u64::MAX) },
    ];
    for entry in [rows[2], rows[0], rows[3], rows[1]] {
        assert_eq!(list.set(entry), None);
        list.check().expect("sound");
    }
    assert_eq!(walked(&list, StreamId::MIN, Filter::default()), rows);
    assert_eq!(walked(&list, StreamId::MIN, idle_since(0)), [rows[1]]);
    assert_eq!(walked(&list, StreamId::MAX, Filter::default()), [rows[3]]);
    assert_eq!(walked(&list, StreamId::MIN, of_consumer(u32::MAX)), [rows[1]]);
}

#[test]
fn walk_stops_when_the_visitor_breaks() {
    let list = ascending(1000);
    let mut seen = 0;
    list.walk(StreamId::new(300, 1), Filter::default(), |entry| {
        seen += 1;
        if entry.id.ms == 700 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(seen, 400);
}

#[test]
fn new_rows_take_few_bytes_and_removed_rows_free_them() {
    let count = 100_000;
    let mut list = ascending(count);
    assert!(list.memory_bytes() as u64 <= count * 5, "{} bytes", list.memory_bytes());
    for n in (1..=count).filter(|n| n % 10 != 0) {
        list.remove(StreamId::new(n, 0));
    }
    list.check().expect("sound");
    assert_eq!(list.len(), count / 10);
    assert!(list.memory_bytes() as u64 <= count / 10 * 10, "{} bytes", list.memory_bytes());
    for n in 1..=count {
        list.remove(StreamId::new(n, 0));
    }
    assert!(list.is_empty());
    assert!(list.memory_bytes() <= KEPT_BYTES_MAX, "{} bytes", list.memory_bytes());
}

#[test]
fn removed_outlier_does_not_keep_its_chunk_wide() {
    let count = ROWS_MAX as u64 * 40;
    let mut list = ascending(count);
    let before = list.memory_bytes();
    for n in (1..=count).step_by(100) {
        list.set(row(n, 0, 1, 0));
    }
    assert!(list.memory_bytes() > before + before / 2);
    // The outliers are claimed again, and other rows of their chunks change too.
    for n in 1..=count / 2 {
        list.set(row(n * 2 - 1, 0, 1, 1_000_000 + n * 2));
    }
    list.check().expect("sound");
    assert!(list.memory_bytes() < before + before / 8, "{} of {before}", list.memory_bytes());
}

#[test]
fn claiming_the_oldest_row_updates_the_oldest_time() {
    let mut list = ascending(ROWS_MAX as u64);
    list.set(row(9, 0, 1, 5));
    assert_eq!(walked(&list, StreamId::MIN, idle_since(5)).len(), 1);
    list.set(row(9, 0, 1, 2_000_000));
    list.check().expect("the oldest time is exact");
    assert_eq!(walked(&list, StreamId::MIN, idle_since(5)), []);
}

#[test]
fn remove_consumer_removes_only_its_rows() {
    let mut list = ascending(10_000);
    // Handle 67 shares its summary bit with handle 3.
    assert_eq!(list.remove_consumer(ConsumerHandle(67)), 0);
    assert_eq!(list.remove_consumer(ConsumerHandle(3)), 1000);
    list.check().expect("sound");
    assert_eq!(list.len(), 9000);
    assert_eq!(walked(&list, StreamId::MIN, of_consumer(3)), []);
    assert_eq!(walked(&list, StreamId::MIN, of_consumer(4)).len(), 1000);
    for consumer in 0..10 {
        list.remove_consumer(ConsumerHandle(consumer));
    }
    assert!(list.is_empty());
    assert!(list.memory_bytes() <= KEPT_BYTES_MAX, "{} bytes", list.memory_bytes());
}

#[test]
fn pages_fill_split_and_merge() {
    let rows_per_page = (ROWS_MAX * CHUNKS_MAX) as u64;
    let mut list = PendingList::default();
    // Even ids only, so that odd ones can be inserted in between.
    for n in 0..rows_per_page / 2 * 3 {
        list.set(row(n * 2, 0, 1, n));
    }
    list.check().expect("sound");
    assert_eq!(list.pages.iter().len(), 2);
    for n in 0..rows_per_page / 8 {
        list.set(row(n * 2 + 1, 0, 1, n));
    }
    list.check().expect("sound");
    assert_eq!(list.pages.iter().len(), 3);
    for n in 0..rows_per_page * 3 {
        if n % 16 != 0 {
            list.remove(StreamId::new(n, 0));
        }
    }
    list.check().expect("sound");
    assert_eq!(list.pages.iter().len(), 1);
    assert_eq!(list.len(), rows_per_page * 3 / 16);
    list.remove_consumer(ConsumerHandle(1));
    assert!(list.memory_bytes() <= KEPT_BYTES_MAX, "{} bytes", list.memory_bytes());
}

#[test]
fn halves_of_a_split_chunk_merge_with_small_neighbours() {
    let rows = ROWS_MAX as u64;
    let mut list = PendingList::default();
    // Even ids only, in three full chunks. Then the outer two lose most of their rows.
    for n in 0..rows * 3 {
        list.set(row(n * 2, 0, 1, n));
    }
    for n in (0..rows - 20).chain(rows * 2 + 20..rows * 3) {
        list.remove(StreamId::new(n * 2, 0));
    }
    list.check().expect("sound");
    list.set(row(rows * 3 + 1, 0, 1, 0));
    list.check().expect("sound, and merged on both sides");
    assert_eq!(list.len(), rows + 41);
}

#[test]
fn halves_of_a_split_page_merge_with_small_neighbours() {
    let rows_per_page = (ROWS_MAX * CHUNKS_MAX) as u64;
    let mut list = PendingList::default();
    for n in 0..rows_per_page * 3 {
        list.set(row(n * 2, 0, 1, n));
    }
    let few = rows_per_page / 8;
    for n in (0..rows_per_page - few).chain(rows_per_page * 2 + few..rows_per_page * 3) {
        list.remove(StreamId::new(n * 2, 0));
    }
    list.check().expect("sound");
    assert_eq!(list.pages.iter().len(), 3);
    list.set(row(rows_per_page * 3 + 1, 0, 1, 0));
    list.check().expect("sound, and merged on both sides");
    assert_eq!(list.pages.iter().len(), 2);
}

#[test]
fn long_list_reduced_to_one_row_is_small() {
    let count = (ROWS_MAX * CHUNKS_MAX * 3) as u64;
    let mut list = ascending(count);
    for n in 2..=count {
        list.remove(StreamId::new(n, 0));
    }
    assert_eq!(list.len(), 1);
    assert!(list.memory_bytes() <= 870, "{} bytes", list.memory_bytes());
}

#[test]
fn copy_shares_pages_that_neither_list_changed() {
    let rows_per_page = (ROWS_MAX * CHUNKS_MAX) as u64;
    let mut list = ascending(rows_per_page * 5);
    let before = walked(&list, StreamId::MIN, Filter::default());
    let mut copy = list.clone();
    list.remove(StreamId::new(1, 0));
    list.set(row(rows_per_page + 5, 0, 3, 7));
    copy.remove(StreamId::new(rows_per_page * 2 + 5, 0));
    let shared = list.pages.iter().zip(copy.pages.iter()).map(|(one, other)| std::ptr::eq(one, other));
    assert_eq!(shared.collect::<Vec<_>>(), [false, false, false, true, true]);
    copy.set(before[rows_per_page as usize * 2 + 4]);
    assert_eq!(walked(&copy, StreamId::MIN, Filter::default()), before);
    assert_eq!(list.len(), copy.len() - 1);
    list.remove_consumer(ConsumerHandle(1));
    assert_eq!(copy.len(), rows_per_page * 5);
    [list, copy].iter().for_each(|list| list.check().expect("sound"));
}
