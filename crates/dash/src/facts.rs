//! What the dashboard knows about the server of the store without asking it for each request: its product, its
//! capabilities, and an hour of its figures. One task asks every ten seconds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millstream_worker::answers;
use millstream_worker::backend::ServerInfo;
use millstream_worker::observe::Sampler;
use millstream_worker::operate::doctor::{ServerFacts, capabilities};
use millstream_worker::operate::wording::millis_since_epoch;
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two requests to the server.
const INTERVAL: Duration = Duration::from_secs(10);
/// The names of fields of INFO about commands begin with this.
pub(crate) const COMMAND_PREFIX: &str = "cmdstat_";
/// Number of points of the history: an hour.
const POINTS_MAX: usize = 360;

#[derive(Debug, Default)]
pub(crate) struct Facts {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    product: Option<String>,
    has_server: Option<bool>,
    capabilities: Map<String, Value>,
    /// When the newest point was taken.
    at_ms: u64,
    points: VecDeque<Point>,
    /// The counters at the newest point.
    last: Option<Counters>,
    /// Calls of each command until the newest point, and per second in the last interval.
    commands: HashMap<String, (u64, Option<f64>)>,
}

/// Figures of the server in one interval. `None` if the server does not tell.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// The average time of a sync.
    sync_ms: Option<f64>,
    syncs_per_s: Option<f64>,
    ops_per_s: Option<f64>,
    memory_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    at: std::time::Instant,
    commands: Option<u64>,
    syncs: Option<u64>,
    /// Time of all syncs, in microseconds.
    sync_us: Option<u64>,
}

/// Asks the server at intervals until the dashboard stops or is dropped.
pub(crate) fn keep_asking(facts: &Arc<Facts>, sampler: Sampler, stopped: CancellationToken) {
    let facts = Arc::downgrade(facts);
    tokio::spawn(stopped.run_until_cancelled_owned(async move {
        while let Some(facts) = facts.upgrade() {
            facts.ask(&sampler).await;
            drop(facts);
            sleep(INTERVAL).await;
        }
    }));
}

impl Facts {
    async fn ask(&self, sampler: &Sampler) {
        let admin = sampler.admin();
        if self.known.read().capabilities.is_empty() {
            let look = sampler.look();
            let found = capabilities(&**admin, look.streams.first().map(|stream| &*stream.name)).await;
            let is_known = found.iter().any(|(_, _, native)| native.is_ok());
            let named = found
                .iter()
                .map(|(_, name, native)| ((*name).to_owned(), native.as_ref().ok().copied().into()));
            if is_known {
                self.known.write().capabilities = named.collect();
            }
        }
        if let Ok(info) = admin.server(&[]).await {
            self.known.write().add(info);
        }
    }

    pub(crate) fn product(&self) -> Option<String> {
        self.known.read().product.clone()
    }

    pub(crate) fn has_server(&self) -> Option<bool> {
        self.known.read().has_server
    }

    pub(crate) fn capabilities(&self) -> Map<String, Value> {
        self.known.read().capabilities.clone()
    }

    /// Returns the average time and the number of syncs per second in the last interval.
    pub(crate) fn syncs(&self) -> (Option<f64>, Option<f64>) {
        let known = self.known.read();
        known.points.back().map_or((None, None), |point| (point.sync_ms, point.syncs_per_s))
    }

    /// Returns how often per second a command was called in the last interval.
    pub(crate) fn calls_per_s(&self, command: &str) -> Option<f64> {
        self.known.read().commands.get(command)?.1
    }

    /// Returns the history of the server.
    pub(crate) fn series(&self) -> FactSeries {
        FactSeries::new(&self.known.read())
    }
}

answers! {
    /// The history of the server: one value of each series for each step. Null if the server does not tell.
    pub(crate) struct FactSeries(known: &Known) [
        let points = &known.points;
        let step = INTERVAL.as_millis() as u64;
    ] {
        step_ms: u64 = step,
        from_ms: u64 = known.at_ms.saturating_sub(step * (points.len() as u64).saturating_sub(1)),
        sync_ms: Vec<Option<f64>> = points.iter().map(|point| point.sync_ms).collect(),
        syncs_per_s: Vec<Option<f64>> = points.iter().map(|point| point.syncs_per_s).collect(),
        ops_per_s: Vec<Option<f64>> = points.iter().map(|point| point.ops_per_s).collect(),
        memory_bytes: Vec<Option<u64>> = points.iter().map(|point| point.memory_bytes).collect(),
    }
}

