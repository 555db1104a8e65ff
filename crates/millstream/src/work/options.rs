//! The options of `millstream work`, and the worker that is built from them.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::worker::BuildError;
use millstream_worker::{
    Admin, Autoscale, Backoff, BreakerPolicy, Dedupe, OnFailure, Worker, WorkerBuilder, WorkerName,
};

use super::HANDLER_HEADING;
use crate::ops::address::parse_address;
use crate::ops::group::start_of;
use crate::ops::time::{Position, parse_duration, parse_position};

/// The options that choose the handler of messages.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false, id = "runner")]
pub(super) struct HandlerOptions {
    /// Run a shell command for each message; its exit code decides the outcome
    #[arg(long, value_name = "CMD", value_parser = parse_command, help_heading = HANDLER_HEADING)]
    pub(super) exec: Option<String>,
    /// Run long-lived shell commands that read messages as JSON lines and answer each with a JSON line
    #[arg(long, value_name = "CMD", value_parser = parse_command, help_heading = HANDLER_HEADING)]
    pub(super) child: Option<String>,
    /// Post each message as JSON to a URL; the status of the response decides the outcome
    #[arg(long, value_name = "URL", help_heading = HANDLER_HEADING)]
    pub(super) http: Option<String>,
}

/// The options of the worker.
#[derive(Args, Clone, Debug)]
pub(super) struct WorkerOptions {
    /// Number of messages handled at the same time
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = parse_count, help_heading = "Pool")]
    concurrency: usize,
    /// Adjust the concurrency to the backlog, between MIN and MAX
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_bounds, conflicts_with = "concurrency", help_heading = "Pool")]
    autoscale: Option<RangeInclusive<usize>>,
    /// Maximum number of messages read ahead
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse_count, help_heading = "Pool")]
    prefetch: usize,
    /// Handle messages with the same value of this field one after the other, in the order of their ids; other messages
    /// run in parallel. One worker of the group owns the stream at a time, and others stand by [default: the field that
    /// 'partition create' named, if the stream has partitions]
    #[arg(long, value_name = "FIELD", value_parser = NonEmptyStringValueParser::new(), help_heading = "Order")]
    pub(super) order_by: Option<String>,
    /// Let one worker of the group own the stream at a time; others stand by. Without --order-by, messages run one
    /// after the other
    #[arg(long, help_heading = "Order")]
    exclusive: bool,
    /// What a failed message does to its key, if messages are ordered: 'block' makes the key wait until the message is
    /// done or a dead letter; with 'skip' the key goes on, and the message is retried later, out of order
    #[arg(long, value_name = "POLICY", default_value = "block", value_parser = parse_on_failure, help_heading = "Order")]
    on_failure: OnFailure,
    /// Maximum number of messages of each stream or partition that are read and not done, if messages are ordered
    #[arg(long, value_name = "N", default_value_t = WorkerBuilder::WINDOW, value_parser = parse_count, help_heading = "Order")]
    window: usize,
    /// Time after which other workers take over the messages of a worker that crashed; use the same lease for all
    /// workers of a group
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_lease, help_heading = "Pool")]
    lease: Duration,
    /// Fixed consumer name of this worker, reused after a restart [default: a name unique to this process]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Pool")]
    consumer: Option<String>,
    /// Maximum time to wait at the start for another live worker with the same --consumer; then exit with code 9
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration, requires = "consumer", help_heading = "Pool")]
    consumer_wait: Duration,
    /// Position at which a new group starts: earliest, latest, an id, a time, or a duration before now such as 10m
    #[arg(long, value_name = "POSITION", default_value = "earliest", value_parser = parse_position, help_heading = "Pool")]
    from: Position,
    /// Remove consumers of the group that have been inactive for this long, or 'never'; their messages are kept
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_reap, help_heading = "Pool")]
    reap: ReapAfter,

    /// Maximum time to handle a message; then the handler is stopped and the message is retried [default: no limit;
    /// 30s with --http]
    #[arg(long, value_name = "DURATION", value_parser = parse_limit, help_heading = "Failures")]
    pub(super) timeout: Option<Duration>,
    /// Report a message that is handled for longer than this: lag, doctor, top, metrics and the dashboard then call the
    /// group degraded [default: 1h; if 99 of 100 messages take less than 10s, ten times what they take, at least 1m]
    #[arg(long, value_name = "DURATION", value_parser = parse_limit, help_heading = "Failures")]
    slow_after: Option<Duration>,
    /// Wait before a retry: FIRST for the first retry, growing up to LONGEST; the message waits in the store
    #[arg(long, value_name = "FIRST..LONGEST", default_value = "1s..3h", value_parser = parse_backoff, help_heading = "Failures")]
    backoff: Backoff,
    /// Number of failed attempts after which a message becomes a dead letter
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Failures")]
    max_attempts: u64,
    /// Number of deliveries without an answer, because the worker died or froze, after which a message becomes a dead
    /// letter
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Failures")]
    max_deliveries: u64,
    /// Dead-letter stream [default: {STREAM}:dlq, in braces: {orders}:dlq]
    #[arg(long, value_name = "STREAM", value_parser = NonEmptyStringValueParser::new(), help_heading = "Failures")]
    pub(super) dlq: Option<String>,
    /// Open the circuit breaker after COUNT failed handler calls in a row, or 'off': the worker then stops reading, and
    /// probes with one message at a time until one succeeds
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = parse_breaker, help_heading = "Failures")]
    breaker: BreakerOption,
    /// Skip duplicates: a message that was already handled within this time is acknowledged without being handled
    /// again
    #[arg(long, value_name = "DURATION", value_parser = parse_limit, help_heading = "Failures")]
    dedupe: Option<Duration>,
    /// Field that identifies duplicates [default: the entry id]
    #[arg(long, value_name = "FIELD", value_parser = NonEmptyStringValueParser::new(), requires = "dedupe", help_heading = "Failures")]
    dedupe_field: Option<String>,

    /// Delete messages from the stream once every group has acknowledged them
    #[arg(long, help_heading = "Running")]
    delete_done: bool,
    /// Maximum time for running handlers to finish when the worker stops
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = parse_duration, help_heading = "Running")]
    pub(super) drain: Duration,
    /// Serve /livez, /readyz, /healthz and /metrics on this address; port 0 chooses a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, help_heading = "Running")]
    listen: Option<String>,
    /// Send no heartbeats: top, doctor and consumer ls do not show this worker, and no worker notices another one with
    /// the same --consumer
    #[arg(long, help_heading = "Running")]
    no_heartbeat: bool,
}

