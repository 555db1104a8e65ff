//! `/pending`: pending entries of a group that match a filter, with their fields.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::pending::{self, PendingQuery};
use millstream_worker::operate::shapes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{self, Answer, App, LoggedIn, Params};
use crate::query;

/// Maximum number of pending entries that one answer examines to count those that match.
const SCAN_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    stream: String,
    group: String,
    idle_ms_min: Option<u64>,
    consumer: Option<String>,
    deliveries_min: Option<u64>,
    #[serde(default, deserialize_with = "query::flag")]
    stuck: bool,
    after: Option<String>,
    count: Option<usize>,
}

pub(super) async fn pending(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<ListQuery>,
) -> Answer {
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
    let view = FieldsView::listed(&app.redaction);
    let rows = page
        .rows
        .iter()
        .map(|listed| shapes::viewed_pending(&listed.row, &listed.record, listed.fields.as_ref(), &view));
    app::json(&json!({
        "rows": rows.collect::<Value>(),
        "matched": page.matched,
        "exact": page.exact,
        "next": page.next.map(|id| id.to_string()),
    }))
}
