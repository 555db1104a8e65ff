//! `GET /status`: what the page must know before it shows anything.

use std::sync::Arc;

use axum::extract::State;
use millstream_worker::answers;
use millstream_worker::observe::{HistoryStatus, Look, Trouble};
use millstream_worker::operate::wording::millis;
use serde_json::{Map, Value};

use crate::access::Visitor;
use crate::app::{App, Caller, Json, NoParams, Params};
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

answers! {
    /// The state of the dashboard, and of the login.
    pub(super) struct Status(app: &App, visitor: Option<&Visitor>) {
        version: &'static str = env!("CARGO_PKG_VERSION"),
        login: &'static str = app.access.login_kind().as_str(),
        logged_in: bool = visitor.is_some(),
        read_only: bool = app.options.read_only,
        #[serde(flatten)]
        details: Option<Details> = visitor.map(|visitor| Details::new(app, visitor)),
    }

    /// What only those who have logged in may know.
    pub(super) struct Details(app: &App, visitor: &Visitor) [
        let status = app.sampler.status();
        let is_refused = |command: &[&str]| !(visitor.may_run)(command);
    ] {
        user: String = visitor.name.clone(),
        place: String = visitor.backend.location(),
        product: Option<String> = app.facts.product(),
        capabilities: Map<String, Value> = app.facts.capabilities(),
        has_server: Option<bool> = app.facts.has_server(),
        /// Actions that the visitor may not run, such as /stream/trim
        refused: Vec<&'static str> =
            NEEDED.iter().filter(|(_, command)| is_refused(command)).map(|(path, _)| *path).collect(),
        payloads: bool = app.options.payloads,
        redacted: Vec<String> = app.options.redaction.globs().to_vec(),
        interval_ms: u64 = millis(status.interval),
        look: LookJson = LookJson::new(&app.sampler.look(), visitor),
        trouble: Option<TroubleJson> = status.state.trouble.as_ref().map(TroubleJson::new),
        history: HistoryStatusJson = HistoryStatusJson::new(&status.history),
        limits: LimitsJson = LimitsJson::new(),
    }

    /// The last look at the store.
    pub(super) struct LookJson(look: &Look, visitor: &Visitor) [
        let totals = look.totals_of(&*visitor.may_see);
    ] {
        number: u64 = look.number,
        at_ms: u64 = look.at_ms,
        took_ms: u64 = millis(look.took),
        streams: usize = totals.streams,
        groups: usize = totals.groups,
    }

    /// Since when the store does not answer, and why.
    pub(super) struct TroubleJson(trouble: &Trouble) {
        since_ms: u64 = trouble.since_ms,
        error: String = trouble.error.clone(),
    }

    /// What the dashboard remembers of the past.
    pub(super) struct HistoryStatusJson(history: &HistoryStatus) {
        since_ms: Option<u64> = history.since_ms,
        step_ms: u64 = history.step_ms,
        points_max: u64 = history.points_max,
        bytes: usize = history.bytes,
    }

    /// The limits of the dashboard.
    pub(super) struct LimitsJson() {
        connections: usize = options::CONNECTIONS_MAX,
        event_streams: usize = options::EVENT_STREAMS_MAX,
        searches: usize = options::SEARCHES_MAX,
        jobs: usize = options::JOBS_MAX,
        body_bytes: usize = options::BODY_BYTES_MAX,
        answer_bytes: usize = options::ANSWER_BYTES_MAX,
        entries: usize = super::entries::ENTRIES_MAX,
        search_entries: usize = super::search::SCAN_MAX,
        login_failures: usize = options::LOGIN_FAILURES_MAX,
        address_failures: usize = options::ADDRESS_FAILURES_MAX,
    }
}

pub(super) async fn status(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(NoParams {}): Params<NoParams>,
) -> Json<Status> {
    Json(Status::new(&app, caller.visitor.as_ref()))
}
