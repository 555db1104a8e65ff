//! Numbers and texts as bytes, as blocks in memory and records in the log encode them.

mod appender;
pub mod number;
pub mod short;
pub mod varint;

pub use appender::Appender;
