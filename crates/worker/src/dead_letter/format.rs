//! Reads dead letters that other programs wrote.
//!
//! A program that handles its failures itself usually adds the fields of the message to another stream, with or without
//! fields that describe the failure. [`DeadLetterFormat`] recognizes, entry by entry:
//!
//! 1. dead letters of workers, even if they lack some `dlq.` fields;
//! 2. fields that the operator names with a [`FieldMap`];
//! 3. the fields `original_id`, `original_stream`, `delivery_count` and `reason`, if an entry has all of them;
//! 4. plain copies of messages, if the name of the stream ends in `:dlq`.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::{DeadLetter, ID, PREFIX, parse_id};
use crate::backend::{Entry, Fields, StreamId};
use crate::names;
use crate::outcome::Reason;

/// What a field of a dead letter describes. The names are those of the `dlq.` fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Stream,
    Id,
    Group,
    Consumer,
    Deliveries,
    Reason,
    Error,
    ErrorType,
    FirstSeen,
    DeadAt,
    Redrives,
}

impl Meaning {
    /// All meanings with the names of their fields in dead letters of workers.
    pub(super) const ALL: [(Meaning, &'static str); 11] = [
        (Meaning::Stream, super::STREAM),
        (Meaning::Id, ID),
        (Meaning::Group, super::GROUP),
        (Meaning::Consumer, super::CONSUMER),
        (Meaning::Deliveries, super::DELIVERIES),
        (Meaning::Reason, super::REASON),
        (Meaning::Error, super::ERROR),
        (Meaning::ErrorType, super::ERROR_TYPE),
        (Meaning::FirstSeen, super::FIRST_SEEN),
        (Meaning::DeadAt, super::DEAD_AT),
        (Meaning::Redrives, super::REDRIVES),
    ];

    /// Returns the meaning with this name, such as `id`. Only workers count redrives.
    fn named(name: &str) -> Option<Meaning> {
        let meanings = Meaning::ALL.iter().filter(|(meaning, _)| *meaning != Meaning::Redrives);
        meanings.into_iter().find(|(_, field)| &field[PREFIX.len()..] == name).map(|(meaning, _)| *meaning)
    }
}

/// The fields of the dead letters that the tutorials on Redis streams write.
const TUTORIAL: [(Meaning, &str); 4] = [
    (Meaning::Id, "original_id"),
    (Meaning::Stream, "original_stream"),
    (Meaning::Deliveries, "delivery_count"),
    (Meaning::Reason, "reason"),
];

/// The reason in these dead letters.
const TUTORIAL_REASON: &str = "max_deliveries_exceeded";

/// The names of the fields that describe the failure in the dead letters of another program.
///
/// Its text form is a list such as `id=original_id,error=last_error`. The names on the left are `id`, `stream`,
/// `group`, `consumer`, `deliveries`, `reason`, `error`, `error_type`, `first_seen` and `dead_at`, as in the `dlq.`
/// fields of workers. `none` is an empty list: the dead letters are plain copies of the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMap(Vec<(Meaning, String)>);

impl FromStr for FieldMap {
    type Err = String;

    fn from_str(text: &str) -> Result<FieldMap, String> {
        if text == "none" {
            return Ok(FieldMap::default());
        }
        let mut map: Vec<(Meaning, String)> = Vec::new();
        for pair in text.split(',') {
            let Some((name, field)) = pair.split_once('=').filter(|(_, field)| !field.is_empty()) else {
                return Err(format!("expected NAME=FIELD, but found '{pair}'"));
            };
            let Some(meaning) = Meaning::named(name) else {
                return Err(format!(
                    "unknown name '{name}': expected id, stream, group, consumer, deliveries, reason, error, error_type, \
                     first_seen or dead_at"
                ));
            };
            if map.iter().any(|(known, other)| *known == meaning || other == field) {
                return Err(format!("'{pair}' names the same thing twice"));
            }
            map.push((meaning, field.to_owned()));
        }
        Ok(FieldMap(map))
    }
}

/// How to read the entries of a dead-letter stream.
#[derive(Clone, Debug)]
pub struct DeadLetterFormat {
    /// The stream of the messages, for dead letters that do not name it. Empty if it is unknown.
    stream: String,
    /// The fields that the operator named.
    field_map: Option<FieldMap>,
    /// Whether other entries are copies of messages.
    has_copies: bool,
}

impl DeadLetterFormat {
    /// Creates a format for a dead-letter stream.
    ///
    /// `stream` is the stream that the messages come from. If it is `None`, it follows from the name of the dead-letter
    /// stream. `field_map` names the fields of another program's dead letters; then every entry is a dead letter.
    pub fn new(dead_letters: &str, stream: Option<&str>, field_map: Option<FieldMap>) -> DeadLetterFormat {
        let stream = stream.or_else(|| names::origin_of(dead_letters)).unwrap_or_default().to_owned();
        let has_copies = dead_letters.ends_with(names::DEAD_LETTERS_SUFFIX);
        DeadLetterFormat { stream, field_map, has_copies }
    }

