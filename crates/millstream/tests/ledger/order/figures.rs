//! How long partitions stood still, from the journal: after crashes, freezes and drains of their owners, and while the
//! cluster changed.
//!
//! A sample begins with the fault, and ends with the first handler of the next owner. It does not count if the next
//! owner was hit by a fault too, or if the cluster changed meanwhile.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::journal::Line;

/// For this long after a change of the cluster, in milliseconds, a pause of a partition counts as a part of it.
const AFTER_CHANGE_MS: u64 = 1_000;

/// Times in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, ms: u64) {
        let at = self.0.partition_point(|other| *other <= ms);
        self.0.insert(at, ms);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the median, the 95th percentile and the maximum. 0 if there are no times.
    pub(crate) fn summary(&self) -> (u64, u64, u64) {
        let share = |percent: usize| {
            let at = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
            self.0.get(at).copied().unwrap_or_default()
        };
        (share(50), share(95), share(100))
    }

    pub(crate) fn to_json(&self) -> Value {
        let (median, p95, max) = self.summary();
        json!({ "count": self.count(), "median": median, "p95": p95, "max": max })
    }
}

/// All figures of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// From a kill to the next owner's first handler.
    pub crash: Times,
    /// From a freeze to the next owner's first handler.
    pub freeze: Times,
    /// From SIGTERM to the next owner's first handler.
    pub drain: Times,
    /// The longest pause of each partition while slots moved, or a replica was promoted on request.
    pub silence: Times,
    /// The longest pause of each partition on a living node while the primary of another one was dead.
    pub failover_silence: Times,
    /// From the promotion of a replica to the first handler of each of its partitions.
    pub resumed: Times,
}

/// A fault of an owner whose stream nobody else works on yet.
struct Hit {
    pid: u32,
    ms: u64,
    event: &'static str,
    /// The process that has acquired the stream since.
    next: Option<u32>,
}

impl Figures {
    pub(crate) fn read(lines: &[Line]) -> Figures {
        let mut figures = Figures::default();
        figures.take_overs(lines);
        figures.pauses(lines);
        figures
    }

    fn take_overs(&mut self, lines: &[Line]) {
        let mut owners: HashMap<&str, u32> = HashMap::new();
        let mut hits: HashMap<&str, Hit> = HashMap::new();
        let mut is_changing = false;
        for line in lines {
            match (&*line.event, &*line.words) {
                ("killed" | "frozen" | "draining" | "dying", _) => {
                    let event = match &*line.event {
                        "frozen" => "freeze",
                        "draining" => "drain",
                        _ => "crash",
                    };
                    let pid = match &*line.event {
                        "dying" => line.pid,
                        _ => line.number(0).unwrap_or_default() as u32,
                    };
                    // The worker that the fault hit does not count as the next owner.
                    hits.retain(|_, hit| hit.pid != pid && hit.next != Some(pid));
                    for (stream, _) in owners.iter().filter(|(_, owner)| **owner == pid && !is_changing) {
                        hits.insert(stream, Hit { pid, ms: line.ms, event, next: None });
                    }
                }
                ("changing" | "faults-stopped", _) => {
                    hits.clear();
                    is_changing = true;
                }
                ("changed", _) => is_changing = false,
                ("acquired", [stream, _]) => {
                    owners.insert(stream, line.pid);
                    if let Some(hit) = hits.get_mut(&**stream) {
                        hit.next = (hit.pid != line.pid).then_some(line.pid);
                    }
                }
                ("begin", [_, _, stream, ..]) => {
                    if hits.get(&**stream).is_some_and(|hit| hit.next == Some(line.pid))
                        && let Some(hit) = hits.remove(&**stream)
                    {
                        let times = match hit.event {
                            "freeze" => &mut self.freeze,
                            "drain" => &mut self.drain,
                            _ => &mut self.crash,
                        };
                        times.add(line.ms.saturating_sub(hit.ms));
                    }
                }
                // The worker gave the stream up before the fault, or the process goes on.
                ("gave-up", [stream, _]) => {
                    let is_hit = hits.get(&**stream).is_some_and(|hit| hit.event != "drain");
                    if owners.get(&**stream) == Some(&line.pid) {
                        owners.remove(&**stream);
                    }
                    if is_hit {
                        hits.remove(&**stream);
                    }
                }
                ("thawed", _) => {
                    let pid = line.number(0).unwrap_or_default() as u32;
                    hits.retain(|_, hit| hit.pid != pid || hit.next.is_some());
                }
                _ => {}
            }
        }
    }

    /// Measures the pauses of partitions while the cluster changed and no process was hit by a fault.
    fn pauses(&mut self, lines: &[Line]) {
        let mut begins: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for line in lines {
            if let ("begin", [_, _, stream, ..]) = (&*line.event, &*line.words) {
                begins.entry(stream).or_default().push(line.ms);
            }
        }
        let mut from = None;
        let (mut dead, mut promoted): (Option<Vec<&str>>, Option<u64>) = (None, None);
        for line in lines {
            match (&*line.event, &*line.words) {
                ("changing", [_, mode]) => {
                    from = (mode == "alone").then_some(line.ms);
                    (dead, promoted) = (None, None);
                }
                ("primary-killed", streams) => dead = Some(streams.iter().map(String::as_str).collect()),
                ("promoted", _) => promoted = Some(line.ms),
                ("changed", _) => {
                    let Some(from) = from.take() else { continue };
                    for (stream, times) in &begins {
                        let is_dead = dead.as_ref().map(|dead| dead.contains(stream));
                        if let (Some(true), Some(promoted)) = (is_dead, promoted) {
                            let at = times.partition_point(|ms| *ms < promoted);
                            times.get(at).iter().for_each(|ms| self.resumed.add(**ms - promoted));
                        }
                        let Some(longest) = longest_pause(times, from, line.ms + AFTER_CHANGE_MS) else {
                            continue;
                        };
                        match is_dead {
                            None => self.silence.add(longest),
                            Some(false) => self.failover_silence.add(longest),
                            Some(true) => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the longest time without a begin between two moments.
fn longest_pause(begins: &[u64], from: u64, until: u64) -> Option<u64> {
    let first = begins.partition_point(|ms| *ms < from).saturating_sub(1);
    let last = begins.partition_point(|ms| *ms <= until);
    // With the first begin after the end: a pause can last longer than the change.
    let within = begins.get(first..(last + 1).min(begins.len()))?;
    within.windows(2).map(|pair| pair[1] - pair[0]).max()
}
