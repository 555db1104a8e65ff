//! Whether a group is well, and if not, why.

use std::fmt;
use std::time::Duration;

use super::snapshot::GroupSnapshot;

/// How well a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nothing to do.
    Ok,
    /// Someone should look at it.
    Degraded,
    /// Someone must look at it now.
    Critical,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Ok => "ok",
            Health::Degraded => "degraded",
            Health::Critical => "critical",
        })
    }
}

/// From where on something is no longer well. `None` never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold<T> {
    /// From here on degraded.
    pub degraded: Option<T>,
    /// From here on critical.
    pub critical: Option<T>,
}

impl<T: PartialOrd> Threshold<T> {
    /// Degraded and critical from these values on.
    pub const fn new(degraded: T, critical: T) -> Threshold<T> {
        Threshold { degraded: Some(degraded), critical: Some(critical) }
    }

    /// How well this value is.
    pub fn health(&self, value: &T) -> Health {
        let reached = |limit: &Option<T>| limit.as_ref().is_some_and(|limit| value >= limit);
        match (reached(&self.critical), reached(&self.degraded)) {
            (true, _) => Health::Critical,
            (false, true) => Health::Degraded,
            (false, false) => Health::Ok,
        }
    }
}

/// What is still well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Entries yet to read.
    pub lag: Threshold<u64>,
    /// How long the oldest entry yet to read has waited.
    pub unread_age: Threshold<Duration>,
    /// Entries pending.
    pub pending: Threshold<u64>,
    /// How long nobody has touched a pending entry.
    pub pending_idle: Threshold<Duration>,
    /// Messages that look stuck.
    pub stuck: Threshold<u64>,
    /// Dead letters.
    pub dead_letters: Threshold<u64>,
    /// From when on a consumer that does not ask is taken for gone.
    pub consumer_idle: Duration,
    /// The worst that unread entries can mean for a group that nobody has read from yet: it may just have been made.
    pub not_begun: Health,
}

impl Default for Limits {
    fn default() -> Limits {
        const MINUTE: Duration = Duration::from_secs(60);
        Limits {
            lag: Threshold::new(10_000, 100_000),
            unread_age: Threshold::new(MINUTE, 10 * MINUTE),
            pending: Threshold { degraded: Some(10_000), critical: None },
            pending_idle: Threshold::new(5 * MINUTE, 30 * MINUTE),
            stuck: Threshold { degraded: Some(1), critical: None },
            dead_letters: Threshold { degraded: Some(1), critical: None },
            consumer_idle: MINUTE,
            not_begun: Health::Degraded,
        }
    }
}

/// One thing that was found, and how bad it is. What is [`Health::Ok`] is a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub health: Health,
    /// A fixed word for programs: `lag`, `unread_age`, `pending`, `pending_idle`, `stuck`, `dead_letters`,
    /// `no_reader`, `consumer_idle`.
    pub code: &'static str,
    /// The consumer it is about, if it is about one.
    pub consumer: Option<String>,
    /// A sentence for people.
    pub text: String,
}

/// How well a group is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The worst of the findings.
    pub health: Health,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

impl Verdict {
    fn of(mut findings: Vec<Finding>) -> Verdict {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let health = findings.first().map_or(Health::Ok, |finding| finding.health);
        Verdict { health, findings }
    }

    /// Whether this was found.
    pub fn found(&self, code: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.code == code)
    }
}

/// The health, and the sentences of what is not well.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.health.fmt(f)?;
        let bad = self.findings.iter().filter(|finding| finding.health > Health::Ok);
        bad.enumerate().try_for_each(|(position, finding)| {
            write!(f, "{}{}", if position == 0 { ": " } else { "; " }, finding.text)
        })
    }
}

impl GroupSnapshot {
    /// How well the group is by these limits, and why.
    pub fn verdict(&self, limits: &Limits) -> Verdict {
        let mut findings = Vec::new();
        let mut find = |health: Health, code, text: String| {
            if health > Health::Ok {
                findings.push(Finding { health, code, consumer: None, text });
            }
        };
        find(
            self.unread_health(limits, limits.lag.health(&self.lag.count)),
            "lag",
            format!("{} entries are unread", self.lag),
        );
        if let Some(age) = self.unread_age() {
            let text = format!("the oldest unread entry is {} old", seconds(age));
            let health = self.unread_health(limits, limits.unread_age.health(&age));
            find(health, "unread_age", text);
        }
        find(
            limits.pending.health(&self.pending),
            "pending",
            format!("{} entries are pending", self.pending),
        );
        if let Some(idle) = &self.scan.longest_idle {
            let text = format!("nobody has touched a pending entry for {}", seconds(*idle));
            find(limits.pending_idle.health(idle), "pending_idle", text);
        }
        let at_least = if self.scan.complete { "" } else { "at least " };
        let text = match self.scan.stuck {
            1 => format!("{at_least}1 pending entry looks stuck"),
            stuck => format!("{at_least}{stuck} pending entries look stuck"),
        };
        find(limits.stuck.health(&self.scan.stuck), "stuck", text);
        let text = match self.dead_letters_length {
            1 => "1 dead letter waits for a decision".to_owned(),
            letters => format!("{letters} dead letters wait for a decision"),
        };
        find(limits.dead_letters.health(&self.dead_letters_length), "dead_letters", text);
        find(
            self.unread_health(limits, self.readers(limits)),
            "no_reader",
            "entries are unread and no consumer asks for them".to_owned(),
        );
        findings.extend(self.idle_consumers(limits));
        Verdict::of(findings)
    }

    /// What unread entries mean: no more than the limit for a group that nobody has read from yet.
    fn unread_health(&self, limits: &Limits, health: Health) -> Health {
        let has_begun = !self.consumers.is_empty() || self.pending > 0 || self.entries_read > Some(0);
        if has_begun { health } else { health.min(limits.not_begun) }
    }

    /// Unread entries that nobody asks for will stay unread.
    fn readers(&self, limits: &Limits) -> Health {
        let nobody = self.consumers.iter().all(|consumer| consumer.idle >= limits.consumer_idle);
        if nobody && self.lag.count > 0 { Health::Critical } else { Health::Ok }
    }

    /// A consumer that has gone with messages is a worry; one that has gone without is a remark.
    fn idle_consumers(&self, limits: &Limits) -> impl Iterator<Item = Finding> {
        let idle = self.consumers.iter().filter(|consumer| consumer.idle >= limits.consumer_idle);
        idle.map(|consumer| Finding {
            health: if consumer.pending > 0 { Health::Degraded } else { Health::Ok },
            code: "consumer_idle",
            consumer: Some(consumer.name.clone()),
            text: format!(
                "consumer {} has not asked for {} and holds {} {}",
                consumer.name,
                seconds(consumer.idle),
                consumer.pending,
                if consumer.pending == 1 { "entry" } else { "entries" }
            ),
        })
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
