//! Run: slots take jobs from the queue and run handlers.
//!
//! * **In**: jobs that may run now, from the queue.
//! * **Out**: finished jobs with their results, to the outboxes of the settlers; the outcomes, to the circuit breaker.
//! * **Must not know** where messages come from, and how a result is settled. While handlers run, `lease` keeps their
//!   messages.

pub(crate) mod autoscaler;
mod isolation;
pub(crate) mod lease;
mod outcomes;
mod pool;
mod span;

pub(crate) use self::outcomes::remind;
pub(crate) use self::pool::{CANCEL_GRACE, run_slot};
