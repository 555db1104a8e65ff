//! Policies against a naive model, on a store with a log and a clock that is moved by hand.
//!
//! Each seed is a history: random commands on a few streams, and steps of the clock around the moments that matter.
//! After every step, the replies and the whole state must be those of the model ([`naive`]). What the timekeeper does
//! must be what the policies say, neither early nor late ([`duties`]). The log, a snapshot and a restart must give the
//! same state.
//!
//! A failure prints its seed, which determines the history, and the last steps. `MILLSTREAM_POLICY_SEEDS=n` runs seeds
//! 1 to n, `MILLSTREAM_POLICY_SEEDS=m-n` those from m to n.

mod duties;
pub(crate) mod mistakes;
mod naive;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_engine::Refusal;
use parking_lot::Mutex;

use crate::Store;
use crate::clock::{Clock, ManualClock};
use crate::codec::generate::CodecRandom;
use crate::disk::SimDisk;
use crate::dump::dump;
use crate::journal::Journal;
use crate::log::{LogOptions, Policy as SyncPolicy};
use crate::sim_tests::planted::MistakenDisk;
use crate::store::StoreOptions;
use crate::txn::{Origin, Txn};
use mistakes::Mistake;
use naive::{NaiveStream, Place, Reading, Shown};

/// Number of seeds in a normal test run.
const SEEDS: u64 = 40;
const STEPS: usize = 120;
const DATABASES: u32 = 2;
const START_MS: u64 = 1_000_000;
/// Number of entries per block. MAXLEN removes whole blocks.
const BLOCK_ENTRIES: u64 = 3;

/// The streams that commands use.
const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];
/// A dead-letter stream that is sometimes a string.
const LATE: &[u8] = b"late";
const ALL_KEYS: [&[u8]; 7] = [b"a", b"b", b"c", LATE, b"{a}:dlq", b"{b}:dlq", b"{c}:dlq"];
const GROUPS: [&[u8]; 2] = [b"g", b"h"];
const CONSUMERS: [&[u8]; 3] = [b"x", b"y", b"z"];

#[derive(Clone, Debug, Default, PartialEq)]
struct NaiveKey {
    stream: NaiveStream,
    expires_at_ms: Option<u64>,
}

/// A blocked reader. It wants one entry.
struct Waiter {
    number: u64,
    place: Place,
    group: &'static [u8],
    consumer: &'static [u8],
}

/// What blocked readers got.
type Served = Vec<(u64, Result<Shown, Refusal>)>;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    promoted: usize,
    dead_lettered: usize,
    served: usize,
    trimmed: usize,
    consumers_removed: usize,
}

/// A history: the store, its model, and what drives both.
struct History {
    seed: u64,
    mistake: Option<Mistake>,
    random: CodecRandom,
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    opened_at_ms: u64,
    keys: BTreeMap<Place, NaiveKey>,
    strings: BTreeSet<Place>,
    /// Blocked readers in the order in which they came.
    waiters: Vec<Waiter>,
    waiter_number: u64,
    served: Arc<Mutex<Served>>,
    /// Whether streams have limits of retention. Readers do not block then, because the order in which the timekeeper
    /// serves them and removes entries is not part of the model.
    has_retention: bool,
    payload: u64,
    counts: Counts,
    steps: VecDeque<String>,
}

impl History {
    fn new(seed: u64, mistake: Option<Mistake>) -> History {
        let (disk, clock) = (SimDisk::new(seed), Arc::new(ManualClock::new(START_MS)));
        let store = open(&disk, &clock);
        History {
            seed,
            mistake,
            random: CodecRandom::new(seed),
            disk,
            store,
            clock,
            opened_at_ms: START_MS,
            keys: BTreeMap::new(),
            strings: BTreeSet::new(),
            waiters: Vec::new(),
            waiter_number: 0,
            served: Arc::default(),
            has_retention: seed.is_multiple_of(3),
            payload: 0,
            counts: Counts::default(),
            steps: VecDeque::new(),
        }
    }

