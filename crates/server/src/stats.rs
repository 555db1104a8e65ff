//! What the server has counted: commands, bytes, errors, for INFO.
//!
//! Each thread counts for itself, so counting costs a load and a store; whoever asks adds the threads up.
//! CONFIG RESETSTAT remembers what stood there, and later sums are taken from that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many kinds of errors are told apart; the rest only count in the total.
const ERROR_KINDS_MAX: usize = 128;
/// Rates are averages over this many samples.
const RATE_SAMPLES: usize = 16;

/// A number that one thread raises and any thread reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds, on the one thread that may. Not a locked instruction: nobody else writes.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Where it stands.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one thread has counted.
pub(crate) struct ThreadStats {
    /// By number of the command in the table.
    pub(crate) commands: Box<[CommandCounters]>,
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
}

#[derive(Default)]
pub(crate) struct CommandCounters {
    pub(crate) calls: Counter,
    pub(crate) nanos: Counter,
    pub(crate) rejected: Counter,
    pub(crate) failed: Counter,
}

impl ThreadStats {
    fn new(command_count: usize) -> ThreadStats {
        ThreadStats {
            commands: (0..command_count).map(|_| CommandCounters::default()).collect(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
        }
    }
}

/// What one command has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandTotals {
    /// How often it ran.
    pub(crate) calls: u64,
    /// How long it ran, all calls together.
    pub(crate) nanos: u64,
    /// How often it was refused before it ran: arguments, permissions.
    pub(crate) rejected: u64,
    /// How often it ran and answered with an error.
    pub(crate) failed: u64,
}

/// What all threads have counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// By number of the command in the table.
    pub(crate) commands: Vec<CommandTotals>,
    /// Commands run.
    pub(crate) processed: u64,
    /// Bytes received.
    pub(crate) input_bytes: u64,
    /// Bytes sent.
    pub(crate) output_bytes: u64,
    /// Times something was read from a client.
    pub(crate) reads: u64,
    /// Times something was written to a client.
    pub(crate) writes: u64,
    /// By [`Event`].
    events: [u64; Event::COUNT],
    /// Keys removed because their time had come.
    pub(crate) expired_keys: u64,
}

/// What is rare enough that all threads count it together.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// A connection was accepted.
    Connection,
    /// A connection was turned away because there were too many.
    RejectedConnection,
    /// An error was replied.
    Error,
    /// A client was closed because it sent too much without completing it.
    QueryLimitClose,
    /// A client was closed because a reply was too large.
    OutputLimitClose,
    /// A password was wrong.
    AuthFailure,
}

impl Event {
    const COUNT: usize = Event::AuthFailure as usize + 1;
}

/// Everything counted.
pub(crate) struct Stats {
    threads: Box<[Arc<ThreadStats>]>,
    events: [AtomicU64; Event::COUNT],
    /// The store's.
    expired_keys: Arc<AtomicU64>,
    error_kinds: Mutex<BTreeMap<String, u64>>,
    baseline: Mutex<Totals>,
    rates: Mutex<Rates>,
}

impl Stats {
    pub(crate) fn new(threads: usize, command_count: usize, expired_keys: Arc<AtomicU64>) -> Stats {
        Stats {
            threads: (0..threads).map(|_| Arc::new(ThreadStats::new(command_count))).collect(),
            events: Default::default(),
            expired_keys,
            error_kinds: Mutex::default(),
            baseline: Mutex::default(),
            rates: Mutex::default(),
        }
    }

    pub(crate) fn of_thread(&self, number: usize) -> &Arc<ThreadStats> {
        &self.threads[number]
    }

