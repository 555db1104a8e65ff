//! Heartbeats: what each running worker of a group publishes in the store, and how to read it.
//!
//! Every five seconds a worker sets one field of the hash that [`workers_key`] names. The field is
//! the worker's instance id, which no other process has. The value is a [`Heartbeat`] as JSON. A worker that drains
//! removes its field. The field of a worker that crashed stays for [`KEPT_FOR`]; then another worker removes it.
//!
//! Nothing depends on a heartbeat but the check of [consumer names](crate::WorkerName): otherwise, without heartbeats,
//! workers deliver the same messages at the same times.
//!
//! All times in a heartbeat are those of the store ([`now_ms`](crate::backend::ReadMessages::now_ms)). So a reader on
//! any machine computes the right age of a heartbeat, even if the clocks of the machines differ.
//!
//! ```json
//! {"consumer":"worker-1","host":"web-3","pid":412,"process":"…","version":"0.1.0","handler":"exec","state":"working",
//!  "slots":8,"slots_max":8,"busy":3,"prefetched":12,"received":900,"acknowledged":880,"retried":4,"dead":1,
//!  "running_since_ms":1760000400000,"running_id":"1760000399000-0","slow_after_ms":3600000,"lanes":{},
//!  "listen":"127.0.0.1:9091","started_at_ms":1760000000000,"beat_at_ms":1760000500000,"interval_ms":5000}
//! ```

mod process;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Error, ErrorKind};
use crate::names::workers_key;

pub(crate) use process::this_process;

/// How often a worker sends a heartbeat.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// The longest time between two heartbeats. A heartbeat that announces a longer one is judged by this one, so that no
/// value in the store looks alive for ever.
pub const INTERVAL_MAX: Duration = Duration::from_secs(5 * 60);
/// How long the heartbeat of a crashed worker stays in the store. No worker waits for the sender of an older heartbeat.
pub const KEPT_FOR: Duration = Duration::from_secs(60 * 60);
/// How long a handler call can run before tools report it, if neither the operator nor the duration of other calls
/// decides it.
pub const SLOW_AFTER: Duration = Duration::from_secs(60 * 60);
/// How much later than two intervals a heartbeat can arrive before the worker counts as dead.
const GRACE: Duration = Duration::from_secs(1);

/// What a worker publishes about itself.
///
/// The numbers are those of the whole process, which can read several streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Heartbeat {
    /// The unique id of the worker: the field of the hash.
    #[serde(skip)]
    pub instance: String,
    /// The consumer name of the worker.
    pub consumer: String,
    /// The name of its host.
    pub host: String,
    /// The id of its process.
    pub pid: u32,
    /// What distinguishes its process from others with the same id, on this and other machines. Empty if unknown.
    pub process: String,
    /// The version of the worker runtime.
    pub version: String,
    /// The name of its handler, as in metrics: `exec`, `child`, `http`, or the name of a function.
    pub handler: String,
    /// What the worker does now.
    pub state: WorkerState,
    /// Number of handler calls that can run at the same time.
    pub slots: u64,
    /// Maximum number of slots that autoscaling allows.
    pub slots_max: u64,
    /// Number of slots that run a handler.
    pub busy: u64,
    /// Number of messages read ahead.
    pub prefetched: u64,
    /// Number of messages received since the start.
    pub received: u64,
    /// Number of messages acknowledged since the start.
    pub acknowledged: u64,
    /// Number of failed attempts since the start that were followed by a back-off.
    pub retried: u64,
    /// Number of messages dead-lettered since the start.
    pub dead: u64,
    /// When the longest-running handler call began, in milliseconds since 1970 by the clock of the store. 0 if
    /// none runs for a message of this stream.
    pub running_since_ms: u64,
    /// The id of its message, or of the first message of its batch.
    pub running_id: String,
    /// How long a handler call can run before tools report it, in milliseconds. 0 if unknown.
    pub slow_after_ms: u64,
    /// What the lanes of this stream hold, if the worker orders messages.
    pub lanes: LanesInfo,
    /// The address of its health checks and metrics. `None` if it serves none.
    pub listen: Option<String>,
    /// When the worker started, in milliseconds since 1970 by the clock of the store.
    pub started_at_ms: u64,
    /// When it sent this heartbeat, in milliseconds since 1970 by the clock of the store.
    pub beat_at_ms: u64,
    /// Time between two of its heartbeats, in milliseconds.
    pub interval_ms: u64,
}

