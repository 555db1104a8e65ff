//! Handlers: async functions of what they need, and the services the runtime drives.
//!
//! ```text
//! async fn(Json<Order>, Data<Db>)  \
//! any tower::Service<Message>       >  layers  ->  guard  ->  MessageService
//! async fn(Vec<Json<Order>>)  ------------------>  guard  ->  BatchService
//! ```
//!
//! The guard catches panics and ends what takes too long, so that every message gets exactly one [`Outcome`].
//! A recipe holds a handler until the shared state, the layers and the timeout are known, and makes what the runtime drives.
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
//! async fn charge(Json(order): Json<Order>, Attempt(attempt): Attempt, bank: Data<Bank>) -> Result<Outcome, HandlerError> {
//!     if order.amount == 0 {
//!         return Ok(Outcome::Skip);
//!     }
//!     if attempt > 3 {
//!         return Err(HandlerError::reject("the bank does not want it"));
//!     }
//!     let _ = &*bank;
//!     Ok(Outcome::Ack)
//! }
//!
//! let worker = Worker::builder(Arc::new(Embedded::in_memory())).stream("orders").group("billing");
//! worker.handler(charge).state(Bank).build().expect("the state is there");
//! ```

mod batch;
mod extract;
mod fields;
mod function;
mod guard;
mod json;
mod recipe;
mod shared;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::time::Duration;

use tower::util::BoxCloneSyncService;

pub use batch::BatchHandler;
pub use extract::{Attempt, ConsumerName, FromMessage, GroupName, MessageId, Raw, StreamName, Text};
pub use fields::{Field, FieldName, FromField};
pub use function::Handler;
pub use json::Json;
pub(crate) use recipe::{AddLayer, Recipe, add_layer};
pub use shared::{Data, FromShared, MissingState, Shared};

use crate::message::Message;
use crate::outcome::Outcome;

/// What the runtime drives for one message at a time. Always ready: it may be called without asking first.
pub type MessageService = BoxCloneSyncService<Message, Outcome, Infallible>;

/// What the runtime drives for several messages at once: one outcome for each, in the same order. Always ready.
pub(crate) type BatchService = BoxCloneSyncService<Vec<Message>, Vec<Outcome>, Infallible>;

/// What the runtime drives, whatever the handler was.
#[derive(Clone)]
pub(crate) enum Work {
    /// One message at a time.
    Each(MessageService),
    /// Several at once.
    Batch {
        /// The service.
        service: BatchService,
        /// The most messages of a batch.
        size: usize,
        /// How long to wait for a batch to fill up.
        linger: Duration,
    },
}
