//! The actions. One that destroys something needs two requests. The first has `"dry_run": true`; its answer is a plan with a
//! `preview`. The second has this preview. If the store has changed since, it changes nothing and answers 409 with the new
//! plan.
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
use axum::response::IntoResponse;
use millstream_worker::Admin;
use millstream_worker::operate::plan::{Executed, Plan};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::access::Visitor;
use crate::app::{Answer, App, Caller, Json, login_required};
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
pub(super) struct Outcome {
    status: StatusCode,
    json: Value,
    done: Map<String, Value>,
}

impl Outcome {
    pub(super) fn new(json: Value) -> Outcome {
        Outcome { status: StatusCode::OK, json, done: Map::new() }
    }

    /// The action goes on as a job.
    pub(super) fn job(job: &Job) -> Outcome {
        let id = json!(job.id.to_string());
        let outcome = Outcome::new(json!({ "job": id }));
        Outcome { status: StatusCode::ACCEPTED, ..outcome }.with("job", id)
    }

    /// Adds something to the record.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Outcome {
        self.done.insert(name.to_owned(), value.into());
        self
    }
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

    pub(super) fn visitor(&self) -> &Visitor {
        &self.visitor
    }

    pub(super) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Waits for the outcome, records it, and returns the answer.
    ///
    /// The work ends with the request: if the client disconnects, or waits too long. Then the record says so, because the
    /// store may have done it.
    pub(super) async fn run(mut self, work: impl Future<Output = Result<Outcome, Problem>>) -> Answer<Acted> {
        let outcome = work.await;
        if let Ok(outcome) = &outcome {
            self.about.extend(outcome.done.clone());
        }
        self.record(outcome.as_ref().err());
        let outcome = outcome?;
        Ok(Acted((outcome.status, Json(outcome.json)).into_response()))
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

/// The two steps of an action that destroys something, in its body.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
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

/// Returns a plan in JSON: its shape, the number of entries that it affects, and its preview.
pub(super) fn planned<T>(plan: &Plan<T>, shape: impl FnOnce(&T) -> Value, matched: u64) -> Value {
    let mut json = shape(&plan.effect);
    json["matched"] = json!(matched);
    json["dry_run"] = json!(true);
    json["preview"] = json!(plan.digest);
    json
}

/// Returns the answer to a dry run.
pub(super) fn dry_run(plan: Value) -> Outcome {
    let matched = plan["matched"].clone();
    Outcome::new(plan).with("matched", matched).with("dry_run", true)
}

/// Returns the result of an executed plan, or why it was not executed, with the new plan.
pub(super) fn executed<T, R>(
    executed: Executed<T, R>,
    shape: impl FnOnce(&Plan<T>) -> Value,
) -> Result<R, Problem> {
    match executed {
        Executed::Done(result) => Ok(result),
        Executed::Outdated(plan) => Err(outdated(shape(&plan))),
        Executed::InUse(plan) => Err(Problem::new(
            StatusCode::CONFLICT,
            "in_use",
            "consumers are at work in this group; nothing was changed",
        )
        .way_out("stop the consumers first, or repeat the action with \"force\": true")
        .with("plan", shape(&plan))),
    }
}

/// The store has changed since the preview.
pub(super) fn outdated(plan: Value) -> Problem {
    let detail = "the store has changed since the preview; nothing was changed";
    Problem::new(StatusCode::CONFLICT, "preview_outdated", detail)
        .way_out("check the new plan, then repeat the action with its preview")
        .with("plan", plan)
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
        let run = action.run(std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());
        let records = json!(app.audit.last(&visitor));
        assert_eq!(
            (&records[0]["action"], &records[0]["stream"]),
            (&json!("entries/delete"), &json!("orders"))
        );
        assert!(records[0]["error"].as_str().unwrap().contains("may have done it"), "{records}");
    }
}
