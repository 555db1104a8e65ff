//! `/jobs`, `/job` and `/audit`: what runs, and what was done.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::access::Visitor;
use crate::app::{self, Answer, App, Caller, LoggedIn, NoParams, Params};
use crate::jobs::Job;
use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobQuery {
    id: String,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(NoParams {}): Params<NoParams>,
) -> Answer {
    app::json(&app.jobs.list(&*visitor.may_see))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<JobQuery>,
) -> Answer {
    app::json(&find(&app, &visitor, &query.id)?.to_json())
}

pub(super) async fn stop(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    caller: Caller,
    Params(query): Params<JobQuery>,
) -> Result<StatusCode, Problem> {
    let job = find(&app, &visitor, &query.id)?;
    if !job.may_be_stopped_by(&visitor) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "denied", "another user has started this job")
            .way_out("ask that user, or one who may run ACL LOG"));
    }
    job.stop.cancel();
    let about = json!({ "job": query.id, "stream": job.stream });
    if let serde_json::Value::Object(about) = about {
        app.audit.action(caller.address, &visitor.name, "job/stop", about, std::time::Duration::ZERO, None);
    }
    Ok(StatusCode::NO_CONTENT)
}

fn find(app: &App, visitor: &Visitor, id: &str) -> Result<Arc<Job>, Problem> {
    let job = id.parse().ok().and_then(|id| app.jobs.find(id)).filter(|job| (visitor.may_see)(&job.stream));
    job.ok_or_else(|| {
        Problem::not_found("there is no such job")
            .way_out("list the jobs: the dashboard forgets old ones, and all when it stops")
    })
}

pub(super) async fn audit(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(NoParams {}): Params<NoParams>,
) -> Answer {
    app::json(&app.audit.last(&visitor))
}
