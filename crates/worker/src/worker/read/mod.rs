//! Read: gets messages from the store, and puts them into the queue.
//!
//! * **In**: deliveries of the store, for the streams that the worker reads: named ones (`fetcher`), those of a pattern
//!   (`discovery`, `pattern_fetcher`) and owned ones (`owned_fetcher`); idle messages of other workers (`recovery`);
//!   single messages while the circuit breaker is open (`probing`); and messages in hand that were delayed (`delayed`).
//! * **Out**: jobs, through `admission` into the queue. A message that needs no handler goes to the settlers instead.
//! * **Must not know** how handlers run, and how an outcome is settled.

mod admission;
pub(crate) mod delayed;
pub(crate) mod discovery;
pub(crate) mod fetcher;
pub(crate) mod owned_fetcher;
pub(crate) mod pattern_fetcher;
pub(crate) mod probing;
mod read_plan;
pub(crate) mod recovery;
