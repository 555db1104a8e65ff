//! `/pending`: pending entries of a group that match a filter, with their fields.

use std::time::Duration;

use millstream_worker::answers;
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::pending::{self, ListedRow, PendingPage, PendingQuery};
use millstream_worker::operate::shapes::ViewedPending;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::app::{Answer, Asked, Json};
use crate::query;

/// Maximum number of pending entries that one answer examines to count those that match.
const SCAN_MAX: usize = 10_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Name of the stream
    stream: String,
    /// Name of the group
    group: String,
    /// Only entries with at least this idle time
    idle_ms_min: Option<u64>,
    /// Only entries of this consumer
    consumer: Option<String>,
    /// Only entries with at least so many deliveries
    deliveries_min: Option<u64>,
    /// 1: only entries that count as stuck: delivered five times, or idle for five minutes
    #[serde(default, deserialize_with = "query::flag")]
    #[schemars(with = "Option<String>")]
    stuck: bool,
    /// Only entries after this id
    after: Option<String>,
    /// At most 1000
    count: Option<usize>,
}

answers! {
    /// Pending entries with their fields.
    pub(super) struct PendingRows(page: &PendingPage, view: &FieldsView<'_>) [
        let row = |ListedRow { row, record, fields, .. }: &ListedRow| {
            ViewedPending::new(row, record, fields.as_ref(), view)
        };
    ] {
        rows: Vec<ViewedPending> = page.rows.iter().map(row).collect(),
        matched: u64 = page.matched,
        exact: bool = page.exact,
        next: Option<String> = page.next.map(|id| id.to_string()),
    }
}

pub(super) async fn pending(Asked { app, visitor, query }: Asked<ListQuery>) -> Answer<Json<PendingRows>> {
    let count = query::count(query.count, 100, 1000)?;
    let after = query.after.as_deref().map(|after| query::id(after, 0)).transpose()?;
    let filter = PendingQuery {
        consumer: query.consumer,
        idle_min: query.idle_ms_min.filter(|ms| *ms > 0).map(Duration::from_millis),
        deliveries_min: query.deliveries_min,
        stuck: query.stuck,
    };
    let backend = &*visitor.backend;
    let page = pending::list(backend, &query.stream, &query.group, &filter, after, count, SCAN_MAX).await?;
    Ok(Json(PendingRows::new(&page, &FieldsView::listed(&app.redaction))))
}
