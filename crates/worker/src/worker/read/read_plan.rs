//! Decides which streams of a pattern to read next, so that many streams share the slots of a worker.
//!
//! Most streams are empty most of the time, and some have a backlog. There are two kinds of reads:
//!
//! * A *search* names many streams and takes few messages of each. If no stream has a backlog, it blocks until a
//!   message arrives. While other streams have a backlog, a search of all streams runs from time to time, so that a new
//!   message of a quiet stream waits for a fraction of a second.
//! * A read of *busy* streams, those whose last read found messages, takes turns. All of them get the same share.
//!
//! A store may be unable to limit the messages of all streams together. So a search names no more streams than will
//! probably return the wanted number of messages. Each search without messages doubles the number of streams.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of streams that one read names.
pub(crate) const STREAMS_PER_READ: usize = 4096;
/// While streams are busy, all others are searched at least once in this time for each stream.
const SEARCH_TIME_PER_STREAM: Duration = Duration::from_micros(200);
/// The shortest and the longest time between two searches of all streams while streams are busy.
const SEARCH_TIMES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// Pause between two reads that name all streams, for each stream. Naming a stream costs the store some microseconds.
const PAUSE_PER_STREAM: Duration = Duration::from_micros(20);

/// The streams of a pattern, and what the last reads found.
#[derive(Debug)]
pub(crate) struct ReadPlan {
    streams: Vec<Arc<str>>,
    /// Streams whose last read found messages, in the order in which they are read next.
    busy: VecDeque<Arc<str>>,
    is_busy: HashSet<Arc<str>>,
    /// Where the next search begins.
    position: usize,
    /// Number of streams that were searched since the last complete search.
    searched: usize,
    /// When the current search of all streams began.
    search_began: Instant,
    /// When a search of all streams is due although streams are busy.
    search_due: Instant,
    /// Share of searched streams that had messages, as last measured.
    density: f64,
}

#[derive(Debug, PartialEq)]
pub(crate) struct PlannedRead {
    pub(crate) streams: Vec<Arc<str>>,
    /// Maximum number of messages of each stream.
    pub(crate) count: usize,
    /// Whether to wait for a message, because no stream is known to have one.
    pub(crate) block: bool,
    /// Share of all streams that the read names.
    pub(crate) share: f64,
    /// When to send the read.
    pub(crate) not_before: Instant,
    is_search: bool,
}

impl ReadPlan {
    pub(crate) fn new(now: Instant) -> ReadPlan {
        ReadPlan {
            streams: Vec::new(),
            busy: VecDeque::new(),
            is_busy: HashSet::new(),
            position: 0,
            searched: 0,
            search_began: now,
            search_due: now,
            density: 1.0,
        }
    }

    pub(crate) fn set_streams(&mut self, streams: Vec<Arc<str>>) {
        let current: HashSet<&Arc<str>> = streams.iter().collect();
        self.busy.retain(|stream| current.contains(stream));
        self.is_busy.retain(|stream| current.contains(stream));
        self.streams = streams;
        self.searched = 0;
    }

    /// Returns the next read, for about `room` messages. `None` if there are no streams.
    pub(crate) fn next(&mut self, room: usize, now: Instant) -> Option<PlannedRead> {
        if self.streams.is_empty() {
            return None;
        }
        if self.busy.is_empty() || now >= self.search_due {
            return Some(self.search(room, now));
        }
        let count = self.busy.len().min(room).min(STREAMS_PER_READ);
        let streams: Vec<Arc<str>> = self.busy.drain(..count).collect();
        for stream in &streams {
            self.is_busy.remove(stream);
        }
        let count = (room / streams.len()).max(1);
        let share = streams.len() as f64 / self.streams.len() as f64;
        Some(PlannedRead { streams, count, block: false, share, not_before: now, is_search: false })
    }

