//! One stream and one group: `/stream`, `/group`, `/policy`. They ask the store with the rights of the visitor.

use std::sync::Arc;

use axum::extract::State;
use millstream_worker::Admin;
use millstream_worker::monitor::{Monitor, PartitionOwners, StreamSnapshot};
use millstream_worker::observe::{Look, RowKey};
use millstream_worker::operate::doctor::group_findings;
use millstream_worker::operate::idle_times::idle_times;
use millstream_worker::operate::shapes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::overview::no_stream;
use crate::access::Visitor;
use crate::app::{self, Answer, App, LoggedIn, Params};
use crate::problem::Problem;
use crate::rows;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    pub(super) stream: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupQuery {
    pub(super) stream: String,
    pub(super) group: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyQuery {
    stream: String,
    group: Option<String>,
}

pub(super) async fn stream(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<StreamQuery>,
) -> Answer {
    app.sampler.touch();
    app::json(&stream_json(&app, &visitor, &query.stream).await?)
}

/// Returns a stream: the shape of `stream info --json`, with rows of the last look as its groups.
pub(crate) async fn stream_json(app: &App, visitor: &Visitor, name: &str) -> Result<Value, Problem> {
    let backend = &*visitor.backend;
    let look = app.sampler.look();
    // The user may be able to run XINFO STREAM, and not what tells about groups.
    let is_seen = visitor.sees(&look, name);
    let snapshot = look.stream(name).filter(|_| is_seen);
    let mut logical = snapshot.filter(|snapshot| snapshot.partitioned.is_some()).cloned();
    let info = if logical.is_some() { None } else { backend.stream(name).await? };
    if logical.is_none() && info.is_none() {
        // The dashboard may not have looked at it yet.
        let found = Monitor::new(Arc::clone(&visitor.backend)).stream(name).await?;
        logical = Some(Arc::new(found.ok_or_else(|| no_stream(app, visitor, name))?));
    }
    let mut json = match (&logical, info) {
        (Some(logical), _) => shapes::stream_snapshot(logical),
        (None, info) => shapes::stream(name, &info.unwrap_or_default()),
    };
    json["look"] = json!(look.number);
    json["at_ms"] = json!(look.at_ms);
    json["dead_letters"] = json!(snapshot.map(|snapshot| snapshot.dead_letters_length));
    json["group_list"] = if is_seen { rows::of_stream(&look, name) } else { json!([]) };
    let rate_of = |name: &str| look.rows_of(name).first().filter(|_| is_seen).and_then(|row| row.rates.added);
    json["rates"] = json!({ "in": rate_of(name) });
    let part_of = snapshot.and_then(|snapshot| snapshot.part_of.as_ref());
    json["partition"] = json!(part_of.map(|part| part.number));
    json["partition_of"] = json!(part_of.map(|part| &*part.stream));
    json["partitions"] = Value::Null;
    if let Some(logical) = logical {
        // What follows is known of single streams only.
        json["memory_bytes"] = Value::Null;
        json["delayed"] = Value::Null;
        json["policy"] = Value::Null;
        let parts = logical.parts().iter().map(|part| {
            let mut json = shapes::stream_snapshot(part);
            json["rates"] = json!({ "in": rate_of(&part.name) });
            json["dead_letters"] = json!(part.dead_letters_length);
            json
        });
        json["partitions"] = parts.collect();
        return Ok(json);
    }
    // A store need not know these, and the user need not have the permission.
    json["memory_bytes"] = json!(backend.memory_usage(name).await.ok().flatten());
    let policy = backend.policy(name, None).await.ok().flatten();
    json["delayed"] = delayed(policy.as_ref());
    json["policy"] = policy.map_or(Value::Null, |policy| shapes::policy(name, None, &policy));
    Ok(json)
}

/// Returns the number of delayed entries and when the first is due. Null if the store does not tell.
fn delayed(policy: Option<&millstream_worker::backend::PolicyInfo>) -> Value {
    let Some(policy) = policy else { return Value::Null };
    let count = policy.counters.iter().find(|(name, _)| name == "delayed").map(|(_, count)| *count);
    json!({ "count": count, "first_due_ms": policy.delayed_first.map(|ticket| ticket.ms) })
}

pub(super) async fn group(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<GroupQuery>,
) -> Answer {
    app.sampler.touch();
    let details = GroupDetails::read(&app, &visitor, &query.stream, &query.group).await?;
    app::json(&group_json(&app, &visitor, &query.stream, &query.group, &details).await?)
}

/// Properties of a group that no look has, because they need a scan or another command.
pub(crate) struct GroupDetails {
    idle_times: Value,
    policy: Value,
    doctor: Value,
    owners: PartitionOwners,
}

impl GroupDetails {
    /// Asks the store.
    pub(crate) async fn read(
        app: &App,
        visitor: &Visitor,
        stream: &str,
        group: &str,
    ) -> Result<GroupDetails, Problem> {
        let backend = &*visitor.backend;
        let look = app.sampler.look();
        let snapshot = look.stream(stream).filter(|_| visitor.sees(&look, stream));
        let doctor = match snapshot {
            Some(snapshot) => findings(app, backend, snapshot, group).await,
            None => Value::Null,
        };
        let monitor = Monitor::new(Arc::clone(&visitor.backend));
        let found = match snapshot {
            Some(snapshot) => snapshot.group(group).cloned(),
            None => monitor.group(stream, group).await?,
        };
        if let Some(logical) = found.filter(|found| found.partitions > 0) {
            // The pages of the partitions show the rest.
            let idle_times = json!({ "histogram": [], "released": 0, "scan": null });
            let owners = monitor.owners(&logical).await?;
            return Ok(GroupDetails { idle_times, policy: Value::Null, doctor, owners });
        }
        let idle_times = shapes::idle_times(&idle_times(backend, stream, group).await?);
        let policy = backend.policy(stream, Some(group)).await.ok().flatten();
        Ok(GroupDetails {
            idle_times,
            policy: policy.map_or(Value::Null, |policy| shapes::policy(stream, Some(group), &policy)),
            doctor,
            owners: PartitionOwners::new(),
        })
    }
}

async fn findings(app: &App, backend: &dyn Admin, snapshot: &StreamSnapshot, group: &str) -> Value {
    let found = group_findings(backend, snapshot, group).await;
    let line_of = app.options.command_line;
    found.map_or(Value::Null, |found| {
        found.iter().map(|finding| shapes::doctor_finding(finding, &line_of)).collect()
    })
}

/// Returns a group: its row of the last look, its consumers and its details.
pub(crate) async fn group_json(
    app: &App,
    visitor: &Visitor,
    stream: &str,
    group: &str,
    details: &GroupDetails,
) -> Result<Value, Problem> {
    let look = app.sampler.look();
    let key = RowKey::group(stream, group);
    let row = look.row(&key).filter(|_| visitor.sees(&look, stream));
    let mut json =
        row.map_or_else(|| json!({ "stream": stream, "group": group }), |row| rows::row(row, look.at_ms));
    let snapshot = match row.and_then(|row| row.group.as_ref()) {
        Some(found) if found.snapshot.detail_at.is_some() => found.snapshot.clone(),
        _ => {
            let found = Monitor::new(Arc::clone(&visitor.backend)).group(stream, group).await?;
            found.ok_or_else(|| no_group(&look, visitor, stream, group))?
        }
    };
    for (name, value) in object(shapes::group(&snapshot)) {
        if json.get(&name).is_none() || ["last_delivered", "entries_read", "waiting"].contains(&&*name) {
            json[name] = value;
        }
    }
    json["look"] = json!(look.number);
    json["at_ms"] = json!(look.at_ms);
    json["consumers"] = shapes::consumers(&snapshot.consumers, &snapshot.workers);
    for (name, value) in object(details.idle_times.clone()) {
        json[name] = value;
    }
    json["partitions"] = rows::partitions(&look, &snapshot, &details.owners);
    json["policy"] = details.policy.clone();
    json["doctor"] = details.doctor.clone();
    let command = millstream_worker::operate::command::Command::new("group describe", &[stream, group]);
    json["cli"] = json!((app.options.command_line)(&command));
    Ok(json)
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => serde_json::Map::new(),
    }
}

/// Returns the error for a group that is not there, with the groups that are.
pub(super) fn no_group(look: &Look, visitor: &Visitor, stream: &str, group: &str) -> Problem {
    let rows = look.rows_of(stream).iter().filter(|_| visitor.sees(look, stream));
    let near: Vec<&str> = rows.filter_map(|row| row.key.group.as_deref()).take(20).collect();
    let problem = Problem::not_found(format!("stream {stream} has no group {group}"));
    if near.is_empty() { problem } else { problem.with("near", json!(near)) }
}

pub(super) async fn policy(LoggedIn(visitor): LoggedIn, Params(query): Params<PolicyQuery>) -> Answer {
    let found = visitor.backend.policy(&query.stream, query.group.as_deref()).await?;
    let json = found.map(|policy| shapes::policy(&query.stream, query.group.as_deref(), &policy));
    app::json(&json.unwrap_or(Value::Null))
}
