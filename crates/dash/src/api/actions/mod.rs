//! The actions. One that destroys something needs two requests. The first has `"dry_run": true`; its answer is a plan
//! with a `preview`. The second has this preview. If the store has changed since, it changes nothing and answers 409
//! with the new plan.
//!
//! Every action adds a line to the record of actions: the request and its outcome, without payloads.

pub(super) mod dead_letters;
pub(super) mod entries;
pub(super) mod groups;
pub(super) mod pending;
pub(super) mod server;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use millstream_worker::Admin;
use millstream_worker::operate::operation::{Effect, EffectAnswer, Operate, check};
use millstream_worker::operate::plan::{Executed, Plan};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::access::Visitor;
use crate::app::{Answer, App, Caller, login_required};
use crate::describe::Acted;
use crate::jobs::Job;
use crate::problem::Problem;

/// An action of a visitor, from its request to its record.
pub(super) struct Action {
    app: Arc<App>,
    visitor: Visitor,
    address: IpAddr,
    name: &'static str,
    /// What the record says about the action.
    about: Map<String, Value>,
    started: Instant,
    is_recorded: bool,
}

/// What came of an action: its answer, and what its record says about the outcome.
pub(super) struct Outcome<T> {
    answer: T,
    done: Map<String, Value>,
}

impl<T> Outcome<T> {
    pub(super) fn new(answer: T) -> Outcome<T> {
        Outcome { answer, done: Map::new() }
    }

    /// Adds something to the record.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Outcome<T> {
        self.done.insert(name.to_owned(), value.into());
        self
    }
}

/// Plans an operation, or does what the plan with this preview says. Operations that take long go on as jobs.
///
/// `operation` returns the operation that the body of the request describes.
pub(super) async fn operate<O: Operate>(
    action: Action,
    steps: &Steps,
    is_forced: bool,
    operation: impl AsyncFnOnce(&Action) -> Result<O, Problem>,
) -> Answer<Acted<O::Effect>> {
    let (app, visitor, name) = (Arc::clone(&action.app), action.visitor.clone(), action.name);
    let (backend, stream) = (Arc::clone(action.backend()), action.stream());
    let operation = async {
        let preview = steps.preview()?;
        let operation = operation(&action).await?;
        let Some(preview) = preview else {
            let plan = operation.plan(&backend, None).await?;
            let outcome = Outcome::new(Acted::Effect(EffectAnswer::planned(&plan)));
            return Ok(outcome.with("matched", plan.effect.matched()).with("dry_run", true));
        };
        let plan = match check(&operation, &backend, preview, is_forced).await? {
            Executed::Done(plan) => plan,
            Executed::Outdated(plan) => return Err(outdated(&plan)),
            Executed::InUse(plan) => return Err(in_use(&plan)),
        };
        let (matched, expected) = (plan.effect.matched(), plan.effect.expected());
        if plan.effect.takes_long() {
            let job = app.jobs.start(name.rsplit('/').next().unwrap_or(name), &stream, &visitor)?;
            let id = job.id.to_string();
            tokio::spawn(run_as_job(Arc::clone(&app), job, backend, operation, plan));
            return Ok(Outcome::new(Acted::Job(id.clone())).with("job", id).with("matched", expected));
        }
        match operation.execute(&backend, plan, &mut |_| {}).await? {
            None => Err(outdated(&operation.plan(&backend, None).await?)),
            Some(effect) => {
                let record = effect.record();
                let done = effect.done();
                let outcome = Outcome::new(Acted::Effect(EffectAnswer::done(effect)));
                let outcome = outcome.with("done", done).with("matched", matched);
                Ok(record.into_iter().fold(outcome, |outcome, (name, value)| outcome.with(name, value)))
            }
        }
    }
    .await;
    action.run(async { operation }).await
}

async fn run_as_job<O: Operate>(
    app: Arc<App>,
    job: Arc<Job>,
    backend: Arc<dyn Admin>,
    operation: O,
    plan: Plan<O::Effect>,
) {
    let expected = plan.effect.expected();
    let work = async {
        let report = |effect: &O::Effect| {
            job.progress(json!(EffectAnswer::done(effect.clone())), effect.done(), Some(expected));
        };
        let done = operation.execute(&backend, plan, &mut |effect| report(effect)).await?;
        done.iter().for_each(report);
        Ok(())
    };
    job.run(&app.stopped, work).await;
    app.sampler.wake();
}