    /// Parses an entry. Returns `None` if it is not a dead letter.
    pub fn read(&self, entry: &Entry) -> Option<DeadLetter> {
        if let Some(dead_letter) = DeadLetter::read(entry) {
            return Some(dead_letter);
        }
        // A dead letter in the format of workers that lacks its stream.
        if value_of(entry, ID).is_some_and(|id| parse_id(&id).is_some()) {
            let fields = original_fields(entry, |name| name.starts_with(PREFIX));
            return Some(self.foreign(entry, &Meaning::ALL, fields));
        }
        if let Some(FieldMap(map)) = &self.field_map {
            let names: Vec<(Meaning, &str)> =
                map.iter().map(|(meaning, name)| (*meaning, name.as_str())).collect();
            return Some(self.foreign_with(entry, &names));
        }
        if TUTORIAL.iter().all(|(_, name)| value_of(entry, name).is_some()) {
            return Some(self.foreign_with(entry, &TUTORIAL));
        }
        self.has_copies.then(|| self.foreign_with(entry, &[]))
    }

    fn foreign_with(&self, entry: &Entry, names: &[(Meaning, &str)]) -> DeadLetter {
        let is_named = |field: &Bytes| names.iter().any(|(_, name)| field == name.as_bytes());
        let fields = original_fields(entry, |field| is_named(field) || field.starts_with(PREFIX));
        self.foreign(entry, names, fields)
    }

    fn foreign(&self, entry: &Entry, names: &[(Meaning, &str)], fields: Fields) -> DeadLetter {
        let mut dead_letter = describe(entry, names, fields, parse_any_time);
        dead_letter.is_foreign = true;
        if dead_letter.stream.is_empty() {
            dead_letter.stream.clone_from(&self.stream);
        }
        dead_letter
    }
}

/// Reads the fields with these names. Values that are missing stay empty or unknown.
///
/// Exception: the time of death is the time at which the entry was added, if no field has it.
pub(super) fn describe(
    entry: &Entry,
    names: &[(Meaning, &str)],
    fields: Fields,
    parse_time: fn(&str) -> Option<SystemTime>,
) -> DeadLetter {
    let text = |meaning: Meaning| {
        let name = names.iter().find(|(named, _)| *named == meaning).map(|(_, name)| *name);
        name.and_then(|name| value_of(entry, name)).unwrap_or_default()
    };
    let number = |meaning: Meaning| text(meaning).parse::<u64>().unwrap_or_default();
    let origin = parse_id(&text(Meaning::Id));
    let reason = text(Meaning::Reason);
    DeadLetter {
        id: entry.id,
        stream: text(Meaning::Stream),
        origin,
        group: text(Meaning::Group),
        consumer: text(Meaning::Consumer),
        deliveries: number(Meaning::Deliveries),
        reason: if reason == TUTORIAL_REASON { Some(Reason::MaxDeliveries) } else { reason.parse().ok() },
        reason_text: reason,
        error: text(Meaning::Error),
        error_type: text(Meaning::ErrorType),
        first_seen: parse_time(&text(Meaning::FirstSeen)).or_else(|| origin.map(time_of)),
        dead_at: parse_time(&text(Meaning::DeadAt)).unwrap_or_else(|| time_of(entry.id)),
        redrives: number(Meaning::Redrives),
        fields,
        is_foreign: false,
    }
}

/// Returns the fields of the message, without those that describe the failure.
pub(super) fn original_fields(entry: &Entry, describes: impl Fn(&Bytes) -> bool) -> Fields {
    entry.fields.iter().filter(|(name, _)| !describes(name)).cloned().collect()
}

fn value_of(entry: &Entry, name: &str) -> Option<String> {
    let value = entry.fields.iter().rev().find(|(field, _)| field == name.as_bytes());
    value.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

fn time_of(id: StreamId) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(id.ms)
}

/// Parses a time that a worker wrote: milliseconds since 1970.
pub(super) fn parse_millis(text: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(text.parse().ok()?))
}

