//! Operations on the server of the store: take a snapshot, empty the slow log, change a setting.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::operation::{Admins, Done, Effect, OnProgress, Operate, Planned};
use super::plan::Plan;
use crate::backend::SnapshotRequest;

/// Maximum number of commands of the slow log that a plan counts.
const SLOW_COMMANDS_MAX: usize = 1000;

/// Takes a snapshot of the store.
#[derive(Clone, Copy, Debug)]
pub struct TakeSnapshot;

/// What became of a snapshot: `taken`, `not_needed` or `started`, and its size if the store tells it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SnapshotTaken {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Operate for TakeSnapshot {
    type Effect = SnapshotTaken;

    async fn plan(&self, _: &Admins, _: Option<&str>) -> Planned<SnapshotTaken> {
        Ok(Plan::with_digest(SnapshotTaken::default(), "snapshot".to_owned()))
    }

    async fn execute(
        &self,
        backend: &Admins,
        _: Plan<SnapshotTaken>,
        _: OnProgress<'_, SnapshotTaken>,
    ) -> Done<SnapshotTaken> {
        let (state, keys, bytes) = match backend.save_snapshot().await? {
            SnapshotRequest::Taken { keys, bytes } => ("taken", Some(keys), Some(bytes)),
            SnapshotRequest::NotNeeded => ("not_needed", None, None),
            _ => ("started", None, None),
        };
        Ok(Some(SnapshotTaken { state: Some(state), keys, bytes }))
    }
}

impl Effect for SnapshotTaken {}

/// Empties the slow log.
#[derive(Clone, Copy, Debug)]
pub struct ResetSlowLog;

/// The reset of the slow log.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SlowLogReset {
    reset: bool,
    #[serde(skip)]
    commands: u64,
}

impl Operate for ResetSlowLog {
    type Effect = SlowLogReset;

    async fn plan(&self, backend: &Admins, planned: Option<&str>) -> Planned<SlowLogReset> {
        let commands = match planned {
            Some(_) => 0,
            None => backend.slow_log(SLOW_COMMANDS_MAX).await?.len() as u64,
        };
        Ok(Plan::with_digest(SlowLogReset { reset: false, commands }, "slowlog".to_owned()))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<SlowLogReset>,
        _: OnProgress<'_, SlowLogReset>,
    ) -> Done<SlowLogReset> {
        backend.reset_slow_log().await?;
        Ok(Some(SlowLogReset { reset: true, ..plan.effect }))
    }
}

impl Effect for SlowLogReset {
    fn matched(&self) -> u64 {
        self.commands
    }
}

/// Changes a setting of the running server.
#[derive(Clone, Debug)]
pub struct ChangeSetting {
    /// The name of the setting.
    pub name: String,
    /// Its new value.
    pub value: String,
}

/// The change of a setting.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingChange {
    name: String,
    before: Option<String>,
    after: String,
}

impl Operate for ChangeSetting {
    type Effect = SettingChange;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<SettingChange> {
        let info = backend.server(&[&self.name]).await?;
        let before = info.and_then(|info| info.settings.get(&self.name).cloned());
        let digest = format!("{}={}", self.name, before.as_deref().unwrap_or("?"));
        let change = SettingChange { name: self.name.clone(), before, after: self.value.clone() };
        Ok(Plan::with_digest(change, digest))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<SettingChange>,
        _: OnProgress<'_, SettingChange>,
    ) -> Done<SettingChange> {
        backend.set_server_setting(&self.name, &self.value).await?;
        Ok(Some(plan.effect))
    }
}

impl Effect for SettingChange {
    fn record(&self) -> Vec<(&'static str, Value)> {
        vec![("before", json!(self.before))]
    }
}
