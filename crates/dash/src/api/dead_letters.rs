//! `/dlq`, `/dlq/letters` and `/delayed`: messages that failed, and messages that wait for their time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_worker::backend::{Entry, StreamId};
use millstream_worker::operate::dead_letters::{DeadLetterPage, DeadLetterSource, list};
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::shapes::{
    DeadLetterCounts, DeadLetterStreamJson, ViewedDeadLetter, ViewedDelayed,
};
use millstream_worker::redrive::Filter;
use millstream_worker::{Reason, answers};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::app::{Answer, App, Asked, Json};
use crate::problem::Problem;
use crate::query;

/// Maximum number of dead letters that one answer examines.
const SCAN_MAX: usize = 10_000;

answers! {
    /// A dead-letter stream and the streams that use it.
    pub(super) struct DeadLetterStreamRow(found: DeadLetterStreamJson, users: BTreeSet<&str>) {
        #[serde(flatten)]
        stream: DeadLetterStreamJson = found,
        streams: Vec<String> = users.into_iter().map(str::to_owned).collect(),
    }

    /// Dead letters, newest first, and how many there are by reason and by error.
    pub(super) struct DeadLetters(
        name: Option<&str>, page: &DeadLetterPage, found: DeadLetterCounts, view: &FieldsView<'_>,
    ) {
        dead_letters: Option<String> = name.map(str::to_owned),
        items: Vec<ViewedDeadLetter> =
            page.dead_letters.iter().map(|dead_letter| ViewedDeadLetter::new(dead_letter, view)).collect(),
        matched: u64 = page.matched,
        exact: bool = page.exact,
        next: Option<String> = page.next.map(|id| id.to_string()),
        #[serde(flatten)]
        counts: DeadLetterCounts = found,
    }

    /// Delayed entries.
    pub(super) struct DelayedPage(entries: &[Entry], has_more: bool, view: &FieldsView<'_>) {
        items: Vec<ViewedDelayed> = entries.iter().map(|entry| ViewedDelayed::new(entry, view)).collect(),
        next: Option<String> = entries.last().filter(|_| has_more).map(|entry| entry.id.to_string()),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DlqQuery {
    /// Only those of this stream, also empty ones
    stream: Option<String>,
}

/// Lists dead-letter streams from the last look, with the streams that they belong to.
pub(super) async fn streams(
    Asked { app, visitor, query }: Asked<DlqQuery>,
) -> Answer<Json<Vec<DeadLetterStreamRow>>> {
    app.sampler.touch();
    let look = app.sampler.look();
    let mut found: BTreeMap<&str, (u64, BTreeSet<&str>)> = BTreeMap::new();
    let is_wanted = |name: &str| query.stream.as_deref().is_none_or(|stream| stream == name);
    let wanted = look.streams.iter().filter(|stream| is_wanted(&stream.name));
    // The dead letters of a logical stream are those of its partitions.
    let wanted = wanted.flat_map(|stream| match stream.parts() {
        [] => std::slice::from_ref(stream),
        parts => parts,
    });
    for stream in wanted.filter(|stream| (visitor.may_see)(&stream.name)) {
        for (name, length) in &stream.dead_letter_streams {
            let is_listed = *length > 0 || query.stream.is_some() && stream.part_of.is_none();
            if is_listed && (visitor.may_see)(name) {
                let entry = found.entry(name).or_default();
                entry.0 = *length;
                entry.1.insert(&stream.name);
            }
        }
    }
    let rows = found.into_iter().map(|(name, (length, streams))| {
        let info = look.stream(name).map(|stream| stream.info.clone()).unwrap_or_default();
        DeadLetterStreamRow::new(DeadLetterStreamJson::new(name, length, &info), streams)
    });
    Ok(Json(rows.collect()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadLettersQuery {
    /// Name of the stream
    stream: String,
    /// Name of the dead-letter stream
    dlq: Option<String>,
    #[serde(flatten)]
    filter: DeadLetterFilter,
    /// Only dead letters older than this id
    after: Option<String>,
    /// At most 500
    count: Option<String>,
}

/// Which dead letters to list or to act on. All conditions that are set must hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadLetterFilter {
    /// Only this reason
    reason: Option<String>,
    /// Only errors with this text
    error: Option<String>,
    /// Only this group
    group: Option<String>,
    /// At least so old
    #[serde(default, deserialize_with = "number")]
    older_ms: Option<u64>,
    /// At most so old
    #[serde(default, deserialize_with = "number")]
    newer_ms: Option<u64>,
    #[serde(default)]
    ids: Option<Vec<String>>,
}

/// Reads a number, which is text in a query.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Number(number) if number.is_u64() => Ok(number.as_u64()),
        Value::String(text) if text.parse::<u64>().is_ok() => Ok(text.parse().ok()),
        _ => Err(serde::de::Error::custom("expected a number of milliseconds")),
    }
}

impl DeadLetterFilter {
    /// Returns the filter of the runtime. It sees only what the dashboard may show of an error.
    pub(super) fn resolve(&self, app: &App) -> Result<Filter, Problem> {
        let reason = self.reason.as_deref().map(str::parse::<Reason>).transpose().map_err(|_| {
            let reasons = Reason::ALL.map(Reason::as_str).join(", ");
            Problem::bad_request("invalid reason").way_out(format!("use one of {reasons}"))
        })?;
        let ids = self.ids.as_deref().map(query::ids).transpose()?;
        Ok(Filter {
            group: self.group.clone(),
            reason,
            error: self.error.clone(),
            hidden: Some(app.redaction.clone()),
            ids: ids.map(|ids| ids.into_iter().collect()),
            older_than: self.older_ms.map(Duration::from_millis),
            newer_than: self.newer_ms.map(Duration::from_millis),
            ..Filter::default()
        })
    }
}

pub(super) async fn dead_letters(
    Asked { app, visitor, query }: Asked<DeadLettersQuery>,
) -> Answer<Json<DeadLetters>> {
    let count = query.count.as_deref().map(str::parse::<usize>).transpose();
    let count =
        query::count(count.map_err(|_| Problem::bad_request("invalid count: expected a number"))?, 50, 500)?;
    let after = query.after.as_deref().map(|after| query::id(after, 0)).transpose()?;
    let backend = &*visitor.backend;
    let view = FieldsView::listed(&app.redaction);
    let Some(source) = DeadLetterSource::find(backend, &query.stream, query.dlq.as_deref()).await? else {
        let none = DeadLetterPage::default();
        let counts = DeadLetterCounts::new(&none.by_reason, &none.by_error);
        return Ok(Json(DeadLetters::new(None, &none, counts, &view)));
    };
    let filter = query.filter.resolve(&app)?;
    let page = list(backend, &source, &filter, after, count, SCAN_MAX, &app.redaction).await?;
    let counts = match filter.reason {
        None => DeadLetterCounts::new(&page.by_reason, &page.by_error),
        Some(_) => {
            // A page offers the other reasons too.
            let any = Filter { reason: None, ..filter };
            let all = list(backend, &source, &any, None, 0, SCAN_MAX, &app.redaction).await?;
            DeadLetterCounts::new(&all.by_reason, &page.by_error)
        }
    };
    Ok(Json(DeadLetters::new(Some(&source.name), &page, counts, &view)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DelayedQuery {
    /// Name of the stream
    stream: String,
    /// Only tickets after this one
    after: Option<String>,
    /// At most 500
    count: Option<usize>,
}

pub(super) async fn delayed(Asked { app, visitor, query }: Asked<DelayedQuery>) -> Answer<Json<DelayedPage>> {
    let count = query::count(query.count, 100, 500)?;
    let after = query.after.as_deref().map(|after| query::id(after, 0)).transpose()?;
    let first = after.map_or(Some(StreamId::MIN), StreamId::next).unwrap_or(StreamId::MAX);
    let mut entries = visitor.backend.delayed(&query.stream, first, count + 1).await?;
    let more = entries.len() > count;
    entries.truncate(count);
    let view = FieldsView::listed(&app.redaction);
    Ok(Json(DelayedPage::new(&entries, more, &view)))
}
