//! Actions on groups: create.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use millstream_worker::backend::Start;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Outcome};
use crate::app::{Answer, App, Caller, JsonBody};
use crate::problem::Problem;
use crate::query;

#[derive(Deserialize)]
pub(in crate::api) struct Create {
    stream: String,
    group: String,
    start: StartAt,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartAt {
    Earliest,
    Latest,
    Id(String),
}

pub(in crate::api) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Create>,
) -> Answer {
    let about = json!({ "stream": body.stream, "group": body.group });
    let action = Action::new(&app, caller, "groups/create", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let start = match &body.start {
                StartAt::Earliest => Start::Beginning,
                StartAt::Latest => Start::End,
                StartAt::Id(id) => Start::After(query::id(id, 0)?),
            };
            if !backend.create_group(&body.stream, &body.group, start).await? {
                let detail = format!("stream {} already has a group {}", body.stream, body.group);
                return Err(Problem::new(StatusCode::CONFLICT, "exists", detail));
            }
            Ok(Outcome::new(json!({ "stream": body.stream, "group": body.group, "created": true })))
        })
        .await
}
