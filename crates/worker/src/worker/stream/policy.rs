//! The policy of a group, on a store that has policies. The worker leaves to the server what the policy does.
//!
//! ```text
//! LEASE         the worker's lease; the server removes pending entries whose payload is gone
//! MAXDELIVER    the server dead-letters, so a limit of the worker that is reached later has no effect
//! DLQ           the dead-letter stream, unless the builder sets another one
//! CONSUMERTTL   the server removes idle consumers
//! ```

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::backend::policy::Policy;

#[derive(Debug, Default)]
pub(crate) struct GroupPolicy(RwLock<Option<Arc<Policy>>>);

impl GroupPolicy {
    /// Returns the policy if it has a lease. Without one, nothing else is in force.
    fn get(&self) -> Option<Arc<Policy>> {
        self.0.read().clone()
    }

    /// Replaces the policy. Returns false if it was the same before.
    pub(crate) fn set(&self, policy: Option<Policy>) -> bool {
        let mut known = self.0.write();
        let is_new = known.as_deref() != policy.as_ref();
        *known = policy.map(Arc::new);
        is_new
    }

    pub(crate) fn lease(&self) -> Option<Duration> {
        self.get()?.lease_ms.map(Duration::from_millis)
    }

    /// Returns the dead-letter stream that the policy names.
    pub(crate) fn dead_letters(&self) -> Option<Arc<str>> {
        let key = self.get()?.dead_letters.clone()?;
        std::str::from_utf8(&key).ok().filter(|name| !name.is_empty()).map(Arc::from)
    }

    pub(crate) fn removes_consumers(&self) -> bool {
        self.get().is_some_and(|policy| policy.consumer_ttl_ms.is_some())
    }
}
