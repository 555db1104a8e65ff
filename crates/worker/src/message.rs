//! An entry on its way to a handler.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::backend::{Fields, StreamId};

/// An entry on its way to a handler. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message {
    /// The stream it was read from.
    pub stream: Arc<str>,
    /// The group it was read for.
    pub group: Arc<str>,
    /// The consumer it was handed to.
    pub consumer: Arc<str>,
    /// Its id.
    pub id: StreamId,
    /// Its names and values, in order.
    pub fields: Arc<Fields>,
    /// How often it has been delivered, this time included.
    pub attempt: u64,
    /// Fires when the message is no longer ours to work on: its lease is lost, or draining has taken too long.
    pub cancelled: CancellationToken,
}

impl Message {
    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        self.fields.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value)
    }

    /// The value of the first field of this name, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// How long ago the entry was added, by the time in its id. Zero for an id that tells no time of the past.
    pub fn age(&self) -> Duration {
        age_of(self.id, SystemTime::now()).unwrap_or_default()
    }
}

/// The beginning of 2001. A smaller number is no time: the id was made by hand, as 1-1 is.
const EARLIEST_MS: u64 = 978_307_200_000;

/// How long before `now` an entry was added, by the time in its id; `None` if the id tells no time of the past.
pub fn age_of(id: StreamId, now: SystemTime) -> Option<Duration> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if id.ms < EARLIEST_MS { None } else { now.checked_sub(Duration::from_millis(id.ms)) }
}

/// A message for the tests of this crate.
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
        group: "billing".into(),
        consumer: "one".into(),
        id: StreamId::new(7, 1),
        fields: Arc::new(fields),
        attempt: 1,
        cancelled: CancellationToken::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_of_a_name_counts() {
        let message = sample(&[("a", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(message.text("a"), Some("1"));
        assert_eq!(message.text("c"), None);
    }

    #[test]
    fn a_value_that_is_not_text_is_a_field_all_the_same() {
        let mut message = sample(&[]);
        message.fields = Arc::new(vec![(Bytes::from_static(b"raw"), Bytes::from_static(b"\xff"))]);
        assert_eq!(message.text("raw"), None);
        assert_eq!(message.field("raw").map(|value| &value[..]), Some(&b"\xff"[..]));
    }

    #[test]
    fn only_an_id_that_tells_a_time_of_the_past_has_an_age() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_010);
        assert_eq!(age_of(StreamId::new(1_700_000_004_000, 0), now), Some(Duration::from_secs(6)));
        assert_eq!(age_of(StreamId::new(1_700_000_010_001, 0), now), None);
        assert_eq!((age_of(StreamId::MAX, now), age_of(StreamId::new(1, 1), now)), (None, None));
        assert_eq!(sample(&[]).age(), Duration::ZERO);
    }
}
