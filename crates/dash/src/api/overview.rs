//! Answers from the last look, which never ask the store: `/overview`, `/streams`, `/workers`, `/consumers`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderName;
use axum::response::IntoResponse;
use millstream_worker::monitor::StreamSnapshot;
use millstream_worker::observe::Look;
use millstream_worker::operate::shapes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Visitor;
use crate::app::{self, Answer, App, LoggedIn, NoParams, Params};
use crate::problem::Problem;
use crate::query::{self, OverviewQuery};
use crate::rows;

const LOOK: HeaderName = HeaderName::from_static("x-millstream-look");

pub(super) async fn overview(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<OverviewQuery>,
) -> Answer {
    app.sampler.touch();
    let look = app.sampler.look();
    let page = look.page(&query.parse()?, &*visitor.may_see);
    app::json(&json!({
        "look": look.number,
        "at_ms": look.at_ms,
        "totals": rows::totals(&look.totals_of(&*visitor.may_see)),
        "rows": page.rows.iter().map(|row| rows::row(row, look.at_ms)).collect::<Value>(),
        "matched": page.matched,
        "offset": page.offset,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamsQuery {
    q: Option<String>,
    offset: Option<usize>,
    count: Option<usize>,
}

pub(super) async fn streams(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(query): Params<StreamsQuery>,
) -> Answer {
    app.sampler.touch();
    let look = app.sampler.look();
    let words = query::words(query.q)?.to_lowercase();
    let is_wanted = |stream: &StreamSnapshot| {
        let name_in_lower_case = stream.name.to_lowercase();
        stream.is_seen(&*visitor.may_see)
            && words.split_whitespace().all(|word| name_in_lower_case.contains(word))
    };
    let found: Vec<_> = look.streams.iter().filter(|stream| is_wanted(stream)).collect();
    let (matched, count) = (found.len(), query::count(query.count, 1000, 10_000)?);
    let offset = query.offset.unwrap_or(0).min(matched);
    let rows = found.into_iter().skip(offset).take(count).map(|stream| {
        let mut json = shapes::stream_snapshot(stream);
        let row = look.rows_of(&stream.name).first();
        json["dead_letters"] = json!(stream.dead_letters_length);
        json["openable"] = json!(row.is_none_or(|row| row.openable));
        json["rates"] = json!({ "in": row.and_then(|row| row.rates.added) });
        json
    });
    let rows: Value = rows.collect();
    app::json(
        &json!({ "look": look.number, "at_ms": look.at_ms, "rows": rows, "matched": matched, "offset": offset }),
    )
}

pub(super) async fn workers(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(NoParams {}): Params<NoParams>,
) -> Answer {
    app.sampler.touch();
    let look = app.sampler.look();
    let answer = app::json(&workers_of(&look, &visitor))?;
    Ok(([(LOOK, look.number.to_string())], answer).into_response())
}

/// Returns all workers that a visitor may see.
fn workers_of(look: &Look, visitor: &Visitor) -> Value {
    let rows = look.rows.iter().filter(|row| look.is_seen(row, &*visitor.may_see));
    let groups = rows.filter_map(|row| Some((&row.key.stream, &row.group.as_ref()?.snapshot)));
    let workers = groups.flat_map(|(stream, group)| {
        group.workers.iter().map(move |worker| {
            let mut json = shapes::worker(worker);
            json["stream"] = json!(stream);
            json["group"] = json!(group.name);
            json["consumer"] = json!(worker.heartbeat.consumer);
            json
        })
    });
    workers.collect()
}

pub(super) async fn consumers(
    State(app): State<Arc<App>>,
    LoggedIn(visitor): LoggedIn,
    Params(NoParams {}): Params<NoParams>,
) -> Answer {
    app.sampler.touch();
    let look = app.sampler.look();
    let answer = app::json(&consumers_of(&look, &visitor))?;
    Ok(([(LOOK, look.number.to_string())], answer).into_response())
}

/// Returns the consumers of all groups that a visitor may see, each with its workers.
fn consumers_of(look: &Look, visitor: &Visitor) -> Value {
    let rows = look.rows.iter().filter(|row| look.is_seen(row, &*visitor.may_see));
    let groups = rows.filter_map(|row| Some((&row.key.stream, &row.group.as_ref()?.snapshot)));
    let mut all = Vec::new();
    for (stream, group) in groups {
        let Value::Array(consumers) = shapes::consumers(&group.consumers, &group.workers) else { continue };
        all.extend(consumers.into_iter().map(|mut json| {
            json["stream"] = json!(stream);
            json["group"] = json!(group.name);
            json
        }));
    }
    all.into()
}

/// Returns the error for a stream that is not there, with names like it.
pub(super) fn no_stream(app: &App, visitor: &Visitor, name: &str) -> Problem {
    let look = app.sampler.look();
    let words = name.to_lowercase();
    let is_near = |stream: &str| {
        let stream = stream.to_lowercase();
        stream.contains(&words) || words.contains(&stream)
    };
    let seen = look.streams.iter().filter(|stream| stream.is_seen(&*visitor.may_see));
    let near: Vec<&String> =
        seen.map(|stream| &stream.name).filter(|stream| is_near(stream)).take(5).collect();
    let problem = Problem::not_found(format!("there is no stream {name}"));
    if near.is_empty() { problem } else { problem.with("near", json!(near)) }
}
