//! Measures what delayed entries cost: memory and time per entry.
//!
//! `cargo run --release -p millstream-engine --example delayed_entries [entries]`, ten million by default.

use std::process::Command;
use std::time::{Duration, Instant};

use millstream_engine::stream::Promotion;
use millstream_engine::{BlockLimits, Stream, StreamEffect, StreamId};

const PAYLOAD_BYTES: usize = 60;
const START_MS: u64 = 1_790_000_000_000;

/// How the delays of entries are spread: a name, and the longest delay in milliseconds; 0: all delays are equal.
const ORDERS: [(&str, u64); 3] = [
    ("equal delays", 0),
    ("random delays up to an hour", 3_600_000),
    ("random delays up to 30 days", 2_592_000_000),
];

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let entries = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10_000_000u64);
    if let Some(&(order, spread_ms)) =
        arguments.next().and_then(|text| ORDERS.get(text.parse::<usize>().ok()?))
    {
        measure(entries, order, spread_ms);
        return Ok(());
    }
    // Each order in a process of its own, so that memory that another one has freed does not count.
    for number in 0..ORDERS.len() {
        Command::new(std::env::current_exe()?).args([entries.to_string(), number.to_string()]).status()?;
    }
    Ok(())
}

fn measure(entries: u64, order: &str, spread_ms: u64) {
    let (resident_before, payload, limits) =
        (resident_bytes(), [b'x'; PAYLOAD_BYTES], BlockLimits::default());
    let (mut stream, mut random) = (Stream::new(), 7u64);
    let began = Instant::now();
    for number in 1..=entries {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A hundred entries a millisecond.
        let at_ms = START_MS + number / 100;
        let delay_ms = if spread_ms == 0 { 60_000 } else { (random >> 20) % spread_ms };
        let ticket = StreamId::new(at_ms + delay_ms, number);
        stream.apply(&StreamEffect::Delay { ticket, fields: &[b"data", &payload], at_ms }, limits);
    }
    let inserted = began.elapsed();
    let resident = resident_bytes().saturating_sub(resident_before);
    let Some(delayed) = stream.delayed() else { return };
    let beyond = |bytes: usize| bytes as f64 / entries as f64 - PAYLOAD_BYTES as f64;
    let (counted, resident) = (beyond(delayed.memory_bytes()), beyond(resident));
    let began = Instant::now();
    let copy = stream.clone();
    let copied = began.elapsed();
    drop(copy);
    let began = Instant::now();
    while let Ok(Some(Promotion { through, count, first })) = stream.decide_promote(u64::MAX >> 1, 128) {
        stream.apply(&StreamEffect::Promote { through, count, first, at_ms: first.ms }, limits);
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / entries as f64;
    println!(
        "{entries} entries, {order}: {counted:.1} bytes each beyond their payload of {PAYLOAD_BYTES} (resident: \
         {resident:.1}); insert {:.2} us, promote {:.2} us each; a copy takes {} us",
        each(inserted),
        each(began.elapsed()),
        copied.as_micros()
    );
}

/// Returns the resident memory of this process; 0 if the system does not tell.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|number| number.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
