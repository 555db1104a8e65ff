//! When a row with an owner is ready to be delivered again, and what a page remembers about it.
//!
//! ```text
//! ready at = delivery time + max(lease, back-off of this delivery)      never, if the row is at the delivery limit
//! ```
//!
//! A page can keep a lower bound for the ready times of each of its chunks: its minima. They belong to one rule. A
//! search raises the minimum of a chunk when it needs to: at first to what follows from the oldest delivery time and
//! the fewest deliveries of the chunk, and only if that is too early to the first ready time of its rows. A change of
//! a row lowers the minimum. So a changed rule costs nothing until the next search, and a list that is never searched
//! by ready time has no minima.
//!
//! The minima are not part of the state of a list. Copies of a list share pages, and can search them with different
//! rules: then each search begins anew.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::PendingEntry;
use crate::StreamId;
use crate::backoff::Backoff;

/// The minimum of a chunk that no search has examined since it was changed.
const UNKNOWN: u64 = 0;

/// Decides when a row with an owner is ready to be delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyRule {
    /// How long a delivered row belongs to its consumer.
    pub lease_ms: u64,
    /// How long a row waits between deliveries.
    pub backoff: Backoff,
    /// A row with this many deliveries is never ready; `u64::MAX` if there is no limit.
    pub max_deliveries: u64,
}

impl ReadyRule {
    /// Returns how long a row with this many deliveries waits after the last one.
    #[inline]
    pub(crate) fn wait_ms(&self, id: StreamId, deliveries: u64) -> u64 {
        self.lease_ms.max(self.backoff.wait_ms(id, deliveries))
    }

    /// Returns when a row is ready; `u64::MAX` if it never is.
    #[inline]
    pub(super) fn ready_at_ms(&self, id: StreamId, delivered_at_ms: u64, deliveries: u64) -> u64 {
        match deliveries < self.max_deliveries {
            true => delivered_at_ms.saturating_add(self.wait_ms(id, deliveries)),
            false => u64::MAX,
        }
    }
}

impl ReadyRule {
    /// Returns a lower bound for the ready times of rows that were delivered at this time or later, and at least this
    /// often.
    #[inline]
    pub(super) fn lower_bound_ms(&self, oldest_ms: u64, fewest_deliveries: u64) -> u64 {
        match fewest_deliveries < self.max_deliveries {
            true => {
                oldest_ms.saturating_add(self.lease_ms.max(self.backoff.least_wait_ms(fewest_deliveries)))
            }
            false => u64::MAX,
        }
    }
}

/// The minima of the chunks of a page, if a search has needed them.
#[derive(Default)]
pub(super) struct ReadyMinima(Mutex<Option<Box<Minima>>>);

/// Lower bounds for the ready times of rows with an owner.
#[derive(Clone)]
struct Minima {
    rule: ReadyRule,
    by_chunk: Vec<u64>,
    least_ms: u64,
}

impl ReadyMinima {
    pub(super) fn least_ms(&self, rule: &ReadyRule) -> u64 {
        self.with(|minima| match minima {
            Some(minima) if minima.rule == *rule => minima.least_ms,
            _ => UNKNOWN,
        })
    }

    /// Passes the lower bounds of these chunks, of a page with `chunk_count` chunks, to `read`. Begins anew if the
    /// minima are those of another rule.
    pub(super) fn read<R>(
        &self,
        rule: &ReadyRule,
        chunk_count: usize,
        chunks: Range<usize>,
        read: impl FnOnce(&[u64]) -> R,
    ) -> R {
        self.with(|minima| {
            if minima.as_ref().is_none_or(|minima| minima.rule != *rule) {
                let by_chunk = vec![UNKNOWN; chunk_count];
                *minima = Some(Box::new(Minima { rule: *rule, by_chunk, least_ms: UNKNOWN }));
            }
            let Some(minima) = minima else { return read(&[]) };
            if chunks.len() == chunk_count {
                minima.least_ms = minima.by_chunk.iter().copied().fold(u64::MAX, u64::min);
            }
            read(&minima.by_chunk[chunks])
        })
    }

