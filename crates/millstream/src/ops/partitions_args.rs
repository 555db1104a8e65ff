//! The option `--partitions` of all commands that watch, and the cells that it adds to their tables.

use std::sync::Arc;

use clap::Args;
use millstream_worker::monitor::{GroupSnapshot, Limits, Monitor, PartitionOwners, StreamSnapshot};
use millstream_worker::operate::shapes;
use serde_json::{Value, json};

use super::failure::Failure;
use super::table::Cell;
use super::value::ABSENT;

/// Whether a command shows the partitions of logical streams.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct PartitionsArgs {
    /// Show the partitions of partitioned streams too
    #[arg(long)]
    pub(crate) partitions: bool,
}

/// A group as a command shows it: with the owners of its partitions, if the user asked for partitions.
pub(crate) struct WatchedGroup {
    pub(crate) group: GroupSnapshot,
    pub(crate) owners: PartitionOwners,
}

impl PartitionsArgs {
    /// Adds the owners of partitions to groups, if the user asked for partitions.
    pub(crate) async fn watch(
        self,
        monitor: &Monitor,
        groups: Vec<GroupSnapshot>,
    ) -> Result<Vec<WatchedGroup>, Failure> {
        let mut watched = Vec::with_capacity(groups.len());
        for group in groups {
            let owners = match self.partitions {
                true => monitor.owners(&group).await?,
                false => PartitionOwners::new(),
            };
            watched.push(WatchedGroup { group, owners });
        }
        Ok(watched)
    }

    /// Adds the partitions of a group to its JSON, if the user asked for them.
    pub(crate) fn add_to(self, json: &mut Value, watched: &WatchedGroup) {
        if self.partitions && watched.group.partitions > 0 {
            json["partitions"] = json!(shapes::partitions(&watched.group, &watched.owners));
        }
    }

    /// Returns the titles of a table, with those of the owners after the second one if the user asked for partitions.
    pub(crate) fn titles(self, titles: &[&'static str]) -> Vec<&'static str> {
        let mut titles = titles.to_vec();
        if self.partitions {
            titles.splice(2..2, ["OWNER", ">FENCE"]);
        }
        titles
    }

    /// Returns the rows of a group and, if the user asked for them, of its partitions. `cells` returns the cells of
    /// one of them, the first two of which are its names.
    pub(crate) fn rows(
        self,
        watched: &WatchedGroup,
        cells: impl Fn(&GroupSnapshot) -> Vec<Cell>,
    ) -> Vec<Vec<Cell>> {
        let mut rows = vec![cells(&watched.group)];
        if !self.partitions {
            return rows;
        }
        rows.extend(watched.group.parts.iter().map(|part| cells(part)));
        let owners = std::iter::once(None).chain(watched.group.parts.iter().map(|part| part.number()));
        for (row, number) in rows.iter_mut().zip(owners) {
            let owner = number.and_then(|number| watched.owners.get(&number));
            let name = owner.map_or(ABSENT, |owner| watched.group.name_of(owner));
            let fence = owner.map_or_else(|| ABSENT.to_owned(), |owner| owner.fence.to_string());
            row.splice(2..2, [Cell::from(name), Cell::from(fence)]);
        }
        rows
    }

    /// Returns a stream and, if the user asked for them, its partitions.
    pub(crate) fn streams(self, stream: &StreamSnapshot) -> Vec<&StreamSnapshot> {
        let parts = stream.parts().iter().filter(|_| self.partitions).map(Arc::as_ref);
        std::iter::once(stream).chain(parts).collect()
    }
}

/// Returns the name of a stream for people: `orders/3` for a partition.
pub(crate) fn stream_name(stream: &StreamSnapshot) -> String {
    stream.part_of.as_ref().map_or_else(|| stream.name.clone(), ToString::to_string)
}

/// Returns the name of the stream of a group for people: `orders/3` for a partition.
pub(crate) fn stream_of(group: &GroupSnapshot) -> String {
    group.part_of.as_ref().map_or_else(|| group.stream.clone(), ToString::to_string)
}

/// Returns the cell that names the partition that needs attention first.
pub(crate) fn worst_cell(group: &GroupSnapshot) -> String {
    let worst = group.worst_part(&Limits::default()).and_then(GroupSnapshot::number);
    worst.map_or_else(|| ABSENT.to_owned(), |number| number.to_string())
}
