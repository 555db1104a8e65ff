//! The members of a group: each worker says in one hash which partitions it owns, about twice per second.
//!
//! ```json
//! {"consumer":"web-3-412-0a1b2c","at_ms":1760000000000,"held":[0,3,5]}
//! ```
//!
//! Members decide who should own what, never who owns it: that is what leases do. A worker that drains removes its
//! field.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Error};

/// How often a worker says what it owns.
pub(crate) const INTERVAL: Duration = Duration::from_millis(450);
/// A worker that has said nothing for this long gets no partitions.
pub(super) const SILENT_AFTER_MS: u64 = 1_000;
/// A worker that has said nothing for this long is forgotten.
const FORGOTTEN_AFTER_MS: u64 = 60_000;

/// What a worker says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MemberRecord {
    pub(crate) consumer: String,
    /// When it said this, by the clock of the store.
    pub(crate) at_ms: u64,
    /// The numbers of the partitions that it owns.
    pub(crate) held: BTreeSet<usize>,
}

/// Publishes what this worker owns, and returns what each live worker owns, this one included.
pub(crate) async fn exchange(
    backend: &dyn Backend,
    stream: &str,
    key: &str,
    instance: &str,
    mut record: MemberRecord,
) -> Result<BTreeMap<String, BTreeSet<usize>>, Error> {
    record.at_ms = backend.now_ms(stream).await?;
    let json = Bytes::from(serde_json::to_vec(&record).unwrap_or_default());
    backend.hash_set(key, &[(instance.to_owned(), json)]).await?;
    let (mut live, mut forgotten) = (BTreeMap::new(), Vec::new());
    for (member, json) in backend.hash_get_all(key).await? {
        // A record that is no JSON counts as one from 1970.
        let found: MemberRecord = serde_json::from_slice(&json).unwrap_or_default();
        match record.at_ms.saturating_sub(found.at_ms) {
            0..SILENT_AFTER_MS => drop(live.insert(member, found.held)),
            SILENT_AFTER_MS..FORGOTTEN_AFTER_MS => {}
            FORGOTTEN_AFTER_MS.. => forgotten.push(member),
        }
    }
    if !forgotten.is_empty() {
        backend.hash_delete(key, &forgotten).await?;
    }
    live.insert(instance.to_owned(), record.held);
    Ok(live)
}
