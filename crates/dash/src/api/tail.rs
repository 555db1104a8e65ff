//! Follows a stream for one viewer: its new entries, at most 20 a second, or what a group does with them.
//!
//! It reads without a group, so nothing is delivered. If entries come faster, it skips some and
//! tells the viewer their number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millstream_worker::Admin;
use millstream_worker::backend::{Entry, PendingFilter, Range, StreamId};
use millstream_worker::operate::fields::FieldsView;
use millstream_worker::operate::shapes::ViewedEntry;
use millstream_worker::operate::wording::millis_since_epoch;
use millstream_worker::redaction::Redaction;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::access::Visitor;
use crate::app::App;
use crate::problem::Problem;
use crate::sse::{Events, Gone};

/// Maximum number of entries to show per second.
const SHOWN_PER_SECOND_MAX: usize = 20;
/// Number of entries to read per call.
const READ_MAX: usize = 100;
/// How long a call waits for an entry.
const WAIT: Duration = Duration::from_secs(2);
/// Time between two calls.
const PAUSE: Duration = Duration::from_millis(200);
/// Time between two looks at a group at work.
const GROUP_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of pending entries of a group that are followed one by one.
const PENDING_MAX: usize = 1000;

/// What to follow.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    pub(crate) stream: String,
    /// If set, what this group does with entries.
    pub(crate) group: Option<String>,
    /// Only entries with this text in a value that is not hidden.
    pub(crate) contains: Option<String>,
}

/// Something to tell the viewer.
pub(crate) enum TailEvent {
    Entries { items: Vec<Value>, skipped: u64 },
    Activity(Vec<Value>),
    Problem(Problem),
}

impl TailEvent {
    pub(crate) async fn send(self, events: &Events) -> Result<(), Gone> {
        match self {
            TailEvent::Entries { items, skipped } => {
                events.send("entries", None, &json!({ "items": items, "skipped": skipped })).await
            }
            TailEvent::Activity(items) => events.send("activity", None, &json!({ "items": items })).await,
            TailEvent::Problem(problem) => events.send("problem", None, &problem.to_json()).await,
        }
    }
}

/// Starts to follow. The task ends when the receiver is dropped, or after an error.
pub(crate) fn start(app: &Arc<App>, visitor: &Visitor, tail: Tail) -> mpsc::Receiver<TailEvent> {
    // One event waits at most: a slow viewer gets what is new when it has read that.
    let (sender, receiver) = mpsc::channel(1);
    let (app, backend) = (Arc::clone(app), Arc::clone(&visitor.backend));
    tokio::spawn(async move {
        let result = tokio::select! {
            result = async {
                match &tail.group {
                    None => follow_entries(&app.redaction, &*backend, &tail, &sender).await,
                    Some(group) => follow_group(&app.redaction, &*backend, &tail.stream, group, &sender).await,
                }
            } => result,
            () = sender.closed() => Ok(()),
            () = app.stopped.cancelled() => Ok(()),
        };
        if let Err(problem) = result {
            let _ = sender.send(TailEvent::Problem(problem)).await;
        }
    });
    receiver
}

async fn follow_entries(
    redaction: &Redaction,
    backend: &dyn Admin,
    tail: &Tail,
    sender: &mpsc::Sender<TailEvent>,
) -> Result<(), Problem> {
    let info = backend.stream(&tail.stream).await?.unwrap_or_default();
    let (mut after, mut added) = (info.last_id, info.entries_added);
    let (mut second, mut shown) = (Instant::now(), 0);
    let view = FieldsView::listed(redaction);
    loop {
        let entries = backend.follow(&tail.stream, after, READ_MAX, WAIT).await?;
        if second.elapsed() >= Duration::from_secs(1) {
            (second, shown) = (Instant::now(), 0);
        }
        let is_full = entries.len() == READ_MAX;
        after = entries.last().map_or(after, |entry| entry.id);
        added = added.map(|added| added.saturating_add(entries.len() as u64));
        let wanted: Vec<&Entry> =
            entries.iter().filter(|entry| is_found(redaction, entry, tail.contains.as_deref())).collect();
        let room = SHOWN_PER_SECOND_MAX.saturating_sub(shown).min(wanted.len());
        let items: Vec<Value> =
            wanted[..room].iter().map(|entry| json!(ViewedEntry::new(entry, &view))).collect();
        let mut skipped = (wanted.len() - room) as u64;
        shown += room;
        if is_full {
            // The stream is faster than the viewer: go on at its end.
            let info = backend.stream(&tail.stream).await?.unwrap_or_default();
            let passed = info.entries_added.zip(added).map(|(now, read)| now.saturating_sub(read));
            skipped = skipped.saturating_add(passed.unwrap_or(0));
            (after, added) = (info.last_id.max(after), info.entries_added);
        }
        if !items.is_empty() || skipped > 0 {
            let event = TailEvent::Entries { items, skipped };
            if sender.send(event).await.is_err() {
                return Ok(());
            }
        }
        sleep(PAUSE).await;
    }
}

