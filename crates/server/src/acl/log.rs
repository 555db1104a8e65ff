//! The log of denials that ACL LOG shows.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// A denial equal to an earlier one is counted with it if not more than this many milliseconds have passed.
const SAME_WITHIN_MS: u64 = 60_000;
/// Number of the latest entries that a new denial is compared with.
const COMPARED_ENTRIES: usize = 10;
/// Maximum bytes kept of a key or a user name. The client that is denied chooses them.
const TEXT_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialReason {
    Auth,
    Command,
    Key,
}

impl DenialReason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DenialReason::Auth => "auth",
            DenialReason::Command => "command",
            DenialReason::Key => "key",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialContext {
    TopLevel,
    /// Between MULTI and EXEC, or EXEC itself.
    Transaction,
}

impl DenialContext {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DenialContext::TopLevel => "toplevel",
            DenialContext::Transaction => "multi",
        }
    }
}

pub(crate) struct NewDenial<'a> {
    pub(crate) reason: DenialReason,
    pub(crate) context: DenialContext,
    pub(crate) object: &'a [u8],
    pub(crate) user: &'a [u8],
    /// The client, as CLIENT LIST shows it.
    pub(crate) client: String,
}

/// One or more equal denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) reason: DenialReason,
    pub(crate) context: DenialContext,
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) client: String,
    /// The time of the first denial, in Unix milliseconds.
    pub(crate) created_ms: u64,
    /// The time of the last denial, in Unix milliseconds.
    pub(crate) updated_ms: u64,
}

/// The latest denials, newest first.
#[derive(Default)]
pub(crate) struct AclLog {
    inner: Mutex<Denials>,
}

#[derive(Default)]
struct Denials {
    entries: VecDeque<LogEntry>,
    next_id: u64,
}

impl AclLog {
    /// Adds a denial. Removes the oldest entries if there are more than `max`.
    pub(crate) fn note(&self, denial: NewDenial<'_>, now_ms: u64, max: usize) {
        let (object, user) = (cut(denial.object), cut(denial.user));
        let mut inner = self.inner.lock();
        let is_same = |entry: &LogEntry| {
            entry.reason == denial.reason
                && entry.context == denial.context
                && entry.object == object
                && entry.user == user
                && now_ms.saturating_sub(entry.updated_ms) <= SAME_WITHIN_MS
        };
        let same = inner.entries.iter().take(COMPARED_ENTRIES).position(is_same);
        let entry = match same.and_then(|place| inner.entries.remove(place)) {
            Some(entry) => {
                LogEntry { count: entry.count + 1, client: denial.client, updated_ms: now_ms, ..entry }
            }
            None => {
                inner.next_id += 1;
                LogEntry {
                    id: inner.next_id - 1,
                    count: 1,
                    reason: denial.reason,
                    context: denial.context,
                    object: object.to_vec(),
                    user: user.to_vec(),
                    client: denial.client,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                }
            }
        };
        inner.entries.push_front(entry);
        inner.entries.truncate(max);
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<LogEntry> {
        self.inner.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.inner.lock().entries.clear();
    }
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial<'a>(object: &'a [u8], user: &'a [u8]) -> NewDenial<'a> {
        let (reason, context) = (DenialReason::Key, DenialContext::TopLevel);
        NewDenial { reason, context, object, user, client: "id=1".into() }
    }

    fn shown(log: &AclLog) -> Vec<(u64, u64, Vec<u8>)> {
        log.newest(9).into_iter().map(|entry| (entry.id, entry.count, entry.object)).collect()
    }

    #[test]
    fn equal_denials_within_a_minute_are_counted_together() {
        let log = AclLog::default();
        log.note(denial(b"a", b"u"), 1_000, 8);
        log.note(denial(b"b", b"u"), 2_000, 8);
        log.note(denial(b"a", b"u"), 61_000, 8);
        assert_eq!(shown(&log), [(0, 2, b"a".to_vec()), (1, 1, b"b".to_vec())]);
        assert_eq!((log.newest(1)[0].created_ms, log.newest(1)[0].updated_ms), (1_000, 61_000));
        log.note(denial(b"a", b"u"), 121_001, 8);
        log.note(denial(b"a", b"other"), 121_001, 8);
        assert_eq!(shown(&log)[..2], [(3, 1, b"a".to_vec()), (2, 1, b"a".to_vec())]);
        log.clear();
        assert!(log.newest(9).is_empty());
    }

    #[test]
    fn number_and_size_of_entries_are_limited() {
        let log = AclLog::default();
        let long = vec![b'k'; TEXT_BYTES_MAX + 1];
        for object in [&b"a"[..], b"b", &long] {
            log.note(denial(object, &long), 0, 2);
        }
        let entries = log.newest(9);
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].object.len(), entries[0].user.len()), (TEXT_BYTES_MAX, TEXT_BYTES_MAX));
        log.note(denial(b"c", b"u"), 0, 0);
        assert!(log.newest(9).is_empty());
    }
}
