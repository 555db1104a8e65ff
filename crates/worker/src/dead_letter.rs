//! The format of a dead letter: the fields of the original entry, followed by fields that describe the failure.
//!
//! | field | content |
//! |---|---|
//! | `dlq.stream`, `dlq.id` | the stream and the id of the original entry |
//! | `dlq.group`, `dlq.consumer` | the group and the consumer that gave up on it |
//! | `dlq.deliveries` | number of deliveries to handlers |
//! | `dlq.reason` | one of [`Reason`] |
//! | `dlq.error`, `dlq.error_type` | the last error of the handler, or why the worker gave up without one |
//! | `dlq.first_seen` | when the entry was added, in milliseconds since 1970 (the time in its id) |
//! | `dlq.dead_at` | when it was dead-lettered, in milliseconds since 1970 |
//! | `dlq.redrives` | number of earlier redrives |
//! | `dlq.key` | the key that went on without the entry, if the worker orders messages and the entry has a key |
//!
//! The original fields, including `traceparent`, are copied unchanged. Exception: original fields whose names start
//! with `dlq.` come from an earlier dead letter, or from a producer who made them up, and are replaced.
//!
//! [`DeadLetterFormat`] also reads dead letters that other programs wrote.

mod format;

use std::time::{SystemTime, UNIX_EPOCH};

pub use format::{DeadLetterFormat, FieldMap};
use millstream_store::dead_letter::{
    CONSUMER, DEAD_AT, DELIVERIES, ERROR, ERROR_TYPE, FIRST_SEEN, GROUP, ID, PREFIX, REASON, REDRIVES, STREAM,
};

use format::Meaning;

use crate::backend::{Entry, Fields, NewDeadLetter, StreamId};
use crate::message::Message;
use crate::outcome::{Failure, Reason, shortened};

/// The field that has the key whose order has a gap. The fields of the entry can name the key themselves, but not that
/// the worker ordered by it.
const KEY: &str = "dlq.key";

/// Maximum bytes of the error text. A longer text is cut.
const ERROR_BYTES_MAX: usize = 8 * 1024;

/// A dead letter, parsed from an entry of a dead-letter stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The id of the dead letter in the dead-letter stream.
    pub id: StreamId,
    /// The stream of the original entry.
    pub stream: String,
    /// The id of the original entry. `None` if it is unknown, which happens only for foreign dead letters.
    pub origin: Option<StreamId>,
    /// The group that gave up on the entry. Empty if it is unknown.
    pub group: String,
    /// The consumer that gave up on the entry. Empty if it is unknown.
    pub consumer: String,
    /// Number of deliveries to handlers. 0 if it is unknown.
    pub deliveries: u64,
    /// Why the entry was dead-lettered. `None` if the reason is missing or not one of those that workers write.
    pub reason: Option<Reason>,
    /// The reason as it was written.
    pub reason_text: String,
    /// The error message.
    pub error: String,
    /// The type of the error.
    pub error_type: String,
    /// When the original entry was added. `None` if it is unknown.
    pub first_seen: Option<SystemTime>,
    /// When the entry was dead-lettered.
    pub dead_at: SystemTime,
    /// Number of earlier redrives.
    pub redrives: u64,
    /// The fields of the original entry.
    pub fields: Fields,
    /// Whether another program than a worker wrote the dead letter.
    pub is_foreign: bool,
}

impl DeadLetter {
    /// Parses a dead letter that a worker wrote. Returns `None` if the entry lacks `dlq.stream` or a valid `dlq.id`.
    ///
    /// [`DeadLetterFormat`] also parses dead letters of other programs.
    pub fn read(entry: &Entry) -> Option<DeadLetter> {
        let fields = format::original_fields(entry, |name| name.starts_with(PREFIX));
        let dead_letter = format::describe(entry, &Meaning::ALL, fields, format::parse_millis);
        Some(dead_letter).filter(|read| read.origin.is_some() && !read.stream.is_empty())
    }

