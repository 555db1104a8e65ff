//! Partitions: where they are, who owns them, and their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::backend::{Admin, Error, ErrorKind, LookDetail, StreamOwner};
use crate::group_manager::GroupManager;
use crate::heartbeat::known_workers;
use crate::names::{control_stream, dead_letters_of, members_key};
use crate::partitions::{Partitions, logical_name, partitions_key};
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

/// The removal of all partitions of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

/// Finds out what a removal of all partitions of a stream removes.
pub async fn plan_removal(
    backend: &Arc<dyn Admin>,
    partitions: &Partitions,
) -> Result<PartitionsRemoval, Error> {
    let groups = GroupManager::new(Arc::clone(backend));
    let mut plan = PartitionsRemoval {
        stream: partitions.stream().to_string(),
        partitions: partitions.len() as u64,
        ..PartitionsRemoval::default()
    };
    for name in partitions.names() {
        let Some(info) = backend.stream(name).await? else { continue };
        plan.entries = plan.entries.saturating_add(info.length);
        plan.dead_letters = plan
            .dead_letters
            .saturating_add(backend.stream(&dead_letters_of(name)).await?.map_or(0, |info| info.length));
        for group in backend.groups(name).await? {
            plan.active_consumers.extend(groups.active_consumers(name, &group.name).await?);
            plan.groups.insert(group.name);
        }
    }
    Ok(plan)
}

/// Removes all partitions of a stream with their groups, their default dead-letter streams and what workers remember about them.
///
/// If it fails, call it again: the list is removed after the streams. The fences of owners stay, so that an owner of partitions
/// that are created later cannot have the number of an earlier one.
pub async fn remove(backend: &Arc<dyn Admin>, partitions: &Partitions) -> Result<(), Error> {
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

/// Removes a group from all partitions, and what its workers remember. Returns false if no partition has it.
pub async fn remove_group(
    backend: &Arc<dyn Admin>,
    partitions: &Partitions,
    group: &str,
) -> Result<bool, Error> {
    let (groups, stream) = (GroupManager::new(Arc::clone(backend)), partitions.stream());
    let mut is_removed = false;
    for name in partitions.names() {
        is_removed |= match groups.delete(name, group).await {
            // The partition is gone.
            Err(error) if error.kind() == ErrorKind::NoGroup => false,
            deleted => deleted?,
        };
    }
    groups.delete_records(stream, group).await?;
    groups.delete_hash(&members_key(stream, group)).await?;
    backend.delete_stream(&control_stream(stream, group)).await?;
    Ok(is_removed)
}
