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

    /// Returns the groups whose consumers must be looked at, each with its name and the last time of a request with
    /// which a consumer leaves (Unix milliseconds).
    pub fn groups_with_idle_consumers(&self, look: Look) -> impl Iterator<Item = (&[u8], &Group, u64)> {
        self.groups().filter_map(move |(name, group)| {
            let ttl_ms = group.rules()?.consumer_ttl_ms?;
            let is_due = look.includes(group.next_consumer_look_ms(look.since_ms, look.phase));
            Some((name, group, look.now_ms.checked_sub(ttl_ms).filter(|_| is_due)?))
        })
    }
}

impl Group {
    pub(super) fn next_consumer_look_ms(&self, since_ms: u64, phase: u64) -> Option<u64> {
        let ttl_ms = self.rules()?.consumer_ttl_ms?;
        Some(next_on_grid(since_ms, LOOK_MS_MIN.max(ttl_ms / LOOKS_PER_TTL), phase))
    }
}
