//! Answers from the last look, which never ask the store: `/overview`, `/streams`, `/workers`, `/consumers`.

use axum::http::HeaderName;
use millstream_worker::answers;
use millstream_worker::monitor::{GroupSnapshot, StreamSnapshot};
use millstream_worker::observe::{Look, Page, Row, Totals};
use millstream_worker::operate::shapes::{self, ConsumerJson, StreamSnapshotJson, WorkerJson};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::access::Visitor;
use crate::app::{Answer, App, Asked, Json};
use crate::problem::Problem;
use crate::query::{self, OverviewQuery};
use crate::rows::{RowJson, TotalsJson};

const LOOK: HeaderName = HeaderName::from_static("x-millstream-look");

/// An answer with the number of its look in a header.
type WithLook<T> = ([(HeaderName, String); 1], Json<T>);

answers! {
    /// Rows, and the totals over all rows.
    pub(super) struct Overview(snapshot: &Look, of: &Totals, page: Page) {
        look: u64 = snapshot.number,
        at_ms: u64 = snapshot.at_ms,
        totals: TotalsJson = TotalsJson::new(of),
        rows: Vec<RowJson> = page.rows.iter().map(|row| RowJson::new(row, snapshot.at_ms)).collect(),
        matched: usize = page.matched,
        offset: usize = page.offset,
    }

    /// Streams.
    pub(super) struct Streams(snapshot: &Look, found: Vec<StreamRow>, number: usize, first: usize) {
        look: u64 = snapshot.number,
        at_ms: u64 = snapshot.at_ms,
        rows: Vec<StreamRow> = found,
        matched: usize = number,
        offset: usize = first,
    }

    /// A stream, or a partition.
    pub(super) struct StreamRow(found: &StreamSnapshot, row: Option<&Row>) {
        #[serde(flatten)]
        stream: StreamSnapshotJson = StreamSnapshotJson::new(found),
        dead_letters: u64 = found.dead_letters_length,
        openable: bool = row.is_none_or(|row| row.openable),
        rates: InRate = InRate::new(row),
    }

    /// Entries added per second.
    pub(super) struct InRate(row: Option<&Row>) {
        #[serde(rename = "in")]
        added: Option<f64> = row.and_then(|row| row.rates.added),
    }

    /// A worker and its group.
    pub(super) struct WorkerRow(of_stream: &str, of_group: &str, name: &str, found: WorkerJson) {
        #[serde(flatten)]
        worker: WorkerJson = found,
        stream: String = of_stream.to_owned(),
        group: String = of_group.to_owned(),
        consumer: String = name.to_owned(),
    }

    /// A consumer and its group.
    pub(super) struct ConsumerOfGroup(of_stream: &str, of_group: &str, found: ConsumerJson) {
        #[serde(flatten)]
        consumer: ConsumerJson = found,
        stream: String = of_stream.to_owned(),
        group: String = of_group.to_owned(),
    }
}

pub(super) async fn overview(Asked { app, visitor, query }: Asked<OverviewQuery>) -> Answer<Json<Overview>> {
    app.sampler.touch();
    let look = app.sampler.look();
    let page = look.page(&query.parse()?, &*visitor.may_see);
    Ok(Json(Overview::new(&look, &look.totals_of(&*visitor.may_see), page)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamsQuery {
    /// Only names with these words
    q: Option<String>,
    /// Number of streams to skip
    offset: Option<usize>,
    /// Maximum number of streams
    count: Option<usize>,
}

pub(super) async fn streams(Asked { app, visitor, query }: Asked<StreamsQuery>) -> Answer<Json<Streams>> {
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
    let row_of = |stream: &StreamSnapshot| look.rows_of(&stream.name).first().map(|row| &**row);
    let rows = found.into_iter().skip(offset).take(count);
    let rows = rows.map(|stream| StreamRow::new(stream, row_of(stream))).collect();
    Ok(Json(Streams::new(&look, rows, matched, offset)))
}

pub(super) async fn workers(Asked { app, visitor, .. }: Asked) -> Answer<WithLook<Vec<WorkerRow>>> {
    app.sampler.touch();
    let look = app.sampler.look();
    let workers = groups(&look, &visitor).flat_map(|(stream, group)| {
        group.workers.iter().map(move |worker| {
            WorkerRow::new(stream, &group.name, &worker.heartbeat.consumer, WorkerJson::new(worker))
        })
    });
    Ok(([(LOOK, look.number.to_string())], Json(workers.collect())))
}

pub(super) async fn consumers(Asked { app, visitor, .. }: Asked) -> Answer<WithLook<Vec<ConsumerOfGroup>>> {
    app.sampler.touch();
    let look = app.sampler.look();
    let consumers = groups(&look, &visitor).flat_map(|(stream, group)| {
        let consumers = shapes::consumers(&group.consumers, &group.workers).into_iter();
        consumers.map(move |consumer| ConsumerOfGroup::new(stream, &group.name, consumer))
    });
    Ok(([(LOOK, look.number.to_string())], Json(consumers.collect())))
}

/// Returns the groups that a visitor may see, each with its stream.
fn groups<'l>(look: &'l Look, visitor: &'l Visitor) -> impl Iterator<Item = (&'l str, &'l GroupSnapshot)> {
    let rows = look.rows.iter().filter(|row| look.is_seen(row, &*visitor.may_see));
    rows.filter_map(|row| Some((&*row.key.stream, &row.group.as_ref()?.snapshot)))
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
