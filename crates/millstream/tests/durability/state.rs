//! The whole state of a server that a client can see, read over the wire.

use std::collections::BTreeMap;

use crate::entry::{Fields, Id};
use crate::ledger::{PAIR, RING, WORK, pair_key};
use crate::load::TRANSACTORS;
use crate::reply;
use crate::support::resp::Value;
use crate::support::wire::Client;

/// Everything that the load may have written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// All streams of the load by key. Empty if the server has no such stream.
    pub streams: BTreeMap<&'static str, Stream>,
    /// Value of [`pair_key`] by producer.
    pub pair_numbers: BTreeMap<u32, u64>,
    /// Keys that no client ever wrote.
    pub foreign_keys: Vec<String>,
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    /// The length that XINFO reports.
    pub length: u64,
    /// The entries.
    pub entries: BTreeMap<Id, Fields>,
    /// last-generated-id
    pub last_id: Id,
    /// max-deleted-entry-id
    pub deleted_id_max: Id,
    /// entries-added
    pub added: u64,
    /// The stream's only group.
    pub group: Option<Group>,
}

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// last-delivered-id
    pub last_delivered: Id,
    /// entries-read, if the server knows it
    pub entries_read: Option<u64>,
    /// The group's pending entries.
    pub pending: BTreeMap<Id, Pending>,
    /// The pending entries that the consumers report.
    pub owned: Vec<(Id, Pending)>,
}

/// A pending entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pending {
    /// Its consumer.
    pub consumer: String,
    /// Time of its last delivery, in Unix milliseconds.
    pub delivered_ms: u64,
    /// Number of deliveries.
    pub count: u64,
}

impl State {
    /// Reads the whole state. The load must have stopped.
    pub(crate) fn read(client: &mut Client) -> State {
        let mut state = State::default();
        let known: Vec<&'static str> = WORK.into_iter().chain([RING]).chain(PAIR).collect();
        for &key in &known {
            let info = client.call(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"]);
            state.streams.insert(key, stream(&info));
        }
        for producer in TRANSACTORS {
            let number = client.call(&["GET", &pair_key(producer)]);
            if let Some(number) = std::str::from_utf8(reply::text(&number).unwrap_or_default())
                .ok()
                .and_then(|text| text.parse().ok())
            {
                state.pair_numbers.insert(producer, number);
            }
        }
        let pair_keys = TRANSACTORS.map(pair_key);
        state.foreign_keys = reply::list(&client.call(&["KEYS", "*"]))
            .iter()
            .map(reply::string)
            .filter(|key| !known.contains(&key.as_str()) && !pair_keys.contains(key))
            .collect();
        state
    }
}

fn stream(info: &Value) -> Stream {
    let id = |name: &str| reply::field(info, name).and_then(reply::id).unwrap_or_default();
    let int = |name: &str| reply::field(info, name).and_then(reply::int).unwrap_or_default();
    let entries = reply::field(info, "entries").map(reply::list).unwrap_or_default();
    let groups = reply::field(info, "groups").map(reply::list).unwrap_or_default();
    Stream {
        length: int("length"),
        entries: entries
            .iter()
            .filter_map(reply::entry)
            .map(|(id, fields)| (id, fields.unwrap_or_default()))
            .collect(),
        last_id: id("last-generated-id"),
        deleted_id_max: id("max-deleted-entry-id"),
        added: int("entries-added"),
        group: groups.first().map(group),
    }
}

fn group(info: &Value) -> Group {
    let field = |name: &str| reply::field(info, name);
    // The name differs between versions of Redis.
    let pending = field("pel").or_else(|| field("pending")).map(reply::list).unwrap_or_default();
    let consumers = field("consumers").map(reply::list).unwrap_or_default();
    Group {
        last_delivered: field("last-delivered-id").and_then(reply::id).unwrap_or_default(),
        entries_read: field("entries-read").and_then(reply::int),
        pending: pending.iter().filter_map(group_row).collect(),
        owned: consumers.iter().flat_map(consumer_rows).collect(),
    }
}

fn group_row(row: &Value) -> Option<(Id, Pending)> {
    let [id, consumer, time, count] = reply::list(row) else { return None };
    Some((reply::id(id)?, pending(reply::string(consumer), time, count)?))
}

fn consumer_rows(consumer: &Value) -> Vec<(Id, Pending)> {
    let name = reply::field(consumer, "name").map(reply::string).unwrap_or_default();
    let rows = reply::field(consumer, "pel").or_else(|| reply::field(consumer, "pending"));
    rows.map(reply::list)
        .unwrap_or_default()
        .iter()
        .filter_map(|row| {
            let [id, time, count] = reply::list(row) else { return None };
            Some((reply::id(id)?, pending(name.clone(), time, count)?))
        })
        .collect()
}

fn pending(consumer: String, time: &Value, count: &Value) -> Option<Pending> {
    Some(Pending { consumer, delivered_ms: reply::int(time)?, count: reply::int(count)? })
}
