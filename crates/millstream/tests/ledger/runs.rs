//! The runs of each message, from the journal: every time that a handler started it, and how that ended.

use std::collections::{BTreeMap, HashMap, HashSet};

use millstream_worker::backend::StreamId;

use crate::journal::Line;

/// Exits of a process that got SIGTERM before it was ready. Without a signal handler, the signal ends it. With one, it
/// exits with the code that shells use for SIGTERM.
const ENDED_BY_TERM: [&str; 2] = ["signal-15", "code-143"];
/// Name of such an exit.
pub(crate) const STOPPED_AT_START: &str = "stopped at its start";

/// One run of a handler with a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub writer: String,
    pub pid: u32,
    /// Journal line at which it started.
    pub began: usize,
    /// Journal line at which it finished.
    pub done: Option<usize>,
    /// Whether the handler returned an outcome or panicked.
    pub answered: bool,
    /// Journal line at which the store acknowledged it.
    pub acked: Option<usize>,
    /// Whether the worker was about to acknowledge.
    pub acking: bool,
    /// Journal line at which the reply to an acknowledgement was lost.
    pub unacked: Option<usize>,
    /// Whether the store reported that another consumer owns it now.
    pub lost: bool,
    /// Age of its lease when it was done or acknowledged: an upper bound in milliseconds.
    pub lease_age_ms: u64,
}

/// Time of the last delivery or lease extension, by writer and message.
type LeaseTimes = HashMap<(String, StreamId), u64>;

/// All runs of a journal, and its other events.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub by_id: BTreeMap<StreamId, Vec<Run>>,
    /// Messages acknowledged by a worker whose handler had not finished them.
    pub acked_without_done: Vec<StreamId>,
    /// Messages that a worker requested and got after the store had acknowledged them.
    pub got_after_ack: Vec<StreamId>,
    /// Journal line of the end of each process that did not exit with 0.
    pub deaths: HashMap<u32, usize>,
    /// Number of processes by exit.
    pub ends: BTreeMap<String, u64>,
    /// Processes that the supervisor started.
    pub born: HashSet<u32>,
    /// Journal lines at which the server was killed.
    pub outages: Vec<usize>,
    /// Journal lines at which connections were disturbed.
    pub disturbances: Vec<usize>,
    /// Journal lines at which processes were stopped for a while.
    pub stops: Vec<usize>,
    /// Time of each line, in milliseconds.
    pub times: Vec<u64>,
}

impl Runs {
    /// Reads a journal.
    pub(crate) fn read(lines: &[Line]) -> Runs {
        let mut runs = Runs { times: lines.iter().map(|line| line.ms).collect(), ..Runs::default() };
        let mut lease_times = LeaseTimes::new();
        // Time of the first acknowledgement of each message.
        let mut acked_at: HashMap<StreamId, u64> = HashMap::new();
        let mut draining: HashSet<u64> = HashSet::new();
        for (at, line) in lines.iter().enumerate() {
            match &*line.event {
                "got" | "extended" => {
                    let requested_ms = line.number(0).unwrap_or(line.ms);
                    let was_acked_before =
                        |id: &StreamId| acked_at.get(id).is_some_and(|acked_at| *acked_at < requested_ms);
                    runs.got_after_ack.extend(line.ids().filter(was_acked_before));
                    lease_times.extend(line.ids().map(|id| ((line.writer.clone(), id), requested_ms)));
                }
                "begin" => {
                    let run = Run { writer: line.writer.clone(), pid: line.pid, began: at, ..Run::default() };
                    line.ids().for_each(|id| runs.by_id.entry(id).or_default().push(run.clone()));
                }
                "done" => {
                    for id in line.ids() {
                        runs.end_of(line, id, &lease_times, |run| {
                            (run.done, run.answered) = (Some(at), true)
                        });
                    }
                }
                "failed" => runs.of(line, |run| run.answered = true),
                // While a message is being acknowledged, its pending row may be missing because the store has applied
                // the acknowledgement.
                "lost" => runs.of(line, |run| run.lost |= !run.acking),
                "acking" => {
                    let undone = |id: &StreamId| runs.last(line, *id).is_none_or(|run| run.done.is_none());
                    let undone: Vec<StreamId> = line.ids().filter(undone).collect();
                    runs.acked_without_done.extend(undone);
                    runs.of(line, |run| run.acking = true);
                }
                "unacked" => runs.of(line, |run| run.unacked = Some(at)),
                "acked" => {
                    for id in line.ids() {
                        acked_at.entry(id).or_insert(line.ms);
                        runs.end_of(line, id, &lease_times, |run| run.acked = Some(at));
                    }
                }
                "born" => runs.born.extend(line.number(0).map(|pid| pid as u32)),
                "draining" => draining.extend(line.number(0)),
                "ended" => {
                    let mut exit = line.words.get(1).cloned().unwrap_or_default();
                    let was_draining = line.number(0).is_some_and(|pid| draining.contains(&pid));
                    if was_draining && ENDED_BY_TERM.contains(&&*exit) {
                        exit = STOPPED_AT_START.to_owned();
                    }
                    if exit != "code-0" {
                        runs.deaths.extend(line.number(0).map(|pid| (pid as u32, at)));
                    }
                    *runs.ends.entry(exit).or_default() += 1;
                }
                "server-killed" => runs.outages.push(at),
                "cut" | "cut-in-a-reply" | "half-open" | "stalled" => runs.disturbances.push(at),
                "frozen" => runs.stops.push(at),
                _ => {}
            }
        }
        runs
    }

    /// Returns the last run of a message by the writer of a line.
    fn last_mut(&mut self, line: &Line, id: StreamId) -> Option<&mut Run> {
        self.by_id.get_mut(&id)?.iter_mut().rev().find(|run| run.writer == line.writer)
    }

    fn last(&self, line: &Line, id: StreamId) -> Option<&Run> {
        self.by_id.get(&id)?.iter().rev().find(|run| run.writer == line.writer)
    }

    /// Applies a final step to a run, and updates the age of its lease.
    fn end_of(&mut self, line: &Line, id: StreamId, lease_times: &LeaseTimes, step: impl Fn(&mut Run)) {
        let since = lease_times.get(&(line.writer.clone(), id)).copied();
        if let Some(run) = self.last_mut(line, id) {
            step(run);
            run.lease_age_ms = since.map_or(run.lease_age_ms, |since| line.ms.saturating_sub(since));
        }
    }

    fn of(&mut self, line: &Line, change: impl Fn(&mut Run)) {
        for id in line.ids().collect::<Vec<_>>() {
            if let Some(run) = self.last_mut(line, id) {
                change(run);
            }
        }
    }
}
