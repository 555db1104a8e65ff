//! `/events`: one connection for each visible tab, with the state of what its page shows, and then what changes.
//!
//! A page that connects again gets the whole state of what it watches, in the same events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use millstream_worker::observe::{Query, Row, RowKey, SamplerState};
use millstream_worker::operate::wording::millis;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::status::TroubleJson;
use super::stream::{self, GroupDetails, GroupQuery, StreamQuery};
use super::tail::{self, TailEvent};
use crate::access::Visitor;
use crate::app::{Answer, App, Asked, Caller, NoParams, while_admitted};
use crate::options::EVENT_STREAMS_MAX;
use crate::problem::Problem;
use crate::query::OverviewQuery;
use crate::rows::{self, RowJson, TotalsJson};
use crate::sse::{self, EventStream, Events, Gone};

/// What the route sends.
pub(super) const SUMMARY: &str = "Live state. Events: hello, totals, rows, stream, group, entries, activity, job, trouble, \
    resync, problem";
/// Time between two comments on a quiet connection.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum age of the details of a group. They need a scan, so they can be older than its row.
const DETAILS_AGE_MAX: Duration = Duration::from_secs(10);
/// The interval of looks that a page can ask for.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Such as overview?sort=lag, stream?stream=orders, group?stream=orders&group=billing, tail?stream=orders, or jobs;
    /// percent-encoded
    watch: String,
    /// Number of the last look that the client has
    since: Option<u64>,
    /// Time between two looks at the store
    interval_ms: Option<u64>,
}

/// What a page watches.
enum Watch {
    Overview(Query),
    Stream(String),
    Group(String, String),
    Tail(tail::Tail),
    Jobs,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TailQuery {
    stream: String,
    group: Option<String>,
    contains: Option<String>,
}

impl Watch {
    /// Parses a text such as `group?stream=orders&group=billing`.
    fn parse(text: &str) -> Result<Watch, Problem> {
        let (kind, query) = text.split_once('?').unwrap_or((text, ""));
        match kind {
            "overview" => Ok(Watch::Overview(parse_query::<OverviewQuery>(query)?.parse()?)),
            "stream" => Ok(Watch::Stream(parse_query::<StreamQuery>(query)?.stream)),
            "group" => {
                let GroupQuery { stream, group } = parse_query(query)?;
                Ok(Watch::Group(stream, group))
            }
            "tail" => {
                let TailQuery { stream, group, contains } = parse_query(query)?;
                Ok(Watch::Tail(tail::Tail { stream, group, contains }))
            }
            "jobs" => parse_query(query).map(|NoParams {}| Watch::Jobs),
            _ => {
                Err(Problem::bad_request("invalid watch")
                    .way_out("use overview, stream, group, tail or jobs"))
            }
        }
    }
}

fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let invalid = |error: String| Problem::bad_request(format!("invalid watch: {error}"));
    let uri = format!("/?{query}").parse::<Uri>().map_err(|error| invalid(error.to_string()))?;
    let parsed = axum::extract::Query::<T>::try_from_uri(&uri);
    parsed.map(|query| query.0).map_err(|error| invalid(error.body_text()))
}

pub(super) async fn events(
    caller: Caller,
    Asked { app, visitor, query }: Asked<EventsQuery>,
) -> Answer<EventStream> {
    let watch = Watch::parse(&query.watch)?;
    let slot = Arc::clone(&app.event_slots).try_acquire_owned().map_err(|_| {
        Problem::too_many(
            "too_many_events",
            format!("{EVENT_STREAMS_MAX} connections already receive events"),
        )
        .way_out("close other tabs of the dashboard")
    })?;
    let may_receive = while_admitted(&app, &visitor, &caller);
    Ok(sse::answer(slot, may_receive, |events| run(app, visitor, watch, query, events)))
}

/// Sends events until the client, the session or the dashboard ends.
async fn run(
    app: Arc<App>,
    visitor: Visitor,
    watch: Watch,
    query: EventsQuery,
    events: Events,
) -> Result<(), Gone> {
    let mut viewer = app.sampler.subscribe();
    if let Some(ms) = query.interval_ms {
        viewer.ask_interval(Duration::from_millis(ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end())));
    }
    let status = app.sampler.status();
    let hello = json!({
        "version": env!("CARGO_PKG_VERSION"), "look": status.state.number, "interval_ms": millis(status.interval),
    });
    events.send("hello", None, &hello).await?;
    if query.since.is_some_and(|since| since > status.state.number) {
        // The client counts the looks of another process.
        events.send("resync", None, &json!({})).await?;
    }
    let mut job_changes = app.jobs.changes();
    job_changes.mark_changed();
    let mut tails = match &watch {
        Watch::Tail(tail) => Some(tail::start(&app, &visitor, tail.clone())),
        _ => None,
    };
    let mut page = Page { app: &app, visitor: &visitor, watch, sent: Sent::default(), details: None };
    page.trouble(&status.state, &events).await?;
    if status.state.number > 0 {
        page.look(&viewer, &events).await?;
    }
    let mut comments = interval(COMMENT_INTERVAL);
    comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
    comments.tick().await;
    loop {
        tokio::select! {
            () = events.closed() => return Err(Gone),
            () = app.stopped.cancelled() => return Ok(()),
            _ = comments.tick() => events.comment().await?,
            state = viewer.changed() => {
                page.trouble(&state, &events).await?;
                page.look(&viewer, &events).await?;
            }
            Ok(()) = job_changes.changed() => {
                job_changes.borrow_and_update();
                page.jobs(&events).await?;
            }
            Some(event) = next(&mut tails) => event.send(&events).await?,
        }
    }
}

