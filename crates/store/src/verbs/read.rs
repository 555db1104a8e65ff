//! Reading on: what comes after an id, of several streams.

use std::ops::ControlFlow;
use std::time::Duration;

use millstream_engine::stream::{EntryRef, IdRange};
use millstream_engine::{ReadFrom, Refusal};

use super::{Patience, Shown, Shows, Sink};
use crate::queues::Interest;
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

impl<B: AsRef<[u8]>> Shows for Read<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.streams.iter().map(|(key, _)| key.as_ref())
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        for (key, from) in &mut self.streams {
            let stream = txn.stream(key.as_ref())?;
            let after = from.after(stream);
            if *from == ReadFrom::Last {
                // What comes after this moment is new, however often the verb runs again.
                *from = ReadFrom::After(after);
            }
            let (Some(stream), Some(ids)) = (stream, IdRange::after(after)) else { continue };
            sink.stream(key.as_ref());
            stream.visit_range(ids, self.count, &mut |entry: &EntryRef<'_>| {
                sink.take(&Shown::entry(entry, 0));
                ControlFlow::Continue(())
            });
        }
        Ok(())
    }

    fn patience(&self) -> Option<Patience> {
        Some(Patience::new(self.keys(), &Interest::Entries, self.block?))
    }
}
