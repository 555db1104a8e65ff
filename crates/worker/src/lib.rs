//! The worker runtime: you write a handler, and the runtime does the rest.
//!
//! A group of workers shares the messages of a stream. You write a function that handles one message. The runtime
//! reads messages, retries and dead-letters them, extends leases, recovers from crashes, scales the number of
//! concurrent handlers, and shuts down gracefully. It works with Redis and Valkey servers, with clusters, with
//! Millstream's own server, and with a store embedded in your process.
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
//!         return Err(HandlerError::reject("nothing to pay")); // dead-letters the message
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
//!     .max_attempts(10)
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
//! * [`Worker`] describes the guarantees; [`WorkerBuilder`] has the settings.
//! * [`handler`] describes the arguments of handlers; [`outcome`] describes their return values.
//! * [`dead_letter`] and [`redrive`]: messages that failed permanently, and how to deliver them again.
//! * [`shutdown_signal`]: stop a worker on SIGTERM and Ctrl-C.
//! * [`trace`]: continue the traces of the programs that send messages.
//! * [`producer`], [`group_manager`] and [`monitor`]: send messages, manage groups, watch streams and groups.
//! * [`observe`]: watch a whole store for many viewers at once.
//! * [`operate`]: what operators' tools need beyond that.

/// Compiles the Rust examples in these pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/workers.md")]
    struct Workers;
    #[doc = include_str!("../../../docs/workers/rust.md")]
    struct RustHandlers;
    #[doc = include_str!("../../../docs/workers/tracing.md")]
    struct Tracing;
    #[doc = include_str!("../../../docs/from-your-consumer.md")]
    struct FromYourConsumer;
}

pub mod autoscale;
pub mod backend;
pub mod backoff;
mod connect;
pub mod connections;
pub mod dead_letter;
pub mod dedupe;
pub mod group_manager;
pub mod handler;
pub mod health;
pub mod heartbeat;
pub mod message;
pub mod metrics;
pub mod monitor;
pub mod names;
pub mod observe;
pub mod operate;
pub mod outcome;
pub mod partitions;
pub mod producer;
pub mod redaction;
pub mod redrive;
pub mod retry_record;
pub mod shutdown;
mod slots;
pub mod trace;
pub mod wording;
pub mod worker;

pub use autoscale::Autoscale;
pub use backend::{Admin, Backend, Error};
pub use backoff::Backoff;
pub use connect::{ConnectOptions, connect, connect_existing, is_tls};
pub use dedupe::Dedupe;
pub use message::Message;
pub use names::WorkerName;
pub use outcome::{Failure, HandlerError, IntoOutcome, Outcome, Reason};
pub use shutdown::shutdown_signal;
pub use worker::{BreakerPolicy, OnFailure, Process, Report, Worker, WorkerBuilder, WorkerHandle};
