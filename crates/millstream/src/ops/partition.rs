//! `millstream partition`: creates, lists and removes the partitions of a stream.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::operate::operation::{EffectAnswer, Operate};
use millstream_worker::operate::partitions::{self, GroupOwner, PartitionInfo, RemovePartitions};
use millstream_worker::operate::shapes::PartitionJson;
use millstream_worker::partitions::{Partitions, partitions_key};
use serde_json::{Value, json};

use super::apply::apply_plan;
use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{note, print, print_json, print_line};
use super::safe_text::printable;
use super::shell::{option, suggest};
use super::table::{Cell, Table, row};
use super::value::{ABSENT, count, counted};

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream partition create payments 24 --order-by account
  millstream partition ls payments
  millstream partition rm payments --dry-run";

const CREATE_EXAMPLES: &str = "\
Examples:
  millstream partition create payments 24 --order-by account
  millstream partition create events 8

The number of partitions cannot be changed later. Choose several times the number of nodes and workers that you will ever \
have.";

const LS_EXAMPLES: &str = "\
Examples:
  millstream partition ls
  millstream partition ls payments
  millstream partition ls payments --json";

const RM_EXAMPLES: &str = "\
Examples:
  millstream partition rm payments --dry-run
  millstream partition rm payments --yes --force

All entries, groups and dead letters of the partitions are removed too. While consumers read from a partition, the command \
needs --force.";

#[derive(Debug, Subcommand)]
pub(crate) enum PartitionAction {
    /// Create the partitions of a stream if it has none
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// Name of the stream; no stream of this name may have entries
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        /// Number of partitions, from 1 to 1024
        count: usize,
        /// Field that holds the key: all messages with the same value are in one partition, and workers handle them in
        /// order
        #[arg(long, value_name = "FIELD", value_parser = NonEmptyStringValueParser::new())]
        order_by: Option<String>,
    },
    /// List streams with partitions, or the partitions of one stream and their owners
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        /// Stream name [default: all streams with partitions]
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: Option<String>,
    },
    /// Remove the partitions of a stream with all entries, groups and dead letters
    #[command(after_help = RM_EXAMPLES)]
    Rm {
        /// Stream name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        /// Print what would be removed, without removing it
        #[arg(long)]
        dry_run: bool,
        /// Remove the partitions even if consumers are active
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl PartitionAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            PartitionAction::Create { stream, count, order_by } => {
                create(common, stream, *count, order_by.as_deref()).await
            }
            PartitionAction::Ls { stream: None } => list_streams(common).await,
            PartitionAction::Ls { stream: Some(stream) } => list(common, stream).await,
            PartitionAction::Rm { stream, dry_run, force, confirm } => {
                remove(common, stream, *dry_run, *force, *confirm).await
            }
        }
    }
}

async fn create(
    common: &CommonOptions,
    stream: &str,
    number: usize,
    order_by: Option<&str>,
) -> Result<(), Failure> {
    let plan =
        Partitions::plan(stream, number, order_by).map_err(|error| Failure::Usage(error.to_string()))?;
    let backend = common.connect_or_create().await?;
    let created = plan.create(&*backend).await?;
    if common.json {
        let mut json = stream_json(&plan);
        json["created"] = json!(created);
        return print_json(&json);
    }
    let what = described(&plan);
    print_line(&match created {
        true => format!("created {what}"),
        false => format!("{what} exist already"),
    })
}

/// Describes the partitions of a stream: `24 partitions of orders by customer`.
fn described(partitions: &Partitions) -> String {
    let key = partitions.key_field().map_or_else(String::new, |field| format!(" by {}", printable(field)));
    let number = counted(partitions.len() as u64, "partition", "partitions");
    format!("{number} of {}{key}", printable(&**partitions.stream()))
}

fn stream_json(partitions: &Partitions) -> Value {
    json!({
        "stream": &**partitions.stream(),
        "partitions": partitions.len(),
        "key": partitions.key_field(),
        "list": partitions_key(partitions.stream()),
        "streams": partitions.names(),
    })
}

/// Returns the partitions of a stream that must have some.
async fn find(backend: &dyn Admin, stream: &str) -> Result<Partitions, Failure> {
    if let Some(found) = Partitions::find(backend, stream).await? {
        return Ok(found);
    }
    let others: Vec<String> =
        partitions::list(backend).await?.iter().map(|found| found.stream().to_string()).collect();
    Err(lookup::not_found(
        &format!("stream {} has no partitions in {}", printable(stream), backend.location()),
        "streams with partitions",
        &others,
        &format!("create them with: {}", suggest("partition create", &[stream, "COUNT"], "")),
    ))
}

