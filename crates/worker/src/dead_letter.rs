//! What a dead letter looks like: the entry as it was, and beside it where it comes from and why it ended.
//!
//! | field | what it says |
//! |---|---|
//! | `dlq.stream`, `dlq.id` | the entry it was |
//! | `dlq.group`, `dlq.consumer` | for whom it ended, and with whom |
//! | `dlq.deliveries` | how often it was delivered to handlers |
//! | `dlq.reason` | one of [`Reason`] |
//! | `dlq.error`, `dlq.error_type` | what the handler said last |
//! | `dlq.first_seen` | when the entry was added, in milliseconds since 1970 (the time in its id) |
//! | `dlq.dead_at` | when it ended, in milliseconds since 1970 |
//! | `dlq.redrives` | how often it had been given another chance before |
//!
//! The fields of the entry come first and verbatim, `traceparent` among them. A field of the entry whose name begins
//! with `dlq.` comes from an earlier dead letter and gives way to the new one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::backend::{DeadLetter, Entry, Fields, StreamId};
use crate::message::Message;
use crate::outcome::{Failure, Reason};

const PREFIX: &[u8] = b"dlq.";
const STREAM: &str = "dlq.stream";
const ID: &str = "dlq.id";
const GROUP: &str = "dlq.group";
const CONSUMER: &str = "dlq.consumer";
const DELIVERIES: &str = "dlq.deliveries";
const REASON: &str = "dlq.reason";
const ERROR: &str = "dlq.error";
const ERROR_TYPE: &str = "dlq.error_type";
const FIRST_SEEN: &str = "dlq.first_seen";
const DEAD_AT: &str = "dlq.dead_at";
const REDRIVES: &str = "dlq.redrives";

/// The longest error text that is kept: the letter is for finding out, not for whole dumps.
const ERROR_BYTES_MAX: usize = 8 * 1024;

/// A dead letter, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// Its id among the dead letters.
    pub id: StreamId,
    /// The stream it comes from.
    pub stream: String,
    /// Its id there.
    pub origin: StreamId,
    /// The group it ended for.
    pub group: String,
    /// The consumer it ended with.
    pub consumer: String,
    /// How often it was delivered to handlers.
    pub deliveries: u64,
    /// Why it ended; `None` for a word that is none of ours.
    pub reason: Option<Reason>,
    /// What went wrong, for people.
    pub error: String,
    /// The type of the error.
    pub error_type: String,
    /// When the entry was added.
    pub first_seen: SystemTime,
    /// When it ended.
    pub dead_at: SystemTime,
    /// How often it had been given another chance before.
    pub redrives: u64,
    /// The fields it had.
    pub fields: Fields,
}

