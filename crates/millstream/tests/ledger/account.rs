//! The account of a campaign: the state of every message, and why some were handled more than once.
//!
//! By the content of the store, each message is in exactly one state:
//!
//! | state | meaning |
//! |---|---|
//! | pending | it is in the group's pending list, or not read yet |
//! | dead | it is a dead letter |
//! | done | it is neither pending nor dead, and the journal contains a handler that finished it |
//! | **lost** | it is neither pending nor dead, and no handler finished it |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use millstream_worker::Reason;
use millstream_worker::backend::StreamId;
use serde_json::{Value, json};

use crate::cause::Cause;
use crate::journal::Line;
use crate::kind::MessageKind;
use crate::runs::{Run, Runs, STOPPED_AT_START};
use crate::snapshot::{Snapshot, sent_fields};
use crate::steps::POISON_EXIT;

/// How often a delivery of one message may be given back. A worker that drains does so with handlers that it cancels.
const GIVEN_BACK_MAX: u64 = 2;

/// Limits that the workers of a campaign use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub lease_ms: u64,
    pub max_deliveries: u64,
    pub max_attempts: u64,
    /// Whether a worker lost leases without recording which messages they belonged to.
    pub unknown_lost_leases: bool,
}

/// The result of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Number of messages that the store acknowledged to their producer.
    pub acknowledged: u64,
    /// Number of entries in the stream. Greater than `acknowledged` if replies to producers were lost.
    pub entries: u64,
    pub done: u64,
    pub dead: u64,
    pub pending: u64,
    pub lost: u64,
    /// Dead letters by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Number of messages that a handler could finish, but that are dead.
    pub good_dead: u64,
    /// Number of messages that a handler finished and that are dead nevertheless.
    pub dead_though_done: u64,
    /// Number of repeated completions, by cause.
    pub duplicates: BTreeMap<Cause, u64>,
    /// Number of killed processes and servers, including processes that a message ended.
    pub kills: u64,
    /// Injected faults, by their name in the journal.
    pub faults: BTreeMap<String, u64>,
    /// Steps at which worker processes ended themselves.
    pub deaths: BTreeMap<String, u64>,
    /// Broken rules.
    pub violations: Vec<String>,
}

impl Account {
    /// Computes the account from the journal and the content of the store.
    pub(crate) fn compute(lines: &[Line], snapshot: &Snapshot, limits: Limits) -> Account {
        let runs = Runs::read(lines);
        let mut account = Account { entries: snapshot.entries.len() as u64, ..Account::default() };
        (account.faults, account.deaths) = count_faults(lines);
        account.count_ends(&runs);
        account.check_sent(lines, snapshot);
        account.check_dead_letters(&runs, snapshot, limits);
        account.count_states(&runs, snapshot);
        account.explain_duplicates(&runs, limits);
        for id in &runs.acked_without_done {
            account
                .violations
                .push(format!("{id} was acknowledged by a worker whose handler had not finished it"));
        }
        for id in &runs.got_after_ack {
            account.violations.push(format!("{id} was delivered after it was acknowledged"));
        }
        // Handlers answer for messages of other kinds, or are cancelled, and such deliveries do not count.
        let kills = |id: &StreamId| {
            let kind = snapshot.entries.get(id).map(|message| message.kind);
            matches!(kind, Some(MessageKind::Killing | MessageKind::Exiting))
        };
        for (id, runs) in runs.by_id.iter().filter(|(id, _)| kills(id)) {
            let unanswered = runs.iter().rev().take_while(|run| !run.answered).count();
            if unanswered as u64 > limits.max_deliveries + GIVEN_BACK_MAX {
                account.violations.push(format!("{id} was started {unanswered} times without an answer"));
            }
        }
        account
    }

    /// Counts how processes ended. They may drain, be killed, be ended by a message, or end at their start because
    /// the server is down or because of a signal. Any other end is a violation.
    fn count_ends(&mut self, runs: &Runs) {
        let ended = |how: &str| runs.ends.get(how).copied().unwrap_or_default();
        let by_messages = self.deaths.get(POISON_EXIT).copied().unwrap_or_default();
        self.kills = ended("signal-9") + by_messages + runs.outages.len() as u64;
        for (how, count) in &runs.ends {
            if !["code-0", "code-3", "signal-9", STOPPED_AT_START].contains(&&**how) {
                self.violations.push(format!("{count} processes ended with {how}"));
            }
        }
    }

    /// Checks that the stream contains every acknowledged message, and no message that no producer sent.
    fn check_sent(&mut self, lines: &[Line], snapshot: &Snapshot) {
        let sent: HashSet<u64> = lines
            .iter()
            .filter(|line| line.event == "sent")
            .flat_map(|line| line.words.iter().filter_map(|word| word.parse().ok()))
            .collect();
        for (id, message) in &snapshot.entries {
            if !sent.contains(&message.number) {
                self.violations
                    .push(format!("{id} has the number {}, which no producer sent", message.number));
            }
        }
        let added = lines.iter().filter(|line| line.event == "added").flat_map(|line| &line.words);
        for word in added {
            self.acknowledged += 1;
            let acknowledged = word
                .split_once(':')
                .and_then(|(number, id)| Some((number.parse::<u64>().ok()?, crate::journal::parse_id(id)?)));
            let is_stored = acknowledged.is_some_and(|(number, id)| {
                snapshot.entries.get(&id).is_some_and(|message| message.number == number)
            });
            if !is_stored {
                self.lost += 1;
                self.violations.push(format!("{word} was acknowledged, but is not in the stream"));
            }
        }
    }

