//! `millstream consumer`: lists the consumers of a group, and removes one without losing its pending entries.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::Admin;
use millstream_worker::backend::ConsumerInfo;
use millstream_worker::monitor::{GroupSnapshot, Monitor, PartitionOwners};
use millstream_worker::operate::consumers::rows;
use millstream_worker::operate::operation::{EffectAnswer, Operate};
use millstream_worker::operate::partitions::removal_of_consumer;
use millstream_worker::operate::shapes;
use serde_json::json;

use super::apply::apply_plan;
use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::group_args::GroupArgs;
use super::lookup;
use super::output::{note, print, print_json, print_line};
use super::partitions_args::{PartitionsArgs, WatchedGroup};
use super::safe_text::printable;
use super::shell;
use super::table::{Table, row};
use super::target::Target;
use super::value::{ABSENT, age_or_absent, count, counted};
use super::workers;

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream consumer ls orders billing
  millstream consumer rm orders billing worker-2 --heir worker-1 --yes";

const LS_EXAMPLES: &str = "\
Examples:
  millstream consumer ls orders billing
  millstream consumer ls orders billing --json
  millstream consumer ls orders billing --partitions";

const RM_EXAMPLES: &str = "\
Examples:
  millstream consumer rm orders billing worker-2 --heir worker-1 --yes

The heir takes over the pending entries of the consumer in the same step, so none is lost.";

#[derive(Debug, Subcommand)]
pub(crate) enum ConsumerAction {
    /// List the consumers of a group
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        #[command(flatten)]
        group_args: GroupArgs,
        #[command(flatten)]
        partitions: PartitionsArgs,
    },
    /// Remove a consumer and move its pending entries to another one
    #[command(after_help = RM_EXAMPLES)]
    Rm(RemoveConsumer),
}

#[derive(Args, Debug)]
pub(crate) struct RemoveConsumer {
    #[command(flatten)]
    group_args: GroupArgs,
    /// Consumer to remove
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    consumer: String,
    /// Consumer that takes over the pending entries; required if there are any
    #[arg(long, value_name = "NAME")]
    heir: Option<String>,
    /// Print what would be done, without doing it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl ConsumerAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            ConsumerAction::Ls { group_args, partitions } => list(common, group_args, *partitions).await,
            ConsumerAction::Rm(remove) => remove.run(common).await,
        }
    }
}

async fn list(
    common: &CommonOptions,
    GroupArgs { stream, group }: &GroupArgs,
    partitions: PartitionsArgs,
) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let found = lookup::group_snapshot(&backend, stream, group).await?;
    let watched = partitions.watch(&Monitor::new(backend), vec![found]).await?;
    let Some(WatchedGroup { group: found, owners }) = watched.into_iter().next() else { return Ok(()) };
    if common.json {
        let mut json = json!(shapes::consumers(&found.consumers, &found.workers));
        if partitions.partitions {
            for consumer in json.as_array_mut().into_iter().flatten() {
                let name = consumer["consumer"].as_str().unwrap_or_default();
                consumer["partitions"] = json!(numbers_of(&found, &owners, name));
            }
        }
        return print_json(&json);
    }
    let rows = rows(&found.consumers, &found.workers);
    if rows.is_empty() {
        note(&format!("group {} of stream {} has no consumers", printable(group), printable(stream)));
    }
    let rows = rows.iter().map(|row| {
        let [host, pid, busy, heartbeat, state] = workers::worker_cells(row);
        let mut cells = row![
            row.name,
            count(row.consumer.map_or(0, |consumer| consumer.pending)),
            age_or_absent(row.consumer.map(|consumer| consumer.idle)),
            age_or_absent(row.consumer.and_then(|consumer| consumer.inactive)),
            host,
            pid,
            busy,
            heartbeat,
            state,
        ];
        if partitions.partitions {
            let numbers =
                numbers_of(&found, &owners, row.name).iter().map(ToString::to_string).collect::<Vec<_>>();
            cells.push(if numbers.is_empty() { ABSENT.into() } else { numbers.join(" ").into() });
        }
        cells
    });
    let mut titles =
        vec!["CONSUMER", ">PENDING", ">IDLE", ">INACTIVE", "HOST", ">PID", ">BUSY", ">HEARTBEAT", "STATE"];
    titles.extend(partitions.partitions.then_some("PARTITIONS"));
    print(Table::new(&titles, rows))
}

