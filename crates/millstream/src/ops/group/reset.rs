//! `millstream group reset`: moves a group's position. Shows before and after; acts only with `--execute`.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use millstream_worker::backend::StreamId;
use millstream_worker::group_manager::{GroupManager, Place, Position, Reset};
use serde_json::{Value, json};

use crate::ops::connection::Common;
use crate::ops::failure::Failure;
use crate::ops::known;
use crate::ops::named::NamedGroup;
use crate::ops::output::{note, print, print_json};
use crate::ops::shape;
use crate::ops::table::{Table, row};
use crate::ops::time::{parse_duration, parse_id, parse_moment};
use crate::ops::value::counted;

pub(super) const USAGE: &str = "millstream group reset [OPTIONS] <STREAM> <GROUP> --to-WHERE";

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream group reset orders billing --to-earliest
  millstream group reset orders billing --to-latest --execute --force
  millstream group reset orders billing --to-datetime 2026-11-15T10:30:00Z
  millstream group reset orders billing --by-duration 2h
  millstream group reset orders billing --shift-by -2

Nothing changes without --execute. What is pending stays pending.";

#[derive(Args, Debug)]
pub(crate) struct ResetCommand {
    #[command(flatten)]
    of: NamedGroup,
    #[command(flatten)]
    target: Target,
    /// Do it
    #[arg(long)]
    execute: bool,
    /// Do it although consumers are at work
    #[arg(long, requires = "execute")]
    force: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Target {
    /// Read everything again
    #[arg(long)]
    to_earliest: bool,
    /// Skip everything that is there
    #[arg(long)]
    to_latest: bool,
    /// Read on with this entry, or the first after it
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    to_id: Option<StreamId>,
    /// Read on with the first entry added at this moment or later
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    to_datetime: Option<u64>,
    /// Read on with the first entry of the last so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    by_duration: Option<Duration>,
    /// So many entries further on, or back if negative
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    shift_by: Option<i64>,
    /// Read on where another group of the stream does
    #[arg(long, value_name = "GROUP")]
    to_group: Option<String>,
}

impl ResetCommand {
    pub(super) async fn run(&self, common: &Common) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let NamedGroup { stream, group } = &self.of;
        known::group(&*backend, stream, group).await?;
        if let Some(other) = &self.target.to_group {
            known::group(&*backend, stream, other).await?;
        }
        let groups = GroupManager::new(backend);
        let change = groups.preview_reset(stream, group, self.target.position()).await?;
        if self.execute {
            self.refuse_if_active(&change)?;
            groups.reset(&change).await?;
        }
        if common.json {
            return print_json(&json!({
                "stream": change.stream,
                "group": change.group,
                "executed": self.execute,
                "before": place(&change.before),
                "after": place(&change.after),
                "pending": change.pending,
                "active_consumers": change.active_consumers,
            }));
        }
        let rows = [("before", &change.before), ("after", &change.after)]
            .map(|(when, place)| row![when, place.last_delivered.to_string(), shape::lag(place.lag)]);
        print(Table::new(&["", "LAST-DELIVERED", ">LAG"], rows))?;
        if change.pending > 0 {
            note(&counted(change.pending, "entry stays pending", "entries stay pending"));
        }
        if !self.execute {
            note("nothing was changed; do it with --execute");
        }
        Ok(())
    }

    /// Moving a group under its readers makes them skip or repeat without knowing.
    fn refuse_if_active(&self, change: &Reset) -> Result<(), Failure> {
        if self.force || change.active_consumers.is_empty() {
            return Ok(());
        }
        Err(Failure::Other(format!(
            "consumers are at work: {}\nstop them and wait a minute, or say --force",
            change.active_consumers.join(", ")
        )))
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

fn place(place: &Place) -> Value {
    json!({
        "last_delivered": place.last_delivered.to_string(),
        "lag": place.lag.count,
        "lag_exact": place.lag.is_exact(),
    })
}