/// Whether an entry has a text in a value that is not hidden.
pub(crate) fn is_found(redaction: &Redaction, entry: &Entry, contains: Option<&str>) -> bool {
    contains.is_none_or(|text| {
        entry.fields.iter().any(|(name, value)| {
            let shown = redaction.shown_among(&entry.fields, name, value);
            shown.is_some_and(|shown| has(&shown, text))
        })
    })
}

/// Whether bytes contain a text. The search takes linear time: others choose the bytes.
pub(crate) fn has(bytes: &[u8], wanted: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(wanted)
}

/// What was last known about a group.
#[derive(Default)]
struct Seen {
    /// Unread entries that were shown.
    unread: BTreeMap<StreamId, ()>,
    /// Consumer and deliveries of the pending entries.
    pending: BTreeMap<StreamId, (Option<String>, u64)>,
    read_up_to: StreamId,
    progress: Option<(StreamId, u64)>,
}

async fn follow_group(
    redaction: &Redaction,
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    sender: &mpsc::Sender<TailEvent>,
) -> Result<(), Problem> {
    let mut seen = Seen::default();
    loop {
        let groups = backend.groups(stream).await?;
        let info = groups.into_iter().find(|found| found.name == group);
        let info = info.ok_or_else(|| Problem::not_found(format!("stream {stream} has no group {group}")))?;
        let mut items = Vec::new();
        let filter = PendingFilter::starting_at(StreamId::MIN, PENDING_MAX);
        let rows = backend.pending(stream, group, &filter).await?;
        let is_complete = rows.len() < PENDING_MAX;
        let now = rows.into_iter().map(|row| (row.id, (row.consumer, row.deliveries))).collect();
        seen.compare(now, is_complete, info.last_delivered, &mut items);
        if let Some(first) = seen.read_up_to.max(info.last_delivered).next() {
            let view = FieldsView::listed(redaction);
            for entry in backend.range(stream, Range::starting_at(first, READ_MAX)).await? {
                let mut item = json!(ViewedEntry::new(&entry, &view));
                item["event"] = json!("unread");
                items.push(item);
                seen.read_up_to = entry.id;
                seen.unread.insert(entry.id, ());
            }
        }
        if seen.progress.replace((info.last_delivered, info.pending))
            != Some((info.last_delivered, info.pending))
        {
            items.push(json!({
                "event": "progress",
                "last_delivered": info.last_delivered.to_string(),
                "lag": info.lag,
                "pending": info.pending,
                "consumers": info.consumers,
            }));
        }
        let seen_ms = millis_since_epoch(SystemTime::now());
        items.iter_mut().for_each(|item| item["seen_ms"] = json!(seen_ms));
        if !items.is_empty() && sender.send(TailEvent::Activity(items)).await.is_err() {
            return Ok(());
        }
        sleep(GROUP_PAUSE).await;
    }
}

impl Seen {
    /// Compares the pending entries with those before.
    fn compare(
        &mut self,
        now: BTreeMap<StreamId, (Option<String>, u64)>,
        is_complete: bool,
        last_delivered: StreamId,
        items: &mut Vec<Value>,
    ) {
        for (id, state) in now.iter().filter(|(id, state)| self.pending.get(id) != Some(state)) {
            items.push(json!({ "event": "pending", "id": id.to_string(), "consumer": state.0, "deliveries": state.1 }));
        }
        let mut delivered = std::mem::take(&mut self.unread);
        if let Some(next) = last_delivered.next() {
            self.unread = delivered.split_off(&next);
        }
        if is_complete {
            let done = self.pending.keys().chain(delivered.keys()).filter(|id| !now.contains_key(id));
            items.extend(done.map(|id| json!({ "event": "done", "id": id.to_string() })));
        }
        self.pending = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_in_any_bytes() {
        assert!(has("größe".as_bytes(), "öß") && has(b"\xe2book\xff", "book") && has(b"\xe2\xc3\xb6", "ö"));
        assert!(has(b"", "") && !has(b"", "x") && !has(b"boo\xffk", "book"));
        let (many, wanted) = (vec![b'a'; 8 << 20], format!("{}b", "a".repeat(12 << 10)));
        assert!(!has(&many, &wanted));
    }

    #[test]
    fn an_entry_is_unread_then_pending_then_done() {
        let (mut seen, id) = (Seen::default(), StreamId::new(5, 0));
        seen.unread.insert(id, ());
        let mut items = Vec::new();
        seen.compare(BTreeMap::new(), true, StreamId::MIN, &mut items);
        assert!(items.is_empty() && seen.unread.contains_key(&id));
        let pending: BTreeMap<_, _> = [(id, (Some("a".to_owned()), 1))].into();
        seen.compare(pending.clone(), true, id, &mut items);
        assert_eq!((items.len(), &items[0]["event"]), (1, &json!("pending")));
        seen.compare(pending, true, id, &mut items);
        seen.compare(BTreeMap::new(), true, id, &mut items);
        assert_eq!((items.len(), &items[1]["event"]), (2, &json!("done")));
    }
}
