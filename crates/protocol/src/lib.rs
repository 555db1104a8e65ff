//! Redis' wire protocol: the bytes, the commands, the words.
//!
//! How the server learns Redis' spelling: RESP2 and RESP3 ([`resp`]), the arguments of commands, one by one
//! ([`args`]) and as typed values ([`commands`]), stream ids as text ([`ids`]) and every error a client can see
//! ([`errors`]). It knows neither sockets nor which commands there are, nor what they do.

pub mod args;
pub mod commands;
pub mod errors;
pub mod glob;
pub mod ids;
pub mod number;
pub mod resp;

pub use errors::CommandError;
