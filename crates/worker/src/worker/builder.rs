//! The builder of workers and the errors it can return.

use std::any::type_name;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, Service};

use super::Worker;
use crate::autoscale::Autoscale;
use crate::backend::{Backend, Start};
use crate::backoff::Backoff;
use crate::dedupe::Dedupe;
use crate::handler::{
    AddLayer, BatchHandler, Handler, HandlerFactory, HandlerService, MessageService, MissingState, Shared,
    add_layer,
};
use crate::heartbeat;
use crate::message::Message;
use crate::metrics::{Registry, WorkerMetrics};
use crate::names::WorkerName;
use crate::outcome::{BoxError, IntoOutcome, Outcome};
use crate::worker::core::{Core, OnFailure, Settings, SpanHook, WINDOW};
use crate::worker::queue::breaker::BreakerPolicy;
use crate::worker::queue::suspects::SuspectRules;
use crate::worker::queue::{Process, Queue};
use crate::worker::stream::{Pattern, Subscription, Subscriptions};

/// Builds a [`Worker`]. Streams, group and handler are required; everything else has a default.
pub struct WorkerBuilder {
    backend: Arc<dyn Backend>,
    streams: Vec<String>,
    pattern: Option<String>,
    group: Option<String>,
    factory: Option<HandlerFactory>,
    layers: Vec<AddLayer>,
    shared: Shared,
    timeout: Option<Duration>,
    handler_name: String,
    concurrency: usize,
    prefetch: usize,
    order: Option<Arc<str>>,
    dead_letters: Option<String>,
    name: WorkerName,
    settings: Settings,
    registry: Registry,
    listen: Option<String>,
}

/// Why a worker cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// No stream was given.
    NoStream,
    /// The pattern of streams is empty.
    EmptyPattern,
    /// A pattern of streams was given, but the store cannot list its streams.
    PatternUnsupported,
    /// A stream was given twice.
    DuplicateStream(String),
    /// A pattern of streams was given together with a field that orders messages.
    PatternWithOrder,
    /// No group was given.
    NoGroup,
    /// No handler was given.
    NoHandler,
    /// The handler takes state that was not given to the builder.
    MissingState(MissingState),
    /// A layer was given together with a batch handler. Layers work on one message at a time.
    LayerOnBatch,
    /// The batch size is zero.
    EmptyBatch,
    /// The timeout is zero.
    ZeroTimeout,
    /// The concurrency is zero.
    ZeroConcurrency,
    /// The maximum number of attempts is zero.
    ZeroAttempts,
    /// The maximum number of deliveries is zero.
    ZeroDeliveries,
    /// The lease is shorter than [`WorkerBuilder::LEASE_MIN`].
    LeaseTooShort(Duration),
    /// The dead-letter stream is one of the streams that the worker reads.
    DeadLetterStreamIsRead(String),
    /// Autoscaling was requested, but the store does not report its backlog.
    AutoscaleUnsupported,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoStream => f.write_str("no stream given: name at least one stream to read"),
            BuildError::EmptyPattern => f.write_str("the pattern of streams is empty: give a pattern such as 'orders:*'"),
            BuildError::PatternUnsupported => {
                f.write_str("this store cannot list its streams, which a pattern needs: name each stream")
            }
            BuildError::PatternWithOrder => f.write_str(
                "a pattern of streams can be neither exclusive nor ordered by key: name each stream",
            ),
            BuildError::DuplicateStream(stream) => {
                write!(f, "the stream {stream} is given twice: give it once")
            }
            BuildError::NoGroup => f.write_str("no group given: name the consumer group to join"),
            BuildError::NoHandler => f.write_str("no handler given: set a handler, a batch handler or a service"),
            BuildError::MissingState(missing) => missing.fmt(f),
            BuildError::LayerOnBatch => f.write_str(
                "layers work on one message at a time and cannot wrap a batch handler: \
                 apply them to a batch service and pass that to batch_service",
            ),
            BuildError::EmptyBatch => f.write_str("the batch size is 0: it must be at least 1"),
            BuildError::ZeroTimeout => {
                f.write_str("the timeout is 0, which fails every message: leave it out for no timeout")
            }
            BuildError::ZeroConcurrency => f.write_str("the concurrency is 0: it must be at least 1"),
            BuildError::ZeroAttempts => f.write_str("the maximum number of attempts is 0: it must be at least 1"),
            BuildError::ZeroDeliveries => f.write_str(
                "the maximum number of deliveries is 0: it must be at least 1, or no message reaches a handler",
            ),
            BuildError::LeaseTooShort(_) => {
                let min = WorkerBuilder::LEASE_MIN.as_millis();
                write!(f, "the lease must be at least {min} ms: a worker could lose a shorter lease after a brief delay")
            }
            BuildError::DeadLetterStreamIsRead(stream) => {
                write!(f, "the worker reads {stream}, so it cannot be the dead-letter stream: use another stream")
            }
            BuildError::AutoscaleUnsupported => {
                f.write_str("this store does not report its backlog, which autoscaling needs: set a fixed concurrency")
            }
        }
    }
}

