//! Log lines about failed attempts and dead letters: one line each, and few lines for failures that are alike.
//!
//! A handler can fail thousands of times a second, each time with the same error. So an error gets at most
//! [`LINES_MAX`] lines in [`INTERVAL`]. Further failures are counted, and one line at the end of the interval has their
//! number. Errors that differ only in numbers and ids are the same error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use crate::backend::StreamId;
use crate::outcome::Outcome;
use crate::trace::TraceContext;
use crate::worker::message::{DeadLettering, Job, JobResult};
use crate::worker::stream::Subscription;

/// Maximum number of lines for an error in an interval.
const LINES_MAX: u32 = 10;
/// How long failures with the same error are counted together.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of errors that are counted separately. Further ones are counted together.
const ERRORS_MAX: usize = 100;
/// Maximum number of characters of an error in a line.
const ERROR_CHARS_MAX: usize = 500;
/// Number of characters by which errors are compared, after their numbers and ids are replaced.
const COMPARED_CHARS: usize = 200;

/// Writes the lines of a worker about failures.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    recent: Arc<Mutex<RecentFailures>>,
}

impl FailureLog {
    /// Logs a failed attempt. The next attempt is due after `next_attempt_in`.
    pub(crate) fn attempt_failed(
        &self,
        subscription: &Subscription,
        job: &Job,
        result: &JobResult,
        next_attempt_in: Duration,
    ) {
        let outcome = match result {
            JobResult::Outcome(outcome) | JobResult::Uncounted(outcome) => Some(outcome),
            _ => None,
        };
        let (error, kind) = match outcome {
            Some(Outcome::NotStarted(failure)) => (&*failure.error, "not_started"),
            Some(Outcome::Retry { failure: Some(failure), .. }) => (&*failure.error, failure.reason.as_str()),
            _ => ("the handler asked for a retry", "retry"),
        };
        if !self.admit(FailureKind::Attempt(kind), subscription, job.id, error) {
            return;
        }
        warn!(
            id = %job.id,
            stream = &*subscription.stream,
            group = &*subscription.group,
            attempt = job.attempt().number(),
            trace_id = TraceContext::of(&job.fields).map(|trace| display(trace.trace_id)),
            outcome = kind,
            error = &*cut(error, ERROR_CHARS_MAX),
            next_attempt_in_s = (next_attempt_in.as_secs_f64() * 10.0).round() / 10.0,
            "attempt failed"
        );
    }

    /// Logs a message that was moved to the dead letters.
    pub(crate) fn dead_lettered(&self, subscription: &Subscription, dead: &DeadLettering) {
        let DeadLettering { job, failure, .. } = dead;
        let reason = failure.reason.as_str();
        if !self.admit(FailureKind::DeadLetter(reason), subscription, job.id, &failure.error) {
            return;
        }
        error!(
            id = %job.id,
            stream = &*subscription.stream,
            group = &*subscription.group,
            attempt = job.attempt().number(),
            trace_id = TraceContext::of(&job.fields).map(|trace| display(trace.trace_id)),
            reason,
            error = &*cut(&failure.error, ERROR_CHARS_MAX),
            dead_letters = &*subscription.dead_letters(),
            "message dead-lettered{}",
            if job.origin.ownership.is_some() { ": the order of its key has a gap here" } else { "" }
        );
    }

    /// Logs how many failures got no line, without waiting for the end of their intervals.
    pub(crate) fn finish(&self) {
        let suppressed = self.recent.lock().take_ended(None);
        suppressed.iter().for_each(Suppressed::log);
    }

    /// Counts a failure. Returns whether it gets a line.
    fn admit(&self, kind: FailureKind, subscription: &Subscription, id: StreamId, error: &str) -> bool {
        let (stream, group) = (Arc::clone(&subscription.stream), Arc::clone(&subscription.group));
        self.count(Source { kind, stream, group, error: Some(compared(error)) }, id, error)
    }

    /// Counts a failure. Returns whether it gets a line. The first one that does not starts the timer that logs their
    /// number.
    fn count(&self, source: Source, id: StreamId, error: &str) -> bool {
        let mut recent = self.recent.lock();
        let is_admitted = recent.admit(source, id, error, Instant::now());
        if !is_admitted && !std::mem::replace(&mut recent.has_timer, true) {
            tokio::spawn(log_suppressed(Arc::clone(&self.recent)));
        }
        is_admitted
    }
}

