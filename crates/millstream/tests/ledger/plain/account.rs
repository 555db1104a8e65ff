//! The account of a campaign with plain clients: the state of every message, and whether the policy was kept.
//!
//! Each message is in exactly one state. Retention is off, so an entry stays in the stream after its end.
//!
//! | state | meaning |
//! |---|---|
//! | delayed | it is in the set of delayed messages, and not in the stream |
//! | pending | it is in the group's pending list, or not read yet |
//! | dead | it is a dead letter |
//! | done | it is neither pending nor dead, and a client finished it |
//! | **lost** | none of these |
//!
//! The clients and the server use the same clock. A client records the time at which it sent a read, and the time at
//! which it got the reply. The delivery happened in between, so the checks of times have no false alarms.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use millstream_worker::Reason;
use millstream_worker::backend::StreamId;
use serde_json::{Value, json};

use super::client::PlainEntry;
use super::{LEASE, MAX_DELIVERIES};
use crate::account::count_faults;
use crate::journal::{Line, parse_id};
use crate::snapshot::{Sent, Snapshot, sent_fields};

/// Upper bounds of the lateness of delayed messages, in milliseconds.
const LATENESS_MS: [u64; 6] = [1, 2, 5, 20, 100, 1000];
/// Time after the start of a server in which it may still add messages that were due before.
const CATCH_UP_MS: u64 = 200;

/// The result of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Number of messages that the server acknowledged to their producer.
    pub acknowledged: u64,
    /// Number of messages in the stream and in the set of delayed messages.
    pub messages: u64,
    pub done: u64,
    pub dead: u64,
    pub pending: u64,
    pub delayed: u64,
    pub lost: u64,
    /// Number of delayed messages that were added to the stream.
    pub promoted: u64,
    /// Number of delayed messages that were added or delivered before they were due.
    pub early: u64,
    /// Number of deliveries that clients saw.
    pub deliveries: u64,
    /// Number of messages that clients saw more often than MAXDELIVER allows.
    pub over_limit: u64,
    /// Number of messages that were delivered again before their lease was over.
    pub in_lease: u64,
    /// Number of dead messages that a client could have finished. A policy cannot know why a client died.
    pub good_dead: u64,
    /// Number of clients that finished a message which another one also finished.
    pub done_again: u64,
    /// Lateness of delayed messages that were due while the server ran, in milliseconds.
    pub lateness_ms: Vec<u64>,
    /// Number of delayed messages that were due while the server was down.
    pub due_while_down: u64,
    pub kills: u64,
    pub faults: BTreeMap<String, u64>,
    pub violations: Vec<String>,
}

impl Account {
    /// Computes the account from the journal, the content of the store and the delayed messages.
    pub(crate) fn compute(lines: &[Line], snapshot: &Snapshot, delayed: &[PlainEntry]) -> Account {
        let mut account = Account {
            messages: (snapshot.entries.len() + delayed.len()) as u64,
            delayed: delayed.len() as u64,
            ..Account::default()
        };
        (account.faults, _) = count_faults(lines);
        account.count_ends(lines);
        account.check_sent(lines, snapshot, delayed);
        account.check_dead_letters(snapshot);
        account.count_states(lines, snapshot);
        account.check_deliveries(lines, snapshot);
        account.lateness_ms.sort_unstable();
        account
    }

    fn broken(&mut self, rule: String) {
        self.violations.push(rule);
    }

    fn count_ends(&mut self, lines: &[Line]) {
        for line in lines {
            match (&*line.event, line.words.get(1).map(String::as_str)) {
                ("server-killed", _) | ("ended", Some("signal-9" | "signal-15" | "code-3")) => {
                    self.kills += 1
                }
                ("ended", Some("code-0")) => {}
                ("ended", how) => self.broken(format!("a process ended with {how:?}")),
                ("refused", _) => {
                    self.broken(format!("the server refused a command: {}", line.words.join(" ")))
                }
                _ => {}
            }
        }
    }

