//! Judges the health of a group, with reasons.

use std::fmt;
use std::time::Duration;

use super::missed::MissedAccuracy;
use super::snapshot::GroupSnapshot;
use crate::backend::ConsumerInfo;
use crate::heartbeat::{Heartbeat, WorkerInfo, WorkerState};
use crate::wording::{age, counted};

/// The health of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// No action needed.
    Ok,
    /// Not known: the details of the group were never read, and its cheap properties show no problem. No finding has
    /// this health.
    Unknown,
    /// An operator should investigate.
    Degraded,
    /// An operator must act now.
    Critical,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Ok => "ok",
            Health::Unknown => "unknown",
            Health::Degraded => "degraded",
            Health::Critical => "critical",
        })
    }
}

/// The values at which a measurement becomes degraded or critical. `None` disables a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds<T> {
    /// Values at or above this are degraded.
    pub degraded: Option<T>,
    /// Values at or above this are critical.
    pub critical: Option<T>,
}

impl<T: PartialOrd> Thresholds<T> {
    /// Sets both thresholds.
    pub const fn new(degraded: T, critical: T) -> Thresholds<T> {
        Thresholds { degraded: Some(degraded), critical: Some(critical) }
    }

    /// Returns the health for a value.
    pub fn health(&self, value: &T) -> Health {
        let reached = |limit: &Option<T>| limit.as_ref().is_some_and(|limit| value >= limit);
        match (reached(&self.critical), reached(&self.degraded)) {
            (true, _) => Health::Critical,
            (false, true) => Health::Degraded,
            (false, false) => Health::Ok,
        }
    }
}

/// The limits by which a group is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Number of unread entries.
    pub lag: Thresholds<u64>,
    /// Age of the oldest unread entry.
    pub unread_age: Thresholds<Duration>,
    /// Number of pending entries.
    pub pending: Thresholds<u64>,
    /// Age of the oldest pending entry: the time since it was added.
    pub pending_age: Thresholds<Duration>,
    /// Longest idle time of a pending entry: the time since it was delivered, or its worker last extended its lease.
    pub pending_idle: Thresholds<Duration>,
    /// Number of failed attempts of the first message of a key, if workers order messages.
    pub failed_attempts: Thresholds<u64>,
    /// Number of stuck pending entries.
    pub stuck: Thresholds<u64>,
    /// Number of dead letters.
    pub dead_letters: Thresholds<u64>,
    /// A consumer that has been idle for at least this long counts as inactive.
    pub consumer_idle: Duration,
    /// The worst health that unread entries can cause while no consumer has read from the group yet. Such a group may
    /// be new.
    pub worst_if_never_read: Health,
}

impl Default for Limits {
    fn default() -> Limits {
        const MINUTE: Duration = Duration::from_secs(60);
        Limits {
            lag: Thresholds::new(10_000, 100_000),
            unread_age: Thresholds::new(MINUTE, 10 * MINUTE),
            pending: Thresholds { degraded: Some(10_000), critical: None },
            pending_age: Thresholds { degraded: Some(60 * MINUTE), critical: None },
            pending_idle: Thresholds::new(5 * MINUTE, 30 * MINUTE),
            failed_attempts: Thresholds { degraded: Some(5), critical: None },
            stuck: Thresholds { degraded: Some(1), critical: None },
            dead_letters: Thresholds { degraded: Some(1), critical: None },
            consumer_idle: MINUTE,
            worst_if_never_read: Health::Degraded,
        }
    }
}

/// A problem of a group. A finding with [`Health::Ok`] is for information only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity of the problem.
    pub health: Health,
    /// A fixed code for programs: `missed`, `lag`, `lag_grows`, `unread_age`, `pending`, `pending_grows`,
    /// `pending_age`, `pending_idle`, `stuck`, `dead_letters`, `no_reader`, `consumer_idle`, `worker_dead`,
    /// `circuit_open`, `name_in_use`, `running`, `keys_blocked`, `window_full`.
    pub code: &'static str,
    /// The consumer that has the problem. `None` if it concerns the whole group.
    pub consumer: Option<String>,
    /// The number of the partition that has the problem. `None` if it concerns all, or the stream has none.
    pub partition: Option<usize>,
    /// A description for people.
    pub text: String,
}

