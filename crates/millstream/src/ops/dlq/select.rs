//! Options that select dead letters: their stream, its format, and filters.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::StreamId;
use millstream_worker::dead_letter::{DeadLetter, FieldMap};
use millstream_worker::names::DEAD_LETTERS_SUFFIX;
use millstream_worker::operate::dead_letters::{self, DeadLetterSource};
use millstream_worker::redrive::Filter;
use millstream_worker::{Admin, Reason};

use crate::ops::failure::Failure;
use crate::ops::lookup;
use crate::ops::output::note;
use crate::ops::safe_text::printable;
use crate::ops::shell::option;
use crate::ops::time::{parse_duration, parse_id};

/// The options that name the dead-letter stream and the format of its entries.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeadLetterStream {
    /// Dead-letter stream [default: the one that a policy of the stream or its groups names, {STREAM}:dlq, or STREAM:dlq:
    /// the first that exists]
    #[arg(long, value_name = "STREAM", value_parser = NonEmptyStringValueParser::new())]
    dlq: Option<String>,
    /// If another program wrote the dead letters: the fields that describe the failure, such as id=original_id,error=why.
    /// Names: id, stream, group, consumer, deliveries, reason, error, error_type, first_seen, dead_at. none: the dead
    /// letters are copies of the messages
    #[arg(long, value_name = "NAME=FIELD,…")]
    field_map: Option<FieldMap>,
}

impl DeadLetterStream {
    /// Whether one of the options was given.
    pub(super) fn is_named(&self) -> bool {
        self.dlq.is_some() || self.field_map.is_some()
    }

    /// Returns the stream that the dead letters come from, if the command line names it. It does not if `stream` is the
    /// dead-letter stream itself.
    pub(super) fn origin(&self, stream: &str) -> Option<String> {
        (self.dlq.is_some() || !stream.ends_with(DEAD_LETTERS_SUFFIX)).then(|| stream.to_owned())
    }

    /// Returns the fields of another program's dead letters.
    pub(super) fn field_map(&self) -> Option<FieldMap> {
        self.field_map.clone()
    }

    /// Returns the dead-letter stream of `stream`. A name that ends in `:dlq` is used as it is.
    ///
    /// Returns an error if that stream does not exist, contains only other entries, or has none of the ids in the
    /// selection.
    pub(super) async fn find(
        &self,
        backend: &dyn Admin,
        stream: &str,
        selection: &Selection,
    ) -> Result<DeadLetterSource, Failure> {
        let name = self.find_stream(backend, stream).await?;
        let source = DeadLetterSource::new(&name, self.origin(stream).as_deref(), self.field_map());
        check(backend, &source).await?;
        if !selection.ids.is_empty() {
            find_by_id(backend, &source, &selection.ids).await?;
        }
        Ok(source)
    }

    /// Returns the name of the dead-letter stream, which must exist.
    async fn find_stream(&self, backend: &dyn Admin, stream: &str) -> Result<String, Failure> {
        let candidates = match &self.dlq {
            Some(name) if name == stream => {
                return Err(Failure::Usage(format!(
                    "{} cannot be its own dead-letter stream: name the stream that the messages come from, then --dlq and \
                     the dead-letter stream",
                    printable(stream)
                )));
            }
            Some(name) => vec![name.clone()],
            None => dead_letters::candidates(backend, stream).await?,
        };
        let found = dead_letters::existing(backend, &candidates).await;
        let found = found.map_err(|(name, error)| lookup::stream_error(&name, error))?;
        if let [(name, length), others @ ..] = &found[..] {
            for (other, _) in others.iter().filter(|(_, others_length)| *length > 0 && *others_length > 0) {
                note(&format!("{} exists too; select it with: {}", printable(other), option("--dlq", other)));
            }
            return Ok(name.clone());
        }
        Err(lookup::not_found(
            &format!(
                "stream {} has no dead letters: {} does not exist",
                printable(stream),
                printable(&candidates[0])
            ),
            "dead-letter streams",
            &backend.streams("*:dlq").await?,
            "if the dead-letter stream has another name, name it with --dlq",
        ))
    }
}

/// Returns an error if the stream has entries, but no dead letters. Looks only at its first entries.
async fn check(backend: &dyn Admin, source: &DeadLetterSource) -> Result<(), Failure> {
    if source.has_dead_letters(backend).await? {
        return Ok(());
    }
    Err(Failure::NotFound(format!(
        "{} contains no dead letters: its entries have no dlq.* fields\n\
         name another stream with --dlq; or, if another program wrote these dead letters, the fields that describe the \
         failure with --field-map (none if there are no such fields)",
        printable(&source.name)
    )))
}

/// Filters for dead letters. A dead letter must match all of them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Only dead letters with this reason: max_attempts, max_deliveries, rejected, decode, panic, timeout, payload_gone or
    /// failed
    #[arg(long, value_name = "REASON", value_parser = parse_reason)]
    reason: Option<Reason>,
    /// Only dead letters whose error or error type contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only the dead letter with this id, or whose original entry had this id; can be repeated
    #[arg(long = "id", value_name = "ID", value_parser = parse_id)]
    ids: Vec<StreamId>,
    /// Only dead letters of this group, and those that name no group; a redrive returns the latter to this group
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
            through: None,
        }
    }
}

/// Returns the first dead letter that has one of these ids, or whose original entry had one.
///
/// Returns an error if there is none.
pub(super) async fn find_by_id(
    backend: &dyn Admin,
    source: &DeadLetterSource,
    wanted: &[StreamId],
) -> Result<DeadLetter, Failure> {
    let (mut found, mut ids) = (None, Vec::new());
    let visit = |dead_letter: DeadLetter| {
        ids.push(dead_letter.id.to_string());
        if dead_letter.ids().any(|id| wanted.contains(&id)) {
            found = Some(dead_letter);
        }
        found.is_none()
    };
    source.for_each(backend, &Filter::default(), visit).await?;
    found.ok_or_else(|| {
        let wanted: Vec<String> = wanted.iter().map(StreamId::to_string).collect();
        let what =
            format!("{} has no dead letter {}", printable(&source.name), wanted.join(" and no dead letter "));
        lookup::not_found(&what, "dead letters", &ids, "list all dead-letter streams with: millstream dlq ls")
    })
}

fn parse_reason(text: &str) -> Result<Reason, String> {
    let reasons = Reason::ALL.map(Reason::as_str).join(", ");
    text.parse().map_err(|_| format!("expected one of {reasons}"))
}
