//! Moving and removing groups, and removing consumers.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::operation::{Admins, Done, Effect, OnProgress, Operate, Planned};
use super::partitions::forget_group;
use super::plan::{Plan, bound_of};
use crate::backend::{Error, ErrorKind, StreamId};
use crate::group_manager::{GroupManager, Position, ResetPlan};

/// Moves a group to another position.
#[derive(Clone, Debug)]
pub struct ResetGroup {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// Where to move it.
    pub to: Position,
}

/// The plan is out of date if the group has moved. Entries that were added since do not change where the group goes. A
/// store that can do so compares and moves in one step
/// ([`move_group_from`](crate::backend::ChangeStore::move_group_from)).
impl Operate for ResetGroup {
    type Effect = ResetPlan;

    async fn plan(&self, backend: &Admins, planned: Option<&str>) -> Planned<ResetPlan> {
        let to = planned.map_or(self.to.clone(), |planned| Position::After(bound_of(planned)));
        let groups = GroupManager::new(Arc::clone(backend));
        let effect = groups.preview_reset(&self.stream, &self.group, to).await?;
        let seen = (&self.stream, &self.group, effect.before.last_delivered, &self.to);
        let digest = Plan::new((), effect.after.last_delivered, &seen).digest;
        Ok(Plan::with_digest(effect, digest))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<ResetPlan>,
        _: OnProgress<'_, ResetPlan>,
    ) -> Done<ResetPlan> {
        let is_moved = GroupManager::new(Arc::clone(backend)).reset_unless_moved(&plan.effect).await?;
        Ok(is_moved.then_some(ResetPlan { executed: true, ..plan.effect }))
    }
}

impl Effect for ResetPlan {
    fn active_consumers(&self) -> Vec<String> {
        self.active_consumers.clone()
    }

    fn record(&self) -> Vec<(&'static str, Value)> {
        let id = |id: StreamId| json!(id.to_string());
        vec![("from_id", id(self.before.last_delivered)), ("to_id", id(self.after.last_delivered))]
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.stream)
    }

    fn add(&mut self, other: ResetPlan) {
        self.pending = self.pending.saturating_add(other.pending);
        merge(&mut self.active_consumers, other.active_consumers);
    }
}

/// Removes a group with its pending list.
#[derive(Clone, Debug)]
pub struct RemoveGroup {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// The logical stream whose workers forget the group too, because this is its last partition.
    pub forget: Option<String>,
}

/// The removal of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GroupRemoval {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// Whether it was removed.
    pub removed: bool,
    /// Number of its consumers.
    #[serde(skip)]
    pub consumers: u64,
    /// Number of its pending entries. They are lost to the group.
    #[serde(rename = "pending_dropped")]
    pub pending: u64,
    /// The active consumers. Their next calls fail.
    pub active_consumers: Vec<String>,
}

/// The plan is out of date if the group has delivered entries since, or has other consumers or another number of
/// pending entries.
impl Operate for RemoveGroup {
    type Effect = GroupRemoval;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<GroupRemoval> {
        let (stream, group) = (&self.stream, &self.group);
        let found = backend.groups(stream).await?.into_iter().find(|found| found.name == *group);
        let found = found.ok_or_else(|| no_group(stream, group))?;
        let groups = GroupManager::new(Arc::clone(backend));
        let effect = GroupRemoval {
            stream: stream.clone(),
            group: group.clone(),
            removed: false,
            consumers: found.consumers,
            pending: found.pending,
            active_consumers: groups.active_consumers(stream, group).await?,
        };
        let seen = ("remove group", stream, group, found.consumers, found.pending);
        Ok(Plan::new(effect, found.last_delivered, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<GroupRemoval>,
        _: OnProgress<'_, GroupRemoval>,
    ) -> Done<GroupRemoval> {
        if !GroupManager::new(Arc::clone(backend)).delete(&self.stream, &self.group).await? {
            return Err(no_group(&self.stream, &self.group));
        }
        if let Some(logical) = &self.forget {
            forget_group(backend, logical, &self.group).await?;
        }
        Ok(Some(GroupRemoval { removed: true, ..plan.effect }))
    }
}

impl Effect for GroupRemoval {
    fn active_consumers(&self) -> Vec<String> {
        self.active_consumers.clone()
    }

    fn record(&self) -> Vec<(&'static str, Value)> {
        vec![("pending_dropped", json!(self.pending))]
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.stream)
    }

    fn add(&mut self, other: GroupRemoval) {
        self.pending = self.pending.saturating_add(other.pending);
        self.consumers = self.consumers.saturating_add(other.consumers);
        merge(&mut self.active_consumers, other.active_consumers);
    }
}

fn merge(names: &mut Vec<String>, others: Vec<String>) {
    let all: BTreeSet<String> = names.drain(..).chain(others).collect();
    names.extend(all);
}

/// Removes a consumer, and moves its pending entries to an heir.
#[derive(Clone, Debug)]
pub struct RemoveConsumer {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// The name of the consumer.
    pub consumer: String,
    /// The consumer that takes over the pending entries. Required if there are any.
    pub heir: Option<String>,
}

/// The removal of a consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ConsumerRemoval {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// The name of the consumer.
    pub consumer: String,
    /// The consumer, unless it stays because not all of its entries could be moved.
    pub removed: Option<String>,
    /// Number of pending entries that could not be moved.
    pub left: u64,
    /// The consumer that takes over the pending entries.
    pub heir: Option<String>,
    /// Whether the heir was not a consumer of the group.
    pub heir_is_new: bool,
    /// Number of pending entries that move.
    pub moved: u64,
}

/// The plan is out of date if the consumer has another number of pending entries.
impl Operate for RemoveConsumer {
    type Effect = ConsumerRemoval;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<ConsumerRemoval> {
        let RemoveConsumer { stream, group, consumer, heir } = self;
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
        if heir.as_ref() == Some(consumer) {
            return Err(refused(format!(
                "consumer {consumer} cannot be its own heir; name another consumer"
            )));
        }
        let effect = ConsumerRemoval {
            stream: stream.clone(),
            group: group.clone(),
            consumer: consumer.clone(),
            removed: Some(consumer.clone()),
            left: 0,
            heir: heir.clone(),
            heir_is_new: heir.as_ref().is_some_and(|heir| find(heir).is_none()),
            moved: found.pending,
        };
        let seen = effect.clone();
        Ok(Plan::new(effect, StreamId::MIN, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<ConsumerRemoval>,
        _: OnProgress<'_, ConsumerRemoval>,
    ) -> Done<ConsumerRemoval> {
        let (groups, heir) = (GroupManager::new(Arc::clone(backend)), self.heir.as_deref());
        let done = groups.remove_consumer(&self.stream, &self.group, &self.consumer, heir).await?;
        Ok(Some(ConsumerRemoval {
            removed: (done.left == 0).then_some(done.consumer),
            left: done.left,
            heir: done.heir,
            moved: done.adopted,
            ..plan.effect
        }))
    }
}

impl Effect for ConsumerRemoval {
    fn matched(&self) -> u64 {
        self.moved
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.stream)
    }

    fn add(&mut self, other: ConsumerRemoval) {
        self.moved = self.moved.saturating_add(other.moved);
        self.left = self.left.saturating_add(other.left);
        self.heir_is_new &= other.heir_is_new;
        self.removed = self.removed.take().and(other.removed);
    }
}

fn no_group(stream: &str, group: &str) -> Error {
    Error::new(ErrorKind::NoGroup, format!("stream {stream} has no group {group}"))
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}
