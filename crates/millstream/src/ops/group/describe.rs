//! `millstream group describe`: one row per consumer, with columns similar to those of Kafka's tool.

use millstream_worker::backend::{ConsumerInfo, StreamId};
use millstream_worker::monitor::{GroupSnapshot, Limits, Monitor};
use millstream_worker::operate::shapes::{self, GroupJson, VerdictJson};
use serde_json::{Value, json};

use crate::ops::connection::CommonOptions;
use crate::ops::failure::Failure;
use crate::ops::lookup;
use crate::ops::output::{health_style, print, print_json};
use crate::ops::partitions_args::{PartitionsArgs, WatchedGroup, stream_of};
use crate::ops::safe_text::printable;
use crate::ops::table::{Cell, Table, row};
use crate::ops::value::{ABSENT, age, age_or_absent, count, counted, format_lag};

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream group describe orders billing
  millstream group describe orders --json
  millstream group describe orders billing --partitions";

pub(super) async fn run(
    common: &CommonOptions,
    stream: &str,
    group: Option<&str>,
    partitions: PartitionsArgs,
) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let found = lookup::snapshot(&backend, stream).await?;
    let (last_id, groups) = (found.info.last_id, found.groups);
    let mut groups = match group {
        Some(name) => vec![lookup::group_snapshot(&backend, stream, name).await?],
        None => groups,
    };
    let monitor = Monitor::new(backend);
    monitor.observe_growth(&mut groups).await?;
    let groups = partitions.watch(&monitor, groups).await?;
    if common.json {
        let json = |watched: &WatchedGroup| {
            let mut json = group_json(&watched.group, last_id);
            partitions.add_to(&mut json, watched);
            json
        };
        return print_json(&groups.iter().map(json).collect::<Value>());
    }
    print(table(groups.iter().map(|watched| &watched.group), last_id))?;
    if partitions.partitions {
        let logical = groups.iter().filter(|watched| watched.group.partitions > 0);
        logical.map(partition_table).try_for_each(|table| print(format_args!("\n{table}")))?;
    }
    let groups = groups.iter().map(|watched| &watched.group);
    groups.into_iter().try_for_each(|group| print(verdict_line(group) + &retry_line(group)))
}

fn partition_table(watched: &WatchedGroup) -> Table {
    let titles = [
        "GROUP",
        ">PARTITION",
        "STREAM",
        "OWNER",
        ">FENCE",
        ">LAG",
        ">PENDING",
        ">OLDEST-UNREAD",
        ">OLDEST-PENDING",
        "STATE",
    ];
    let rows = watched.group.parts.iter().map(|part| {
        let owner = part.number().and_then(|number| watched.owners.get(&number));
        let verdict = part.verdict(&Limits::default());
        row![
            &part.name,
            part.number().map_or_else(|| ABSENT.to_owned(), |number| number.to_string()),
            &part.stream,
            owner.map_or(ABSENT, |owner| watched.group.name_of(owner)),
            owner.map_or_else(|| ABSENT.to_owned(), |owner| owner.fence.to_string()),
            format_lag(part.lag),
            count(part.pending),
            age_or_absent(part.unread_age()),
            age_or_absent(part.pending_age()),
            Cell::styled(health_style(verdict.health), verdict.health.to_string()),
        ]
    });
    Table::new(&titles, rows)
}

fn group_json(group: &GroupSnapshot, last_id: StreamId) -> Value {
    let mut json = json!(GroupJson::new(group));
    json["last_id"] = Value::from(last_id.to_string());
    json["consumer_list"] = json!(shapes::consumers(&group.consumers, &group.workers));
    json["verdict"] = json!(VerdictJson::new(&group.verdict(&Limits::default())));
    json
}

/// Returns a table with a row for each consumer. The values of the whole group are in its first row.
fn table<'a>(groups: impl Iterator<Item = &'a GroupSnapshot>, last_id: StreamId) -> Table {
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
    Table::new(&titles, groups.flat_map(|group| rows(group, last_id)))
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
    let names = [group.name.clone(), stream_of(group)].map(Cell::from);
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
