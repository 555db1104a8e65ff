//! Actions on pending entries: claim, acknowledge, release, extend; of given ids, or of all that match a filter.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use millstream_worker::Admin;
use millstream_worker::backend::{PendingRow, StreamId};
use millstream_worker::operate::pending::{
    Changed, PendingChange, PendingQuery, change, plan, rows_of, select,
};
use millstream_worker::operate::shapes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::entries::some_ids;
use super::{Action, Outcome, Steps, dry_run, outdated};
use crate::app::{Answer, App, Caller, JsonBody};
use crate::describe::Acted;
use crate::jobs::Job;
use crate::problem::Problem;

/// Maximum number of pending entries of one action.
const ROWS_MAX: usize = 100_000;
/// An action on more rows runs as a job. Each step of the job changes at most this many.
const STEP: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Body {
    stream: String,
    group: String,
    ids: Option<Vec<String>>,
    filter: Option<FilterBody>,
    consumer: Option<String>,
    #[serde(flatten)]
    steps: Steps,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct FilterBody {
    idle_ms_min: Option<u64>,
    consumer: Option<String>,
    deliveries_min: Option<u64>,
    stuck: Option<bool>,
}

pub(in crate::api) async fn claim(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Body>,
) -> Answer<Acted> {
    let consumer = body.consumer.clone().filter(|name| !name.is_empty());
    let consumer = consumer.ok_or_else(|| Problem::bad_request("consumer is missing"))?;
    run(&app, caller, body, "pending_claim", PendingChange::Claim { consumer }).await
}

pub(in crate::api) async fn acknowledge(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Body>,
) -> Answer<Acted> {
    run(&app, caller, body, "pending_ack", PendingChange::Acknowledge).await
}

pub(in crate::api) async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Body>,
) -> Answer<Acted> {
    run(&app, caller, body, "pending_nack", PendingChange::Release).await
}

pub(in crate::api) async fn extend(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<Body>,
) -> Answer<Acted> {
    run(&app, caller, body, "pending_extend", PendingChange::Extend).await
}

async fn run(
    app: &Arc<App>,
    caller: Caller,
    body: Body,
    kind: &'static str,
    wanted: PendingChange,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "group": body.group, "consumer": body.consumer });
    let action = Action::new(app, caller, kind, about)?;
    let (backend, visitor) = (Arc::clone(action.backend()), action.visitor().clone());
    action
        .run(async {
            let (rows, exact) = body.rows(&*backend).await?;
            let plan = plan(&body.stream, &body.group, &wanted, rows);
            let count = plan.effect.len();
            let json = json!({
                "stream": body.stream,
                "group": body.group,
                "asked": count,
                "matched": count,
                "exact": exact,
                "dry_run": true,
                "preview": plan.digest,
            });
            match body.steps.preview()? {
                None => return Ok(dry_run(json)),
                // With ids, the store may have changed: the answer counts in `changed_hands` what had moved.
                Some(preview) if body.ids.is_none() && preview != plan.digest => return Err(outdated(json)),
                Some(_) => {}
            }
            if count > STEP {
                let job = app.jobs.start(kind, &body.stream, &visitor)?;
                let (app, stream, group) = (Arc::clone(app), body.stream.clone(), body.group.clone());
                let running = Arc::clone(&job);
                tokio::spawn(async move {
                    let work = in_steps(&running, &*backend, &stream, &group, &wanted, &plan.effect);
                    running.run(&app.stopped, work).await;
                    app.sampler.wake();
                });
                return Ok(Outcome::job(&job).with("matched", count));
            }
            let changed = change(&*backend, &body.stream, &body.group, &wanted, &plan.effect).await?;
            Ok(Outcome::new(shapes::changed(&changed)).with("done", changed.done).with("matched", count))
        })
        .await
}

/// Changes many rows step by step, so that the job can be stopped in between.
async fn in_steps(
    job: &Job,
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    wanted: &PendingChange,
    rows: &[PendingRow],
) -> Result<(), millstream_worker::Error> {
    let mut total = Changed::default();
    for step in rows.chunks(STEP) {
        let changed = change(backend, stream, group, wanted, step).await?;
        total.asked = total.asked.saturating_add(changed.asked);
        total.done = total.done.saturating_add(changed.done);
        total.changed_hands = total.changed_hands.saturating_add(changed.changed_hands);
        total.skipped = total.skipped.saturating_add(changed.skipped);
        job.progress(shapes::changed(&total), total.asked, Some(rows.len() as u64));
    }
    Ok(())
}

impl Body {
    /// Returns the rows that the body selects, and whether there are no others.
    async fn rows(&self, backend: &dyn Admin) -> Result<(Vec<PendingRow>, bool), Problem> {
        match (&self.ids, &self.filter) {
            (Some(ids), None) => {
                let ids = some_ids(ids)?;
                Ok((rows_of(backend, &self.stream, &self.group, &ids).await?, true))
            }
            (None, Some(filter)) => {
                let query = PendingQuery {
                    consumer: filter.consumer.clone(),
                    idle_min: filter.idle_ms_min.filter(|ms| *ms > 0).map(Duration::from_millis),
                    deliveries_min: filter.deliveries_min,
                    stuck: filter.stuck.unwrap_or_default(),
                };
                Ok(select(backend, &self.stream, &self.group, &query, StreamId::MIN, ROWS_MAX).await?)
            }
            _ => Err(Problem::bad_request("expected exactly one of ids and filter")),
        }
    }
}