impl std::error::Error for BuildError {}

impl WorkerBuilder {
    /// Minimum lease. A worker could lose a shorter lease after a brief delay, for example of the network.
    pub const LEASE_MIN: Duration = Duration::from_millis(50);

    /// Default number of messages of a stream in hand, if the worker [orders](Self::order_by) messages.
    pub const WINDOW: usize = WINDOW;

    /// Minimum time between two heartbeats.
    pub const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

    pub(super) fn new(backend: Arc<dyn Backend>) -> WorkerBuilder {
        WorkerBuilder {
            backend,
            streams: Vec::new(),
            pattern: None,
            group: None,
            factory: None,
            layers: Vec::new(),
            shared: Shared::default(),
            timeout: None,
            handler_name: String::new(),
            concurrency: 8,
            prefetch: 1024,
            order: None,
            dead_letters: None,
            name: WorkerName::default(),
            settings: Settings::default(),
            registry: Registry::default(),
            listen: None,
        }
    }

    /// Adds a stream to read. Can be called several times: all streams share the slots.
    pub fn stream(mut self, stream: impl Into<String>) -> Self {
        self.streams.push(stream.into());
        self
    }

    /// Reads all streams whose names match a glob pattern, such as `orders:*`, in addition to named streams.
    ///
    /// The worker joins streams that appear while it runs, from their first entry, and leaves streams that are deleted.
    /// All streams share the slots, and none starves the others. They need no connection each. Their metrics have
    /// the pattern as the label `stream`. Dead-letter streams and partitions never match.
    pub fn streams_matching(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Sets the consumer group to join. The worker creates the group if it does not exist.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets where a new group starts to read. Default: at the oldest entry.
    pub fn start(mut self, start: Start) -> Self {
        self.settings.start = start;
        self
    }

    /// Handles each message with an async function. The types of its arguments determine what it receives.
    pub fn handler<H: Handler<Args>, Args: 'static>(mut self, handler: H) -> Self {
        self.handler_name = short_name(type_name::<H>());
        self.factory = Some(HandlerFactory::each(handler));
        self
    }

