//! Counts the entries that a group missed: they were trimmed or deleted before the group read them.
//!
//! Millstream and the embedded store count them. Other stores do not, but most report what is needed to compute them.
//! The number of removed entries is the number of entries ever added minus the length of the stream. If the group's
//! position is before the oldest entry, all removed entries that the group has not read were missed:
//!
//! ```text
//! missed = entries added - length - entries read
//! ```
//!
//! From Redis 7.2 on, `entries read` counts all entries up to the group's position, read or not. So once the group has
//! read an entry after those it missed, the missed ones are forgotten. Redis 7.0 counts only what it delivers, and so
//! it remembers them. But its lag includes them too and is wrong: see [`unread`].
//!
//! | store | what is known |
//! |---|---|
//! | Millstream, embedded | all missed entries since the group was created or moved |
//! | Redis 7.0 | all missed entries, if the group is before the oldest entry or at the end; else a lower bound |
//! | Redis 7.2 and later, Valkey | those after the group's position |
//! | Redis 6.2 | whether there can be some after the group's position |

use crate::backend::{GroupInfo, GroupMissed, StreamId, StreamInfo};

/// The entries that were trimmed or deleted before the group read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Number of missed entries. 0 if the number is [unknown](MissedAccuracy::Unknown).
    pub count: u64,
    /// How exact the number is.
    pub accuracy: MissedAccuracy,
    /// Whether missed entries are after the group's position, so that the group skips them with its next read. If the
    /// number is unknown: whether there may be such entries.
    pub is_ahead: bool,
}

/// How exact a number of missed entries is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedAccuracy {
    /// Exact.
    #[default]
    Exact,
    /// A lower bound.
    AtLeast,
    /// An upper bound: some of the entries may have been removed before the group was created.
    AtMost,
    /// Unknown: entries may have been removed, but the store does not count entries.
    Unknown,
}

impl Missed {
    /// Whether the number is exact.
    pub fn is_exact(self) -> bool {
        self.accuracy == MissedAccuracy::Exact
    }

    /// Returns the missed entries that the store counted for a group at this position.
    pub(super) fn counted(missed: &GroupMissed, position: StreamId) -> Missed {
        let is_ahead = missed.count > 0 && missed.through > position;
        Missed { count: missed.count, accuracy: MissedAccuracy::Exact, is_ahead }
    }

    /// Computes the missed entries of a group from what every store reports.
    ///
    /// `info` must be older than `group`. Otherwise entries that the group has read in between would count as missed.
    pub(super) fn of(info: &StreamInfo, group: &GroupInfo) -> Missed {
        let position = group.last_delivered;
        let is_before_first = is_before_first(info, position);
        let Some(added) = info.entries_added else {
            return if is_before_first { Missed::unknown(position) } else { Missed::default() };
        };
        let removed = added.saturating_sub(info.length);
        match group.entries_read {
            _ if removed == 0 => Missed::default(),
            Some(read) => {
                let count = passed_min(info, position).unwrap_or_default().saturating_sub(read);
                let is_lower_bound = !is_before_first && info.last_entry.is_some_and(|last| position < last);
                let accuracy =
                    if is_lower_bound && count > 0 { MissedAccuracy::AtLeast } else { MissedAccuracy::Exact };
                Missed { count, accuracy, is_ahead: is_before_first && count > 0 }
            }
            None if is_before_first && position == StreamId::MIN => {
                Missed { count: removed, accuracy: MissedAccuracy::AtMost, is_ahead: true }
            }
            None if is_before_first => Missed::unknown(position),
            None => Missed::default(),
        }
    }

    fn unknown(position: StreamId) -> Missed {
        // The position of a new group is before the oldest entry, whether entries were removed or not.
        Missed { count: 0, accuracy: MissedAccuracy::Unknown, is_ahead: position > StreamId::MIN }
    }
}

/// Returns the number of unread entries that the store reports for a group. `None` if it reports none, or a wrong one.
///
/// Redis 7.0 counts trimmed entries as unread.
pub(super) fn unread(info: &StreamInfo, group: &GroupInfo) -> Option<u64> {
    let passed = passed_min(info, group.last_delivered).zip(group.entries_read);
    let is_wrong = passed.is_some_and(|(passed, read)| read < passed);
    group.lag.filter(|_| !is_wrong)
}

/// Whether the position is before the oldest entry: all entries up to the position were removed, and perhaps later
/// ones.
fn is_before_first(info: &StreamInfo, position: StreamId) -> bool {
    position < info.first_entry.unwrap_or(info.last_id)
}

