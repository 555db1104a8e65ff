//! The data model: streams with their entries, consumer groups and pending entries, and the other types of
//! values that keys can hold.
//!
//! The engine is pure. It reads no clock, no file, no socket and no random source, and it fails only for
//! reasons that are in its input.
//!
//! A change takes two steps. A `decide_*` method, which takes `&self`, turns a request into an [`Effect`].
//! [`Keyspace::apply`] then applies the effect. The three most common changes are decided and applied in one
//! step: [`Keyspace::append_at`], [`Keyspace::deliver_at`] and [`Keyspace::acknowledge`]. For each of them
//! there is an effect that makes the same change. The caller can build this effect from the arguments and the
//! result. A [`Rearrangement`] moves or copies a key, or swaps or clears databases. Apart from loading stored
//! values, nothing else changes the content of a key. Reading a key only records when the key was last used.
mod backoff;
pub mod bytes;
mod effect;
mod id;
pub mod keyspace;
mod memory;
pub mod pending;
pub mod policy;
mod refusal;
mod request;
pub mod stream;
pub mod value;

pub use effect::{
    ClaimedRow, Effect, HashEffect, KeyPlace, ListEffect, ListEnd, Rearrangement, ReleasedRow, SetEffect,
    StreamEffect, StringEffect,
};
pub use id::StreamId;
pub use keyspace::Keyspace;
pub use memory::allocation_bytes;
pub use refusal::Refusal;
pub use request::{
    Addition, BlockLimits, Due, Exactness, GroupStart, IdSpec, Idempotence, NackMode, ReadFrom, References,
    Trim, TrimBy, TrimLimit,
};
pub use stream::Stream;
pub use value::Value;
