//! The account of an order campaign: whether the messages of each key were handled in order, and how fast others took
//! over.
//!
//! The messages of a key have dense numbers. Every handler records its begin and its end, so the journal shows:
//!
//! | broken rule | when |
//! |---|---|
//! | too early | a message begins before an earlier one of its key has ended once: done, rejected, or dead |
//! | at work twice | a message begins while another of its key is at work and no process was frozen beyond its lease |
//! | stale | a message begins with a fence that is not the greatest of its stream, in a process that was not frozen |
//! | again | a message is done again, and nothing that happened explains why |
//! | **lost** | the store answered that it was added, and it is neither done nor dead nor pending |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use millstream_worker::backend::StreamId;
use serde_json::{Value, json};

use super::figures::{Figures, Times};
use crate::journal::{Line, parse_id};
use crate::runs::{Runs, STOPPED_AT_START};

/// A process that did not run for this long, in milliseconds, counts as frozen beyond its lease. A worker cancels its
/// handlers this long before its lease ends, unless it is frozen then.
const FROZEN_MS: u64 = 300;
/// A handler that is cancelled late, because its process was frozen, ends within this time, in milliseconds.
const CANCEL_MS: u64 = 600;
/// For this long after a process runs again, in milliseconds, it may begin what it was about to begin.
const THAW_MS: u64 = 100;
/// For this long before a message was done, in milliseconds, its worker may have lost the lease without knowing.
const LOSS_MS: u64 = 2_000;
/// For this long after the end of a change of the cluster, in milliseconds, it can be the reason why a message is done
/// again.
const EFFECT_MS: u64 = 15_000;

/// An entry: its stream and its id.
pub(crate) type EntryName = (String, StreamId);
/// A message as its producer numbered it: its key and its number within the key.
pub(crate) type Numbered = (String, u64);

/// The content of the store at the end.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub entries: BTreeMap<EntryName, Numbered>,
    /// Entries that are pending or not read yet.
    pub pending: HashSet<EntryName>,
    pub dead: HashSet<EntryName>,
}

/// The result of an order campaign.
#[derive(Debug, Default)]
pub(crate) struct OrderAccount {
    pub entries: u64,
    pub done: u64,
    pub dead: u64,
    pub lost: u64,
    /// Messages that were answered shortly before their primary was killed, and that its replica did not have.
    pub gone: u64,
    /// Messages that a handler could finish, but that are dead.
    pub good_dead: u64,
    /// Messages that began too early.
    pub too_early: u64,
    /// Messages that began while another one of their key was at work, and no process was frozen.
    pub twice: u64,
    /// The same while a process was frozen beyond its lease.
    pub beside_frozen: u64,
    /// Completions of messages that were done before, by cause.
    pub again: BTreeMap<&'static str, u64>,
    /// Number of faults and changes by their name.
    pub faults: BTreeMap<String, u64>,
    pub figures: Figures,
    /// Warnings and errors of the workers that no fault explains.
    pub warnings: Vec<String>,
    /// Broken rules.
    pub violations: Vec<String>,
}

impl OrderAccount {
    /// Computes the account from the journal and the content of the store.
    ///
    /// `warnings` are those in the logs of the workers. While a primary is dead, it is true that the store cannot be
    /// reached.
    pub(crate) fn compute(lines: &[Line], content: &Content, warnings: Vec<(u64, String)>) -> OrderAccount {
        let mut account = OrderAccount {
            entries: content.entries.len() as u64,
            figures: Figures::read(lines),
            ..OrderAccount::default()
        };
        let runs = Runs::read(lines);
        account.count_faults(lines);
        account.count_ends(&runs);
        let events = Events::read(lines);
        let is_false = |(ms, line): &(u64, String)| {
            !(line.contains("retrying until it succeeds") && events.was_primary_dead(*ms))
        };
        account.warnings = warnings.into_iter().filter(is_false).map(|(_, line)| line).collect();
        let ended = account.count_states(lines, content, &events);
        account.check_order(lines, &events, ended);
        account.explain_again(lines, &events);
        account
    }