    fn check_dead_letters(&mut self, runs: &Runs, snapshot: &Snapshot, limits: Limits) {
        let mut seen = HashSet::new();
        for dead_letter in &snapshot.dead_letters {
            let origin = dead_letter.origin.expect("a worker wrote it");
            let mut wrong = |what: &str| self.violations.push(format!("the dead letter of {origin} {what}"));
            if !seen.insert(origin) {
                wrong("exists twice");
            }
            let Some(message) = snapshot.entries.get(&origin) else {
                wrong("has no entry in the stream");
                continue;
            };
            if sent_fields(&dead_letter.fields) != Some(*message) {
                wrong("has different fields than the entry");
            }
            match dead_letter.reason {
                Some(reason) if message.kind.may_die_of(reason) => {
                    *self.reasons.entry(reason.to_string()).or_default() += 1;
                    let least = match reason {
                        Reason::MaxDeliveries => limits.max_deliveries,
                        Reason::MaxAttempts => limits.max_attempts,
                        _ => 1,
                    };
                    if dead_letter.deliveries < least {
                        let what = format!("has only {} deliveries", dead_letter.deliveries);
                        self.violations.push(format!("the dead letter of {origin} {what}"));
                    }
                }
                reason => {
                    wrong(&format!("gives {reason:?} as the reason for a message that is {:?}", message.kind))
                }
            }
            self.good_dead += u64::from(message.kind.can_be_done());
            let was_done =
                runs.by_id.get(&origin).is_some_and(|runs| runs.iter().any(|run| run.done.is_some()));
            self.dead_though_done += u64::from(was_done);
        }
    }

    fn count_states(&mut self, runs: &Runs, snapshot: &Snapshot) {
        let dead: HashSet<StreamId> =
            snapshot.dead_letters.iter().filter_map(|dead_letter| dead_letter.origin).collect();
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
                self.violations.push(format!("{id} was done, although it is {:?}", message.kind));
            }
        }
    }

    /// Finds out why messages were finished more than once. Every completion of a message except the last must have a
    /// known cause for the next delivery.
    fn explain_duplicates(&mut self, runs: &Runs, limits: Limits) {
        for (id, of_one) in &runs.by_id {
            let done: Vec<&Run> = of_one.iter().filter(|run| run.done.is_some()).collect();
            let Some(until) = done.iter().map(|run| run.began).max() else { continue };
            let causes: Vec<Cause> =
                done.iter().filter_map(|run| Cause::find(run, until, runs, limits)).collect();
            let again = done.len() - 1;
            if causes.len() < again {
                self.violations.push(format!("{id} was done again without a known cause: {of_one:?}"));
            }
            for cause in causes.into_iter().take(again) {
                *self.duplicates.entry(cause).or_default() += 1;
            }
        }
    }

    /// Returns all numbers as JSON.
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
            "good_dead": self.good_dead,
            "dead_though_done": self.dead_though_done,
            "duplicates": duplicates,
            "faults": self.faults,
            "deaths": self.deaths,
            "kills": self.kills,
            "violations": self.violations.len(),
        })
    }
}

/// Counts the injected faults by their name in the journal, and the steps at which processes ended themselves.
pub(crate) fn count_faults(lines: &[Line]) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    const FAULTS: [&str; 9] = [
        "killed",
        "frozen",
        "draining",
        "server-killed",
        "cut",
        "cut-in-a-reply",
        "half-open",
        "stalled",
        "outage",
    ];
    let (mut faults, mut deaths) = (BTreeMap::new(), BTreeMap::new());
    for line in lines {
        if FAULTS.contains(&&*line.event) {
            *faults.entry(line.event.clone()).or_default() += 1;
        }
        if let ("dying", [step, ..]) = (&*line.event, &*line.words) {
            *deaths.entry(step.clone()).or_default() += 1;
        }
    }
    (faults, deaths)
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
            "  dead: {:?}, {} good, {} although done",
            self.reasons, self.good_dead, self.dead_though_done
        )?;
        let causes: Vec<String> =
            self.duplicates.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        writeln!(f, "  done again: {} ({})", self.duplicates.values().sum::<u64>(), causes.join(", "))?;
        writeln!(f, "  {} kills; faults {:?}; ended themselves {:?}", self.kills, self.faults, self.deaths)?;
        let some: BTreeSet<&String> = self.violations.iter().take(20).collect();
        some.iter().try_for_each(|violation| writeln!(f, "  VIOLATION: {violation}"))
    }
}
