//! Since when findings of the doctor have been there, as far as this process knows.

use std::time::SystemTime;

use millstream_worker::operate::wording::millis_since_epoch;
use serde_json::{Map, Value};

/// When findings were first seen, for each visitor.
#[derive(Default)]
pub(crate) struct FirstSeen {
    by_visitor: parking_lot::Mutex<Map<String, Value>>,
}

impl FirstSeen {
    /// Maximum number of visitors whose findings are remembered.
    const VISITORS_MAX: usize = 100;

    /// Remembers the findings that are there now, forgets the others, and returns when each was first seen.
    pub(crate) fn update(&self, visitor: &str, ids: impl Iterator<Item = String>) -> Map<String, Value> {
        let now_ms = millis_since_epoch(SystemTime::now());
        let mut all = self.by_visitor.lock();
        if all.len() >= FirstSeen::VISITORS_MAX && !all.contains_key(visitor) {
            all.clear();
        }
        let before = all.remove(visitor).unwrap_or_default();
        let known = ids.map(|id| {
            let since = before.get(&id).cloned().unwrap_or_else(|| now_ms.into());
            (id, since)
        });
        let known: Map<String, Value> = known.collect();
        all.insert(visitor.to_owned(), Value::Object(known.clone()));
        known
    }
}
