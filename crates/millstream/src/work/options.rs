//! The options of `millstream work`, and the worker that they describe.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::worker::BuildError;
use millstream_worker::{Admin, Autoscale, Backoff, Dedupe, Worker, WorkerBuilder, WorkerName};

use crate::ops::address::parse_address;
use crate::ops::group::start_of;
use crate::ops::time::{Position, parse_duration, parse_position};

/// What a message is handed to.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false, id = "runner")]
pub(super) struct Handling {
    /// Run a shell command for each message: JSON on its standard input, fields in its environment, its exit code decides
    #[arg(long, value_name = "CMD", value_parser = parse_command, help_heading = "What to do with a message")]
    pub(super) exec: Option<String>,
    /// Keep shell commands running that read a message from each line and answer each with a line of JSON
    #[arg(long, value_name = "CMD", value_parser = parse_command, help_heading = "What to do with a message")]
    pub(super) child: Option<String>,
    /// Post each message as JSON to a URL: 2xx acknowledges, 4xx rejects, anything else tries again
    #[arg(long, value_name = "URL", help_heading = "What to do with a message")]
    pub(super) http: Option<String>,
}

/// How a pool works.
#[derive(Args, Clone, Debug)]
pub(super) struct Pool {
    /// How many messages are handled at the same time
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = parse_count, help_heading = "Pool")]
    concurrency: usize,
    /// As many at the same time as the backlog asks for, between two bounds
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_bounds, conflicts_with = "concurrency", help_heading = "Pool")]
    autoscale: Option<RangeInclusive<usize>>,
    /// The most messages read ahead
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse_count, help_heading = "Pool")]
    prefetch: usize,
    /// How long a worker may be silent before others take over its messages; the same for all workers of a group
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_lease, help_heading = "Pool")]
    lease: Duration,
    /// The name of this worker in its group, kept over restarts; by default unique to this process
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Pool")]
    consumer: Option<String>,
    /// Where the group begins if it has to be made: earliest, latest, an id, a moment, or how long ago
    #[arg(long, value_name = "POSITION", default_value = "earliest", value_parser = parse_position, help_heading = "Pool")]
    from: Position,
    /// Remove consumers of the group that nobody has heard of for so long, or `never`; what they left is kept
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_reap, help_heading = "Pool")]
    reap: Reap,

    /// How long a message may take; then it is stopped and tried again [default: no limit, 30s for --http]
    #[arg(long, value_name = "DURATION", value_parser = parse_limit, help_heading = "Failures")]
    pub(super) timeout: Option<Duration>,
    /// How long a message waits before it is tried again: from the first to the longest wait
    #[arg(long, value_name = "FIRST..LONGEST", default_value = "1s..1m", value_parser = parse_backoff, help_heading = "Failures")]
    backoff: Backoff,
    /// How often a message is delivered before it goes to the dead letters
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Failures")]
    max_deliveries: u64,
    /// The stream for dead letters [default: {STREAM}:dlq]
    #[arg(long, value_name = "STREAM", value_parser = NonEmptyStringValueParser::new(), help_heading = "Failures")]
    pub(super) dlq: Option<String>,
    /// The most messages that wait here to be tried again
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = parse_count, help_heading = "Failures")]
    waiting: usize,
    /// Acknowledge without handling what was processed within so long
    #[arg(long, value_name = "DURATION", value_parser = parse_limit, help_heading = "Failures")]
    dedupe: Option<Duration>,
    /// The field that tells messages apart; without it the id of the entry does
    #[arg(long, value_name = "FIELD", value_parser = NonEmptyStringValueParser::new(), requires = "dedupe", help_heading = "Failures")]
    dedupe_field: Option<String>,

    /// How long running messages may take to finish when the worker ends
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = parse_duration, help_heading = "Running")]
    drain: Duration,
    /// Serve /livez, /readyz, /healthz and /metrics here; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, help_heading = "Running")]
    listen: Option<String>,
}

