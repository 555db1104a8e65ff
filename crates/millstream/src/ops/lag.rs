//! `millstream lag`: shows how far behind groups are and how healthy, and exits with 5 above a limit.
//!
//! The health is the verdict that `doctor`, `top` and `group describe` show too. The limits of the command line do not
//! change it: they only decide the exit code.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::monitor::{GroupSnapshot, Limits, Monitor};
use millstream_worker::operate::shapes::{GroupJson, VerdictJson};
use serde_json::{Value, json};

use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{BAD, health_style, note, print, print_json};
use super::partitions_args::{PartitionsArgs, WatchedGroup, stream_of, worst_cell};
use super::safe_text::printable;
use super::shell::suggest;
use super::table::{Cell, Table, row};
use super::time::parse_duration;
use super::value::{age, age_or_absent, count, format_lag, format_missed};

const EXAMPLES: &str = "\
Examples:
  millstream lag
  millstream lag 'orders*'
  millstream lag orders billing --fail-lag 1000
  millstream lag orders --fail-age 5m --json
  millstream lag orders --partitions

Exit code 5 means that a group has more unread entries than --fail-lag, or an unread or pending entry older than \
--fail-age. Exit code 4 means that nothing could be checked: STREAM and GROUP match no group.";

/// Show how far behind groups are, and fail above a limit
#[derive(Args, Debug)]
#[command(name = "lag", after_help = EXAMPLES)]
pub(crate) struct LagCommand {
    /// Stream name, or a glob pattern for several streams [default: all streams]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: Option<String>,
    /// Group name [default: all groups]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: Option<String>,
    /// Fail if a group has more unread entries than this
    #[arg(long, value_name = "N")]
    fail_lag: Option<u64>,
    /// Fail if an unread or pending entry is older than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    fail_age: Option<Duration>,
    #[command(flatten)]
    partitions: PartitionsArgs,
    #[command(flatten)]
    common: CommonOptions,
}

impl LagCommand {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let groups = self.groups().await?;
        let problems: Vec<Option<String>> =
            groups.iter().map(|watched| self.problem(&watched.group)).collect();
        if self.common.json {
            let json = |(watched, problem): (&WatchedGroup, &Option<String>)| {
                let group = &watched.group;
                let mut json = json!(GroupJson::new(group));
                json["ok"] = json!(problem.is_none());
                json["problem"] = json!(problem);
                json["verdict"] = json!(VerdictJson::new(&group.verdict(&Limits::default())));
                self.partitions.add_to(&mut json, watched);
                json
            };
            print_json(&groups.iter().zip(&problems).map(json).collect::<Value>())?;
        } else {
            print(self.table(&groups, &problems))?;
        }
        if problems.iter().any(Option::is_some) { Err(Failure::Check) } else { Ok(()) }
    }

    async fn groups(&self) -> Result<Vec<WatchedGroup>, Failure> {
        let backend = self.common.connect().await?;
        let monitor = Monitor::new(backend.clone());
        let pattern = self.stream.as_deref().unwrap_or("*");
        let is_wanted = |group: &GroupSnapshot| self.group.as_ref().is_none_or(|name| *name == group.name);
        let mut groups: Vec<GroupSnapshot> = match &self.group {
            Some(group) if !lookup::is_pattern(pattern) => {
                vec![lookup::group_snapshot(&backend, pattern, group).await?]
            }
            None if !lookup::is_pattern(pattern) => lookup::snapshot(&backend, pattern).await?.groups,
            _ => {
                let streams = monitor.streams(pattern).await?;
                streams.into_iter().flat_map(|stream| stream.groups).filter(is_wanted).collect()
            }
        };
        if groups.is_empty() {
            let stream = self.stream.as_deref().filter(|name| !lookup::is_pattern(name)).unwrap_or("STREAM");
            let create = suggest("group create", &[stream, "GROUP"], "");
            let what = if lookup::is_pattern(pattern) {
                format!("no groups of streams that match {}", printable(pattern))
            } else {
                "no groups".to_owned()
            };
            if self.stream.is_some() && (self.fail_lag.is_some() || self.fail_age.is_some()) {
                let groups = suggest("lag", &[], "");
                return Err(Failure::NotFound(format!(
                    "{what}, so nothing was checked\nlist all groups with: {groups}"
                )));
            }
            note(&format!("{what}; create one with: {create}"));
        }
        monitor.observe_growth(&mut groups).await?;
        self.partitions.watch(&monitor, groups).await
    }

    /// Returns why a group is too far behind. `None` if it is within the limits.
    fn problem(&self, group: &GroupSnapshot) -> Option<String> {
        if let Some(limit) = self.fail_lag.filter(|limit| group.lag.count > *limit) {
            return Some(format!("more than {} unread", count(limit)));
        }
        let limit = self.fail_age?;
        let over = |waited: Option<Duration>| waited.is_some_and(|waited| waited > limit);
        if over(group.unread_age()) {
            return Some(format!("unread for more than {}", age(limit)));
        }
        over(group.pending_age()).then(|| format!("pending for more than {}", age(limit)))
    }

    fn table(&self, groups: &[WatchedGroup], problems: &[Option<String>]) -> Table {
        let has_partitions = groups.iter().any(|watched| watched.group.partitions > 0);
        let rows = groups.iter().zip(problems).flat_map(|(watched, problem)| {
            self.partitions.rows(watched, |group| {
                // The limits of the command line are about the whole.
                let problem =
                    problem.as_deref().filter(|_| group.part_of.is_none() || watched.group.part_of.is_some());
                let mut cells = row![
                    stream_of(group),
                    &group.name,
                    format_lag(group.lag),
                    format_missed(group.missed),
                    count(group.pending),
                    age_or_absent(group.unread_age()),
                    age_or_absent(group.pending_age()),
                ];
                cells.extend(has_partitions.then(|| Cell::from(worst_cell(group))));
                cells.push(state(group, problem));
                cells
            })
        });
        let mut titles =
            vec!["STREAM", "GROUP", ">LAG", ">MISSED", ">PENDING", ">OLDEST-UNREAD", ">OLDEST-PENDING"];
        titles.extend(has_partitions.then_some(">WORST"));
        titles.push("STATE");
        Table::new(&self.partitions.titles(&titles), rows)
    }
}

/// Returns the limit that the group exceeds, if any, followed by its health and the reasons for it.
fn state(group: &GroupSnapshot, problem: Option<&str>) -> Cell {
    let verdict = group.verdict(&Limits::default());
    match problem {
        Some(problem) => Cell::styled(BAD, format!("{problem}; {verdict}")),
        None => Cell::styled(health_style(verdict.health), verdict.to_string()),
    }
}
