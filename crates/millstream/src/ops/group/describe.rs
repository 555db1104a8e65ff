//! `millstream group describe`: a row for every consumer, in the columns that people know from Kafka.

use millstream_worker::Admin;
use millstream_worker::backend::{ConsumerInfo, StreamId};
use millstream_worker::monitor::{GroupSnapshot, Health, Limits, Monitor};
use serde_json::Value;

use crate::ops::connection::Common;
use crate::ops::failure::Failure;
use crate::ops::known;
use crate::ops::output::{BAD, GOOD, WARN, print, print_json};
use crate::ops::shape;
use crate::ops::table::{Cell, Table, row};
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
    print(&table(&found, last_id).to_string())?;
    found.iter().try_for_each(|group| print(&verdict_line(group)))
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
    let mut table = Table::new(&[
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
    ]);
    for group in groups {
        let mut consumers = group.consumers.iter();
        table.push(row![
            &group.name,
            &group.stream,
            group.last_delivered.to_string(),
            last_id.to_string(),
            shape::lag(group.lag),
            count(group.pending),
            age_or_nothing(shape::waited(group.oldest_pending)),
            name_of(consumers.next()),
            group.consumers.first().map_or_else(|| NOTHING.to_owned(), |first| count(first.pending)),
            age_or_nothing(group.consumers.first().map(|first| first.idle)),
        ]);
        for consumer in consumers {
            table.push(row![
                &group.name,
                &group.stream,
                "",
                "",
                "",
                "",
                "",
                &consumer.name,
                count(consumer.pending),
                age(consumer.idle),
            ]);
        }
    }
    table
}

fn name_of(consumer: Option<&ConsumerInfo>) -> Cell {
    consumer.map_or_else(|| Cell::from(NOTHING), |consumer| Cell::from(&consumer.name))
}

fn verdict_line(group: &GroupSnapshot) -> String {
    let verdict = group.verdict(&Limits::default());
    let style = match verdict.health {
        Health::Ok => GOOD,
        Health::Degraded => WARN,
        Health::Critical => BAD,
    };
    format!("\n{}: {style}{verdict}{style:#}\n", group.name)
}
