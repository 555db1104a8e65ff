//! What a stream is: entries, groups, pending entries, and the plain values that live beside them.
//!
//! Pure: nothing here reads a clock, a file, a socket or a random source, and nothing fails for a
//! reason outside its input. Requests are decided on `&self` and become [`Effect`]s, which [`Keyspace::apply`] makes. The three most
//! common changes are decided while they are made: [`Keyspace::append_at`], [`Keyspace::deliver_at`] and [`Keyspace::acknowledge`] do what
//! `apply` does with their effects, and say which. A [`Rearrangement`] moves whole values. Nothing else changes what is under a key; reading
//! notes when a key was last used.

pub mod bytes;
mod effect;
mod id;
pub mod keyspace;
mod memory;
pub mod pending;
mod refusal;
mod request;
pub mod stream;
pub mod value;

pub use effect::{ClaimedRow, Effect, KeyPlace, ListEnd, Rearrangement, ReleasedRow, StreamEffect};
pub use id::StreamId;
pub use keyspace::Keyspace;
pub use refusal::Refusal;
pub use request::{
    Addition, BlockLimits, Exactness, GroupStart, IdSpec, Idempotence, NackMode, ReadFrom, References, Trim,
    TrimBy, TrimLimit,
};
pub use stream::Stream;
pub use value::Value;