impl Letter {
    /// Reads an entry of a dead-letter stream; `None` if it does not say where it comes from.
    pub fn read(entry: &Entry) -> Option<Letter> {
        let text = |name: &str| {
            let value = entry.fields.iter().rev().find(|(key, _)| key == name.as_bytes());
            value.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        let number = |name: &str| text(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or_default();
        let time = |name: &str| UNIX_EPOCH + Duration::from_millis(number(name));
        let own = |name: &Bytes| !name.starts_with(PREFIX);
        Some(Letter {
            id: entry.id,
            stream: text(STREAM)?,
            origin: parse_id(&text(ID)?)?,
            group: text(GROUP).unwrap_or_default(),
            consumer: text(CONSUMER).unwrap_or_default(),
            deliveries: number(DELIVERIES),
            reason: text(REASON).and_then(|reason| reason.parse().ok()),
            error: text(ERROR).unwrap_or_default(),
            error_type: text(ERROR_TYPE).unwrap_or_default(),
            first_seen: time(FIRST_SEEN),
            dead_at: time(DEAD_AT),
            redrives: number(REDRIVES),
            fields: entry.fields.iter().filter(|(name, _)| own(name)).cloned().collect(),
        })
    }

    /// The entry for another chance in the whole stream, saying how often it has had one.
    pub(crate) fn revived_fields(&self) -> Fields {
        let mut fields = self.fields.clone();
        fields.push((REDRIVES.into(), (self.redrives + 1).to_string().into()));
        fields
    }
}

/// The letter for a message that ends here.
pub(crate) fn compose(
    message: &Message,
    to: &str,
    failure: &Failure,
    redrives: u64,
    now: SystemTime,
) -> DeadLetter {
    let mut fields: Fields =
        message.fields.iter().filter(|(name, _)| !name.starts_with(PREFIX)).cloned().collect();
    let mut say = |name: &'static str, value: String| fields.push((name.into(), value.into()));
    say(STREAM, message.stream.to_string());
    say(ID, message.id.to_string());
    say(GROUP, message.group.to_string());
    say(CONSUMER, message.consumer.to_string());
    say(DELIVERIES, message.attempt.to_string());
    say(REASON, failure.reason.to_string());
    say(ERROR, shortened(&failure.error).to_owned());
    say(ERROR_TYPE, failure.error_type.clone());
    say(FIRST_SEEN, message.id.ms.to_string());
    say(DEAD_AT, now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().to_string());
    say(REDRIVES, redrives.to_string());
    DeadLetter { origin: message.id, to: to.to_owned(), fields }
}

/// How many other chances the entry itself says it has had.
pub(crate) fn redrives_in(message: &Message) -> u64 {
    message.text(REDRIVES).and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// The beginning of a text, cut where a character begins.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(ERROR_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn parse_id(text: &str) -> Option<StreamId> {
    let (ms, seq) = text.split_once('-')?;
    Some(StreamId::new(ms.parse().ok()?, seq.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::sample;

    fn failure() -> Failure {
        Failure { error: "card expired".into(), error_type: "PayError".into(), reason: Reason::Rejected }
    }

    #[test]
    fn a_letter_is_read_as_it_was_written() {
        let mut message = sample(&[("order", "17"), ("traceparent", "00-a-b-01")]);
        message.attempt = 3;
        let dead_at = UNIX_EPOCH + Duration::from_millis(5_000);
        let letter = compose(&message, "{orders}:dlq", &failure(), 2, dead_at);
        assert_eq!(letter.origin, message.id);
        assert_eq!(letter.to, "{orders}:dlq");
        let entry = Entry { id: StreamId::new(9, 9), fields: letter.fields };
        let read = Letter::read(&entry).unwrap();
        assert_eq!(read.fields, *message.fields);
        assert_eq!(
            (read.stream.as_str(), read.group.as_str(), read.consumer.as_str()),
            ("orders", "billing", "one")
        );
        assert_eq!((read.origin, read.deliveries, read.redrives), (message.id, 3, 2));
        assert_eq!((read.reason, read.error.as_str()), (Some(Reason::Rejected), "card expired"));
        assert_eq!((read.first_seen, read.dead_at), (UNIX_EPOCH + Duration::from_millis(7), dead_at));
    }

    #[test]
    fn the_names_are_those_of_the_convention() {
        let letter = compose(&sample(&[]), "dead", &failure(), 0, UNIX_EPOCH);
        let names: Vec<&str> =
            letter.fields.iter().map(|(name, _)| std::str::from_utf8(name).unwrap()).collect();
        let convention =
            "stream id group consumer deliveries reason error error_type first_seen dead_at redrives";
        let convention: Vec<String> = convention.split(' ').map(|name| format!("dlq.{name}")).collect();
        assert_eq!(names, convention);
    }

    #[test]
    fn a_second_letter_says_everything_once() {
        let letter = compose(&sample(&[("order", "17")]), "dead", &failure(), 0, UNIX_EPOCH);
        let read = Letter::read(&Entry { id: StreamId::MIN, fields: letter.fields }).unwrap();
        let mut again = sample(&[]);
        again.fields = std::sync::Arc::new(read.revived_fields());
        assert_eq!(redrives_in(&again), 1);
        let second = compose(&again, "dead", &failure(), redrives_in(&again), UNIX_EPOCH);
        assert_eq!(second.fields.iter().filter(|(name, _)| name == REDRIVES).count(), 1);
        assert_eq!(Letter::read(&Entry { id: StreamId::MIN, fields: second.fields }).unwrap().redrives, 1);
    }

    #[test]
    fn long_errors_are_cut_between_characters() {
        let text = "ü".repeat(ERROR_BYTES_MAX);
        assert_eq!(shortened(&text).len(), ERROR_BYTES_MAX);
        let odd = format!("x{text}");
        assert_eq!(shortened(&odd).len(), ERROR_BYTES_MAX - 1);
    }

    #[test]
    fn an_entry_that_does_not_say_where_it_comes_from_is_no_letter() {
        assert_eq!(Letter::read(&Entry { id: StreamId::MIN, fields: vec![] }), None);
    }
}
