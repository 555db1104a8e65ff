//! Builds a handler's service once its state, layers and timeout are known.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, Service, ServiceExt, service_fn};

use super::batch::BatchHandler;
use super::function::Handler;
use super::guard::guarded;
use super::shared::{MissingState, Shared};
use super::{BatchService, HandlerService, MessageService};
use crate::message::Message;
use crate::outcome::{BoxError, IntoOutcome, Outcome};

/// Builds a service from the shared state and the timeout.
type BuildService<S> = Box<dyn FnOnce(Arc<Shared>, Option<Duration>) -> Result<S, MissingState> + Send>;

pub(crate) type AddLayer = Box<dyn FnOnce(MessageService) -> MessageService + Send>;

/// Stores a handler, and builds its [`HandlerService`] once its state, layers and timeout are known.
pub(crate) enum HandlerFactory {
    Each(BuildService<MessageService>),
    Batch { build: BuildService<BatchService>, size: usize, linger: Duration },
}

impl HandlerFactory {
    /// Creates a factory for a function that handles one message.
    pub(crate) fn each<H: Handler<Args>, Args: 'static>(handler: H) -> HandlerFactory {
        HandlerFactory::Each(Box::new(|shared, timeout| {
            H::check(&shared)?;
            let service = service_fn(move |message: Message| infallible(handler.call(&message, &shared)));
            Ok(guarded(service, timeout))
        }))
    }

    /// Creates a factory for a tower service that handles one message.
    pub(crate) fn service<S>(service: S) -> HandlerFactory
    where
        S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        HandlerFactory::Each(Box::new(|_, timeout| Ok(box_service(service, timeout))))
    }

    /// Creates a factory for a function that handles batches of up to `size` messages.
    ///
    /// The worker waits up to `linger` for a batch to fill up.
    pub(crate) fn batch<H: BatchHandler<Args>, Args: 'static>(
        handler: H,
        size: usize,
        linger: Duration,
    ) -> HandlerFactory {
        let build: BuildService<BatchService> = Box::new(|shared, timeout| {
            H::check(&shared)?;
            let service =
                service_fn(move |messages: Vec<Message>| infallible(handler.call(&messages, &shared)));
            Ok(guarded(service, timeout))
        });
        HandlerFactory::Batch { build, size, linger }
    }

    /// Creates a factory for a tower service that handles batches of up to `size` messages.
    ///
    /// The worker waits up to `linger` for a batch to fill up.
    pub(crate) fn batch_service<S>(service: S, size: usize, linger: Duration) -> HandlerFactory
    where
        S: Service<Vec<Message>, Response = Vec<Outcome>, Error: Into<BoxError>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        HandlerFactory::Batch { build: Box::new(|_, timeout| Ok(guarded(service, timeout))), size, linger }
    }

    /// Builds the service. The last layer is the outermost. A batch handler has no layers.
    ///
    /// The timeout covers the handler and its layers, but not the wait until the layers are ready (`poll_ready`).
    pub(crate) fn build(
        self,
        shared: Shared,
        layers: Vec<AddLayer>,
        timeout: Option<Duration>,
    ) -> Result<HandlerService, MissingState> {
        let shared = Arc::new(shared);
        match self {
            HandlerFactory::Each(build) if layers.is_empty() => {
                Ok(HandlerService::Each(build(shared, timeout)?))
            }
            HandlerFactory::Each(build) => {
                let unlayered = build(shared, None)?;
                let layered = layers.into_iter().fold(unlayered, |service, add| add(service));
                Ok(HandlerService::Each(box_service(layered, timeout)))
            }
            HandlerFactory::Batch { build, size, linger } => {
                Ok(HandlerService::Batch { service: build(shared, timeout)?, size, linger })
            }
        }
    }
}

/// Returns a function that wraps a service in a tower layer.
pub(crate) fn add_layer<L>(layer: L) -> AddLayer
where
    L: Layer<MessageService> + Send + 'static,
    L::Service:
        Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    <L::Service as Service<Message>>::Future: Send,
{
    Box::new(move |inner| box_service(layer.layer(inner), None))
}

/// Wraps a handler's outcome in `Ok`, because a tower service returns a `Result`. A handler's error is an outcome.
async fn infallible<T>(call: impl Future<Output = T>) -> Result<T, Infallible> {
    Ok(call.await)
}

/// Converts any service into the type that the runtime calls.
fn box_service<S>(service: S, timeout: Option<Duration>) -> MessageService
where
    S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    guarded(service.map_response(IntoOutcome::into_outcome), timeout)
}
