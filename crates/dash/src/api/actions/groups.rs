//! Actions on groups and consumers: create, reset, remove.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::StatusCode;
use millstream_worker::answers;
use millstream_worker::backend::Start;
use millstream_worker::group_manager::{Position, ResetPlan};
use millstream_worker::operate::groups::{ConsumerRemoval, GroupRemoval, ResetGroup};
use millstream_worker::operate::operation::OnParts;
use millstream_worker::operate::partitions::{parts_of, removal_of_consumer, removal_of_group};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Outcome, Steps, operate};
use crate::app::{Acting, Answer, Json};
use crate::describe::Acted;
use crate::problem::Problem;
use crate::query;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Create {
    stream: String,
    group: String,
    start: StartAt,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StartAt {
    Earliest,
    Latest,
    Id(String),
}

answers! {
    /// A group that was created.
    pub(in crate::api) struct Created(name: String, of_group: String) {
        stream: String = name,
        group: String = of_group,
        created: bool = true,
    }
}

pub(in crate::api) async fn create(Acting { app, caller, body }: Acting<Create>) -> Answer<Json<Created>> {
    let about = json!({ "stream": body.stream, "group": body.group });
    let action = Action::new(&app, caller, "groups/create", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let start = match &body.start {
                StartAt::Earliest => Start::Beginning,
                StartAt::Latest => Start::End,
                StartAt::Id(id) => query::id(id, 0)?.prev().map_or(Start::Beginning, Start::After),
            };
            let mut is_created = false;
            for stream in parts_of(&*backend, &body.stream, None).await? {
                is_created |= backend.create_group(&stream, &body.group, start).await?;
            }
            if !is_created {
                let detail = format!("stream {} already has a group {}", body.stream, body.group);
                return Err(Problem::new(StatusCode::CONFLICT, "exists", detail)
                    .way_out("choose another name, or reset the group to another position"));
            }
            Ok(Outcome::new(Json(Created::new(body.stream, body.group))))
        })
        .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Reset {
    stream: String,
    group: String,
    to: Target,
    #[serde(default)]
    force: bool,
    #[serde(flatten)]
    steps: Steps,
}

/// Where to move a group. Exactly one member is set. With `id`, the group reads on at this entry, as with `--to-id`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Target {
    earliest: bool,
    latest: bool,
    id: Option<String>,
    time_ms: Option<u64>,
    ago_ms: Option<u64>,
    shift: Option<i64>,
    group: Option<String>,
}

impl Target {
    fn position(&self) -> Result<Position, Problem> {
        let id = self.id.as_deref().map(|id| query::id(id, 0)).transpose()?;
        let time = self.time_ms.map(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        let time =
            time.map(|time| time.ok_or_else(|| Problem::bad_request("time_ms is too large"))).transpose()?;
        let mut given = [
            self.earliest.then_some(Position::Beginning),
            self.latest.then_some(Position::End),
            // The entry with this id comes next, as with --to-id.
            id.map(|id| id.prev().map_or(Position::Beginning, Position::After)),
            time.map(Position::Time),
            self.ago_ms.map(Duration::from_millis).map(Position::Ago),
            self.shift.map(Position::Shift),
            self.group.clone().map(Position::Group),
        ]
        .into_iter()
        .flatten();
        match (given.next(), given.next()) {
            (Some(position), None) => Ok(position),
            _ => Err(Problem::bad_request("to needs exactly one target")
                .way_out("use earliest, latest, id, time_ms, ago_ms, shift or group")),
        }
    }
}

pub(in crate::api) async fn reset(Acting { app, caller, body }: Acting<Reset>) -> Answer<Acted<ResetPlan>> {
    let about = json!({ "stream": body.stream, "group": body.group, "force": body.force });
    let action = Action::new(&app, caller, "group/reset", about)?;
    let operation = async |action: &Action| {
        let to = body.to.position()?;
        let parts = parts_of(&**action.backend(), &body.stream, Some(&body.group)).await?;
        let reset = |stream| ResetGroup { stream, group: body.group.clone(), to: to.clone() };
        Ok(OnParts::new(&body.stream, parts, reset))
    };
    operate(action, &body.steps, body.force, operation).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Remove {
    stream: String,
    group: String,
    #[serde(default)]
    force: bool,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn remove(
    Acting { app, caller, body }: Acting<Remove>,
) -> Answer<Acted<GroupRemoval>> {
    let about = json!({ "stream": body.stream, "group": body.group, "force": body.force });
    let action = Action::new(&app, caller, "group/remove", about)?;
    let operation =
        async |action: &Action| Ok(removal_of_group(action.backend(), &body.stream, &body.group).await?);
    operate(action, &body.steps, body.force, operation).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RemoveConsumerBody {
    stream: String,
    group: String,
    consumer: String,
    heir: Option<String>,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn remove_consumer(
    Acting { app, caller, body }: Acting<RemoveConsumerBody>,
) -> Answer<Acted<ConsumerRemoval>> {
    let about = json!({
        "stream": body.stream, "group": body.group, "consumer": body.consumer, "heir": body.heir,
    });
    let action = Action::new(&app, caller, "consumer/remove", about)?;
    let operation = async |action: &Action| {
        let RemoveConsumerBody { stream, group, consumer, heir, .. } = &body;
        Ok(removal_of_consumer(action.backend(), stream, group, consumer, heir.as_deref()).await?)
    };
    operate(action, &body.steps, false, operation).await
}
