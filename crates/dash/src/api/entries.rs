//! The entries of a stream: pages of them, one with what each group did with it, and raw values.

use axum::http::{HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use millstream_worker::backend::{Entry, Fields, IdOrder, Range, StreamId};
use millstream_worker::dead_letter::DeadLetterFormat;
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::life::states_of;
use millstream_worker::operate::shapes::{EntryInGroupJson, ViewedDeadLetter, ViewedEntry};
use millstream_worker::{Admin, answers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::overview::no_stream;
use crate::app::{Answer, Asked, Attachment, Json};
use crate::problem::Problem;
use crate::query;

/// Maximum number of entries of one answer.
pub(crate) const ENTRIES_MAX: usize = 500;
/// Number of entries to read with the first call of a page. Entries can be large, so a page begins with few.
const FIRST_CALL: usize = 25;
/// A page ends when its entries have more bytes.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EntriesQuery {
    /// Name of the stream
    stream: String,
    /// First id, `-`, `+`, or a time such as t1794844800000
    from: Option<String>,
    /// Last id, in the same forms
    to: Option<String>,
    /// asc (oldest first) or desc
    order: Option<String>,
    /// At most 500
    count: Option<usize>,
}

answers! {
    /// Entries, and the id at which the next page begins.
    pub(super) struct Entries(page: &[Entry], view: &FieldsView<'_>, after: Option<StreamId>) {
        items: Vec<ViewedEntry> = page.iter().map(|entry| ViewedEntry::new(entry, view)).collect(),
        next: Option<String> = after.map(|id| id.to_string()),
    }
}

pub(super) async fn entries(Asked { app, visitor, query }: Asked<EntriesQuery>) -> Answer<Json<Entries>> {
    let (first, last) = query::range(query.from.as_deref(), query.to.as_deref())?;
    let count = query::count(query.count, 100, ENTRIES_MAX)?;
    let range = Range { first, last, order: query::order(query.order.as_deref())?, count };
    let (page, next) = read_page(&*visitor.backend, &query.stream, range).await?;
    if page.is_empty() && visitor.backend.stream(&query.stream).await?.is_none() {
        return Err(no_stream(&app, &visitor, &query.stream));
    }
    let view = FieldsView::listed(&app.redaction);
    Ok(Json(Entries::new(&page, &view, next)))
}

/// Reads a page of entries, and the id at which the next page begins. Reads large entries few at a time.
pub(crate) async fn read_page(
    backend: &dyn Admin,
    stream: &str,
    mut range: Range,
) -> Result<(Vec<Entry>, Option<StreamId>), Problem> {
    // One more tells where the next page begins.
    let wanted = range.count + 1;
    let (mut page, mut bytes, mut call) = (Vec::new(), 0, FIRST_CALL);
    while page.len() < wanted && bytes < PAGE_BYTES_MAX {
        range.count = call.min(wanted - page.len());
        let entries = backend.range(stream, range).await?;
        let is_end = entries.len() < range.count;
        bytes += entries.iter().map(|entry| bytes_of(&entry.fields)).sum::<usize>();
        page.extend(entries);
        if is_end {
            return Ok((page, None));
        }
        let after = page.last().and_then(|entry| match range.order {
            IdOrder::Ascending => entry.id.next(),
            IdOrder::Descending => entry.id.prev(),
        });
        match (after, range.order) {
            (None, _) => return Ok((page, None)),
            (Some(id), IdOrder::Ascending) => range.first = id,
            (Some(id), IdOrder::Descending) => range.last = id,
        }
        call *= 4;
    }
    let next = page.pop().map(|entry| entry.id).filter(|_| !page.is_empty());
    Ok((page, next))
}

/// Returns the number of bytes of fields.
pub(crate) fn bytes_of(fields: &Fields) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len()).sum()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryQuery {
    /// Name of the stream
    stream: String,
    /// Id of the entry
    id: String,
}

/// An entry, and what each group did with it.
#[derive(Serialize, JsonSchema)]
pub(super) struct EntryPage {
    #[serde(flatten)]
    entry: ViewedEntry,
    groups: Vec<EntryInGroupJson>,
    traceparent: Option<String>,
    previous: Option<String>,
    next: Option<String>,
    dead_letter: Option<ViewedDeadLetter>,
}