impl Pool {
    /// The worker to be, but for its streams, its group and its handler.
    pub(super) fn worker(&self, backend: &Arc<dyn Admin>) -> WorkerBuilder {
        let name = self.consumer.as_ref().map_or_else(WorkerName::unique, WorkerName::given);
        let mut worker = Worker::builder(backend.clone())
            .prefetch(self.prefetch)
            .lease(self.lease)
            .consumer_name(name)
            .start(start_of(self.from))
            .reap(self.reap.0)
            .retry(self.backoff.clone())
            .max_deliveries(self.max_deliveries)
            .waiting(self.waiting)
            .drain(self.drain);
        worker = match &self.autoscale {
            Some(bounds) => worker.autoscale(Autoscale::between(bounds.clone())),
            None => worker.concurrency(self.concurrency),
        };
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
        match &self.listen {
            Some(address) => worker.listen(address),
            None => worker,
        }
    }
}

/// When consumers that are gone are removed; `None` for never.
#[derive(Clone, Copy, Debug)]
struct Reap(Option<Duration>);

fn parse_reap(text: &str) -> Result<Reap, String> {
    if text == "never" { Ok(Reap(None)) } else { parse_limit(text).map(|time| Reap(Some(time))) }
}

fn parse_command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("there is nothing to run".to_owned()) } else { Ok(text.to_owned()) }
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_duration(text)?;
    let enough = lease >= WorkerBuilder::LEASE_MIN;
    if enough { Ok(lease) } else { Err(BuildError::LeaseTooShort(lease).to_string()) }
}

pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("{text:?} is no number of at least 1"))
}

/// A duration that is not zero.
fn parse_limit(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("no time at all; leave it out for no limit".to_owned()),
        time => Ok(time),
    }
}

fn parse_bounds(text: &str) -> Result<RangeInclusive<usize>, String> {
    let bounds = text.split_once("..").and_then(|(min, max)| {
        let max = max.strip_prefix('=').unwrap_or(max);
        Some(parse_count(min).ok()?..=parse_count(max).ok()?)
    });
    let bounds = bounds.filter(|bounds| !bounds.is_empty());
    bounds.ok_or_else(|| format!("{text:?} are no bounds; write them as 2..32"))
}

/// `1s..1m`, or `5s` for the same wait each time.
fn parse_backoff(text: &str) -> Result<Backoff, String> {
    let Some((first, longest)) = text.split_once("..") else {
        return parse_duration(text).map(Backoff::fixed);
    };
    let (first, longest) = (parse_duration(first)?, parse_duration(longest)?);
    if longest < first {
        return Err(format!("{text:?} begins longer than it ends; write it as 1s..1m"));
    }
    Ok(Backoff::exponential(first..longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        assert_eq!(parse_bounds("2..32"), Ok(2..=32));
        assert_eq!(parse_bounds("1..=1"), Ok(1..=1));
        for wrong in ["", "2", "0..3", "5..2", "a..b", "2.."] {
            assert!(parse_bounds(wrong).unwrap_err().contains("2..32"), "{wrong}");
        }
    }

    #[test]
    fn leases_and_commands_are_checked() {
        assert_eq!(parse_lease("50ms"), Ok(Duration::from_millis(50)));
        assert!(parse_lease("49ms").unwrap_err().starts_with("a lease must be at least 50 ms"));
        assert!(parse_command(" ").is_err() && parse_command("true").is_ok());
    }

    #[test]
    fn waits_are_read() {
        let second = Duration::from_secs(1);
        assert_eq!(parse_backoff("1s..1m"), Ok(Backoff::exponential(second..second * 60)));
        assert_eq!(parse_backoff("1s"), Ok(Backoff::fixed(second)));
        assert!(parse_backoff("1m..1s").unwrap_err().contains("1s..1m"));
        assert!(parse_backoff("1..2").is_err());
    }

    #[test]
    fn a_limit_of_nothing_is_none() {
        assert!(parse_limit("0s").is_err());
        assert_eq!(parse_reap("never").unwrap().0, None);
        assert_eq!(parse_reap("2h").unwrap().0, Some(Duration::from_secs(7200)));
    }
}
