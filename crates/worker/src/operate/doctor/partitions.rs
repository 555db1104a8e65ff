//! Findings about logical streams: whether their partitions exist, are spread over the nodes, and have equal shares of
//! the work.

use super::finding::{DoctorFinding, Subject};
use crate::backend::Admin;
use crate::heartbeat::WorkerInfo;
use crate::monitor::{GroupSnapshot, Health, Partitioned, StreamSnapshot};
use crate::operate::command::{Command, WayOut};
use crate::operate::wording::{count, counted};

/// A partition is reported if it has at least this many times the average of the others.
const UNEVEN_FACTOR: u64 = 4;
/// A partition with fewer entries ever added than this is not reported as fuller than the others.
const FULL_MIN: u64 = 10_000;
/// A partition with a smaller lag than this is not reported as slower than the others.
const SLOW_MIN: u64 = 1_000;

/// Returns the findings about the partitions of a logical stream. None for an ordinary stream.
pub(super) fn findings(backend: &dyn Admin, stream: &StreamSnapshot) -> Vec<DoctorFinding> {
    let Some(partitioned) = &stream.partitioned else { return Vec::new() };
    let subject = || Subject::Stream(stream.name.clone());
    let finding = |(health, code, text, way_out)| DoctorFinding {
        health,
        code,
        subject: subject(),
        consumer: None,
        text,
        way_out,
    };
    let found = [
        missing(stream, partitioned),
        plain(stream, partitioned),
        spread(backend, partitioned),
        full(stream),
    ];
    let of_groups = stream.groups.iter().flat_map(|group| of_group(stream, group));
    found.into_iter().flatten().map(finding).chain(of_groups).collect()
}

/// Returns the findings about the partitions of a group.
pub(super) fn of_group(stream: &StreamSnapshot, group: &GroupSnapshot) -> Vec<DoctorFinding> {
    let finding = |(health, code, text, way_out)| DoctorFinding {
        health,
        code,
        subject: Subject::group_of(&group.stream, &group.name),
        consumer: None,
        text,
        way_out,
    };
    [without_group(stream, group), slow(group), too_many_workers(group)]
        .into_iter()
        .flatten()
        .map(finding)
        .collect()
}

