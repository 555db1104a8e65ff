//! Entries of a stream, written straight from where the engine keeps them.
//!
//! Entries of a block mostly share their field names. Written plainly, each costs a length and a copy per
//! name; a template holds those constant bytes, so that an entry costs its id and its values.

use super::template::Template;
use super::writer::Writer;
use millstream_engine::stream::{EntryRef, EntrySink};
use std::ops::ControlFlow;

/// A template is not prepared for fewer entries than this, unless the last such entry had the same names: preparing costs as
/// much as it saves.
const TEMPLATE_ENTRIES_MIN: usize = 4;

/// Longer names are not kept from one run to the next, and so not at all.
const NAMES_BYTES_MAX: usize = 16 << 10;

/// What writing runs of entries needs. Keep one and reuse it: it owns buffers, and nothing of any entry.
///
/// ```
/// # use millstream_engine::{Stream, stream::IdRange};
/// # use millstream_protocol::resp::{EntryEncoder, Writer};
/// # let (stream, mut encoder, mut writer) = (Stream::new(), EntryEncoder::new(), Writer::new(false));
/// let mark = writer.array_deferred(100);
/// let count = stream.visit_range(IdRange::ALL, Some(100), &mut encoder.run(&mut writer, 100));
/// writer.finish(mark, count as usize);
/// # assert_eq!(writer.buf, b"*0\r\n");
/// ```
#[derive(Debug, Default)]
pub struct EntryEncoder {
    template: Template,
    /// The names of the last entry that was written plainly because there were few, as its block keeps them.
    plain_names: Vec<u8>,
}

/// A run of entries on their way to a writer. All of them are there when the run is dropped.
#[derive(Debug)]
pub struct EntryRun<'a> {
    /// About how many entries it has.
    expected: usize,
    /// Whose names the template holds.
    prepared: Option<usize>,
    template: &'a mut Template,
    plain_names: &'a mut Vec<u8>,
    writer: &'a mut Writer,
}

impl EntryEncoder {
    /// An encoder that has written nothing.
    pub fn new() -> EntryEncoder {
        EntryEncoder::default()
    }

    /// Begins a run of about `expected` entries.
    pub fn run<'a>(&'a mut self, writer: &'a mut Writer, expected: usize) -> EntryRun<'a> {
        let EntryEncoder { template, plain_names } = self;
        EntryRun { expected, prepared: None, template, plain_names, writer }
    }
}

impl EntryRun<'_> {
    /// Writes one entry.
    #[inline(always)]
    pub fn write(&mut self, entry: &EntryRef<'_>) {
        let names = entry.shared_names_identity();
        if names.is_some() && (names == self.prepared || self.prepare(*entry)) {
            self.template.write(&mut self.writer.buf, entry);
        } else {
            self.write_plainly(*entry);
        }
    }

    /// Takes a copy, as [`prepare`](Self::prepare) does: an entry that nobody points to needs no place in memory.
    #[inline(never)]
    fn write_plainly(&mut self, entry: EntryRef<'_>) {
        self.template.flush(&mut self.writer.buf);
        self.writer.entry(&entry);
    }

    /// The length of the writer's output with all that was written so far.
    #[inline]
    pub fn output_len(&self) -> usize {
        self.writer.buf.len() + self.template.staged()
    }

    /// Makes the template one for this entry's names, unless it is already or that is not worth it.
    #[inline(never)]
    fn prepare(&mut self, entry: EntryRef<'_>) -> bool {
        let Some(names) = entry.shared_names().filter(|names| names.len() <= NAMES_BYTES_MAX) else {
            return false;
        };
        if entry.field_count() == 0 {
            return false;
        }
        if !self.template.is_for(names) {
            if self.expected < TEMPLATE_ENTRIES_MIN && *self.plain_names != names {
                self.plain_names.clear();
                self.plain_names.extend_from_slice(names);
                return false;
            }
            // What is on the stage was written by the old template and is not touched.
            self.template.prepare(&entry, names);
        }
        self.prepared = entry.shared_names_identity();
        true
    }
}

impl EntrySink for EntryRun<'_> {
    #[inline(always)]
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self.write(entry);
        match self.writer.buf.len() > self.writer.length_max {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Drop for EntryRun<'_> {
    fn drop(&mut self) {
        self.template.flush(&mut self.writer.buf);
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
