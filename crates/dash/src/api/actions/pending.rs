//! Actions on pending entries: claim, acknowledge, release, extend; of given ids, or of all that match a filter.

use std::time::Duration;

use millstream_worker::operate::operation::OnParts;
use millstream_worker::operate::partitions::parts_of;
use millstream_worker::operate::pending::{
    ChangePending, PendingChange, PendingEffect, PendingQuery, PendingSelection,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::entries::some_ids;
use super::{Action, Steps, operate};
use crate::app::{Acting, Answer};
use crate::describe::Acted;
use crate::problem::Problem;

/// Maximum number of pending entries of one action.
const ROWS_MAX: usize = 100_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Body {
    stream: String,
    group: String,
    ids: Option<Vec<String>>,
    filter: Option<FilterBody>,
    consumer: Option<String>,
    #[serde(flatten)]
    steps: Steps,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct FilterBody {
    idle_ms_min: Option<u64>,
    consumer: Option<String>,
    deliveries_min: Option<u64>,
    stuck: Option<bool>,
}

type PendingChanged = Answer<Acted<PendingEffect>>;

pub(in crate::api) async fn claim(request: Acting<Body>) -> PendingChanged {
    let consumer = request.body.consumer.clone().filter(|name| !name.is_empty());
    let consumer = consumer.ok_or_else(|| Problem::bad_request("consumer is missing"))?;
    run(request, "pending_claim", PendingChange::Claim { consumer }).await
}

pub(in crate::api) async fn acknowledge(request: Acting<Body>) -> PendingChanged {
    run(request, "pending_ack", PendingChange::Acknowledge).await
}

pub(in crate::api) async fn release(request: Acting<Body>) -> PendingChanged {
    run(request, "pending_nack", PendingChange::Release).await
}

pub(in crate::api) async fn extend(request: Acting<Body>) -> PendingChanged {
    run(request, "pending_extend", PendingChange::Extend).await
}

async fn run(request: Acting<Body>, kind: &'static str, change: PendingChange) -> PendingChanged {
    let Acting { app, caller, body } = request;
    let about = json!({ "stream": body.stream, "group": body.group, "consumer": body.consumer });
    let action = Action::new(&app, caller, kind, about)?;
    let operation = async |action: &Action| {
        let selection = body.selection()?;
        let parts = match &selection {
            // Entries of different partitions can have the same id.
            PendingSelection::Ids(_) => vec![body.stream.clone()],
            PendingSelection::Matching { .. } => {
                parts_of(&**action.backend(), &body.stream, Some(&body.group)).await?
            }
        };
        Ok(OnParts::new(&body.stream, parts, |stream| ChangePending {
            stream,
            group: body.group.clone(),
            selection: selection.clone(),
            change: change.clone(),
        }))
    };
    operate(action, &body.steps, false, operation).await
}

impl Body {
    fn selection(&self) -> Result<PendingSelection, Problem> {
        match (&self.ids, &self.filter) {
            (Some(ids), None) => Ok(PendingSelection::Ids(some_ids(ids)?)),
            (None, Some(filter)) => {
                let query = PendingQuery {
                    consumer: filter.consumer.clone(),
                    idle_min: filter.idle_ms_min.filter(|ms| *ms > 0).map(Duration::from_millis),
                    deliveries_min: filter.deliveries_min,
                    stuck: filter.stuck.unwrap_or_default(),
                };
                Ok(PendingSelection::Matching { query, scan: ROWS_MAX })
            }
            _ => Err(Problem::bad_request("expected exactly one of ids and filter")),
        }
    }
}
