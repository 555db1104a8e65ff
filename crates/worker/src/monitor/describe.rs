//! Turns what a look found into snapshots, without asking the store again.

use std::time::{Duration, SystemTime};

use super::dead_letters::DeadLetters;
use super::missed::{Missed, unread};
use super::snapshot::{GroupSnapshot, Lag, LagAccuracy, OldestEntry, PendingScan, StreamSnapshot};
use crate::backend::{GroupDetail, GroupInfo, PendingRow, StreamId, StreamInfo, StreamLook};
use crate::heartbeat;
use crate::message::age_of;

/// Maximum number of stuck pending entries in a snapshot.
pub(super) const STUCK_LISTED_MAX: usize = 20;

/// When a pending entry counts as stuck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StuckRule {
    pub(crate) deliveries: u64,
    pub(crate) idle: Duration,
}

impl Default for StuckRule {
    /// From the fifth delivery on, or after five idle minutes.
    fn default() -> StuckRule {
        StuckRule { deliveries: 5, idle: Duration::from_secs(300) }
    }
}

impl StuckRule {
    /// Returns whether an entry counts as stuck.
    pub(crate) fn is_stuck(&self, row: &PendingRow) -> bool {
        row.deliveries >= self.deliveries || row.idle.is_some_and(|idle| idle >= self.idle)
    }
}

impl PendingScan {
    /// Adds a pending entry to the scan.
    pub(crate) fn add(&mut self, row: PendingRow, stuck: &StuckRule) {
        self.scanned += 1;
        self.released += u64::from(row.consumer.is_none());
        self.longest_idle = self.longest_idle.max(row.idle);
        self.most_deliveries = self.most_deliveries.max(row.deliveries);
        if stuck.is_stuck(&row) {
            self.stuck += 1;
            if self.stuck_rows.len() < STUCK_LISTED_MAX {
                self.stuck_rows.push(row);
            }
        }
    }

    /// Adds a released entry whose next attempt is at a time of the store.
    pub(crate) fn add_attempt(&mut self, due_at_ms: u64, now_ms: u64) {
        let Some(due_in_ms) = due_at_ms.checked_sub(now_ms).filter(|ms| *ms > 0) else { return };
        let due_in = Duration::from_millis(due_in_ms);
        self.waiting += 1;
        self.next_attempt_in = Some(self.next_attempt_in.map_or(due_in, |first| first.min(due_in)));
    }
}

impl GroupSnapshot {
    pub(crate) fn without_detail(
        stream: &str,
        look: &StreamLook,
        group: &GroupInfo,
        at: SystemTime,
    ) -> GroupSnapshot {
        GroupSnapshot {
            stream: stream.to_owned(),
            name: group.name.clone(),
            at,
            detail_at: None,
            stream_length: look.length,
            entries_added: look.entries_added,
            lag: known_lag(&look.info, group).unwrap_or(Lag { count: 1, accuracy: LagAccuracy::LowerBound }),
            growth: None,
            missed: Missed::of(&look.info, group),
            oldest_unread: None,
            pending: group.pending,
            oldest_pending: None,
            scan: PendingScan { complete: group.pending == 0, ..PendingScan::default() },
            consumers: Vec::new(),
            workers: Vec::new(),
            last_delivered: group.last_delivered,
            entries_read: group.entries_read,
            dead_letters: String::new(),
            dead_letters_length: 0,
            part_of: None,
            partitions: 0,
            parts: Vec::new(),
        }
    }

    /// Keeps the details of an earlier look that can still be true. `counts_missed`: the store counts missed entries.
    pub(crate) fn keep_detail(&mut self, before: &GroupSnapshot, counts_missed: bool) {
        self.detail_at = before.detail_at;
        self.consumers.clone_from(&before.consumers);
        self.workers.clone_from(&before.workers);
        if counts_missed && before.detail_at.is_some() {
            self.missed = before.missed;
        }
        let has_unread = !self.lag.is_exact() || self.lag.count > 0;
        let is_unread = |unread: &OldestEntry| has_unread && unread.id > self.last_delivered;
        self.oldest_unread = before.oldest_unread.filter(is_unread).map(|unread| oldest(unread.id, self.at));
        if self.pending > 0 {
            self.oldest_pending = before.oldest_pending.map(|pending| oldest(pending.id, self.at));
            self.scan.clone_from(&before.scan);
        }
        if !self.lag.is_exact() && self.last_delivered == before.last_delivered {
            self.lag.count = self.lag.count.max(before.lag.count);
        }
    }

