//! The routes of the dashboard: one file for each group of them.

mod probes;
mod session;
mod status;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::app::App;
use crate::problem::Problem;

/// Returns all routes. Every path that is not one of them is a page.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/api/v1/status", get(status::status))
        .route("/api/v1/session", axum::routing::post(session::log_in).delete(session::log_out))
        .route("/a/{hash}/{*name}", get(asset))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(page)
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
        return Problem::not_found("there is no such path").into_response();
    }
    app.assets.index(path, request.headers())
}

async fn method_not_allowed() -> Problem {
    use axum::http::StatusCode;
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path has no such method")
}
