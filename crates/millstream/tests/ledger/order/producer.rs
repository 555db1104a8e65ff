//! The producer of an order campaign. It numbers the messages of each key, and sends the next one of a key only when
//! the store has answered the last one. If it does not know whether the store has added a message, it sends the message
//! again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_worker::backend::{AddOutcome, NewEntry, StreamId};
use millstream_worker::partitions::partition_of;
use millstream_worker::{Admin, connect};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::KEY;
use crate::journal::Journal;

/// Number of keys.
const KEYS: u64 = 96;
/// Interval at which messages are sent to a stream.
const INTERVAL: Duration = Duration::from_millis(20);
/// Delay before messages are sent again that the store has not added.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// A producer in a thread of the supervisor.
pub(crate) struct OrderProducer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl OrderProducer {
    /// Sends `rate` messages per second to these streams until it is stopped.
    pub(crate) fn start(url: String, streams: Vec<String>, rate: u64, journal: &Path) -> OrderProducer {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, journal) = (Arc::clone(&stop), Journal::open(journal, "producer"));
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(produce(&url, &streams, rate, Arc::new(journal), &stopped));
        });
        OrderProducer { stop, thread }
    }

    /// Waits until the store has answered all messages that were sent.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the producer does not panic");
    }
}

async fn produce(url: &str, streams: &[String], rate: u64, journal: Arc<Journal>, stopped: &Arc<AtomicBool>) {
    let backend = connect(url).await.expect("reach the store");
    let mut producing = JoinSet::new();
    for (at, stream) in streams.iter().enumerate() {
        let keys = (0..KEYS).map(|key| format!("k{key}"));
        let keys: BTreeMap<String, u64> = keys
            .filter(|key| partition_of(key.as_bytes(), streams.len()) == at)
            .map(|key| (key, 0))
            .collect();
        let share = rate as f64 * keys.len() as f64 / KEYS as f64;
        let (backend, journal, stopped) = (Arc::clone(&backend), Arc::clone(&journal), Arc::clone(stopped));
        producing.spawn(produce_to(backend, stream.clone(), keys, share, journal, stopped));
    }
    while let Some(ended) = producing.join_next().await {
        ended.expect("a producer does not panic");
    }
}

/// Sends messages of these keys to one stream: `rate` per second.
async fn produce_to(
    backend: Arc<dyn Admin>,
    stream: String,
    mut keys: BTreeMap<String, u64>,
    rate: f64,
    journal: Arc<Journal>,
    stopped: Arc<AtomicBool>,
) {
    if keys.is_empty() {
        return;
    }
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut due, mut next) = (0.0, 0);
    while !stopped.load(Ordering::Relaxed) {
        ticks.tick().await;
        due += rate * INTERVAL.as_secs_f64();
        // At most one message of each key, so the order within a call does not matter.
        let count = (due as usize).min(keys.len());
        due -= count as f64;
        let names: Vec<String> =
            (0..count).filter_map(|n| keys.keys().nth((next + n) % keys.len()).cloned()).collect();
        next += count;
        let messages: Vec<(String, u64)> =
            names.iter().map(|key| (key.clone(), keys.get(key).copied().unwrap_or_default())).collect();
        add_all(&*backend, &stream, messages, &journal).await;
        names.iter().for_each(|key| *keys.entry(key.clone()).or_default() += 1);
    }
}

/// Adds messages until the store has answered each of them.
async fn add_all(backend: &dyn Admin, stream: &str, mut messages: Vec<(String, u64)>, journal: &Journal) {
    while !messages.is_empty() {
        let entry = |(key, number): &(String, u64)| NewEntry {
            fields: vec![(KEY.into(), key.clone().into()), ("n".into(), number.to_string().into())],
            idempotence: None,
        };
        let entries: Vec<NewEntry> = messages.iter().map(entry).collect();
        let added: Vec<Option<StreamId>> = match backend.add(stream, &entries, None).await {
            Ok(ids) => ids.into_iter().map(Some).collect(),
            Err(error) => {
                let mut outcomes = error.outcomes().to_vec();
                outcomes.resize(messages.len(), AddOutcome::NotAdded);
                sleep(RETRY_DELAY).await;
                let id = |outcome| if let AddOutcome::Added(id) = outcome { Some(id) } else { None };
                outcomes.into_iter().map(id).collect()
            }
        };
        let known = messages.iter().zip(&added).filter_map(|((key, number), id)| {
            let id = (*id)?;
            Some(format!("{key}/{number}/{stream}/{id}"))
        });
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            journal.record("added", known);
        }
        let mut answered = added.iter().map(Option::is_some);
        messages.retain(|_| !answered.next().unwrap_or_default());
    }
}
