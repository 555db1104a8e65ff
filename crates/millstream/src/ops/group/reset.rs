//! `millstream group reset`: moves a group to another position. It prints the old and the new position, and changes
//! the group only with `--execute`.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use millstream_worker::backend::StreamId;
use millstream_worker::group_manager::{GroupManager, Position};
use millstream_worker::operate::shapes;

use super::active;
use crate::ops::connection::CommonOptions;
use crate::ops::failure::Failure;
use crate::ops::group_args::GroupArgs;
use crate::ops::lookup;
use crate::ops::output::{note, print, print_json};
use crate::ops::table::{Table, row};
use crate::ops::time::{parse_duration, parse_id, parse_time};
use crate::ops::value::{counted, format_lag};

pub(super) const USAGE: &str = "millstream group reset [OPTIONS] <STREAM> <GROUP> <NEW POSITION>";

const HEADING: &str = "New position (exactly one)";

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream group reset orders billing --to-earliest
  millstream group reset orders billing --to-latest --execute --force
  millstream group reset orders billing --to-datetime 2026-11-15T10:30:00Z
  millstream group reset orders billing --by-duration 2h
  millstream group reset orders billing --shift-by -2

Without --execute, the command only shows the change. Pending entries stay pending.";

#[derive(Args, Debug)]
pub(crate) struct ResetCommand {
    #[command(flatten)]
    group_args: GroupArgs,
    #[command(flatten)]
    target: Target,
    /// Apply the change
    #[arg(long)]
    execute: bool,
    /// With --execute, apply the change even if consumers are active
    #[arg(long, requires = "execute")]
    force: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Target {
    /// Read the whole stream again
    #[arg(long, help_heading = HEADING)]
    to_earliest: bool,
    /// Skip all existing entries
    #[arg(long, help_heading = HEADING)]
    to_latest: bool,
    /// Continue with this entry, or the first one after it
    #[arg(long, help_heading = HEADING, value_name = "ID", value_parser = parse_id)]
    to_id: Option<StreamId>,
    /// Continue with the first entry added at this time or later
    #[arg(long, help_heading = HEADING, value_name = "TIME", value_parser = parse_time)]
    to_datetime: Option<u64>,
    /// Continue with the first entry added within this duration before now
    #[arg(long, help_heading = HEADING, value_name = "DURATION", value_parser = parse_duration)]
    by_duration: Option<Duration>,
    /// Move forward by N entries, or back if N is negative
    #[arg(long, help_heading = HEADING, value_name = "N", allow_negative_numbers = true)]
    shift_by: Option<i64>,
    /// Continue at the position of another group of the stream
    #[arg(long, help_heading = HEADING, value_name = "GROUP")]
    to_group: Option<String>,
}

impl ResetCommand {
    pub(super) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let GroupArgs { stream, group } = &self.group_args;
        lookup::group(&*backend, stream, group).await?;
        if let Some(other) = &self.target.to_group {
            lookup::group(&*backend, stream, other).await?;
        }
        let groups = GroupManager::new(backend);
        let change = groups.preview_reset(stream, group, self.target.position()).await?;
        if self.execute {
            active::refuse(&change.group, &change.active_consumers, self.force)?;
            groups.reset(&change).await?;
        }
        if common.json {
            return print_json(&shapes::reset(&change, self.execute));
        }
        let rows = [("before", &change.before), ("after", &change.after)].map(|(when, position)| {
            row![when, position.last_delivered.to_string(), format_lag(position.lag)]
        });
        print(Table::new(&["", "LAST-DELIVERED", ">LAG"], rows))?;
        if change.pending > 0 {
            note(&counted(change.pending, "entry stays pending", "entries stay pending"));
        }
        if !self.execute {
            note("nothing was changed; apply the change with --execute");
        }
        Ok(())
    }
}

impl Target {
    fn position(&self) -> Position<'_> {
        match self {
            Target { to_latest: true, .. } => Position::End,
            Target { to_id: Some(id), .. } => id.prev().map_or(Position::Beginning, Position::After),
            Target { to_datetime: Some(ms), .. } => Position::Time(UNIX_EPOCH + Duration::from_millis(*ms)),
            Target { by_duration: Some(ago), .. } => Position::Ago(*ago),
            Target { shift_by: Some(by), .. } => Position::Shift(*by),
            Target { to_group: Some(group), .. } => Position::Group(group),
            _ => Position::Beginning,
        }
    }
}