    /// Handles batches of up to `size` messages with an async function.
    ///
    /// The worker waits up to `linger` for a batch to fill up.
    pub fn batch_handler<H: BatchHandler<Args>, Args: 'static>(
        mut self,
        handler: H,
        size: usize,
        linger: Duration,
    ) -> Self {
        self.handler_name = short_name(type_name::<H>());
        self.factory = Some(HandlerFactory::batch(handler, size, linger));
        self
    }

    /// Handles each message with a tower service. If the service returns an error, the message is retried. Exception:
    /// a [`HandlerError`](crate::HandlerError) can reject the message.
    pub fn service<S>(mut self, service: S) -> Self
    where
        S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        self.handler_name = short_name(type_name::<S>());
        self.factory = Some(HandlerFactory::service(service));
        self
    }

    /// Handles batches of up to `size` messages with a tower service.
    ///
    /// The worker waits up to `linger` for a batch to fill up.
    pub fn batch_service<S>(mut self, service: S, size: usize, linger: Duration) -> Self
    where
        S: Service<Vec<Message>, Response = Vec<Outcome>, Error: Into<BoxError>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        self.handler_name = short_name(type_name::<S>());
        self.factory = Some(HandlerFactory::batch_service(service, size, linger));
        self
    }

    /// Sets the handler's name in metrics. Default: the name of the function or of the service's type.
    /// For a closure: `handler`.
    pub fn handler_name(mut self, name: impl Into<String>) -> Self {
        self.handler_name = name.into();
        self
    }

    /// Adds state that all handler calls share. Handlers receive it as `Data<T>`. A second value of the same type
    /// replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.insert(value);
        self
    }

    /// Wraps the handler in a tower layer. Can be called several times: the last layer is the outermost.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<MessageService> + Send + 'static,
        L::Service:
            Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Message>>::Future: Send,
    {
        self.layers.push(add_layer(layer));
        self
    }

    /// Sets the maximum run time of a handler. Default: unlimited. The worker extends the lease while the handler runs.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the number of slots: how many handler calls run at the same time, each for one message or one batch.
    /// Default: 8. Disables autoscaling.
    pub fn concurrency(mut self, slots: usize) -> Self {
        self.concurrency = slots;
        self.settings.autoscale = None;
        self
    }

    /// Adapts the number of slots to the backlog, between bounds: `.autoscale(2..=32)`. Each slot runs one handler call
    /// at a time.
    pub fn autoscale(mut self, policy: impl Into<Autoscale>) -> Self {
        let policy = policy.into();
        self.concurrency = policy.min;
        self.settings.autoscale = Some(policy);
        self
    }

    /// Sets the maximum number of messages read ahead. Default: 1024. The worker reads fewer ahead if handlers are
    /// slow.
    pub fn prefetch(mut self, max: usize) -> Self {
        self.prefetch = max.max(1);
        self
    }

    /// Handles messages with the same value of this field one after the other, in the order of their ids; others in
    /// parallel. All messages without the field are one key; an empty value is another one. One worker of the group
    /// [owns](Self::exclusive) the stream at a time.
    pub fn order_by(mut self, field: impl Into<String>) -> Self {
        self.order = Some(field.into().into());
        self.exclusive()
    }

    /// Lets one worker of the group own the stream at a time; the others stand by and take over within two seconds if
    /// it dies. Without [`order_by`](Self::order_by), messages run one after the other in the order of their ids.
    ///
    /// A stream with [partitions](crate::partitions) needs neither: the workers of the group share its partitions.
    pub fn exclusive(mut self) -> Self {
        self.settings.is_exclusive = true;
        self
    }

    /// Sets what a failed message does to its key. Default: the key waits until the message is done or dead-lettered.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.on_failure = on_failure;
        self
    }

    /// Sets the maximum number of messages of each stream in hand: read, and not done. Default:
    /// [`WINDOW`](Self::WINDOW). If messages that wait for others of their keys fill it, the worker stops reading.
    pub fn window(mut self, max: usize) -> Self {
        self.settings.window = max.max(1);
        self
    }

    /// Sets the delay before a failed message is retried. Default: one second, doubling up to three hours, so that 25
    /// attempts take about a day. The message waits in the store.
    pub fn retry(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets the maximum number of attempts that the handler answers with a failure. The last one dead-letters the
    /// message. Default: 25.
    pub fn max_attempts(mut self, attempts: u64) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// Sets the maximum number of deliveries that end without an answer, for example because the worker died. The next
    /// one dead-letters the message. Default: 5.
    pub fn max_deliveries(mut self, deliveries: u64) -> Self {
        self.settings.max_deliveries = deliveries;
        self
    }

    /// Sets the dead-letter stream. Default: `{orders}:dlq` for the stream `orders`. In a cluster both streams must
    /// hash to the same slot.
    pub fn dead_letter(mut self, stream: impl Into<String>) -> Self {
        self.dead_letters = Some(stream.into());
        self
    }

    /// Sets the lease: other workers take over a message if its worker has not extended the lease for this long.
    /// Default: 30 seconds. All workers of a group should use the same lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Enables deduplication: the worker acknowledges duplicates that arrive within a window without running the
    /// handler.
    pub fn dedupe(mut self, dedupe: impl Into<Dedupe>) -> Self {
        self.settings.dedupe = Some(dedupe.into());
        self
    }

    /// Sets the consumer name. Default: a name that is unique to this process.
    pub fn consumer_name(mut self, name: impl Into<WorkerName>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how long running handlers can take to finish when the worker drains. Default: 25 seconds.
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.settings.drain = deadline;
        self
    }

    /// Sets how long a consumer must be idle before a worker removes it from the group. `None` disables removal.
    /// Default: one hour. The minimum is three leases. The pending entries of a removed consumer move to the worker
    /// that removes it.
    pub fn reap(mut self, idle_for: Option<Duration>) -> Self {
        self.settings.reap_after = idle_for;
        self
    }

    /// Deletes messages from the stream once every group has acknowledged them. A dead-lettered message counts as
    /// acknowledged. Default: off.
    ///
    /// Messages that a group has not read or not acknowledged are never deleted. A group that is created later at the
    /// beginning of the stream does not see the deleted ones.
    pub fn delete_done(mut self, delete: bool) -> Self {
        self.settings.delete_done = delete;
        self
    }

    /// Sets when the circuit breaker opens. `None` turns it off. Default: after 20 failed handler calls in a row, of at
    /// least five messages.
    ///
    /// While it is open, the worker reads only single messages to probe, and failed attempts do not count.
    pub fn breaker(mut self, policy: impl Into<Option<BreakerPolicy>>) -> Self {
        self.settings.breaker = policy.into();
        self
    }

    /// Sets how long a handler call can run before `doctor`, `lag`, `top` and the dashboard call the group degraded.
    /// The call goes on. Default: an hour; or, if 99 of 100 calls take less than ten seconds, ten times what they take,
    /// at least a minute.
    pub fn slow_after(mut self, time: Duration) -> Self {
        self.settings.slow_after = Some(time);
        self
    }

    /// Sets the time between two [heartbeats](crate::heartbeat), from 100 milliseconds to five minutes. `None` sends
    /// none. Default: five seconds.
    ///
    /// Without heartbeats, the tools do not show the worker, and no worker notices another one with its consumer name.
    pub fn heartbeat(mut self, every: Option<Duration>) -> Self {
        self.settings.heartbeat =
            every.map(|every| every.clamp(Self::HEARTBEAT_MIN, heartbeat::INTERVAL_MAX));
        self
    }

    /// Sets how long a worker with a fixed consumer name waits at its start for another live worker with this name.
    /// Default: one minute.
    ///
    /// Then it fails with [`ErrorKind::NameInUse`](crate::backend::ErrorKind::NameInUse). It waits longer while the
    /// other worker drains.
    pub fn consumer_wait(mut self, max: Duration) -> Self {
        self.settings.consumer_wait = max;
        self
    }

    /// Sets a function that connects the `tracing` span of a handler call with the traces of its messages.
    ///
    /// The worker calls it for each message that has a [`trace`](crate::Message::trace), before the handler begins.
    /// With `tracing-opentelemetry`, it makes the span a child of the sender's (`set_parent`) or, for a batch, adds a
    /// link (`add_link`). Without it, exported spans name the sender only in their attributes.
    pub fn on_span(mut self, connect: impl Fn(&tracing::Span, &Message) + Send + Sync + 'static) -> Self {
        self.settings.span_hook = Some(SpanHook(Arc::new(connect)));
        self
    }

    /// Sets what the workers of this process share. Give each of them the same [`Process`], if there are several.
    ///
    /// A message that may crash the process then runs while no handler of any of them runs. Default: the worker shares
    /// with no other.
    pub fn process(mut self, process: &Process) -> Self {
        self.settings.process = process.clone();
        self
    }

    /// Registers the worker's metrics in an existing registry.
    pub fn metrics(mut self, registry: &Registry) -> Self {
        self.registry = registry.clone();
        self
    }

    /// Serves `/livez`, `/readyz`, `/healthz` and `/metrics` over HTTP at this address while the worker runs.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// Builds the worker, or returns why it cannot be built.
    pub fn build(self) -> Result<Worker, BuildError> {
        self.check()?;
        let group: Arc<str> = self.group.ok_or(BuildError::NoGroup)?.into();
        let consumer: Arc<str> = self.name.as_str().into();
        let factory = self.factory.ok_or(BuildError::NoHandler)?;
        let handler =
            factory.build(self.shared, self.layers, self.timeout).map_err(BuildError::MissingState)?;
        let mut metrics: Vec<Arc<WorkerMetrics>> = self
            .streams
            .iter()
            .map(|stream| Arc::new(WorkerMetrics::new(&self.registry, stream, &group, &self.handler_name)))
            .collect();
        let subscriptions = self.streams.iter().zip(&metrics).map(|(stream, metrics)| {
            Arc::new(Subscription::new(
                stream,
                &group,
                &consumer,
                self.dead_letters.as_deref(),
                metrics,
                self.order.as_ref(),
            ))
        });
        let subscriptions = Subscriptions::new(subscriptions);
        let pattern = self.pattern.map(|glob| {
            let shared = Arc::new(WorkerMetrics::new(&self.registry, &glob, &group, &self.handler_name));
            metrics.push(Arc::clone(&shared));
            Pattern::new(glob, self.dead_letters.clone(), shared)
        });
        let batch = match &handler {
            HandlerService::Each(_) => 1,
            HandlerService::Batch { size, .. } => *size,
        };
        let mut settings = self.settings;
        settings.group = group;
        settings.consumer = consumer;
        settings.handler_name = self.handler_name;
        settings.survives_restart = self.name.survives_restart();
        settings.reap_after = settings.reap_after.map(|time| time.max(settings.lease * 3));
        let rules = SuspectRules::new(settings.max_deliveries);
        let queue = Queue::new(batch, self.prefetch.max(batch), rules);
        settings.dead_letters = self.dead_letters.map(Arc::from);
        let queue = Arc::new(queue);
        let core =
            Core::new(self.backend, settings, metrics, pattern, subscriptions, queue, self.concurrency);
        if core.settings.autoscale.is_some() && core.admin.is_none() {
            return Err(BuildError::AutoscaleUnsupported);
        }
        if core.pattern.is_some() && core.admin.is_none() {
            return Err(BuildError::PatternUnsupported);
        }
        Ok(Worker { core: Arc::new(core), handler, listen: self.listen })
    }

    fn check(&self) -> Result<(), BuildError> {
        let mut named = HashSet::new();
        for stream in &self.streams {
            if !named.insert(stream) {
                return Err(BuildError::DuplicateStream(stream.clone()));
            }
        }
        let read_again = self.dead_letters.iter().find(|stream| named.contains(stream));
        let size = match &self.factory {
            Some(HandlerFactory::Batch { size, .. }) => Some(*size),
            _ => None,
        };
        match () {
            () if size == Some(0) => Err(BuildError::EmptyBatch),
            () if size.is_some() && !self.layers.is_empty() => Err(BuildError::LayerOnBatch),
            () if self.timeout == Some(Duration::ZERO) => Err(BuildError::ZeroTimeout),
            () if self.streams.is_empty() && self.pattern.is_none() => Err(BuildError::NoStream),
            () if self.pattern.as_ref().is_some_and(String::is_empty) => Err(BuildError::EmptyPattern),
            () if self.pattern.is_some() && self.settings.is_exclusive => Err(BuildError::PatternWithOrder),
            () if self.concurrency == 0 => Err(BuildError::ZeroConcurrency),
            () if self.settings.max_attempts == 0 => Err(BuildError::ZeroAttempts),
            () if self.settings.max_deliveries == 0 => Err(BuildError::ZeroDeliveries),
            () if self.settings.lease < Self::LEASE_MIN => {
                Err(BuildError::LeaseTooShort(self.settings.lease))
            }
            () => read_again.map_or(Ok(()), |stream| Err(BuildError::DeadLetterStreamIsRead(stream.clone()))),
        }
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WorkerBuilder");
        shown.field("streams", &self.streams).field("group", &self.group);
        shown.finish_non_exhaustive()
    }
}

