//! Tests of searches by ready time, and of how many chunks they examine.

use super::*;

const LEASE_MS: u64 = 100;
const START_MS: u64 = 10_000_000;
const WAIT_MS: u64 = 600_000;

const RULE: ReadyRule = ReadyRule {
    lease_ms: LEASE_MS,
    backoff: Backoff { first_ms: WAIT_MS, longest_ms: WAIT_MS },
    max_deliveries: u64::MAX,
};

/// Returns up to `wanted` rows, and the number of chunks that the search examined.
pub(super) fn longest_ready(
    list: &PendingList,
    now_ms: u64,
    rule: &ReadyRule,
    wanted: usize,
) -> (Vec<PendingEntry>, usize) {
    let mut seen = Vec::new();
    let examined = list.longest_ready(now_ms, rule, |row| {
        seen.push(row);
        if seen.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (seen, examined)
}

/// Returns a list of rows with ids `1-0`, `2-0`, …, all delivered to one consumer at [`START_MS`].
fn delivered(count: u64) -> PendingList {
    let mut list = PendingList::default();
    let ids: Vec<StreamId> = (1..=count).map(|ms| StreamId::new(ms, 0)).collect();
    list.push_run(&ids, ConsumerHandle(0), START_MS);
    list.check().expect("sound");
    list
}

fn ready_at_ms(row: &PendingEntry, rule: &ReadyRule) -> u64 {
    rule.ready_at_ms(row.id, row.delivered_at_ms, row.deliveries)
}

/// Claims rows as a read does, and returns how many chunks the search examined.
fn claim_ready(list: &mut PendingList, now_ms: u64, wanted: usize) -> usize {
    let (rows, examined) = longest_ready(list, now_ms, &RULE, wanted);
    assert_eq!(rows.len(), wanted);
    for row in rows {
        list.set(PendingEntry { delivered_at_ms: now_ms, deliveries: row.deliveries + 1, ..row });
    }
    list.check().expect("sound");
    examined
}

#[test]
fn searches_examine_few_chunks_while_rows_are_in_back_off() {
    let count = 100_000;
    let mut list = delivered(count);
    let chunks = (count as usize).div_ceil(ROWS_MAX);
    let after_lease_ms = START_MS + LEASE_MS;
    // No lease is over: the delivery times suffice.
    assert_eq!(longest_ready(&list, after_lease_ms - 1, &RULE, 1), (vec![], 0));
    // The first search learns when the chunks have something ready.
    assert_eq!(longest_ready(&list, after_lease_ms, &RULE, 1), (vec![], chunks - 1));
    assert_eq!(longest_ready(&list, after_lease_ms, &RULE, 1), (vec![], 0));
    assert_eq!(longest_ready(&list, START_MS + WAIT_MS - 1, &RULE, 100), (vec![], 0));

    // Some rows become ready, in arbitrary chunks. A search examines those that have the first ones, those from which
    // the search before it took rows, and the tail.
    let now_ms = START_MS + WAIT_MS + WAIT_MS / 100;
    // The first search after the shortest wait looks at the rows of all chunks.
    assert!(longest_ready(&list, now_ms, &RULE, 100).1 >= chunks);
    let mut taken_before = 0;
    for wanted in [1, 1, 1, 10, 10, 1, 100, 1, 1].into_iter().cycle().take(50) {
        let examined = claim_ready(&mut list, now_ms, wanted);
        assert!(examined <= taken_before + wanted + 2, "{examined} after {taken_before}, for {wanted}");
        taken_before = wanted;
    }
    // Released and acknowledged rows do not make searches slower.
    for ms in 1..1000 {
        list.release(StreamId::new(ms, 0), 2, now_ms + WAIT_MS);
        list.remove(StreamId::new(ms + 50_000, 0));
    }
    assert!(longest_ready(&list, now_ms, &RULE, 1).1 <= 12);
    assert!(longest_ready(&list, now_ms, &RULE, 1).1 <= 3);
    // A row that is claimed without a change of its count is ready later than the minimum of its chunk says.
    let row = longest_ready(&list, now_ms, &RULE, 1).0[0];
    list.set(PendingEntry { delivered_at_ms: now_ms, ..row });
    assert!(!longest_ready(&list, now_ms, &RULE, 1).0.contains(&row));
    list.check().expect("sound");
}

#[test]
fn rows_at_the_delivery_limit_are_not_examined_again() {
    let mut list = delivered(100_000);
    let rule = ReadyRule { max_deliveries: 1, backoff: Backoff::default(), ..RULE };
    assert_eq!(longest_ready(&list, u64::MAX - 1, &rule, 1).0, []);
    assert_eq!(longest_ready(&list, u64::MAX - 1, &rule, 1), (vec![], 0));
    assert_eq!(list.next_ready_ms(&rule, 0, u64::MAX), None);
    // A count that is set lower makes the row ready again.
    let row = PendingEntry { deliveries: 0, ..row(500, 0, 0, START_MS) };
    list.set(row);
    assert_eq!(list.next_ready_ms(&rule, START_MS, u64::MAX), Some(START_MS + LEASE_MS));
    let (found, examined) = longest_ready(&list, START_MS + LEASE_MS, &rule, 2);
    assert_eq!((found, examined <= 3), (vec![row], true));
}

#[test]
fn search_with_another_rule_begins_anew_and_copies_do_not_disturb_each_other() {
    let list = delivered(20_000);
    let copy = list.clone();
    let short = ReadyRule { backoff: Backoff { first_ms: 200, longest_ms: 200 }, ..RULE };
    for now_ms in [START_MS + LEASE_MS, START_MS + 210, START_MS + WAIT_MS, START_MS + 2 * WAIT_MS] {
        for (list, rule) in [(&list, &RULE), (&copy, &short)] {
            let mut expected = walked(list, StreamId::MIN, Filter::default());
            expected.retain(|row| ready_at_ms(row, rule) <= now_ms);
            expected.sort_by_key(|row| (ready_at_ms(row, rule), row.id));
            assert_eq!(longest_ready(list, now_ms, rule, usize::MAX).0, expected);
            list.check().expect("sound");
        }
    }
    let searched = list.memory_bytes();
    list.forget_ready();
    assert!(list.memory_bytes() < searched, "only a search by ready time makes minima");
}

/// Plants a mistake: a claim that does not update the minima.
#[test]
fn minima_that_a_claim_has_not_updated_are_noticed() {
    let mut list = delivered(20_000);
    let now_ms = START_MS + LEASE_MS;
    for _ in 0..2 {
        assert_eq!(longest_ready(&list, now_ms, &RULE, 1).0, []);
    }
    let copy = list.clone();
    // A row gets an older delivery time (XCLAIM TIME), so it is ready.
    let row = row(500, 0, 1, START_MS - 2 * WAIT_MS);
    list.set(row);
    assert_eq!(longest_ready(&list, now_ms, &RULE, 1).0, [row]);
    list.pages.iter().zip(copy.pages.iter()).for_each(|(page, before)| page.plant_minima_of(before));
    assert_eq!(longest_ready(&list, now_ms, &RULE, 1).0, [], "the search must depend on the minima");
    assert!(list.check().is_err_and(|what| what.contains("the minimum is")));
}
