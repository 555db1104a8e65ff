//! Workers on a real in-memory store: outcomes, leases, recovery, draining and scaling.

mod breaker;
mod dead_letters;
mod ending;
mod heartbeats;
mod leases;
mod order;
mod outcomes;
mod ownership;
mod policies;
mod retries;
mod scaling;
mod support;
mod suspects;
mod tracing;
