//! A message in the worker's hands: what it is, where it comes from, whether it is still in flight, and how its job
//! ended.
//!
//! The other rooms pass it on. Nothing here calls the store, waits for a handler, or knows a room.

mod delayed;
mod in_flight;
mod job;
mod lane_id;
mod outbox;
mod ownership;
mod result;
mod subscription_id;

pub(crate) use self::delayed::{Delayed, DelayedJob};
pub(crate) use self::in_flight::{DeliveryTag, InFlight, InFlightRef, Releasing};
pub(crate) use self::job::{AtHead, DeadLettering, FinishedJob, Job, Origin, Place};
pub(crate) use self::lane_id::LaneId;
pub(crate) use self::outbox::Outbox;
#[cfg(test)]
pub(crate) use self::ownership::MARGIN;
pub(crate) use self::ownership::{LEASE, Ownership};
pub(crate) use self::result::{DeliveryHistory, JobResult};
pub(crate) use self::subscription_id::SubscriptionId;
