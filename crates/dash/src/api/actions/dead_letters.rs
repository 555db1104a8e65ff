//! Actions on dead letters: redrive and purge. Both run as jobs.

use std::sync::Arc;

use axum::extract::State;
use millstream_worker::Admin;
use millstream_worker::operate::dead_letters::{
    DeadLetterSource, Purge, check_purge, check_redrive, plan_purge, plan_redrive, purge,
};
use millstream_worker::operate::plan::Plan;
use millstream_worker::operate::shapes;
use millstream_worker::redrive::{Destination, Progress, Redrive, redrive};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Action, Outcome, Steps, dry_run, executed, planned};
use crate::api::dead_letters::DeadLetterFilter;
use crate::app::{Answer, App, Caller, JsonBody};
use crate::describe::Acted;
use crate::problem::Problem;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RedriveBody {
    stream: String,
    dlq: Option<String>,
    #[serde(default)]
    filter: DeadLetterFilter,
    #[serde(default)]
    to: To,
    rate: Option<f64>,
    limit: Option<u64>,
    #[serde(flatten)]
    steps: Steps,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum To {
    #[default]
    Group,
    AllGroups,
}

pub(in crate::api) async fn redrive_dead_letters(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<RedriveBody>,
) -> Answer<Acted> {
    let about = json!({ "stream": body.stream, "dlq": body.dlq, "rate": body.rate, "limit": body.limit });
    let action = Action::new(&app, caller, "dlq/redrive", about)?;
    let (app, backend) = (Arc::clone(action.app()), Arc::clone(action.backend()));
    let visitor = action.visitor().clone();
    action
        .run(async move {
            if body.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
                return Err(Problem::bad_request("rate must be greater than 0"));
            }
            let source = find(&*backend, &body.stream, body.dlq.as_deref()).await?;
            let request = Redrive {
                stream: (source.name != body.stream).then(|| body.stream.clone()),
                field_map: None,
                filter: body.filter.resolve(&app)?,
                to: match body.to {
                    To::Group => Destination::Group,
                    To::AllGroups => Destination::AllGroups,
                },
                rate: body.rate,
                limit: body.limit,
                dry_run: false,
            };
            let shape = |plan: &Plan<Progress>| {
                planned(
                    plan,
                    |progress| shapes::redrive_progress(&source.name, progress, true),
                    plan.effect.matched,
                )
            };
            let Some(preview) = body.steps.preview()? else {
                return Ok(dry_run(shape(&plan_redrive(&*backend, &source.name, &request).await?)));
            };
            let request = executed(check_redrive(&*backend, &source.name, &request, preview).await?, shape)?;
            let expected = plan_redrive(&*backend, &source.name, &request).await?.effect.redrivable();
            let job = app.jobs.start("redrive", &body.stream, &visitor)?;
            let (running, name) = (Arc::clone(&job), source.name.clone());
            tokio::spawn(async move {
                let work = async {
                    let report = |progress: &Progress| {
                        let json = shapes::redrive_progress(&name, progress, false);
                        running.progress(json, progress.redriven, Some(expected));
                    };
                    redrive(&*backend, &name, &request, report).await.map(|progress| report(&progress))
                };
                running.run(&app.stopped, work).await;
                app.sampler.wake();
            });
            Ok(Outcome::job(&job).with("matched", expected))
        })
        .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct PurgeBody {
    stream: String,
    dlq: Option<String>,
    #[serde(default)]
    filter: DeadLetterFilter,
    #[serde(flatten)]
    steps: Steps,
}

pub(in crate::api) async fn purge_dead_letters(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<PurgeBody>,
) -> Answer<Acted> {
    let action = Action::new(&app, caller, "dlq/purge", json!({ "stream": body.stream, "dlq": body.dlq }))?;
    let (app, backend) = (Arc::clone(action.app()), Arc::clone(action.backend()));
    let visitor = action.visitor().clone();
    action
        .run(async move {
            let source = find(&*backend, &body.stream, body.dlq.as_deref()).await?;
            let filter = body.filter.resolve(&app)?;
            let Some(preview) = body.steps.preview()? else {
                return Ok(dry_run(plan_of_purge(&plan_purge(&*backend, &source, &filter).await?)));
            };
            let plan = executed(check_purge(&*backend, &source, &filter, preview).await?, plan_of_purge)?;
            let matched = plan.ids.len() as u64;
            let job = app.jobs.start("purge", &body.stream, &visitor)?;
            let running = Arc::clone(&job);
            tokio::spawn(async move {
                let work = async {
                    let report = |deleted| {
                        let json = shapes::purge(&plan.dead_letters, matched, deleted, false);
                        running.progress(json, deleted, Some(matched));
                    };
                    report(0);
                    purge(&*backend, &plan, report).await.map(drop)
                };
                running.run(&app.stopped, work).await;
                app.sampler.wake();
            });
            Ok(Outcome::job(&job).with("matched", matched))
        })
        .await
}

fn plan_of_purge(plan: &Plan<Purge>) -> Value {
    let matched = plan.effect.ids.len() as u64;
    planned(plan, |purge| shapes::purge(&purge.dead_letters, matched, 0, true), matched)
}

async fn find(backend: &dyn Admin, stream: &str, dlq: Option<&str>) -> Result<DeadLetterSource, Problem> {
    let found = DeadLetterSource::find(backend, stream, dlq).await?;
    found.ok_or_else(|| Problem::not_found(format!("stream {stream} has no dead letters")))
}
