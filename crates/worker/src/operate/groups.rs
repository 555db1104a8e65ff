//! Moving and removing groups, and removing consumers, each with a [`Plan`].

use std::sync::Arc;

use super::plan::{Executed, Plan, bound_of};
use crate::backend::{Admin, Error, ErrorKind, StreamId};
use crate::group_manager::{GroupManager, Position, RemovedConsumer, ResetPlan};

/// Plans to move a group to another position.
pub async fn plan_reset(
    groups: &GroupManager,
    stream: &str,
    group: &str,
    to: Position<'_>,
) -> Result<Plan<ResetPlan>, Error> {
    Ok(reset_plan(groups.preview_reset(stream, group, to).await?, to))
}

/// Moves a group to the position in the plan.
///
/// `to` is what the plan was made for. The plan is out of date if the group has moved since. A store that can do so compares
/// and moves in one step ([`move_group_from`](crate::backend::ChangeStore::move_group_from)).
pub async fn reset(
    groups: &GroupManager,
    stream: &str,
    group: &str,
    to: Position<'_>,
    digest: &str,
    force: bool,
) -> Result<Executed<ResetPlan, ResetPlan>, Error> {
    // Entries that were added since the preview do not change where the group goes.
    let bound = Position::After(bound_of(digest));
    let plan = reset_plan(groups.preview_reset(stream, group, bound).await?, to);
    if plan.digest != digest {
        return Ok(Executed::Outdated(plan_reset(groups, stream, group, to).await?));
    }
    if !force && !plan.effect.active_consumers.is_empty() {
        return Ok(Executed::InUse(plan));
    }
    match groups.reset_unless_moved(&plan.effect).await? {
        true => Ok(Executed::Done(plan.effect)),
        false => Ok(Executed::Outdated(plan_reset(groups, stream, group, to).await?)),
    }
}

fn reset_plan(effect: ResetPlan, to: Position<'_>) -> Plan<ResetPlan> {
    let target = effect.after.last_delivered;
    let seen = (&effect.stream, &effect.group, effect.before.last_delivered, to);
    let digest = Plan::new((), target, &seen).digest;
    Plan { effect, digest }
}

/// The removal of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupRemoval {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// Number of its consumers.
    pub consumers: u64,
    /// Number of its pending entries. They are lost to the group.
    pub pending: u64,
    /// The active consumers. Their next calls fail.
    pub active_consumers: Vec<String>,
}

impl GroupRemoval {
    /// Adds the removal of the same group of another partition.
    pub fn add(&mut self, other: GroupRemoval) {
        self.pending = self.pending.saturating_add(other.pending);
        self.consumers = self.consumers.saturating_add(other.consumers);
        self.active_consumers.extend(other.active_consumers);
        self.active_consumers.sort_unstable();
        self.active_consumers.dedup();
    }
}

/// Plans to remove a group with its pending list.
pub async fn plan_removal(
    backend: &Arc<dyn Admin>,
    stream: &str,
    group: &str,
) -> Result<Plan<GroupRemoval>, Error> {
    let found = backend.groups(stream).await?.into_iter().find(|found| found.name == group);
    let found = found.ok_or_else(|| no_group(stream, group))?;
    let groups = GroupManager::new(Arc::clone(backend));
    let effect = GroupRemoval {
        stream: stream.to_owned(),
        group: group.to_owned(),
        consumers: found.consumers,
        pending: found.pending,
        active_consumers: groups.active_consumers(stream, group).await?,
    };
    let seen = ("remove group", stream, group, found.consumers, found.pending);
    Ok(Plan::new(effect, found.last_delivered, &seen))
}

/// Removes a group. The plan is out of date if the group has delivered entries since, or has other consumers or another
/// number of pending entries.
pub async fn remove(
    backend: &Arc<dyn Admin>,
    stream: &str,
    group: &str,
    digest: &str,
    force: bool,
) -> Result<Executed<GroupRemoval, GroupRemoval>, Error> {
    let plan = plan_removal(backend, stream, group).await?;
    if !force && !plan.effect.active_consumers.is_empty() {
        return Ok(Executed::InUse(plan));
    }
    if plan.digest != digest {
        return Ok(Executed::Outdated(plan));
    }
    match GroupManager::new(Arc::clone(backend)).delete(stream, group).await? {
        true => Ok(Executed::Done(plan.effect)),
        false => Err(no_group(stream, group)),
    }
}

/// The removal of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerRemoval {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// The name of the consumer.
    pub consumer: String,
    /// The consumer that takes over the pending entries, if the caller named one.
    pub heir: Option<String>,
    /// Whether the heir is not a consumer of the group yet.
    pub heir_is_new: bool,
    /// Number of pending entries that move.
    pub pending: u64,
}

/// Plans to remove a consumer and to move its pending entries to an heir.
///
/// Fails if the consumer does not exist, or has pending entries and no heir.
pub async fn plan_consumer_removal(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    consumer: &str,
    heir: Option<&str>,
) -> Result<Plan<ConsumerRemoval>, Error> {
    let consumers = backend.consumers(stream, group).await?;
    let find = |name: &str| consumers.iter().find(|found| found.name == name);
    let found = find(consumer)
        .ok_or_else(|| refused(format!("group {group} of stream {stream} has no consumer {consumer}")))?;
    if found.pending > 0 && heir.is_none() {
        return Err(refused(format!(
            "consumer {consumer} has {} pending entries; name an heir that takes them over",
            found.pending
        )));
    }
    if heir == Some(consumer) {
        return Err(refused(format!("consumer {consumer} cannot be its own heir; name another consumer")));
    }
    let effect = ConsumerRemoval {
        stream: stream.to_owned(),
        group: group.to_owned(),
        consumer: consumer.to_owned(),
        heir: heir.map(str::to_owned),
        heir_is_new: heir.is_some_and(|heir| find(heir).is_none()),
        pending: found.pending,
    };
    let seen = effect.clone();
    Ok(Plan::new(effect, StreamId::MIN, &seen))
}

/// Removes a consumer. The plan is out of date if the consumer has another number of pending entries.
pub async fn remove_consumer(
    backend: &Arc<dyn Admin>,
    stream: &str,
    group: &str,
    consumer: &str,
    heir: Option<&str>,
    digest: &str,
) -> Result<Executed<ConsumerRemoval, RemovedConsumer>, Error> {
    let plan = plan_consumer_removal(&**backend, stream, group, consumer, heir).await?;
    if plan.digest != digest {
        return Ok(Executed::Outdated(plan));
    }
    let groups = GroupManager::new(Arc::clone(backend));
    Ok(Executed::Done(groups.remove_consumer(stream, group, consumer, heir).await?))
}

fn no_group(stream: &str, group: &str) -> Error {
    Error::new(ErrorKind::NoGroup, format!("stream {stream} has no group {group}"))
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}
