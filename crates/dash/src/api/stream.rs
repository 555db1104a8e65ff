//! One stream and one group: `/stream`, `/group`, `/policy`. They ask the store with the rights of the visitor.

use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::answers;
use millstream_worker::backend::PolicyInfo;
use millstream_worker::monitor::{GroupSnapshot, Monitor, PartitionOwners, StreamSnapshot};
use millstream_worker::observe::{Look, Rates, Row, RowKey};
use millstream_worker::operate::command::Command;
use millstream_worker::operate::doctor::group_findings;
use millstream_worker::operate::idle_times::{IdleTimes, idle_times};
use millstream_worker::operate::shapes::{
    self, ConsumerJson, DoctorFindingJson, GroupProgress, IdleTimesJson, PartitionedJson, StreamJson,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::overview::{InRate, StreamRow, no_stream};
use crate::access::Visitor;
use crate::app::{Answer, App, Asked, Json};
use crate::problem::Problem;
use crate::rows::{self, Figures, PartitionRow, RowHead, RowJson};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    /// Name of the stream
    pub(super) stream: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupQuery {
    /// Name of the stream
    pub(super) stream: String,
    /// Name of the group
    pub(super) group: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyQuery {
    /// Name of the stream
    stream: String,
    /// Name of the group
    group: Option<String>,
}

/// A stream and its groups. What only single streams have is null for a logical stream.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StreamPage {
    #[serde(flatten)]
    stream: StreamJson,
    #[serde(flatten)]
    partitioned: Option<PartitionedJson>,
    look: u64,
    at_ms: u64,
    dead_letters: Option<u64>,
    group_list: Vec<RowJson>,
    rates: InRate,
    partition: Option<usize>,
    partition_of: Option<String>,
    /// The partitions of a logical stream. Null for any other stream.
    partitions: Option<Vec<StreamRow>>,
    memory_bytes: Option<u64>,
    delayed: Option<DelayedCount>,
    policy: Option<Map<String, Value>>,
}

answers! {
    /// The number of delayed entries and when the first is due.
    pub(crate) struct DelayedCount(policy: &PolicyInfo) [
        let count = policy.counters.iter().find(|(name, _)| name == "delayed");
    ] {
        count: Option<i64> = count.map(|(_, count)| *count),
        first_due_ms: Option<u64> = policy.delayed_first.map(|ticket| ticket.ms),
    }
}

pub(super) async fn stream(Asked { app, visitor, query }: Asked<StreamQuery>) -> Answer<Json<StreamPage>> {
    app.sampler.touch();
    stream_page(&app, &visitor, &query.stream).await.map(Json)
}

/// Returns a stream, with rows of the last look as its groups.
pub(crate) async fn stream_page(app: &App, visitor: &Visitor, name: &str) -> Result<StreamPage, Problem> {
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
    let row_of = |name: &str| look.rows_of(name).first().filter(|_| is_seen).map(|row| &**row);
    let part_of = snapshot.and_then(|snapshot| snapshot.part_of.as_ref());
    let mut page = StreamPage {
        stream: match (&logical, info) {
            (Some(logical), _) => StreamJson::new(&logical.name, &logical.info),
            (None, info) => StreamJson::new(name, &info.unwrap_or_default()),
        },
        partitioned: None,
        look: look.number,
        at_ms: look.at_ms,
        dead_letters: snapshot.map(|snapshot| snapshot.dead_letters_length),
        group_list: if is_seen { rows::of_stream(&look, name) } else { Vec::new() },
        rates: InRate::new(row_of(name)),
        partition: part_of.map(|part| part.number),
        partition_of: part_of.map(|part| part.stream.to_string()),
        partitions: None,
        memory_bytes: None,
        delayed: None,
        policy: None,
    };
    if let Some(logical) = logical {
        let parts = logical.parts().iter();
        page.partitioned = logical.partitioned.as_deref().map(PartitionedJson::new);
        page.partitions = Some(parts.map(|part| StreamRow::new(part, row_of(&part.name))).collect());
        return Ok(page);
    }
    // A store need not know these, and the user need not have the permission.
    page.memory_bytes = backend.memory_usage(name).await.ok().flatten();
    let policy = backend.policy(name, None).await.ok().flatten();
    page.delayed = policy.as_ref().map(DelayedCount::new);
    page.policy = policy.map(|policy| shapes::policy(name, None, &policy));
    Ok(page)
}

/// A group, its consumers and its pending entries by idle time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GroupPage {
    #[serde(flatten)]
    head: RowHead,
    #[serde(flatten)]
    figures: Figures,
    #[serde(flatten)]
    progress: GroupProgress,
    look: u64,
    at_ms: u64,
    consumers: Vec<ConsumerJson>,
    #[serde(flatten)]
    idle_times: IdleTimesJson,
    /// The group on each partition of a logical stream. Null for any other stream.
    partitions: Option<Vec<PartitionRow>>,
    policy: Option<Map<String, Value>>,
    doctor: Option<Vec<DoctorFindingJson>>,
    cli: String,
}