    /// Notes a better minimum of chunk `i` that a search has computed, if the minima are those of this rule.
    pub(super) fn note(&self, rule: &ReadyRule, i: usize, ready_at_ms: u64) {
        self.with(|minima| {
            if let Some(minima) = minima.as_mut().filter(|minima| minima.rule == *rule) {
                minima.by_chunk[i] = ready_at_ms;
            }
        });
    }

    pub(super) fn forget(&self) {
        self.with(|minima| *minima = None);
    }

    /// Updates the minima after a row was added to chunk `i`. A removal needs no update.
    #[inline(always)]
    pub(super) fn add(&mut self, i: usize, row: &PendingEntry) {
        if let Some(minima) = self.get_mut() {
            minima.add(i, row);
        }
    }

    /// Updates the minima after a chunk was appended that no search has examined.
    pub(super) fn push(&mut self) {
        if let Some(minima) = self.get_mut() {
            minima.by_chunk.push(UNKNOWN);
            minima.least_ms = UNKNOWN;
        }
    }

    /// Updates the minima after rows of chunk `i - 1` moved to a new chunk `i`.
    pub(super) fn split_into(&mut self, i: usize) {
        if let Some(minima) = self.get_mut() {
            minima.by_chunk.insert(i, minima.by_chunk[i - 1]);
        }
    }

    /// Updates the minima before chunk `i` is dropped. Its rows, if it has any, moved to chunk `into`.
    pub(super) fn drop_chunk(&mut self, i: usize, into: usize) {
        if let Some(minima) = self.get_mut() {
            let moved = minima.by_chunk.remove(i);
            if let Some(minimum) = minima.by_chunk.get_mut(into) {
                *minimum = moved.min(*minimum);
            }
        }
    }

    pub(super) fn allocated_bytes(&self, allocation: impl Fn(usize) -> usize) -> usize {
        self.with(|minima| {
            minima.as_ref().map_or(0, |minima| {
                allocation(size_of::<Minima>()) + allocation(minima.by_chunk.capacity() * size_of::<u64>())
            })
        })
    }

    #[cfg(test)]
    pub(super) fn copy_from(&self, other: &ReadyMinima) {
        let others = other.with(|minima| minima.clone());
        self.with(|minima| *minima = others);
    }

    /// Verifies that the minima are lower bounds for the ready times of `chunk_count` chunks. `exact` computes the
    /// minimum of a chunk.
    pub(super) fn check(
        &self,
        chunk_count: usize,
        exact: impl Fn(&ReadyRule, usize) -> u64,
    ) -> Result<(), String> {
        self.with(|minima| {
            let Some(minima) = minima else { return Ok(()) };
            if minima.by_chunk.len() != chunk_count {
                return Err(format!("a page of {chunk_count} chunks has {} minima", minima.by_chunk.len()));
            }
            for (i, minimum) in minima.by_chunk.iter().enumerate() {
                let first_ms = exact(&minima.rule, i);
                if *minimum > first_ms || minima.least_ms > *minimum {
                    return Err(format!(
                        "chunk {i}: a row is ready at {first_ms}, but the minimum is {minimum}, and that of the page {}",
                        minima.least_ms
                    ));
                }
            }
            Ok(())
        })
    }

    fn with<R>(&self, access: impl FnOnce(&mut Option<Box<Minima>>) -> R) -> R {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline(always)]
    fn get_mut(&mut self) -> Option<&mut Minima> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_deref_mut()
    }
}

impl Minima {
    #[cold]
    fn add(&mut self, i: usize, row: &PendingEntry) {
        if row.consumer.is_some() {
            let ready_at_ms = self.rule.ready_at_ms(row.id, row.delivered_at_ms, row.deliveries);
            self.by_chunk[i] = self.by_chunk[i].min(ready_at_ms);
            self.least_ms = self.least_ms.min(ready_at_ms);
        }
    }
}

impl Clone for ReadyMinima {
    fn clone(&self) -> ReadyMinima {
        ReadyMinima(Mutex::new(self.with(|minima| minima.clone())))
    }
}
