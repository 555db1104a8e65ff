//! `GET /status`: what the page must know before it shows anything.

use std::sync::Arc;

use axum::extract::State;
use millstream_worker::operate::wording::millis;
use serde_json::json;

use super::events;
use crate::app::{self, Answer, App, Caller, NoParams, Params};
use crate::options;

/// Actions, each with the command that it runs. Pages do not offer an action if the visitor may not run its command.
const NEEDED: [(&str, &[&str]); 16] = [
    ("/entries", &["XADD"]),
    ("/entries/delete", &["XDEL"]),
    ("/stream/trim", &["XTRIM"]),
    ("/groups", &["XGROUP", "CREATE"]),
    ("/group/reset", &["XGROUP", "SETID"]),
    ("/group/remove", &["XGROUP", "DESTROY"]),
    ("/consumer/remove", &["XGROUP", "DELCONSUMER"]),
    ("/pending/claim", &["XCLAIM"]),
    ("/pending/ack", &["XACK"]),
    ("/dlq/redrive", &["XDEL"]),
    ("/dlq/purge", &["XDEL"]),
    ("/delayed/cancel", &["XDELAY"]),
    ("/delayed/now", &["XDELAY"]),
    ("/server/snapshot", &["BGSAVE"]),
    ("/server/slowlog-reset", &["SLOWLOG", "RESET"]),
    ("/server/config", &["CONFIG", "SET"]),
];

pub(super) async fn status(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(NoParams {}): Params<NoParams>,
) -> Answer {
    let login = app.access.login_kind().as_str();
    let Some(visitor) = caller.visitor else {
        return app::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "login": login,
            "logged_in": false,
            "read_only": app.options.read_only,
        }));
    };
    let (look, status) = (app.sampler.look(), app.sampler.status());
    let totals = look.totals_of(&*visitor.may_see);
    let is_refused = |command: &[&str]| !(visitor.may_run)(command);
    let refused: Vec<&str> =
        NEEDED.iter().filter(|(_, command)| is_refused(command)).map(|(path, _)| *path).collect();
    app::json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "login": login,
        "logged_in": true,
        "user": visitor.name,
        "place": visitor.backend.location(),
        "product": app.facts.product(),
        "capabilities": app.facts.capabilities(),
        "has_server": app.facts.has_server(),
        "read_only": app.options.read_only,
        "refused": refused,
        "payloads": app.options.payloads,
        "redacted": app.options.redaction.globs(),
        "interval_ms": millis(status.interval),
        "look": {
            "number": look.number,
            "at_ms": look.at_ms,
            "took_ms": millis(look.took),
            "streams": totals.streams,
            "groups": totals.groups,
        },
        "trouble": events::trouble(&status.state),
        "history": {
            "since_ms": status.history.since_ms,
            "step_ms": status.history.step_ms,
            "points_max": status.history.points_max,
            "bytes": status.history.bytes,
        },
        "limits": {
            "connections": options::CONNECTIONS_MAX,
            "event_streams": options::EVENT_STREAMS_MAX,
            "searches": options::SEARCHES_MAX,
            "jobs": options::JOBS_MAX,
            "body_bytes": options::BODY_BYTES_MAX,
            "answer_bytes": options::ANSWER_BYTES_MAX,
            "entries": super::entries::ENTRIES_MAX,
            "search_entries": super::search::SCAN_MAX,
            "login_failures": options::LOGIN_FAILURES_MAX,
            "address_failures": options::ADDRESS_FAILURES_MAX,
        },
    }))
}
