//! Settings of a worker, from its builder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use crate::autoscale::Autoscale;
use crate::backend::Start;
use crate::backoff::Backoff;
use crate::dedupe::Dedupe;
use crate::heartbeat;
use crate::message::Message;
use crate::worker::queue::Process;
use crate::worker::queue::breaker::BreakerPolicy;

/// Default number of messages of a stream in hand, if the worker orders messages.
pub(crate) const WINDOW: usize = 4096;

/// Maximum number of pending entries handled in one call.
pub(crate) const PAGE_ROWS: usize = 512;

/// Settings of a worker, from its builder.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) group: Arc<str>,
    /// The worker's name in its group.
    pub(crate) consumer: Arc<str>,
    /// Where a new group starts.
    pub(crate) start: Start,
    /// Whether the next process has the same consumer name.
    pub(crate) survives_restart: bool,
    pub(crate) backoff: Backoff,
    /// Maximum number of attempts that the handler answers.
    pub(crate) max_attempts: u64,
    /// Maximum number of deliveries that end without an answer.
    pub(crate) max_deliveries: u64,
    pub(crate) lease: Duration,
    pub(crate) dedupe: Option<Dedupe>,
    pub(crate) autoscale: Option<Autoscale>,
    /// The dead-letter stream that the builder sets.
    pub(crate) dead_letters: Option<Arc<str>>,
    /// How long running handlers can take to finish when the worker drains.
    pub(crate) drain: Duration,
    /// How long a consumer must be idle before it is removed.
    pub(crate) reap_after: Option<Duration>,
    /// Time between two heartbeats. `None` sends none.
    pub(crate) heartbeat: Option<Duration>,
    /// How long a handler call can run before tools report it. `None`: as long as the worker's other calls suggest.
    pub(crate) slow_after: Option<Duration>,
    /// How long to wait for another live worker with the same consumer name.
    pub(crate) consumer_wait: Duration,
    pub(crate) handler_name: String,
    /// Whether the worker deletes messages that every group has acknowledged.
    pub(crate) delete_done: bool,
    /// Whether one worker owns each stream at a time, also if the streams have no partitions.
    pub(crate) is_exclusive: bool,
    /// What a message that fails does to its key, if the worker orders messages.
    pub(crate) on_failure: OnFailure,
    /// Maximum number of messages of each stream in hand, if the worker orders messages.
    pub(crate) window: usize,
    /// When the circuit breaker opens. `None` turns it off.
    pub(crate) breaker: Option<BreakerPolicy>,
    /// What the workers of this process share.
    pub(crate) process: Process,
    /// Connects the spans of handler calls with the traces of their messages.
    pub(crate) span_hook: Option<SpanHook>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            group: "".into(),
            consumer: "".into(),
            start: Start::Beginning,
            survives_restart: false,
            backoff: Backoff::default(),
            max_attempts: 25,
            max_deliveries: 5,
            lease: Duration::from_secs(30),
            dedupe: None,
            autoscale: None,
            dead_letters: None,
            drain: Duration::from_secs(25),
            reap_after: Some(Duration::from_secs(60 * 60)),
            heartbeat: Some(heartbeat::INTERVAL),
            slow_after: None,
            consumer_wait: Duration::from_secs(60),
            handler_name: String::new(),
            delete_done: false,
            is_exclusive: false,
            on_failure: OnFailure::default(),
            window: WINDOW,
            breaker: Some(BreakerPolicy::default()),
            process: Process::default(),
            span_hook: None,
        }
    }
}

impl Settings {
    /// How long a read blocks in the store. Short, because a read is never cancelled and draining waits for it.
    pub(crate) fn block_time(&self) -> Duration {
        let max = Duration::from_secs(1).min(self.lease / 3).min(self.drain / 4);
        max.max(Duration::from_millis(20))
    }
}

/// What happens with the key of a message when the message fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The key waits until the message succeeds or is dead-lettered. Then it goes on.
    #[default]
    Block,
    /// The key goes on at once. The message is retried later, out of order.
    Skip,
}

/// A function of the program that gets the span of a handler call and each message that has a trace.
#[derive(Clone)]
pub(crate) struct SpanHook(pub(crate) Arc<ConnectSpan>);

type ConnectSpan = dyn Fn(&Span, &Message) + Send + Sync;

impl fmt::Debug for SpanHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpanHook")
    }
}
