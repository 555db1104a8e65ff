//! The account of a campaign: where every message is, and why some were done more than once.
//!
//! By what the store says each message is in exactly one place:
//!
//! | place | what that means |
//! |---|---|
//! | pending | it is in the group's list, or not read yet |
//! | dead | it is among the dead letters |
//! | done | it is in neither, and the journal knows a handler that finished it |
//! | **lost** | it is in neither, and no handler finished it |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use millstream_worker::backend::StreamId;
use serde_json::{Value, json};

use crate::cause::Cause;
use crate::journal::Line;
use crate::runs::{Run, Runs, TOLD_TO_END};
use crate::snapshot::{Snapshot, sent_fields};
use crate::steps::POISON_EXIT;

/// What the workers were told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub lease_ms: u64,
    pub max_deliveries: u64,
    /// Some worker lost leases and did not tell of which messages.
    pub leases_lost_untold: bool,
}

/// The account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Messages whose sender was told that they are there.
    pub acknowledged: u64,
    /// Entries of the stream: more, where the answer to a sender got lost.
    pub entries: u64,
    pub done: u64,
    pub dead: u64,
    pub pending: u64,
    pub lost: u64,
    /// Dead letters by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Messages that are good, and dead because too many workers died with them.
    pub worn_out: u64,
    /// Messages that some handler finished, and that are dead all the same.
    pub dead_though_done: u64,
    /// Times that a message was done again, by cause.
    pub duplicates: BTreeMap<Cause, u64>,
    /// Processes and servers that were killed, and processes that a message ended.
    pub kills: u64,
    /// What went wrong, by its name in the journal.
    pub faults: BTreeMap<String, u64>,
    /// Where worker processes ended themselves.
    pub deaths: BTreeMap<String, u64>,
    /// What must not be.
    pub violations: Vec<String>,
}

impl Account {
    /// Draws up the account.
    pub(crate) fn draw_up(lines: &[Line], snapshot: &Snapshot, limits: Limits) -> Account {
        let runs = Runs::read(lines);
        let mut account = Account { entries: snapshot.entries.len() as u64, ..Account::default() };
        account.count_faults(lines);
        account.count_ends(&runs);
        account.check_sent(lines, snapshot);
        account.check_letters(&runs, snapshot, limits);
        account.place_each(&runs, snapshot);
        account.explain_duplicates(&runs, limits);
        for id in &runs.acked_undone {
            account.violations.push(format!("{id} was acknowledged by a worker that had not done it"));
        }
        for id in &runs.got_after_ack {
            account.violations.push(format!("{id} was delivered after it was acknowledged"));
        }
        for (id, runs) in &runs.by_id {
            if runs.len() as u64 > limits.max_deliveries {
                account.violations.push(format!("{id} was begun {} times", runs.len()));
            }
        }
        account
    }

    fn count_faults(&mut self, lines: &[Line]) {
        const FAULTS: [&str; 8] = [
            "killed",
            "frozen",
            "draining",
            "server-killed",
            "cut",
            "cut-in-a-reply",
            "half-open",
            "stalled",
        ];
        for line in lines {
            if FAULTS.contains(&&*line.what) {
                *self.faults.entry(line.what.clone()).or_default() += 1;
            }
            if let ("dying", [step, ..]) = (&*line.what, &*line.words) {
                *self.deaths.entry(step.clone()).or_default() += 1;
            }
        }
    }

    /// Processes drain, are killed, or are ended by a message or, at their start, by a server that is away or a signal. None breaks.
    fn count_ends(&mut self, runs: &Runs) {
        let ended = |how: &str| runs.ends.get(how).copied().unwrap_or_default();
        let by_messages = self.deaths.get(POISON_EXIT).copied().unwrap_or_default();
        self.kills = ended("signal-9") + by_messages + runs.outages.len() as u64;
        for (how, count) in &runs.ends {
            if !["code-0", "code-3", "signal-9", TOLD_TO_END].contains(&&**how) {
                self.violations.push(format!("{count} processes ended with {how}"));
            }
        }
    }

    /// Whatever a sender was told of is in the stream, and nothing that nobody sent.
    fn check_sent(&mut self, lines: &[Line], snapshot: &Snapshot) {
        let sent: HashSet<u64> = lines
            .iter()
            .filter(|line| line.what == "sent")
            .flat_map(|line| line.words.iter().filter_map(|word| word.parse().ok()))
            .collect();
        for (id, message) in &snapshot.entries {
            if !sent.contains(&message.number) {
                self.violations.push(format!("{id} has the number {}, which nobody sent", message.number));
            }
        }
        let added = lines.iter().filter(|line| line.what == "added").flat_map(|line| &line.words);
        for word in added {
            self.acknowledged += 1;
            let told = word
                .split_once(':')
                .and_then(|(number, id)| Some((number.parse::<u64>().ok()?, crate::journal::parse_id(id)?)));
            let is_there = told.is_some_and(|(number, id)| {
                snapshot.entries.get(&id).is_some_and(|message| message.number == number)
            });
            if !is_there {
                self.lost += 1;
                self.violations.push(format!("{word} was added, and is not in the stream"));
            }
        }
    }