/// Parses a time that another program wrote: milliseconds or seconds since 1970, possibly with decimals.
fn parse_any_time(text: &str) -> Option<SystemTime> {
    /// Larger numbers are milliseconds: as seconds, they would be after the year 5138.
    const SECONDS_MAX: f64 = 1e11;
    let number: f64 = text.parse().ok()?;
    let seconds = if number <= SECONDS_MAX { number } else { number / 1e3 };
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[(&'static str, &'static str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value)));
        Entry { id: StreamId::new(1_731_664_260_000, 0), fields: fields.collect() }
    }

    fn names(fields: &Fields) -> Vec<&str> {
        fields.iter().map(|(name, _)| std::str::from_utf8(name).unwrap()).collect()
    }

    const TUTORIAL_FIELDS: [(&str, &str); 5] = [
        ("task", "resize"),
        ("original_id", "1731664200000-3"),
        ("original_stream", "tasks"),
        ("delivery_count", "4"),
        ("reason", "max_deliveries_exceeded"),
    ];

    #[test]
    fn dead_letters_of_the_tutorials_are_recognized_in_any_stream() {
        let format = DeadLetterFormat::new("failed", Some("tasks"), None);
        let read = format.read(&entry(&TUTORIAL_FIELDS)).unwrap();
        assert_eq!((read.origin, read.stream.as_str()), (Some(StreamId::new(1_731_664_200_000, 3)), "tasks"));
        assert_eq!((read.deliveries, read.reason), (4, Some(Reason::MaxDeliveries)));
        assert_eq!((read.group.as_str(), read.is_foreign), ("", true));
        assert_eq!(
            names(&read.fields),
            ["task"],
            "the fields that describe the failure are not part of the message"
        );
        assert_eq!(read.first_seen, Some(UNIX_EPOCH + Duration::from_millis(1_731_664_200_000)));
        assert_eq!(read.dead_at, UNIX_EPOCH + Duration::from_millis(1_731_664_260_000));
        // One of the four fields alone can belong to the message.
        assert_eq!(format.read(&entry(&TUTORIAL_FIELDS[..4])), None);
    }

    #[test]
    fn copies_are_recognized_by_the_name_of_the_stream() {
        let copy = entry(&[("item", "book"), ("reason", "gift")]);
        let read = DeadLetterFormat::new("events:orders:dlq", None, None).read(&copy).unwrap();
        assert_eq!((read.stream.as_str(), read.origin, read.first_seen), ("events:orders", None, None));
        assert_eq!((read.fields, read.reason_text.as_str()), (copy.fields.clone(), ""));
        let named = DeadLetterFormat::new("events:orders:dlq", Some("orders"), None).read(&copy).unwrap();
        assert_eq!(named.stream, "orders");
        assert_eq!(DeadLetterFormat::new("shipments", Some("orders"), None).read(&copy), None);
        let none = "none".parse().unwrap();
        assert!(DeadLetterFormat::new("shipments", Some("orders"), Some(none)).read(&copy).is_some());
    }

    #[test]
    fn a_field_map_names_the_fields() {
        let map = "id=msg,group=team,error=why,dead_at=at,deliveries=tries".parse().unwrap();
        let format = DeadLetterFormat::new("failed", Some("orders"), Some(map));
        let read = format
            .read(&entry(&[
                ("item", "book"),
                ("msg", "7-1"),
                ("team", "mail"),
                ("why", "no"),
                ("at", "1731664200.5"),
            ]))
            .unwrap();
        assert_eq!(
            (read.origin, read.group.as_str(), read.error.as_str()),
            (Some(StreamId::new(7, 1)), "mail", "no")
        );
        assert_eq!(read.dead_at, UNIX_EPOCH + Duration::from_millis(1_731_664_200_500));
        assert_eq!((names(&read.fields), read.deliveries), (vec!["item"], 0));
    }

    #[test]
    fn a_dead_letter_of_a_worker_may_lack_fields() {
        let partial = entry(&[
            ("item", "book"),
            ("dlq.id", "7-1"),
            ("dlq.deliveries", "3"),
            ("dlq.reason", "rejected"),
        ]);
        assert_eq!(DeadLetter::read(&partial), None);
        let read = DeadLetterFormat::new("orders:dead", Some("orders"), None).read(&partial).unwrap();
        assert_eq!(
            (read.stream.as_str(), read.origin, read.deliveries),
            ("orders", Some(StreamId::new(7, 1)), 3)
        );
        assert_eq!((names(&read.fields), read.reason), (vec!["item"], Some(Reason::Rejected)));
    }

    #[test]
    fn invalid_field_maps_are_refused() {
        for (text, error) in [
            ("", "expected NAME=FIELD"),
            ("id", "expected NAME=FIELD"),
            ("id=", "expected NAME=FIELD"),
            ("ident=a", "unknown name 'ident'"),
            ("redrives=a", "unknown name 'redrives'"),
            ("id=a,id=b", "twice"),
            ("id=a,error=a", "twice"),
        ] {
            let refused = text.parse::<FieldMap>().unwrap_err();
            assert!(refused.contains(error), "{text}: {refused}");
        }
    }
}