/// Maximum number of consumers with the same problem that a verdict names.
const CONSUMERS_NAMED_MAX: u64 = 5;

/// The health of a finding, and by how much its partition exceeds the limit.
type Severity = (Health, u128);

/// The health of a group, and the findings that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVerdict {
    /// The worst health among the findings. At least [`Health::Unknown`] if the details of the group were never read.
    pub health: Health,
    /// The findings, worst first.
    pub findings: Vec<Finding>,
}

impl GroupVerdict {
    fn of(mut findings: Vec<Finding>) -> GroupVerdict {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let findings = with_few_consumers(findings);
        let health = findings.first().map_or(Health::Ok, |finding| finding.health);
        GroupVerdict { health, findings }
    }
}

/// Writes the health, followed by the descriptions of all problems.
impl fmt::Display for GroupVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.health.fmt(f)?;
        let problems = self.findings.iter().filter(|finding| finding.health > Health::Ok);
        problems.enumerate().try_for_each(|(position, finding)| {
            write!(f, "{}{}", if position == 0 { ": " } else { "; " }, finding.text)
        })
    }
}

impl GroupSnapshot {
    /// Judges the group by these limits. A group of a logical stream is as healthy as the worst of its partitions.
    pub fn verdict(&self, limits: &Limits) -> GroupVerdict {
        let mut findings =
            if self.parts.is_empty() { self.own_findings(limits) } else { self.findings_of_parts(limits) };
        // Without details, the consumers are not known yet.
        let has_no_reader = self.detail_at.is_some() && !self.has_reader(limits);
        if let Some(text) = self.unserved().filter(|_| has_no_reader) {
            let health = self.unread_health(limits, Health::Critical);
            findings.push(Finding { health, code: "no_reader", consumer: None, partition: None, text });
        }
        findings.extend(self.growth_findings());
        findings.extend(self.idle_consumers(limits));
        findings.extend(self.workers.iter().filter_map(|worker| self.worker_finding(worker)));
        findings.extend(self.live_workers().filter_map(running_too_long));
        findings.extend(self.lanes_findings(limits));
        findings.retain(|finding| finding.health > Health::Ok || finding.code != "no_reader");
        let mut verdict = GroupVerdict::of(findings);
        if self.detail_at.is_none() {
            verdict.health = verdict.health.max(Health::Unknown);
        }
        verdict
    }