    /// Returns the id of the dead letter and, if it is known, that of the original entry.
    pub fn ids(&self) -> impl Iterator<Item = StreamId> {
        std::iter::once(self.id).chain(self.origin)
    }

    /// Returns the fields for adding the message to its stream again.
    ///
    /// A message that a worker dead-lettered gets a field with the number of redrives, including this one, for
    /// handlers. Other programs may not expect such a field.
    pub(crate) fn redriven_fields(&self) -> Fields {
        let mut fields = self.fields.clone();
        if !self.is_foreign {
            fields.push((REDRIVES.into(), self.redrives.saturating_add(1).to_string().into()));
        }
        fields
    }
}

/// Builds the dead letter of a message.
pub(crate) fn compose(
    message: &Message,
    to: &str,
    failure: &Failure,
    redrives: u64,
    now: SystemTime,
) -> NewDeadLetter {
    let mut fields: Fields =
        message.fields.iter().filter(|(name, _)| !name.starts_with(PREFIX)).cloned().collect();
    let mut push = |name: &'static str, value: String| fields.push((name.into(), value.into()));
    push(STREAM, message.stream.to_string());
    push(ID, message.id.to_string());
    push(GROUP, message.group.to_string());
    push(CONSUMER, message.consumer.to_string());
    push(DELIVERIES, message.attempt.to_string());
    push(REASON, failure.reason.to_string());
    push(ERROR, shortened(&failure.error, ERROR_BYTES_MAX).to_owned());
    push(ERROR_TYPE, failure.error_type.clone());
    push(FIRST_SEEN, message.id.ms.to_string());
    push(DEAD_AT, now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().to_string());
    push(REDRIVES, redrives.to_string());
    if let Some(key) = message.key() {
        fields.push((KEY.into(), key.clone()));
    }
    NewDeadLetter { origin: message.id, to: to.to_owned(), fields }
}

