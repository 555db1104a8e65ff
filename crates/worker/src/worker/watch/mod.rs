//! Watch: what the worker shows of itself, and what it reads about its groups for that.
//!
//! * **In**: the counters, the queue, the running calls; policies and backlogs from the store.
//! * **Out**: health checks and metrics over HTTP, and heartbeats in the store.
//! * **Must not know** how the other rooms work. Nothing that they do waits for it.

pub(crate) mod backlog;
pub(crate) mod heartbeat;
pub(crate) mod policy_task;
pub(crate) mod status;
