//! The server of the store: `/server`, `/slowlog`, `/clients`, `/doctor`.

use std::collections::{BTreeMap, HashMap};

use millstream_worker::answers;
use millstream_worker::backend::{ClientInfo, ServerInfo, SlowCommand};
use millstream_worker::observe::Look;
use millstream_worker::operate::doctor::{
    DoctorFinding, FindingsQuery, SHOWN_DEFAULT, SHOWN_MAX, ServerFacts, diagnose,
};
use millstream_worker::operate::shapes::{DiagnosisJson, DoctorFindingJson};
use millstream_worker::operate::wording::millis;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::{Answer, App, Asked, Json};
use crate::facts::{self, COMMAND_PREFIX, CommandFacts, FactSeries};
use crate::query;

/// The settings that the page shows, beside those that the doctor needs.
const SETTINGS: [&str; 10] = [
    "appendonly",
    "appendfsync",
    "save",
    "maxmemory-policy",
    "maxmemory",
    "maxclients",
    "timeout",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "stream-node-max-entries",
];

answers! {
    /// The server of the store. Its members are null if the store is embedded.
    pub(super) struct Server(app: &App, found: Option<ServerInfo>) [
        let info = found.as_ref();
        let sorted = |facts: &HashMap<String, String>| -> BTreeMap<String, String> {
            let facts = facts.iter().filter(|(name, _)| !name.starts_with(COMMAND_PREFIX));
            facts.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
    ] {
        facts: Option<BTreeMap<String, String>> = info.map(|info| sorted(&info.facts)),
        settings: Option<BTreeMap<String, String>> = info.map(|info| sorted(&info.settings)),
        summary: Option<Summary> = info.map(|info| Summary::new(app, info)),
        series: Option<FactSeries> = info.filter(|info| !info.facts.is_empty()).map(|_| app.facts.series()),
        commands: Vec<CommandFigures> = info.map(|info| commands(app, info)).unwrap_or_default(),
        denied: Option<String> = info.and_then(|info| info.denied.clone()),
    }

    /// The most important facts about the server.
    pub(super) struct Summary(app: &App, info: &ServerInfo) [
        let text = |name: &str| info.facts.get(name);
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let syncs = if info.facts.is_empty() { (None, None) } else { app.facts.syncs() };
        let saved_at_s = number("rdb_last_save_time").filter(|at| *at > 0);
    ] {
        product: Option<String> = ServerFacts::new(Some(info.clone())).version(),
        memory_bytes: Option<u64> = number("used_memory"),
        memory_peak_bytes: Option<u64> = number("used_memory_peak"),
        memory_limit_bytes: Option<u64> = number("maxmemory").filter(|limit| *limit > 0),
        clients: Option<u64> = number("connected_clients"),
        blocked: Option<u64> = number("blocked_clients"),
        ops_per_s: Option<u64> = number("instantaneous_ops_per_sec"),
        uptime_s: Option<u64> = number("uptime_in_seconds"),
        log_bytes: Option<u64> = number("log_bytes").or(number("aof_current_size")),
        last_snapshot_ms: Option<u64> = saved_at_s.map(|at| at.saturating_mul(1000)),
        last_snapshot_ok: Option<bool> = text("rdb_last_bgsave_status").map(|status| status == "ok"),
        appendfsync: Option<String> = info.settings.get("appendfsync").cloned(),
        sync_avg_ms: Option<f64> = syncs.0,
        syncs_per_s: Option<f64> = syncs.1,
    }

    /// The statistics of a command.
    pub(super) struct CommandFigures(app: &App, command: &str, figures: &CommandFacts) {
        name: String = command.to_owned(),
        calls: u64 = figures.calls,
        per_s: Option<f64> = app.facts.calls_per_s(command),
        avg_us: Option<f64> = figures.average_us,
        errors: u64 = figures.errors,
    }

    /// A command that took long.
    pub(super) struct SlowCommandJson(app: &App, slow: &SlowCommand) {
        id: u64 = slow.id,
        at_ms: u64 = slow.at_ms,
        took_us: u64 = u64::try_from(slow.took.as_micros()).unwrap_or(u64::MAX),
        client: String = slow.client.clone(),
        client_name: String = slow.client_name.clone(),
        node: Option<String> = slow.node.clone(),
        command: Vec<String> = app.redaction.mask_arguments(&slow.command),
    }

    /// A connected client.
    pub(super) struct ClientJson(client: &ClientInfo) {
        id: u64 = client.id,
        address: String = client.address.clone(),
        name: String = client.name.clone(),
        user: String = client.user.clone(),
        database: u64 = client.database,
        age_ms: u64 = millis(client.age),
        idle_ms: u64 = millis(client.idle),
        blocked: bool = client.is_blocked,
        flags: String = client.flags.clone(),
        command: String = client.last_command.clone(),
        memory_bytes: Option<u64> = client.memory_bytes,
        library: String = client.library.clone(),
        node: Option<String> = client.node.clone(),
    }

    /// A finding, since when it lasts, and what identifies it meanwhile.
    pub(super) struct FindingSince(app: &App, found: &DoctorFinding, since: &Map<String, Value>) {
        #[serde(flatten)]
        finding: DoctorFindingJson = DoctorFindingJson::new(found, &app.options.command_line),
        since_ms: Option<u64> = since.get(&id_of(found)).and_then(Value::as_u64),
        id: String = id_of(found),
        consumer: Option<String> = found.consumer.clone(),
    }

    /// Problems of the store and what to do about them. `kinds` counts all findings; `findings` has some of each kind.
    pub(super) struct Doctor(found: DiagnosisJson, shown: Vec<FindingSince>, of: &Look) {
        #[serde(flatten)]
        diagnosis: DiagnosisJson = found,
        findings: Vec<FindingSince> = shown,
        look: u64 = of.number,
        at_ms: u64 = of.at_ms,
    }
}

pub(super) async fn server(Asked { app, visitor, .. }: Asked) -> Answer<Json<Server>> {
    Ok(Json(Server::new(&app, visitor.backend.server(&SETTINGS).await?)))
}

/// Returns the statistics of commands, the most frequent first.
fn commands(app: &App, info: &ServerInfo) -> Vec<CommandFigures> {
    let mut commands: Vec<_> = facts::commands(info).collect();
    commands.sort_by(|(a, of_a), (b, of_b)| of_b.calls.cmp(&of_a.calls).then_with(|| a.cmp(b)));
    commands.into_iter().map(|(name, figures)| CommandFigures::new(app, name, &figures)).collect()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CountQuery {
    /// At most 1000
    count: Option<usize>,
}

pub(super) async fn slow_log(
    Asked { app, visitor, query }: Asked<CountQuery>,
) -> Answer<Json<Vec<SlowCommandJson>>> {
    let slow = visitor.backend.slow_log(query::count(query.count, 100, 1000)?).await?;
    Ok(Json(slow.iter().map(|slow| SlowCommandJson::new(&app, slow)).collect()))
}

pub(super) async fn clients(Asked { visitor, .. }: Asked) -> Answer<Json<Vec<ClientJson>>> {
    Ok(Json(visitor.backend.clients().await?.iter().map(ClientJson::new).collect()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DoctorQuery {
    /// Only findings in which each of these words occurs
    q: Option<String>,
    /// Only findings with this code
    code: Option<String>,
    /// Number of findings of each kind to skip
    offset: Option<usize>,
    /// Number of findings of each kind: 10, at most 500
    count: Option<usize>,
}

pub(super) async fn doctor(Asked { app, visitor, query }: Asked<DoctorQuery>) -> Answer<Json<Doctor>> {
    let count = query::count(query.count, SHOWN_DEFAULT, SHOWN_MAX)?;
    let wanted = FindingsQuery {
        words: &query::words(query.q)?,
        code: query.code.as_deref(),
        offset: query.offset.unwrap_or_default(),
        count,
    };
    app.sampler.touch();
    let look = app.sampler.look();
    let streams: Vec<_> =
        look.streams.iter().filter(|stream| stream.is_seen(&*visitor.may_see)).cloned().collect();
    let diagnosis = diagnose(&*visitor.backend, &streams).await?;
    let kinds = diagnosis.kinds(&wanted);
    let since = app.first_seen.update(&visitor.name, diagnosis.findings.iter().map(id_of));
    let shown = kinds.iter().flat_map(|kind| &kind.shown);
    let findings = shown.map(|finding| FindingSince::new(&app, finding, &since)).collect();
    Ok(Json(Doctor::new(DiagnosisJson::new(&diagnosis, &kinds), findings, &look)))
}

/// Identifies a finding while it lasts.
fn id_of(finding: &DoctorFinding) -> String {
    json!([finding.code, finding.subject.stream(), finding.subject.group(), finding.consumer]).to_string()
}
