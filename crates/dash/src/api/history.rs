//! `/history`: the last hour of a group or a stream, from memory. Asks the store only whether a group exists of which nothing was
//! recorded.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use millstream_worker::observe::RowKey;
use millstream_worker::operate::wording::millis_since_epoch;
use serde::Deserialize;
use serde_json::json;

use super::overview::no_stream;
use super::stream::no_group;
use crate::access::Visitor;
use crate::app::{self, Answer, App, LoggedIn, Params};
use crate::problem::Problem;
use crate::query;

/// Maximum number of points of an answer.
const POINTS_MAX: usize = 600;
/// The history of an answer that does not say from when on.
const HOUR_MS: u64 = 60 * 60 * 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    stream: String,
    group: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    points: Option<usize>,
}

pub(super) async fn history(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<HistoryQuery>,
) -> Answer {
    app.sampler.touch();
    let points = query::count(query.points, 300, POINTS_MAX)?;
    let to_ms = query.to_ms.unwrap_or_else(|| millis_since_epoch(SystemTime::now()));
    let from_ms = query.from_ms.unwrap_or(to_ms.saturating_sub(HOUR_MS));
    if from_ms >= to_ms {
        return Err(Problem::bad_request("from_ms must be less than to_ms"));
    }
    if !visitor.sees(&app.sampler.look(), &query.stream) {
        return Err(no_stream(&app, &visitor, &query.stream));
    }
    let key = RowKey { stream: query.stream, group: query.group };
    let series = app.sampler.history(&key, from_ms, to_ms, points);
    if series.is_empty() {
        check_exists(&app, &visitor, &key).await?;
    }
    app::json(&json!({
        "step_ms": series.step_ms,
        "from_ms": series.from_ms,
        "in": series.added,
        "out": series.acknowledged,
        "lag": series.lag,
        "pending": series.pending,
        "oldest_unread_ms": series.oldest_unread_ms,
        "dead_letters": series.dead_letters,
    }))
}

/// Fails if there is no such stream or group. A new one may exist although no look has found it yet.
async fn check_exists(app: &App, visitor: &Visitor, key: &RowKey) -> Result<(), Problem> {
    let look = app.sampler.look();
    match &key.group {
        None if look.stream(&key.stream).is_some() => Ok(()),
        None => match visitor.backend.stream(&key.stream).await? {
            Some(_) => Ok(()),
            None => Err(no_stream(app, visitor, &key.stream)),
        },
        Some(_) if look.row(key).is_some() => Ok(()),
        Some(group) => {
            let groups = visitor.backend.groups(&key.stream).await?;
            let exists = groups.iter().any(|known| known.name == *group);
            if exists { Ok(()) } else { Err(no_group(&look, visitor, &key.stream, group)) }
        }
    }
}
