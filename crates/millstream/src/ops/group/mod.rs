//! `millstream group`: lists, creates, describes, resets and removes consumer groups, and sets their policies.

mod active;
mod describe;
mod reset;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::backend::Start;
use millstream_worker::monitor::{GroupSnapshot, Monitor};
use millstream_worker::operate::groups::GroupRemoval;
use millstream_worker::operate::operation::{EffectAnswer, Operate};
use millstream_worker::operate::partitions::removal_of_group;
use millstream_worker::operate::shapes::GroupJson;
use serde_json::{Value, json};

use super::apply::apply_plan;
use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::group_args::GroupArgs;
use super::lookup;
use super::output::{note, print, print_json, print_line};
use super::partitions_args::{PartitionsArgs, WatchedGroup, stream_of};
use super::policy;
use super::safe_text::printable;
use super::table::{Table, row};
use super::target::Target;
use super::time::{Position, parse_position};
use super::value::{age_or_absent, count, counted, format_lag};

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream group ls orders
  millstream group create orders mailing --from latest
  millstream group describe orders billing
  millstream group reset orders billing --to-earliest";

const LS_EXAMPLES: &str = "\
Examples:
  millstream group ls
  millstream group ls orders
  millstream group ls 'orders*' --json
  millstream group ls orders --partitions";

const CREATE_EXAMPLES: &str = "\
Examples:
  millstream group create orders mailing
  millstream group create orders mailing --from latest
  millstream group create orders mailing --from 2026-11-15T10:30:00Z

If the stream does not exist, it is created too, and a note says so. If its name differs from that of an existing stream by one \
character, the command fails with exit code 4 unless you pass --mkstream. An existing group is not changed.";

const RM_EXAMPLES: &str = "\
Examples:
  millstream group rm orders billing --dry-run
  millstream group rm orders billing --yes --force

While consumers read from the group, the command needs --force.";

#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// List groups with their lag
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        /// Only streams whose names match this glob pattern
        #[arg(default_value = "*")]
        pattern: String,
        #[command(flatten)]
        partitions: PartitionsArgs,
    },
    /// Create a group if it does not exist
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        #[command(flatten)]
        group_args: GroupArgs,
        /// Position to start at: earliest, latest, an id, a time, or a duration before now such as 10m
        #[arg(long, value_name = "POSITION", default_value = "earliest", value_parser = parse_position)]
        from: Position,
        /// Create the stream too, even if its name looks mistyped
        #[arg(long)]
        mkstream: bool,
    },
    /// Show the progress of a group and its consumers
    #[command(after_help = describe::EXAMPLES)]
    Describe {
        /// Stream name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        /// Group name [default: all groups of the stream]
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        group: Option<String>,
        #[command(flatten)]
        partitions: PartitionsArgs,
    },
    /// Show or set the policy of a group: lease, limits, dead letters, back-off
    #[command(after_help = policy::GROUP_EXAMPLES)]
    Policy(Box<policy::GroupPolicyCommand>),
    /// Move a group to another position; without --execute, only show the change
    #[command(after_help = reset::EXAMPLES, override_usage = reset::USAGE)]
    Reset(reset::ResetCommand),
    /// Remove a group with its consumers and its pending list
    #[command(after_help = RM_EXAMPLES)]
    Rm {
        #[command(flatten)]
        group_args: GroupArgs,
        #[command(flatten)]
        removal: Removal,
    },
}

/// How a group is removed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Removal {
    /// Print what would be removed, without removing it
    #[arg(long)]
    dry_run: bool,
    /// Remove the group even if consumers are active
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl GroupAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            GroupAction::Ls { pattern, partitions } => list(common, pattern, *partitions).await,
            GroupAction::Create { group_args, from, mkstream } => {
                create(common, group_args, *from, *mkstream).await
            }
            GroupAction::Describe { stream, group, partitions } => {
                describe::run(common, stream, group.as_deref(), *partitions).await
            }
            GroupAction::Policy(policy) => policy.run(common).await,
            GroupAction::Reset(reset) => reset.run(common).await,
            GroupAction::Rm { group_args, removal } => remove(common, group_args, *removal).await,
        }
    }
}

