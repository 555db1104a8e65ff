//! Measures what a plain read costs in a group in which many pending entries cannot be delivered again yet.
//!
//! `cargo run --release -p millstream-engine --example reads_in_back_off [entries]`, 500,000 by default.

use std::time::{Duration, Instant};

use millstream_engine::policy::{Backoff, Policy};
use millstream_engine::stream::{EntryRef, PriorDelivery};
use millstream_engine::{BlockLimits, Stream, StreamEffect, StreamId};

const GROUP: &[u8] = b"group";
const LEASE_MS: u64 = 100;
const START_MS: u64 = 1_790_000_000_000;
const READS: u32 = 100;

fn main() {
    let entries = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500_000u64);
    let lease = Policy { lease_ms: Some(LEASE_MS), ..Policy::default() };
    let waits = Backoff { first_ms: 600_000, longest_ms: 600_000 };
    let back_off = Policy { backoff: Some(waits), ..lease.clone() };
    let limit = Policy { max_deliveries: Some(1), ..lease.clone() };
    let after_lease_ms = START_MS + LEASE_MS;
    measure(&stream(entries, &lease), "no lease is over", after_lease_ms - 1);
    measure(&stream(entries, &back_off), "in back-off", after_lease_ms);
    measure(&stream(entries, &back_off), "first back-offs over", START_MS + 600_000);
    measure(&stream(entries, &limit), "at the delivery limit", after_lease_ms);
    let mut released = stream(entries, &limit);
    release_all(&mut released);
    measure(&released, "at the delivery limit and released", after_lease_ms);
}

/// Measures reads at `now_ms` that find nothing or few entries, after all entries were delivered at [`START_MS`].
fn measure(stream: &Stream, state: &str, now_ms: u64) {
    let Some((group, rules)) = stream.group(GROUP).and_then(|group| Some((group, group.rules()?))) else {
        return;
    };
    let read = || {
        let began = Instant::now();
        let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
        stream.visit_ready(group, rules, Some(10), now_ms, &mut ignore);
        began.elapsed()
    };
    let first = read();
    let others = (0..READS).map(|_| read()).sum::<Duration>() / READS;
    let began = Instant::now();
    for _ in 0..READS {
        stream.next_ready_ms(group, rules, now_ms);
    }
    println!(
        "{} pending entries, {state}: the first read takes {:.0} us, each further one {:.2} us; a blocked reader's \
         next time {:.2} us",
        group.pending().len(),
        micros(first),
        micros(others),
        micros(began.elapsed() / READS)
    );
}

fn stream(entries: u64, policy: &Policy) -> Stream {
    let (mut stream, limits) = (Stream::new(), BlockLimits::default());
    let last_id = StreamId::MIN;
    stream.apply(&StreamEffect::SetPolicy { policy, owner: None }, limits);
    stream.apply(&StreamEffect::GroupCreate { group: GROUP, last_id, entries_read: None }, limits);
    for number in 1..=entries {
        stream.append(StreamId::new(START_MS, number), &[b"data", b"x"], limits);
    }
    let (last, count) = (StreamId::new(START_MS, entries), entries);
    let deliver =
        StreamEffect::Deliver { group: GROUP, consumer: b"c", last, count, at_ms: START_MS, pending: true };
    stream.apply(&deliver, limits);
    stream
}

fn release_all(stream: &mut Stream) {
    let Some(group) = stream.group(GROUP) else { return };
    let rows = group.query_owned(b"c", StreamId::MIN, usize::MAX);
    stream.apply(&StreamEffect::Release { group: GROUP, rows: &rows }, BlockLimits::default());
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
