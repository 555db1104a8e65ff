//! Partitions: where they are, who owns them, and their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::groups::{RemoveConsumer, RemoveGroup};
use super::operation::{Admins, Done, Effect, OnParts, OnProgress, Operate, Planned};
use super::plan::Plan;
use crate::backend::{Admin, Error, ErrorKind, LookDetail, StreamId, StreamOwner};
use crate::group_manager::GroupManager;
use crate::heartbeat::known_workers;
use crate::names::{control_stream, dead_letters_of, members_key};
use crate::partitions::{Named, Partitions, logical_name, partitions_key};
use crate::slots::slot_of;

/// A partition of a logical stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionInfo {
    /// Its number.
    pub number: usize,
    /// Its name in the store.
    pub stream: String,
    /// Its slot in a cluster.
    pub slot: u16,
    /// The node that has it. `None` if the store is not a cluster.
    pub node: Option<String>,
    /// Number of its entries. `None` if the stream does not exist.
    pub length: Option<u64>,
    /// Who owns it, in each of its groups.
    pub owners: Vec<GroupOwner>,
}

/// The owner of a partition in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOwner {
    /// The name of the group.
    pub group: String,
    /// The worker that owns the partition, or owned it last. `None` if none ever did, or if the user may not know.
    pub owner: Option<StreamOwner>,
    /// The consumer name of that worker, if it sends heartbeats.
    pub consumer: Option<String>,
}

impl GroupOwner {
    /// Returns the worker that owns the partition now.
    pub fn current(&self) -> Option<&StreamOwner> {
        self.owner.as_ref().filter(|owner| !owner.lease_left.is_zero())
    }
}

/// Returns all logical streams with partitions whose names match a glob pattern, in the order of their names.
pub async fn list(backend: &dyn Admin) -> Result<Vec<Partitions>, Error> {
    let names = backend.streams("*:{*}.*").await?;
    let logical: BTreeSet<&str> = names.iter().filter_map(|name| logical_name(name)).collect();
    let mut found = Vec::new();
    for stream in logical {
        found.extend(Partitions::find(backend, stream).await?);
    }
    Ok(found)
}

/// Returns the names of the streams that a name stands for: that of one stream, or those of all partitions.
///
/// With a group, only those of partitions that have it. If none does, returns the first, where a plan then fails.
pub async fn parts_of(backend: &dyn Admin, name: &str, group: Option<&str>) -> Result<Vec<String>, Error> {
    let partitions = match Named::find(backend, name).await? {
        Named::Stream(stream) => return Ok(vec![stream.to_string()]),
        Named::Partitions(partitions) => partitions,
    };
    let mut found = Vec::new();
    for part in partitions.names() {
        let has_it = match group {
            None => true,
            Some(group) => backend.groups(part).await?.iter().any(|known| known.name == group),
        };
        found.extend(has_it.then(|| part.to_owned()));
    }
    if found.is_empty() {
        found.extend(partitions.names().first().map(|part| (*part).to_owned()));
    }
    Ok(found)
}

/// Returns the removal of a group from a stream, or from all partitions that have it.
pub async fn removal_of_group(
    backend: &Arc<dyn Admin>,
    stream: &str,
    group: &str,
) -> Result<OnParts<RemoveGroup>, Error> {
    let parts = parts_of(&**backend, stream, Some(group)).await?;
    let is_logical = matches!(Named::find(&**backend, stream).await?, Named::Partitions(_));
    let remove = |stream| RemoveGroup { stream, group: group.to_owned(), forget: None };
    let mut operation = OnParts::new(stream, parts, remove);
    if let (true, Some(last)) = (is_logical, operation.parts.last_mut()) {
        last.forget = Some(stream.to_owned());
    }
    Ok(operation)
}

/// Returns the removal of a consumer from a group of a stream, or of all partitions where it is one.
pub async fn removal_of_consumer(
    backend: &Arc<dyn Admin>,
    stream: &str,
    group: &str,
    consumer: &str,
    heir: Option<&str>,
) -> Result<OnParts<RemoveConsumer>, Error> {
    let parts = parts_of(&**backend, stream, Some(group)).await?;
    let mut with_consumer = Vec::new();
    for part in &parts {
        let consumers = backend.consumers(part, group).await?;
        with_consumer.extend(consumers.iter().any(|found| found.name == consumer).then(|| part.clone()));
    }
    // If there is no such consumer, the plan fails.
    let parts = if with_consumer.is_empty() { parts } else { with_consumer };
    Ok(OnParts::new(stream, parts, |stream| RemoveConsumer {
        stream,
        group: group.to_owned(),
        consumer: consumer.to_owned(),
        heir: heir.map(str::to_owned),
    }))
}

