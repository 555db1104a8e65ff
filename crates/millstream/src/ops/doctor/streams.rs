//! Findings about streams and groups, and how to fix them.

use millstream_worker::backend::ConsumerInfo;
use millstream_worker::monitor::{Finding as GroupFinding, GroupSnapshot, Health, Limits, StreamSnapshot};

use super::finding::Finding;
use crate::ops::shell::{option, suggest};
use crate::ops::value::{count, counted};

/// Length from which a stream is reported if none of its entries was ever removed.
const UNTRIMMED_LENGTH: u64 = 100_000;

/// Returns the findings about a stream and its groups.
pub(super) fn findings(stream: &StreamSnapshot) -> Vec<Finding> {
    let mut findings = stream_findings(stream);
    for group in &stream.groups {
        // Dead letters are reported once, with the stream.
        let found = group.verdict(&Limits::default()).findings.into_iter();
        findings.extend(
            found.filter(|found| found.code != "dead_letters").map(|found| group_finding(group, found)),
        );
    }
    findings
}

fn stream_findings(stream: &StreamSnapshot) -> Vec<Finding> {
    let name = &stream.name;
    let mut findings = Vec::new();
    let mut report = |health, code, text: String, way_out: String| {
        findings.push(Finding { health, code, stream: Some(name.clone()), group: None, text, way_out });
    };
    // A dead-letter stream needs no group.
    let is_dead_letters = name.ends_with(":dlq");
    if stream.groups.is_empty() && stream.info.length > 0 && !is_dead_letters {
        report(
            Health::Ok,
            "no_groups",
            format!("{}, and no group reads them", counted(stream.info.length, "entry", "entries")),
            format!("create a group with: {}", suggest("group create", &[name, "GROUP"], "")),
        );
    }
    if stream.info.length >= UNTRIMMED_LENGTH && stream.info.entries_added == Some(stream.info.length) {
        report(
            Health::Degraded,
            "never_trimmed",
            format!(
                "{} entries, and none was ever removed: the stream grows without limit",
                count(stream.info.length)
            ),
            format!(
                "trim when adding, for example: {}",
                suggest("add", &[name, "FIELD=VALUE"], "--maxlen 100000")
            ),
        );
    }
    if stream.dead_letters_length > 0 {
        report(
            Health::Degraded,
            "dead_letters",
            counted(
                stream.dead_letters_length,
                "dead letter waits for a decision",
                "dead letters wait for a decision",
            ),
            format!(
                "list them with: {}; then run: {}, or: {}",
                suggest("dlq ls", &[name], ""),
                suggest("dlq redrive", &[name], ""),
                suggest("dlq purge", &[name], "")
            ),
        );
    }
    findings
}

fn group_finding(group: &GroupSnapshot, found: GroupFinding) -> Finding {
    let GroupSnapshot { stream, name, .. } = group;
    let way_out = match found.code {
        "lag" | "unread_age" => {
            format!(
                "start more workers, or skip the unread entries with: {}",
                suggest("group reset", &[stream, name], "--to-latest")
            )
        }
        "no_reader" => format!("start a worker with: {}", start_worker(group)),
        "consumer_idle" => remove_consumer(group, found.consumer.as_deref().unwrap_or_default()),
        _ => {
            let list = format!("list them with: {}", suggest("pending ls", &[stream, name], "--min-idle 5m"));
            match least_idle(group, None) {
                Some(consumer) => format!(
                    "{list}; then run: {}",
                    suggest("pending claim", &[stream, name, &consumer.name], "--min-idle 5m")
                ),
                None => format!("{list}; let a worker take them over: {}", start_worker(group)),
            }
        }
    };
    let GroupFinding { health, code, text, .. } = found;
    Finding { health, code, stream: Some(stream.clone()), group: Some(name.clone()), text, way_out }
}

/// Suggests how to remove a consumer that will not come back. Its pending entries need an heir.
fn remove_consumer(group: &GroupSnapshot, consumer: &str) -> String {
    let GroupSnapshot { stream, name, .. } = group;
    let remove = |options: &str| {
        let command = suggest("consumer rm", &[stream, name, consumer], options);
        format!("if it will not come back, run: {command}")
    };
    let has_pending = group.consumers.iter().any(|other| other.name == consumer && other.pending > 0);
    match least_idle(group, Some(consumer)) {
        _ if !has_pending => remove(""),
        Some(heir) => remove(&option("--heir", &heir.name)),
        None => format!("let a worker take over its pending entries: {}", start_worker(group)),
    }
}

/// Returns the consumer of the group with the shortest idle time, other than `except`.
fn least_idle<'a>(group: &'a GroupSnapshot, except: Option<&str>) -> Option<&'a ConsumerInfo> {
    let others = group.consumers.iter().filter(|consumer| Some(consumer.name.as_str()) != except);
    others.min_by_key(|consumer| consumer.idle)
}

/// Returns the command that starts a worker of the group.
fn start_worker(group: &GroupSnapshot) -> String {
    let (stream, name) = (option("--stream", &group.stream), option("--group", &group.name));
    suggest("work", &[], &format!("{stream} {name} --exec COMMAND"))
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

    /// Returns the codes and fixes of the findings for a group with unread entries and these consumers.
    async fn fixes_for(consumers: Vec<ConsumerInfo>) -> Vec<(&'static str, String)> {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        let fields = vec![(Bytes::from("item"), Bytes::from("book"))];
        backend.add("orders", &[NewEntry { fields, idempotence: None }], None).await.unwrap();
        backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
        let mut stream = Monitor::new(backend).stream("orders").await.unwrap().unwrap();
        stream.groups[0].scan.stuck = 1;
        stream.groups[0].consumers = consumers;
        findings(&stream).into_iter().map(|found| (found.code, found.way_out)).collect()
    }

    fn with_code<'a>(fixes: &'a [(&str, String)], code: &str) -> Vec<&'a str> {
        fixes.iter().filter(|(found, _)| *found == code).map(|(_, fix)| fix.as_str()).collect()
    }

    #[tokio::test]
    async fn fixes_name_existing_consumers() {
        let gone = [consumer("gone", 2, 600), consumer("empty", 0, 600), consumer("fresh", 1, 1)];
        let fixes = fixes_for(gone.to_vec()).await;
        let remove = "if it will not come back, run: millstream consumer rm orders billing";
        assert_eq!(
            with_code(&fixes, "consumer_idle"),
            [format!("{remove} gone --heir fresh"), format!("{remove} empty")]
        );
        let [stuck] = with_code(&fixes, "stuck")[..] else { panic!("{fixes:?}") };
        assert!(stuck.ends_with("millstream pending claim orders billing fresh --min-idle 5m"), "{stuck}");
    }

    #[tokio::test]
    async fn without_other_consumers_a_worker_is_suggested() {
        let start = "millstream work --stream orders --group billing --exec COMMAND";
        let fixes = fixes_for(vec![consumer("gone", 2, 600)]).await;
        assert_eq!(
            with_code(&fixes, "consumer_idle"),
            [format!("let a worker take over its pending entries: {start}")]
        );
        assert_eq!(with_code(&fixes, "no_reader"), [format!("start a worker with: {start}")]);
        let fixes = fixes_for(vec![]).await;
        let [stuck] = with_code(&fixes, "stuck")[..] else { panic!("{fixes:?}") };
        assert!(stuck.ends_with(&format!("let a worker take them over: {start}")), "{stuck}");
    }
}
