//! A handler that waits for its state, layers and timeout.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, Service, ServiceExt, service_fn};

use super::batch::BatchHandler;
use super::function::Handler;
use super::guard::guarded;
use super::shared::{MissingState, Shared};
use super::{BatchService, MessageService, Work};
use crate::message::Message;
use crate::outcome::{BoxError, IntoOutcome, Outcome};

type Make<S> = Box<dyn FnOnce(Arc<Shared>, Option<Duration>) -> Result<S, MissingState> + Send>;

/// Puts a layer around a service.
pub(crate) type AddLayer = Box<dyn FnOnce(MessageService) -> MessageService + Send>;

/// A handler that waits for its state, layers and timeout to become [`Work`].
pub(crate) enum Recipe {
    Each(Make<MessageService>),
    Batch { make: Make<BatchService>, size: usize, linger: Duration },
}

impl Recipe {
    /// A function for each message.
    pub(crate) fn each<H: Handler<Args>, Args: 'static>(handler: H) -> Recipe {
        Recipe::Each(Box::new(|shared, timeout| {
            H::check(&shared)?;
            let service = service_fn(move |message: Message| sure(handler.call(&message, &shared)));
            Ok(guarded(service, timeout))
        }))
    }

    /// A tower service for each message.
    pub(crate) fn service<S>(service: S) -> Recipe
    where
        S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Recipe::Each(Box::new(|_, timeout| Ok(erase(service, timeout))))
    }

    /// A function for up to `size` messages at once, which wait up to `linger` for each other.
    pub(crate) fn batch<H: BatchHandler<Args>, Args: 'static>(
        handler: H,
        size: usize,
        linger: Duration,
    ) -> Recipe {
        let make: Make<BatchService> = Box::new(|shared, timeout| {
            H::check(&shared)?;
            let service = service_fn(move |messages: Vec<Message>| sure(handler.call(&messages, &shared)));
            Ok(guarded(service, timeout))
        });
        Recipe::Batch { make, size, linger }
    }

    /// A tower service for up to `size` messages at once, which wait up to `linger` for each other.
    pub(crate) fn batch_service<S>(service: S, size: usize, linger: Duration) -> Recipe
    where
        S: Service<Vec<Message>, Response = Vec<Outcome>, Error: Into<BoxError>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        Recipe::Batch { make: Box::new(|_, timeout| Ok(guarded(service, timeout))), size, linger }
    }

    /// Makes the work, now that everything is known. The last layer is the outermost; a batch has none.
    ///
    /// The timeout runs while the layers and the handler do, but not while a layer is not ready to take the message.
    pub(crate) fn build(
        self,
        shared: Shared,
        layers: Vec<AddLayer>,
        timeout: Option<Duration>,
    ) -> Result<Work, MissingState> {
        let shared = Arc::new(shared);
        match self {
            Recipe::Each(make) if layers.is_empty() => Ok(Work::Each(make(shared, timeout)?)),
            Recipe::Each(make) => {
                let bare = make(shared, None)?;
                let layered = layers.into_iter().fold(bare, |service, add| add(service));
                Ok(Work::Each(erase(layered, timeout)))
            }
            Recipe::Batch { make, size, linger } => {
                Ok(Work::Batch { service: make(shared, timeout)?, size, linger })
            }
        }
    }
}

/// Puts a tower layer around a handler.
pub(crate) fn add_layer<L>(layer: L) -> AddLayer
where
    L: Layer<MessageService> + Send + 'static,
    L::Service:
        Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    <L::Service as Service<Message>>::Future: Send,
{
    Box::new(move |inner| erase(layer.layer(inner), None))
}

/// A call that cannot fail, as services see it: errors of handlers are outcomes.
async fn sure<T>(call: impl Future<Output = T>) -> Result<T, Infallible> {
    Ok(call.await)
}

/// A service of any kind as the runtime drives it.
fn erase<S>(service: S, timeout: Option<Duration>) -> MessageService
where
    S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    guarded(service.map_response(IntoOutcome::into_outcome), timeout)
}
