//! `millstream lag`: how far behind groups are, with an exit code for scripts.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::monitor::{GroupSnapshot, Monitor};
use serde_json::{Value, json};

use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::output::{BAD, GOOD, note, print, print_json};
use super::shape;
use super::table::{Cell, Table, row};
use super::time::parse_duration;
use super::value::{age, age_or_nothing, count};

const EXAMPLES: &str = "\
Examples:
  millstream lag
  millstream lag orders billing --fail-lag 1000
  millstream lag orders --fail-age 5m --json

Exit code 5 if a group has more entries to read than --fail-lag, or an entry, unread or pending, older than
--fail-age.";

/// Tell how far behind groups are; for scripts, fail when it is too far
#[derive(Args, Debug)]
#[command(name = "lag", after_help = EXAMPLES)]
pub(crate) struct LagCommand {
    /// The stream; all streams without it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: Option<String>,
    /// The group; all groups without it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: Option<String>,
    /// Fail if a group has more unread entries than this
    #[arg(long, value_name = "N")]
    fail_lag: Option<u64>,
    /// Fail if an unread or pending entry is older than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    fail_age: Option<Duration>,
    #[command(flatten)]
    common: Common,
}

impl LagCommand {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let groups = self.groups().await?;
        let too_far: Vec<Option<String>> = groups.iter().map(|group| self.too_far(group)).collect();
        if self.common.json {
            let told = |(group, reason): (&GroupSnapshot, &Option<String>)| {
                let mut told = shape::group(group);
                told["ok"] = json!(reason.is_none());
                told["problem"] = json!(reason);
                told
            };
            print_json(&groups.iter().zip(&too_far).map(told).collect::<Value>())?;
        } else {
            print(table(&groups, &too_far))?;
        }
        if too_far.iter().any(Option::is_some) { Err(Failure::Check) } else { Ok(()) }
    }

    async fn groups(&self) -> Result<Vec<GroupSnapshot>, Failure> {
        let backend = self.common.connect().await?;
        let monitor = Monitor::new(backend.clone());
        let groups = match (&self.stream, &self.group) {
            (Some(stream), Some(group)) => {
                known::group(&*backend, stream, group).await?;
                monitor.group(stream, group).await?.into_iter().collect()
            }
            (Some(stream), None) => {
                known::stream(&*backend, stream).await?;
                monitor.stream(stream).await?.map(|stream| stream.groups).unwrap_or_default()
            }
            (None, _) => monitor.streams("*").await?.into_iter().flat_map(|stream| stream.groups).collect(),
        };
        if groups.is_empty() {
            let stream = self.stream.as_deref().unwrap_or("STREAM");
            note(&format!("there are no groups; make one with: millstream group create {stream} GROUP"));
        }
        Ok(groups)
    }

    /// Why a group is too far behind, if it is.
    fn too_far(&self, group: &GroupSnapshot) -> Option<String> {
        if let Some(most) = self.fail_lag.filter(|most| group.lag.count > *most) {
            return Some(format!("more than {} unread", count(most)));
        }
        let most = self.fail_age?;
        let over = |waited: Option<Duration>| waited.is_some_and(|waited| waited > most);
        if over(group.unread_age()) {
            return Some(format!("unread for more than {}", age(most)));
        }
        over(group.pending_age()).then(|| format!("pending for more than {}", age(most)))
    }
}

fn table(groups: &[GroupSnapshot], too_far: &[Option<String>]) -> Table {
    let rows = groups.iter().zip(too_far).map(|(group, reason)| {
        row![
            &group.stream,
            &group.name,
            shape::lag(group.lag),
            count(group.pending),
            age_or_nothing(group.unread_age()),
            age_or_nothing(group.pending_age()),
            match reason {
                None => Cell::painted(GOOD, "ok"),
                Some(reason) => Cell::painted(BAD, reason),
            },
        ]
    });
    Table::new(&["STREAM", "GROUP", ">LAG", ">PENDING", ">OLDEST-UNREAD", ">OLDEST-PENDING", "STATE"], rows)
}
