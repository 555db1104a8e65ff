//! Handlers: async functions and tower services, and the services that the runtime calls.
//!
//! ```text
//! async fn(Json<Order>, Data<Db>)  \
//! any tower::Service<Message>       >  layers  ->  guard  ->  MessageService
//! async fn(Vec<Json<Order>>)  ------------------>  guard  ->  BatchService
//! ```
//!
//! The guard catches panics and enforces the timeout, so that every message gets exactly one [`Outcome`]. A factory
//! keeps a handler until the shared state, the layers and the timeout are known, and then builds the service.
//!
//! ```
//! use std::sync::Arc;
//!
//! use millstream_worker::backend::Embedded;
//! use millstream_worker::handler::{Attempt, Data, Json};
//! use millstream_worker::{HandlerError, Outcome, Worker};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Order { amount: u64 }
//! struct Bank;
//!
//! async fn charge(
//!     Json(order): Json<Order>,
//!     Attempt(attempt): Attempt,
//!     bank: Data<Bank>,
//! ) -> Result<Outcome, HandlerError> {
//!     if order.amount == 0 {
//!         return Ok(Outcome::Skip);
//!     }
//!     if attempt > 3 {
//!         return Err(HandlerError::reject("the bank declined three times"));
//!     }
//!     let _ = &*bank;
//!     Ok(Outcome::Ack)
//! }
//!
//! let worker = Worker::builder(Arc::new(Embedded::in_memory())).stream("orders").group("billing");
//! worker.handler(charge).state(Bank).build().expect("the worker is complete");
//! ```

mod batch;
mod extract;
mod factory;
mod fields;
mod function;
mod guard;
mod json;
mod shared;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::time::Duration;

use tower::util::BoxCloneSyncService;

pub use batch::BatchHandler;
pub use extract::{Attempt, ConsumerName, FromMessage, GroupName, MessageId, Raw, StreamName, Text};
pub(crate) use factory::{AddLayer, HandlerFactory, add_layer};
pub use fields::{Field, FieldName, FromField};
pub use function::Handler;
pub use json::Json;
pub use shared::{Data, FromShared, MissingState, Shared};

use crate::message::Message;
use crate::outcome::Outcome;

/// The service that the runtime calls for one message at a time. It is always ready: callers need not poll
/// `poll_ready`.
pub type MessageService = BoxCloneSyncService<Message, Outcome, Infallible>;

/// The service that the runtime calls for a batch. It returns one outcome for each message, in the same order. It
/// is always ready.
pub(crate) type BatchService = BoxCloneSyncService<Vec<Message>, Vec<Outcome>, Infallible>;

/// A handler as the service that the runtime calls.
#[derive(Clone)]
pub(crate) enum HandlerService {
    /// One message at a time.
    Each(MessageService),
    /// A batch of messages in one call.
    Batch {
        service: BatchService,
        /// Maximum number of messages in a batch.
        size: usize,
        /// How long a batch waits to fill up.
        linger: Duration,
    },
}