    fn count_faults(&mut self, lines: &[Line]) {
        const FAULTS: [&str; 6] = ["killed", "dying", "frozen", "draining", "server-killed", "changing"];
        for line in lines.iter().filter(|line| FAULTS.contains(&&*line.event)) {
            let name = match &*line.event {
                "changing" => line.words.first().cloned().unwrap_or_default(),
                "dying" => "killed".to_owned(),
                event => event.to_owned(),
            };
            *self.faults.entry(name).or_default() += 1;
        }
    }

    fn count_ends(&mut self, runs: &Runs) {
        for (how, count) in &runs.ends {
            if !["code-0", "signal-9", STOPPED_AT_START].contains(&&**how) {
                self.violations.push(format!("{count} processes ended with {how}"));
            }
        }
    }

    /// Finds the state of each message. Returns the messages that ended without a handler that says so.
    fn count_states(&mut self, lines: &[Line], content: &Content, events: &Events) -> HashSet<Numbered> {
        let mut ended = HashSet::new();
        let over = |line: &&Line| matches!(&*line.event, "done" | "rejected");
        let handled: HashSet<Numbered> =
            lines.iter().filter(over).filter_map(handled).map(|run| run.message).collect();
        let rejected = |line: &&Line| line.event == "rejected";
        let rejected: HashSet<Numbered> =
            lines.iter().filter(rejected).filter_map(self::handled).map(|run| run.message).collect();
        for (entry, message) in &content.entries {
            match (content.pending.contains(entry), content.dead.contains(entry)) {
                (true, true) => self.violations.push(format!("{entry:?} is pending and dead")),
                (true, false) => self.violations.push(format!("{entry:?} is still pending")),
                (false, true) => {
                    self.dead += 1;
                    if !rejected.contains(message) {
                        self.good_dead += 1;
                        self.violations.push(format!("{message:?} is dead, although no handler rejected it"));
                        ended.insert(message.clone());
                    }
                }
                (false, false) if handled.contains(message) => self.done += 1,
                (false, false) => {
                    self.lost += 1;
                    self.violations.push(format!("{message:?} {entry:?} is lost"));
                    ended.insert(message.clone());
                }
            }
        }
        for line in lines.iter().filter(|line| line.event == "added") {
            for (message, entry) in line.words.iter().filter_map(|word| added(word)) {
                if content.entries.get(&entry) == Some(&message) {
                    continue;
                }
                ended.insert(message.clone());
                if events.primary_died_after(line.ms) {
                    self.gone += 1;
                } else {
                    self.lost += 1;
                    self.violations.push(format!("{message:?} was added as {entry:?}, which does not exist"));
                }
            }
        }
        ended
    }