    fn check_letters(&mut self, runs: &Runs, snapshot: &Snapshot, limits: Limits) {
        let mut seen = HashSet::new();
        for letter in &snapshot.letters {
            let origin = letter.origin;
            let mut wrong = |what: &str| self.violations.push(format!("the dead letter of {origin} {what}"));
            if !seen.insert(origin) {
                wrong("is there twice");
            }
            let Some(message) = snapshot.entries.get(&origin) else {
                wrong("has no entry in the stream");
                continue;
            };
            if sent_fields(&letter.fields) != Some(*message) {
                wrong("says something else than the entry");
            }
            match letter.reason {
                Some(reason) if message.kind.may_die_of(reason) => {
                    *self.reasons.entry(reason.to_string()).or_default() += 1;
                    let too_few = letter.deliveries < limits.max_deliveries;
                    if reason == millstream_worker::Reason::MaxDeliveries && too_few {
                        let what = format!("tells of {} deliveries only", letter.deliveries);
                        self.violations.push(format!("the dead letter of {origin} {what}"));
                    }
                }
                reason => {
                    wrong(&format!("gives {reason:?} as the reason for a message that is {:?}", message.kind))
                }
            }
            self.worn_out += u64::from(message.kind.can_be_done());
            let was_done =
                runs.by_id.get(&origin).is_some_and(|runs| runs.iter().any(|run| run.done.is_some()));
            self.dead_though_done += u64::from(was_done);
        }
    }

    fn place_each(&mut self, runs: &Runs, snapshot: &Snapshot) {
        let dead: HashSet<StreamId> = snapshot.letters.iter().map(|letter| letter.origin).collect();
        for (id, message) in &snapshot.entries {
            let was_done = runs.by_id.get(id).is_some_and(|runs| runs.iter().any(|run| run.done.is_some()));
            match (snapshot.pending.contains(id), dead.contains(id)) {
                (true, true) => self.violations.push(format!("{id} is pending and dead")),
                (true, false) => self.pending += 1,
                (false, true) => self.dead += 1,
                (false, false) if was_done => self.done += 1,
                (false, false) => {
                    self.lost += 1;
                    self.violations.push(format!("{id} ({message:?}) is lost"));
                }
            }
            if was_done && !message.kind.can_be_done() {
                self.violations.push(format!("{id} was done, though it is {:?}", message.kind));
            }
        }
    }

    /// Of all handlers that finished a message one was the end of it. All others have a cause.
    fn explain_duplicates(&mut self, runs: &Runs, limits: Limits) {
        for (id, of_one) in &runs.by_id {
            let done: Vec<&Run> = of_one.iter().filter(|run| run.done.is_some()).collect();
            let Some(until) = done.iter().map(|run| run.began).max() else { continue };
            let causes: Vec<Cause> =
                done.iter().filter_map(|run| Cause::find(run, until, runs, limits)).collect();
            let again = done.len() - 1;
            if causes.len() < again {
                self.violations.push(format!("{id} was done again without a cause: {of_one:?}"));
            }
            for cause in causes.into_iter().take(again) {
                *self.duplicates.entry(cause).or_default() += 1;
            }
        }
    }

    /// All numbers, for a program.
    pub(crate) fn to_json(&self) -> Value {
        let duplicates: HashMap<String, u64> =
            self.duplicates.iter().map(|(cause, count)| (cause.to_string(), *count)).collect();
        json!({
            "acknowledged": self.acknowledged,
            "entries": self.entries,
            "done": self.done,
            "dead": self.dead,
            "pending": self.pending,
            "lost": self.lost,
            "reasons": self.reasons,
            "worn_out": self.worn_out,
            "dead_though_done": self.dead_though_done,
            "duplicates": duplicates,
            "faults": self.faults,
            "deaths": self.deaths,
            "kills": self.kills,
            "violations": self.violations.len(),
        })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} acknowledged, {} entries: {} done, {} dead, {} pending, {} lost",
            self.acknowledged, self.entries, self.done, self.dead, self.pending, self.lost
        )?;
        writeln!(
            f,
            "  dead: {:?}, {} worn out, {} though done",
            self.reasons, self.worn_out, self.dead_though_done
        )?;
        let causes: Vec<String> =
            self.duplicates.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        writeln!(f, "  done again: {} ({})", self.duplicates.values().sum::<u64>(), causes.join(", "))?;
        writeln!(f, "  {} kills; faults {:?}; ended themselves {:?}", self.kills, self.faults, self.deaths)?;
        let some: BTreeSet<&String> = self.violations.iter().take(20).collect();
        some.iter().try_for_each(|violation| writeln!(f, "  WRONG: {violation}"))
    }
}
