//! The delayed entries of all streams of a database, counted with each change. So the total costs the same with one
//! stream and with a million.

use std::collections::BTreeMap;

use crate::Value;

/// Totals of the delayed entries of several streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedTotals {
    /// Number of delayed entries.
    pub entries: u64,
    /// Total length of their names and values.
    pub text_bytes: u64,
    /// For each time at which the first entry of a stream is due, the number of these streams.
    first_due: BTreeMap<u64, u64>,
}

impl DelayedTotals {
    /// Returns when the first entry is due (Unix milliseconds); `None` if there is none.
    pub fn first_due_ms(&self) -> Option<u64> {
        self.first_due.first_key_value().map(|(due_ms, _)| *due_ms)
    }

    pub(super) fn add(&mut self, value: &Value) {
        let Some((entries, text_bytes, due_ms)) = counts(value) else { return };
        self.entries += entries;
        self.text_bytes += text_bytes;
        *self.first_due.entry(due_ms).or_default() += 1;
    }

    /// Removes the delayed entries of a value that was [added](DelayedTotals::add).
    pub(super) fn remove(&mut self, value: &Value) {
        let Some((entries, text_bytes, due_ms)) = counts(value) else { return };
        self.entries -= entries;
        self.text_bytes -= text_bytes;
        if let Some(streams) = self.first_due.get_mut(&due_ms) {
            *streams -= 1;
            if *streams == 0 {
                self.first_due.remove(&due_ms);
            }
        }
    }
}

/// Returns the number, the bytes and the first due time of the delayed entries of a value; `None` if it has none.
fn counts(value: &Value) -> Option<(u64, u64, u64)> {
    let Value::Stream(stream) = value else { return None };
    let delayed = stream.delayed()?;
    Some((delayed.len(), delayed.text_bytes(), stream.next_promotion_ms()?))
}
