//! A stream that the worker reads: its names, its messages in flight, its policy, and whether calls for it fail.
//!
//! Comes in: what the rooms learn about the stream. Goes out: the same, to the other rooms. Nothing here calls the
//! store.

mod next_due;
mod outage;
mod owned_stream;
mod pattern;
mod policy;
mod subscription;
mod subscriptions;

pub(crate) use self::next_due::NextDue;
pub use self::outage::Refusal;
pub(crate) use self::outage::{Operation, Outage, StoreBackoff};
pub(crate) use self::owned_stream::OwnedStream;
pub(crate) use self::pattern::Pattern;
pub(crate) use self::policy::GroupPolicy;
pub(crate) use self::subscription::{StreamTrouble, Subscription};
pub(crate) use self::subscriptions::{Subscriptions, for_each};
