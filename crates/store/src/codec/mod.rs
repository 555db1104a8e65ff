//! Encodes changes for records of the log, and values for snapshots.
//!
//! ```text
//! payload := change…
//! change  := tag:1  db:number  key:text  body          a change of one key; see `effect`
//!          | tag:1  place  place | tag:1  db:number…   a value moves or is copied; databases are swapped or cleared
//!          | tag:1  length:number  value…              an entry that resembles the one before it; see `entries`
//! ```
//!
//! A change has exactly one encoding: the same change always produces the same bytes, and the reader refuses other
//! encodings. (An entry that resembles the entry before it has a second, shorter encoding.) The reader trusts nothing.
//! It returns an error for bytes that this module would not have written. It never panics, and never allocates more
//! than a small multiple of the input.
//!
//! Files with these encodings must be readable by all later versions. Read `tests/fixtures.rs` before changing
//! anything.

mod effect;
mod entries;
#[cfg(any(test, fuzzing))]
pub(crate) mod generate;
mod policy;
mod stream;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod value;
mod wire;

pub(crate) use effect::{RecordedChange, put_change, put_rearrangement, replay};
pub(crate) use entries::{LastEntry, put_entry};
pub(crate) use value::{put_value, put_value_in_parts, read_value, take_value};
pub(crate) use wire::{ByteReader, CodecError, put_number, put_optional, put_text};