    /// Checks when messages began. `ended` are those that ended without a handler that says so.
    fn check_order(&mut self, lines: &[Line], events: &Events, ended: HashSet<Numbered>) {
        let mut over: HashMap<String, Over> = HashMap::new();
        ended.into_iter().for_each(|(key, number)| over.entry(key).or_default().add(number));
        let mut at_work: HashMap<String, Vec<AtWork>> = HashMap::new();
        let mut gone: HashSet<u32> = HashSet::new();
        // The greatest fence of each stream.
        let mut fences: HashMap<&str, (u64, u32)> = HashMap::new();
        for line in lines {
            if matches!(&*line.event, "killed" | "ended") {
                gone.extend(line.number(0).map(|pid| pid as u32));
            }
            if line.event == "dying" {
                gone.insert(line.pid);
            }
            if let ("acquired", [stream, fence]) = (&*line.event, &*line.words) {
                let fence = fence.parse().unwrap_or_default();
                let (last, _) = fences.insert(stream, (fence, line.pid)).unwrap_or_default();
                if fence <= last {
                    self.violations.push(format!("{stream} was acquired with fence {fence} after {last}"));
                }
            }
            let Some(run) = handled(line) else { continue };
            let Handled { message: (key, number), stream, fence } = run;
            let running = at_work.entry(key.clone()).or_default();
            if line.event != "begin" {
                running.retain(|other| (other.pid, other.number) != (line.pid, number));
                if matches!(&*line.event, "done" | "rejected") {
                    over.entry(key).or_default().add(number);
                }
                continue;
            }
            let missing = over.entry(key.clone()).or_default().missing_before(number);
            if let Some(missing) = missing {
                self.too_early += 1;
                self.violations.push(format!(
                    "{key}: {number} began before {missing} had ended, at {} in {}",
                    line.ms, line.writer
                ));
            }
            running.retain(|other| !gone.contains(&other.pid));
            for other in running.iter() {
                let is_frozen = other.pid != line.pid
                    && (events.was_just_frozen(other.pid, line.ms)
                        || events.was_frozen(line.pid, line.ms, line.ms));
                if is_frozen {
                    self.beside_frozen += 1;
                } else {
                    self.twice += 1;
                    let (n, pid) = (other.number, other.pid);
                    self.violations.push(format!(
                        "{key}: {number} began while {n} was at work in {pid}, at {} in {}",
                        line.ms, line.writer
                    ));
                }
            }
            running.push(AtWork { pid: line.pid, number });
            let newest = fences.get(&*stream).copied().unwrap_or_default();
            if fence < newest.0 && !events.was_frozen(line.pid, line.ms, line.ms) {
                self.violations.push(format!(
                    "{key}: {number} began with the fence {fence} of {} after {} in {}, at {}",
                    line.writer, newest.0, newest.1, line.ms
                ));
            }
        }
    }

    /// Counts messages that were done more than once. Each time needs a cause.
    fn explain_again(&mut self, lines: &[Line], events: &Events) {
        let mut last: HashMap<Numbered, Ended<'_>> = HashMap::new();
        // When the run that is at work began, by writer and message.
        let mut began: HashMap<(u32, Numbered), u64> = HashMap::new();
        for line in lines {
            let Some(run) = handled(line) else { continue };
            match &*line.event {
                "begin" => drop(began.insert((line.pid, run.message), line.ms)),
                "done" | "rejected" => {
                    let began_ms = began.remove(&(line.pid, run.message.clone())).unwrap_or(line.ms);
                    let ended =
                        Ended { pid: line.pid, ms: line.ms, stream: &line.words[2], id: &line.words[3] };
                    let Some(before) = last.insert(run.message.clone(), ended) else { continue };
                    let again = Again { pid: line.pid, began_ms, ended_ms: line.ms, id: &line.words[3] };
                    match events.cause(&before, &again) {
                        Some(cause) => *self.again.entry(cause).or_default() += 1,
                        None => self.violations.push(format!(
                            "{:?} was done in {} at {} and again at {} in {} without a known cause",
                            run.message, before.pid, before.ms, line.ms, line.writer
                        )),
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns all numbers as JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "entries": self.entries,
            "done": self.done,
            "dead": self.dead,
            "lost": self.lost,
            "gone": self.gone,
            "too_early": self.too_early,
            "twice": self.twice,
            "beside_frozen": self.beside_frozen,
            "again": self.again.values().sum::<u64>(),
            "faults": self.faults,
            "crash": self.figures.crash.to_json(),
            "freeze": self.figures.freeze.to_json(),
            "drain": self.figures.drain.to_json(),
            "silence": self.figures.silence.to_json(),
            "failover_silence": self.figures.failover_silence.to_json(),
            "resumed": self.figures.resumed.to_json(),
            "warnings": self.warnings.len(),
            "violations": self.violations.len(),
        })
    }
}

impl fmt::Display for OrderAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OrderAccount { entries, done, dead, lost, gone, .. } = self;
        writeln!(f, "{entries} entries: {done} done, {dead} dead, {lost} lost, {gone} gone with a primary")?;
        writeln!(
            f,
            "  {} too early, {} at work twice, {} beside a frozen process, done again {:?}",
            self.too_early, self.twice, self.beside_frozen, self.again
        )?;
        writeln!(f, "  faults {:?}", self.faults)?;
        let figures = [
            ("taken over after a crash", &self.figures.crash),
            ("taken over after a freeze", &self.figures.freeze),
            ("handed over at a drain", &self.figures.drain),
            ("silent while slots moved", &self.figures.silence),
            ("silent on other nodes in a failover", &self.figures.failover_silence),
            ("at work after a promotion", &self.figures.resumed),
        ];
        for (what, times) in figures.into_iter().filter(|(_, times)| times.count() > 0) {
            writeln!(f, "  {what}: {times}")?;
        }
        let some = |lines: &[String]| lines.iter().take(20).cloned().collect::<BTreeSet<String>>();
        some(&self.warnings).iter().try_for_each(|line| writeln!(f, "  WARNING: {line}"))?;
        some(&self.violations).iter().try_for_each(|violation| writeln!(f, "  VIOLATION: {violation}"))
    }
}

