//! `millstream group reset`: moves a group to another position. It prints the old and the new position, and changes
//! the group only with `--execute`.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use millstream_worker::backend::StreamId;
use millstream_worker::group_manager::{Position, ResetPlan};
use millstream_worker::operate::groups::ResetGroup;
use millstream_worker::operate::operation::{Effect, OnParts, Operate};
use serde_json::{Value, json};

use super::active;
use crate::ops::apply::apply_plan;
use crate::ops::connection::CommonOptions;
use crate::ops::failure::Failure;
use crate::ops::group_args::GroupArgs;
use crate::ops::lookup;
use crate::ops::output::{note, print, print_json};
use crate::ops::table::row;
use crate::ops::target::Target;
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

Without --execute, the command only shows the change. Pending entries stay pending.
--to-id and --shift-by need one stream: if it has partitions, name one of them, such as orders/3.";

#[derive(Args, Debug)]
pub(crate) struct ResetCommand {
    #[command(flatten)]
    group_args: GroupArgs,
    #[command(flatten)]
    to: NewPosition,
    /// Apply the change
    #[arg(long)]
    execute: bool,
    /// With --execute, apply the change even if consumers are active
    #[arg(long, requires = "execute")]
    force: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct NewPosition {
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
        let target = Target::with_group(&*backend, stream, group).await?;
        if let Some(option) = self.to.needs_one_stream() {
            target.refuse_partitions(&format!("{option} needs one stream"))?;
        }
        for part in &target.parts {
            if let Some(other) = &self.to.to_group {
                lookup::group(&*backend, &part.stream, other).await?;
            }
        }
        let streams = target.parts.iter().map(|part| part.stream.clone());
        let reset = |stream| ResetGroup { stream, group: group.clone(), to: self.to.position() };
        let operation = OnParts::new(stream, streams, reset);
        let plan = operation.plan(&backend, None).await?;
        let changes = plan.parts.iter().map(|part| {
            let mut change = part.effect.clone();
            change.executed = self.execute;
            change
        });
        let changes: Vec<ResetPlan> = changes.collect();
        if self.execute {
            active::refuse(group, &plan.effect.active_consumers(), self.force)?;
            apply_plan(&backend, &operation, &plan, self.force).await?;
        }
        self.print(common, &target, &changes)
    }

    fn print(&self, common: &CommonOptions, target: &Target, changes: &[ResetPlan]) -> Result<(), Failure> {
        let parts = || target.parts.iter().zip(changes);
        if common.json {
            let mut changes = parts().map(|(part, change)| part.mark(change));
            let json = match target.has_partitions() {
                true => json!({
                    "stream": target.name,
                    "group": self.group_args.group,
                    "executed": self.execute,
                    "partitions": changes.collect::<Value>(),
                }),
                false => changes.next().unwrap_or_default(),
            };
            return print_json(&json);
        }
        let rows = parts().flat_map(|(part, change)| {
            [("before", &change.before), ("after", &change.after)].map(|(when, position)| {
                (part, row![when, position.last_delivered.to_string(), format_lag(position.lag)])
            })
        });
        print(target.table(&["", "LAST-DELIVERED", ">LAG"], rows))?;
        let pending = changes.iter().map(|change| change.pending).sum();
        if pending > 0 {
            note(&counted(pending, "entry stays pending", "entries stay pending"));
        }
        if !self.execute {
            note("nothing was changed; apply the change with --execute");
        }
        Ok(())
    }
}

impl NewPosition {
    /// Returns the option that has no meaning for several streams, if it was given.
    fn needs_one_stream(&self) -> Option<&'static str> {
        let shift = self.shift_by.map(|_| "--shift-by");
        self.to_id.map(|_| "--to-id").or(shift)
    }

    fn position(&self) -> Position {
        match self {
            NewPosition { to_latest: true, .. } => Position::End,
            NewPosition { to_id: Some(id), .. } => id.prev().map_or(Position::Beginning, Position::After),
            NewPosition { to_datetime: Some(ms), .. } => {
                Position::Time(UNIX_EPOCH + Duration::from_millis(*ms))
            }
            NewPosition { by_duration: Some(ago), .. } => Position::Ago(*ago),
            NewPosition { shift_by: Some(by), .. } => Position::Shift(*by),
            NewPosition { to_group: Some(group), .. } => Position::Group(group.clone()),
            _ => Position::Beginning,
        }
    }
}