/// What a worker that orders messages by key has in hand of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LanesInfo {
    /// Number of keys with messages that wait for earlier ones.
    pub blocked_keys: u64,
    /// Number of these messages.
    pub blocked_messages: u64,
    /// Number of keys whose first message has failed and is retried.
    pub failing_keys: u64,
    /// Greatest number of failed attempts of one of these messages.
    pub failed_attempts: u64,
    /// Number of partitions, or streams, that the worker has not read for at least ten seconds, because messages that
    /// wait fill the window.
    pub full_windows: u64,
}

impl LanesInfo {
    /// Adds what the lanes of another partition hold.
    pub(crate) fn add(&mut self, other: LanesInfo) {
        let LanesInfo { blocked_keys, blocked_messages, failing_keys, failed_attempts, full_windows } = other;
        self.blocked_keys = self.blocked_keys.saturating_add(blocked_keys);
        self.blocked_messages = self.blocked_messages.saturating_add(blocked_messages);
        self.failing_keys = self.failing_keys.saturating_add(failing_keys);
        self.failed_attempts = self.failed_attempts.max(failed_attempts);
        self.full_windows = self.full_windows.saturating_add(full_windows);
    }
}

/// What a worker does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// It waits until another worker with its consumer name has ended. It does not read messages yet.
    Waiting,
    /// It owns no stream: other workers of the group own all of them. It takes over when one of them ends.
    Standby,
    /// It reads messages and runs handlers.
    Working,
    /// It is paused: running handlers continue.
    Paused,
    /// Its circuit breaker is open: all messages failed, and it only probes whether the next one succeeds.
    CircuitOpen,
    /// It shuts down: running handlers finish.
    Draining,
    /// A state that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl WorkerState {
    /// Returns the name of the state, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerState::Waiting => "waiting",
            WorkerState::Standby => "standby",
            WorkerState::Working => "working",
            WorkerState::Paused => "paused",
            WorkerState::CircuitOpen => "circuit_open",
            WorkerState::Draining => "draining",
            WorkerState::Unknown => "unknown",
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Heartbeat {
    /// Parses the JSON form. `None` if the value is not a heartbeat.
    pub fn parse(instance: &str, json: &[u8]) -> Option<Heartbeat> {
        let heartbeat: Heartbeat = serde_json::from_slice(json).ok()?;
        Some(Heartbeat { instance: instance.to_owned(), ..heartbeat })
    }

    /// Returns the JSON form.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns how long a worker can be silent before it counts as dead: two intervals and a second, at most two
    /// [`INTERVAL_MAX`] and a second.
    pub fn silence_max(&self) -> Duration {
        Duration::from_millis(self.interval_ms).min(INTERVAL_MAX) * 2 + GRACE
    }

    /// Returns for how long a handler call had been running, at least, when the worker sent this heartbeat. `None` if
    /// none ran.
    pub fn running_for(&self) -> Option<Duration> {
        let since_ms = Some(self.running_since_ms).filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(self.beat_at_ms.saturating_sub(since_ms)))
    }

    /// Returns how long a handler call can run before tools report it.
    pub fn slow_after(&self) -> Duration {
        if self.slow_after_ms == 0 { SLOW_AFTER } else { Duration::from_millis(self.slow_after_ms) }
    }

    /// Whether the worker's process ran on this machine and has ended. False if that is not known.
    pub(crate) fn process_has_ended(&self) -> bool {
        process::has_ended(self.pid, &self.process)
    }
}

/// A worker, as its last heartbeat describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The last heartbeat of the worker.
    pub heartbeat: Heartbeat,
    /// Time since that heartbeat. A heartbeat from the future is as wrong as one from the past: its age is the
    /// time until then.
    pub age: Duration,
}

impl WorkerInfo {
    /// Describes a worker at this time of the store.
    fn at(heartbeat: Heartbeat, now_ms: u64) -> WorkerInfo {
        WorkerInfo { age: Duration::from_millis(now_ms.abs_diff(heartbeat.beat_at_ms)), heartbeat }
    }

    /// Whether the worker has sent a heartbeat recently enough. If not, it has crashed, is frozen, or cannot reach the
    /// store.
    pub fn is_alive(&self) -> bool {
        self.age <= self.heartbeat.silence_max()
    }
}

