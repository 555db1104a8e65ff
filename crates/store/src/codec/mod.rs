//! Changes and values as bytes: what the log's records and the snapshots hold.
//!
//! ```text
//! payload := change…
//! change  := tag:1  db:number  key:text  body          a change to one key; see `effect`
//!          | tag:1  place  place | tag:1  db:number…   values change places, or databases do
//!          | tag:1  length:number  value…              another entry like that of the change before; see `entries`
//! ```
//!
//! A change has exactly one form (and another behind an entry that it is like): the same change gives the same bytes,
//! and bytes that are not that form are refused. Reading trusts nothing. It fails on any bytes that this module would not have written, without
//! a panic and without asking for more memory than a small multiple of what it was given.
//!
//! The form is that of files people keep. What is written once must be readable for ever: see the fixtures
//! in `tests` before changing anything.

mod effect;
mod entries;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod value;
mod wire;

pub(crate) use effect::{RecordedChange, put_change, put_rearrangement, replay};
pub(crate) use entries::{LastEntry, put_entry};
pub(crate) use value::{put_value, put_value_in_parts, read_value, take_value};
pub(crate) use wire::{CodecError, Reader, put_number, put_optional, put_text};