/// Returns the last part of a Rust path, without generic arguments, or `handler` for a closure.
fn short_name(path: &str) -> String {
    let path = path.split_once('<').map_or(path, |(before, _)| before);
    match path.rsplit("::").next() {
        Some(name) if !name.starts_with("{{") => name.to_owned(),
        _ => "handler".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_mention_no_rust_methods() {
        let short = BuildError::LeaseTooShort(Duration::ZERO).to_string();
        assert_eq!(
            short,
            "the lease must be at least 50 ms: a worker could lose a shorter lease after a brief delay"
        );
        let all = [
            BuildError::NoStream,
            BuildError::NoGroup,
            BuildError::NoHandler,
            BuildError::ZeroConcurrency,
            BuildError::ZeroDeliveries,
        ];
        for error in all {
            assert!(!error.to_string().contains(['.', '(']), "{error} mentions Rust methods");
        }
    }

    #[test]
    fn zero_sizes_and_timeouts_are_refused() {
        let builder = || {
            let backend = Arc::new(crate::backend::Embedded::in_memory());
            Worker::builder(backend).stream("orders").group("billing")
        };
        let batch = |size| builder().batch_handler(|_: Vec<Message>| async {}, size, Duration::ZERO);
        assert_eq!(batch(0).build().unwrap_err(), BuildError::EmptyBatch);
        let layered = batch(1).layer(tower::layer::util::Identity::new());
        assert_eq!(layered.build().unwrap_err(), BuildError::LayerOnBatch);
        let zero_timeout = builder().handler(|| async {}).timeout(Duration::ZERO);
        assert_eq!(zero_timeout.build().unwrap_err(), BuildError::ZeroTimeout);
    }

    #[test]
    fn handlers_are_named_after_their_functions() {
        assert_eq!(short_name("shop::billing::charge"), "charge");
        assert_eq!(short_name("shop::main::{{closure}}"), "handler");
        assert_eq!(short_name("tower::util::ServiceFn<shop::main::{{closure}}>"), "ServiceFn");
    }
}
