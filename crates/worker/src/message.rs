//! A stream entry as a handler receives it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::backend::{Fields, StreamId};
use crate::trace::{SpanId, TraceContext};

/// A stream entry as a handler receives it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message {
    /// The stream from which the message was read.
    pub stream: Arc<str>,
    /// The stream that the worker was told to read: the same, or the one of which [`stream`](Message::stream) is a
    /// partition.
    pub logical_stream: Arc<str>,
    /// The group for which it was read.
    pub group: Arc<str>,
    /// The consumer to which it was delivered.
    pub consumer: Arc<str>,
    /// The id of the entry.
    pub id: StreamId,
    /// Names and values of the fields, in order.
    pub fields: Arc<Fields>,
    /// How many deliveries of the message may have reached a handler, including this one.
    pub attempt: u64,
    /// The span of this handler call. `None` if the message belongs to no trace.
    pub span_id: Option<SpanId>,
    /// The field that holds the key, if the worker [orders](crate::WorkerBuilder::order_by) messages by their keys.
    pub key_field: Option<Arc<str>>,
    /// The number of the partition from which the message was read. `None` if its stream has no partitions.
    pub partition: Option<usize>,
    /// The number of this worker as the owner of the stream: greater than that of every earlier owner. `None` if nobody
    /// owns the stream. A system that remembers the greatest number it has seen can refuse an earlier owner.
    pub fence: Option<u64>,
    /// Cancelled when the handler should stop: the lease is lost, or the drain deadline has passed.
    pub cancelled: CancellationToken,
}

impl Message {
    /// Returns the value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        self.fields.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the value of the first field with this name, if it is UTF-8 text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Returns the key by which the worker orders messages. `None` if the message lacks the field, or if the worker
    /// does not order messages.
    pub fn key(&self) -> Option<&Bytes> {
        self.field(self.key_field.as_deref()?)
    }

    /// Returns the trace of the message and the span that sent it. `None` if the message has no valid field
    /// `traceparent`.
    pub fn trace(&self) -> Option<TraceContext> {
        // A message without a span has no trace, so this costs nothing.
        self.span_id.and_then(|_| TraceContext::of(&self.fields))
    }

    /// Returns the trace of the message and the span of this handler call, to pass on to what the handler calls.
    pub fn handler_trace(&self) -> Option<TraceContext> {
        Some(self.trace()?.with_span(self.span_id?))
    }

    /// Returns the time since the entry was added, according to its id. Zero if the id contains no time in the past.
    pub fn age(&self) -> Duration {
        age_of(self.id, SystemTime::now()).unwrap_or_default()
    }
}

/// The beginning of 2001, in milliseconds. Ids with a smaller number, such as 1-1, were not made from a clock.
const EARLIEST_MS: u64 = 978_307_200_000;

/// Returns the time from adding an entry to `now`, according to its id, or `None` if the id contains no time in the
/// past.
pub fn age_of(id: StreamId, now: SystemTime) -> Option<Duration> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if id.ms < EARLIEST_MS { None } else { now.checked_sub(Duration::from_millis(id.ms)) }
}

/// Returns a message for the tests of this crate.
#[cfg(test)]
pub(crate) fn sample(fields: &[(&str, &str)]) -> Message {
    let fields = fields
        .iter()
        .map(|(name, value)| {
            (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
        })
        .collect();
    Message {
        stream: "orders".into(),
        logical_stream: "orders".into(),
        group: "billing".into(),
        consumer: "one".into(),
        id: StreamId::new(7, 1),
        fields: Arc::new(fields),
        attempt: 1,
        span_id: None,
        key_field: None,
        partition: None,
        fence: None,
        cancelled: CancellationToken::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_with_a_name_is_returned() {
        let message = sample(&[("a", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(message.text("a"), Some("1"));
        assert_eq!(message.text("c"), None);
    }

    #[test]
    fn the_key_is_the_value_of_the_field_that_orders_messages() {
        let mut message = sample(&[("customer", "17"), ("empty", "")]);
        assert_eq!(message.key(), None);
        for (field, key) in [("customer", Some(&b"17"[..])), ("empty", Some(b"")), ("missing", None)] {
            message.key_field = Some(field.into());
            assert_eq!(message.key().map(|key| &key[..]), key);
        }
    }

    #[test]
    fn a_value_that_is_not_text_is_still_a_field() {
        let mut message = sample(&[]);
        message.fields = Arc::new(vec![(Bytes::from_static(b"raw"), Bytes::from_static(b"\xff"))]);
        assert_eq!(message.text("raw"), None);
        assert_eq!(message.field("raw").map(|value| &value[..]), Some(&b"\xff"[..]));
    }

    #[test]
    fn only_ids_with_a_time_in_the_past_have_an_age() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_010);
        assert_eq!(age_of(StreamId::new(1_700_000_004_000, 0), now), Some(Duration::from_secs(6)));
        assert_eq!(age_of(StreamId::new(1_700_000_010_001, 0), now), None);
        assert_eq!((age_of(StreamId::MAX, now), age_of(StreamId::new(1, 1), now)), (None, None));
        assert_eq!(sample(&[]).age(), Duration::ZERO);
    }
}
