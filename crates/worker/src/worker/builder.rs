//! How a worker is put together.

use std::any::type_name;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, Service};

use super::Worker;
use super::core::{Core, Settings};
use super::lane::Lane;
use super::queue::Queue;
use crate::autoscale::Autoscale;
use crate::backend::{Backend, Start};
use crate::backoff::Backoff;
use crate::dedupe::Dedupe;
use crate::handler::{
    AddLayer, BatchHandler, Handler, MessageService, MissingState, Recipe, Shared, Work, add_layer,
};
use crate::message::Message;
use crate::metrics::{Registry, WorkerMetrics};
use crate::names::{WorkerName, dead_letters_of};
use crate::outcome::{BoxError, IntoOutcome, Outcome};

/// Puts a [`Worker`] together. Everything but streams, group and handler has a default.
pub struct WorkerBuilder {
    backend: Arc<dyn Backend>,
    streams: Vec<String>,
    group: Option<String>,
    recipe: Option<Recipe>,
    layers: Vec<AddLayer>,
    shared: Shared,
    timeout: Option<Duration>,
    handler_name: String,
    concurrency: usize,
    prefetch: usize,
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
    /// No stream was named.
    NoStream,
    /// A stream was named twice.
    StreamTwice(String),
    /// No group was named.
    NoGroup,
    /// No handler was given.
    NoHandler,
    /// The handler asks for state that is not there.
    MissingState(MissingState),
    /// Layers are for one message at a time.
    LayerOnBatch,
    /// A batch holds at least one message.
    EmptyBatch,
    /// A message needs some time.
    NoTime,
    /// No slots.
    NoSlots,
    /// Not a single delivery.
    NoDeliveries,
    /// The lease is too short.
    LeaseTooShort(Duration),
    /// The dead letters would go to a stream that is read.
    DeadLettersAreRead(String),
    /// The store does not tell how much waits, and a pool cannot follow it.
    NoBacklog,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoStream => f.write_str("no stream to read: name at least one"),
            BuildError::StreamTwice(stream) => {
                write!(f, "the stream {stream} is named twice: once is enough")
            }
            BuildError::NoGroup => f.write_str("no group to read for: name one"),
            BuildError::NoHandler => f.write_str("nothing to do with a message: give a handler"),
            BuildError::MissingState(missing) => missing.fmt(f),
            BuildError::LayerOnBatch => f.write_str(
                "layers see one message at a time and cannot be put around a batch handler: \
                 wrap a batch service and give it with batch_service",
            ),
            BuildError::EmptyBatch => {
                f.write_str("a batch of 0 messages never fills: give a size of at least 1")
            }
            BuildError::NoTime => f.write_str("a timeout of zero fails every message: leave it out for none"),
            BuildError::NoSlots => f.write_str("the concurrency must be at least 1"),
            BuildError::NoDeliveries => f.write_str(
                "the deliveries must be at least 1, or every message would be dead-lettered unseen",
            ),
            BuildError::LeaseTooShort(_) => {
                let least = WorkerBuilder::LEASE_MIN.as_millis();
                write!(f, "a lease must be at least {least} ms: any hiccup would lose a shorter one")
            }
            BuildError::DeadLettersAreRead(stream) => {
                write!(f, "dead letters would come back at once: {stream} is read by this worker")
            }
            BuildError::NoBacklog => {
                f.write_str("the store does not tell how many messages wait: leave out the autoscaling")
            }
        }
    }
}

impl std::error::Error for BuildError {}

impl WorkerBuilder {
    /// The shortest lease: a shorter one would be lost to any hiccup.
    pub const LEASE_MIN: Duration = Duration::from_millis(50);

    pub(super) fn new(backend: Arc<dyn Backend>) -> WorkerBuilder {
        WorkerBuilder {
            backend,
            streams: Vec::new(),
            group: None,
            recipe: None,
            layers: Vec::new(),
            shared: Shared::default(),
            timeout: None,
            handler_name: String::new(),
            concurrency: 8,
            prefetch: 1024,
            dead_letters: None,
            name: WorkerName::default(),
            settings: Settings::default(),
            registry: Registry::default(),
            listen: None,
        }
    }

    /// Reads this stream. May be repeated: the streams share the slots.
    pub fn stream(mut self, stream: impl Into<String>) -> Self {
        self.streams.push(stream.into());
        self
    }

    /// Reads for this group, which is made if it is not there.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Where the group begins if it has to be made: with the oldest entry, unless said otherwise.
    pub fn start(mut self, start: Start) -> Self {
        self.settings.start = start;
        self
    }

