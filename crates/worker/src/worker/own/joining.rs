//! Joins the group of a stream: checks permissions, creates the group, and takes over what the previous process with
//! the same consumer name left.

use std::sync::atomic::Ordering;

use tracing::warn;

use super::{consumer_name, predecessors};
use crate::backend::{Capability, Error, ErrorKind, Start, StreamId, WorkerAccess};
use crate::names;
use crate::worker::core::Core;
use crate::worker::settle::records;
use crate::worker::stream::Subscription;
use crate::worker::watch::policy_task::refresh;

/// Checks that the store allows everything that the worker does with a stream.
pub(crate) async fn check_access(core: &Core, subscription: &Subscription) -> Result<(), Error> {
    let Subscription { stream, group, .. } = subscription;
    let dead_letters = &*subscription.dead_letters();
    let seen = core.settings.dedupe.iter().map(|_| names::seen_key(stream, group, "0-0"));
    let written_keys: Vec<String> = seen.collect();
    let mut read_keys = vec![names::redrive_key(stream, group, "0-0", 1)];
    read_keys.extend(written_keys.iter().cloned());
    let mut hashes = vec![subscription.retry_key.clone()];
    let mut owned_for = None;
    // What belongs to the logical stream may be on another node than a partition.
    if subscription.logical == *stream {
        hashes.extend(core.settings.heartbeat.iter().map(|_| subscription.workers_key.clone()));
        if core.is_ordered() {
            hashes.push(names::members_key(stream, group));
            owned_for = Some((&**group, names::control_stream(stream, group)));
        }
    }
    let deletes_done = core.settings.delete_done;
    let access =
        WorkerAccess { stream, dead_letters, read_keys, written_keys, hashes, owned_for, deletes_done };
    core.backend.check_access(&access).await
}

/// Creates the group, and the stream if it does not exist.
pub(crate) async fn create_group(core: &Core, subscription: &Subscription) -> Result<(), Error> {
    check_store(core, subscription).await?;
    let Subscription { stream, group, .. } = subscription;
    if core.backend.create_group(stream, group, core.settings.start).await? {
        warn_if_never_used(core, subscription).await;
        if let Some(admin) = &core.admin {
            // Records of a deleted group with this name would delay messages, and count attempts, of the new one. If
            // this fails, a later search deletes them.
            let _ = records::delete_orphaned_now(&**admin, stream, group).await;
        }
    }
    refresh(core, subscription).await;
    Ok(())
}

/// Warns if the stream of a new group has never had an entry: its name may be misspelled.
async fn warn_if_never_used(core: &Core, subscription: &Subscription) {
    // The worker can go on without the answer.
    let Ok(Some(info)) = core.backend.stream(&subscription.stream).await else { return };
    if info.last_id == StreamId::MIN {
        warn!(
            stream = &*subscription.stream,
            group = &*subscription.group,
            "the stream has never had a message: waiting for the first one; if you expected messages, check the name of the stream"
        );
    }
}

/// Joins a stream that a pattern has found. Returns false if it does not exist any more.
pub(crate) async fn join_existing(
    core: &Core,
    subscription: &Subscription,
    start: Start,
) -> Result<bool, Error> {
    check_store(core, subscription).await?;
    if !core.backend.join_group(&subscription.stream, &subscription.group, start).await? {
        return Ok(false);
    }
    refresh(core, subscription).await;
    claim_name(core, subscription).await?;
    release_history(core, subscription).await;
    Ok(true)
}

/// Learns what the store can do, and checks that the worker can keep its retry records.
async fn check_store(core: &Core, subscription: &Subscription) -> Result<(), Error> {
    // If the key holds another type, the worker must not begin: it could settle no message that fails.
    core.backend.hash_len(&subscription.retry_key).await.map_err(|error| not_a_hash(subscription, error))?;
    let read_claims = core.backend.supports(Capability::ReadClaims, &subscription.stream).await?;
    core.read_claims.store(read_claims, Ordering::Relaxed);
    Ok(())
}

/// Says which key has the wrong type, if this is the error.
fn not_a_hash(subscription: &Subscription, error: Error) -> Error {
    if error.kind() != ErrorKind::WrongType {
        return error;
    }
    let key = &subscription.retry_key;
    let message = format!(
        "cannot keep retry records in {key}: the key exists and is not a hash; delete or rename it ({error})"
    );
    Error::new(ErrorKind::WrongType, message).with_source(error)
}

/// Waits until no other live worker has the worker's consumer name, if the next process can have the same name.
pub(crate) async fn claim_name(core: &Core, subscription: &Subscription) -> Result<(), Error> {
    if core.settings.survives_restart && core.settings.heartbeat.is_some() {
        consumer_name::claim(core, subscription).await?;
    }
    Ok(())
}

/// Releases the entries that the previous process with this consumer name left pending.
pub(crate) async fn release_history(core: &Core, subscription: &Subscription) {
    // A worker that orders messages takes over all pending entries.
    if core.settings.survives_restart && !core.is_ordered() {
        predecessors::release_history(core, subscription).await;
    }
}