    pub(crate) fn note(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// An error reply was sent whose first word is `code`.
    pub(crate) fn note_error(&self, code: &[u8]) {
        self.note(Event::Error);
        let kind = String::from_utf8_lossy(code);
        let mut kinds = self.error_kinds.lock();
        if let Some(count) = kinds.get_mut(&*kind) {
            *count += 1;
        } else if kinds.len() < ERROR_KINDS_MAX {
            kinds.insert(kind.into_owned(), 1);
        }
    }

    /// Error replies by their first word.
    pub(crate) fn error_kinds(&self) -> Vec<(String, u64)> {
        self.error_kinds.lock().iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// The sums since the start or the last [`Stats::reset`].
    pub(crate) fn totals(&self) -> Totals {
        self.sum().since(&self.baseline.lock())
    }

    /// Begins all sums anew.
    pub(crate) fn reset(&self) {
        *self.baseline.lock() = self.sum();
        self.error_kinds.lock().clear();
    }

    fn sum(&self) -> Totals {
        let mut totals = Totals {
            events: self.events.each_ref().map(|count| count.load(Ordering::Relaxed)),
            expired_keys: self.expired_keys.load(Ordering::Relaxed),
            ..Totals::default()
        };
        for thread in &self.threads {
            totals.add(thread);
        }
        totals
    }

    /// Takes a sample for the rates: called by a timer.
    pub(crate) fn sample(&self, now: Instant) {
        let sum = self.sum();
        self.rates.lock().sample(now, [sum.processed, sum.input_bytes, sum.output_bytes]);
    }

    /// Commands, bytes received and bytes sent per second, over the last moments.
    pub(crate) fn rates_per_second(&self) -> [u64; 3] {
        self.rates.lock().per_second()
    }
}

impl Totals {
    /// How often this happened.
    pub(crate) fn of(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    fn add(&mut self, thread: &ThreadStats) {
        self.commands.resize(thread.commands.len(), CommandTotals::default());
        for (total, counters) in self.commands.iter_mut().zip(&thread.commands) {
            total.calls += counters.calls.get();
            total.nanos += counters.nanos.get();
            total.rejected += counters.rejected.get();
            total.failed += counters.failed.get();
            self.processed += counters.calls.get();
        }
        self.input_bytes += thread.input_bytes.get();
        self.output_bytes += thread.output_bytes.get();
        self.reads += thread.reads.get();
        self.writes += thread.writes.get();
    }

    fn since(mut self, earlier: &Totals) -> Totals {
        for (total, before) in self.commands.iter_mut().zip(&earlier.commands) {
            total.calls -= before.calls;
            total.nanos -= before.nanos;
            total.rejected -= before.rejected;
            total.failed -= before.failed;
        }
        self.processed -= earlier.processed;
        self.input_bytes -= earlier.input_bytes;
        self.output_bytes -= earlier.output_bytes;
        self.reads -= earlier.reads;
        self.writes -= earlier.writes;
        self.expired_keys -= earlier.expired_keys;
        for (count, before) in self.events.iter_mut().zip(earlier.events) {
            *count -= before;
        }
        self
    }
}

/// Recent samples of rising numbers, oldest first.
#[derive(Default)]
struct Rates {
    samples: VecDeque<(Instant, [u64; 3])>,
}

impl Rates {
    fn sample(&mut self, now: Instant, values: [u64; 3]) {
        if self.samples.len() > RATE_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, values));
    }

    fn per_second(&self) -> [u64; 3] {
        let (Some((from, first)), Some((to, last))) = (self.samples.front(), self.samples.back()) else {
            return [0; 3];
        };
        let millis = to.duration_since(*from).max(Duration::from_millis(1)).as_millis() as u64;
        std::array::from_fn(|i| (last[i] - first[i]) * 1000 / millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_added_up_and_reset_begins_anew() {
        let stats = Stats::new(2, 3, Arc::default());
        stats.of_thread(0).commands[1].calls.add(5);
        stats.of_thread(1).commands[1].calls.add(2);
        stats.of_thread(1).input_bytes.add(100);
        assert_eq!(stats.totals().commands[1].calls, 7);
        assert_eq!((stats.totals().processed, stats.totals().input_bytes), (7, 100));
        stats.reset();
        assert_eq!(stats.totals().processed, 0);
        stats.of_thread(0).commands[1].calls.add(1);
        assert_eq!(stats.totals().commands[1].calls, 1);
    }

    #[test]
    fn errors_count_by_their_first_word_and_kinds_are_bounded() {
        let stats = Stats::new(1, 0, Arc::default());
        stats.note_error(b"ERR");
        stats.note_error(b"ERR");
        stats.note_error(b"NOGROUP");
        assert_eq!(stats.error_kinds(), [("ERR".to_owned(), 2), ("NOGROUP".to_owned(), 1)]);
        for kind in 0..1000 {
            stats.note_error(format!("K{kind}").as_bytes());
        }
        assert_eq!(stats.error_kinds().len(), ERROR_KINDS_MAX);
        assert_eq!(stats.totals().of(Event::Error), 1003);
    }

    #[test]
    fn rates_are_per_second() {
        let mut rates = Rates::default();
        let start = Instant::now();
        assert_eq!(rates.per_second(), [0; 3]);
        for step in 0..100u64 {
            rates.sample(start + Duration::from_millis(100 * step), [step * 10, 0, step]);
        }
        assert_eq!(rates.per_second(), [100, 0, 10]);
        assert_eq!(rates.samples.len(), RATE_SAMPLES + 1);
    }
}
