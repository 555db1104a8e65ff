//! Actions on dead letters: redrive and purge. Both run as jobs.

use millstream_worker::Admin;
use millstream_worker::operate::dead_letters::{
    DeadLetterSource, Purge, PurgeDeadLetters, RedriveDeadLetters, RedriveEffect,
};
use millstream_worker::operate::operation::OnParts;
use millstream_worker::operate::partitions::parts_of;
use millstream_worker::redrive::{Destination, Redrive};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Action, Steps, operate};
use crate::api::dead_letters::DeadLetterFilter;
use crate::app::{Acting, Answer};
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
    Acting { app, caller, body }: Acting<RedriveBody>,
) -> Answer<Acted<RedriveEffect>> {
    let about = json!({ "stream": body.stream, "dlq": body.dlq, "rate": body.rate, "limit": body.limit });
    let action = Action::new(&app, caller, "dlq/redrive", about)?;
    let operation = async |action: &Action| {
        if body.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(Problem::bad_request("rate must be greater than 0"));
        }
        let filter = body.filter.resolve(action.app())?;
        let to = match body.to {
            To::Group => Destination::Group,
            To::AllGroups => Destination::AllGroups,
        };
        let sources = sources(&**action.backend(), &body.stream, body.dlq.as_deref()).await?;
        let redrive = |(stream, source): (String, DeadLetterSource)| RedriveDeadLetters {
            request: Redrive {
                stream: (source.name != stream).then_some(stream),
                field_map: None,
                filter: filter.clone(),
                to,
                rate: body.rate,
                limit: body.limit,
                dry_run: false,
            },
            dead_letters: source.name,
        };
        Ok(OnParts { name: body.stream.clone(), parts: sources.into_iter().map(redrive).collect() })
    };
    operate(action, &body.steps, false, operation).await
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
    Acting { app, caller, body }: Acting<PurgeBody>,
) -> Answer<Acted<Purge>> {
    let action = Action::new(&app, caller, "dlq/purge", json!({ "stream": body.stream, "dlq": body.dlq }))?;
    let operation = async |action: &Action| {
        let filter = body.filter.resolve(action.app())?;
        let sources = sources(&**action.backend(), &body.stream, body.dlq.as_deref()).await?;
        let purge = |(_, source)| PurgeDeadLetters { source, filter: filter.clone() };
        Ok(OnParts { name: body.stream.clone(), parts: sources.into_iter().map(purge).collect() })
    };
    operate(action, &body.steps, false, operation).await
}

/// Returns the dead-letter streams of a stream or of its partitions, each with the stream that it belongs to. At least
/// one.
async fn sources(
    backend: &dyn Admin,
    stream: &str,
    dlq: Option<&str>,
) -> Result<Vec<(String, DeadLetterSource)>, Problem> {
    let mut found = Vec::new();
    for part in parts_of(backend, stream, None).await? {
        found.extend(DeadLetterSource::find(backend, &part, dlq).await?.map(|source| (part, source)));
    }
    if found.is_empty() {
        return Err(Problem::not_found(format!("stream {stream} has no dead letters")));
    }
    Ok(found)
}