pub(super) async fn entry(Asked { app, visitor, query }: Asked<EntryQuery>) -> Answer<Json<EntryPage>> {
    let id = query::id(&query.id, 0)?;
    let (backend, stream) = (&*visitor.backend, &*query.stream);
    let entry = find(backend, stream, id).await?;
    let listed = FieldsView::listed(&app.redaction);
    let states = states_of(backend, stream, id).await?;
    let traceparent = entry.fields.iter().find(|(name, _)| name == "traceparent");
    let shown = traceparent.and_then(|(name, value)| app.redaction.shown(name, value));
    let dead_letter =
        DeadLetterFormat::new(stream, None, None).read(&entry).filter(|dead_letter| !dead_letter.is_foreign);
    let in_group = |state| EntryInGroupJson::new(state, Some(&entry.fields), &listed);
    Ok(Json(EntryPage {
        groups: states.iter().map(in_group).collect(),
        traceparent: shown.and_then(|value| String::from_utf8(value.into_owned()).ok()),
        previous: neighbour(backend, stream, id.prev(), IdOrder::Descending).await?,
        next: neighbour(backend, stream, id.next(), IdOrder::Ascending).await?,
        dead_letter: dead_letter.map(|dead_letter| ViewedDeadLetter::new(&dead_letter, &listed)),
        entry: ViewedEntry::new(&entry, &FieldsView::whole(&app.redaction)),
    }))
}

async fn find(backend: &dyn Admin, stream: &str, id: StreamId) -> Result<Entry, Problem> {
    let found = backend.range(stream, Range::single(id)).await?.into_iter().next();
    found.ok_or_else(|| {
        Problem::not_found(format!("stream {stream} has no entry {id}"))
            .way_out("check the id; the entry may have been deleted or trimmed")
    })
}

/// Returns the id of the first entry from an id on.
async fn neighbour(
    backend: &dyn Admin,
    stream: &str,
    from: Option<StreamId>,
    order: IdOrder,
) -> Result<Option<String>, Problem> {
    let Some(from) = from else { return Ok(None) };
    let range = match order {
        IdOrder::Ascending => Range::starting_at(from, 1),
        IdOrder::Descending => Range { first: StreamId::MIN, last: from, order, count: 1 },
    };
    Ok(backend.range(stream, range).await?.first().map(|entry| entry.id.to_string()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuery {
    /// Name of the stream
    stream: String,
    /// Id of the entry
    id: String,
    /// Name of the field
    field: Option<String>,
    /// Name of the field in hexadecimal digits
    field_hex: Option<String>,
    /// Which of several fields with this name, from 0
    #[serde(default)]
    nth: usize,
}

pub(super) async fn raw(Asked { app, visitor, query }: Asked<RawQuery>) -> Answer<Attachment> {
    let id = query::id(&query.id, 0)?;
    let name = match &query.field_hex {
        Some(digits) => unhex(digits)
            .ok_or_else(|| Problem::bad_request("invalid field_hex: expected pairs of hexadecimal digits"))?,
        None => query::required("field", query.field.as_deref())?.as_bytes().to_vec(),
    };
    let entry = find(&*visitor.backend, &query.stream, id).await?;
    let mut named = entry.fields.iter().filter(|(found, _)| *found == name);
    let (_, value) = named.nth(query.nth).ok_or_else(|| Problem::not_found("the entry has no such field"))?;
    let shown = app.redaction.shown_among(&entry.fields, &name, value).ok_or_else(|| {
        Problem::new(StatusCode::FORBIDDEN, "hidden", "this value is hidden in this dashboard")
    })?;
    let headers: [(HeaderName, String); 3] = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.bin\"")),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox".to_owned()),
    ];
    Ok(Attachment((headers, shown.into_owned()).into_response()))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    if is_hex { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_bytes() {
        assert_eq!(unhex("fF00"), Some(vec![255, 0]));
        for invalid in ["f", "gg", "+1", "é"] {
            assert_eq!(unhex(invalid), None, "{invalid}");
        }
    }
}