async fn list_streams(common: &CommonOptions) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let (mut found, mut json) = (Vec::new(), Vec::new());
    for partitions in partitions::list(&*backend).await? {
        let names: Vec<String> = partitions.names().into_iter().map(str::to_owned).collect();
        let mut entries = 0_u64;
        for length in backend.lengths(&names).await? {
            entries = entries.saturating_add(length?);
        }
        let mut stream = stream_json(&partitions);
        stream["length"] = json!(entries);
        json.push(stream);
        found.push(row![
            &**partitions.stream(),
            count(partitions.len() as u64),
            partitions.key_field().unwrap_or(ABSENT),
            count(entries),
        ]);
    }
    if common.json {
        return print_json(&json);
    }
    if found.is_empty() {
        note(&format!("no streams with partitions in {}", backend.location()));
    }
    print(Table::new(&["STREAM", ">PARTITIONS", "KEY", ">LENGTH"], found))
}

async fn list(common: &CommonOptions, stream: &str) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let found = find(&*backend, stream).await?;
    let described = partitions::describe(&*backend, &found).await?;
    if common.json {
        let mut json = stream_json(&found);
        json["partition_list"] = json!(described.iter().map(PartitionJson::new).collect::<Vec<_>>());
        return print_json(&json);
    }
    let is_cluster = described.iter().any(|partition| partition.node.is_some());
    let titles: &[&str] = match is_cluster {
        true => &[">PARTITION", "STREAM", ">SLOT", "NODE", ">LENGTH", "GROUP", "OWNER", ">FENCE"],
        false => &[">PARTITION", "STREAM", ">LENGTH", "GROUP", "OWNER", ">FENCE"],
    };
    print(Table::new(titles, described.iter().flat_map(|partition| rows(partition, is_cluster))))?;
    let missing = described.iter().filter(|partition| partition.length.is_none()).count() as u64;
    if missing > 0 {
        note(&format!(
            "{} of {} not exist; the next message creates it",
            counted(missing, "partition", "partitions"),
            if missing == 1 { "these does" } else { "these do" },
        ));
    }
    Ok(())
}

/// Returns a row for each group. The values of the partition are in its first row.
fn rows(partition: &PartitionInfo, is_cluster: bool) -> Vec<Vec<Cell>> {
    let absent = || [ABSENT; 3].map(str::to_owned);
    let mut groups: Vec<[String; 3]> = partition.owners.iter().map(owner_cells).collect();
    if groups.is_empty() {
        groups.push(absent());
    }
    let mut cells = vec![partition.number.to_string(), partition.stream.clone()];
    if is_cluster {
        let node = partition.node.clone().unwrap_or_else(|| ABSENT.to_owned());
        cells.extend([partition.slot.to_string(), node]);
    }
    cells.push(partition.length.map_or_else(|| ABSENT.to_owned(), count));
    let columns = cells.len();
    let row = |group: [String; 3]| {
        let partition = std::mem::replace(&mut cells, vec![String::new(); columns]);
        partition.into_iter().chain(group).map(Cell::from).collect()
    };
    groups.into_iter().map(row).collect()
}

fn owner_cells(found: &GroupOwner) -> [String; 3] {
    let current = found.current();
    let owner = current.map(|owner| found.consumer.as_deref().unwrap_or(&owner.instance).to_owned());
    let fence = found.owner.as_ref().map(|owner| owner.fence.to_string());
    [
        found.group.clone(),
        owner.unwrap_or_else(|| ABSENT.to_owned()),
        fence.unwrap_or_else(|| ABSENT.to_owned()),
    ]
}

async fn remove(
    common: &CommonOptions,
    stream: &str,
    dry_run: bool,
    force: bool,
    confirm: Confirm,
) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let found = find(&*backend, stream).await?;
    let operation = RemovePartitions(found.clone());
    let plan = operation.plan(&backend, None).await?;
    let mut effect = plan.effect.clone();
    let active: Vec<String> = effect.active_consumers.iter().map(printable).collect();
    let what = format!(
        "{} with {}, {} and {}",
        described(&found),
        counted(effect.entries, "entry", "entries"),
        counted(effect.groups.len() as u64, "group", "groups"),
        counted(effect.dead_letters, "dead letter", "dead letters"),
    );
    if !dry_run {
        if !force && !active.is_empty() {
            return Err(Failure::Other(format!(
                "the partitions of {} have active consumers: {}\nstop them and wait a minute, or pass --force",
                printable(stream),
                active.join(", ")
            )));
        }
        confirm.ask(&format!("permanently remove {what}")).await?;
        effect = apply_plan(&backend, &operation, &plan, force).await?;
    }
    if common.json {
        return print_json(&EffectAnswer::without_preview(effect, dry_run));
    }
    if !dry_run {
        print_line(&format!("removed {what}"))?;
        note(&format!(
            "producers and workers that run now still look for the partitions: stop them, or create the partitions again with: \
             {}",
            suggest(
                "partition create",
                &[stream, &found.len().to_string()],
                &found.key_field().map_or_else(String::new, |field| option("--order-by", field)),
            )
        ));
        return Ok(());
    }
    print_line(&format!("would remove {what}"))?;
    if !active.is_empty() {
        note(&format!("active consumers: {}; removing the partitions needs --force", active.join(", ")));
    }
    Ok(())
}