    /// Returns the group of the partition that needs attention first: the least healthy one, then the one that is
    /// furthest behind. `None` if there are no partitions, or none of them has anything to do.
    pub fn worst_part(&self, limits: &Limits) -> Option<&GroupSnapshot> {
        let rank = |part: &GroupSnapshot| {
            let health = part.own_findings(limits).iter().map(|finding| finding.health).max();
            (health.max(Some(Health::Ok)), part.lag.count, part.unread_age(), part.pending)
        };
        let parts = self.parts.iter().map(|part| &**part);
        let worst = parts.max_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| b.part_of.cmp(&a.part_of)))?;
        (rank(worst) > (Some(Health::Ok), 0, None, 0)).then_some(worst)
    }

    /// Returns one finding for each problem of the partitions, as the worst of them has it.
    fn findings_of_parts(&self, limits: &Limits) -> Vec<Finding> {
        let mut worst: Vec<(Finding, Severity, usize)> = Vec::new();
        for part in &self.parts {
            for mut finding in part.own_findings(limits) {
                finding.partition = part.part_of.as_ref().map(|part| part.number);
                let severity = (finding.health, part.size_of(finding.code));
                match worst.iter_mut().find(|(known, ..)| known.code == finding.code) {
                    None => worst.push((finding, severity, 1)),
                    Some((known, known_severity, count)) => {
                        *count += 1;
                        if severity > *known_severity {
                            (*known, *known_severity) = (finding, severity);
                        }
                    }
                }
            }
        }
        let with_partition = |(mut finding, _, count): (Finding, Severity, usize)| {
            let others = match count - 1 {
                0 => String::new(),
                others => {
                    format!(" ({} too)", counted(others as u64, "other partition", "other partitions"))
                }
            };
            if let Some(number) = finding.partition {
                finding.text = format!("partition {number}: {}{others}", finding.text);
            }
            finding
        };
        worst.into_iter().map(with_partition).collect()
    }

    /// Returns the number by which a finding of one partition is worse than that of another.
    fn size_of(&self, code: &str) -> u128 {
        let millis = |time: Option<Duration>| time.unwrap_or_default().as_millis();
        match code {
            "lag" => self.lag.count.into(),
            "missed" => self.missed.count.into(),
            "unread_age" => millis(self.unread_age()),
            "pending" => self.pending.into(),
            "pending_age" => millis(self.pending_age()),
            "pending_idle" => millis(self.scan.longest_idle),
            "stuck" => self.scan.stuck.into(),
            _ => self.dead_letters_length.into(),
        }
    }

    /// Returns the findings about entries. Those about consumers and workers are not among them.
    fn own_findings(&self, limits: &Limits) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.missed_finding().into_iter().collect();
        let mut find = |health: Health, code, text: String| {
            if health > Health::Ok {
                findings.push(Finding { health, code, consumer: None, partition: None, text });
            }
        };
        let at_least = if self.lag.is_exact() { "" } else { "at least " };
        find(
            self.unread_health(limits, limits.lag.health(&self.lag.count)),
            "lag",
            format!("{at_least}{}", counted(self.lag.count, "entry is unread", "entries are unread")),
        );
        if let Some(unread) = self.unread_age() {
            let text = format!("the oldest unread entry is {} old", age(unread));
            let health = self.unread_health(limits, limits.unread_age.health(&unread));
            find(health, "unread_age", text);
        }
        find(
            limits.pending.health(&self.pending),
            "pending",
            counted(self.pending, "entry is pending", "entries are pending"),
        );
        if let Some(pending) = self.pending_age() {
            let text = format!("the oldest pending entry was added {} ago", age(pending));
            find(limits.pending_age.health(&pending), "pending_age", text);
        }
        if let Some(idle) = &self.scan.longest_idle {
            let text = format!("a pending entry has been idle for {}", age(*idle));
            find(limits.pending_idle.health(idle), "pending_idle", text);
        }
        let at_least = if self.scan.complete { "" } else { "at least " };
        let stuck = counted(self.scan.stuck, "pending entry looks stuck", "pending entries look stuck");
        let text = format!("{at_least}{stuck}");
        find(limits.stuck.health(&self.scan.stuck), "stuck", text);
        let text = counted(
            self.dead_letters_length,
            "dead letter waits for a decision",
            "dead letters wait for a decision",
        );
        find(limits.dead_letters.health(&self.dead_letters_length), "dead_letters", text);
        findings
    }

    /// Returns a finding if the unread or the pending entries grow.
    fn growth_findings(&self) -> impl Iterator<Item = Finding> {
        let lag = self.lag_growth().map(|per_s| {
            let text = format!("the lag grows by {}/s: the group does not catch up", per_second(per_s));
            ("lag_grows", text)
        });
        let pending = self.pending_growth().map(|per_s| {
            let entries = counted(self.pending, "entry is pending", "entries are pending");
            ("pending_grows", format!("{entries}, and {} more each second", per_second(per_s)))
        });
        [lag, pending].into_iter().flatten().map(|(code, text)| Finding {
            health: Health::Degraded,
            code,
            consumer: None,
            partition: None,
            text,
        })
    }

    /// Returns findings about keys that wait, if workers order messages.
    fn lanes_findings(&self, limits: &Limits) -> impl Iterator<Item = Finding> {
        let lanes = self.lanes();
        let waiting = counted(
            lanes.blocked_messages,
            "message waits for an earlier one of its key",
            "messages wait for earlier ones of their keys",
        );
        let blocked = || {
            let keys = counted(lanes.failing_keys, "key has a first message", "keys have a first message");
            let times = counted(lanes.failed_attempts, "time", "times");
            format!("{keys} that fails, up to {times} so far; {waiting}")
        };
        let health = match lanes.failing_keys {
            0 => Health::Ok,
            _ => limits.failed_attempts.health(&lanes.failed_attempts),
        };
        let blocked = (health > Health::Ok).then(|| (health, "keys_blocked", blocked()));
        let full = (lanes.full_windows > 0).then(|| {
            let text = format!("a worker reads no further messages, because its window is full: {waiting}");
            (Health::Degraded, "window_full", text)
        });
        [blocked, full].into_iter().flatten().map(|(health, code, text)| Finding {
            health,
            code,
            consumer: None,
            partition: None,
            text,
        })
    }

    /// Caps the severity of unread entries at `worst_if_never_read` if no consumer has read from the group yet.
    fn unread_health(&self, limits: &Limits, health: Health) -> Health {
        if self.was_read() { health } else { health.min(limits.worst_if_never_read) }
    }

    /// Describes entries that a consumer could get now: unread ones, or released ones that are due. `None` if there are
    /// none.
    fn unserved(&self) -> Option<String> {
        match (self.lag.count, self.scan.released.saturating_sub(self.scan.waiting)) {
            (0, 0) => None,
            (0, due) => Some(counted(
                due,
                "pending entry is due and no consumer takes it",
                "pending entries are due and no consumer takes them",
            )),
            _ => Some("entries are unread and no consumer reads them".to_owned()),
        }
    }

    /// Whether a consumer is active. A worker whose handlers run for long does not read, but it is active.
    fn has_reader(&self, limits: &Limits) -> bool {
        let is_working =
            |worker: &WorkerInfo| worker.is_alive() && worker.heartbeat.state == WorkerState::Working;
        self.workers.iter().any(is_working)
            || self.consumers.iter().any(|consumer| consumer.idle < limits.consumer_idle)
    }

    /// Returns a finding if entries were removed before the group read them: critical if that still goes on, because
    /// the group is behind them. Otherwise, and if it is only possible, a remark.
    fn missed_finding(&self) -> Option<Finding> {
        let missed = self.missed;
        let removed = counted(
            missed.count,
            "entry was trimmed or deleted before this group read it",
            "entries were trimmed or deleted before this group read them",
        );
        let text = match missed.accuracy {
            MissedAccuracy::Unknown if !missed.is_ahead => return None,
            MissedAccuracy::Unknown => {
                "entries may have been trimmed or deleted before this group read them: the oldest entry is newer than the \
                 group's position"
                    .to_owned()
            }
            _ if missed.count == 0 => return None,
            MissedAccuracy::Exact => removed,
            MissedAccuracy::AtLeast => format!("at least {removed}"),
            MissedAccuracy::AtMost => format!("up to {removed}, or before it was created"),
        };
        let health = if missed.is_ahead && missed.count > 0 { Health::Critical } else { Health::Ok };
        Some(Finding { health, code: "missed", consumer: None, partition: None, text })
    }

    /// Returns a finding for each idle consumer without heartbeats: degraded if it has pending entries, otherwise ok.
    fn idle_consumers(&self, limits: &Limits) -> impl Iterator<Item = Finding> {
        let is_idle = |consumer: &&ConsumerInfo| {
            consumer.idle >= limits.consumer_idle && self.workers_of(&consumer.name).next().is_none()
        };
        let idle = self.consumers.iter().filter(is_idle);
        idle.map(|consumer| Finding {
            health: if consumer.pending > 0 { Health::Degraded } else { Health::Ok },
            code: "consumer_idle",
            consumer: Some(consumer.name.clone()),
            partition: None,
            text: format!(
                "consumer {} has been idle for {} with {}",
                consumer.name,
                age(consumer.idle),
                counted(consumer.pending, "pending entry", "pending entries"),
            ),
        })
    }

    /// Returns a finding for a worker that is dead, whose circuit breaker is open, or that waits for another one.
    fn worker_finding(&self, worker: &WorkerInfo) -> Option<Finding> {
        let Heartbeat { consumer, host, pid, state, .. } = &worker.heartbeat;
        let name = format!("worker {consumer} (host {host}, pid {pid})");
        let has_rival = || {
            self.workers_of(consumer).any(|other| {
                let ends = matches!(other.heartbeat.state, WorkerState::Waiting | WorkerState::Draining);
                other.is_alive() && !ends
            })
        };
        let (health, code, text) = match state {
            // Another process has taken over the name and the pending entries.
            _ if !worker.is_alive() && self.workers_of(consumer).any(WorkerInfo::is_alive) => return None,
            _ if !worker.is_alive() => {
                let owner = self.consumers.iter().find(|found| found.name == *consumer);
                let pending = owner.map_or(0, |found| found.pending);
                let text = format!(
                    "{name} has crashed or is frozen: its last heartbeat is {} old, and it has {}",
                    age(worker.age),
                    counted(pending, "pending entry", "pending entries")
                );
                (if pending > 0 { Health::Degraded } else { Health::Ok }, "worker_dead", text)
            }
            WorkerState::CircuitOpen => {
                let text = format!("the circuit breaker of {name} is open: all its handler calls fail");
                (Health::Degraded, "circuit_open", text)
            }
            WorkerState::Waiting if has_rival() => {
                let text =
                    format!("{name} does not start, because another live worker has its consumer name");
                (Health::Degraded, "name_in_use", text)
            }
            _ => return None,
        };
        Some(Finding { health, code, consumer: Some(consumer.clone()), partition: None, text })
    }
}

