//! `/livez`, `/readyz` and `/metrics`, for programs that watch. The probes need no login and reveal only whether the
//! store answers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millstream_worker::metrics::{CONTENT_TYPE, gzip, observed_text};
use millstream_worker::monitor::Limits;

use crate::app::{App, LoggedIn};
use crate::assets::accepts_gzip;

/// The process answers.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// The store answers.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let state = app.sampler.state();
    if state.trouble.is_some() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response();
    }
    if state.number == 0 {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store has not answered yet\n").into_response();
    }
    "ok\n".into_response()
}

/// The last look as text for Prometheus, and the figures of the server itself. Never asks the store.
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    headers: HeaderMap,
) -> Response {
    app.sampler.touch();
    let more = app.options.more_series;
    let mut text = observed_text(&app.sampler, &*visitor.may_see, &Limits::default(), more);
    text.push_str(&(visitor.figures)());
    let head = [(header::CONTENT_TYPE, CONTENT_TYPE), (header::VARY, "Accept-Encoding")];
    if accepts_gzip(&headers) {
        return (head, [(header::CONTENT_ENCODING, "gzip")], gzip(text.as_bytes())).into_response();
    }
    (head, text).into_response()
}
