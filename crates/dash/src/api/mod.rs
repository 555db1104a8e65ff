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
use crate::describe::Api;
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
        .get("/openapi.json", "This description", description)
        .get("/status", "State of the dashboard and of the login", status::status)
        .post("/session", "Log in", session::log_in)
        .delete("/session", "Log out", session::log_out)
        .get("/overview", "Totals and rows of the last look", overview::overview)
        .get("/streams", "Streams of the last look", overview::streams)
        .get("/workers", "Workers that send heartbeats, from the last look", overview::workers)
        .get("/consumers", "The consumers of all groups, from the last look", overview::consumers)
        .get("/history", "The last hour of a group or a stream", history::history)
        .get("/stream", "A stream and its groups", stream::stream)
        .get("/group", "A group, its consumers and its pending entries by idle time", stream::group)
        .get(
            "/policy",
            "The policy of a stream, or the values in force in a group. Null if there is none",
            stream::policy,
        )
        .get("/entries", "Entries of a stream", entries::entries)
        .post("/entries", "Add an entry", actions::entries::add)
        .get("/entry", "An entry, and what each group did with it", entries::entry)
        .get("/entry/raw", "The bytes of a value, as an attachment", entries::raw)
        .get("/search", "Search entries. Events: found, progress, end, problem", search::search)
        .get("/pending", "Pending entries of a group, with their fields", pending::pending)
        .get("/dlq", "Dead-letter streams of the last look", dead_letters::streams)
        .get(
            "/dlq/letters",
            "Dead letters, newest first, and how many there are by reason and by error",
            dead_letters::dead_letters,
        )
        .get("/delayed", "Delayed entries", dead_letters::delayed)
        .get("/doctor", "Problems of the store and what to do about them", server::doctor)
        .get("/server", "The server of the store", server::server)
        .get("/slowlog", "The slow log: the commands that took longest recently", server::slow_log)
        .get("/clients", "Connected clients", server::clients)
        .get("/events", events::SUMMARY, events::events)
        .get("/jobs", "Jobs, newest first", jobs::list)
        .get("/job", "A job", jobs::show)
        .delete("/job", "Stop a job", jobs::stop)
        .get("/audit", "The last 200 actions, newest first", jobs::audit)
        .post("/entries/delete", "Delete entries", actions::entries::delete)
        .post("/stream/trim", "Trim a stream", actions::entries::trim_stream)
        .post("/groups", "Create a group", actions::groups::create)
        .post("/group/reset", "Move a group", actions::groups::reset)
        .post("/group/remove", "Remove a group", actions::groups::remove)
        .post(
            "/consumer/remove",
            "Remove a consumer; its pending entries move to the consumer in heir",
            actions::groups::remove_consumer,
        )
        .post("/pending/claim", "Move pending entries to a consumer", actions::pending::claim)
        .post(
            "/pending/ack",
            "Acknowledge pending entries without processing them",
            actions::pending::acknowledge,
        )
        .post("/pending/nack", "Release pending entries", actions::pending::release)
        .post("/pending/extend", "Reset the idle time of pending entries", actions::pending::extend)
        .post("/dlq/redrive", "Redrive dead letters", actions::dead_letters::redrive_dead_letters)
        .post("/dlq/purge", "Delete dead letters", actions::dead_letters::purge_dead_letters)
        .post("/delayed/cancel", "Cancel delayed entries", actions::entries::cancel_delayed)
        .post("/delayed/now", "Add delayed entries now", actions::entries::delayed_now)
        .post("/server/snapshot", "Take a snapshot", actions::server::snapshot)
        .post("/server/slowlog-reset", "Empty the slow log", actions::server::reset_slow_log)
        .post("/server/config", "Change a setting of the running server", actions::server::set)
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