pub(super) async fn group(Asked { app, visitor, query }: Asked<GroupQuery>) -> Answer<Json<GroupPage>> {
    app.sampler.touch();
    let details = GroupDetails::read(&app, &visitor, &query.stream, &query.group).await?;
    group_page(&app, &visitor, &query.stream, &query.group, &details).await.map(Json)
}

/// Properties of a group that no look has, because they need a scan or another command.
pub(crate) struct GroupDetails {
    idle_times: Option<IdleTimes>,
    policy: Option<PolicyInfo>,
    doctor: Option<Vec<DoctorFindingJson>>,
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
            None => None,
        };
        let monitor = Monitor::new(Arc::clone(&visitor.backend));
        let found = match snapshot {
            Some(snapshot) => snapshot.group(group).cloned(),
            None => monitor.group(stream, group).await?,
        };
        if let Some(logical) = found.filter(|found| found.partitions > 0) {
            // The pages of the partitions show the rest.
            let owners = monitor.owners(&logical).await?;
            return Ok(GroupDetails { idle_times: None, policy: None, doctor, owners });
        }
        Ok(GroupDetails {
            idle_times: Some(idle_times(backend, stream, group).await?),
            policy: backend.policy(stream, Some(group)).await.ok().flatten(),
            doctor,
            owners: PartitionOwners::new(),
        })
    }
}

async fn findings(
    app: &App,
    backend: &dyn Admin,
    snapshot: &StreamSnapshot,
    group: &str,
) -> Option<Vec<DoctorFindingJson>> {
    let found = group_findings(backend, snapshot, group).await.ok()?;
    let line_of = app.options.command_line;
    Some(found.iter().map(|finding| DoctorFindingJson::new(finding, &line_of)).collect())
}

/// Returns a group: its row of the last look, its consumers and its details.
pub(crate) async fn group_page(
    app: &App,
    visitor: &Visitor,
    stream: &str,
    group: &str,
    details: &GroupDetails,
) -> Result<GroupPage, Problem> {
    let look = app.sampler.look();
    let key = RowKey::group(stream, group);
    let row = look.row(&key).filter(|_| visitor.sees(&look, stream));
    let found: GroupSnapshot = match row.and_then(|row| row.group.as_ref()) {
        Some(found) if found.snapshot.detail_at.is_some() => found.snapshot.clone(),
        _ => {
            let found = Monitor::new(Arc::clone(&visitor.backend)).group(stream, group).await?;
            found.ok_or_else(|| no_group(&look, visitor, stream, group))?
        }
    };
    let of_row = |row: &Arc<Row>| {
        let head = RowHead::new(&key, row.openable, row.partitions, row.group.as_ref());
        (head, Figures::of(row, look.at_ms))
    };
    let (head, figures) = row.map(of_row).unwrap_or_else(|| {
        let (part_of, unread) = (found.part_of.as_ref(), found.unread_age().map(|age| (age, true)));
        let rates = Rates::default();
        let figures = Figures::new(stream, found.stream_length, part_of, &rates, None, Some(&found), unread);
        (RowHead::new(&key, true, found.partitions, None), figures)
    });
    Ok(GroupPage {
        head,
        figures,
        progress: GroupProgress::new(&found),
        look: look.number,
        at_ms: look.at_ms,
        consumers: shapes::consumers(&found.consumers, &found.workers),
        idle_times: IdleTimesJson::new(details.idle_times.as_ref()),
        partitions: rows::partitions(&look, &found, &details.owners),
        policy: details.policy.as_ref().map(|policy| shapes::policy(stream, Some(group), policy)),
        doctor: details.doctor.clone(),
        cli: (app.options.command_line)(&Command::new("group describe", &[stream, group])),
    })
}

/// Returns the error for a group that is not there, with the groups that are.
pub(super) fn no_group(look: &Look, visitor: &Visitor, stream: &str, group: &str) -> Problem {
    let rows = look.rows_of(stream).iter().filter(|_| visitor.sees(look, stream));
    let near: Vec<&str> = rows.filter_map(|row| row.key.group.as_deref()).take(20).collect();
    let problem = Problem::not_found(format!("stream {stream} has no group {group}"));
    if near.is_empty() { problem } else { problem.with("near", json!(near)) }
}

pub(super) async fn policy(
    Asked { visitor, query, .. }: Asked<PolicyQuery>,
) -> Answer<Json<Option<Map<String, Value>>>> {
    let found = visitor.backend.policy(&query.stream, query.group.as_deref()).await?;
    let policy = found.map(|policy| shapes::policy(&query.stream, query.group.as_deref(), &policy));
    Ok(Json(policy))
}
