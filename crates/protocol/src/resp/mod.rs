//! RESP, the wire protocol: [`Decoder`] reads requests, [`Writer`] and [`EntryEncoder`] write replies.
//!
//! This module does not know what commands mean, and does no I/O.

mod decimal;
mod decode;
mod entry;
mod id_prefix;
mod inline;
#[cfg(test)]
pub(crate) mod seeded;
mod template;
mod writer;

pub use decode::{Decoder, ForeignProtocol, Limits, PLAIN_ARGS_MAX, ProtocolError, RequestArgs};
pub use entry::{EntryEncoder, EntryRun};
pub use writer::{DeferredLength, Writer};
