//! `/dlq` and `/delayed`: messages that failed, and messages that wait for their time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use millstream_worker::backend::StreamId;
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::shapes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{self, Answer, App, LoggedIn, Params};
use crate::query;

#[derive(Deserialize)]
pub(super) struct DlqQuery {
    stream: Option<String>,
}

/// Lists dead-letter streams from the last look, with the streams that they belong to.
pub(super) async fn streams(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<DlqQuery>,
) -> Answer {
    app.sampler.touch();
    let look = app.sampler.look();
    let mut found: BTreeMap<&str, (u64, BTreeSet<&str>)> = BTreeMap::new();
    let is_wanted = |name: &str| query.stream.as_deref().is_none_or(|stream| stream == name);
    for stream in
        look.streams.iter().filter(|stream| is_wanted(&stream.name) && (visitor.may_see)(&stream.name))
    {
        for (name, length) in &stream.dead_letter_streams {
            let is_listed = *length > 0 || query.stream.is_some();
            if is_listed && (visitor.may_see)(name) {
                let entry = found.entry(name).or_default();
                entry.0 = *length;
                entry.1.insert(&stream.name);
            }
        }
    }
    let rows = found.into_iter().map(|(name, (length, streams))| {
        let info = look.stream(name).map(|stream| stream.info.clone()).unwrap_or_default();
        let mut json = shapes::dead_letter_stream(name, &info);
        json["length"] = json!(length);
        json["streams"] = json!(streams);
        json
    });
    app::json(&rows.collect())
}

#[derive(Deserialize)]
pub(super) struct DelayedQuery {
    stream: String,
    after: Option<String>,
    count: Option<usize>,
}

pub(super) async fn delayed(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<DelayedQuery>,
) -> Answer {
    let count = query::count(query.count, 100, 500)?;
    let after = query.after.as_deref().map(|after| query::id(after, 0)).transpose()?;
    let first = after.map_or(Some(StreamId::MIN), StreamId::next).unwrap_or(StreamId::MAX);
    let mut entries = visitor.backend.delayed(&query.stream, first, count + 1).await?;
    let more = entries.len() > count;
    entries.truncate(count);
    let view = FieldsView::listed(&app.redaction);
    app::json(&json!({
        "items": entries.iter().map(|entry| shapes::viewed_delayed(entry, &view)).collect::<Value>(),
        "next": entries.last().filter(|_| more).map(|entry| entry.id.to_string()),
    }))
}
