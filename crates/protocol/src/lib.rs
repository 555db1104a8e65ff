//! Redis' wire protocol: encoding and decoding, command arguments, error texts.
//!
//! - [`resp`]: RESP2 and RESP3 on the wire.
//! - [`args`]: a cursor over the arguments of a request.
//! - [`commands`]: the arguments of each command as a typed value.
//! - [`ids`]: stream ids as text.
//! - [`errors`]: every error text that a client can receive.
//! - [`glob`] and [`number`]: patterns and numbers as Redis reads them.
//! - [`prometheus`]: the text of metrics.
//!
//! This crate does no I/O and runs no commands. The command table is in the server.

pub mod args;
#[expect(
    missing_docs,
    reason = "fields have the names of the arguments that the syntax at the top of each file shows"
)]
pub mod commands;
pub mod errors;
pub mod glob;
pub mod ids;
pub mod number;
pub mod prometheus;
pub mod resp;

pub use errors::CommandError;