    /// Checks that each acknowledged message exists exactly once, and that no other message exists.
    fn check_sent(&mut self, lines: &[Line], snapshot: &Snapshot, delayed: &[PlainEntry]) {
        let of = |event: &'static str| lines.iter().filter(move |line| line.event == event);
        let sent: HashSet<u64> = of("sent").filter_map(|line| line.number(0)).collect();
        let mut places: HashMap<(u64, Option<u64>), Vec<StreamId>> = HashMap::new();
        let in_stream = snapshot.entries.iter().map(|(id, sent)| PlainEntry { id: *id, sent: *sent });
        for entry in in_stream.chain(delayed.iter().copied()) {
            places.entry((entry.sent.number, entry.sent.due_ms)).or_default().push(entry.id);
            if !sent.contains(&entry.sent.number) {
                self.broken(format!("no producer sent {entry:?}"));
            }
        }
        let down = down_times(lines);
        for word in of("added").flat_map(|line| &line.words) {
            self.acknowledged += 1;
            let (number, due_ms, reply) = parse_added(word).expect("a line of a producer");
            let found = places.get(&(number, due_ms)).map(Vec::as_slice).unwrap_or_default();
            // A message without a due time was sent again if its reply was lost, so it may exist several times.
            let exists = match due_ms {
                None => found.contains(&reply),
                Some(_) => !found.is_empty(),
            };
            if !exists {
                self.lost += 1;
                self.broken(format!("{word} was acknowledged, but is neither in the stream nor delayed"));
            }
            if let (Some(due_ms), [id]) = (due_ms, found) {
                self.check_promoted(*id, due_ms, reply, snapshot, &down);
            }
        }
        for ((number, due_ms), ids) in
            places.iter().filter(|((_, due_ms), ids)| due_ms.is_some() && ids.len() > 1)
        {
            self.broken(format!("message {number}, due at {due_ms:?}, exists as {ids:?}"));
        }
    }

    /// Checks the moment at which a delayed message was added. `reply` is its ticket, or the id of its entry.
    fn check_promoted(
        &mut self,
        id: StreamId,
        due_ms: u64,
        reply: StreamId,
        snapshot: &Snapshot,
        down: &[(u64, u64)],
    ) {
        if !snapshot.entries.contains_key(&id) {
            return;
        }
        self.promoted += 1;
        let ticket_ms = if reply == id { due_ms } else { reply.ms };
        if id.ms < due_ms.max(ticket_ms) {
            self.early += 1;
            self.broken(format!("{id} was added before it was due at {due_ms}, with the reply {reply}"));
        }
        let is_down = |(from, to): &(u64, u64)| (*from..=to + CATCH_UP_MS).contains(&ticket_ms);
        if down.iter().any(is_down) {
            self.due_while_down += 1;
        } else if reply != id {
            self.lateness_ms.push(id.ms.saturating_sub(ticket_ms));
        }
    }

    fn check_dead_letters(&mut self, snapshot: &Snapshot) {
        let mut seen = HashSet::new();
        for dead_letter in &snapshot.dead_letters {
            let origin = dead_letter.origin.expect("a dead letter has the id of its entry");
            if !seen.insert(origin) {
                self.broken(format!("the dead letter of {origin} exists twice"));
            }
            let sent = snapshot.entries.get(&origin);
            if sent.is_none() || sent_fields(&dead_letter.fields) != sent.copied() {
                self.broken(format!("the dead letter of {origin} has other fields than the entry {sent:?}"));
            }
            if (dead_letter.reason, dead_letter.deliveries) != (Some(Reason::MaxDeliveries), MAX_DELIVERIES) {
                let found = (dead_letter.reason, dead_letter.deliveries);
                self.broken(format!("the dead letter of {origin} has the wrong reason or count: {found:?}"));
            }
            self.good_dead += u64::from(sent.is_some_and(|sent| sent.kind.can_be_done()));
        }
    }

    fn count_states(&mut self, lines: &[Line], snapshot: &Snapshot) {
        let dead: HashSet<StreamId> =
            snapshot.dead_letters.iter().filter_map(|letter| letter.origin).collect();
        let mut done: HashMap<StreamId, u64> = HashMap::new();
        for id in lines.iter().filter(|line| line.event == "done").flat_map(Line::ids) {
            *done.entry(id).or_default() += 1;
        }
        self.done_again = done.values().map(|times| times - 1).sum();
        for (id, message) in &snapshot.entries {
            match (snapshot.pending.contains(id), dead.contains(id), done.contains_key(id)) {
                (true, true, _) => self.broken(format!("{id} is pending and dead")),
                (true, false, _) => self.pending += 1,
                (false, true, _) => self.dead += 1,
                (false, false, true) => self.done += 1,
                (false, false, false) => {
                    self.lost += 1;
                    self.broken(format!("{id} ({message:?}) is lost"));
                }
            }
        }
    }