/// Logs the number of suppressed lines at the end of each interval, until no interval has any.
async fn log_suppressed(recent: Arc<Mutex<RecentFailures>>) {
    loop {
        let (suppressed, next) = {
            let mut recent = recent.lock();
            let suppressed = recent.take_ended(Some(Instant::now()));
            let next = recent.next_end();
            recent.has_timer = next.is_some();
            (suppressed, next)
        };
        suppressed.iter().for_each(Suppressed::log);
        let Some(next) = next else { return };
        sleep_until(next).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FailureKind {
    Attempt(&'static str),
    DeadLetter(&'static str),
}

/// What the limit on lines applies to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    kind: FailureKind,
    stream: Arc<str>,
    group: Arc<str>,
    /// The error without its numbers and ids. `None` for all errors beyond [`ERRORS_MAX`], whatever their stream.
    error: Option<String>,
}

#[derive(Debug, Default)]
struct RecentFailures {
    by_source: BTreeMap<Source, Recent>,
    /// Whether a task waits for the end of an interval.
    has_timer: bool,
}

/// The failures of one source in its current interval.
#[derive(Debug)]
struct Recent {
    ends: Instant,
    lines: u32,
    suppressed: u64,
    /// The last failure that got no line.
    last: Option<(StreamId, String)>,
}

/// Failures of one source that got no line.
#[derive(Debug, PartialEq, Eq)]
struct Suppressed {
    source: Source,
    count: u64,
    last_id: StreamId,
    last_error: String,
}

impl RecentFailures {
    /// Counts a failure. Returns whether it gets a line.
    fn admit(&mut self, mut source: Source, id: StreamId, error: &str, now: Instant) -> bool {
        if self.by_source.get(&source).is_some_and(|recent| recent.is_over(now) && recent.suppressed == 0) {
            self.by_source.remove(&source);
        }
        if !self.by_source.contains_key(&source) && self.by_source.len() >= ERRORS_MAX {
            self.by_source.retain(|_, recent| !recent.is_over(now) || recent.suppressed > 0);
            if self.by_source.len() >= ERRORS_MAX {
                source = Source { stream: "*".into(), error: None, ..source };
            }
        }
        let new = Recent { ends: now + INTERVAL, lines: 0, suppressed: 0, last: None };
        let recent = self.by_source.entry(source).or_insert(new);
        if recent.lines < LINES_MAX {
            recent.lines += 1;
            return true;
        }
        recent.suppressed += 1;
        recent.last = Some((id, cut(error, ERROR_CHARS_MAX)));
        false
    }

    /// Removes the intervals that are over, or all of them without `now`. Returns those with suppressed lines.
    fn take_ended(&mut self, now: Option<Instant>) -> Vec<Suppressed> {
        let mut ended = Vec::new();
        self.by_source.retain(|source, recent| {
            let is_over = now.is_none_or(|now| recent.is_over(now));
            if let Some((last_id, last_error)) = recent.last.take_if(|_| is_over) {
                let (source, count) = (source.clone(), recent.suppressed);
                ended.push(Suppressed { source, count, last_id, last_error });
            }
            !is_over
        });
        ended
    }

    /// Returns when the next interval with suppressed lines ends.
    fn next_end(&self) -> Option<Instant> {
        self.by_source.values().filter(|recent| recent.suppressed > 0).map(|recent| recent.ends).min()
    }
}

impl Recent {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }
}

impl Suppressed {
    fn log(&self) {
        let Suppressed { source, count, last_id, last_error } = self;
        let (stream, group, error) = (&*source.stream, &*source.group, &**last_error);
        let alike = if source.error.is_some() { "the same error" } else { "other errors" };
        match source.kind {
            FailureKind::Attempt(outcome) => {
                warn!(suppressed = count, %last_id, stream, group, outcome, error, "more attempts failed with {alike}");
            }
            FailureKind::DeadLetter(reason) => {
                error!(
                    suppressed = count, %last_id, stream, group, reason, error,
                    "more messages dead-lettered with {alike}"
                );
            }
        }
    }
}

/// Returns an error without its numbers and ids, cut to the length by which errors are compared.
///
/// A word of letters, digits, `-` and `_` that has a digit becomes `#`.
fn compared(error: &str) -> String {
    let mut text = String::new();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut rest = error;
    while !rest.is_empty() && text.len() < COMPARED_CHARS {
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        text.push_str(if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
        rest = &rest[word.len()..];
        let between = &rest[..rest.find(is_part).unwrap_or(rest.len())];
        text.push_str(between);
        rest = &rest[between.len()..];
    }
    cut(&text, COMPARED_CHARS)
}

/// Returns the first characters of a text, with `…` if there are more.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(error: &str) -> Source {
        Source {
            kind: FailureKind::Attempt("failed"),
            stream: "orders".into(),
            group: "billing".into(),
            error: Some(compared(error)),
        }
    }

    /// Counts failures with ids from 1. Returns how many get a line.
    fn admitted(recent: &mut RecentFailures, errors: impl Iterator<Item = String>, now: Instant) -> usize {
        let admit =
            |(n, error): (u64, String)| recent.admit(source(&error), StreamId::new(n, 0), &error, now);
        (1..).zip(errors).map(admit).filter(|is_admitted| *is_admitted).count()
    }

    #[test]
    fn numbers_and_ids_do_not_make_another_error() {
        let pairs = [
            ("order 17: no stock", "order 18: no stock"),
            ("request 7f3a-11e9: down", "request 0b44-22aa: down"),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c8 is gone", "7ba7b811-0aad-21d1-90b4-10c04fd430c9 is gone"),
            ("10:20:30.5 user42@host: no", "11:21:31.6 user9@host: no"),
            (&*format!("{}a", "x".repeat(COMPARED_CHARS)), &*format!("{}b", "x".repeat(COMPARED_CHARS))),
        ];
        for (one, other) in pairs {
            assert_eq!(compared(one), compared(other), "{one}");
        }
        assert_eq!(compared("order 17: no stock"), "order #: no stock");
        assert_ne!(compared("no stock"), compared("no such item"));
    }

    #[test]
    fn an_error_gets_a_limited_number_of_lines_and_then_their_count() {
        let (mut recent, began) = (RecentFailures::default(), Instant::now());
        let errors = || (1..).map(|n| format!("order {n}: down"));
        let most = LINES_MAX as usize;
        assert_eq!(admitted(&mut recent, errors().take(most), began), most);
        assert_eq!(recent.next_end(), None);
        assert_eq!(admitted(&mut recent, errors().take(3), began), 0);
        assert_eq!(recent.next_end(), Some(began + INTERVAL));
        let before = began + INTERVAL - Duration::from_millis(1);
        assert_eq!(recent.take_ended(Some(before)), []);
        let [suppressed] = &recent.take_ended(Some(began + INTERVAL))[..] else { panic!("one error") };
        assert_eq!((suppressed.count, suppressed.last_id), (3, StreamId::new(3, 0)));
        assert_eq!(suppressed.last_error, "order 3: down");
        // The next interval has lines again.
        assert_eq!(admitted(&mut recent, errors().take(most + 1), began + INTERVAL), most);
        assert_eq!(recent.take_ended(None)[0].count, 1);
        assert!(recent.by_source.is_empty());
    }

    #[test]
    fn errors_beyond_the_limit_share_their_lines() {
        let (mut recent, began) = (RecentFailures::default(), Instant::now());
        let letters = |n: usize| "x".repeat(n);
        let errors = (1..=ERRORS_MAX).map(letters);
        assert_eq!(admitted(&mut recent, errors, began), ERRORS_MAX);
        let more = (ERRORS_MAX + 1..=ERRORS_MAX + 50).map(letters);
        assert_eq!(admitted(&mut recent, more, began), LINES_MAX as usize);
        assert_eq!(recent.by_source.len(), ERRORS_MAX + 1);
        let suppressed = recent.take_ended(None);
        assert_eq!((suppressed[0].count, &suppressed[0].source.error), (40, &None));
        // Errors of intervals that are over make room.
        let errors = (1..=ERRORS_MAX).map(letters);
        assert_eq!(admitted(&mut recent, errors, began), ERRORS_MAX);
        assert_eq!(admitted(&mut recent, ["new".to_owned()].into_iter(), began + INTERVAL), 1);
        assert_eq!(recent.by_source.len(), 1);
    }

    #[test]
    fn an_interval_that_is_over_without_suppressed_lines_begins_again() {
        let (mut recent, began) = (RecentFailures::default(), Instant::now());
        let errors = || std::iter::repeat_n("down".to_owned(), LINES_MAX as usize);
        assert_eq!(admitted(&mut recent, errors(), began), LINES_MAX as usize);
        assert_eq!(admitted(&mut recent, errors(), began + INTERVAL), LINES_MAX as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_takes_the_number_of_suppressed_lines_at_the_end_of_the_interval() {
        let log = FailureLog::default();
        let fail = || (0..=LINES_MAX).filter(|_| !log.count(source("down"), StreamId::MIN, "down")).count();
        for _ in 0..2 {
            assert_eq!(fail(), 1);
            assert!(log.recent.lock().has_timer);
            tokio::time::sleep(INTERVAL + Duration::from_millis(1)).await;
            let recent = log.recent.lock();
            assert!(recent.by_source.is_empty() && !recent.has_timer, "{recent:?}");
        }
    }

    #[test]
    fn long_errors_are_cut() {
        assert_eq!(cut("héllo", 5), "héllo");
        assert_eq!(cut("héllo", 4), "héll…");
    }
}