impl Action {
    /// Begins an action. `about` is an object that names what it acts on, such as the stream and the group.
    pub(super) fn new(
        app: &Arc<App>,
        caller: Caller,
        name: &'static str,
        about: Value,
    ) -> Result<Action, Problem> {
        let visitor = caller.visitor.ok_or_else(login_required)?;
        let about = match about {
            Value::Object(about) => about,
            _ => Map::new(),
        };
        let started = Instant::now();
        Ok(Action {
            app: Arc::clone(app),
            visitor,
            address: caller.address,
            name,
            about,
            started,
            is_recorded: false,
        })
    }

    pub(super) fn backend(&self) -> &Arc<dyn Admin> {
        &self.visitor.backend
    }

    pub(super) fn app(&self) -> &App {
        &self.app
    }

    /// Returns the stream that the action is about. Empty if there is none.
    fn stream(&self) -> String {
        self.about.get("stream").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Waits for the outcome, records it, and returns the answer.
    ///
    /// The work ends with the request: if the client disconnects, or waits too long. Then the record says so, because
    /// the store may have done it.
    pub(super) async fn run<T>(
        mut self,
        work: impl Future<Output = Result<Outcome<T>, Problem>>,
    ) -> Answer<T> {
        let outcome = work.await;
        if let Ok(outcome) = &outcome {
            self.about.extend(outcome.done.clone());
        }
        self.record(outcome.as_ref().err());
        outcome.map(|outcome| outcome.answer)
    }

    fn record(&mut self, problem: Option<&Problem>) {
        let about = std::mem::take(&mut self.about);
        let took = self.started.elapsed();
        self.app.audit.action(self.address, &self.visitor.name, self.name, about, took, problem);
        self.is_recorded = true;
        // Viewers should see at once what the action changed.
        self.app.sampler.wake();
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        if !self.is_recorded {
            let detail = "the request ended before the answer of the store, which may have done it";
            self.record(Some(&Problem::new(StatusCode::GATEWAY_TIMEOUT, "interrupted", detail)));
        }
    }
}

/// Send `dry_run` first, then the `preview` of the plan.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Steps {
    #[serde(default)]
    dry_run: bool,
    preview: Option<String>,
}

impl Steps {
    /// Returns the preview that the action must carry out. `None` if only a plan is wanted.
    pub(super) fn preview(&self) -> Result<Option<&str>, Problem> {
        match (self.dry_run, &self.preview) {
            (true, _) => Ok(None),
            (false, Some(preview)) => Ok(Some(preview)),
            (false, None) => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "preview_required",
                "this action needs the preview of its plan",
            )
            .way_out("send it with \"dry_run\": true first, then with the \"preview\" of that answer")),
        }
    }
}

/// The store has changed since the preview.
fn outdated<E: Effect>(plan: &Plan<E>) -> Problem {
    let detail = "the store has changed since the preview; nothing was changed";
    Problem::new(StatusCode::CONFLICT, "preview_outdated", detail)
        .way_out("check the new plan, then repeat the action with its preview")
        .with("plan", json!(EffectAnswer::planned(plan)))
}

fn in_use<E: Effect>(plan: &Plan<E>) -> Problem {
    let detail = "consumers are at work in this group; nothing was changed";
    Problem::new(StatusCode::CONFLICT, "in_use", detail)
        .way_out("stop the consumers first, or repeat the action with \"force\": true")
        .with("plan", json!(EffectAnswer::planned(plan)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_worker::observe::{Sampler, SamplerOptions};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::access::{OneStore, tests::visitor};
    use crate::options::Options;
    use crate::session::Cookie;

    #[tokio::test]
    async fn an_action_without_an_answer_is_recorded() {
        let visitor = visitor("alice").await;
        let sampler = Sampler::start(Arc::clone(&visitor.backend), SamplerOptions::default());
        let access = Arc::new(OneStore::open(Arc::clone(&visitor.backend)));
        let app = App::start(Options::default(), access, sampler, CancellationToken::new());
        let caller = Caller {
            visitor: Some(visitor.clone()),
            address: IpAddr::from([127, 0, 0, 1]),
            cookie: Cookie::new("80", false),
            token: None,
        };
        let action = Action::new(&app, caller, "entries/delete", json!({ "stream": "orders" })).unwrap();
        let run = action.run(std::future::pending::<Result<Outcome<()>, Problem>>());
        assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());
        let records = json!(app.audit.last(&visitor));
        assert_eq!(
            (&records[0]["action"], &records[0]["stream"]),
            (&json!("entries/delete"), &json!("orders"))
        );
        assert!(records[0]["error"].as_str().unwrap().contains("may have done it"), "{records}");
    }
}
