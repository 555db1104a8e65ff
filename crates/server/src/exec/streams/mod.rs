//! The stream commands: each parses its arguments, runs a verb of the store and writes the reply.
//!
//! The engine decides how a stream changes, and the verb applies the change. The code here only knows the order of
//! checks, which clients can see, and the form of replies.

pub(crate) mod delay;
pub(crate) mod entries;
pub(crate) mod groups;
pub(crate) mod idempotence;
pub(crate) mod info;
pub(crate) mod pending;
pub(crate) mod policy;
pub(crate) mod read;
pub(crate) mod release;

use millstream_engine::Refusal;
use millstream_engine::stream::Deletion;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::{EntryRun, Writer};

use crate::command::ENCODER;

/// A reply with more entries than this is written in slices. With fewer, preparing the slices would take longer
/// than writing.
const MANY_ENTRIES: u64 = 1000;

/// Writes an array of the entries that `visit` passes to its sink, at most `count_max`. `visit` returns their number.
fn write_entries(out: &mut Writer, count_max: u64, visit: impl FnOnce(&mut EntryRun<'_>) -> u64) {
    let mark = out.array_deferred(count_max as usize);
    // The server does not send a reply that is too long, so no entry must be delivered for it.
    let count = match out.is_full() {
        true => 0,
        false => ENCODER.with_borrow_mut(|encoder| visit(&mut encoder.run(out, count_max as usize))),
    };
    out.finish(mark, count as usize);
}

/// Converts a refusal to an error. A missing stream or group gets the error text of most group commands.
fn no_key_or_group(refusal: Refusal, key: &[u8], group: &[u8]) -> CommandError {
    match refusal {
        Refusal::NoGroup => errors::no_key_or_group(key, group),
        refusal => refusal.into(),
    }
}

/// Writes one number per id: whether its entry was deleted.
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