    /// Handles each message with an async function of what it needs.
    pub fn handler<H: Handler<Args>, Args: 'static>(mut self, handler: H) -> Self {
        self.handler_name = short_name(type_name::<H>());
        self.recipe = Some(Recipe::each(handler));
        self
    }

    /// Handles up to `size` messages at once with an async function; they wait up to `linger` for each other.
    pub fn batch_handler<H: BatchHandler<Args>, Args: 'static>(
        mut self,
        handler: H,
        size: usize,
        linger: Duration,
    ) -> Self {
        self.handler_name = short_name(type_name::<H>());
        self.recipe = Some(Recipe::batch(handler, size, linger));
        self
    }

    /// Handles each message with a tower service. Its errors are worth another try, unless they are made from a
    /// [`HandlerError`](crate::HandlerError) that says otherwise.
    pub fn service<S>(mut self, service: S) -> Self
    where
        S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        self.handler_name = short_name(type_name::<S>());
        self.recipe = Some(Recipe::service(service));
        self
    }

    /// Handles up to `size` messages at once with a tower service; they wait up to `linger` for each other.
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
        self.recipe = Some(Recipe::batch_service(service, size, linger));
        self
    }

    /// How the handler is called in metrics. By default as the function is.
    pub fn handler_name(mut self, name: impl Into<String>) -> Self {
        self.handler_name = name.into();
        self
    }

    /// Gives the handler something to share, which it takes as `Data<T>`. May be repeated with values of other types.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.insert(value);
        self
    }

    /// Puts a tower layer around the handler. May be repeated: the last one is the outermost.
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

    /// How long a handler may take. By default as long as it likes: its lease is kept meanwhile.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many messages are handled at the same time: 8, unless said otherwise.
    pub fn concurrency(mut self, slots: usize) -> Self {
        self.concurrency = slots;
        self.settings.autoscale = None;
        self
    }

    /// As many at the same time as the backlog asks for, between bounds: `.autoscale(2..=32)`.
    pub fn autoscale(mut self, policy: impl Into<Autoscale>) -> Self {
        let policy = policy.into();
        self.concurrency = policy.min;
        self.settings.autoscale = Some(policy);
        self
    }

    /// The most messages read ahead: 1024, unless said otherwise. It is fewer where handlers are slow.
    pub fn prefetch(mut self, most: usize) -> Self {
        self.prefetch = most.max(1);
        self
    }

    /// How long a message waits before it is tried again: from a second to a minute, unless said otherwise.
    pub fn retry(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// How often a message is delivered before it goes to the dead letters: 5 times, unless said otherwise.
    pub fn max_deliveries(mut self, deliveries: u64) -> Self {
        self.settings.max_deliveries = deliveries;
        self
    }

    /// Where dead letters go: `{orders}:dlq` for `orders`, unless said otherwise. On a cluster it must be in the slot of the
    /// stream.
    pub fn dead_letter(mut self, stream: impl Into<String>) -> Self {
        self.dead_letters = Some(stream.into());
        self
    }

    /// How long a worker may be silent before its messages are taken over: 30 seconds, unless said otherwise. All workers
    /// of a group should agree on it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Acknowledges messages without handling them that were processed within a window.
    pub fn dedupe(mut self, dedupe: impl Into<Dedupe>) -> Self {
        self.settings.dedupe = Some(dedupe.into());
        self
    }

    /// How the worker is called in its group: a name of its own, unless said otherwise.
    pub fn consumer_name(mut self, name: impl Into<WorkerName>) -> Self {
        self.name = name.into();
        self
    }

    /// How long running handlers may take to finish when the worker ends: 25 seconds, unless said otherwise.
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.settings.drain = deadline;
        self
    }

    /// When consumers that nobody has heard of are removed: after an hour, unless said otherwise; `None` for never. What they
    /// left is kept.
    pub fn reap(mut self, gone_for: Option<Duration>) -> Self {
        self.settings.reap_after = gone_for;
        self
    }

    /// The most messages that wait here to be tried again, for each stream: 10,000, unless said otherwise. With more, nothing
    /// new is read until some have had their try.
    pub fn waiting(mut self, most: usize) -> Self {
        self.settings.waiting_max = most.max(1);
        self
    }

    /// Counts in this registry, together with what else is in it.
    pub fn metrics(mut self, registry: &Registry) -> Self {
        self.registry = registry.clone();
        self
    }

    /// Serves `/livez`, `/readyz`, `/healthz` and `/metrics` over HTTP at this address while the worker runs.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// The worker, if everything fits together.
    pub fn build(self) -> Result<Worker, BuildError> {
        self.check()?;
        let group: Arc<str> = self.group.ok_or(BuildError::NoGroup)?.into();
        let consumer: Arc<str> = self.name.as_str().into();
        let recipe = self.recipe.ok_or(BuildError::NoHandler)?;
        let work = recipe.build(self.shared, self.layers, self.timeout).map_err(BuildError::MissingState)?;
        let lanes = self.streams.iter().enumerate().map(|(index, stream)| {
            let metrics = WorkerMetrics::new(&self.registry, stream, &group, &self.handler_name);
            let dead_letters = self.dead_letters.clone().unwrap_or_else(|| dead_letters_of(stream));
            Lane::new(index, stream, &group, &consumer, dead_letters, metrics)
        });
        let lanes = lanes.collect();
        let batch = match &work {
            Work::Each(_) => 1,
            Work::Batch { size, .. } => *size,
        };
        let mut settings = self.settings;
        settings.survives_restart = self.name.survives_restart();
        settings.reap_after = settings.reap_after.map(|time| time.max(settings.lease * 3));
        let queue = Queue::new(batch, self.prefetch.max(batch));
        let core = Core::new(self.backend, settings, lanes, queue, self.concurrency);
        if core.settings.autoscale.is_some() && core.admin.is_none() {
            return Err(BuildError::NoBacklog);
        }
        Ok(Worker { core: Arc::new(core), work, listen: self.listen })
    }

    fn check(&self) -> Result<(), BuildError> {
        let mut named = HashSet::new();
        for stream in &self.streams {
            if !named.insert(stream) {
                return Err(BuildError::StreamTwice(stream.clone()));
            }
        }
        let read_again = self.dead_letters.iter().find(|stream| named.contains(stream));
        let size = match &self.recipe {
            Some(Recipe::Batch { size, .. }) => Some(*size),
            _ => None,
        };
        match () {
            () if size == Some(0) => Err(BuildError::EmptyBatch),
            () if size.is_some() && !self.layers.is_empty() => Err(BuildError::LayerOnBatch),
            () if self.timeout == Some(Duration::ZERO) => Err(BuildError::NoTime),
            () if self.streams.is_empty() => Err(BuildError::NoStream),
            () if self.concurrency == 0 => Err(BuildError::NoSlots),
            () if self.settings.max_deliveries == 0 => Err(BuildError::NoDeliveries),
            () if self.settings.lease < Self::LEASE_MIN => {
                Err(BuildError::LeaseTooShort(self.settings.lease))
            }
            () => read_again.map_or(Ok(()), |stream| Err(BuildError::DeadLettersAreRead(stream.clone()))),
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

/// The last part of a path of Rust, without what is in angle brackets. A closure has no name of its own.
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
    fn errors_read_well_wherever_they_are_shown() {
        let short = BuildError::LeaseTooShort(Duration::ZERO).to_string();
        assert_eq!(short, "a lease must be at least 50 ms: any hiccup would lose a shorter one");
        let all = [
            BuildError::NoStream,
            BuildError::NoGroup,
            BuildError::NoHandler,
            BuildError::NoSlots,
            BuildError::NoDeliveries,
        ];
        for error in all {
            assert!(!error.to_string().contains(['.', '(']), "{error} is not for people");
        }
    }

    #[test]
    fn settings_that_no_handler_could_work_with_are_refused() {
        let builder = || {
            let backend = Arc::new(crate::backend::Embedded::in_memory());
            Worker::builder(backend).stream("orders").group("billing")
        };
        let batch = |size| builder().batch_handler(|_: Vec<Message>| async {}, size, Duration::ZERO);
        assert_eq!(batch(0).build().unwrap_err(), BuildError::EmptyBatch);
        let layered = batch(1).layer(tower::layer::util::Identity::new());
        assert_eq!(layered.build().unwrap_err(), BuildError::LayerOnBatch);
        let hasty = builder().handler(|| async {}).timeout(Duration::ZERO);
        assert_eq!(hasty.build().unwrap_err(), BuildError::NoTime);
    }

    #[test]
    fn handlers_are_called_as_their_functions_are() {
        assert_eq!(short_name("shop::billing::charge"), "charge");
        assert_eq!(short_name("shop::main::{{closure}}"), "handler");
        assert_eq!(short_name("tower::util::ServiceFn<shop::main::{{closure}}>"), "ServiceFn");
    }
}