/// A handler at work.
struct AtWork {
    pid: u32,
    number: u64,
}

/// The last completion of a message.
struct Ended<'l> {
    pid: u32,
    ms: u64,
    stream: &'l str,
    id: &'l str,
}

/// The run of a message that was done before.
struct Again<'l> {
    pid: u32,
    began_ms: u64,
    ended_ms: u64,
    id: &'l str,
}

/// The numbers of a key that have ended once.
#[derive(Default)]
struct Over {
    /// All smaller numbers have ended.
    until: u64,
    beyond: BTreeSet<u64>,
}

impl Over {
    fn add(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&self.until) {
            self.until += 1;
        }
    }

    /// Returns the first number before this one that has not ended.
    fn missing_before(&self, number: u64) -> Option<u64> {
        (self.until < number).then_some(self.until)
    }
}

/// What a handler recorded.
struct Handled {
    message: Numbered,
    stream: String,
    fence: u64,
}

/// Reads the line of a handler: KEY NUMBER STREAM ID FENCE.
fn handled(line: &Line) -> Option<Handled> {
    if !["begin", "done", "failed", "rejected", "cancelled"].contains(&&*line.event) {
        return None;
    }
    let [key, number, stream, _, fence] = &*line.words else { return None };
    let message = (key.clone(), number.parse().ok()?);
    Some(Handled { message, stream: stream.clone(), fence: fence.parse().ok()? })
}

/// Parses a message that was added: `KEY/NUMBER/STREAM/ID`.
fn added(word: &str) -> Option<(Numbered, EntryName)> {
    let mut parts = word.split('/');
    let message = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
    Some((message, (parts.next()?.to_owned(), parse_id(parts.next()?)?)))
}

