//! Finds consumers to remove: those that have sent no request for the group's CONSUMERTTL and own no pending entry.

use super::retention::{Look, next_on_grid};
use super::{Group, Stream};

/// Shortest interval between two looks at the consumers of a stream.
const LOOK_MS_MIN: u64 = 100;
/// The consumers of a group are looked at this often during their CONSUMERTTL.
const LOOKS_PER_TTL: u64 = 10;

impl Stream {
    /// Returns the earliest time from `since_ms` on at which consumers may have to leave; `None` if no group has a
    /// CONSUMERTTL.
    pub(super) fn next_consumer_look_ms(&self, since_ms: u64, phase: u64) -> Option<u64> {
        self.groups.values().filter_map(|group| group.next_consumer_look_ms(since_ms, phase)).min()
    }
}

impl Group {
    pub(super) fn next_consumer_look_ms(&self, since_ms: u64, phase: u64) -> Option<u64> {
        let ttl_ms = self.rules()?.consumer_ttl_ms?;
        Some(next_on_grid(since_ms, LOOK_MS_MIN.max(ttl_ms / LOOKS_PER_TTL), phase))
    }

    /// Returns the last time of a request with which a consumer has to leave (Unix milliseconds); `None` if no consumer
    /// has to at this look.
    pub fn idle_consumers_seen_through_ms(&self, look: Look) -> Option<u64> {
        let ttl_ms = self.rules()?.consumer_ttl_ms?;
        let is_due = look.includes(self.next_consumer_look_ms(look.since_ms, look.phase));
        look.now_ms.checked_sub(ttl_ms).filter(|_| is_due)
    }
}
