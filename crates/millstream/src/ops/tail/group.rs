//! Watching a group at work: every entry from unread over pending to done, seen from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::backend::{Fields, GroupInfo, PendingFilter, PendingRow, Range, StreamId};
use millstream_worker::monitor::{Lag, Monitor};
use serde_json::{Value, json};

use super::{PAGE, Tail, WAIT, entry_line};
use crate::ops::failure::Failure;
use crate::ops::known;
use crate::ops::output::{DIM, GOOD, WARN, print_json_line, print_line};
use crate::ops::shape;
use crate::ops::value::{count, fields_json, fields_line};

/// More pending entries than this are not watched one by one.
const WATCHED_MAX: usize = 10_000;

/// Tells what is pending and unread, then what changes.
pub(super) async fn follow(tail: &Tail, backend: Arc<dyn Admin>, group: &str) -> Result<(), Failure> {
    let mut left = tail.count.unwrap_or(u64::MAX);
    let mut watch = Watch::default();
    loop {
        let info = known::group(&*backend, &tail.stream, group).await?;
        for event in watch.look(tail, &backend, group, &info).await? {
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            event.tell(tail.common.json)?;
        }
        if left == 0 || tail.no_follow {
            return Ok(());
        }
        // New entries are told at once; what the group does is seen when the wait is over.
        let after = watch.seen_to.max(info.last_delivered);
        backend.follow(&tail.stream, after, 1, WAIT / 4).await?;
    }
}

/// What is known of the group.
#[derive(Default)]
struct Watch {
    /// Unread entries that were told, until they are delivered.
    unread: BTreeMap<StreamId, Fields>,
    /// Pending rows by id: whose, and how often delivered.
    pending: BTreeMap<StreamId, (Option<String>, u64)>,
    /// Up to where the stream was looked at.
    seen_to: StreamId,
    /// The group's last standing that was told.
    standing: Option<(StreamId, u64)>,
}

impl Watch {
    async fn look(
        &mut self,
        tail: &Tail,
        backend: &Arc<dyn Admin>,
        group: &str,
        info: &GroupInfo,
    ) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        let filter = PendingFilter::rising(StreamId::MIN, WATCHED_MAX);
        let rows = backend.pending(&tail.stream, group, &filter).await?;
        let complete = rows.len() < WATCHED_MAX;
        self.note_pending(rows, complete, info, &mut events);
        let first = self.seen_to.max(info.last_delivered).next();
        if let Some(first) = first {
            for entry in backend.range(&tail.stream, Range::rising(first, PAGE)).await? {
                self.seen_to = entry.id;
                events.push(Event::Unread { id: entry.id, fields: entry.fields.clone() });
                self.unread.insert(entry.id, entry.fields);
            }
        }
        let standing = (info.last_delivered, info.pending);
        if self.standing != Some(standing) {
            self.standing = Some(standing);
            let backlog = Monitor::new(Arc::clone(backend)).backlog(&tail.stream, group).await?;
            // A group that has just gone is told by the next look.
            events.extend(backlog.map(|(lag, _)| Event::Progress(info.clone(), lag)));
        }
        Ok(events)
    }

    /// Compares the pending rows with those of the last look.
    fn note_pending(
        &mut self,
        rows: Vec<PendingRow>,
        complete: bool,
        info: &GroupInfo,
        events: &mut Vec<Event>,
    ) {
        let now: BTreeMap<StreamId, (Option<String>, u64)> =
            rows.into_iter().map(|row| (row.id, (row.consumer, row.deliveries))).collect();
        for (id, (consumer, deliveries)) in &now {
            if self.pending.get(id) != Some(&(consumer.clone(), *deliveries)) {
                let (consumer, deliveries) = (consumer.clone(), *deliveries);
                events.push(Event::Pending { id: *id, consumer, deliveries });
            }
        }
        let delivered: Vec<StreamId> = match info.last_delivered.next() {
            Some(behind) => {
                let still = self.unread.split_off(&behind);
                std::mem::replace(&mut self.unread, still).into_keys().collect()
            }
            None => Vec::new(),
        };
        if complete {
            let done = self.pending.keys().chain(&delivered).filter(|id| !now.contains_key(id));
            events.extend(done.map(|id| Event::Done { id: *id }));
        }
        self.pending = now;
    }
}

/// What happened in the group.
enum Event {
    Unread { id: StreamId, fields: Fields },
    Pending { id: StreamId, consumer: Option<String>, deliveries: u64 },
    Done { id: StreamId },
    Progress(GroupInfo, Lag),
}

impl Event {
    fn tell(&self, as_json: bool) -> Result<(), Failure> {
        if as_json { print_json_line(&self.json()) } else { print_line(&self.line()) }
    }

    fn json(&self) -> Value {
        match self {
            Event::Unread { id, fields } => {
                json!({ "event": "unread", "id": id.to_string(), "fields": fields_json(fields) })
            }
            Event::Pending { id, consumer, deliveries } => json!({
                "event": "pending", "id": id.to_string(), "consumer": consumer, "deliveries": deliveries,
            }),
            Event::Done { id } => json!({ "event": "done", "id": id.to_string() }),
            Event::Progress(info, lag) => json!({
                "event": "progress",
                "last_delivered": info.last_delivered.to_string(),
                "lag": lag.count,
                "lag_exact": lag.is_exact(),
                "pending": info.pending,
                "consumers": info.consumers,
            }),
        }
    }

    fn line(&self) -> String {
        match self {
            Event::Unread { id, fields } => format!("unread    {}", entry_line(*id, &fields_line(fields))),
            Event::Pending { id, consumer, deliveries } => {
                let with = consumer.as_deref().unwrap_or("nobody: it was released");
                let rest = format!("with {with}, delivery {deliveries}");
                format!("{WARN}pending{WARN:#}   {}", entry_line(*id, &rest))
            }
            Event::Done { id } => format!("{GOOD}done{GOOD:#}      {id}"),
            Event::Progress(info, lag) => {
                format!("{DIM}progress  lag {}, pending {}{DIM:#}", shape::lag(*lag), count(info.pending))
            }
        }
    }
}