async fn next(tails: &mut Option<mpsc::Receiver<TailEvent>>) -> Option<TailEvent> {
    match tails {
        Some(tails) => tails.recv().await,
        None => std::future::pending().await,
    }
}

/// What a page has been sent.
#[derive(Default)]
struct Sent {
    look: Option<u64>,
    rows: HashMap<String, Value>,
    order: Vec<String>,
    page: (usize, usize),
    totals: Value,
    state: Value,
    trouble: Option<Value>,
    job_change: u64,
}

struct Page<'a> {
    app: &'a App,
    visitor: &'a Visitor,
    watch: Watch,
    sent: Sent,
    details: Option<(Instant, GroupDetails)>,
}

impl Page<'_> {
    /// Sends whether the store answers, if that has changed.
    async fn trouble(&mut self, state: &SamplerState, events: &Events) -> Result<(), Gone> {
        let trouble = json!(state.trouble.as_ref().map(TroubleJson::new));
        let before = self.sent.trouble.replace(trouble.clone());
        let is_news = before.as_ref() != Some(&trouble) && (before.is_some() || !trouble.is_null());
        if is_news { events.send("trouble", None, &trouble).await } else { Ok(()) }
    }

    /// Sends what a new look changes, once the client has read what was sent.
    async fn look(
        &mut self,
        viewer: &millstream_worker::observe::Viewer,
        events: &Events,
    ) -> Result<(), Gone> {
        events.ready().await?;
        let look = self.app.sampler.look();
        if self.sent.look.replace(look.number) == Some(look.number) {
            return Ok(());
        }
        match &self.watch {
            Watch::Overview(query) => {
                let page = look.page(query, &*self.visitor.may_see);
                viewer.show(page.rows.iter().map(|row| row.key.clone()));
                let row = |row: &Arc<Row>| (rows::key(&row.key), json!(RowJson::new(row, look.at_ms)));
                let rows: Vec<(String, Value)> = page.rows.iter().map(row).collect();
                let totals = json!(TotalsJson::new(&look.totals_of(&*self.visitor.may_see)));
                if self.sent.totals != totals {
                    let data = json!({ "look": look.number, "at_ms": look.at_ms, "totals": totals });
                    self.sent.totals = totals;
                    events.send("totals", Some(look.number), &data).await?;
                }
                let mut data = json!({
                    "look": look.number, "at_ms": look.at_ms, "matched": page.matched, "offset": page.offset,
                });
                if self.sent.changes(rows, (page.matched, page.offset), &mut data) {
                    events.send("rows", Some(look.number), &data).await?;
                }
                Ok(())
            }
            Watch::Stream(stream) => {
                viewer.show(look.rows_of(stream).iter().map(|row| row.key.clone()));
                let state = stream::stream_page(self.app, self.visitor, stream).await;
                self.state("stream", look.number, state.map(|page| json!(page)), events).await
            }
            Watch::Group(stream, group) => {
                viewer.show([RowKey::group(stream, group)]);
                let state = self.group(&stream.clone(), &group.clone()).await;
                self.state("group", look.number, state, events).await
            }
            Watch::Tail(_) | Watch::Jobs => Ok(()),
        }
    }

    async fn group(&mut self, stream: &str, group: &str) -> Result<Value, Problem> {
        let is_fresh = self.details.as_ref().is_some_and(|(at, _)| at.elapsed() < DETAILS_AGE_MAX);
        if !is_fresh {
            let details = GroupDetails::read(self.app, self.visitor, stream, group).await?;
            self.details = Some((Instant::now(), details));
        }
        match &self.details {
            Some((_, details)) => {
                let page = stream::group_page(self.app, self.visitor, stream, group, details).await?;
                Ok(json!(page))
            }
            None => Ok(Value::Null),
        }
    }

    async fn state(
        &mut self,
        name: &str,
        look: u64,
        state: Result<Value, Problem>,
        events: &Events,
    ) -> Result<(), Gone> {
        let (name, state) = match state {
            Ok(state) => (name, state),
            Err(problem) => ("problem", problem.to_json()),
        };
        if self.sent.state == state {
            return Ok(());
        }
        events.send(name, Some(look), &state).await?;
        self.sent.state = state;
        Ok(())
    }

    /// Sends the jobs that have changed.
    async fn jobs(&mut self, events: &Events) -> Result<(), Gone> {
        events.ready().await?;
        let (changed, last) = self.app.jobs.since(self.sent.job_change);
        self.sent.job_change = last;
        for job in changed.iter().filter(|job| (self.visitor.may_see)(&job.stream)) {
            events.send("job", None, &json!(job.state())).await?;
        }
        Ok(())
    }
}

impl Sent {
    /// Adds to an event what has changed since the last one: rows, rows that are gone, and the order. Returns false if
    /// nothing has changed.
    fn changes(&mut self, rows: Vec<(String, Value)>, page: (usize, usize), data: &mut Value) -> bool {
        let order: Vec<String> = rows.iter().map(|(key, _)| key.clone()).collect();
        let now: BTreeMap<&String, &Value> = rows.iter().map(|(key, row)| (key, row)).collect();
        let gone: Vec<&String> = self.rows.keys().filter(|key| !now.contains_key(key)).collect();
        let changed = rows.iter().filter(|(key, row)| self.rows.get(key) != Some(row));
        let set: Map<String, Value> = changed.cloned().collect();
        let is_first = self.look_is_first();
        let is_news =
            is_first || !set.is_empty() || !gone.is_empty() || order != self.order || page != self.page;
        data["set"] = Value::Object(set);
        data["gone"] = json!(gone);
        data["order"] = json!(order);
        self.rows = rows.into_iter().collect();
        self.order = order;
        self.page = page;
        is_news
    }

    fn look_is_first(&self) -> bool {
        self.rows.is_empty() && self.order.is_empty()
    }
}
