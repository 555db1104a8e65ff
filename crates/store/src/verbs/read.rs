//! Reading on: what comes after an id, of several streams.

use std::time::Duration;

use millstream_engine::{ReadFrom, Refusal};

use super::{Found, Patience, Shows, Sink, interests};
use crate::queues::{Interest, Interests};
use crate::txn::Txn;

/// Shows the entries after a place in each stream.
#[derive(Clone, Debug)]
pub struct Read<B = Vec<u8>> {
    /// The streams, and where to begin in each.
    pub streams: Vec<(B, ReadFrom)>,
    /// The most entries of each stream.
    pub count: Option<u64>,
    /// How long to wait for entries; `None` does not wait.
    pub block: Option<Duration>,
}

impl<B: AsRef<[u8]>> Read<B> {
    /// Fixes where reading begins in each stream. A key that holds something else is refused before any stream is read.
    pub fn resolve(&mut self, txn: &Txn<'_>) -> Result<(), Refusal> {
        for (key, from) in &mut self.streams {
            *from = from.resolve(txn.stream(key.as_ref())?);
        }
        Ok(())
    }

    /// The streams that have something to read, and what that is. To be asked after [`resolve`](Read::resolve).
    pub fn find<'t>(&'t self, txn: &'t Txn<'_>) -> impl Iterator<Item = (&'t [u8], Found<'t>)> {
        self.streams.iter().filter_map(|(key, from)| {
            let stream = txn.stream(key.as_ref()).ok().flatten()?;
            Some((key.as_ref(), Found::after(stream, from.after(Some(stream)), self.count)?))
        })
    }

    /// What to wait for if there is nothing to read.
    pub fn interests(&self) -> Interests {
        interests(self.streams.iter().map(|(key, _)| key), Interest::Entries)
    }
}

impl<B: AsRef<[u8]>> Shows for Read<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.streams.iter().map(|(key, _)| key.as_ref())
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        self.resolve(txn)?;
        for (key, found) in self.find(txn) {
            sink.stream(key);
            found.show(sink);
        }
        Ok(())
    }

    fn patience(&self) -> Option<Patience> {
        Some(Patience { at_most: self.block?, interests: self.interests() })
    }
}
