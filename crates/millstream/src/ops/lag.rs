//! `millstream lag`: shows how far behind groups are, and exits with 5 above a limit.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::monitor::{GroupSnapshot, Monitor};
use serde_json::{Value, json};

use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{BAD, GOOD, note, print, print_json};
use super::shell::suggest;
use super::table::{Cell, Table, row};
use super::time::parse_duration;
use super::to_json;
use super::value::{age, age_or_absent, count, format_lag};

const EXAMPLES: &str = "\
Examples:
  millstream lag
  millstream lag orders billing --fail-lag 1000
  millstream lag orders --fail-age 5m --json

Exit code 5 means that a group has more unread entries than --fail-lag, or an unread or pending entry older than \
--fail-age.";

/// Show how far behind groups are, and fail above a limit
#[derive(Args, Debug)]
#[command(name = "lag", after_help = EXAMPLES)]
pub(crate) struct LagCommand {
    /// Stream name [default: all streams]
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
    common: CommonOptions,
}

impl LagCommand {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let groups = self.groups().await?;
        let problems: Vec<Option<String>> = groups.iter().map(|group| self.problem(group)).collect();
        if self.common.json {
            let json = |(group, problem): (&GroupSnapshot, &Option<String>)| {
                let mut json = to_json::group(group);
                json["ok"] = json!(problem.is_none());
                json["problem"] = json!(problem);
                json
            };
            print_json(&groups.iter().zip(&problems).map(json).collect::<Value>())?;
        } else {
            print(table(&groups, &problems))?;
        }
        if problems.iter().any(Option::is_some) { Err(Failure::Check) } else { Ok(()) }
    }

    async fn groups(&self) -> Result<Vec<GroupSnapshot>, Failure> {
        let backend = self.common.connect().await?;
        let monitor = Monitor::new(backend.clone());
        let groups = match (&self.stream, &self.group) {
            (Some(stream), Some(group)) => {
                lookup::group(&*backend, stream, group).await?;
                monitor.group(stream, group).await?.into_iter().collect()
            }
            (Some(stream), None) => {
                lookup::stream(&*backend, stream).await?;
                monitor.stream(stream).await?.map(|stream| stream.groups).unwrap_or_default()
            }
            (None, _) => monitor.streams("*").await?.into_iter().flat_map(|stream| stream.groups).collect(),
        };
        if groups.is_empty() {
            let stream = self.stream.as_deref().unwrap_or("STREAM");
            let create = suggest("group create", &[stream, "GROUP"], "");
            note(&format!("no groups; create one with: {create}"));
        }
        Ok(groups)
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
}

fn table(groups: &[GroupSnapshot], problems: &[Option<String>]) -> Table {
    let rows = groups.iter().zip(problems).map(|(group, problem)| {
        row![
            &group.stream,
            &group.name,
            format_lag(group.lag),
            count(group.pending),
            age_or_absent(group.unread_age()),
            age_or_absent(group.pending_age()),
            match problem {
                None => Cell::styled(GOOD, "ok"),
                Some(problem) => Cell::styled(BAD, problem),
            },
        ]
    });
    Table::new(&["STREAM", "GROUP", ">LAG", ">PENDING", ">OLDEST-UNREAD", ">OLDEST-PENDING", "STATE"], rows)
}
