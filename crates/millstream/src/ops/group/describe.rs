//! `millstream group describe`: one row per consumer, with columns similar to those of Kafka's tool.

use millstream_worker::Admin;
use millstream_worker::backend::{ConsumerInfo, StreamId};
use millstream_worker::monitor::{GroupSnapshot, Limits, Monitor};
use millstream_worker::operate::shapes;
use serde_json::Value;

use crate::ops::connection::CommonOptions;
use crate::ops::failure::Failure;
use crate::ops::lookup;
use crate::ops::output::{health_style, print, print_json};
use crate::ops::safe_text::printable;
use crate::ops::table::{Cell, Table};
use crate::ops::value::{ABSENT, age, age_or_absent, count, counted, format_lag};

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream group describe orders billing
  millstream group describe orders --json";

pub(super) async fn run(common: &CommonOptions, stream: &str, group: Option<&str>) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let groups = find(&*backend, stream, group).await?;
    let monitor = Monitor::new(backend);
    let mut found = Vec::new();
    for name in groups {
        found.extend(monitor.group(stream, &name).await?);
    }
    let last_id = monitor.stream(stream).await?.map(|stream| stream.info.last_id).unwrap_or_default();
    if common.json {
        let groups: Value = found.iter().map(|group| group_json(group, last_id)).collect();
        return print_json(&groups);
    }
    print(table(&found, last_id))?;
    found.iter().try_for_each(|group| print(verdict_line(group) + &retry_line(group)))
}

async fn find(backend: &dyn Admin, stream: &str, group: Option<&str>) -> Result<Vec<String>, Failure> {
    match group {
        Some(group) => {
            lookup::group(backend, stream, group).await?;
            Ok(vec![group.to_owned()])
        }
        None => {
            lookup::stream(backend, stream).await?;
            Ok(backend.groups(stream).await?.into_iter().map(|group| group.name).collect())
        }
    }
}

fn group_json(group: &GroupSnapshot, last_id: StreamId) -> Value {
    let mut json = shapes::group(group);
    json["last_id"] = Value::from(last_id.to_string());
    json["consumer_list"] = shapes::consumers(&group.consumers, &group.workers);
    json["verdict"] = shapes::verdict(&group.verdict(&Limits::default()));
    json
}

/// Returns a table with a row for each consumer. The values of the whole group are in its first row.
fn table(groups: &[GroupSnapshot], last_id: StreamId) -> Table {
    let titles = [
        "GROUP",
        "STREAM",
        "LAST-DELIVERED",
        "LAST-ID",
        ">LAG",
        ">PENDING",
        ">OLDEST-PENDING",
        "CONSUMER",
        ">CONSUMER-PENDING",
        ">IDLE",
    ];
    Table::new(&titles, groups.iter().flat_map(|group| rows(group, last_id)))
}

fn rows(group: &GroupSnapshot, last_id: StreamId) -> Vec<Vec<Cell>> {
    let mut group_cells = [
        group.last_delivered.to_string(),
        last_id.to_string(),
        format_lag(group.lag),
        count(group.pending),
        age_or_absent(group.pending_age()),
    ];
    let consumer_cells =
        |consumer: &ConsumerInfo| [consumer.name.clone(), count(consumer.pending), age(consumer.idle)];
    let mut consumers: Vec<_> = group.consumers.iter().map(consumer_cells).collect();
    if consumers.is_empty() {
        consumers.push([ABSENT; 3].map(str::to_owned));
    }
    let names = [&group.name, &group.stream].map(Cell::from);
    let row = |consumer: [String; 3]| {
        let group_cells = std::mem::take(&mut group_cells);
        names.iter().cloned().chain(group_cells.map(Cell::from)).chain(consumer.map(Cell::from)).collect()
    };
    consumers.into_iter().map(row).collect()
}

fn verdict_line(group: &GroupSnapshot) -> String {
    let verdict = group.verdict(&Limits::default());
    let style = health_style(verdict.health);
    let (name, verdict) = (printable(&group.name), printable(verdict.to_string()));
    format!("\n{name}: {style}{verdict}{style:#}\n")
}

/// Returns how many messages wait for their next attempt, and when the first is due. Empty if none waits.
fn retry_line(group: &GroupSnapshot) -> String {
    let Some(next) = group.scan.next_attempt_in else { return String::new() };
    let waiting = counted(group.scan.waiting, "message waits", "messages wait");
    let at_least = if group.scan.complete { "" } else { "at least " };
    format!("{}: {at_least}{waiting} for a retry, the next in {}\n", printable(&group.name), age(next))
}
