//! Replies with many entries: what is shown is settled under the lock, and written bit by bit afterwards.
//!
//! ```text
//! output   *1 *2 $5 jobs *100000 | *3 …       the entries belong where the line is
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;

use millstream_engine::Value;
use millstream_engine::stream::Extract;
use millstream_protocol::resp::{EntryEncoder, Writer};

thread_local! {
    /// One for each thread: it owns buffers that are worth keeping, and no connection writes entries while another does.
    pub(crate) static ENCODER: RefCell<EntryEncoder> = RefCell::default();
}

/// Entries that are missing in the output, and where in it they belong, in order.
pub(crate) type Missing = Vec<(usize, Extract)>;

/// The rest of a reply.
pub(crate) struct LongReply {
    /// What was written around the entries, and how much of it is copied already.
    bytes: Vec<u8>,
    copied: usize,
    /// Entries, and before which of `bytes` they come.
    missing: VecDeque<(usize, Extract)>,
}

impl LongReply {
    /// Takes what belongs behind the first missing entries out of the output.
    pub(crate) fn new(out: &mut Writer, missing: Missing) -> LongReply {
        let begin = missing.first().map_or(out.len(), |(at, _)| *at);
        let bytes = out.buf.split_off(begin);
        let missing = missing.into_iter().map(|(at, entries)| (at - begin, entries)).collect();
        LongReply { bytes, copied: 0, missing }
    }

    /// Whether all of it is written.
    pub(crate) fn is_done(&self) -> bool {
        self.missing.is_empty() && self.copied == self.bytes.len()
    }

    /// Goes on until the output is about this long, or everything is written.
    pub(crate) fn write(&mut self, out: &mut Writer, enough: usize) {
        out.length_max = enough;
        while out.len() <= enough && !self.is_done() {
            let until = self.missing.front().map_or(self.bytes.len(), |(at, _)| *at);
            out.raw(&self.bytes[self.copied..until]);
            self.copied = until;
            let Some((_, entries)) = self.missing.front_mut() else { break };
            ENCODER.with_borrow_mut(|encoder| {
                entries.visit(&mut encoder.run(out, entries.left() as usize));
            });
            if entries.left() == 0 {
                self.missing.pop_front();
            }
        }
    }

    /// Writes everything.
    pub(crate) fn write_all(mut self, out: &mut Writer) {
        let length_max = out.length_max;
        self.write(out, usize::MAX);
        out.length_max = length_max;
    }

    /// What is left of the entries, to be freed.
    pub(crate) fn into_remains(self) -> impl Iterator<Item = Value> {
        self.missing.into_iter().map(|(_, entries)| Value::Stream(Box::new(entries.into_stream())))
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
    fn slices_of_any_size_make_the_reply_that_is_written_at_once() {
        let (one, two) = (stream(500), stream(37));
        for resp3 in [false, true] {
            for enough in [1, 10, 100, 1000, 5000, 100_000] {
                let prepared = || {
                    let mut out = Writer::new(resp3);
                    out.simple("BEFORE");
                    let mut missing = Missing::new();
                    for (name, stream, backward) in [("one", &one, false), ("two", &two, true)] {
                        out.bulk(name);
                        missing.push((out.len(), stream.extract(IdRange::ALL, 400, backward)));
                    }
                    out.simple("AFTER");
                    let reply = LongReply::new(&mut out, missing);
                    (out, reply)
                };
                let (mut expected, reply) = prepared();
                reply.write_all(&mut expected);
                let (out, mut reply) = prepared();
                let mut pieces = out.buf;
                while !reply.is_done() {
                    let mut slice = Writer::new(resp3);
                    reply.write(&mut slice, enough);
                    assert!(!slice.is_empty() && slice.len() < enough + 10_000, "{} bytes", slice.len());
                    pieces.extend_from_slice(&slice.buf);
                }
                assert_eq!(pieces, expected.buf, "slices of {enough}");
            }
        }
    }
}