impl Known {
    fn add(&mut self, info: Option<ServerInfo>) {
        let calls =
            info.iter().flat_map(commands).map(|(name, figures)| (name.to_owned(), figures.calls)).collect();
        let facts = ServerFacts::new(info);
        self.has_server = Some(!facts.is_embedded());
        self.product = match facts.is_embedded() {
            true => Some(format!("millstream {} (embedded)", env!("CARGO_PKG_VERSION"))),
            false => facts.version(),
        };
        if facts.is_embedded() {
            return;
        }
        let number = |name: &str| facts.fact(name).and_then(|text| text.parse::<u64>().ok());
        let syncs = number("log_syncs");
        let now = Counters {
            at: std::time::Instant::now(),
            commands: number("total_commands_processed"),
            syncs,
            sync_us: number("log_sync_usec"),
        };
        let mut point = Point { memory_bytes: number("used_memory"), ..Point::default() };
        if let Some(last) = self.last {
            let seconds = now.at.duration_since(last.at).as_secs_f64().max(0.001);
            let grown = |now: Option<u64>, last: Option<u64>| Some(now?.checked_sub(last?)? as f64);
            let syncs = grown(now.syncs, last.syncs);
            point.ops_per_s = grown(now.commands, last.commands).map(|commands| commands / seconds);
            point.syncs_per_s = syncs.map(|syncs| syncs / seconds);
            let sync_us = grown(now.sync_us, last.sync_us);
            point.sync_ms =
                syncs.filter(|syncs| *syncs > 0.0).and_then(|syncs| Some(sync_us? / syncs / 1000.0));
        }
        self.count_calls(calls, self.last.map(|last| now.at.duration_since(last.at)));
        self.last = Some(now);
        self.at_ms = millis_since_epoch(SystemTime::now());
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    /// Notes the calls of each command, and how many there were per second since the last time. A command that was not
    /// called before began at 0; a counter that went back began anew.
    fn count_calls(&mut self, calls: Vec<(String, u64)>, since: Option<Duration>) {
        let seconds = since.map(|since| since.as_secs_f64().max(0.001));
        let before = std::mem::take(&mut self.commands);
        self.commands = calls
            .into_iter()
            .map(|(name, calls)| {
                let grown = calls.checked_sub(before.get(&name).map_or(0, |(calls, _)| *calls));
                let per_s = grown.zip(seconds).map(|(grown, seconds)| grown as f64 / seconds);
                (name, (calls, per_s))
            })
            .collect();
    }
}

/// What INFO says about a command.
pub(crate) struct CommandFacts {
    pub(crate) calls: u64,
    pub(crate) average_us: Option<f64>,
    /// Calls that were rejected or failed.
    pub(crate) errors: u64,
}

/// Returns the figures of commands, as far as INFO has them.
pub(crate) fn commands(info: &ServerInfo) -> impl Iterator<Item = (&str, CommandFacts)> {
    info.facts.iter().filter_map(|(name, text)| {
        let command = name.strip_prefix(COMMAND_PREFIX)?;
        let figures: HashMap<&str, &str> =
            text.split(',').filter_map(|figure| figure.split_once('=')).collect();
        let number = |name: &str| figures.get(name).and_then(|text| text.parse::<u64>().ok());
        let figures = CommandFacts {
            calls: number("calls")?,
            average_us: figures.get("usec_per_call").and_then(|text| text.parse().ok()),
            errors: number("rejected_calls").unwrap_or(0).saturating_add(number("failed_calls").unwrap_or(0)),
        };
        Some((command, figures))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_sync_is_that_of_the_last_interval() {
        let mut known = Known::default();
        for (syncs, sync_us) in [("1000000", "400000000"), ("1000010", "400040000"), ("1000010", "400040000")]
        {
            let facts = [("log_syncs", syncs), ("log_sync_usec", sync_us)];
            let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
            known.add(Some(ServerInfo { facts: facts.into(), settings: Default::default(), denied: None }));
        }
        let times: Vec<_> = known.points.iter().map(|point| point.sync_ms).collect();
        assert_eq!(times, [None, Some(4.0), None]);
    }

    #[test]
    fn calls_per_second_are_those_of_the_last_interval() {
        let mut known = Known::default();
        let mut count = |calls: &[(&str, u64)], since: Option<u64>| {
            let calls = calls.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect();
            known.count_calls(calls, since.map(Duration::from_secs));
            let mut rates: Vec<_> = known.commands.values().map(|(_, per_s)| *per_s).collect();
            rates.sort_by(|a, b| a.partial_cmp(b).unwrap());
            rates
        };
        assert_eq!(count(&[("xadd", 100)], None), [None]);
        assert_eq!(count(&[("xadd", 150), ("ping", 20)], Some(10)), [Some(2.0), Some(5.0)]);
        assert_eq!(count(&[("xadd", 3)], Some(10)), [None], "the server was restarted");
        assert_eq!(count(&[("xadd", 13)], Some(10)), [Some(1.0)]);
    }
}
