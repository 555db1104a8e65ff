//! Options that select dead letters: their stream, and filters.

use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::{Range, StreamId};
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::redrive::Filter;
use millstream_worker::{Admin, Reason, names};

use crate::ops::failure::Failure;
use crate::ops::lookup;
use crate::ops::safe_text::printable;
use crate::ops::time::{parse_duration, parse_id};

/// Number of dead letters read per call.
const PAGE: usize = 500;

/// The option that names the dead-letter stream.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeadLetterStream {
    /// Dead-letter stream [default: {STREAM}:dlq]
    #[arg(long, value_name = "STREAM", value_parser = NonEmptyStringValueParser::new())]
    dlq: Option<String>,
}

impl DeadLetterStream {
    /// Whether the option was given.
    pub(super) fn is_named(&self) -> bool {
        self.dlq.is_some()
    }

    /// Returns the stream that the dead letters come from, if the command line names it. It does not if `stream` is the
    /// dead-letter stream itself.
    pub(super) fn origin(&self, stream: &str) -> Option<String> {
        (self.is_named() || !stream.ends_with(":dlq")).then(|| stream.to_owned())
    }

    /// Returns the name of the dead-letter stream of `stream`. A name that ends in `:dlq` is used as it is.
    ///
    /// Returns an error if that stream does not exist, contains only other entries, or has none of the ids in the
    /// selection.
    pub(super) async fn find(
        &self,
        backend: &dyn Admin,
        stream: &str,
        selection: &Selection,
    ) -> Result<String, Failure> {
        let name = self.find_stream(backend, stream).await?;
        if !selection.ids.is_empty() {
            find_by_id(backend, &name, &selection.ids).await?;
        }
        Ok(name)
    }

    async fn find_stream(&self, backend: &dyn Admin, stream: &str) -> Result<String, Failure> {
        let name = match &self.dlq {
            Some(name) => name.clone(),
            None if stream.ends_with(":dlq") => stream.to_owned(),
            None => names::dead_letters_of(stream),
        };
        if let Some(info) = lookup::find_stream(backend, &name).await? {
            return match info.length == 0 || contains_dead_letters(backend, &name).await? {
                true => Ok(name),
                false => Err(Failure::NotFound(format!(
                    "{} contains no dead letters: its entries have no dlq.* fields\nname the dead-letter stream with --dlq",
                    printable(&name)
                ))),
            };
        }
        Err(lookup::not_found(
            &format!("stream {} has no dead letters: {} does not exist", printable(stream), printable(&name)),
            "dead-letter streams",
            &backend.streams("*:dlq").await?,
            "if the dead-letter stream has another name, name it with --dlq",
        ))
    }
}

/// Whether a stream contains dead letters. Looks only at its first entries.
async fn contains_dead_letters(backend: &dyn Admin, name: &str) -> Result<bool, Failure> {
    let range = Range::starting_at(StreamId::MIN, PAGE);
    Ok(backend.range(name, range).await?.iter().any(|entry| DeadLetter::read(entry).is_some()))
}

/// Filters for dead letters. A dead letter must match all of them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Only dead letters with this reason: max_deliveries, rejected, decode, panic, timeout, payload_gone or failed
    #[arg(long, value_name = "REASON", value_parser = parse_reason)]
    reason: Option<Reason>,
    /// Only dead letters whose error or error type contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only the dead letter with this id, or whose original entry had this id; can be repeated
    #[arg(long = "id", value_name = "ID", value_parser = parse_id)]
    ids: Vec<StreamId>,
    /// Only dead letters of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only messages that were dead-lettered at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Only messages that were dead-lettered at most this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    newer_than: Option<Duration>,
}

impl Selection {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            group: self.group.clone(),
            reason: self.reason,
            error: self.error.clone(),
            ids: (!self.ids.is_empty()).then(|| self.ids.iter().copied().collect()),
            older_than: self.older_than,
            newer_than: self.newer_than,
        }
    }
}

/// Returns the first dead letter that has one of these ids, or whose original entry had one.
///
/// Returns an error if there is none.
pub(super) async fn find_by_id(
    backend: &dyn Admin,
    name: &str,
    wanted: &[StreamId],
) -> Result<DeadLetter, Failure> {
    let (mut found, mut ids) = (None, Vec::new());
    for_each(backend, name, &Selection::default(), |dead_letter| {
        ids.push(dead_letter.id.to_string());
        if wanted.iter().any(|id| *id == dead_letter.id || *id == dead_letter.origin) {
            found = Some(dead_letter);
        }
        found.is_none()
    })
    .await?;
    found.ok_or_else(|| {
        let wanted: Vec<String> = wanted.iter().map(StreamId::to_string).collect();
        let what = format!("{} has no dead letter {}", printable(name), wanted.join(" and no dead letter "));
        lookup::not_found(&what, "dead letters", &ids, "list all dead-letter streams with: millstream dlq ls")
    })
}

fn parse_reason(text: &str) -> Result<Reason, String> {
    let reasons = Reason::ALL.map(Reason::as_str).join(", ");
    text.parse().map_err(|_| format!("expected one of {reasons}"))
}

/// Calls `visit` with the selected dead letters, oldest first, until it returns false.
pub(super) async fn for_each(
    backend: &dyn Admin,
    name: &str,
    selection: &Selection,
    mut visit: impl FnMut(DeadLetter) -> bool,
) -> Result<(), Failure> {
    let (filter, now) = (selection.filter(), SystemTime::now());
    let mut next = Some(StreamId::MIN);
    while let Some(first) = next {
        let page = backend.range(name, Range::starting_at(first, PAGE)).await?;
        next = page.last().filter(|_| page.len() == PAGE).and_then(|entry| entry.id.next());
        let dead_letters =
            page.iter().filter_map(DeadLetter::read).filter(|dead_letter| filter.matches(dead_letter, now));
        for dead_letter in dead_letters {
            if !visit(dead_letter) {
                return Ok(());
            }
        }
    }
    Ok(())
}