/// Returns how many entries a group at this position has read or missed, at least. `None` if the store does not know.
fn passed_min(info: &StreamInfo, position: StreamId) -> Option<u64> {
    let added = info.entries_added?;
    let removed = added.saturating_sub(info.length);
    Some(match info.last_entry {
        // The group cannot read the removed entries any more, even those after its position.
        _ if is_before_first(info, position) => removed,
        Some(last) if position < last => removed.saturating_add(1),
        _ => added,
    })
}

#[cfg(test)]
mod tests {
    use super::MissedAccuracy::{AtLeast, AtMost, Exact, Unknown};
    use super::*;

    fn missed(count: u64, accuracy: MissedAccuracy, is_ahead: bool) -> Missed {
        Missed { count, accuracy, is_ahead }
    }

    /// Returns the missed entries and the unread ones, given those that the store reports.
    ///
    /// The stream has `length` entries with ids up to `added`-0.
    fn counted(length: u64, added: u64, at: u64, read: Option<u64>, lag: u64) -> (Missed, Option<u64>) {
        let entry = |ms| (length > 0).then(|| StreamId::new(ms, 0));
        let info = StreamInfo {
            length,
            entries_added: Some(added),
            last_id: StreamId::new(added, 0),
            first_entry: entry(added - length + 1),
            last_entry: entry(added),
            ..StreamInfo::default()
        };
        let group = GroupInfo {
            last_delivered: StreamId::new(at, 0),
            entries_read: read,
            lag: Some(lag),
            ..GroupInfo::default()
        };
        (Missed::of(&info, &group), unread(&info, &group))
    }

    /// The numbers are those of real servers after 50 entries with MAXLEN 10, 2 reads, 30 entries, 3 reads, all reads.
    #[test]
    fn missed_entries_follow_from_what_servers_report() {
        // A group that was never read: the entries may have been trimmed before the group was created.
        assert_eq!(counted(10, 50, 0, None, 10), (missed(40, AtMost, true), Some(10)));
        // All servers.
        assert_eq!(counted(10, 50, 42, Some(42), 8), (missed(0, Exact, false), Some(8)));
        // Redis 7.2 and later, and Redis 7.0, whose lag includes the missed entries.
        assert_eq!(counted(10, 80, 42, Some(42), 10), (missed(28, Exact, true), None));
        assert_eq!(counted(10, 80, 42, Some(42), 38), (missed(28, Exact, true), None));
        // Redis 7.2 and later forget them with the next read.
        assert_eq!(counted(10, 80, 73, Some(73), 7), (missed(0, Exact, false), Some(7)));
        assert_eq!(counted(10, 80, 80, Some(80), 0), (missed(0, Exact, false), Some(0)));
        // Redis 7.0 remembers them.
        assert_eq!(counted(10, 80, 73, Some(45), 35), (missed(26, AtLeast, false), None));
        assert_eq!(counted(10, 80, 80, Some(52), 28), (missed(28, Exact, false), None));
    }

    #[test]
    fn nothing_is_missed_if_only_read_entries_were_removed() {
        // Everything was read and then trimmed or deleted.
        assert_eq!(counted(0, 80, 80, Some(80), 0), (missed(0, Exact, false), Some(0)));
        // Trimmed exactly to the position of the group.
        assert_eq!(counted(10, 80, 70, Some(70), 10), (missed(0, Exact, false), Some(10)));
        // Nothing was ever removed.
        assert_eq!(counted(80, 80, 0, None, 80), (missed(0, Exact, false), Some(80)));
    }

    /// The stream was described before the group, which has read and removed entries since.
    #[test]
    fn a_busy_group_has_missed_nothing() {
        assert_eq!(counted(10, 80, 95, Some(95), 3), (missed(0, Exact, false), Some(3)));
    }

    #[test]
    fn a_stream_that_was_emptied_was_missed() {
        assert_eq!(counted(0, 80, 60, Some(60), 0), (missed(20, Exact, true), None));
    }

    #[test]
    fn a_store_that_does_not_count_shows_only_that_entries_may_be_missing() {
        let info = StreamInfo {
            length: 10,
            last_id: StreamId::new(80, 0),
            first_entry: Some(StreamId::new(71, 0)),
            last_entry: Some(StreamId::new(80, 0)),
            ..StreamInfo::default()
        };
        let at = |ms| GroupInfo { last_delivered: StreamId::new(ms, 0), ..GroupInfo::default() };
        assert_eq!(Missed::of(&info, &at(42)), missed(0, Unknown, true));
        assert_eq!(Missed::of(&info, &at(75)), Missed::default());
        // The position of a new group shows nothing.
        assert_eq!(Missed::of(&info, &at(0)), missed(0, Unknown, false));
    }
}
