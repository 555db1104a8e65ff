//! `/history`: the last hour of a group or a stream, from memory. Asks the store only whether a group exists of which
//! nothing was recorded.

use std::time::SystemTime;

use millstream_worker::answers;
use millstream_worker::observe::{HistorySeries, RowKey};
use millstream_worker::operate::wording::millis_since_epoch;
use schemars::JsonSchema;
use serde::Deserialize;

use super::overview::no_stream;
use super::stream::no_group;
use crate::access::Visitor;
use crate::app::{Answer, App, Asked, Json};
use crate::problem::Problem;
use crate::query;

/// Maximum number of points of an answer.
const POINTS_MAX: usize = 600;
/// The history of an answer that does not say from when on.
const HOUR_MS: u64 = 60 * 60 * 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Name of the stream
    stream: String,
    /// Name of the group
    group: Option<String>,
    /// Begin
    from_ms: Option<u64>,
    /// End
    to_ms: Option<u64>,
    /// Maximum number of points, at most 600
    points: Option<usize>,
}

answers! {
    /// The history of a group or a stream, one value of each series for each step. Unknown is null.
    pub(super) struct History(series: HistorySeries) {
        step_ms: u64 = series.step_ms,
        from_ms: u64 = series.from_ms,
        #[serde(rename = "in")]
        added: Vec<Option<f64>> = series.added,
        #[serde(rename = "out")]
        acknowledged: Vec<Option<f64>> = series.acknowledged,
        lag: Vec<Option<u64>> = series.lag,
        pending: Vec<Option<u64>> = series.pending,
        oldest_unread_ms: Vec<Option<u64>> = series.oldest_unread_ms,
        dead_letters: Vec<Option<u64>> = series.dead_letters,
    }
}

pub(super) async fn history(Asked { app, visitor, query }: Asked<HistoryQuery>) -> Answer<Json<History>> {
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
    Ok(Json(History::new(series)))
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
