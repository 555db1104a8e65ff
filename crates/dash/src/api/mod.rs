//! The routes of the dashboard: one file for each group of them.

mod actions;
mod entries;
mod events;
mod history;
mod jobs;
mod letters;
mod overview;
mod pending;
mod probes;
mod search;
mod server;
mod session;
mod status;
mod stream;
mod tail;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::app::{App, NoParams, Params};
use crate::problem::Problem;

/// Returns all routes. Every path that is not one of them is a page.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics))
        .nest("/api/v1", api())
        .route("/a/{hash}/{*name}", get(asset))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(page)
}

/// The routes of the API. `openapi.json` describes them.
fn api() -> Router<Arc<App>> {
    Router::new()
        .route("/openapi.json", get(description))
        .route("/status", get(status::status))
        .route("/session", post(session::log_in).delete(session::log_out))
        .route("/overview", get(overview::overview))
        .route("/streams", get(overview::streams))
        .route("/workers", get(overview::workers))
        .route("/consumers", get(overview::consumers))
        .route("/history", get(history::history))
        .route("/stream", get(stream::stream))
        .route("/group", get(stream::group))
        .route("/policy", get(stream::policy))
        .route("/entries", get(entries::entries).post(actions::entries::add))
        .route("/entry", get(entries::entry))
        .route("/entry/raw", get(entries::raw))
        .route("/search", get(search::search))
        .route("/pending", get(pending::pending))
        .route("/dlq", get(letters::streams))
        .route("/dlq/letters", get(letters::letters))
        .route("/delayed", get(letters::delayed))
        .route("/doctor", get(server::doctor))
        .route("/server", get(server::server))
        .route("/slowlog", get(server::slow_log))
        .route("/clients", get(server::clients))
        .route("/events", get(events::events))
        .route("/jobs", get(jobs::list))
        .route("/job", get(jobs::show).delete(jobs::stop))
        .route("/audit", get(jobs::audit))
        .route("/entries/delete", post(actions::entries::delete))
        .route("/stream/trim", post(actions::entries::trim_stream))
        .route("/groups", post(actions::groups::create))
        .route("/group/reset", post(actions::groups::reset))
        .route("/group/remove", post(actions::groups::remove))
        .route("/consumer/remove", post(actions::groups::remove_consumer))
        .route("/pending/claim", post(actions::pending::claim))
        .route("/pending/ack", post(actions::pending::acknowledge))
        .route("/pending/nack", post(actions::pending::release))
        .route("/pending/extend", post(actions::pending::extend))
        .route("/dlq/redrive", post(actions::letters::redrive_letters))
        .route("/dlq/purge", post(actions::letters::purge_letters))
        .route("/delayed/cancel", post(actions::entries::cancel_delayed))
        .route("/delayed/now", post(actions::entries::delayed_now))
        .route("/server/snapshot", post(actions::server::snapshot))
        .route("/server/slowlog-reset", post(actions::server::reset_slow_log))
        .route("/server/config", post(actions::server::set))
}

/// The way out of a request for a route that does not exist.
const SEE_DESCRIPTION: &str = "/api/v1/openapi.json describes the API";

/// The description of the API, for programs that generate clients.
async fn description(Params(NoParams {}): Params<NoParams>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("../../openapi.json"))
}

async fn asset(
    State(app): State<Arc<App>>,
    Path((hash, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    app.assets.file(&hash, &name, &headers)
}

async fn page(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path();
    let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
    if path.starts_with("/api/") || path.starts_with("/a/") || is_file {
        return Problem::not_found("there is no such path").way_out(SEE_DESCRIPTION).into_response();
    }
    app.assets.index(path, request.headers())
}

async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path has no such method")
        .way_out(SEE_DESCRIPTION)
}
