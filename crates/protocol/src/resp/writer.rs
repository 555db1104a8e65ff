//! Encoding of replies.
//!
//! A command calls a method for each value of its reply (a number, an id, a map of n pairs), and the writer encodes it
//! for the connection's protocol version. To undo a part of a reply, for example before an error, remember
//! [`Writer::len`] and call [`Writer::truncate`] with it.
//!
//! A writer that [is full](Writer::is_full) ignores further values. So a command need not check how long its reply is:
//! the server sees that the writer is full, and does not send the reply.

use super::decimal;
use super::id_prefix::IdPrefix;
use millstream_engine::StreamId;
use millstream_engine::stream::{EntryRef, ValueRef};
use std::fmt::{self, Write as _};

/// The encoded replies of one connection or of one command.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The encoded bytes.
    pub buf: Vec<u8>,
    /// Whether the client asked for RESP3.
    pub resp3: bool,
    /// Maximum length of `buf` in bytes. The value that exceeds it is the last one written.
    pub length_max: usize,
    prefix: IdPrefix,
}

/// The place in the output where [`Writer::finish`] later writes the length of an array, a map or a string.
#[derive(Debug)]
#[must_use = "pass it to `finish`, which writes the length"]
pub struct DeferredLength {
    at: usize,
    /// Number of digits reserved; 0 if the writer was full.
    digits: usize,
    /// Array elements per counted item: 2 for a map in RESP2, otherwise 1.
    scale: usize,
}

impl Writer {
    /// Returns an empty writer for RESP3 or RESP2.
    pub fn new(resp3: bool) -> Writer {
        Writer { buf: Vec::new(), resp3, length_max: usize::MAX, prefix: IdPrefix::default() }
    }