impl WorkerOptions {
    /// Whether a message that fails blocks its key, if messages are ordered.
    pub(super) fn blocks_keys(&self) -> bool {
        self.on_failure == OnFailure::Block
    }

    /// Returns a builder with these options. Streams, group and handler are still missing.
    pub(super) fn builder(&self, backend: &Arc<dyn Admin>) -> WorkerBuilder {
        let name = self.consumer.as_ref().map_or_else(WorkerName::unique, WorkerName::given);
        let mut worker = Worker::builder(backend.clone())
            .prefetch(self.prefetch)
            .lease(self.lease)
            .consumer_name(name)
            .consumer_wait(self.consumer_wait)
            .start(start_of(self.from))
            .reap(self.reap.0)
            .retry(self.backoff.clone())
            .max_attempts(self.max_attempts)
            .max_deliveries(self.max_deliveries)
            .breaker(self.breaker.0.clone())
            .delete_done(self.delete_done)
            .on_failure(self.on_failure)
            .window(self.window)
            .drain(self.drain);
        worker = match &self.autoscale {
            Some(bounds) => worker.autoscale(Autoscale::between(bounds.clone())),
            None => worker.concurrency(self.concurrency),
        };
        if let Some(time) = self.slow_after {
            worker = worker.slow_after(time);
        }
        if let Some(field) = &self.order_by {
            worker = worker.order_by(field);
        }
        if self.exclusive {
            worker = worker.exclusive();
        }
        if let Some(stream) = &self.dlq {
            worker = worker.dead_letter(stream);
        }
        if let Some(window) = self.dedupe {
            let dedupe = Dedupe::within(window);
            worker = worker.dedupe(match &self.dedupe_field {
                Some(field) => dedupe.by_field(field),
                None => dedupe,
            });
        }
        if self.no_heartbeat {
            worker = worker.heartbeat(None);
        }
        match &self.listen {
            Some(address) => worker.listen(address),
            None => worker,
        }
    }
}

/// Inactivity after which consumers are removed. `None` for never.
#[derive(Clone, Copy, Debug)]
struct ReapAfter(Option<Duration>);

fn parse_reap(text: &str) -> Result<ReapAfter, String> {
    if text == "never" { Ok(ReapAfter(None)) } else { parse_limit(text).map(|time| ReapAfter(Some(time))) }
}

