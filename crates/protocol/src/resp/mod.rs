//! RESP, the bytes on the wire: requests in ([`Decoder`]), replies out ([`Writer`], [`EntryEncoder`]).
//!
//! Nothing here knows what a command means or where bytes come from and go to.

mod decimal;
mod decode;
mod entry;
mod id_prefix;
mod inline;
#[cfg(test)]
pub(crate) mod seeded;
mod template;
mod writer;

pub use decode::{Args, Decoder, Limits, PLAIN_ARGS_MAX, ProtocolError};
pub use entry::{EntryEncoder, EntryRun};
pub use writer::{Mark, Writer};