fn parse_id(text: &str) -> Option<StreamId> {
    let (ms, seq) = text.split_once('-')?;
    Some(StreamId::new(ms.parse().ok()?, seq.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::sample;

    fn failure() -> Failure {
        Failure { error: "card expired".into(), error_type: "PayError".into(), reason: Reason::Rejected }
    }

    #[test]
    fn read_returns_what_compose_wrote() {
        let mut message = sample(&[("order", "17"), ("traceparent", "00-a-b-01")]);
        message.attempt = 3;
        let dead_at = UNIX_EPOCH + Duration::from_secs(5);
        let dead_letter = compose(&message, "{orders}:dlq", &failure(), 2, dead_at);
        assert_eq!(dead_letter.origin, message.id);
        assert_eq!(dead_letter.to, "{orders}:dlq");
        let entry = Entry { id: StreamId::new(9, 9), fields: dead_letter.fields };
        let read = DeadLetter::read(&entry).unwrap();
        assert_eq!(read.fields, *message.fields);
        assert_eq!(
            (read.stream.as_str(), read.group.as_str(), read.consumer.as_str()),
            ("orders", "billing", "one")
        );
        assert_eq!((read.origin, read.deliveries, read.redrives), (Some(message.id), 3, 2));
        assert_eq!((read.reason, read.error.as_str()), (Some(Reason::Rejected), "card expired"));
        assert_eq!((read.first_seen, read.dead_at), (Some(UNIX_EPOCH + Duration::from_millis(7)), dead_at));
    }

    #[test]
    fn field_names_follow_the_convention() {
        let dead_letter = compose(&sample(&[]), "dead", &failure(), 0, UNIX_EPOCH);
        let names: Vec<&str> =
            dead_letter.fields.iter().map(|(name, _)| std::str::from_utf8(name).unwrap()).collect();
        let convention =
            "stream id group consumer deliveries reason error error_type first_seen dead_at redrives";
        let convention: Vec<String> = convention.split(' ').map(|name| format!("dlq.{name}")).collect();
        assert_eq!(names, convention);
    }

    #[test]
    fn a_dead_letter_names_the_key_whose_order_has_a_gap() {
        let mut message = sample(&[("customer", "17")]);
        message.key_field = Some("customer".into());
        let dead_letter = compose(&message, "dead", &failure(), 0, UNIX_EPOCH);
        assert_eq!(dead_letter.fields.last().unwrap(), &(KEY.into(), "17".into()));
        let read = DeadLetter::read(&Entry { id: StreamId::MIN, fields: dead_letter.fields }).unwrap();
        assert_eq!(read.fields, *message.fields);
    }

    #[test]
    fn second_dead_letter_replaces_the_fields_of_the_first() {
        let dead_letter = compose(&sample(&[("order", "17")]), "dead", &failure(), 0, UNIX_EPOCH);
        let read = DeadLetter::read(&Entry { id: StreamId::MIN, fields: dead_letter.fields }).unwrap();
        let mut again = sample(&[]);
        again.fields = std::sync::Arc::new(read.redriven_fields());
        assert_eq!(again.text(REDRIVES), Some("1"));
        let second = compose(&again, "dead", &failure(), 1, UNIX_EPOCH);
        assert_eq!(second.fields.iter().filter(|(name, _)| name == REDRIVES).count(), 1);
        assert_eq!(
            DeadLetter::read(&Entry { id: StreamId::MIN, fields: second.fields }).unwrap().redrives,
            1
        );
    }

    #[test]
    fn entries_with_any_reserved_fields_can_be_read_and_redriven() {
        let mut random = fastrand::Rng::with_seed(7);
        let names = [
            STREAM, ID, GROUP, CONSUMER, DELIVERIES, REASON, FIRST_SEEN, DEAD_AT, REDRIVES, KEY, "dlq.",
            "item",
        ];
        let values = [
            "",
            "0",
            "7-1",
            "-1",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551615-18446744073709551615",
            "1e400",
            "NaN",
            "orders",
        ];
        for _ in 0..20_000 {
            let fields: Vec<(&str, &str)> = (0..random.usize(..14))
                .map(|_| (names[random.usize(..names.len())], values[random.usize(..values.len())]))
                .collect();
            let message = sample(&fields);
            let entry =
                Entry { id: StreamId::new(random.u64(..), random.u64(..)), fields: message.fields.to_vec() };
            let format = DeadLetterFormat::new("{orders}:dlq", None, None);
            for read in [DeadLetter::read(&entry), format.read(&entry)].into_iter().flatten() {
                let fields = read.redriven_fields();
                assert!(
                    fields.iter().filter(|(name, _)| name.starts_with(PREFIX)).count() <= 1,
                    "{fields:?}"
                );
            }
            // What the producer wrote does not reach the dead letter of a worker.
            let composed = compose(&message, "dead", &failure(), 0, UNIX_EPOCH);
            for (_, name) in Meaning::ALL {
                assert_eq!(composed.fields.iter().filter(|(field, _)| field == name).count(), 1, "{name}");
            }
            let read = DeadLetter::read(&Entry { id: StreamId::MIN, fields: composed.fields }).unwrap();
            assert_eq!((&*read.stream, read.origin, read.redrives), ("orders", Some(message.id), 0));
        }
    }

    #[test]
    fn long_errors_are_cut_between_characters() {
        let text = "ü".repeat(ERROR_BYTES_MAX);
        assert_eq!(shortened(&text, ERROR_BYTES_MAX).len(), ERROR_BYTES_MAX);
        let odd = format!("x{text}");
        assert_eq!(shortened(&odd, ERROR_BYTES_MAX).len(), ERROR_BYTES_MAX - 1);
    }

    #[test]
    fn read_rejects_an_entry_without_origin() {
        assert_eq!(DeadLetter::read(&Entry { id: StreamId::MIN, fields: vec![] }), None);
    }
}