async fn list(common: &CommonOptions, pattern: &str, partitions: PartitionsArgs) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let location = backend.location();
    let monitor = Monitor::new(backend.clone());
    // A stream that is named without wildcards must exist.
    let streams = match lookup::is_pattern(pattern) {
        true => monitor.streams(pattern).await?,
        false => vec![lookup::snapshot(&backend, pattern).await?],
    };
    let groups = streams.into_iter().flat_map(|stream| stream.groups).collect();
    let groups = partitions.watch(&monitor, groups).await?;
    if common.json {
        let json = |watched: &WatchedGroup| {
            let mut json = json!(GroupJson::new(&watched.group));
            partitions.add_to(&mut json, watched);
            json
        };
        return print_json(&groups.iter().map(json).collect::<Value>());
    }
    if groups.is_empty() {
        note(&format!("no groups found for streams that match {} in {location}", printable(pattern)));
    }
    let titles = [
        "STREAM",
        "GROUP",
        ">CONSUMERS",
        ">LAG",
        ">PENDING",
        ">OLDEST-UNREAD",
        ">OLDEST-PENDING",
        "LAST-DELIVERED",
    ];
    let cells = |group: &GroupSnapshot| {
        row![
            stream_of(group),
            &group.name,
            count(group.consumers.len() as u64),
            format_lag(group.lag),
            count(group.pending),
            age_or_absent(group.unread_age()),
            age_or_absent(group.pending_age()),
            group.last_delivered.to_string(),
        ]
    };
    let rows = groups.iter().flat_map(|watched| partitions.rows(watched, cells));
    print(Table::new(&partitions.titles(&titles), rows))
}

async fn create(
    common: &CommonOptions,
    GroupArgs { stream, group }: &GroupArgs,
    from: Position,
    mkstream: bool,
) -> Result<(), Failure> {
    let backend = common.connect_or_create().await?;
    let target = Target::find(&*backend, stream).await?;
    let is_new_stream = !target.has_partitions() && lookup::find_stream(&*backend, stream).await?.is_none();
    if is_new_stream
        && !mkstream
        && let Some(similar) = lookup::similar_stream(&*backend, stream).await?
    {
        return Err(Failure::NotFound(format!(
            "stream {} does not exist; do you mean {}?\nto create this stream too, add --mkstream",
            printable(stream),
            printable(similar)
        )));
    }
    let (mut created, mut parts) = (0, Vec::new());
    let mut last_delivered = String::new();
    for part in &target.parts {
        let is_new = backend.create_group(&part.stream, group, start_of(from)).await;
        let is_new = is_new.map_err(|error| lookup::stream_error(&part.stream, error))?;
        last_delivered = lookup::group(&*backend, &part.stream, group).await?.last_delivered.to_string();
        created += usize::from(is_new);
        parts.push(part.mark(json!({ "created": is_new, "last_delivered": last_delivered })));
    }
    if is_new_stream {
        note(&format!("stream {} did not exist: created it, without entries", printable(stream)));
    }
    if common.json {
        let mut json = json!({ "stream": stream, "group": group, "created": created > 0 });
        match target.has_partitions() {
            true => json["partitions"] = parts.into(),
            false => json["last_delivered"] = json!(last_delivered),
        }
        return print_json(&json);
    }
    let (stream, group) = (printable(stream), printable(group));
    print_line(&match (created, target.parts.len()) {
        (0, number) if target.has_partitions() => {
            format!("group {group} already exists on all {number} partitions of {stream}")
        }
        (created, number) if target.has_partitions() => {
            format!("created group {group} on {created} of the {number} partitions of {stream}")
        }
        (0, _) => {
            format!("group {group} of {stream} already exists; its last delivered id is {last_delivered}")
        }
        _ => format!("created group {group} of {stream}; it starts after {last_delivered}"),
    })
}

async fn remove(
    common: &CommonOptions,
    GroupArgs { stream, group }: &GroupArgs,
    Removal { dry_run, force, confirm }: Removal,
) -> Result<(), Failure> {
    let backend = common.connect().await?;
    Target::with_group(&*backend, stream, group).await?;
    let operation = removal_of_group(&backend, stream, group).await?;
    let plan = operation.plan(&backend, None).await?;
    let GroupRemoval { pending, consumers, active_consumers: active, .. } = &plan.effect;
    let entries = counted(*pending, "pending entry", "pending entries");
    let consumers = counted(*consumers, "consumer", "consumers");
    let what = format!("group {} of {}, with {consumers} and {entries}", printable(group), printable(stream));
    let mut effect = plan.effect.clone();
    if !dry_run {
        active::refuse(group, active, force)?;
        confirm.ask(&format!("remove {what}")).await?;
        effect = apply_plan(&backend, &operation, &plan, force).await?;
    }
    if common.json {
        return print_json(&EffectAnswer::without_preview(effect, dry_run));
    }
    if !dry_run {
        return print_line(&format!("removed {what}"));
    }
    print_line(&format!("would remove {what}"))?;
    if !active.is_empty() {
        let names: Vec<String> = active.iter().map(printable).collect();
        note(&format!("active consumers: {}; removing the group needs --force", names.join(", ")));
    }
    Ok(())
}

/// Converts a position to the start of a group. The first entry that the group reads is the one at the position.
pub(crate) fn start_of(position: Position) -> Start {
    match position {
        Position::Earliest => Start::Beginning,
        Position::Latest => Start::End,
        Position::At(id) => id.prev().map_or(Start::Beginning, Start::After),
    }
}
