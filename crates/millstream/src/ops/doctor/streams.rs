//! What may be wrong with streams and groups, and the way out of it.

use millstream_worker::backend::ConsumerInfo;
use millstream_worker::monitor::{Finding as Found, GroupSnapshot, Health, Limits, StreamSnapshot};

use super::finding::Finding;
use crate::ops::value::{count, counted};

/// A stream that has never lost an entry and is longer than this grows without end.
const UNTRIMMED_LENGTH: u64 = 100_000;

/// Everything found about a stream and its groups.
pub(super) fn findings(stream: &StreamSnapshot) -> Vec<Finding> {
    let mut findings = of_stream(stream);
    for group in &stream.groups {
        // Dead letters belong to the stream, and are told once for it.
        let found = group.verdict(&Limits::default()).findings.into_iter();
        findings
            .extend(found.filter(|found| found.code != "dead_letters").map(|found| of_group(group, found)));
    }
    findings
}

fn of_stream(stream: &StreamSnapshot) -> Vec<Finding> {
    let name = &stream.name;
    let mut findings = Vec::new();
    let mut find = |health, code, text: String, way_out: String| {
        findings.push(Finding { health, code, stream: Some(name.clone()), group: None, text, way_out });
    };
    // Nobody reads dead letters, and nobody should.
    let is_dead_letters = name.ends_with(":dlq");
    if stream.groups.is_empty() && stream.info.length > 0 && !is_dead_letters {
        find(
            Health::Ok,
            "no_groups",
            format!("{}, and no group reads them", counted(stream.info.length, "entry", "entries")),
            format!("make a group with: millstream group create {name} GROUP"),
        );
    }
    if stream.info.length >= UNTRIMMED_LENGTH && stream.info.entries_added == Some(stream.info.length) {
        find(
            Health::Degraded,
            "never_trimmed",
            format!("{} entries, and none was ever trimmed: it grows without end", count(stream.info.length)),
            format!("let producers trim, as in: millstream add {name} FIELD=VALUE --maxlen 100000"),
        );
    }
    if stream.dead_letters_length > 0 {
        find(
            Health::Degraded,
            "dead_letters",
            counted(
                stream.dead_letters_length,
                "dead letter waits for a decision",
                "dead letters wait for a decision",
            ),
            format!(
                "see them with: millstream dlq ls {name}; then: millstream dlq redrive {name} or millstream dlq purge {name}"
            ),
        );
    }
    findings
}

fn of_group(group: &GroupSnapshot, found: Found) -> Finding {
    let GroupSnapshot { stream, name, .. } = group;
    let way_out = match found.code {
        "lag" | "unread_age" => {
            format!("start more workers, or skip with: millstream group reset {stream} {name} --to-latest")
        }
        "no_reader" => format!("start a worker: {}", start_worker(group)),
        "consumer_idle" => remove_consumer(group, found.consumer.as_deref().unwrap_or_default()),
        _ => {
            let see = format!("see them with: millstream pending ls {stream} {name} --min-idle 5m");
            match freshest(group, None) {
                Some(consumer) => format!(
                    "{see}; then: millstream pending claim {stream} {name} {} --min-idle 5m",
                    consumer.name
                ),
                None => format!("{see}; a worker takes them over: {}", start_worker(group)),
            }
        }
    };
    let Found { health, code, text, .. } = found;
    Finding { health, code, stream: Some(stream.clone()), group: Some(name.clone()), text, way_out }
}

/// How a consumer leaves that is gone for good. What it holds needs an heir.
fn remove_consumer(group: &GroupSnapshot, consumer: &str) -> String {
    let GroupSnapshot { stream, name, .. } = group;
    let leave = format!("if it is gone for good: millstream consumer rm {stream} {name} {consumer}");
    let holds = group.consumers.iter().any(|other| other.name == consumer && other.pending > 0);
    match freshest(group, Some(consumer)) {
        _ if !holds => leave,
        Some(heir) => format!("{leave} --heir {}", heir.name),
        None => format!("a worker takes over what it holds: {}", start_worker(group)),
    }
}

/// The consumer that asked last, if there is one beside this one.
fn freshest<'a>(group: &'a GroupSnapshot, but: Option<&str>) -> Option<&'a ConsumerInfo> {
    let others = group.consumers.iter().filter(|consumer| Some(consumer.name.as_str()) != but);
    others.min_by_key(|consumer| consumer.idle)
}

fn start_worker(group: &GroupSnapshot) -> String {
    format!("millstream work --stream {} --group {} --exec COMMAND", group.stream, group.name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use millstream_worker::backend::{NewEntry, Start};
    use millstream_worker::monitor::Monitor;

    use super::*;

    fn consumer(name: &str, pending: u64, idle_s: u64) -> ConsumerInfo {
        ConsumerInfo { name: name.to_owned(), pending, idle: Duration::from_secs(idle_s), inactive: None }
    }

    /// The ways out of a group with these consumers and unread entries, by code.
    async fn ways_out(consumers: Vec<ConsumerInfo>) -> Vec<(&'static str, String)> {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        let fields = vec![(Bytes::from("item"), Bytes::from("book"))];
        backend.add("orders", &[NewEntry { fields, idempotence: None }], None).await.unwrap();
        backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
        let mut stream = Monitor::new(backend).stream("orders").await.unwrap().unwrap();
        stream.groups[0].scan.stuck = 1;
        stream.groups[0].consumers = consumers;
        findings(&stream).into_iter().map(|found| (found.code, found.way_out)).collect()
    }

    fn way_of<'a>(ways: &'a [(&str, String)], code: &str) -> Vec<&'a str> {
        ways.iter().filter(|(found, _)| *found == code).map(|(_, way)| way.as_str()).collect()
    }

    #[tokio::test]
    async fn hints_name_consumers_that_there_are() {
        let gone = [consumer("gone", 2, 600), consumer("empty", 0, 600), consumer("fresh", 1, 1)];
        let ways = ways_out(gone.to_vec()).await;
        let leave = "if it is gone for good: millstream consumer rm orders billing";
        assert_eq!(
            way_of(&ways, "consumer_idle"),
            [format!("{leave} gone --heir fresh"), format!("{leave} empty")]
        );
        let [stuck] = way_of(&ways, "stuck")[..] else { panic!("{ways:?}") };
        assert!(stuck.ends_with("millstream pending claim orders billing fresh --min-idle 5m"), "{stuck}");
    }

    #[tokio::test]
    async fn where_nobody_is_left_a_worker_takes_over() {
        let start = "millstream work --stream orders --group billing --exec COMMAND";
        let ways = ways_out(vec![consumer("gone", 2, 600)]).await;
        assert_eq!(way_of(&ways, "consumer_idle"), [format!("a worker takes over what it holds: {start}")]);
        assert_eq!(way_of(&ways, "no_reader"), [format!("start a worker: {start}")]);
        let ways = ways_out(vec![]).await;
        let [stuck] = way_of(&ways, "stuck")[..] else { panic!("{ways:?}") };
        assert!(stuck.ends_with(&format!("a worker takes them over: {start}")), "{stuck}");
    }
}
