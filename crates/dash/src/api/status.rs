//! `GET /status`: what the page must know before it shows anything.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::app::{self, App, Caller};
use crate::options;
use crate::problem::Problem;

pub(super) async fn status(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    let login = app.access.login_kind().as_str();
    let Some(visitor) = caller.visitor else {
        return app::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "login": login,
            "logged_in": false,
            "read_only": app.options.read_only,
        }));
    };
    app::json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "login": login,
        "logged_in": true,
        "user": visitor.name,
        "place": visitor.backend.location(),
        "has_server": app.options.has_server,
        "read_only": app.options.read_only,
        "payloads": app.options.payloads,
        "redacted": app.options.redact,
        "limits": {
            "connections": options::CONNECTIONS_MAX,
            "event_streams": options::EVENT_STREAMS_MAX,
            "searches": options::SEARCHES_MAX,
            "jobs": options::JOBS_MAX,
            "body_bytes": options::BODY_BYTES_MAX,
            "answer_bytes": options::ANSWER_BYTES_MAX,
        },
    }))
}
