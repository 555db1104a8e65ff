//! `millstream group describe`: a row for every consumer, in the columns that people know from Kafka.

use millstream_worker::Admin;
use millstream_worker::backend::{ConsumerInfo, StreamId};
use millstream_worker::monitor::{GroupSnapshot, Limits, Monitor};
use serde_json::Value;

use crate::ops::connection::Common;
use crate::ops::failure::Failure;
use crate::ops::known;
use crate::ops::output::{print, print_json, style_of};
use crate::ops::shape;
use crate::ops::table::{Cell, Table};
use crate::ops::value::{NOTHING, age, age_or_nothing, count};

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream group describe orders billing
  millstream group describe orders --json";

pub(super) async fn run(common: &Common, stream: &str, group: Option<&str>) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let groups = find(&*backend, stream, group).await?;
    let monitor = Monitor::new(backend);
    let mut found = Vec::new();
    for name in groups {
        found.extend(monitor.group(stream, &name).await?);
    }
    let last_id = monitor.stream(stream).await?.map(|stream| stream.info.last_id).unwrap_or_default();
    if common.json {
        let told: Value = found.iter().map(|group| told(group, last_id)).collect();
        return print_json(&told);
    }
    print(table(&found, last_id))?;
    found.iter().try_for_each(|group| print(verdict_line(group)))
}

async fn find(backend: &dyn Admin, stream: &str, group: Option<&str>) -> Result<Vec<String>, Failure> {
    match group {
        Some(group) => {
            known::group(backend, stream, group).await?;
            Ok(vec![group.to_owned()])
        }
        None => {
            known::stream(backend, stream).await?;
            Ok(backend.groups(stream).await?.into_iter().map(|group| group.name).collect())
        }
    }
}

fn told(group: &GroupSnapshot, last_id: StreamId) -> Value {
    let mut told = shape::group(group);
    told["last_id"] = Value::from(last_id.to_string());
    told["consumer_list"] = group.consumers.iter().map(shape::consumer).collect();
    told["verdict"] = shape::verdict(&group.verdict(&Limits::default()));
    told
}

/// A row for each consumer; what belongs to the whole group stands in its first row.
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
        ">HOLDS",
        ">IDLE",
    ];
    Table::new(&titles, groups.iter().flat_map(|group| rows(group, last_id)))
}

fn rows(group: &GroupSnapshot, last_id: StreamId) -> Vec<Vec<Cell>> {
    let mut of_group = [
        group.last_delivered.to_string(),
        last_id.to_string(),
        shape::lag(group.lag),
        count(group.pending),
        age_or_nothing(group.pending_age()),
    ];
    let of_consumer =
        |consumer: &ConsumerInfo| [consumer.name.clone(), count(consumer.pending), age(consumer.idle)];
    let mut consumers: Vec<_> = group.consumers.iter().map(of_consumer).collect();
    if consumers.is_empty() {
        consumers.push([NOTHING; 3].map(str::to_owned));
    }
    let names = [&group.name, &group.stream].map(Cell::from);
    let row = |consumer: [String; 3]| {
        let of_group = std::mem::take(&mut of_group);
        names.iter().cloned().chain(of_group.map(Cell::from)).chain(consumer.map(Cell::from)).collect()
    };
    consumers.into_iter().map(row).collect()
}

fn verdict_line(group: &GroupSnapshot) -> String {
    let verdict = group.verdict(&Limits::default());
    let style = style_of(verdict.health);
    format!("\n{}: {style}{verdict}{style:#}\n", group.name)
}
