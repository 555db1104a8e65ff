//! Options that select dead letters: their stream, its format, and filters.

use std::collections::BTreeSet;
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
use crate::ops::shell::{option, suggest};
use crate::ops::target::{Part, Target};
use crate::ops::time::{parse_duration, parse_id};

/// The options that name the dead-letter stream and the format of its entries.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeadLetterStream {
    /// Dead-letter stream [default: the one that a policy of the stream or its groups names, {STREAM}:dlq, or
    /// STREAM:dlq: the first that exists]
    #[arg(long, value_name = "STREAM", value_parser = NonEmptyStringValueParser::new())]
    dlq: Option<String>,
    /// If another program wrote the dead letters: the fields that describe the failure, such as
    /// id=original_id,error=why. Names: id, stream, group, consumer, deliveries, reason, error, error_type,
    /// first_seen, dead_at. none: the dead letters are copies of the messages
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

    pub(super) fn field_map(&self) -> Option<FieldMap> {
        self.field_map.clone()
    }

    /// Returns the dead-letter stream of `stream`, or those of its partitions. A name that ends in `:dlq` is used as
    /// it is.
    ///
    /// Returns an error if there is none, if one of them contains only other entries, or if they have none of the ids
    /// in the selection.
    pub(super) async fn find(
        &self,
        backend: &dyn Admin,
        stream: &str,
        selection: &Selection,
    ) -> Result<Sources, Failure> {
        if self.dlq.as_deref() == Some(stream) {
            return Err(Failure::Usage(format!(
                "{} cannot be its own dead-letter stream: name the stream that the messages come from, then --dlq and the \
                 dead-letter stream",
                printable(stream)
            )));
        }
        let target = Target::find(backend, stream).await?;
        let (mut sources, mut expected) = (Vec::new(), String::new());
        for part in &target.parts {
            let candidates = match &self.dlq {
                Some(name) => vec![name.clone()],
                None => dead_letters::candidates(backend, &part.stream).await?,
            };
            expected.clone_from(&candidates[0]);
            if let Some(name) = self.first_existing(backend, &candidates).await? {
                let origin = self.origin(&part.stream);
                let source = DeadLetterSource::new(&name, origin.as_deref(), self.field_map());
                check(backend, &source).await?;
                sources.push((part.clone(), source));
            }
        }
        if sources.is_empty() {
            let what = match target.has_partitions() && self.dlq.is_none() {
                true => "no partition has a dead-letter stream".to_owned(),
                false => format!("{} does not exist", printable(&expected)),
            };
            return Err(lookup::not_found(
                &format!("stream {} has no dead letters: {what}", printable(stream)),
                "dead-letter streams",
                &backend.streams("*:dlq").await?,
                "if the dead-letter stream has another name, name it with --dlq",
            ));
        }
        let sources = Sources { target, sources };
        if !selection.ids.is_empty() {
            sources.with_ids(backend, &selection.ids).await?;
        }
        Ok(sources)
    }

    async fn first_existing(
        &self,
        backend: &dyn Admin,
        candidates: &[String],
    ) -> Result<Option<String>, Failure> {
        let found = dead_letters::existing(backend, candidates).await;
        let found = found.map_err(|(name, error)| lookup::stream_error(&name, error))?;
        let [(name, length), others @ ..] = &found[..] else { return Ok(None) };
        for (other, _) in others.iter().filter(|(_, others_length)| *length > 0 && *others_length > 0) {
            note(&format!("{} exists too; select it with: {}", printable(other), option("--dlq", other)));
        }
        Ok(Some(name.clone()))
    }
}

/// The dead-letter streams that a name stands for: one, or those of the partitions that have one.
pub(crate) struct Sources {
    pub(super) target: Target,
    /// At least one.
    pub(super) sources: Vec<(Part, DeadLetterSource)>,
}

impl Sources {
    /// Returns the name of the dead-letter stream, or that of the logical stream whose partitions have several.
    pub(super) fn name(&self) -> String {
        match &self.sources[..] {
            [(_, source)] if !self.target.has_partitions() => source.name.clone(),
            _ => self.target.name.clone(),
        }
    }

    /// Returns the sources that have dead letters with one of these ids, or with one of these ids of original entries.
    /// At least one must have some.
    pub(super) async fn with_ids(
        &self,
        backend: &dyn Admin,
        ids: &[StreamId],
    ) -> Result<Vec<&(Part, DeadLetterSource)>, Failure> {
        if !self.target.has_partitions() {
            find_by_id(backend, &self.sources[0].1, ids).await?;
            return Ok(self.sources.iter().collect());
        }
        let find = async |part: &Part| {
            let source = self.sources.iter().find(|(of, _)| of.number == part.number);
            let Some((_, source)) = source else { return Ok(Vec::new()) };
            let mut known = BTreeSet::new();
            let visit = |dead_letter: DeadLetter| {
                known.extend(dead_letter.ids().filter(|id| ids.contains(id)));
                true
            };
            source.for_each(backend, &Filter::default(), visit).await?;
            Ok(known.into_iter().collect())
        };
        let found = self.target.by_part(ids, find).await?;
        if found.is_empty() {
            let wanted: Vec<String> = ids.iter().map(StreamId::to_string).collect();
            return Err(Failure::NotFound(format!(
                "{} has no dead letter {}\nlist its dead letters with: {}",
                printable(&self.target.name),
                wanted.join(" and no dead letter "),
                suggest("dlq ls", &[&self.target.name], "")
            )));
        }
        let has_some = |part: &Part| found.iter().any(|(with, _)| with.number == part.number);
        Ok(self.sources.iter().filter(|(part, _)| has_some(part)).collect())
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
    /// Only dead letters with this reason: max_attempts, max_deliveries, rejected, decode, panic, timeout,
    /// payload_gone or failed
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
            ..Filter::default()
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