/// Keeps the first findings of each kind that name consumers, and counts the others: a group can have very many
/// consumers.
fn with_few_consumers(findings: Vec<Finding>) -> Vec<Finding> {
    let (mut kept, mut counts) =
        (Vec::with_capacity(findings.len()), Vec::<(Health, &'static str, u64)>::new());
    for finding in findings {
        if finding.consumer.is_some() {
            let (health, code) = (finding.health, finding.code);
            let at = counts.iter().position(|(of, kind, _)| (*of, *kind) == (health, code));
            let at = at.unwrap_or_else(|| {
                counts.push((health, code, 0));
                counts.len() - 1
            });
            counts[at].2 += 1;
            if counts[at].2 > CONSUMERS_NAMED_MAX {
                continue;
            }
        }
        kept.push(finding);
    }
    for (health, code, count) in counts {
        let Some(others) = count.checked_sub(CONSUMERS_NAMED_MAX).filter(|others| *others > 0) else {
            continue;
        };
        let text = match code {
            "consumer_idle" => counted(others, "more consumer is idle", "more consumers are idle"),
            "worker_dead" => counted(
                others,
                "more worker has crashed or is frozen",
                "more workers have crashed or are frozen",
            ),
            _ => counted(others, "more worker has this problem", "more workers have this problem"),
        };
        let last =
            kept.iter().rposition(|finding: &Finding| (finding.health, finding.code) == (health, code));
        let at = last.map_or(kept.len(), |last| last + 1);
        kept.insert(at, Finding { health, code, consumer: None, partition: None, text });
    }
    kept
}

/// Returns a finding if a handler call of a worker runs for too long. The worker extends its lease, so the entry is not
/// idle.
fn running_too_long(worker: &WorkerInfo) -> Option<Finding> {
    let Heartbeat { consumer, host, pid, running_id, .. } = &worker.heartbeat;
    let limit = worker.heartbeat.slow_after();
    let time = worker.heartbeat.running_for().filter(|time| *time >= limit)?;
    let text = format!(
        "worker {consumer} (host {host}, pid {pid}) has been handling message {running_id} for {}, which is longer than {}",
        age(time),
        age(limit)
    );
    let consumer = Some(consumer.clone());
    Some(Finding { health: Health::Degraded, code: "running", consumer, partition: None, text })
}

/// Formats a rate: `37`, `0.4`.
fn per_second(rate: f64) -> String {
    if rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}