    /// Checks what clients saw: how often, how early, how soon again, and whether after an acknowledgement.
    fn check_deliveries(&mut self, lines: &[Line], snapshot: &Snapshot) {
        let mut seen: HashMap<StreamId, Seen> = HashMap::new();
        let mut acked_at: HashMap<StreamId, u64> = HashMap::new();
        for line in lines {
            match &*line.event {
                "acked" => {
                    for id in line.ids() {
                        acked_at.entry(id).or_insert(line.ms);
                    }
                }
                "got" => {
                    let requested_ms = line.number(0).unwrap_or(line.ms);
                    for id in line.ids() {
                        self.deliveries += 1;
                        let due_ms = snapshot.entries.get(&id).and_then(|sent: &Sent| sent.due_ms);
                        if due_ms.is_some_and(|due_ms| line.ms < due_ms) {
                            self.early += 1;
                            self.broken(format!("{id} was delivered at {}, before {due_ms:?}", line.ms));
                        }
                        if acked_at.get(&id).is_some_and(|acked_at| *acked_at < requested_ms) {
                            self.broken(format!("{id} was delivered after it was acknowledged"));
                        }
                        self.check_redelivery(id, seen.entry(id).or_default(), requested_ms, line.ms);
                    }
                }
                _ => {}
            }
        }
        for (id, seen) in seen.iter().filter(|(_, seen)| seen.times > MAX_DELIVERIES) {
            self.over_limit += 1;
            self.broken(format!("{id} was delivered {} times", seen.times));
        }
    }

    fn check_redelivery(&mut self, id: StreamId, seen: &mut Seen, requested_ms: u64, got_ms: u64) {
        let lease_ms = LEASE.as_millis() as u64;
        // Two clients may record their replies in another order than the server sent them.
        let can_be_after = got_ms >= seen.requested_ms + lease_ms;
        let can_be_before = seen.got_ms >= requested_ms + lease_ms;
        if seen.times > 0 && !can_be_after && !can_be_before {
            self.in_lease += 1;
            self.broken(format!(
                "{id} was delivered at {got_ms}, in the lease of a read at {}",
                seen.requested_ms
            ));
        }
        *seen = Seen { times: seen.times + 1, requested_ms, got_ms };
    }

    /// Returns how many of the delayed messages that were due while the server ran were at most this late.
    fn late_at_most(&self, ms: u64) -> u64 {
        self.lateness_ms.iter().filter(|late| **late <= ms).count() as u64
    }

    /// Returns all numbers as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let histogram: Vec<(u64, u64)> = LATENESS_MS.iter().map(|ms| (*ms, self.late_at_most(*ms))).collect();
        json!({
            "acknowledged": self.acknowledged,
            "entries": self.messages,
            "done": self.done,
            "dead": self.dead,
            "pending": self.pending,
            "delayed": self.delayed,
            "lost": self.lost,
            "promoted": self.promoted,
            "early": self.early,
            "deliveries": self.deliveries,
            "over_limit": self.over_limit,
            "in_lease": self.in_lease,
            "good_dead": self.good_dead,
            "done_again": self.done_again,
            "late_at_most_ms": histogram,
            "late_ms_max": self.lateness_ms.last(),
            "timed": self.lateness_ms.len(),
            "due_while_down": self.due_while_down,
            "faults": self.faults,
            "kills": self.kills,
            "violations": self.violations.len(),
        })
    }
}

/// The deliveries of a message that clients saw.
#[derive(Debug, Default)]
struct Seen {
    times: u64,
    /// Times of the last request and of its reply.
    requested_ms: u64,
    got_ms: u64,
}

/// Parses `NUMBER:DUE:REPLY`.
fn parse_added(word: &str) -> Option<(u64, Option<u64>, StreamId)> {
    let mut parts = word.split(':');
    let number = parts.next()?.parse().ok()?;
    let due_ms = parts.next()?.parse().ok().filter(|due_ms| *due_ms != 0);
    Some((number, due_ms, parse_id(parts.next()?)?))
}

/// Returns the times at which the server was killed and replied again.
fn down_times(lines: &[Line]) -> Vec<(u64, u64)> {
    let of = |event: &'static str| lines.iter().filter(move |line| line.event == event).map(|line| line.ms);
    of("server-killed").zip(of("server-back")).collect()
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} acknowledged, {} messages: {} done, {} dead, {} pending, {} delayed, {} lost",
            self.acknowledged, self.messages, self.done, self.dead, self.pending, self.delayed, self.lost
        )?;
        writeln!(
            f,
            "  {} deliveries; {} early, {} over the limit, {} within a lease; {} good dead, {} done again",
            self.deliveries, self.early, self.over_limit, self.in_lease, self.good_dead, self.done_again
        )?;
        let timed = self.lateness_ms.len();
        write!(
            f,
            "  {} delayed messages added; lateness of {timed} due while the server ran:",
            self.promoted
        )?;
        for ms in LATENESS_MS {
            write!(f, " {} <= {ms} ms,", self.late_at_most(ms))?;
        }
        writeln!(
            f,
            " worst {:?} ms; {} due while it was down",
            self.lateness_ms.last(),
            self.due_while_down
        )?;
        writeln!(f, "  {} kills; faults {:?}", self.kills, self.faults)?;
        self.violations.iter().take(20).try_for_each(|violation| writeln!(f, "  VIOLATION: {violation}"))
    }
}