/// Describes the partitions of a stream, in the order of their numbers.
pub async fn describe(backend: &dyn Admin, partitions: &Partitions) -> Result<Vec<PartitionInfo>, Error> {
    let names: Vec<String> = partitions.names().into_iter().map(str::to_owned).collect();
    let looks = backend.look(&names, &LookDetail::none()).await?;
    let mut consumers: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut described = Vec::with_capacity(names.len());
    for (number, (stream, look)) in names.into_iter().zip(looks).enumerate() {
        let look = look?;
        let mut owners = Vec::new();
        for group in look.iter().flat_map(|look| &look.groups) {
            let group = group.info.name.clone();
            if !consumers.contains_key(&group) {
                let workers = known_workers(backend, partitions.stream(), &group).await?.into_iter();
                let names = workers.map(|worker| (worker.heartbeat.instance, worker.heartbeat.consumer));
                consumers.insert(group.clone(), names.collect());
            }
            let owner = match backend.owner(&stream, &group).await {
                Err(error) if error.kind() == ErrorKind::Denied => None,
                owner => owner?,
            };
            let consumer = owner.as_ref().and_then(|owner| consumers[&group].get(&owner.instance).cloned());
            owners.push(GroupOwner { group, owner, consumer });
        }
        described.push(PartitionInfo {
            number,
            slot: slot_of(&stream),
            node: backend.node_of(&stream),
            length: look.map(|look| look.length),
            owners,
            stream,
        });
    }
    Ok(described)
}

/// Removes all partitions of a stream with their groups, their default dead-letter streams and what workers remember
/// about them.
///
/// If it fails, do it again: the list is removed after the streams. The fences of owners stay, so that an owner of
/// partitions that are created later cannot have the number of an earlier one.
#[derive(Clone, Debug)]
pub struct RemovePartitions(pub Partitions);

/// The removal of all partitions of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PartitionsRemoval {
    /// The name of the logical stream.
    pub stream: String,
    /// Number of partitions.
    pub partitions: u64,
    /// Number of entries of all partitions.
    pub entries: u64,
    /// Number of dead letters in the default dead-letter streams of the partitions.
    pub dead_letters: u64,
    /// The names of the groups.
    pub groups: BTreeSet<String>,
    /// The active consumers of all groups. Their next calls fail.
    pub active_consumers: BTreeSet<String>,
    /// Whether they were removed.
    pub removed: bool,
}

/// The plan is out of date if the partitions have other groups, or have their first entries or dead letters.
impl Operate for RemovePartitions {
    type Effect = PartitionsRemoval;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<PartitionsRemoval> {
        let groups = GroupManager::new(Arc::clone(backend));
        let mut removal = PartitionsRemoval {
            stream: self.0.stream().to_string(),
            partitions: self.0.len() as u64,
            ..PartitionsRemoval::default()
        };
        for name in self.0.names() {
            let Some(info) = backend.stream(name).await? else { continue };
            let dead = backend.stream(&dead_letters_of(name)).await?.map_or(0, |info| info.length);
            removal.entries = removal.entries.saturating_add(info.length);
            removal.dead_letters = removal.dead_letters.saturating_add(dead);
            for group in backend.groups(name).await? {
                removal.active_consumers.extend(groups.active_consumers(name, &group.name).await?);
                removal.groups.insert(group.name);
            }
        }
        let PartitionsRemoval { stream, partitions, entries, dead_letters, groups, .. } = removal.clone();
        let seen = (stream, partitions, entries > 0, dead_letters > 0, groups);
        Ok(Plan::new(removal, StreamId::MIN, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<PartitionsRemoval>,
        _: OnProgress<'_, PartitionsRemoval>,
    ) -> Done<PartitionsRemoval> {
        remove(backend, &self.0).await?;
        Ok(Some(PartitionsRemoval { removed: true, ..plan.effect }))
    }
}

impl Effect for PartitionsRemoval {
    fn matched(&self) -> u64 {
        self.partitions
    }

    fn active_consumers(&self) -> Vec<String> {
        self.active_consumers.iter().cloned().collect()
    }
}

async fn remove(backend: &Arc<dyn Admin>, partitions: &Partitions) -> Result<(), Error> {
    let groups = GroupManager::new(Arc::clone(backend));
    let mut seen = BTreeSet::new();
    for name in partitions.names() {
        seen.extend(backend.groups(name).await?.into_iter().map(|group| group.name));
    }
    for group in &seen {
        remove_group(backend, partitions, group).await?;
    }
    for name in partitions.names() {
        backend.delete_stream(name).await?;
        backend.delete_stream(&dead_letters_of(name)).await?;
    }
    groups.delete_hash(&partitions_key(partitions.stream())).await?;
    // While there was a list, a producer may have created a partition again.
    for name in partitions.names() {
        backend.delete_stream(name).await?;
    }
    Ok(())
}

/// Removes a group from all partitions, and what its workers remember.
async fn remove_group(backend: &Arc<dyn Admin>, partitions: &Partitions, group: &str) -> Result<(), Error> {
    let groups = GroupManager::new(Arc::clone(backend));
    for name in partitions.names() {
        match groups.delete(name, group).await {
            // The partition is gone.
            Err(error) if error.kind() == ErrorKind::NoGroup => {}
            deleted => drop(deleted?),
        }
    }
    forget_group(backend, partitions.stream(), group).await
}

/// Removes what the workers of a group of a logical stream remember.
pub(super) async fn forget_group(backend: &Arc<dyn Admin>, stream: &str, group: &str) -> Result<(), Error> {
    let groups = GroupManager::new(Arc::clone(backend));
    groups.delete_records(stream, group).await?;
    groups.delete_hash(&members_key(stream, group)).await?;
    backend.delete_stream(&control_stream(stream, group)).await.map(drop)
}
