//! The server of the store: `/server`, `/slowlog`, `/clients`, `/doctor`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use millstream_worker::backend::ServerInfo;
use millstream_worker::operate::doctor::{
    DoctorFinding, FindingsQuery, SHOWN_DEFAULT, SHOWN_MAX, ServerFacts, diagnose,
};
use millstream_worker::operate::shapes;
use millstream_worker::operate::wording::millis;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{self, Answer, App, LoggedIn, NoParams, Params};
use crate::facts::{self, COMMAND_PREFIX};
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

pub(super) async fn server(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(NoParams {}): Params<NoParams>,
) -> Answer {
    let Some(info) = visitor.backend.server(&SETTINGS).await? else {
        return app::json(
            &json!({ "facts": null, "settings": null, "summary": null, "series": null, "commands": [], "denied": null }),
        );
    };
    let may_see_facts = !info.facts.is_empty();
    let shown_facts = info.facts.iter().filter(|(name, _)| !name.starts_with(COMMAND_PREFIX));
    app::json(&json!({
        "facts": shown_facts.collect::<BTreeMap<_, _>>(),
        "settings": info.settings.iter().collect::<BTreeMap<_, _>>(),
        "summary": summary(&app, &info),
        "series": may_see_facts.then(|| app.facts.series()),
        "commands": commands(&app, &info),
        "denied": info.denied,
    }))
}

fn summary(app: &App, info: &ServerInfo) -> Value {
    let text = |name: &str| info.facts.get(name);
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
    let (sync_avg_ms, syncs_per_s) = if info.facts.is_empty() { (None, None) } else { app.facts.syncs() };
    json!({
        "product": ServerFacts::new(Some(info.clone())).version(),
        "memory_bytes": number("used_memory"),
        "memory_peak_bytes": number("used_memory_peak"),
        "memory_limit_bytes": number("maxmemory").filter(|limit| *limit > 0),
        "clients": number("connected_clients"),
        "blocked": number("blocked_clients"),
        "ops_per_s": number("instantaneous_ops_per_sec"),
        "uptime_s": number("uptime_in_seconds"),
        "log_bytes": number("log_bytes").or(number("aof_current_size")),
        "last_snapshot_ms": number("rdb_last_save_time").filter(|at| *at > 0).map(|at| at.saturating_mul(1000)),
        "last_snapshot_ok": text("rdb_last_bgsave_status").map(|status| status == "ok"),
        "appendfsync": info.settings.get("appendfsync"),
        "sync_avg_ms": sync_avg_ms,
        "syncs_per_s": syncs_per_s,
    })
}

/// Returns the statistics of commands, the most frequent first.
fn commands(app: &App, info: &ServerInfo) -> Value {
    let mut commands: Vec<_> = facts::commands(info).collect();
    commands.sort_by(|(a, of_a), (b, of_b)| of_b.calls.cmp(&of_a.calls).then_with(|| a.cmp(b)));
    let shown = commands.into_iter().map(|(name, figures)| {
        json!({
            "name": name,
            "calls": figures.calls,
            "per_s": app.facts.calls_per_s(name),
            "avg_us": figures.average_us,
            "errors": figures.errors,
        })
    });
    shown.collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountQuery {
    count: Option<usize>,
}

pub(super) async fn slow_log(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<CountQuery>,
) -> Answer {
    let count = query::count(query.count, 100, 1000)?;
    let slow = visitor.backend.slow_log(count).await?;
    let rows = slow.iter().map(|slow| {
        json!({
            "id": slow.id,
            "at_ms": slow.at_ms,
            "took_us": u64::try_from(slow.took.as_micros()).unwrap_or(u64::MAX),
            "client": slow.client,
            "client_name": slow.client_name,
            "node": slow.node,
            "command": app.redaction.mask_arguments(&slow.command),
        })
    });
    app::json(&rows.collect())
}

pub(super) async fn clients(LoggedIn(visitor): LoggedIn, Params(NoParams {}): Params<NoParams>) -> Answer {
    let clients = visitor.backend.clients().await?;
    let rows = clients.iter().map(|client| {
        json!({
            "id": client.id,
            "address": client.address,
            "name": client.name,
            "user": client.user,
            "database": client.database,
            "age_ms": millis(client.age),
            "idle_ms": millis(client.idle),
            "blocked": client.is_blocked,
            "flags": client.flags,
            "command": client.last_command,
            "memory_bytes": client.memory_bytes,
            "library": client.library,
            "node": client.node,
        })
    });
    app::json(&rows.collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DoctorQuery {
    q: Option<String>,
    code: Option<String>,
    offset: Option<usize>,
    count: Option<usize>,
}

pub(super) async fn doctor(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<DoctorQuery>,
) -> Answer {
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
    let mut json = shapes::diagnosis(&diagnosis, &kinds, &app.options.command_line);
    let since = app.first_seen.update(&visitor.name, diagnosis.findings.iter().map(id_of));
    if let Some(findings) = json["findings"].as_array_mut() {
        for (shown, finding) in findings.iter_mut().zip(kinds.iter().flat_map(|kind| &kind.shown)) {
            let id = id_of(finding);
            shown["since_ms"] = json!(since.get(&id));
            shown["id"] = json!(id);
            shown["consumer"] = json!(finding.consumer);
        }
    }
    json["look"] = json!(look.number);
    json["at_ms"] = json!(look.at_ms);
    app::json(&json)
}

/// Identifies a finding while it lasts.
fn id_of(finding: &DoctorFinding) -> String {
    json!([finding.code, finding.subject.stream(), finding.subject.group(), finding.consumer]).to_string()
}
