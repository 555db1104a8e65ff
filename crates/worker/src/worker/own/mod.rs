//! Own: what belongs to this worker: its consumer name, its membership in the group, and the streams or partitions that
//! it owns.
//!
//! * **In**: heartbeats and memberships of the other workers of the group, and leases, from the store.
//! * **Out**: a subscription for each stream that this worker may read, to the tasks of the other rooms; the end of it
//!   when the worker loses or leaves the stream.
//! * **Must not know** what happens with single messages.

mod balance;
pub(crate) mod beat;
mod consumer_name;
pub(crate) mod joining;
pub(crate) mod leaving;
mod members;
pub(crate) mod predecessors;
pub(crate) mod renewal;
pub(crate) mod sharing;