    /// Returns the number of bytes written so far, for [`truncate`](Self::truncate).
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Returns whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Returns whether the output is longer than `length_max`. Then all values are ignored until it is truncated.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.buf.len() > self.length_max
    }

    /// Removes everything that was written since [`len`](Self::len) was `length`.
    pub fn truncate(&mut self, length: usize) {
        self.buf.truncate(length);
    }

    /// Writes `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        if self.is_full() {
            return;
        }
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a simple string. The text must not contain line ends.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error: its code and a sentence. Line ends inside it become spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        if self.is_full() {
            return;
        }
        let from = self.buf.len();
        self.line(b'-', text.as_ref());
        let to = self.buf.len() - 2;
        for byte in &mut self.buf[from..to] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }

    /// Writes an integer.
    #[inline]
    pub fn int(&mut self, number: i64) {
        if self.is_full() {
            return;
        }
        self.buf.push(b':');
        if number < 0 {
            self.buf.push(b'-');
        }
        decimal::push_line(&mut self.buf, number.unsigned_abs());
    }

    /// Writes an unsigned integer. Some clients cannot read integers above `i64::MAX`.
    #[inline]
    pub fn uint(&mut self, number: u64) {
        if self.is_full() {
            return;
        }
        self.buf.push(b':');
        decimal::push_line(&mut self.buf, number);
    }

    /// Writes a count as an integer.
    #[inline]
    pub fn count(&mut self, number: usize) {
        self.uint(number as u64);
    }

    /// Writes a bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        if self.is_full() {
            return;
        }
        let bytes = bytes.as_ref();
        self.buf.reserve(bytes.len() + 16);
        decimal::push_header(&mut self.buf, b'$', bytes.len());
        self.buf.extend_from_slice(bytes);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// Writes an integer as a bulk string.
    pub fn bulk_int(&mut self, number: i64) {
        self.bulk(itoa::Buffer::new().format(number));
    }

    /// Writes a floating-point number: a double in RESP3, a bulk string in RESP2.
    pub fn double(&mut self, number: f64) {
        if self.resp3 {
            self.buf.extend_from_slice(format!(",{number}\r\n").as_bytes());
        } else {
            self.bulk_display(number);
        }
    }

    /// Writes a value in its `Display` form as a bulk string.
    pub fn bulk_display(&mut self, value: impl fmt::Display) {
        if self.is_full() {
            return;
        }
        let mark = self.deferred(b'$', 10, 1);
        let from = self.buf.len();
        // Writing to a vector cannot fail. If `value` itself fails, the reply is the text it has written until then.
        let _ = write!(VecWriter(&mut self.buf), "{value}");
        let length = self.buf.len() - from;
        self.buf.extend_from_slice(b"\r\n");
        self.finish(mark, length);
    }

    /// Writes an id as a bulk string, `ms-seq`.
    pub fn id(&mut self, id: StreamId) {
        if self.is_full() {
            return;
        }
        let seq_digits = decimal::digit_count(id.seq);
        self.prefix.set(id.ms, seq_digits);
        let seq_at = self.buf.len() + self.prefix.length();
        self.buf.extend_from_slice(self.prefix.bytes());
        self.buf.truncate(seq_at);
        decimal::push_line(&mut self.buf, id.seq);
    }

    /// Writes a null in place of a string.
    #[inline]
    pub fn null_bulk(&mut self) {
        if self.is_full() {
            return;
        }
        self.buf.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Writes a null in place of an array.
    #[inline]
    pub fn null_array(&mut self) {
        if self.is_full() {
            return;
        }
        self.buf.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Writes the header of an array. The caller then writes its `length` elements.
    #[inline]
    pub fn array(&mut self, length: usize) {
        if self.is_full() {
            return;
        }
        decimal::push_header(&mut self.buf, b'*', length);
    }

    /// Writes the header of a map. The caller then writes `pairs` keys, each followed by its value.
    pub fn map(&mut self, pairs: usize) {
        if self.is_full() {
            return;
        }
        match self.resp3 {
            true => decimal::push_header(&mut self.buf, b'%', pairs),
            false => decimal::push_header(&mut self.buf, b'*', 2 * pairs),
        }
    }

    /// Writes the header of a set. The caller then writes its `length` elements.
    pub fn set(&mut self, length: usize) {
        if self.is_full() {
            return;
        }
        decimal::push_header(&mut self.buf, if self.resp3 { b'~' } else { b'*' }, length);
    }

    /// Writes a verbatim string: text for people, which clients show unchanged.
    pub fn verbatim(&mut self, text: impl AsRef<[u8]>) {
        if !self.resp3 {
            return self.bulk(text);
        }
        if self.is_full() {
            return;
        }
        let text = text.as_ref();
        decimal::push_header(&mut self.buf, b'=', text.len() + 4);
        self.buf.extend_from_slice(b"txt:");
        self.buf.extend_from_slice(text);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// Writes the header of an array whose length is not known yet. The caller then writes the elements and calls
    /// [`finish`](Self::finish), which writes the length. It is cheap if `expected` has as many digits as the length.
    #[inline]
    pub fn array_deferred(&mut self, expected: usize) -> DeferredLength {
        self.deferred(b'*', expected, 1)
    }

    /// Like [`array_deferred`](Self::array_deferred), for a map.
    pub fn map_deferred(&mut self, expected: usize) -> DeferredLength {
        if self.resp3 { self.deferred(b'%', expected, 1) } else { self.deferred(b'*', expected, 2) }
    }

    /// Writes a deferred length. If arrays are nested, finish the inner ones before the outer ones.
    #[inline]
    pub fn finish(&mut self, mark: DeferredLength, length: usize) {
        let length = (length * mark.scale) as u64;
        if length < 10 && mark.digits == 1 {
            self.buf[mark.at] = b'0' + length as u8;
        } else {
            self.write_length(mark, length);
        }
    }

    #[inline(never)]
    fn write_length(&mut self, mark: DeferredLength, length: u64) {
        if mark.digits == 0 {
            return;
        }
        let digits = decimal::digit_count(length);
        if digits == mark.digits {
            decimal::write_digits(length, &mut self.buf[mark.at..mark.at + digits]);
        } else {
            let mut text = [0; decimal::DIGITS_MAX];
            decimal::write_digits(length, &mut text[..digits]);
            self.buf.splice(mark.at..mark.at + mark.digits, text[..digits].iter().copied());
        }
    }

    /// Writes bytes that are already encoded for this writer's protocol version.
    pub fn raw(&mut self, reply: &[u8]) {
        if self.is_full() {
            return;
        }
        self.buf.extend_from_slice(reply);
    }

    /// Writes values before those that were written since [`len`](Self::len) was `length`.
    pub fn insert(&mut self, length: usize, write: impl FnOnce(&mut Writer)) {
        if self.is_full() {
            return;
        }
        let mut inserted = Writer::new(self.resp3);
        write(&mut inserted);
        self.buf.splice(length..length, inserted.buf);
    }

    /// Writes an entry: its id, and its fields as a flat array in both protocol versions. For many entries
    /// [`EntryEncoder`](super::EntryEncoder) is faster.
    pub fn entry(&mut self, entry: &EntryRef<'_>) {
        self.array(2);
        self.id(entry.id());
        self.array(2 * entry.field_count());
        for (name, value) in entry.fields() {
            self.bulk(name);
            self.value(value);
        }
    }

    /// Writes an entry as XREADGROUP CLAIM returns it: with its idle time in milliseconds (-1 if no consumer owned it)
    /// and its delivery count.
    pub fn claimed_entry(&mut self, entry: &EntryRef<'_>, idle_ms: i64, deliveries: u64) {
        if self.is_full() {
            return;
        }
        let at = self.buf.len();
        self.entry(entry);
        // An entry is an array of two elements; this one has two more.
        self.buf[at + 1] = b'4';
        self.int(idle_ms);
        self.uint(deliveries);
    }

    /// Writes a pending entry that is no longer in the stream: its id, and null in place of the fields.
    pub fn deleted_entry(&mut self, id: StreamId) {
        self.array(2);
        self.id(id);
        self.null_array();
    }

    fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Bytes(bytes) => self.bulk(bytes),
            ValueRef::Int(number) => self.bulk_int(number),
        }
    }

    fn line(&mut self, first: u8, text: &[u8]) {
        if self.is_full() {
            return;
        }
        self.buf.reserve(text.len() + 3);
        self.buf.push(first);
        self.buf.extend_from_slice(text);
        self.buf.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn deferred(&mut self, first: u8, expected: usize, scale: usize) -> DeferredLength {
        let (at, expected) = (self.buf.len() + 1, expected * scale);
        if self.is_full() {
            return DeferredLength { at, digits: 0, scale };
        }
        decimal::push_header(&mut self.buf, first, expected);
        DeferredLength { at, digits: decimal::digit_count(expected as u64), scale }
    }
}

struct VecWriter<'a>(&'a mut Vec<u8>);

