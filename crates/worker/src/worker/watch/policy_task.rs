//! The task that follows the policy of a group. The worker reads it when it starts, and then once per minute. It never
//! changes the policy.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::backend::policy::Policy;
use crate::backend::{Error, ErrorKind};
use crate::worker::core::Core;
use crate::worker::stream::Subscription;

/// How often the worker reads the policy.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Reads the policy once. If the store does not reply, the worker keeps the policy that it knows.
pub(crate) async fn refresh(core: &Core, subscription: &Subscription) {
    let found = match core.backend.policy(&subscription.stream, Some(&subscription.group)).await {
        Ok(found) => found.map(|found| found.in_force).filter(|policy| policy.lease_ms.is_some()),
        Err(error) => {
            debug!(stream = &*subscription.stream, %error, "cannot read the policy of the group");
            return;
        }
    };
    if subscription.policy.set(found.clone()) {
        report(core, subscription, found.as_ref());
    }
}

/// Reads the policy once per minute, until the worker drains.
pub(crate) async fn watch(core: &Core, subscription: &Subscription) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.stretched(REFRESH_INTERVAL)) => refresh(core, subscription).await,
            () = core.draining.cancelled() => return,
        }
    }
}

/// Logs which policy is in force, and warns about settings of the worker that it overrides.
fn report(core: &Core, subscription: &Subscription, policy: Option<&Policy>) {
    let (stream, group) = (&*subscription.stream, &*subscription.group);
    let Some(policy) = policy else {
        info!(stream, group, "the group no longer has a policy: the worker's own settings apply");
        return;
    };
    info!(
        stream,
        group,
        lease_ms = policy.lease_ms,
        max_deliveries = policy.max_deliveries,
        "the group has a policy: its lease applies instead of the worker's"
    );
    if core.is_ordered() {
        core.fail(Error::new(
            ErrorKind::Refused,
            format!(
                "group {group} of stream {stream} has the policy LEASE, which redelivers messages on its own and would change \
                 their order: remove the policy (millstream group policy {stream} {group} --lease off), or work without --order-by, --exclusive and partitions"
            ),
        ));
        return;
    }
    let ours = core.settings.max_deliveries;
    if let Some(theirs) = policy.max_deliveries.filter(|theirs| *theirs < ours) {
        warn!(
            stream,
            group,
            "the policy of the group dead-letters a message after {theirs} deliveries, but the worker's limit is {ours}: \
             set both to the same number"
        );
    }
}