/// What happened to processes and to the cluster.
#[derive(Default)]
struct Events {
    /// When each process did not run: from and until, in milliseconds.
    freezes: HashMap<u32, Vec<(u64, u64)>>,
    /// When processes died.
    deaths: HashMap<u32, u64>,
    /// Changes of the cluster: the name, the beginning and the end.
    changes: Vec<(&'static str, u64, u64)>,
    /// When primaries were killed.
    primaries: Vec<u64>,
    /// When each stream was acquired although its last owner had not given it up.
    lost_leases: HashMap<String, Vec<u64>>,
}

impl Events {
    fn read(lines: &[Line]) -> Events {
        let mut events = Events::default();
        let mut frozen: HashMap<u64, u64> = HashMap::new();
        let mut change = None;
        let mut owned: HashSet<&str> = HashSet::new();
        for line in lines {
            let pid = line.number(0).unwrap_or_default();
            match (&*line.event, &*line.words) {
                ("acquired", [stream, _]) if !owned.insert(stream) => {
                    events.lost_leases.entry(stream.clone()).or_default().push(line.ms);
                }
                ("gave-up", [stream, _]) => drop(owned.remove(&**stream)),
                _ => {}
            }
            match &*line.event {
                "frozen" => drop(frozen.insert(pid, line.ms)),
                "thawed" | "ended" => {
                    if let Some(from) = frozen.remove(&pid) {
                        events.freezes.entry(pid as u32).or_default().push((from, line.ms));
                    }
                    // A process that drained has settled what it had done.
                    if line.event == "ended" && line.words.get(1).is_some_and(|exit| exit != "code-0") {
                        events.deaths.entry(pid as u32).or_insert(line.ms);
                    }
                }
                // The process itself noticed that it did not run, for example because the machine was busy.
                "stalled" => {
                    events.freezes.entry(line.pid).or_default().push((line.ms.saturating_sub(pid), line.ms));
                }
                "killed" => drop(events.deaths.insert(pid as u32, line.ms)),
                "dying" => drop(events.deaths.insert(line.pid, line.ms)),
                "server-killed" => events.changes.push(("server killed", line.ms, line.ms)),
                "primary-killed" => events.primaries.push(line.ms),
                "changing" => {
                    let is_reshard = line.words.first().is_some_and(|name| name.contains("slots"));
                    change = Some((if is_reshard { "moved slots" } else { "failover" }, line.ms));
                }
                "changed" => {
                    events.changes.extend(change.take().map(|(name, from)| (name, from, line.ms)));
                }
                _ => {}
            }
        }
        // A process that was never thawed stays frozen.
        for (pid, from) in frozen {
            events.freezes.entry(pid as u32).or_default().push((from, u64::MAX));
        }
        events
    }

    /// Whether a process was frozen beyond its lease at some moment between these two.
    fn was_frozen(&self, pid: u32, from_ms: u64, until_ms: u64) -> bool {
        let freezes = self.freezes.get(&pid).into_iter().flatten();
        let mut beyond =
            freezes.filter(|(from, until)| until.min(&until_ms).saturating_sub(*from) >= FROZEN_MS);
        beyond.any(|(from, until)| *from <= until_ms && until.saturating_add(THAW_MS) >= from_ms)
    }

    /// Whether a process is frozen at this moment, or was until shortly before.
    fn was_just_frozen(&self, pid: u32, ms: u64) -> bool {
        self.was_frozen(pid, ms.saturating_sub(CANCEL_MS), ms)
    }

    fn was_primary_dead(&self, ms: u64) -> bool {
        self.primaries.iter().any(|died| (*died..died + EFFECT_MS).contains(&ms))
    }

    fn primary_died_after(&self, ms: u64) -> bool {
        self.primaries.iter().any(|died| (ms..ms + 1_000).contains(died))
    }

    /// Returns why a message that was done ran again.
    fn cause(&self, before: &Ended<'_>, again: &Again<'_>) -> Option<&'static str> {
        let Again { pid, began_ms, ended_ms, id } = *again;
        if before.id != id {
            return Some("added twice");
        }
        if self.deaths.get(&before.pid).is_some_and(|died| *died <= began_ms) {
            return Some("kill");
        }
        // The handler that was frozen can be the first or the last one to end.
        if self.was_frozen(before.pid, before.ms, began_ms) || self.was_frozen(pid, began_ms, ended_ms) {
            return Some("freeze");
        }
        // The worker or the store was too slow, so the worker could not renew its lease in time.
        let mut lost = self.lost_leases.get(before.stream).into_iter().flatten();
        if lost.any(|ms| (before.ms.saturating_sub(LOSS_MS)..=began_ms).contains(ms)) {
            return Some("lost lease");
        }
        let overlaps = |(_, from, until): &&(&str, u64, u64)| {
            *from <= began_ms && before.ms <= until.saturating_add(EFFECT_MS)
        };
        self.changes.iter().find(overlaps).map(|(name, ..)| *name)
    }
}

/// Returns a summary of times for messages.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, p95, max) = self.summary();
        write!(f, "{} times, median {median} ms, p95 {p95} ms, max {max} ms", self.count())
    }
}
