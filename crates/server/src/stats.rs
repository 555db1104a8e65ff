//! Counters for INFO: commands, bytes, errors.
//!
//! Each thread has its own counters, so counting costs a load and a store. INFO adds up all threads. CONFIG
//! RESETSTAT does not clear these counters: it stores the current sums as a baseline, which is subtracted from later
//! sums.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of error kinds with a count of their own. Further kinds are counted only in the total.
const ERROR_KINDS_MAX: usize = 128;
/// Rates are averages over this many sampling intervals.
const RATE_SAMPLES: usize = 16;

/// A counter that one thread increases and all threads can read.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call this, so no atomic read-modify-write is needed.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct ThreadStats {
    /// By index of the command in the table.
    pub(crate) commands: Box<[CommandCounters]>,
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
}

/// The counters of one command on one thread. For the fields see [`CommandTotals`].
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandTotals {
    pub(crate) calls: u64,
    pub(crate) nanos: u64,
    /// Number of calls rejected before the command ran, for example for a wrong number of arguments.
    pub(crate) rejected: u64,
    /// Number of calls that ran and replied with an error.
    pub(crate) failed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// By index of the command in the table.
    pub(crate) commands: Vec<CommandTotals>,
    pub(crate) processed: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    events: [u64; Event::COUNT],
    pub(crate) expired_keys: u64,
}

/// Rare events, for which all threads share a counter.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Connection,
    /// A connection was rejected because `maxclients` were connected.
    RejectedConnection,
    Error,
    /// A connection was closed because its unfinished request and the commands it has queued exceeded a limit.
    QueryLimitClose,
    /// A connection was closed because a reply exceeded `client-output-buffer-limit`.
    OutputLimitClose,
    /// A client sent a wrong password or an unknown user.
    AuthFailure,
    /// A command was refused because memory is full.
    OutOfMemory,
    /// A connection was closed because all clients together used more memory than `maxmemory-clients`.
    EvictedClient,
    FailedLoginsClose,
    /// A connection was closed because the client did not log in in time.
    LoginTimeoutClose,
    /// A user sent a command that it may not run.
    DeniedCommand,
    /// A user sent a command on a key that it may not access.
    DeniedKey,
}

impl Event {
    const COUNT: usize = Event::DeniedKey as usize + 1;
}

pub(crate) struct Stats {
    threads: Box<[Arc<ThreadStats>]>,
    events: [AtomicU64; Event::COUNT],
    /// The store's counter.
    expired_keys: Arc<AtomicU64>,
    /// The number of error replies by the first word of the error.
    error_kinds: Mutex<BTreeMap<String, u64>>,
    /// The sums at the last [`Stats::reset`].
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
        self.note_many(event, 1);
    }

    pub(crate) fn note_many(&self, event: Event, count: u64) {
        self.events[event as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count_of(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// Counts an error reply whose first word is `code`.
    pub(crate) fn note_error(&self, code: &[u8]) {
        self.note(Event::Error);
        if code == b"OOM" {
            self.note(Event::OutOfMemory);
        }
        let kind = String::from_utf8_lossy(code);
        let mut kinds = self.error_kinds.lock();
        if let Some(count) = kinds.get_mut(&*kind) {
            *count += 1;
        } else if kinds.len() < ERROR_KINDS_MAX {
            kinds.insert(kind.into_owned(), 1);
        }
    }

    /// Returns the number of error replies by the first word of the error.
    pub(crate) fn error_kinds(&self) -> Vec<(String, u64)> {
        self.error_kinds.lock().iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// Returns the sums since the start or the last [`Stats::reset`].
    pub(crate) fn totals(&self) -> Totals {
        self.sum().since(&self.baseline.lock())
    }

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

    /// Takes a sample for the rates. The timekeeper calls this.
    pub(crate) fn sample(&self, now: Instant) {
        let sum = self.sum();
        self.rates.lock().sample(now, [sum.processed, sum.input_bytes, sum.output_bytes]);
    }

    /// Returns commands, bytes received and bytes sent per second, averaged over the last samples.
    pub(crate) fn rates_per_second(&self) -> [u64; 3] {
        self.rates.lock().per_second()
    }
}

impl Totals {
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

/// Recent samples of three counters, oldest first.
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
    fn totals_add_up_threads_and_reset_sets_them_to_zero() {
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
    fn errors_are_counted_by_first_word_up_to_a_number_of_kinds() {
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
