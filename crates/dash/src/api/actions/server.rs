//! Actions on the server of the store: take a snapshot, empty the slow log, change a setting.

use axum::http::StatusCode;
use millstream_worker::operate::server::{
    ChangeSetting, ResetSlowLog, SettingChange, SlowLogReset, SnapshotTaken, TakeSnapshot,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Steps, operate};
use crate::app::{Acting, Answer};
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

pub(in crate::api) async fn snapshot(
    Acting { app, caller, body }: Acting<OnlySteps>,
) -> Answer<Acted<SnapshotTaken>> {
    let action = Action::new(&app, caller, "server/snapshot", json!({}))?;
    operate(action, &body.steps, false, async |_: &Action| Ok(TakeSnapshot)).await
}

pub(in crate::api) async fn reset_slow_log(
    Acting { app, caller, body }: Acting<OnlySteps>,
) -> Answer<Acted<SlowLogReset>> {
    let action = Action::new(&app, caller, "server/slowlog-reset", json!({}))?;
    operate(action, &body.steps, false, async |_: &Action| Ok(ResetSlowLog)).await
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
    Acting { app, caller, body }: Acting<Setting>,
) -> Answer<Acted<SettingChange>> {
    // The value of any other setting can be a secret, such as a password.
    let value = SETTINGS.contains(&&*body.name).then_some(&body.value);
    let action = Action::new(&app, caller, "server/config", json!({ "name": body.name, "value": value }))?;
    let operation = async |_: &Action| {
        if !SETTINGS.contains(&&*body.name) {
            let detail = "the dashboard does not change this setting";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", detail)
                .way_out(format!("it changes only {}", SETTINGS.join(", "))));
        }
        Ok(ChangeSetting { name: body.name.clone(), value: body.value.clone() })
    };
    operate(action, &body.steps, false, operation).await
}