/// When the circuit breaker opens. `None` for never.
#[derive(Clone, Debug, PartialEq)]
struct BreakerOption(Option<BreakerPolicy>);

fn parse_breaker(text: &str) -> Result<BreakerOption, String> {
    if text == "off" {
        return Ok(BreakerOption(None));
    }
    let count = text.parse().ok().filter(|count| *count > 0);
    let count = count.ok_or_else(|| "expected a whole number of at least 1, or 'off'".to_owned())?;
    Ok(BreakerOption(Some(BreakerPolicy::after(count))))
}

fn parse_on_failure(text: &str) -> Result<OnFailure, String> {
    match text {
        "block" => Ok(OnFailure::Block),
        "skip" => Ok(OnFailure::Skip),
        _ => Err("expected block or skip".to_owned()),
    }
}

fn parse_command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("the command is empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_duration(text)?;
    let enough = lease >= WorkerBuilder::LEASE_MIN;
    if enough { Ok(lease) } else { Err(BuildError::LeaseTooShort(lease).to_string()) }
}

pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

/// Parses a duration longer than zero.
fn parse_limit(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("expected a duration longer than 0".to_owned()),
        time => Ok(time),
    }
}

fn parse_bounds(text: &str) -> Result<RangeInclusive<usize>, String> {
    let bounds = text.split_once("..").and_then(|(min, max)| {
        let max = max.strip_prefix('=').unwrap_or(max);
        Some(parse_count(min).ok()?..=parse_count(max).ok()?)
    });
    let bounds = bounds.filter(|bounds| !bounds.is_empty());
    bounds.ok_or_else(|| "expected MIN..MAX, for example 2..32".to_owned())
}

/// Parses a range such as `1s..1m`, or `5s` for a constant wait.
fn parse_backoff(text: &str) -> Result<Backoff, String> {
    let invalid = |_| "expected FIRST..LONGEST, for example 1s..1m, or one duration such as 5s".to_owned();
    let Some((first, longest)) = text.split_once("..") else {
        return parse_duration(text).map(Backoff::fixed).map_err(invalid);
    };
    let (first, longest) =
        (parse_duration(first).map_err(invalid)?, parse_duration(longest).map_err(invalid)?);
    if longest < first {
        return Err("FIRST is longer than LONGEST; expected FIRST..LONGEST, for example 1s..1m".to_owned());
    }
    Ok(Backoff::exponential(first..longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_parsed() {
        assert_eq!(parse_bounds("2..32"), Ok(2..=32));
        assert_eq!(parse_bounds("1..=1"), Ok(1..=1));
        for invalid in ["", "2", "0..3", "5..2", "a..b", "2.."] {
            assert!(parse_bounds(invalid).unwrap_err().contains("2..32"), "{invalid}");
        }
    }

    #[test]
    fn leases_and_commands_are_checked() {
        assert_eq!(parse_lease("50ms"), Ok(Duration::from_millis(50)));
        assert!(parse_lease("49ms").unwrap_err().contains("lease must be at least 50 ms"));
        assert!(parse_command(" ").is_err() && parse_command("true").is_ok());
    }

    #[test]
    fn backoffs_are_parsed() {
        let second = Duration::from_secs(1);
        assert_eq!(parse_backoff("1s..1m"), Ok(Backoff::exponential(second..second * 60)));
        assert_eq!(parse_backoff("1s"), Ok(Backoff::fixed(second)));
        for invalid in ["1m..1s", "1..2", "1s-1m", "1s..", "5"] {
            assert!(parse_backoff(invalid).unwrap_err().contains("1s..1m"), "{invalid}");
        }
    }

    #[test]
    fn the_breaker_is_a_count_or_off() {
        assert_eq!(parse_breaker("20"), Ok(BreakerOption(Some(BreakerPolicy::default()))));
        assert_eq!(parse_breaker("off"), Ok(BreakerOption(None)));
        for invalid in ["", "0", "-1", "never", "1.5"] {
            assert!(parse_breaker(invalid).unwrap_err().contains("'off'"), "{invalid}");
        }
    }

    #[test]
    fn limits_of_zero_are_refused() {
        assert!(parse_limit("0s").is_err());
        assert_eq!(parse_reap("never").unwrap().0, None);
        assert_eq!(parse_reap("2h").unwrap().0, Some(Duration::from_secs(7200)));
    }
}
