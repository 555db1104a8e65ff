//! Memory of removed values can be used again, and the thread that removes a value does not wait for that.
//!
//! A test binary of its own, because it measures the whole process. (When memory returns to the system is up to the
//! allocator.)

use std::time::{Duration, Instant};

use millstream_engine::{Effect, Exactness, References, StringEffect, Trim, TrimBy, TrimLimit};
use millstream_store::verbs::{TrimStream, Verb, add};
use millstream_store::{Addition, ExpireIf, Store, StoreOptions, Txn};

const ENTRIES: u64 = 150_000;

fn fill(txn: &mut Txn<'_>, key: &[u8]) {
    let payload = [b'x'; 100];
    for _ in 0..ENTRIES {
        add(txn, key, &Addition::new(&[b"payload", &payload])).unwrap();
    }
}

fn resident_bytes() -> u64 {
    // smaps_rollup counts pages exactly; statm lags behind by some pages per processor.
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let resident = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fills a key, removes it with `remove`, and fills it again. Asserts that the second fill needs no additional
/// memory.
fn check_reuse_after(store: &Store, what: &str, remove: impl FnOnce(&mut Txn<'_>)) {
    let mut txn = store.lock_all(0, store.now_ms());
    fill(&mut txn, b"big");
    let full = resident_bytes();
    assert!(full > 15_000_000, "{what}: {ENTRIES} entries take only {full} bytes");
    remove(&mut txn);
    drop(txn);
    wait_until(what, || {
        store.expire_due(store.now_ms(), 10);
        store.unreclaimed() == 0
    });
    let mut txn = store.lock_all(0, store.now_ms());
    assert!(!txn.exists(b"big") || txn.memory_bytes(b"big").is_some_and(|bytes| bytes < 10_000), "{what}");
    txn.delete(b"big");
    fill(&mut txn, b"big");
    let again = resident_bytes();
    assert!(again < full + 4_000_000, "{what}: {full} bytes after the first fill, {again} after the second");
    txn.flush_all();
    drop(txn);
    wait_until(what, || store.unreclaimed() == 0);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_of_removed_values_is_used_again() {
    let store = Store::new(StoreOptions::default());
    check_reuse_after(&store, "deleted", |txn| assert!(txn.delete(b"big")));
    check_reuse_after(&store, "replaced by a string", |txn| {
        txn.apply(b"big", &Effect::String(StringEffect::Set { value: b"small", expires_at_ms: None }));
        assert_eq!(txn.get(b"big").map(|value| value.memory_bytes() < 1000), Some(true));
    });
    check_reuse_after(&store, "renamed over", |txn| {
        txn.apply(b"small", &Effect::String(StringEffect::Set { value: b"small", expires_at_ms: None }));
        assert_eq!(txn.rename(b"small", b"big", false), Ok(true));
    });
    check_reuse_after(&store, "trimmed", |txn| {
        let trim = Trim { by: TrimBy::MaxLen(5), exactness: Exactness::Exact, limit: TrimLimit::Unlimited };
        assert_eq!(TrimStream { key: "big", trim, references: References::Keep }.run(txn), Ok(ENTRIES - 5));
        assert_eq!(txn.stream(b"big").unwrap().unwrap().len(), 5);
        txn.stream(b"big").unwrap().unwrap().check().unwrap();
    });
    check_reuse_after(&store, "flushed", |txn| txn.flush_all());
    check_reuse_after(&store, "expired", |txn| {
        let at_ms = txn.now_ms() as i64 + 1;
        assert!(txn.expire_at(b"big", at_ms, ExpireIf::Always));
    });
}
