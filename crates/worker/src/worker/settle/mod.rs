//! Settle: the only place where the result of a job becomes operations of the store.
//!
//! * **In**: finished jobs, from the outbox of each stream.
//! * **Out**: one call to the store for many messages: acknowledge, dead-letter, or release with the time of the next
//!   attempt. A message that failed and blocks its key stays in the worker (`keep`).
//! * **Must not know** how a handler ran and who reads the message next. `settlement` decides; it is a pure function.

pub(crate) mod delete_done;
mod keep;
pub(crate) mod records;
mod settlement;
mod settler;

pub(crate) use self::settler::{retry_dead_letters, settle};
