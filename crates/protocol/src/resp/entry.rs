//! Encoding of many stream entries, directly from the engine's blocks.
//!
//! The entries of a block mostly share their field names. [`Writer::entry`] writes a length and a name for every field.
//! A template contains these constant bytes, so only the id and the values of each entry are formatted.

use super::template::Template;
use super::writer::Writer;
use millstream_engine::stream::{EntryRef, EntrySink};
use std::ops::ControlFlow;

/// Minimum number of entries in a run for which a template is prepared. For fewer entries, preparing it takes longer
/// than it saves.
///
/// Exception: it is prepared for a shorter run if the last entry without a template had the same field names.
const TEMPLATE_ENTRIES_MIN: usize = 4;

/// Maximum size of an entry's field names for which a template is prepared. This limits the encoder's memory.
const NAMES_BYTES_MAX: usize = 16 << 10;

/// Encodes runs of entries. A run is a series of entries that are written one after the other.
///
/// Reuse an encoder, because it keeps its buffers and its template.
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
    /// The field names, encoded as in a block, of the last entry that was in a run too short for a template.
    plain_names: Vec<u8>,
}

/// Writes the entries of one run to a writer. The output is complete when this value is dropped.
#[derive(Debug)]
pub struct EntryRun<'a> {
    /// Approximate number of entries in the run.
    expected: usize,
    /// Identity of the field names that the template is prepared for, `None` if it is not prepared in this run.
    prepared: Option<usize>,
    /// The run ends when the output has more bytes than this.
    output_bytes_max: usize,
    template: &'a mut Template,
    plain_names: &'a mut Vec<u8>,
    writer: &'a mut Writer,
}

impl EntryEncoder {
    /// Returns an encoder without a template.
    pub fn new() -> EntryEncoder {
        EntryEncoder::default()
    }

    /// Begins a run of about `expected` entries. It ends early when the writer is full.
    pub fn run<'a>(&'a mut self, writer: &'a mut Writer, expected: usize) -> EntryRun<'a> {
        self.run_until(writer, expected, usize::MAX)
    }

    /// Like [`run`](Self::run), but ends also when the output has more than `output_bytes` bytes. The last entry is
    /// written as a whole.
    pub fn run_until<'a>(
        &'a mut self,
        writer: &'a mut Writer,
        expected: usize,
        output_bytes: usize,
    ) -> EntryRun<'a> {
        let EntryEncoder { template, plain_names } = self;
        let output_bytes_max = output_bytes.min(writer.length_max);
        EntryRun { expected, prepared: None, output_bytes_max, template, plain_names, writer }
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

    /// Takes the entry by value, as [`prepare`](Self::prepare) does, so that the caller can keep it in registers.
    #[inline(never)]
    fn write_plainly(&mut self, entry: EntryRef<'_>) {
        self.template.flush(&mut self.writer.buf);
        self.writer.entry(&entry);
    }

    /// Returns the length of the writer's output, including the bytes that are still in the staging buffer.
    #[inline]
    pub fn output_len(&self) -> usize {
        self.writer.buf.len() + self.template.staged_len()
    }

    /// Returns whether the output is so long that the run must end.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.writer.buf.len() > self.output_bytes_max
    }

    /// Prepares the template for this entry's field names, unless that is not worth it. Returns whether it is prepared.
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
            // The bytes in the staging buffer stay: they are complete entries.
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
        match self.is_full() {
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
