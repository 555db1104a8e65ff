//! Follows the progress of a group from outside: each entry is unread, then pending, then done.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::backend::{Fields, GroupInfo, PendingFilter, PendingRow, Range, StreamId};
use millstream_worker::monitor::{Lag, Monitor};
use millstream_worker::operate::fields;
use serde_json::{Value, json};

use super::{PAGE, Tail, WAIT, entry_line};
use crate::ops::failure::Failure;
use crate::ops::lookup;
use crate::ops::output::{DIM, GOOD, WARN, print, print_json_line};
use crate::ops::safe_text::printable;
use crate::ops::value::{count, fields_line, format_lag};

/// Maximum number of pending entries that are tracked one by one.
const WATCHED_MAX: usize = 10_000;

/// Prints the pending and the unread entries of a group, then every change.
pub(super) async fn follow(
    tail: &Tail,
    backend: Arc<dyn Admin>,
    stream: &str,
    group: &str,
) -> Result<(), Failure> {
    let mut left = tail.count.unwrap_or(u64::MAX);
    let mut tracker = GroupTracker::default();
    loop {
        let info = lookup::group(&*backend, stream, group).await?;
        for event in tracker.poll(stream, &backend, group, &info).await? {
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            event.print(tail.common.json)?;
        }
        if left == 0 || tail.no_follow {
            return Ok(());
        }
        // A new entry ends this wait immediately. Changes of the group are found when the wait ends.
        let after = tracker.read_up_to.max(info.last_delivered);
        backend.follow(stream, after, 1, WAIT / 4).await?;
    }
}

/// The state of the group at the last poll.
#[derive(Default)]
struct GroupTracker {
    /// Unread entries that were printed, until they are delivered.
    unread: BTreeMap<StreamId, Fields>,
    /// Consumer and number of deliveries of every pending entry.
    pending: BTreeMap<StreamId, (Option<String>, u64)>,
    /// Id of the last entry that this command has read from the stream.
    read_up_to: StreamId,
    /// Last delivered id and number of pending entries, as last printed.
    progress: Option<(StreamId, u64)>,
}

impl GroupTracker {
    /// Reads the group and returns what has changed since the last poll.
    async fn poll(
        &mut self,
        stream: &str,
        backend: &Arc<dyn Admin>,
        group: &str,
        info: &GroupInfo,
    ) -> Result<Vec<GroupEvent>, Failure> {
        let mut events = Vec::new();
        let filter = PendingFilter::starting_at(StreamId::MIN, WATCHED_MAX);
        let rows = backend.pending(stream, group, &filter).await?;
        let complete = rows.len() < WATCHED_MAX;
        self.compare_pending(rows, complete, info, &mut events);
        let first = self.read_up_to.max(info.last_delivered).next();
        if let Some(first) = first {
            for entry in backend.range(stream, Range::starting_at(first, PAGE)).await? {
                self.read_up_to = entry.id;
                events.push(GroupEvent::Unread { id: entry.id, fields: entry.fields.clone() });
                self.unread.insert(entry.id, entry.fields);
            }
        }
        let progress = (info.last_delivered, info.pending);
        if self.progress != Some(progress) {
            self.progress = Some(progress);
            let backlog = Monitor::new(Arc::clone(backend)).backlog(stream, group).await?;
            // If the group was deleted meanwhile, the next poll returns the error.
            events.extend(backlog.map(|(lag, _)| GroupEvent::Progress(info.clone(), lag)));
        }
        Ok(events)
    }

    /// Compares the pending entries with those of the last poll.
    fn compare_pending(
        &mut self,
        rows: Vec<PendingRow>,
        complete: bool,
        info: &GroupInfo,
        events: &mut Vec<GroupEvent>,
    ) {
        let now: BTreeMap<StreamId, (Option<String>, u64)> =
            rows.into_iter().map(|row| (row.id, (row.consumer, row.deliveries))).collect();
        for (id, (consumer, deliveries)) in &now {
            if self.pending.get(id) != Some(&(consumer.clone(), *deliveries)) {
                let (consumer, deliveries) = (consumer.clone(), *deliveries);
                events.push(GroupEvent::Pending { id: *id, consumer, deliveries });
            }
        }
        let delivered: Vec<StreamId> = match info.last_delivered.next() {
            Some(next) => {
                let still_unread = self.unread.split_off(&next);
                std::mem::replace(&mut self.unread, still_unread).into_keys().collect()
            }
            None => Vec::new(),
        };
        if complete {
            let done = self.pending.keys().chain(&delivered).filter(|id| !now.contains_key(id));
            events.extend(done.map(|id| GroupEvent::Done { id: *id }));
        }
        self.pending = now;
    }
}

/// A change in the group.
enum GroupEvent {
    Unread { id: StreamId, fields: Fields },
    Pending { id: StreamId, consumer: Option<String>, deliveries: u64 },
    Done { id: StreamId },
    Progress(GroupInfo, Lag),
}

impl GroupEvent {
    fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json { print_json_line(&self.json()) } else { print(format_args!("{}\n", self.line())) }
    }

    fn json(&self) -> Value {
        match self {
            GroupEvent::Unread { id, fields } => {
                json!({ "event": "unread", "id": id.to_string(), "fields": fields::object(fields) })
            }
            GroupEvent::Pending { id, consumer, deliveries } => json!({
                "event": "pending", "id": id.to_string(), "consumer": consumer, "deliveries": deliveries,
            }),
            GroupEvent::Done { id } => json!({ "event": "done", "id": id.to_string() }),
            GroupEvent::Progress(info, lag) => json!({
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
            GroupEvent::Unread { id, fields } => {
                format!("unread    {}", entry_line(*id, &fields_line(fields)))
            }
            GroupEvent::Pending { id, consumer, deliveries } => {
                let state = match consumer {
                    Some(consumer) => format!("with {}, delivery {deliveries}", printable(consumer)),
                    None => format!("released, delivery {deliveries}"),
                };
                format!("{WARN}pending{WARN:#}   {}", entry_line(*id, &state))
            }
            GroupEvent::Done { id } => format!("{GOOD}done{GOOD:#}      {id}"),
            GroupEvent::Progress(info, lag) => {
                format!("{DIM}progress  lag {}, pending {}{DIM:#}", format_lag(*lag), count(info.pending))
            }
        }
    }
}
