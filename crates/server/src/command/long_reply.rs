//! Replies with many entries. Under the lock the command only collects references to the entries; the connection
//! encodes them later, slice by slice.
//!
//! ```text
//! output   *1 *2 $5 jobs *100000 | *3 …       `|` marks where the entries belong
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;

use millstream_engine::Value;
use millstream_engine::stream::FrozenRange;
use millstream_protocol::resp::{EntryEncoder, Writer};

thread_local! {
    /// One per thread, because it owns reusable buffers. Two connections of a thread never write entries at the
    /// same time.
    pub(crate) static ENCODER: RefCell<EntryEncoder> = RefCell::default();
}

/// Entries that are not in the output yet, each with the offset in the output where they belong, in order.
pub(crate) type UnwrittenEntries = Vec<(usize, FrozenRange)>;

pub(crate) struct LongReply {
    /// The encoded parts of the reply around the unwritten entries.
    bytes: Vec<u8>,
    /// How many of `bytes` are copied to the output.
    copied: usize,
    /// The entries, each with the offset in `bytes` before which they belong.
    unwritten: VecDeque<(usize, FrozenRange)>,
}

impl LongReply {
    /// Cuts the output at the position of the first unwritten entries, and moves the bytes after it to the new value.
    pub(crate) fn new(out: &mut Writer, unwritten: UnwrittenEntries) -> LongReply {
        let begin = unwritten.first().map_or(out.len(), |(at, _)| *at);
        let bytes = out.buf.split_off(begin);
        let unwritten = unwritten.into_iter().map(|(at, entries)| (at - begin, entries)).collect();
        LongReply { bytes, copied: 0, unwritten }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.unwritten.is_empty() && self.copied == self.bytes.len()
    }

    /// Continues the reply until the output has about `output_bytes` or is full, or the reply is complete.
    pub(crate) fn write(&mut self, out: &mut Writer, output_bytes: usize) {
        while out.len() <= output_bytes && !out.is_full() && !self.is_done() {
            let until = self.unwritten.front().map_or(self.bytes.len(), |(at, _)| *at);
            out.raw(&self.bytes[self.copied..until]);
            self.copied = until;
            let Some((_, entries)) = self.unwritten.front_mut() else { break };
            ENCODER.with_borrow_mut(|encoder| {
                entries.visit(&mut encoder.run_until(out, entries.left() as usize, output_bytes));
            });
            if entries.left() == 0 {
                self.unwritten.pop_front();
            }
        }
    }

    /// Writes the whole rest of the reply, unless the output becomes full.
    pub(crate) fn write_all(mut self, out: &mut Writer) {
        self.write(out, usize::MAX);
    }

    /// Returns the unwritten entries as stream values, for the store to free.
    pub(crate) fn into_values(self) -> impl Iterator<Item = Value> {
        self.unwritten.into_iter().map(|(_, entries)| Value::Stream(Box::new(entries.into_stream())))
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::stream::IdRange;
    use millstream_engine::{BlockLimits, Stream, StreamEffect, StreamId};

    use super::*;

    fn stream(entries: u64) -> Stream {
        let mut stream = Stream::new();
        for n in 1..=entries {
            let number = n.to_string();
            let fields: &[&[u8]] = match n % 7 {
                0 => &[b"other", b"names", b"n", number.as_bytes()],
                _ => &[b"n", number.as_bytes()],
            };
            let id = StreamId::new(n / 2, n % 2 + 1);
            stream.apply(&StreamEffect::Append { id, fields }, BlockLimits::default());
        }
        stream
    }

    #[test]
    fn slices_of_any_size_give_the_same_reply() {
        let (one, two) = (stream(500), stream(37));
        for resp3 in [false, true] {
            for slice_bytes in [1, 10, 100, 1000, 5000, 100_000] {
                let prepared = || {
                    let mut out = Writer::new(resp3);
                    out.simple("BEFORE");
                    let mut unwritten = UnwrittenEntries::new();
                    for (name, stream, backward) in [("one", &one, false), ("two", &two, true)] {
                        out.bulk(name);
                        unwritten.push((out.len(), stream.freeze_range(IdRange::ALL, 400, backward)));
                    }
                    out.simple("AFTER");
                    let reply = LongReply::new(&mut out, unwritten);
                    (out, reply)
                };
                let (mut expected, reply) = prepared();
                reply.write_all(&mut expected);
                let (out, mut reply) = prepared();
                let mut pieces = out.buf;
                while !reply.is_done() {
                    let mut slice = Writer::new(resp3);
                    reply.write(&mut slice, slice_bytes);
                    assert!(!slice.is_empty() && slice.len() < slice_bytes + 10_000, "{} bytes", slice.len());
                    pieces.extend_from_slice(&slice.buf);
                }
                assert_eq!(pieces, expected.buf, "slices of {slice_bytes} bytes");
            }
        }
    }
}
