//! A handler that waits for its state, layers and timeout.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::batch::BatchHandler;
use super::function::Handler;
use super::guard::Guard;
use super::shared::{MissingState, Shared};
use super::{BatchService, MessageService, Work};
use crate::message::Message;
use crate::outcome::{BoxError, IntoOutcome, Outcome};

type MakeEach = Box<dyn FnOnce(Arc<Shared>, Option<Duration>) -> Result<MessageService, MissingState> + Send>;
type MakeBatch = Box<dyn FnOnce(Arc<Shared>, Option<Duration>) -> Result<BatchService, MissingState> + Send>;
type AddLayer = Box<dyn FnOnce(MessageService) -> MessageService + Send>;

/// A handler that waits for its state, layers and timeout to become [`Work`].
pub struct Recipe {
    made: Made,
    layers: Vec<AddLayer>,
}

enum Made {
    Each(MakeEach),
    Batch { make: MakeBatch, size: usize, linger: Duration },
}

/// Why a handler cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecipeError {
    /// The handler asks for state that is not there.
    MissingState(MissingState),
    /// Layers are for one message at a time.
    LayerOnBatch,
    /// A batch holds at least one message.
    EmptyBatch,
    /// A message needs some time.
    NoTime,
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeError::MissingState(missing) => missing.fmt(f),
            RecipeError::LayerOnBatch => f.write_str(
                "layers see one message at a time and cannot be put around a batch handler: \
                 wrap the batch service itself and give it with Recipe::batch_service",
            ),
            RecipeError::EmptyBatch => {
                f.write_str("a batch of 0 messages never fills: give a size of at least 1")
            }
            RecipeError::NoTime => {
                f.write_str("a timeout of zero fails every message: leave it out for none")
            }
        }
    }
}

impl std::error::Error for RecipeError {}

impl From<MissingState> for RecipeError {
    fn from(missing: MissingState) -> RecipeError {
        RecipeError::MissingState(missing)
    }
}

impl Recipe {
    /// A function for each message.
    pub fn each<H: Handler<Args>, Args: 'static>(handler: H) -> Recipe {
        Recipe::of(Made::Each(Box::new(|shared, timeout| {
            H::check(&shared)?;
            let service = service_fn(move |message: Message| sure(handler.call(&message, &shared)));
            Ok(BoxCloneSyncService::new(Guard::new(service, timeout)))
        })))
    }

    /// A tower service for each message. Its errors are worth another try, unless they are made from a
    /// [`HandlerError`](crate::outcome::HandlerError) that says otherwise.
    ///
    /// ```
    /// use millstream_worker::handler::Recipe;
    /// use millstream_worker::message::Message;
    /// use std::convert::Infallible;
    ///
    /// Recipe::service(tower::service_fn(|message: Message| async move {
    ///     println!("{}", message.id);
    ///     Ok::<_, Infallible>(())
    /// }));
    /// ```
    pub fn service<S>(service: S) -> Recipe
    where
        S: Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Recipe::of(Made::Each(Box::new(|_, timeout| Ok(erase(service, timeout)))))
    }

    /// A function for up to `size` messages at once, which wait up to `linger` for each other.
    pub fn batch<H: BatchHandler<Args>, Args: 'static>(handler: H, size: usize, linger: Duration) -> Recipe {
        let make: MakeBatch = Box::new(|shared, timeout| {
            H::check(&shared)?;
            let service = service_fn(move |messages: Vec<Message>| sure(handler.call(&messages, &shared)));
            Ok(BoxCloneSyncService::new(Guard::new(service, timeout)))
        });
        Recipe::of(Made::Batch { make, size, linger })
    }

    /// A tower service for up to `size` messages at once, which wait up to `linger` for each other.
    pub fn batch_service<S>(service: S, size: usize, linger: Duration) -> Recipe
    where
        S: Service<Vec<Message>, Response = Vec<Outcome>, Error: Into<BoxError>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        let make: MakeBatch =
            Box::new(|_, timeout| Ok(BoxCloneSyncService::new(Guard::new(service, timeout))));
        Recipe::of(Made::Batch { make, size, linger })
    }

    /// Puts a tower layer around the handler; the last one given is the outermost.
    ///
    /// The timeout runs while the layers and the handler do, but not while a layer is not ready to take the message.
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Recipe
    where
        L: Layer<MessageService> + Send + 'static,
        L::Service:
            Service<Message, Response: IntoOutcome, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Message>>::Future: Send,
    {
        self.layers.push(Box::new(move |inner| erase(layer.layer(inner), None)));
        self
    }

    /// Makes the work, now that everything is known.
    pub fn build(self, shared: Shared, timeout: Option<Duration>) -> Result<Work, RecipeError> {
        if timeout == Some(Duration::ZERO) {
            return Err(RecipeError::NoTime);
        }
        let shared = Arc::new(shared);
        match self.made {
            Made::Each(make) if self.layers.is_empty() => Ok(Work::Each(make(shared, timeout)?)),
            Made::Each(make) => {
                let bare = make(shared, None)?;
                let layered = self.layers.into_iter().fold(bare, |service, add| add(service));
                Ok(Work::Each(erase(layered, timeout)))
            }
            Made::Batch { .. } if !self.layers.is_empty() => Err(RecipeError::LayerOnBatch),
            Made::Batch { size: 0, .. } => Err(RecipeError::EmptyBatch),
            Made::Batch { make, size, linger } => {
                Ok(Work::Batch { service: make(shared, timeout)?, size, linger })
            }
        }
    }

    fn of(made: Made) -> Recipe {
        Recipe { made, layers: Vec::new() }
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.made {
            Made::Each(_) => "each",
            Made::Batch { .. } => "batch",
        };
        f.debug_struct("Recipe").field("kind", &kind).field("layers", &self.layers.len()).finish()
    }
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
    BoxCloneSyncService::new(Guard::new(service.map_response(IntoOutcome::into_outcome), timeout))
}
