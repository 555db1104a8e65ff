//! Actions on the server of the store: take a snapshot, empty the slow log, change a setting.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use millstream_worker::backend::SnapshotRequest;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Outcome, Steps, dry_run, outdated};
use crate::app::{Answer, App, Caller, JsonBody};
use crate::describe::Acted;
use crate::problem::Problem;

/// The settings that can be changed here. Others can open the server to anybody, or make it write anywhere.
const SETTINGS: [&str; 6] =
    ["appendfsync", "maxmemory", "maxmemory-policy", "slowlog-log-slower-than", "slowlog-max-len", "save"];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct OnlySteps {
    #[serde(flatten)]
    steps: Steps,
}

impl OnlySteps {
    /// Whether to act. These actions destroy no messages, so their plan has nothing to compare: any preview will do.
    fn acts(&self) -> Result<bool, Problem> {
        Ok(self.steps.preview()?.is_some())
    }
}

pub(in crate::api) async fn snapshot(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<OnlySteps>,
) -> Answer<Acted> {
    let action = Action::new(&app, caller, "server/snapshot", json!({}))?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            if !body.acts()? {
                return Ok(dry_run(json!({ "matched": 1, "dry_run": true, "preview": "snapshot" })));
            }
            let json = match backend.save_snapshot().await? {
                SnapshotRequest::Taken { keys, bytes } => {
                    json!({ "state": "taken", "keys": keys, "bytes": bytes })
                }
                SnapshotRequest::NotNeeded => json!({ "state": "not_needed" }),
                _ => json!({ "state": "started" }),
            };
            Ok(Outcome::new(json))
        })
        .await
}

pub(in crate::api) async fn reset_slow_log(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<OnlySteps>,
) -> Answer<Acted> {
    let action = Action::new(&app, caller, "server/slowlog-reset", json!({}))?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            if !body.acts()? {
                let matched = backend.slow_log(1000).await?.len();
                return Ok(dry_run(json!({ "matched": matched, "dry_run": true, "preview": "slowlog" })));
            }
            backend.reset_slow_log().await?;
            Ok(Outcome::new(json!({ "reset": true })))
        })
        .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Setting {
    name: String,
    value: String,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Setting>,
) -> Answer<Acted> {
    // The value of any other setting can be a secret, such as a password.
    let value = SETTINGS.contains(&&*body.name).then_some(&body.value);
    let action = Action::new(&app, caller, "server/config", json!({ "name": body.name, "value": value }))?;
    let backend = Arc::clone(action.backend());
    action
        .run(async move {
            if !SETTINGS.contains(&&*body.name) {
                let detail = "the dashboard does not change this setting";
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", detail)
                    .way_out(format!("it changes only {}", SETTINGS.join(", "))));
            }
            let info = backend.server(&[&body.name]).await?;
            let before = info.and_then(|info| info.settings.get(&body.name).cloned());
            let plan = json!({
                "name": body.name,
                "before": before,
                "after": body.value,
                "matched": 1,
                "dry_run": true,
                "preview": format!("{}={}", body.name, before.as_deref().unwrap_or("?")),
            });
            match body.steps.preview()? {
                None => return Ok(dry_run(plan)),
                Some(preview) if plan["preview"] != preview => return Err(outdated(plan)),
                Some(_) => {}
            }
            backend.set_server_setting(&body.name, &body.value).await?;
            let json = json!({ "name": body.name, "before": before, "after": body.value, "dry_run": false });
            Ok(Outcome::new(json).with("before", before))
        })
        .await
}
