//! The producer: adds the messages of a day, and a burst, to the partitions of their keys.
//!
//! One task for each partition has at most one add in flight, so the messages of a key keep their order. If an add
//! fails, the task sends again what the store has not confirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{AddOutcome, NewEntry};
use millstream_worker::partitions::Partitions;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{KEY, MEAN_RATE};

/// How often the producer adds messages in the day.
const TICK: Duration = Duration::from_millis(100);
/// Maximum number of messages in one add.
const BATCH: usize = 50;
/// Number of different keys.
const KEYS: u64 = 10_000;
/// Size of the field with the data. With the other fields, a message has about 1,024 bytes.
const DATA_BYTES: usize = 990;
/// Pause before an add that failed is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The producer.
pub(crate) struct Load {
    partitions: Partitions,
    queues: Vec<UnboundedSender<u64>>,
    next: AtomicU64,
    counts: Arc<Counts>,
    tasks: JoinSet<Vec<u64>>,
}

#[derive(Default)]
struct Counts {
    added: AtomicUsize,
    /// Number of adds that were sent again.
    repeated: AtomicUsize,
    /// The longest time that one add took, with all its repetitions.
    pause_us_max: AtomicU64,
}

/// The rate at a part of the day, as a multiple of the mean: 0.4 at night, 5 at noon.
fn curve(part: f64) -> f64 {
    0.4 + 4.6 * (-((part - 0.5) / 0.0736).powi(2)).exp()
}

fn key(number: u64) -> String {
    // The keys come in no order.
    (number.wrapping_mul(7919) % KEYS).to_string()
}

impl Load {
    pub(crate) fn start(backend: &Arc<dyn Admin>, partitions: &Partitions) -> Load {
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        let queues = partitions.names().into_iter().map(|name| {
            let (queue, queued) = unbounded_channel();
            tasks.spawn(add(Arc::clone(backend), name.to_owned(), queued, Arc::clone(&counts)));
            queue
        });
        let queues = queues.collect();
        Load { partitions: partitions.clone(), queues, next: AtomicU64::new(0), counts, tasks }
    }

    /// Adds the messages of a day that lasts this long.
    pub(crate) async fn run_day(&self, day: Duration) {
        let began = Instant::now();
        let (mut ticks, mut due, mut last) = (interval(TICK), 0.0, 0.0);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while last < day.as_secs_f64() {
            ticks.tick().await;
            let now = began.elapsed().as_secs_f64().min(day.as_secs_f64());
            due += MEAN_RATE * curve((now + last) / 2.0 / day.as_secs_f64()) * (now - last);
            last = now;
            let count = due as usize;
            due -= count as f64;
            self.queue(count);
        }
    }

    /// Queues messages for their partitions.
    pub(crate) fn queue(&self, count: usize) {
        for _ in 0..count {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // A task ends only after its queue is closed.
            let _ = self.queues[self.partitions.of_key(key(number).as_bytes())].send(number);
        }
    }

    /// Returns the number of messages whose add was confirmed.
    pub(crate) fn added(&self) -> usize {
        self.counts.added.load(Ordering::Relaxed)
    }

    pub(crate) fn repeated(&self) -> usize {
        self.counts.repeated.load(Ordering::Relaxed)
    }

    /// Forgets the longest pause.
    pub(crate) fn reset_pause(&self) {
        self.counts.pause_us_max.store(0, Ordering::Relaxed);
    }

    pub(crate) fn pause_max(&self) -> Duration {
        Duration::from_micros(self.counts.pause_us_max.load(Ordering::Relaxed))
    }

    /// Ends the producer. Returns the numbers of the messages whose add was confirmed.
    pub(crate) async fn end(self) -> Vec<u64> {
        drop(self.queues);
        self.tasks.join_all().await.concat()
    }
}

/// Adds the messages of a queue to a partition. Returns the numbers of those that were confirmed.
async fn add(
    backend: Arc<dyn Admin>,
    stream: String,
    mut queued: UnboundedReceiver<u64>,
    counts: Arc<Counts>,
) -> Vec<u64> {
    let data = Bytes::from(vec![b'x'; DATA_BYTES]);
    let (mut confirmed, mut batch) = (Vec::new(), Vec::new());
    while queued.recv_many(&mut batch, BATCH).await > 0 {
        let began = Instant::now();
        while !batch.is_empty() {
            let entry = |number: &u64| NewEntry {
                fields: vec![
                    ("n".into(), number.to_string().into()),
                    (KEY.into(), key(*number).into()),
                    ("data".into(), data.clone()),
                ],
                idempotence: None,
            };
            let entries: Vec<NewEntry> = batch.iter().map(entry).collect();
            let added = match backend.add(&stream, &entries, None).await {
                Ok(_) => std::mem::take(&mut batch),
                Err(error) => {
                    let is_added = |at: usize| matches!(error.outcomes().get(at), Some(AddOutcome::Added(_)));
                    let numbered = batch.iter().copied().enumerate();
                    let (added, left): (Vec<_>, Vec<_>) = numbered.partition(|(at, _)| is_added(*at));
                    batch = left.into_iter().map(|(_, number)| number).collect();
                    counts.repeated.fetch_add(batch.len(), Ordering::Relaxed);
                    sleep(RETRY_PAUSE).await;
                    added.into_iter().map(|(_, number)| number).collect()
                }
            };
            counts.added.fetch_add(added.len(), Ordering::Relaxed);
            confirmed.extend(added);
        }
        counts.pause_us_max.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
    confirmed
}