/// The parts of a finding that differ: health, code, text and way out.
type PartitionProblem = (Health, &'static str, String, WayOut);

/// Partitions that are in the list, but whose streams do not exist.
fn missing(stream: &StreamSnapshot, partitioned: &Partitioned) -> Option<PartitionProblem> {
    let missing = partitioned.missing();
    let first = partitioned.list.name(*missing.first()?)?;
    let group = stream.groups.first().map_or("GROUP", |group| &group.name);
    let text = format!(
        "{} in the list, but {} not exist: {}",
        counted(missing.len() as u64, "partition is", "partitions are"),
        if missing.len() == 1 { "its stream does" } else { "their streams do" },
        numbers(&missing)
    );
    let way_out = WayOut::text(
        "find out who deleted it, and restore it from a backup if its messages matter; an empty stream is created with: ",
    )
    .run(Command::new("group create", &[first, group]));
    Some((Health::Critical, "partition_missing", text, way_out))
}

/// Entries in a stream that has the name of the logical one.
fn plain(stream: &StreamSnapshot, partitioned: &Partitioned) -> Option<PartitionProblem> {
    let length = partitioned.plain.as_ref().map(|plain| plain.info.length).filter(|length| *length > 0)?;
    let text = format!(
        "{} added to the stream {} itself, and not to a partition: no worker reads {}",
        counted(length, "entry was", "entries were"),
        stream.name,
        if length == 1 { "it" } else { "them" },
    );
    let way_out = WayOut::text(format!(
        "let the producer use the partitions; see what it adds with: redis-cli XRANGE '{}' - + COUNT 10; add the entries to \
         the partitions, and delete this stream",
        stream.name
    ));
    Some((Health::Degraded, "unpartitioned_entries", text, way_out))
}

/// Nodes of a cluster that have many more partitions than others.
fn spread(backend: &dyn Admin, partitioned: &Partitioned) -> Option<PartitionProblem> {
    let per_node = backend.keys_per_node(&partitioned.list.names());
    let (most, most_at) = per_node.iter().map(|(node, keys)| (*keys, node)).max()?;
    let (fewest, fewest_at) = per_node.iter().map(|(node, keys)| (*keys, node)).min()?;
    let partitions = partitioned.list.len();
    if most < fewest + 2 || 2 * most * per_node.len() < 3 * partitions {
        return None;
    }
    let text = format!(
        "the partitions are spread unevenly over the cluster: node {most_at} has {most} of {partitions}, node {fewest_at} has \
         {fewest}"
    );
    let way_out = WayOut::text(format!(
        "spread the slots evenly over the nodes with: redis-cli --cluster rebalance {most_at} --cluster-use-empty-masters"
    ));
    Some((Health::Degraded, "partitions_uneven", text, way_out))
}

/// A partition that got many more entries than the others.
fn full(stream: &StreamSnapshot) -> Option<PartitionProblem> {
    let added = |part: &StreamSnapshot| part.info.entries_added.unwrap_or(part.info.length);
    let shares = stream.parts().iter().filter_map(|part| Some((part.number()?, added(part))));
    let (number, most, average) = outlier(shares, FULL_MIN)?;
    let part = stream.parts().iter().find(|part| part.number() == Some(number))?;
    let text = format!(
        "partition {number} got {}, each of the others {} on average: some keys have most of the messages",
        counted(most, "entry", "entries"),
        count(average)
    );
    let way_out = WayOut::text("find these keys with: ").run(Command::new("tail", &[&part.name])).then(
        "; then use a key with more values: more partitions do not help, because a key has one partition",
    );
    Some((Health::Ok, "hot_partition", text, way_out))
}

/// A partition that is much further behind than the others.
fn slow(group: &GroupSnapshot) -> Option<PartitionProblem> {
    let shares = group.parts.iter().filter_map(|part| Some((part.number()?, part.lag.count)));
    let (number, most, average) = outlier(shares, SLOW_MIN)?;
    let text = format!(
        "partition {number} has {}, each of the others {} on average: its keys get more messages, or its worker is slower",
        counted(most, "unread entry", "unread entries"),
        count(average)
    );
    let way_out = WayOut::text("see which worker owns it with: ")
        .run(Command::new("group describe", &[&group.stream, &group.name]).flag("--partitions"))
        .then("; if all workers are equally fast, use a key with more values");
    Some((Health::Degraded, "slow_partition", text, way_out))
}

/// Partitions on which the group does not exist.
fn without_group(stream: &StreamSnapshot, group: &GroupSnapshot) -> Option<PartitionProblem> {
    let has_group = |part: &StreamSnapshot| group.parts.iter().any(|found| found.number() == part.number());
    let without: Vec<&str> =
        stream.parts().iter().filter(|part| !has_group(part)).map(|part| &*part.name).collect();
    let first = without.first()?;
    let text = format!(
        "the group does not exist on {}: nobody reads {} messages",
        counted(without.len() as u64, "partition", "partitions"),
        if without.len() == 1 { "its" } else { "their" }
    );
    let way_out = WayOut::text("a worker of the group creates it when it starts; or create it with: ")
        .run(Command::new("group create", &[first, &group.name]));
    Some((Health::Degraded, "partition_without_group", text, way_out))
}

/// Workers that stand by, because there are more of them than partitions.
fn too_many_workers(group: &GroupSnapshot) -> Option<PartitionProblem> {
    let alive = group.workers.iter().filter(|worker: &&WorkerInfo| worker.is_alive()).count();
    let idle = alive.checked_sub(group.partitions).filter(|idle| *idle > 0)?;
    let text = format!(
        "{} for {}: {} nothing to do until another one ends",
        counted(alive as u64, "worker", "workers"),
        counted(group.partitions as u64, "partition", "partitions"),
        counted(idle as u64, "worker has", "workers have")
    );
    let way_out = WayOut::text(
        "stop them, or keep them in case others crash; to use them, give each worker more --concurrency, or use a stream with more \
         partitions",
    );
    Some((Health::Ok, "more_workers_than_partitions", text, way_out))
}

/// Returns the number of the partition that has much more than the others, what it has, and the average of the others.
fn outlier(shares: impl Iterator<Item = (usize, u64)>, least: u64) -> Option<(usize, u64, u64)> {
    let shares: Vec<(usize, u64)> = shares.collect();
    let (number, most) = shares.iter().copied().max_by_key(|(_, share)| *share)?;
    let others = (shares.len() as u64).checked_sub(1).filter(|others| *others > 0)?;
    let total = shares.iter().map(|(_, share)| *share).fold(0, u64::saturating_add);
    let average = total.saturating_sub(most) / others;
    (most >= least && most >= average.saturating_mul(UNEVEN_FACTOR)).then_some((number, most, average))
}

/// Lists numbers; only the first ones of many.
fn numbers(all: &[usize]) -> String {
    let first: Vec<String> = all.iter().take(10).map(ToString::to_string).collect();
    let more = if all.len() > first.len() { ", …" } else { "" };
    first.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_has_much_more_than_the_others_is_found() {
        let found = |shares: &[u64]| outlier(shares.iter().copied().enumerate(), 1_000);
        assert_eq!(found(&[100, 4_000, 900, 1_100]), Some((1, 4_000, 700)));
        assert_eq!(found(&[100, 2_799, 900, 1_100]), None, "less than four times the average of the others");
        assert_eq!(found(&[0, 999]), None, "too few to judge");
        assert_eq!(found(&[0, 1_000]), Some((1, 1_000, 0)));
        assert_eq!((found(&[1_000_000]), found(&[])), (None, None), "no others to compare with");
    }
}
