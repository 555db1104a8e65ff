//! Redis' wire protocol: the bytes, the commands, the words.
//!
//! The only crate that knows how Redis spells things: RESP2 and RESP3 ([`resp`]), the list of commands
//! ([`table`]), their arguments as typed values ([`commands`]), stream ids as text ([`ids`]) and every
//! error a client can see ([`errors`]). It knows neither sockets nor what a command does.

mod args;
pub mod commands;
pub mod errors;
pub mod glob;
pub mod ids;
pub mod number;
pub mod resp;
pub mod table;

pub use commands::Command;
pub use errors::CommandError;
