//! `millstream group`: how far groups are, and moving one.

mod describe;
mod reset;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::Start;
use millstream_worker::monitor::Monitor;
use serde_json::{Value, json};

use super::confirm::Confirm;
use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::named::NamedGroup;
use super::output::{note, print, print_json, print_line};
use super::shape;
use super::table::{Table, row};
use super::time::{Position, parse_position};
use super::value::{age_or_nothing, count, counted};

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
  millstream group ls 'orders*' --json";

const CREATE_EXAMPLES: &str = "\
Examples:
  millstream group create orders mailing
  millstream group create orders mailing --from latest
  millstream group create orders mailing --from 2026-11-15T10:30:00Z

The stream comes to be too if need be. A group that is there stays as it is.";

const RM_EXAMPLES: &str = "\
Examples:
  millstream group rm orders billing --dry-run
  millstream group rm orders billing --yes";

#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// List groups with their lag
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        /// Only streams that match this glob pattern
        #[arg(default_value = "*")]
        pattern: String,
    },
    /// Make a group if it is not there
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        #[command(flatten)]
        of: NamedGroup,
        /// Where it begins: earliest, latest, an id, a moment, or how long ago
        #[arg(long, value_name = "POSITION", default_value = "earliest", value_parser = parse_position)]
        from: Position,
    },
    /// Tell how far a group and each of its consumers are
    #[command(after_help = describe::EXAMPLES)]
    Describe {
        /// The stream
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        /// The group; all groups of the stream without it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        group: Option<String>,
    },
    /// Move a group forwards or back; shows what would happen, and does it with --execute
    #[command(after_help = reset::EXAMPLES, override_usage = reset::USAGE)]
    Reset(reset::ResetCommand),
    /// Remove a group with what is pending in it
    #[command(after_help = RM_EXAMPLES)]
    Rm {
        #[command(flatten)]
        of: NamedGroup,
        /// Only tell what would go
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl GroupAction {
    pub(crate) async fn run(&self, common: &Common) -> Result<(), Failure> {
        match self {
            GroupAction::Ls { pattern } => list(common, pattern).await,
            GroupAction::Create { of, from } => create(common, of, *from).await,
            GroupAction::Describe { stream, group } => describe::run(common, stream, group.as_deref()).await,
            GroupAction::Reset(reset) => reset.run(common).await,
            GroupAction::Rm { of, dry_run, confirm } => remove(common, of, *dry_run, *confirm).await,
        }
    }
}

async fn list(common: &Common, pattern: &str) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let place = backend.place();
    // A name is no pattern: it must be there.
    if !pattern.contains(['*', '?', '[', '\\']) {
        known::stream(&*backend, pattern).await?;
    }
    let streams = Monitor::new(backend).streams(pattern).await?;
    let groups: Vec<_> = streams.iter().flat_map(|stream| &stream.groups).collect();
    if common.json {
        return print_json(&groups.into_iter().map(shape::group).collect::<Value>());
    }
    if groups.is_empty() {
        note(&format!("no groups on streams that match {pattern} in {place}"));
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
    let rows = groups.into_iter().map(|group| {
        row![
            &group.stream,
            &group.name,
            count(group.consumers.len() as u64),
            shape::lag(group.lag),
            count(group.pending),
            age_or_nothing(group.unread_age()),
            age_or_nothing(group.pending_age()),
            group.last_delivered.to_string(),
        ]
    });
    print(Table::new(&titles, rows))
}

async fn create(
    common: &Common,
    NamedGroup { stream, group }: &NamedGroup,
    from: Position,
) -> Result<(), Failure> {
    let backend = common.connect_or_create().await?;
    let created = backend.create_group(stream, group, start_of(from)).await;
    let created = created.map_err(|error| known::about(stream, error))?;
    let last_delivered = known::group(&*backend, stream, group).await?.last_delivered.to_string();
    if common.json {
        return print_json(&json!({
            "stream": stream,
            "group": group,
            "created": created,
            "last_delivered": last_delivered,
        }));
    }
    print_line(&match created {
        true => format!("created group {group} of {stream}, behind {last_delivered}"),
        false => format!("group {group} of {stream} was there, behind {last_delivered}"),
    })
}

async fn remove(
    common: &Common,
    NamedGroup { stream, group }: &NamedGroup,
    dry_run: bool,
    confirm: Confirm,
) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let info = known::group(&*backend, stream, group).await?;
    let rows = counted(info.pending, "pending entry", "pending entries");
    let consumers = counted(info.consumers, "consumer", "consumers");
    let removed = if dry_run {
        false
    } else {
        confirm.ask(&format!("group {group} of {stream} goes, with {consumers} and {rows}")).await?;
        backend.delete_group(stream, group).await?
    };
    if common.json {
        return print_json(&json!({
            "stream": stream,
            "group": group,
            "removed": removed,
            "pending_dropped": info.pending,
            "dry_run": dry_run,
        }));
    }
    let done = if dry_run { "would remove" } else { "removed" };
    print_line(&format!("{done} group {group} of {stream}, with {consumers} and {rows}"))
}

/// A position as the start of a group: what lies at the position is the first to be read.
pub(crate) fn start_of(position: Position) -> Start {
    match position {
        Position::Earliest => Start::Beginning,
        Position::Latest => Start::End,
        Position::At(id) => id.prev().map_or(Start::Beginning, Start::After),
    }
}