    fn search(&mut self, room: usize, now: Instant) -> PlannedRead {
        let all = self.streams.len();
        let likely = (room as f64 / self.density.max(1.0 / all as f64)) as usize;
        let size = likely.max(room).min(all).min(STREAMS_PER_READ);
        self.position %= all;
        let streams = self.streams.iter().cycle().skip(self.position).take(size).cloned().collect();
        if self.searched == 0 {
            self.search_began = now;
        }
        // A search in several parts blocks only if it is divided because of the number of streams.
        let block = self.busy.is_empty() && size == all.min(STREAMS_PER_READ);
        let not_before = if block { self.search_due_after(PAUSE_PER_STREAM, size) } else { now };
        let (count, share) = ((room / size).max(1), size as f64 / all as f64);
        PlannedRead { streams, count, block, share, not_before, is_search: true }
    }

    fn search_due_after(&self, pause: Duration, streams: usize) -> Instant {
        self.search_began + pause.saturating_mul(u32::try_from(streams).unwrap_or(u32::MAX))
    }

    /// Records what a read has found: the index of each stream with messages and their number. `max` is the maximum of
    /// all messages together.
    pub(crate) fn record(&mut self, read: &PlannedRead, found: &[(usize, usize)], max: usize, now: Instant) {
        for (stream, count) in found {
            // A search takes few messages of a stream, so there may be more.
            if read.is_search || *count >= read.count {
                let name = &read.streams[*stream];
                if self.is_busy.insert(Arc::clone(name)) {
                    self.busy.push_back(Arc::clone(name));
                }
            }
        }
        if !read.is_search {
            return;
        }
        let total: usize = found.iter().map(|(_, count)| count).sum();
        let reached = match found.last() {
            // The store may have stopped at the maximum, before it came to the last streams.
            Some((last, _)) if total >= max => last + 1,
            _ => read.streams.len(),
        };
        let density = found.len() as f64 / reached as f64;
        self.density = density.max(self.density / 2.0);
        self.position = (self.position + reached) % self.streams.len().max(1);
        self.searched += reached;
        if self.searched >= self.streams.len() {
            self.searched = 0;
            let time = SEARCH_TIME_PER_STREAM
                .saturating_mul(u32::try_from(self.streams.len()).unwrap_or(u32::MAX))
                .clamp(SEARCH_TIMES.0, SEARCH_TIMES.1);
            self.search_due = now + time;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Streams with backlogs, and a worker that handles messages one after the other.
    struct ReadSimulation {
        plan: ReadPlan,
        names: Vec<Arc<str>>,
        backlogs: HashMap<Arc<str>, usize>,
        now: Instant,
        /// The greatest number of messages that one read returned.
        largest: usize,
        reads: usize,
    }

    impl ReadSimulation {
        fn new(streams: usize) -> ReadSimulation {
            let names: Vec<Arc<str>> = (0..streams).map(|n| format!("s:{n}").into()).collect();
            let now = Instant::now();
            let mut plan = ReadPlan::new(now);
            plan.set_streams(names.clone());
            ReadSimulation { plan, names, backlogs: HashMap::new(), now, largest: 0, reads: 0 }
        }

        /// Sends one read, as a store without a limit for all streams does. Returns the messages of each stream.
        fn read(&mut self, room: usize) -> Vec<(Arc<str>, usize)> {
            let read = self.plan.next(room, self.now).expect("there are streams");
            self.now = self.now.max(read.not_before);
            let mut found = Vec::new();
            for (at, stream) in read.streams.iter().enumerate() {
                let backlog = self.backlogs.entry(Arc::clone(stream)).or_default();
                let taken = read.count.min(*backlog);
                *backlog -= taken;
                if taken > 0 {
                    found.push((at, taken));
                }
            }
            if found.is_empty() && read.block {
                self.now += Duration::from_secs(1);
            }
            self.plan.record(&read, &found, room, self.now);
            self.reads += 1;
            self.largest = self.largest.max(found.iter().map(|(_, taken)| taken).sum());
            found.into_iter().map(|(at, taken)| (Arc::clone(&read.streams[at]), taken)).collect()
        }
    }

    #[test]
    fn a_flooded_stream_does_not_starve_a_quiet_one() {
        let mut simulation = ReadSimulation::new(1000);
        let (flooded, quiet) = (Arc::clone(&simulation.names[3]), Arc::clone(&simulation.names[777]));
        simulation.backlogs.insert(Arc::clone(&flooded), usize::MAX / 2);
        for _ in 0..100 {
            simulation.read(8);
            simulation.now += Duration::from_millis(10);
        }
        simulation.backlogs.insert(Arc::clone(&quiet), 5);
        let (began, mut others) = (simulation.now, 0);
        while simulation.backlogs[&quiet] > 0 {
            let read = simulation.read(8);
            others +=
                read.iter().filter(|(stream, _)| *stream == flooded).map(|(_, taken)| taken).sum::<usize>();
            simulation.now += Duration::from_millis(10);
        }
        assert!(simulation.now - began <= Duration::from_millis(400), "{:?}", simulation.now - began);
        assert!(others >= 8, "the flooded stream was starved instead");
    }

    #[test]
    fn streams_with_backlogs_get_equal_shares() {
        let mut simulation = ReadSimulation::new(300);
        for name in simulation.names.clone() {
            simulation.backlogs.insert(name, 1_000_000);
        }
        let mut taken: HashMap<Arc<str>, usize> = HashMap::new();
        for _ in 0..1500 {
            for (stream, count) in simulation.read(20) {
                *taken.entry(stream).or_default() += count;
            }
            simulation.now += Duration::from_millis(1);
        }
        let (least, most) = (taken.values().min().unwrap(), taken.values().max().unwrap());
        assert!(taken.len() == 300 && *least >= 60 && most - least <= 50, "{least}..{most}");
        assert!(simulation.largest <= 60, "{} messages in one read for 20", simulation.largest);
    }

    #[test]
    fn a_read_of_idle_streams_names_all_of_them_and_blocks() {
        let mut simulation = ReadSimulation::new(1000);
        for _ in 0..10 {
            assert_eq!(simulation.read(8), []);
        }
        let read = simulation.plan.next(8, simulation.now).unwrap();
        assert_eq!((read.streams.len(), read.count, read.block), (1000, 1, true));
        // A message wakes it. The stream is read again at once, and then all streams.
        simulation.plan.record(&read, &[(5, 1)], 8, simulation.now);
        let again = simulation.plan.next(8, simulation.now).unwrap();
        assert_eq!((again.streams.len(), again.count, again.block), (1, 8, false));
        simulation.plan.record(&again, &[], 8, simulation.now);
        let read = simulation.plan.next(8, simulation.now).unwrap();
        assert!(read.block && read.not_before > simulation.now, "searches of 1000 streams without a pause");
    }

    #[test]
    fn more_streams_than_one_read_can_name_are_searched_in_parts() {
        let mut simulation = ReadSimulation::new(STREAMS_PER_READ + 10);
        let last = Arc::clone(simulation.names.last().unwrap());
        simulation.backlogs.insert(Arc::clone(&last), 1);
        for _ in 0..20 {
            simulation.read(100);
        }
        assert_eq!(simulation.backlogs[&last], 0);
        let read = simulation.plan.next(100, simulation.now).unwrap();
        assert_eq!((read.streams.len(), read.block), (STREAMS_PER_READ, true));
    }

    #[test]
    fn a_store_that_stops_at_the_maximum_is_searched_on_from_there() {
        let mut simulation = ReadSimulation::new(100);
        simulation.plan.density = 0.0;
        let read = simulation.plan.next(4, simulation.now).unwrap();
        assert_eq!(read.streams.len(), 100);
        simulation.plan.record(&read, &[(0, 1), (1, 1), (2, 1), (9, 1)], 4, simulation.now);
        assert_eq!((simulation.plan.position, simulation.plan.searched), (10, 10));
    }

    #[test]
    fn streams_that_are_gone_are_not_read() {
        let mut simulation = ReadSimulation::new(3);
        for name in simulation.names.clone() {
            simulation.backlogs.insert(name, 100);
        }
        simulation.read(3);
        simulation.plan.set_streams(vec![Arc::clone(&simulation.names[1])]);
        for _ in 0..10 {
            assert_eq!(
                simulation.read(3).iter().filter(|(stream, _)| **stream != *simulation.names[1]).count(),
                0
            );
        }
        simulation.plan.set_streams(Vec::new());
        assert_eq!(simulation.plan.next(3, simulation.now), None);
    }
}
