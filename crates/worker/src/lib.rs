//! The worker runtime: write a handler, not the plumbing.
//!
//! A group of workers shares the messages of a stream. You write what is to be done with one message; reading, retries, leases,
//! recovery, dead letters, scaling and shutting down are done for you, on a Redis or Valkey server, a cluster, Millstream's own
//! server, or a store embedded in your process.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! use millstream_worker::handler::{Data, Json};
//! use millstream_worker::producer::Producer;
//! use millstream_worker::{Backoff, HandlerError, Worker, connect};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     amount: u64,
//! }
//!
//! struct Bank {
//!     balance: AtomicU64,
//! }
//!
//! async fn charge(Json(order): Json<Order>, bank: Data<Bank>) -> Result<(), HandlerError> {
//!     if order.amount == 0 {
//!         return Err(HandlerError::reject("nothing to pay")); // to the dead letters
//!     }
//!     bank.balance.fetch_add(order.amount, Ordering::Relaxed);
//!     Ok(())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let backend = connect("memory:").await?; // or redis://, rediss://, redis+cluster://, embedded:FOLDER
//! Producer::new(backend.clone(), "orders").send([("amount", "17")]).await?;
//!
//! let worker = Worker::builder(backend)
//!     .stream("orders")
//!     .group("billing")
//!     .handler(charge)
//!     .state(Bank { balance: AtomicU64::new(0) })
//!     .concurrency(8)
//!     .retry(Backoff::exponential(Duration::from_secs(1)..Duration::from_secs(60)))
//!     .max_deliveries(5)
//!     .build()?;
//!
//! let shutdown = async { tokio::time::sleep(Duration::from_millis(200)).await };
//! let report = worker.run_until(shutdown).await?;
//! println!("{report}"); // 1 received, 1 acknowledged
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Worker`] says what is promised; [`WorkerBuilder`] what can be chosen.
//! * [`handler`] says what a handler may take, [`outcome`] what it may return.
//! * [`dead_letter`] and [`redrive`]: what became of messages that nobody could handle, and another chance for them.
//! * [`producer`], [`group_manager`] and [`monitor`]: sending, managing and watching.

/// The Rust in these pages compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/workers.md")]
    struct Workers;
}

pub mod autoscale;
pub mod backend;
pub mod backoff;
mod connect;
pub mod dead_letter;
pub mod dedupe;
pub mod group_manager;
pub mod handler;
pub mod health;
pub mod message;
pub mod metrics;
pub mod monitor;
pub mod names;
pub mod outcome;
pub mod producer;
pub mod redrive;
pub mod worker;

pub use autoscale::Autoscale;
pub use backend::{Admin, Backend, Error};
pub use backoff::Backoff;
pub use connect::{connect, connect_existing};
pub use dedupe::Dedupe;
pub use message::Message;
pub use names::WorkerName;
pub use outcome::{Failure, HandlerError, IntoOutcome, Outcome, Reason};
pub use worker::{Report, Worker, WorkerBuilder, WorkerHandle};