    fn run(mut self) -> Counts {
        for _ in 0..STEPS {
            self.move_clock();
            self.command();
            self.after_command();
            self.compare();
            if self.one_in(2) {
                self.tick();
            }
            self.replay();
            self.compare();
        }
        self.counts
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize]
    }

    fn note(&mut self, step: String) {
        if self.steps.len() == 16 {
            self.steps.pop_front();
        }
        self.steps.push_back(format!("{} {step}", self.now_ms()));
    }

    fn txn(&self, place: &Place) -> Txn<'_> {
        self.store.lock(place.0, [&place.1[..]], self.now_ms())
    }

    /// Moves the clock, often to just before, at or after a moment that matters, and lets the timekeeper work.
    fn move_clock(&mut self) {
        let by_ms = match self.random.below(8) {
            0..3 => return,
            3..6 => {
                let moments = self.moments();
                if moments.is_empty() {
                    return;
                }
                let at_ms = self.pick(&moments) + self.random.below(3);
                at_ms.saturating_sub(1 + self.now_ms())
            }
            6 => 1 + self.random.below(9),
            _ => self.pick(&[20, 100, 500, 1001, 3000]),
        };
        if by_ms > 0 {
            self.clock.advance(by_ms);
            self.note(format!("clock +{by_ms}"));
            self.tick();
            self.compare();
        }
    }

    /// Compares the state with the model, and checks what must always hold.
    fn compare(&self) {
        let real = self.real();
        for (place, key) in &real {
            assert_eq!(Some(key), self.keys.get(place), "{}: the product and the model differ", show(place));
        }
        assert_eq!(real.len(), self.keys.len(), "{:?} and {:?}", real.keys(), self.keys.keys());
        for shard in (0..self.store.shard_count()).map(|number| self.store.shard(number).lock()) {
            shard.keys.check().unwrap();
        }
        self.check_schedule();
    }

    fn real(&self) -> BTreeMap<Place, NaiveKey> {
        let mut txn = Txn::of_all_shards(&self.store, Origin::Client, 0, self.now_ms());
        let mut found = BTreeMap::new();
        for db in 0..DATABASES {
            txn.select(db);
            for key in ALL_KEYS {
                if let Ok(Some(stream)) = txn.stream(key) {
                    let expires_at_ms = txn.expires_at_ms(key).flatten();
                    let stream = NaiveStream::of(stream);
                    found.insert((db, key.to_vec()), NaiveKey { stream, expires_at_ms });
                }
            }
        }
        found
    }

    /// Now and then reloads the data, takes a snapshot or restarts the store. The state must stay the same.
    fn replay(&mut self) {
        let choice = self.random.below(30);
        if choice > 4 {
            return;
        }
        let before = dump(&self.store);
        match choice {
            0..3 if !self.retries() => {
                self.note("reload".into());
                self.store.reload().unwrap();
                self.groups_mut().for_each(|group| group.notes.forgotten = group.consumers.clone());
            }
            3 => {
                self.note("snapshot".into());
                self.store.take_snapshot().unwrap();
            }
            4 => {
                self.note("restart".into());
                self.restart();
            }
            _ => {}
        }
        assert_eq!(dump(&self.store), before, "another state after {:?}", self.steps.back());
    }

    fn restart(&mut self) {
        let now_ms = self.now_ms();
        self.store.close().unwrap();
        self.disk.restart();
        // A clock that is behind: the time of the last record counts, and no time in the future.
        self.store = open(&self.disk, &self.clock);
        self.after_open();
        assert_eq!(self.now_ms(), now_ms, "recovery moved the clock");
        self.opened_at_ms = now_ms;
        self.waiters.clear();
        self.groups_mut().for_each(|group| group.notes.retry_at_ms = 0);
    }

    fn groups_mut(&mut self) -> impl Iterator<Item = &mut naive::NaiveGroup> {
        self.keys.values_mut().flat_map(|key| key.stream.groups.values_mut())
    }

    fn retries(&self) -> bool {
        let mut groups = self.keys.values().flat_map(|key| key.stream.groups.values());
        groups.any(|group| group.notes.retry_at_ms > self.now_ms())
    }

    /// Gives blocked readers of the model what they can have, first come, first served, and compares with the product.
    fn check_served(&mut self) {
        let now_ms = self.now_ms();
        let mut expected = Served::new();
        let mut blocked_queues = BTreeSet::new();
        let mut still = Vec::new();
        for waiter in std::mem::take(&mut self.waiters) {
            let queue = (waiter.place.clone(), waiter.group);
            let found = match self.keys.get_mut(&waiter.place) {
                _ if blocked_queues.contains(&queue) => None,
                Some(key) if key.stream.groups.contains_key(waiter.group) => {
                    let before = key.stream.groups[waiter.group].clone();
                    let shown = key.stream.read(waiter.group, waiter.consumer, Reading::Plain, 1, now_ms);
                    if shown.is_empty() {
                        // The reader is not run if there is nothing for it.
                        key.stream.groups.insert(waiter.group.to_vec(), before);
                    }
                    (!shown.is_empty()).then_some(Ok(shown))
                }
                _ if self.strings.contains(&waiter.place) => Some(Err(Refusal::WrongType)),
                _ => Some(Err(Refusal::NoGroup)),
            };
            match found {
                Some(result) => expected.push((waiter.number, result)),
                None => {
                    blocked_queues.insert(queue);
                    still.push(waiter);
                }
            }
        }
        self.waiters = still;
        self.counts.served += expected.iter().filter(|(_, result)| result.is_ok()).count();
        let mut served = std::mem::take(&mut *self.served.lock());
        served.sort_unstable_by_key(|(number, _)| *number);
        assert_eq!(served, expected, "blocked readers got something else");
    }
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() && self.mistake.is_none() {
            let steps: Vec<&str> = self.steps.iter().map(String::as_str).collect();
            println!("seed {}, last steps:\n  {}", self.seed, steps.join("\n  "));
        }
    }
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Store> {
    let disk = MistakenDisk::over(disk, None, Arc::clone(clock) as _);
    let options = StoreOptions { databases: DATABASES, shards: 3, seed: 7, clock: Arc::clone(clock) as _ };
    let mut salt = 0;
    let log = LogOptions {
        policy: SyncPolicy::Never,
        ..LogOptions::new(move || {
            salt += 1;
            salt
        })
    };
    let opened = Store::open_with(disk, options, log, &mut |_| {}, Journal::without_syncing_thread);
    let store = opened.expect("a good disk").0;
    store.settings().stream_node_max_entries.store(BLOCK_ENTRIES, Ordering::Relaxed);
    Arc::new(store)
}

fn show(place: &Place) -> String {
    format!("{} {}", place.0, place.1.escape_ascii())
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let text = std::env::var("MILLSTREAM_POLICY_SEEDS").unwrap_or_default();
    let (first, last) = text.split_once('-').unwrap_or(("1", &text));
    first.parse().unwrap_or(1)..=last.parse().unwrap_or(SEEDS)
}

#[test]
fn histories_with_policies_equal_those_of_a_naive_model() {
    let (mut all, seeds) = (Counts::default(), seeds());
    for seed in seeds.clone() {
        let counts = History::new(seed, None).run();
        all.promoted += counts.promoted;
        all.dead_lettered += counts.dead_lettered;
        all.served += counts.served;
        all.trimmed += counts.trimmed;
        all.consumers_removed += counts.consumers_removed;
    }
    println!("seeds {} to {}: {all:?}", seeds.start(), seeds.end());
    if seeds.contains(&SEEDS) {
        // Histories in which nothing happens would find nothing.
        let few = SEEDS as usize;
        assert!(all.promoted > few && all.dead_lettered > few && all.served > few / 2, "{all:?}");
    }
}
