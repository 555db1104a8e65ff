//! Actions on entries: add, delete, trim, and delayed entries.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use millstream_worker::backend::{Capability, Due, StreamId, TrimLimit};
use millstream_worker::operate::shapes;
use millstream_worker::operate::trim;
use millstream_worker::producer::Producer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Outcome, Steps, dry_run, executed, planned};
use crate::app::{Answer, App, Caller, JsonBody};
use crate::describe::Acted;
use crate::problem::Problem;
use crate::query;

/// Maximum number of ids in a body.
pub(in crate::api) const IDS_MAX: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Add {
    stream: String,
    fields: Vec<(String, String)>,
    delay_ms: Option<u64>,
    at_ms: Option<u64>,
    producer: Option<String>,
    iid: Option<String>,
}

pub(in crate::api) async fn add(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Add>,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "fields": body.fields.len() });
    let action = Action::new(&app, caller, "entries/add", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let due = due(body.delay_ms, body.at_ms)?;
            let once = match (body.producer, body.iid) {
                (None, None) => None,
                (Some(producer), Some(iid)) => Some((producer, iid)),
                _ => return Err(Problem::bad_request("producer and iid must be given together")),
            };
            if once.is_some() && !backend.supports(Capability::IdempotentAdds, &body.stream).await? {
                return Err(Problem::bad_request("this store does not support idempotent adds")
                    .way_out("leave out producer and iid"));
            }
            let producer = Producer::new(backend, body.stream);
            let producer = match due {
                None => producer,
                Some(Due::In(delay_ms)) => producer.delay(Duration::from_millis(delay_ms)),
                Some(Due::At(at_ms)) => producer.delay_until(at_ms),
            };
            let id = match once {
                None => producer.send(body.fields).await?,
                Some((name, iid)) => {
                    producer.idempotent(name).retry_for(Duration::ZERO).send_once(&iid, body.fields).await?
                }
            };
            let id = id.to_string();
            Ok(Outcome::new(json!({ "id": id, "delayed": due.is_some() })).with("id", id))
        })
        .await
}

fn due(delay_ms: Option<u64>, at_ms: Option<u64>) -> Result<Option<Due>, Problem> {
    match (delay_ms, at_ms) {
        (None, None) => Ok(None),
        (Some(delay), None) => Ok(Some(Due::In(delay))),
        (None, Some(at)) => Ok(Some(Due::At(at))),
        (Some(_), Some(_)) => Err(Problem::bad_request("delay_ms and at_ms exclude each other")),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Delete {
    stream: String,
    ids: Vec<String>,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Delete>,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "asked": body.ids.len() });
    let action = Action::new(&app, caller, "entries/delete", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let ids = some_ids(&body.ids)?;
            let shape = |plan: &_| plan_of_deletion(plan);
            let Some(preview) = body.steps.preview()? else {
                return Ok(dry_run(shape(&trim::plan_deletion(&*backend, &body.stream, &ids).await?)));
            };
            let done = trim::delete(&*backend, &body.stream, &ids, preview).await?;
            let deleted = executed(done, shape)?;
            let json = json!({
                "stream": body.stream, "asked": ids.len(), "matched": deleted, "deleted": deleted, "dry_run": false,
            });
            Ok(Outcome::new(json).with("done", deleted))
        })
        .await
}

fn plan_of_deletion(plan: &millstream_worker::operate::plan::Plan<trim::Deletion>) -> serde_json::Value {
    planned(plan, |deletion| shapes::deletion(deletion, None), plan.effect.ids.len() as u64)
}

/// Parses ids, at least one and not too many.
pub(super) fn some_ids(texts: &[String]) -> Result<Vec<StreamId>, Problem> {
    match texts.len() {
        0 => Err(Problem::bad_request("ids is empty: expected at least one id")),
        1..=IDS_MAX => query::ids(texts),
        count => Err(Problem::bad_request(format!("ids has {count} ids, and the limit is {IDS_MAX}"))),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Trim {
    stream: String,
    max_length: Option<u64>,
    min_id: Option<String>,
    #[serde(default)]
    keep_unread: bool,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn trim_stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Trim>,
) -> Answer<Acted> {
    let about = json!({
        "stream": body.stream, "max_length": body.max_length, "min_id": body.min_id, "keep_unread": body.keep_unread,
    });
    let action = Action::new(&app, caller, "stream/trim", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let limit = match (body.max_length, &body.min_id) {
                (Some(length), None) => TrimLimit::Length(length),
                (None, Some(id)) => TrimLimit::MinId(query::id(id.strip_prefix('t').unwrap_or(id), 0)?),
                _ => return Err(Problem::bad_request("expected exactly one of max_length and min_id")),
            };
            let shape = |plan: &millstream_worker::operate::plan::Plan<trim::TrimEffect>| {
                planned(plan, |effect| shapes::trim(effect, None), plan.effect.removed)
            };
            let Some(preview) = body.steps.preview()? else {
                let plan = trim::plan_trim(&*backend, &body.stream, limit, body.keep_unread).await?;
                return Ok(dry_run(shape(&plan)));
            };
            let done = trim::trim(&*backend, &body.stream, limit, body.keep_unread, preview).await?;
            let removed = executed(done, shape)?;
            let json =
                json!({ "stream": body.stream, "matched": removed, "removed": removed, "dry_run": false });
            Ok(Outcome::new(json).with("done", removed))
        })
        .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Tickets {
    stream: String,
    tickets: Vec<String>,
    #[serde(flatten)]
    steps: Steps,
}

/// What to do with delayed entries.
#[derive(Clone, Copy)]
enum Delayed {
    Cancel,
    Now,
}

pub(in crate::api) async fn cancel_delayed(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Tickets>,
) -> Answer<Acted> {
    delayed(&app, caller, body, "delayed/cancel", Delayed::Cancel).await
}

pub(in crate::api) async fn delayed_now(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Tickets>,
) -> Answer<Acted> {
    delayed(&app, caller, body, "delayed/now", Delayed::Now).await
}

async fn delayed(
    app: &Arc<App>,
    caller: Caller,
    body: Tickets,
    name: &'static str,
    change: Delayed,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "asked": body.tickets.len() });
    let action = Action::new(app, caller, name, about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let tickets = some_ids(&body.tickets)?;
            let mut found = Vec::new();
            for ticket in &tickets {
                let entries = backend.delayed(&body.stream, *ticket, 1).await?;
                found.extend(entries.iter().map(|entry| entry.id).filter(|id| id == ticket));
            }
            // A ticket identifies an entry: the only change there can be is that it is no longer delayed.
            let plan = json!({
                "stream": body.stream,
                "asked": tickets.len(),
                "matched": found.len(),
                "dry_run": true,
                "preview": found.len().to_string(),
            });
            match body.steps.preview()? {
                None => return Ok(dry_run(plan)),
                Some(preview) if plan["preview"] != preview => return Err(super::outdated(plan)),
                Some(_) => {}
            }
            let done = match change {
                Delayed::Cancel => backend.cancel_delayed(&body.stream, &found).await?,
                Delayed::Now => backend.promote_delayed(&body.stream, &found).await?,
            };
            let json =
                json!({ "stream": body.stream, "asked": tickets.len(), "done": done, "dry_run": false });
            Ok(Outcome::new(json).with("done", done))
        })
        .await
}
