//! The routes of the dashboard: one file for each group of them.

mod actions;
mod dead_letters;
mod entries;
mod events;
mod history;
mod jobs;
mod overview;
mod pending;
mod probes;
mod search;
mod server;
mod session;
mod status;
mod stream;
mod tail;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;

use crate::app::{App, Json, NoParams, Params};
use crate::describe::{Api, DELETE, GET, POST};
use crate::problem::Problem;

/// Returns all routes. Every path that is not one of them is a page.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics))
        .nest("/api/v1", api().router)
        .route("/a/{hash}/{*name}", get(asset))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(page)
}

/// Adds the routes of the API.
fn api() -> Api {
    Api::new()
        .route(GET, "/openapi.json", "This description", description)
        .route(GET, "/status", "State of the dashboard and of the login", status::status)
        .route(POST, "/session", "Log in", session::log_in)
        .route(DELETE, "/session", "Log out", session::log_out)
        .route(GET, "/overview", "Totals and rows of the last look", overview::overview)
        .route(GET, "/streams", "Streams of the last look", overview::streams)
        .route(GET, "/workers", "Workers that send heartbeats, from the last look", overview::workers)
        .route(GET, "/consumers", "The consumers of all groups, from the last look", overview::consumers)
        .route(GET, "/history", "The last hour of a group or a stream", history::history)
        .route(GET, "/stream", "A stream and its groups", stream::stream)
        .route(GET, "/group", "A group, its consumers and its pending entries by idle time", stream::group)
        .route(
            GET,
            "/policy",
            "The policy of a stream, or the values in force in a group. Null if there is none",
            stream::policy,
        )
        .route(GET, "/entries", "Entries of a stream", entries::entries)
        .route(POST, "/entries", "Add an entry", actions::entries::add)
        .route(GET, "/entry", "An entry, and what each group did with it", entries::entry)
        .route(GET, "/entry/raw", "The bytes of a value, as an attachment", entries::raw)
        .route(GET, "/search", "Search entries. Events: found, progress, end, problem", search::search)
        .route(GET, "/pending", "Pending entries of a group, with their fields", pending::pending)
        .route(GET, "/dlq", "Dead-letter streams of the last look", dead_letters::streams)
        .route(
            GET,
            "/dlq/letters",
            "Dead letters, newest first, and how many there are by reason and by error",
            dead_letters::dead_letters,
        )
        .route(GET, "/delayed", "Delayed entries", dead_letters::delayed)
        .route(GET, "/doctor", "Problems of the store and what to do about them", server::doctor)
        .route(GET, "/server", "The server of the store", server::server)
        .route(GET, "/slowlog", "The slow log: the commands that took longest recently", server::slow_log)
        .route(GET, "/clients", "Connected clients", server::clients)
        .route(GET, "/events", events::SUMMARY, events::events)
        .route(GET, "/jobs", "Jobs, newest first", jobs::list)
        .route(GET, "/job", "A job", jobs::show)
        .route(DELETE, "/job", "Stop a job", jobs::stop)
        .route(GET, "/audit", "The last 200 actions, newest first", jobs::audit)
        .route(POST, "/entries/delete", "Delete entries", actions::entries::delete)
        .route(POST, "/stream/trim", "Trim a stream", actions::entries::trim_stream)
        .route(POST, "/groups", "Create a group", actions::groups::create)
        .route(POST, "/group/reset", "Move a group", actions::groups::reset)
        .route(POST, "/group/remove", "Remove a group", actions::groups::remove)
        .route(
            POST,
            "/consumer/remove",
            "Remove a consumer; its pending entries move to the consumer in heir",
            actions::groups::remove_consumer,
        )
        .route(POST, "/pending/claim", "Move pending entries to a consumer", actions::pending::claim)
        .route(
            POST,
            "/pending/ack",
            "Acknowledge pending entries without processing them",
            actions::pending::acknowledge,
        )
        .route(POST, "/pending/nack", "Release pending entries", actions::pending::release)
        .route(POST, "/pending/extend", "Reset the idle time of pending entries", actions::pending::extend)
        .route(POST, "/dlq/redrive", "Redrive dead letters", actions::dead_letters::redrive_dead_letters)
        .route(POST, "/dlq/purge", "Delete dead letters", actions::dead_letters::purge_dead_letters)
        .route(POST, "/delayed/cancel", "Cancel delayed entries", actions::entries::cancel_delayed)
        .route(POST, "/delayed/now", "Add delayed entries now", actions::entries::delayed_now)
        .route(POST, "/server/snapshot", "Take a snapshot", actions::server::snapshot)
        .route(POST, "/server/slowlog-reset", "Empty the slow log", actions::server::reset_slow_log)
        .route(POST, "/server/config", "Change a setting of the running server", actions::server::set)
}

/// The way out of a request for a route that does not exist.
const SEE_DESCRIPTION: &str = "/api/v1/openapi.json describes the API";

/// The description of the API, for programs that generate clients. It is made when somebody first asks for it.
async fn description(Params(NoParams {}): Params<NoParams>) -> Json<&'static Value> {
    static DESCRIPTION: OnceLock<Value> = OnceLock::new();
    Json(DESCRIPTION.get_or_init(|| api().description()))
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
