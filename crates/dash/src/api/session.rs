//! `POST /session` and `DELETE /session`: log in and out.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use millstream_worker::answers;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::app::{Answer, App, Caller, Json, JsonBody, NoParams, Params};
use crate::guard;
use crate::problem::Problem;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    user: Option<String>,
    password: String,
}

answers! {
    /// Who has logged in.
    pub(super) struct User(name: String) {
        user: String = name,
    }
}

pub(super) async fn log_in(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(login): JsonBody<Login>,
) -> Answer<([(HeaderName, String); 1], Json<User>)> {
    let now = Instant::now();
    let visitor = guard::log_in(&app, login.user.as_deref(), &login.password, caller.address, now).await;
    let visitor = visitor.inspect_err(|problem| app.audit.failed_login(caller.address, problem))?;
    let name = visitor.name.clone();
    app.audit.session(caller.address, &name, "login");
    let token = app.sessions.start(visitor, now).ok_or_else(|| {
        let detail = "the operating system gives no random bits for a session";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no_random_bits", detail)
    })?;
    Ok(([(header::SET_COOKIE, caller.cookie.set(&token))], Json(User::new(name))))
}

pub(super) async fn log_out(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(NoParams {}): Params<NoParams>,
) -> (StatusCode, [(HeaderName, String); 1]) {
    if let Some(token) = &caller.token {
        if let Some(visitor) = &caller.visitor {
            app.audit.session(caller.address, &visitor.name, "logout");
        }
        app.sessions.end(token);
    }
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, caller.cookie.unset())])
}