impl fmt::Write for VecWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl FnOnce(&mut Writer)) -> String {
        let mut writer = Writer::new(resp3);
        write(&mut writer);
        String::from_utf8(writer.buf).unwrap()
    }

    fn both(write: impl Fn(&mut Writer)) -> (String, String) {
        (written(false, &write), written(true, &write))
    }

    fn same(write: impl Fn(&mut Writer)) -> String {
        let (resp2, resp3) = both(write);
        assert_eq!(resp2, resp3);
        resp2
    }

    fn pair(resp2: &str, resp3: &str) -> (String, String) {
        (resp2.to_owned(), resp3.to_owned())
    }

    #[test]
    fn plain_replies_are_the_same_in_both_protocols() {
        assert_eq!(same(|w| w.ok()), "+OK\r\n");
        assert_eq!(same(|w| w.simple("PONG")), "+PONG\r\n");
        assert_eq!(same(|w| w.error("ERR a\r\nb")), "-ERR a  b\r\n");
        assert_eq!(same(|w| w.int(-42)), ":-42\r\n");
        assert_eq!(same(|w| w.int(i64::MIN)), ":-9223372036854775808\r\n");
        assert_eq!(same(|w| w.uint(u64::MAX)), ":18446744073709551615\r\n");
        assert_eq!(same(|w| w.bulk(b"a\r\nb")), "$4\r\na\r\nb\r\n");
        assert_eq!(same(|w| w.bulk("")), "$0\r\n\r\n");
        assert_eq!(same(|w| w.bulk_int(-7)), "$2\r\n-7\r\n");
        assert_eq!(same(|w| w.bulk_display("short")), "$5\r\nshort\r\n");
        assert_eq!(same(|w| w.bulk_display("x".repeat(100))), format!("$100\r\n{}\r\n", "x".repeat(100)));
        assert_eq!(same(|w| w.id(StreamId::new(1_526_569_495_631, 0))), "$15\r\n1526569495631-0\r\n");
        assert_eq!(same(|w| w.id(StreamId::MAX)), format!("$41\r\n{}-{}\r\n", u64::MAX, u64::MAX));
        assert_eq!(same(|w| w.array(120)), "*120\r\n");
    }

    #[test]
    fn nulls_maps_sets_and_verbatim_strings_differ_between_protocols() {
        assert_eq!(both(|w| w.null_bulk()), pair("$-1\r\n", "_\r\n"));
        assert_eq!(both(|w| w.null_array()), pair("*-1\r\n", "_\r\n"));
        assert_eq!(both(|w| w.map(7)), pair("*14\r\n", "%7\r\n"));
        assert_eq!(both(|w| w.set(3)), pair("*3\r\n", "~3\r\n"));
        assert_eq!(both(|w| w.verbatim("hi")), pair("$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"));
        let deleted = |w: &mut Writer| w.deleted_entry(StreamId::new(1, 2));
        assert_eq!(both(deleted), pair("*2\r\n$3\r\n1-2\r\n*-1\r\n", "*2\r\n$3\r\n1-2\r\n_\r\n"));
    }

    #[test]
    fn deferred_length_is_exact_for_any_expected_length() {
        for expected in [0, 1, 9, 10, 99, 100, 12_345] {
            for length in [0, 1, 9, 10, 55, 100, 99_999] {
                let array = same(|w| {
                    let outer = w.array_deferred(1);
                    let inner = w.array_deferred(expected);
                    w.int(5);
                    w.finish(inner, length);
                    w.int(6);
                    w.finish(outer, 12);
                });
                assert_eq!(array, format!("*12\r\n*{length}\r\n:5\r\n:6\r\n"));
                let map = both(|w| {
                    let mark = w.map_deferred(expected);
                    w.int(5);
                    w.finish(mark, length);
                });
                assert_eq!(map, (format!("*{}\r\n:5\r\n", 2 * length), format!("%{length}\r\n:5\r\n")));
            }
        }
    }

    #[test]
    fn full_writer_ignores_values_until_it_is_truncated() {
        let id = StreamId::new(1, 2);
        let values: [fn(&mut Writer, StreamId); 20] = [
            |w, _| w.ok(),
            |w, _| w.simple("x"),
            |w, _| w.error("x"),
            |w, _| w.int(-1),
            |w, _| w.uint(1),
            |w, _| w.count(1),
            |w, _| w.bulk("x"),
            |w, _| w.bulk_int(1),
            |w, _| w.bulk_display(1),
            |w, id| w.id(id),
            |w, _| w.null_bulk(),
            |w, _| w.null_array(),
            |w, _| w.array(1),
            |w, _| w.map(1),
            |w, _| w.set(1),
            |w, _| w.verbatim("x"),
            |w, _| w.raw(b"x"),
            |w, _| w.insert(0, |w| w.ok()),
            |w, id| w.deleted_entry(id),
            |w, _| {
                let (outer, inner) = (w.array_deferred(1), w.map_deferred(100));
                w.finish(inner, 7);
                w.finish(outer, 12);
            },
        ];
        for resp3 in [false, true] {
            for write in values {
                let mut writer = Writer::new(resp3);
                writer.length_max = 10;
                // At the limit the writer still takes a value, and that is the last one.
                writer.raw(b"+12345\r\n");
                writer.raw(b"+\r");
                assert!(!writer.is_full());
                writer.bulk("last");
                assert!(writer.is_full());
                let full = writer.buf.clone();
                write(&mut writer, id);
                assert_eq!(writer.buf, full);
                writer.truncate(0);
                write(&mut writer, id);
                assert!(!writer.is_empty());
            }
        }
    }

    #[test]
    fn inserted_values_precede_later_ones() {
        let mut writer = Writer::new(false);
        writer.ok();
        let length = writer.len();
        writer.int(7);
        writer.insert(length, |w| w.bulk("before"));
        assert_eq!(writer.buf, b"+OK\r\n$6\r\nbefore\r\n:7\r\n");
    }

    #[test]
    fn truncate_removes_an_unfinished_reply() {
        let mut writer = Writer::new(false);
        writer.ok();
        let before = writer.len();
        writer.array(5);
        writer.bulk("half");
        writer.truncate(before);
        writer.error("ERR no");
        assert_eq!(writer.buf, b"+OK\r\n-ERR no\r\n");
    }
}