/// Returns the heartbeats of a group's workers, sorted by consumer name and start time. Fields with other values are
/// left out.
pub(crate) async fn read(backend: &dyn Backend, stream: &str, group: &str) -> Result<Vec<Heartbeat>, Error> {
    Ok(parse_all(&backend.hash_get_all(&workers_key(stream, group)).await?))
}

/// Returns the workers whose heartbeats are in these fields of a hash, at this time of the store.
pub(crate) fn workers_at(fields: &[(String, Bytes)], now_ms: u64) -> Vec<WorkerInfo> {
    parse_all(fields).into_iter().map(|heartbeat| WorkerInfo::at(heartbeat, now_ms)).collect()
}

fn parse_all(fields: &[(String, Bytes)]) -> Vec<Heartbeat> {
    let mut heartbeats: Vec<Heartbeat> =
        fields.iter().filter_map(|(instance, json)| Heartbeat::parse(instance, json)).collect();
    heartbeats.sort_by(|a, b| {
        let order = |heartbeat: &Heartbeat| (heartbeat.started_at_ms, heartbeat.instance.clone());
        a.consumer.cmp(&b.consumer).then_with(|| order(a).cmp(&order(b)))
    });
    heartbeats
}

/// Returns the workers of a group that send heartbeats or have crashed recently, sorted by consumer name and start
/// time.
pub async fn workers(backend: &dyn Backend, stream: &str, group: &str) -> Result<Vec<WorkerInfo>, Error> {
    let heartbeats = read(backend, stream, group).await?;
    if heartbeats.is_empty() {
        return Ok(Vec::new());
    }
    let now_ms = backend.now_ms(stream).await?;
    Ok(heartbeats.into_iter().map(|heartbeat| WorkerInfo::at(heartbeat, now_ms)).collect())
}

/// Like [`workers`], but returns no workers if the user may not read heartbeats, or if their key is not a hash.
///
/// For tools that show heartbeats beside other things.
pub async fn known_workers(
    backend: &dyn Backend,
    stream: &str,
    group: &str,
) -> Result<Vec<WorkerInfo>, Error> {
    match workers(backend, stream, group).await {
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::WrongType) => Ok(Vec::new()),
        workers => workers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_returns_what_to_json_wrote() {
        let heartbeat = Heartbeat {
            instance: "web-3-412-00ff00".into(),
            consumer: "a \"b\"\n".into(),
            pid: 412,
            state: WorkerState::Draining,
            listen: Some("127.0.0.1:9091".into()),
            beat_at_ms: 1_760_000_000_000,
            interval_ms: 5000,
            ..Heartbeat::default()
        };
        assert_eq!(Heartbeat::parse("web-3-412-00ff00", heartbeat.to_json().as_bytes()), Some(heartbeat));
    }

    #[test]
    fn a_heartbeat_of_another_version_is_read_as_far_as_possible() {
        let newer = br#"{"consumer":"a","state":"dreaming","later":[1]}"#;
        let heartbeat = Heartbeat::parse("i", newer).unwrap();
        assert_eq!((&*heartbeat.consumer, heartbeat.state), ("a", WorkerState::Unknown));
        for damaged in [&b""[..], b"{", b"7", b"\xff", br#"{"pid":"x"}"#] {
            assert_eq!(Heartbeat::parse("i", damaged), None);
        }
    }

    #[test]
    fn a_worker_is_dead_after_two_intervals_and_a_second() {
        let heartbeat = Heartbeat { interval_ms: 5000, ..Heartbeat::default() };
        let worker = |age_ms| WorkerInfo { heartbeat: heartbeat.clone(), age: Duration::from_millis(age_ms) };
        assert!(worker(0).is_alive() && worker(11_000).is_alive());
        assert!(!worker(11_001).is_alive());
    }

    #[test]
    fn a_damaged_interval_or_time_does_not_keep_a_worker_alive() {
        let alive = |interval_ms, beat_at_ms, now_ms| {
            WorkerInfo::at(Heartbeat { interval_ms, beat_at_ms, ..Heartbeat::default() }, now_ms).is_alive()
        };
        let max = u64::try_from(INTERVAL_MAX.as_millis()).unwrap();
        for interval_ms in [max, max + 1, u64::MAX] {
            assert!(alive(interval_ms, 0, 2 * max + 1000) && !alive(interval_ms, 0, 2 * max + 1001));
        }
        // From the future: the clock of the store may have been set back by a moment.
        assert!(
            alive(5000, 21_000, 10_000) && !alive(5000, 21_001, 10_000) && !alive(5000, u64::MAX, 10_000)
        );
    }
}
