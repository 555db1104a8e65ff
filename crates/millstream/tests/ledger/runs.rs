//! What the journal tells of each message: every time that a handler began with it, and how that ended.

use std::collections::{BTreeMap, HashMap, HashSet};

use millstream_worker::backend::StreamId;

use crate::journal::Line;

/// What a process ends with that is told to end, once, before it is at work: by the SIGTERM itself while it does not listen
/// yet, and later as shells tell of one.
const ENDED_BY_TERM: [&str; 2] = ["signal-15", "code-143"];
/// How such an end is called.
pub(crate) const TOLD_TO_END: &str = "told to end at its start";

/// One time that a handler began with a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub who: String,
    pub pid: u32,
    /// Places in the journal.
    pub began: usize,
    pub done: Option<usize>,
    pub acked: Option<usize>,
    /// The worker was about to acknowledge.
    pub acking: bool,
    /// The store's answer to an acknowledgement got lost.
    pub unacked: Option<usize>,
    /// The store said that it is somebody else's now.
    pub lost: bool,
    /// Its lease was not renewed for so long when it was done or acknowledged, at the most.
    pub held_ms: u64,
}

/// When each message was last surely in each worker's hands.
type Touched = HashMap<(String, StreamId), u64>;

/// The journal, sorted.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub by_id: BTreeMap<StreamId, Vec<Run>>,
    /// Messages that were acknowledged by a worker that had not done them.
    pub acked_undone: Vec<StreamId>,
    /// Messages that a worker asked for and got after the store had acknowledged them.
    pub got_after_ack: Vec<StreamId>,
    /// Where in the journal processes ended that did not end in order.
    pub deaths: HashMap<u32, usize>,
    /// How processes ended, and how often.
    pub ends: BTreeMap<String, u64>,
    /// Processes that were started.
    pub born: HashSet<u32>,
    /// Where in the journal the server was killed.
    pub outages: Vec<usize>,
    /// Where in the journal connections were disturbed.
    pub disturbances: Vec<usize>,
    /// Where in the journal processes were stopped for a while.
    pub stops: Vec<usize>,
    /// When each line was written.
    pub times: Vec<u64>,
}

impl Runs {
    /// Reads a journal.
    pub(crate) fn read(lines: &[Line]) -> Runs {
        let mut runs = Runs { times: lines.iter().map(|line| line.ms).collect(), ..Runs::default() };
        let mut touched = Touched::new();
        // When the store first said that a message is acknowledged.
        let mut over: HashMap<StreamId, u64> = HashMap::new();
        let mut told_to_end: HashSet<u64> = HashSet::new();
        for (at, line) in lines.iter().enumerate() {
            match &*line.what {
                "got" | "kept" => {
                    let asked = line.number(0).unwrap_or(line.ms);
                    let is_over = |id: &StreamId| over.get(id).is_some_and(|over| *over < asked);
                    runs.got_after_ack.extend(line.ids().filter(is_over));
                    touched.extend(line.ids().map(|id| ((line.who.clone(), id), asked)));
                }
                "begin" => {
                    let run = Run { who: line.who.clone(), pid: line.pid, began: at, ..Run::default() };
                    line.ids().for_each(|id| runs.by_id.entry(id).or_default().push(run.clone()));
                }
                "done" => {
                    for id in line.ids() {
                        runs.end_of(line, id, &touched, |run| run.done = Some(at));
                    }
                }
                // A row that is being acknowledged may be gone because it is.
                "lost" => runs.of(line, |run| run.lost |= !run.acking),
                "acking" => {
                    let undone = |id: &StreamId| runs.last(line, *id).is_none_or(|run| run.done.is_none());
                    let undone: Vec<StreamId> = line.ids().filter(undone).collect();
                    runs.acked_undone.extend(undone);
                    runs.of(line, |run| run.acking = true);
                }
                "unacked" => runs.of(line, |run| run.unacked = Some(at)),
                "acked" => {
                    for id in line.ids() {
                        over.entry(id).or_insert(line.ms);
                        runs.end_of(line, id, &touched, |run| run.acked = Some(at));
                    }
                }
                "born" => runs.born.extend(line.number(0).map(|pid| pid as u32)),
                "draining" => told_to_end.extend(line.number(0)),
                "ended" => {
                    let mut how = line.words.get(1).cloned().unwrap_or_default();
                    let was_told = line.number(0).is_some_and(|pid| told_to_end.contains(&pid));
                    if was_told && ENDED_BY_TERM.contains(&&*how) {
                        how = TOLD_TO_END.to_owned();
                    }
                    if how != "code-0" {
                        runs.deaths.extend(line.number(0).map(|pid| (pid as u32, at)));
                    }
                    *runs.ends.entry(how).or_default() += 1;
                }
                "server-killed" => runs.outages.push(at),
                "cut" | "cut-in-a-reply" | "half-open" | "stalled" => runs.disturbances.push(at),
                "frozen" => runs.stops.push(at),
                _ => {}
            }
        }
        runs
    }

    /// The last time that the writer of a line began with a message.
    fn last_mut(&mut self, line: &Line, id: StreamId) -> Option<&mut Run> {
        self.by_id.get_mut(&id)?.iter_mut().rev().find(|run| run.who == line.who)
    }

    fn last(&self, line: &Line, id: StreamId) -> Option<&Run> {
        self.by_id.get(&id)?.iter().rev().find(|run| run.who == line.who)
    }

    /// A step towards the end of a run, and how old its lease is there.
    fn end_of(&mut self, line: &Line, id: StreamId, touched: &Touched, step: impl Fn(&mut Run)) {
        let since = touched.get(&(line.who.clone(), id)).copied();
        if let Some(run) = self.last_mut(line, id) {
            step(run);
            run.held_ms = since.map_or(run.held_ms, |since| line.ms.saturating_sub(since));
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
