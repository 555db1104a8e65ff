//! The streams family: from a typed command to a verb of the store, and from its answer to the reply.
//!
//! What a stream does is decided in the engine and done by the verb; here is only the order of checks a client sees, and
//! the shape of replies.

pub(crate) mod entries;
pub(crate) mod groups;
pub(crate) mod idempotence;
pub(crate) mod info;
pub(crate) mod pending;
pub(crate) mod read;
pub(crate) mod release;

use millstream_engine::Refusal;
use millstream_engine::stream::Deletion;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::{EntryRun, Writer};

use crate::command::ENCODER;

/// A reply with more entries than this is written in slices. Fewer are written sooner than it takes to prepare that.
const MANY_ENTRIES: u64 = 1000;

/// Writes an array of entries as they are visited. `most` bounds how many there can be; `visit` says how many there were.
fn write_entries(out: &mut Writer, most: u64, visit: impl FnOnce(&mut EntryRun<'_>) -> u64) {
    let mark = out.array_deferred(most as usize);
    let count = ENCODER.with_borrow_mut(|encoder| visit(&mut encoder.run(out, most as usize)));
    out.finish(mark, count as usize);
}

/// That the stream or the group is missing, as most commands of groups say it.
fn no_key_or_group(refusal: Refusal, key: &[u8], group: &[u8]) -> CommandError {
    match refusal {
        Refusal::NoGroup => errors::no_key_or_group(key, group),
        refusal => refusal.into(),
    }
}

/// One number for each id: what became of it.
fn write_deletions(out: &mut Writer, deletions: &[Deletion]) {
    out.array(deletions.len());
    for deletion in deletions {
        out.int(match deletion {
            Deletion::Deleted => 1,
            Deletion::NotFound => -1,
            Deletion::Referenced => 2,
        });
    }
}