    /// Adds the details that a look has found, from at most `rows_max` pending entries. Returns the id from which a
    /// scan of the pending entries continues, if there may be more.
    pub(crate) fn add_detail(
        &mut self,
        detail: GroupDetail,
        rows_max: usize,
        stuck: &StuckRule,
    ) -> Option<StreamId> {
        self.detail_at = Some(self.at);
        if let Some(missed) = &detail.missed {
            self.missed = Missed::counted(missed, self.last_delivered);
        }
        if let Some(unread) = &detail.unread {
            self.oldest_unread = unread.first().map(|id| oldest(*id, self.at));
            let counted = Lag { count: unread.len() as u64, accuracy: LagAccuracy::LowerBound };
            if !self.lag.is_exact() && counted.count > self.lag.count {
                self.lag = counted;
            }
        }
        self.workers = heartbeat::workers_at(&detail.heartbeats, detail.now_ms);
        self.consumers = detail.consumers;
        // The rows were read after the count.
        let first_pending = detail.pending.first().filter(|_| self.pending > 0);
        self.oldest_pending = first_pending.map(|row| oldest(row.id, self.at));
        let next = match detail.pending.last() {
            None if rows_max == 0 => Some(StreamId::MIN),
            last => last.filter(|_| detail.pending.len() >= rows_max).and_then(|row| row.id.next()),
        };
        self.scan = PendingScan { complete: next.is_none(), ..PendingScan::default() };
        for (_, record) in &detail.retries {
            self.scan.add_attempt(record.due_at_ms, detail.now_ms);
        }
        detail.pending.into_iter().for_each(|row| self.scan.add(row, stuck));
        next
    }
}

impl StreamSnapshot {
    /// Describes a stream without its groups.
    pub(crate) fn of(
        stream: &str,
        look: &StreamLook,
        dead_letters: DeadLetters,
        at: SystemTime,
    ) -> StreamSnapshot {
        StreamSnapshot {
            name: stream.to_owned(),
            at,
            info: StreamInfo { length: look.length, entries_added: look.entries_added, ..look.info.clone() },
            groups: Vec::new(),
            dead_letters: dead_letters.first(),
            dead_letters_length: dead_letters.total(),
            dead_letter_streams: dead_letters.streams,
            openable: true,
            part_of: None,
            partitioned: None,
        }
    }

    /// Describes a stream of which only the name is known, because it is not UTF-8.
    pub(crate) fn unopenable(escaped_name: &str, at: SystemTime) -> StreamSnapshot {
        let (look, dead_letters) = (StreamLook::default(), DeadLetters::default());
        StreamSnapshot { openable: false, ..StreamSnapshot::of(escaped_name, &look, dead_letters, at) }
    }
}

pub(super) fn oldest(id: StreamId, at: SystemTime) -> OldestEntry {
    OldestEntry { id, age: age_of(id, at) }
}

/// Returns the lag of a group: the number that the store reports, or what follows from the ends of the stream. `None`
/// if the unread entries must be counted.
pub(super) fn known_lag(info: &StreamInfo, group: &GroupInfo) -> Option<Lag> {
    if let Some(count) = unread(info, group) {
        return Some(Lag::reported(count));
    }
    let counted = |count| Some(Lag { count, accuracy: LagAccuracy::Counted });
    match (info.first_entry, info.last_entry) {
        (Some(begin), _) if group.last_delivered < begin => counted(info.length),
        (_, Some(last)) if group.last_delivered < last => None,
        _ => counted(0),
    }
}
