//! Reading the entries after an id, from one or more streams (XREAD).

use std::time::Duration;

use millstream_engine::{ReadFrom, Refusal};

use super::{BlockUntil, EntrySelection, EntryVerb, ResultSink, interests};
use crate::queues::{Interest, Interests};
use crate::txn::Txn;

/// Returns the entries after a position in each stream.
#[derive(Clone, Debug)]
pub struct Read<B = Vec<u8>> {
    /// The streams, each with the position to read from.
    pub streams: Vec<(B, ReadFrom)>,
    /// Maximum number of entries per stream; `None`: no limit.
    pub count: Option<u64>,
    /// How long to block if there are no entries; `None` does not block.
    pub block: Option<Duration>,
}

impl<B: AsRef<[u8]>> Read<B> {
    /// Replaces positions such as "the current end" by ids. Refuses a key of another type before any stream is read.
    pub fn resolve(&mut self, txn: &Txn<'_>) -> Result<(), Refusal> {
        for (key, from) in &mut self.streams {
            *from = from.resolve(txn.stream(key.as_ref())?);
        }
        Ok(())
    }

    /// Returns the streams that have entries to read, each with its entries. Call [`resolve`](Read::resolve) first.
    pub fn find<'t>(&'t self, txn: &'t Txn<'_>) -> impl Iterator<Item = (&'t [u8], EntrySelection<'t>)> {
        self.streams.iter().filter_map(|(key, from)| {
            let stream = txn.stream(key.as_ref()).ok().flatten()?;
            Some((key.as_ref(), EntrySelection::after(stream, from.after(Some(stream)), self.count)?))
        })
    }

    /// Returns what to block on if there are no entries.
    pub fn interests(&self) -> Interests {
        interests(self.streams.iter().map(|(key, _)| key), Interest::Entries)
    }
}

impl<B: AsRef<[u8]>> EntryVerb for Read<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.streams.iter().map(|(key, _)| key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        self.resolve(txn)?;
        for (key, found) in self.find(txn) {
            sink.start_stream(key);
            found.send_to(sink);
        }
        Ok(())
    }

    fn block_until(&self) -> Option<BlockUntil> {
        Some(BlockUntil { timeout: self.block?, interests: self.interests() })
    }
}
