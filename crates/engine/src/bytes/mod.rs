//! Numbers and texts as bytes: how entries are laid out in memory, and changes in a log.

mod draft;
pub mod number;
pub mod short;
pub mod varint;

pub use draft::Draft;
