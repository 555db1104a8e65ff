//! `/search`: looks for a text in the entries of a stream, and says how far it has come. It is bounded in every
//! respect and ends with the connection. It never looks into hidden values: its answers would tell them bit by bit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_worker::backend::{Entry, IdOrder, Range};
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::shapes::ViewedEntry;
use millstream_worker::redaction::Redaction;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::entries::bytes_of;
use super::tail::{has, is_found};
use crate::access::Visitor;
use crate::app::{Answer, App, Asked, Caller, while_admitted};
use crate::options::SEARCHES_MAX;
use crate::problem::Problem;
use crate::query;
use crate::sse::{self, EventStream, Events, Gone};

/// Maximum number of entries that a search examines.
pub(super) const SCAN_MAX: usize = 100_000;
const SCAN_DEFAULT: usize = 10_000;
/// Maximum number of bytes that a search reads.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a search can take.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum number of entries that a search finds.
const FOUND_MAX: usize = 200;
/// Number of entries to read per call. Fewer, if they are large.
const PAGE: usize = 500;
/// Target number of bytes per call.
const PAGE_BYTES: usize = 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// Name of the stream
    stream: String,
    /// First id, `-`, `+`, or a time such as t1794844800000
    from: Option<String>,
    /// Last id, in the same forms
    to: Option<String>,
    /// asc (oldest first) or desc
    order: Option<String>,
    /// Only this field
    field: Option<String>,
    /// Text
    contains: Option<String>,
    /// Maximum number of entries to examine, at most 100000
    scan: Option<usize>,
}

/// A search in progress.
struct Search {
    stream: String,
    range: Range,
    field: Option<String>,
    contains: Option<String>,
    scan: usize,
}

pub(super) async fn search(
    caller: Caller,
    Asked { app, visitor, query }: Asked<SearchQuery>,
) -> Answer<EventStream> {
    let (first, last) = query::range(query.from.as_deref(), query.to.as_deref())?;
    let range = Range { first, last, order: query::order(query.order.as_deref())?, count: PAGE };
    let scan = query::count(query.scan, SCAN_DEFAULT, SCAN_MAX)?;
    if query.field.is_none() && query.contains.is_none() {
        return Err(Problem::bad_request("contains is missing").way_out("name a text, a field, or both"));
    }
    let search = Search { stream: query.stream, range, field: query.field, contains: query.contains, scan };
    let too_many = || {
        Problem::too_many("too_many_searches", format!("{SEARCHES_MAX} searches are running"))
            .way_out("wait until one ends")
    };
    let slot = Arc::clone(&app.search_slots).try_acquire_owned().map_err(|_| too_many())?;
    let event_slot = Arc::clone(&app.event_slots).try_acquire_owned().map_err(|_| too_many())?;
    Ok(sse::answer((slot, event_slot), while_admitted(&app, &visitor, &caller), |events| async move {
        tokio::select! {
            result = search.run(&app, &visitor, &events) => result,
            () = events.closed() => Err(Gone),
            () = app.stopped.cancelled() => Ok(()),
        }
    }))
}

impl Search {
    async fn run(mut self, app: &App, visitor: &Visitor, events: &Events) -> Result<(), Gone> {
        let (started, view) = (Instant::now(), FieldsView::listed(&app.redaction));
        let (mut scanned, mut bytes, mut found, mut page_size) = (0, 0, 0, PAGE.min(50));
        let (why, next) = loop {
            self.range.count = page_size.min(self.scan - scanned);
            let page = match visitor.backend.range(&self.stream, self.range).await {
                Ok(page) => page,
                Err(error) => return events.send("problem", None, &Problem::from(error).to_json()).await,
            };
            let mut page_bytes = 0;
            for entry in &page {
                scanned += 1;
                page_bytes += bytes_of(&entry.fields);
                if self.matches(&app.redaction, entry) {
                    found += 1;
                    let data = json!({ "entry": ViewedEntry::new(entry, &view) });
                    events.send("found", None, &data).await?;
                }
                self.pass(entry);
                if found == FOUND_MAX {
                    break;
                }
            }
            bytes += page_bytes;
            let is_end = page.len() < self.range.count || self.range.first > self.range.last;
            let at = self.position();
            let why = match () {
                () if found == FOUND_MAX => Some("found"),
                () if is_end => Some("done"),
                () if scanned >= self.scan => Some("scan"),
                () if bytes >= BYTES_MAX => Some("bytes"),
                () if started.elapsed() >= TIME_MAX => Some("time"),
                () => None,
            };
            if let Some(why) = why {
                break (why, (why != "done").then_some(at));
            }
            events.send("progress", None, &json!({ "scanned": scanned, "at": at, "found": found })).await?;
            let average = (page_bytes / page.len().max(1)).max(1);
            page_size = (PAGE_BYTES / average).clamp(1, PAGE);
        };
        let end = json!({ "why": why, "next": next, "scanned": scanned, "found": found });
        events.send("end", None, &end).await
    }

    /// Goes on after an entry.
    fn pass(&mut self, entry: &Entry) {
        let end = Range { first: self.range.last, last: self.range.first, ..self.range };
        match self.range.order {
            IdOrder::Ascending => match entry.id.next() {
                Some(next) => self.range.first = next,
                None => self.range = end,
            },
            IdOrder::Descending => match entry.id.prev() {
                Some(prev) => self.range.last = prev,
                None => self.range = end,
            },
        }
    }

    /// Returns the id at which the search goes on.
    fn position(&self) -> String {
        match self.range.order {
            IdOrder::Ascending => self.range.first.to_string(),
            IdOrder::Descending => self.range.last.to_string(),
        }
    }

    fn matches(&self, redaction: &Redaction, entry: &Entry) -> bool {
        let Some(field) = &self.field else { return is_found(redaction, entry, self.contains.as_deref()) };
        let named = entry.fields.iter().filter(|(name, _)| name == field.as_bytes());
        let text = self.contains.as_deref();
        named.into_iter().any(|(name, value)| {
            text.is_none_or(|text| {
                let shown = redaction.shown_among(&entry.fields, name, value);
                shown.is_some_and(|shown| has(&shown, text))
            })
        })
    }
}
