//! `/jobs`, `/job` and `/audit`: what runs, and what was done.

use std::sync::Arc;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Visitor;
use crate::app::{Answer, App, Asked, Caller, Json};
use crate::audit::AuditRecord;
use crate::jobs::{Job, JobJson};
use crate::problem::Problem;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobQuery {
    /// Id of the job
    id: String,
}

pub(super) async fn list(Asked { app, visitor, .. }: Asked) -> Answer<Json<Vec<JobJson>>> {
    Ok(Json(app.jobs.list(&*visitor.may_see)))
}

pub(super) async fn show(Asked { app, visitor, query }: Asked<JobQuery>) -> Answer<Json<JobJson>> {
    Ok(Json(find(&app, &visitor, &query.id)?.state()))
}

pub(super) async fn stop(
    caller: Caller,
    Asked { app, visitor, query }: Asked<JobQuery>,
) -> Answer<StatusCode> {
    let job = find(&app, &visitor, &query.id)?;
    if !job.may_be_stopped_by(&visitor) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "denied", "another user has started this job")
            .way_out("ask that user, or one who may run ACL LOG"));
    }
    job.stop.cancel();
    let about = json!({ "job": query.id, "stream": job.stream });
    if let Value::Object(about) = about {
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

pub(super) async fn audit(Asked { app, visitor, .. }: Asked) -> Answer<Json<Vec<AuditRecord>>> {
    Ok(Json(app.audit.last(&visitor)))
}