/// Returns the consumers of a group, sorted by name. Those of several partitions are merged by name.
pub(super) async fn all_consumers(
    backend: &dyn Admin,
    target: &Target,
    group: &str,
) -> Result<Vec<ConsumerInfo>, Failure> {
    let mut merged: BTreeMap<String, ConsumerInfo> = BTreeMap::new();
    for part in &target.parts {
        for consumer in backend.consumers(&part.stream, group).await? {
            match merged.entry(consumer.name.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(consumer)),
                Entry::Occupied(mut entry) => {
                    let known = entry.get_mut();
                    known.pending = known.pending.saturating_add(consumer.pending);
                    known.idle = known.idle.min(consumer.idle);
                    known.inactive = known.inactive.into_iter().chain(consumer.inactive).min();
                }
            }
        }
    }
    Ok(merged.into_values().collect())
}

fn numbers_of(group: &GroupSnapshot, owners: &PartitionOwners, consumer: &str) -> Vec<usize> {
    owners.iter().filter(|(_, owner)| group.name_of(owner) == consumer).map(|(number, _)| *number).collect()
}

impl RemoveConsumer {
    async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let RemoveConsumer { group_args: GroupArgs { stream, group }, consumer, heir, dry_run, confirm } =
            self;
        let backend = common.connect().await?;
        let target = Target::with_group(&*backend, stream, group).await?;
        let consumers = all_consumers(&*backend, &target, group).await?;
        let Some(found) = consumers.iter().find(|found| found.name == *consumer) else {
            return Err(lookup::no_consumer(stream, group, consumer, &consumers));
        };
        let entries = |number| counted(number, "pending entry", "pending entries");
        let heir_is_new =
            heir.as_ref().is_some_and(|heir| !consumers.iter().any(|other| other.name == *heir));
        let remove = format!(
            "remove {} from group {} of {}",
            printable(consumer),
            printable(group),
            printable(stream)
        );
        let action = match heir {
            Some(heir) => {
                let new = if heir_is_new { ", a new consumer" } else { "" };
                format!("{remove} and move {} to {}{new}", entries(found.pending), printable(heir))
            }
            None if found.pending == 0 => remove,
            None => {
                return Err(Failure::Usage(format!(
                    "consumer {} has {}: pass --heir NAME to name the consumer that takes them over\nother consumers: {}",
                    printable(consumer),
                    entries(found.pending),
                    others(&consumers, consumer)
                )));
            }
        };
        let operation = removal_of_consumer(&backend, stream, group, consumer, heir.as_deref()).await?;
        let mut plan = operation.plan(&backend, None).await?;
        plan.effect.heir_is_new = heir_is_new;
        let mut effect = plan.effect.clone();
        if !*dry_run {
            confirm.ask(&action).await?;
            effect = apply_plan(&backend, &operation, &plan, false).await?;
            effect.heir_is_new = heir_is_new;
        }
        let removal = effect.clone();
        if common.json {
            print_json(&EffectAnswer::without_preview(effect, *dry_run))?;
            return match removal.left {
                0 => Ok(()),
                left => Err(stays(&self.group_args, consumer, left)),
            };
        }
        if *dry_run {
            return print_line(&format!("would {action}"));
        }
        let (name, heir) = (printable(consumer), printable(removal.heir.unwrap_or_default()));
        let moved = format!("{} moved to {heir}", entries(removal.moved));
        match (removal.left, removal.moved) {
            (0, 0) => print_line(&format!("removed {name}; it had no pending entries"))?,
            (0, _) => print_line(&format!("removed {name}; {moved}"))?,
            (left, _) => {
                print_line(&format!("did not remove {name}; {moved}"))?;
                return Err(stays(&self.group_args, consumer, left));
            }
        }
        if heir_is_new {
            note(&format!("{heir} is a new consumer of group {}", printable(group)));
        }
        Ok(())
    }
}

/// The consumer still has pending entries that the stream no longer has.
fn stays(GroupArgs { stream, group }: &GroupArgs, consumer: &str, left: u64) -> Failure {
    let list = shell::suggest("pending ls", &[stream, group], &shell::option("--consumer", consumer));
    Failure::Other(format!(
        "consumer {} still has {}, and this server cannot move what was deleted\n\
         workers of the group will dead-letter it; or list it with: {list}\n\
         then acknowledge it with `millstream pending ack`, and remove the consumer again",
        printable(consumer),
        counted(
            left,
            "pending entry: the stream no longer has it",
            "pending entries: the stream no longer has them"
        ),
    ))
}

fn others(consumers: &[ConsumerInfo], except: &str) -> String {
    let others = consumers.iter().filter(|other| other.name != except);
    let names: Vec<String> = others.map(|other| printable(&other.name)).collect();
    if names.is_empty() { "none; a new name creates a consumer".to_owned() } else { names.join(", ") }
}
