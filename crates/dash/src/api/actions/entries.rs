//! Actions on entries: add, delete, trim, and delayed entries.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::answers;
use millstream_worker::backend::{Capability, Due, StreamId, TrimLimit};
use millstream_worker::operate::delayed::{ChangeDelayed, DelayedChange, DelayedEffect};
use millstream_worker::operate::trim::{DeleteEntries, Deletion, TrimEffect, TrimStream};
use millstream_worker::producer::Producer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Outcome, Steps, operate};
use crate::app::{Acting, Answer, Json};
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

answers! {
    /// The id of an entry, or its ticket if it is delayed.
    pub(in crate::api) struct Added(of: &str, is_delayed: bool) {
        id: String = of.to_owned(),
        delayed: bool = is_delayed,
    }
}

pub(in crate::api) async fn add(Acting { app, caller, body }: Acting<Add>) -> Answer<Json<Added>> {
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
            Ok(Outcome::new(Json(Added::new(&id, due.is_some()))).with("id", id))
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

pub(in crate::api) async fn delete(Acting { app, caller, body }: Acting<Delete>) -> Answer<Acted<Deletion>> {
    let about = json!({ "stream": body.stream, "asked": body.ids.len() });
    let action = Action::new(&app, caller, "entries/delete", about)?;
    let operation =
        async |_: &Action| Ok(DeleteEntries { stream: body.stream.clone(), ids: some_ids(&body.ids)? });
    operate(action, &body.steps, false, operation).await
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
    Acting { app, caller, body }: Acting<Trim>,
) -> Answer<Acted<TrimEffect>> {
    let about = json!({
        "stream": body.stream, "max_length": body.max_length, "min_id": body.min_id, "keep_unread": body.keep_unread,
    });
    let action = Action::new(&app, caller, "stream/trim", about)?;
    let operation = async |_: &Action| {
        let limit = match (body.max_length, &body.min_id) {
            (Some(length), None) => TrimLimit::Length(length),
            (None, Some(id)) => TrimLimit::MinId(query::id(id.strip_prefix('t').unwrap_or(id), 0)?),
            _ => return Err(Problem::bad_request("expected exactly one of max_length and min_id")),
        };
        Ok(TrimStream { stream: body.stream.clone(), limit, keep_unread: body.keep_unread })
    };
    operate(action, &body.steps, false, operation).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Tickets {
    stream: String,
    tickets: Vec<String>,
    #[serde(flatten)]
    steps: Steps,
}

type DelayedChanged = Answer<Acted<DelayedEffect>>;

pub(in crate::api) async fn cancel_delayed(request: Acting<Tickets>) -> DelayedChanged {
    delayed(request, "delayed/cancel", DelayedChange::Cancel).await
}

pub(in crate::api) async fn delayed_now(request: Acting<Tickets>) -> DelayedChanged {
    delayed(request, "delayed/now", DelayedChange::Promote).await
}

async fn delayed(request: Acting<Tickets>, name: &'static str, change: DelayedChange) -> DelayedChanged {
    let Acting { app, caller, body } = request;
    let about = json!({ "stream": body.stream, "asked": body.tickets.len() });
    let action = Action::new(&app, caller, name, about)?;
    let operation = async |_: &Action| {
        Ok(ChangeDelayed { stream: body.stream.clone(), tickets: Some(some_ids(&body.tickets)?), change })
    };
    operate(action, &body.steps, false, operation).await
}
