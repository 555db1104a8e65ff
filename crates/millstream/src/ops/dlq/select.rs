//! Which dead letters are meant: where they lie, and which of them.

use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::{Range, StreamId};
use millstream_worker::dead_letter::Letter;
use millstream_worker::redrive::Filter;
use millstream_worker::{Admin, Reason, names};

use crate::ops::failure::Failure;
use crate::ops::known;
use crate::ops::time::{parse_duration, parse_id};

/// How many letters are read at once.
const PAGE: usize = 500;

/// Where the letters lie.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Letters {
    /// The dead-letter stream, if it is not {STREAM}:dlq
    #[arg(long, value_name = "STREAM", value_parser = NonEmptyStringValueParser::new())]
    dlq: Option<String>,
}

impl Letters {
    /// Whether it was said where they lie.
    pub(super) fn are_named(&self) -> bool {
        self.dlq.is_some()
    }

    /// The name of the dead-letter stream, which must be there, and of the letters that the selection names at least
    /// one. A stream that ends in `:dlq` is one itself.
    pub(super) async fn find(
        &self,
        backend: &dyn Admin,
        stream: &str,
        selection: &Selection,
    ) -> Result<String, Failure> {
        let name = self.find_stream(backend, stream).await?;
        if !selection.ids.is_empty() {
            first_named(backend, &name, &selection.ids).await?;
        }
        Ok(name)
    }

    async fn find_stream(&self, backend: &dyn Admin, stream: &str) -> Result<String, Failure> {
        let name = match &self.dlq {
            Some(name) => name.clone(),
            None if stream.ends_with(":dlq") => stream.to_owned(),
            None => names::dead_letters_of(stream),
        };
        if let Some(info) = known::look(backend, &name).await? {
            return match info.length == 0 || holds_letters(backend, &name).await? {
                true => Ok(name),
                false => Err(Failure::NotFound(format!(
                    "{name} holds no dead letters: its entries do not say where they come from\nname the stream of the dead letters with --dlq"
                ))),
            };
        }
        Err(known::missing(
            &format!("there are no dead letters of {stream} ({name})"),
            &backend.streams("*:dlq").await?,
            "nothing has ended there yet, or it lies elsewhere: name it with --dlq",
        ))
    }
}

/// Whether a stream is one of dead letters. Its first entries stand for all.
async fn holds_letters(backend: &dyn Admin, name: &str) -> Result<bool, Failure> {
    let range = Range::rising(StreamId::MIN, PAGE);
    Ok(backend.range(name, range).await?.iter().any(|entry| Letter::read(entry).is_some()))
}

/// Which letters. All conditions must hold.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Only those that ended for this reason
    #[arg(long, value_name = "REASON", value_parser = parse_reason)]
    reason: Option<Reason>,
    /// Only those whose error or type of error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only these, by their own ids or those of the entries they were; may be given several times
    #[arg(long = "id", value_name = "ID", value_parser = parse_id)]
    ids: Vec<StreamId>,
    /// Only those that ended for this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only those that ended at least so long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Only those that ended at most so long ago
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

/// The first letter that has one of these ids, or comes from an entry that had. One of them must be there.
pub(super) async fn first_named(
    backend: &dyn Admin,
    name: &str,
    wanted: &[StreamId],
) -> Result<Letter, Failure> {
    let (mut found, mut ids) = (None, Vec::new());
    each(backend, name, &Selection::default(), |letter| {
        ids.push(letter.id.to_string());
        if wanted.iter().any(|id| *id == letter.id || *id == letter.origin) {
            found = Some(letter);
        }
        found.is_none()
    })
    .await?;
    found.ok_or_else(|| {
        let wanted: Vec<String> = wanted.iter().map(StreamId::to_string).collect();
        let what = format!("{name} has no letter {}", wanted.join(" and no letter "));
        known::missing(&what, &ids, "it is empty")
    })
}

fn parse_reason(text: &str) -> Result<Reason, String> {
    let reasons = Reason::ALL.map(Reason::as_str).join(", ");
    text.parse().map_err(|_| format!("there are: {reasons}"))
}

/// Visits the selected letters, oldest first, while `visit` says so.
pub(super) async fn each(
    backend: &dyn Admin,
    name: &str,
    selection: &Selection,
    mut visit: impl FnMut(Letter) -> bool,
) -> Result<(), Failure> {
    let (filter, now) = (selection.filter(), SystemTime::now());
    let mut next = Some(StreamId::MIN);
    while let Some(first) = next {
        let page = backend.range(name, Range::rising(first, PAGE)).await?;
        next = page.last().filter(|_| page.len() == PAGE).and_then(|entry| entry.id.next());
        let letters = page.iter().filter_map(Letter::read).filter(|letter| filter.matches(letter, now));
        for letter in letters {
            if !visit(letter) {
                return Ok(());
            }
        }
    }
    Ok(())
}
