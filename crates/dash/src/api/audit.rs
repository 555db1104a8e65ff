//! `/audit`: what visitors did.

use std::sync::Arc;

use axum::extract::State;

use crate::app::{self, Answer, App, LoggedIn};

pub(super) async fn audit(State(app): State<Arc<App>>, LoggedIn(visitor): LoggedIn) -> Answer {
    app::json(&app.audit.last(&*visitor.may_see))
}
