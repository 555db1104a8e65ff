//! Actions on groups and consumers: create, reset, remove.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use millstream_worker::backend::Start;
use millstream_worker::group_manager::{GroupManager, Position, ResetPlan};
use millstream_worker::operate::groups::{self, ConsumerRemoval, GroupRemoval};
use millstream_worker::operate::plan::Plan;
use millstream_worker::operate::shapes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Action, Outcome, Steps, dry_run, executed, planned};
use crate::app::{Answer, App, Caller, JsonBody};
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

pub(in crate::api) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Create>,
) -> Answer<Acted> {
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
            if !backend.create_group(&body.stream, &body.group, start).await? {
                let detail = format!("stream {} already has a group {}", body.stream, body.group);
                return Err(Problem::new(StatusCode::CONFLICT, "exists", detail)
                    .way_out("choose another name, or reset the group to another position"));
            }
            Ok(Outcome::new(json!({ "stream": body.stream, "group": body.group, "created": true })))
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
    fn position(&self) -> Result<Position<'_>, Problem> {
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
            self.group.as_deref().map(Position::Group),
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

pub(in crate::api) async fn reset(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Reset>,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "group": body.group, "force": body.force });
    let action = Action::new(&app, caller, "group/reset", about)?;
    let manager = GroupManager::new(Arc::clone(action.backend()));
    action
        .run(async move {
            let (stream, group, to) = (&*body.stream, &*body.group, body.to.position()?);
            let Some(preview) = body.steps.preview()? else {
                return Ok(dry_run(plan_of_reset(&groups::plan_reset(&manager, stream, group, to).await?)));
            };
            let done = groups::reset(&manager, stream, group, to, preview, body.force).await?;
            let plan = executed(done, plan_of_reset)?;
            let (from, to) = (plan.before.last_delivered, plan.after.last_delivered);
            let mut json = shapes::reset(&plan, true);
            json["dry_run"] = json!(false);
            Ok(Outcome::new(json).with("from_id", from.to_string()).with("to_id", to.to_string()))
        })
        .await
}

/// Returns the plan of a reset. It affects one group.
fn plan_of_reset(plan: &Plan<ResetPlan>) -> Value {
    planned(plan, |reset| shapes::reset(reset, false), 1)
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
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Remove>,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "group": body.group, "force": body.force });
    let action = Action::new(&app, caller, "group/remove", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let shape = |plan: &Plan<GroupRemoval>| {
                planned(plan, |removal| shapes::group_removal(removal, false, true), 1)
            };
            let Some(preview) = body.steps.preview()? else {
                return Ok(dry_run(shape(&groups::plan_removal(&backend, &body.stream, &body.group).await?)));
            };
            let done = groups::remove(&backend, &body.stream, &body.group, preview, body.force).await?;
            let removal = executed(done, shape)?;
            let pending = removal.pending;
            Ok(Outcome::new(shapes::group_removal(&removal, true, false)).with("pending_dropped", pending))
        })
        .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RemoveConsumer {
    stream: String,
    group: String,
    consumer: String,
    heir: Option<String>,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn remove_consumer(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<RemoveConsumer>,
) -> Answer<Acted> {
    let about = json!({
        "stream": body.stream, "group": body.group, "consumer": body.consumer, "heir": body.heir,
    });
    let action = Action::new(&app, caller, "consumer/remove", about)?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            let RemoveConsumer { stream, group, consumer, heir, .. } = &body;
            let heir = heir.as_deref();
            let shape = |plan: &Plan<ConsumerRemoval>| {
                planned(plan, |removal| shapes::consumer_removal(removal, None), plan.effect.pending)
            };
            let plan = groups::plan_consumer_removal(&*backend, stream, group, consumer, heir).await?;
            let Some(preview) = body.steps.preview()? else { return Ok(dry_run(shape(&plan))) };
            let done = groups::remove_consumer(&backend, stream, group, consumer, heir, preview).await?;
            let removed = executed(done, shape)?;
            let moved = removed.adopted;
            Ok(Outcome::new(shapes::consumer_removal(&plan.effect, Some(&removed))).with("done", moved))
        })
        .await
}
