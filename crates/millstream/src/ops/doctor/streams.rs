//! Findings about streams and groups, and how to fix them.

use millstream_worker::backend::ConsumerInfo;
use millstream_worker::heartbeat::WorkerInfo;
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
            shrink(stream),
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

/// Suggests how to keep a stream from growing without deleting unread entries.
fn shrink(stream: &StreamSnapshot) -> String {
    let slowest = stream.groups.iter().max_by_key(|group| group.lag.count);
    match slowest {
        // The unread entries themselves are what makes the stream long.
        Some(group) if group.lag.count >= stream.info.length / 2 => format!(
            "group {} has not read most of it yet: start more workers with: {}",
            group.name,
            start_worker(group, "--delete-done")
        ),
        Some(group) => format!(
            "let workers delete what every group has acknowledged: {}; or let producers trim only that: {}",
            start_worker(group, "--delete-done"),
            add_keeping_unread(&stream.name)
        ),
        None => format!("let producers trim it: {}", add_keeping_unread(&stream.name)),
    }
}

/// Returns the command that adds an entry and trims the stream, but removes nothing that a group has not acknowledged.
fn add_keeping_unread(stream: &str) -> String {
    suggest("add", &[stream, "FIELD=VALUE"], "--maxlen 100000 --keep-unread")
}

fn group_finding(group: &GroupSnapshot, found: GroupFinding) -> Finding {
    let GroupSnapshot { stream, name, .. } = group;
    let way_out = match found.code {
        "missed" => format!(
            "these entries are gone; find the producer that trims the stream (MAXLEN, MINID or XTRIM) and let it keep unread \
             entries: {}; or let workers delete what is done: {}",
            add_keeping_unread(stream),
            start_worker(group, "--delete-done")
        ),
        "lag" | "unread_age" => {
            format!(
                "start more workers with: {}; only if nobody needs the unread entries, skip them with: {}",
                start_worker(group, ""),
                suggest("group reset", &[stream, name], "--to-latest")
            )
        }
        "no_reader" => format!("start a worker with: {}", start_worker(group, "")),
        "worker_dead" => dead_worker(group, found.consumer.as_deref().unwrap_or_default()),
        "circuit_open" => open_breaker(group, found.consumer.as_deref().unwrap_or_default()),
        "name_in_use" => {
            "stop one of the workers, or give each a name of its own with --consumer, or leave --consumer out"
                .to_owned()
        }
        "consumer_idle" => remove_consumer(group, found.consumer.as_deref().unwrap_or_default()),
        _ => {
            let list = format!("list them with: {}", suggest("pending ls", &[stream, name], "--min-idle 5m"));
            match least_idle(group, None) {
                Some(consumer) => format!(
                    "{list}; then run: {}",
                    suggest("pending claim", &[stream, name, &consumer.name], "--min-idle 5m")
                ),
                None => format!("{list}; let a worker take them over: {}", start_worker(group, "")),
            }
        }
    };
    let GroupFinding { health, code, text, .. } = found;
    Finding { health, code, stream: Some(stream.clone()), group: Some(name.clone()), text, way_out }
}

/// Suggests what to do about a worker that sends no heartbeats any more.
fn dead_worker(group: &GroupSnapshot, consumer: &str) -> String {
    let has_pending = group.consumers.iter().any(|other| other.name == consumer && other.pending > 0);
    let has_others = group.workers.iter().any(WorkerInfo::is_alive);
    match (has_pending, has_others) {
        (false, _) => "find out in its log why it ended; it left no messages".to_owned(),
        (true, true) => {
            "the other workers take its messages over when their leases run out; its log says why it ended"
                .to_owned()
        }
        (true, false) => format!("let a worker take over its messages: {}", start_worker(group, "")),
    }
}

/// Suggests how to find out why all handler calls of a worker fail.
fn open_breaker(group: &GroupSnapshot, consumer: &str) -> String {
    let listen = group.workers_of(consumer).find_map(|worker| worker.heartbeat.listen.as_deref());
    let readyz = listen.map_or_else(String::new, |address| format!(" or http://{address}/readyz"));
    format!(
        "see the error in its log{readyz}; the worker probes and continues by itself, and keeps all messages"
    )
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
        None => format!("let a worker take over its pending entries: {}", start_worker(group, "")),
    }
}

/// Returns the consumer of the group with the shortest idle time, other than `except`.
fn least_idle<'a>(group: &'a GroupSnapshot, except: Option<&str>) -> Option<&'a ConsumerInfo> {
    let others = group.consumers.iter().filter(|consumer| Some(consumer.name.as_str()) != except);
    others.min_by_key(|consumer| consumer.idle)
}

/// Returns the command that starts a worker of the group, with further options.
fn start_worker(group: &GroupSnapshot, options: &str) -> String {
    let (stream, name) = (option("--stream", &group.stream), option("--group", &group.name));
    let separator = if options.is_empty() { "" } else { " " };
    suggest("work", &[], &format!("{stream} {name} {options}{separator}--exec COMMAND"))
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
    async fn no_fix_of_a_long_stream_deletes_unread_entries() {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        for group in ["billing", "mail"] {
            backend.create_group("orders", group, Start::Beginning).await.unwrap();
        }
        let mut stream = Monitor::new(backend).stream("orders").await.unwrap().unwrap();
        (stream.info.length, stream.info.entries_added) = (UNTRIMMED_LENGTH, Some(UNTRIMMED_LENGTH));
        let fix = |stream: &StreamSnapshot| {
            let found = findings(stream).into_iter().find(|found| found.code == "never_trimmed");
            found.expect("a finding about the length").way_out
        };
        let trim = "millstream add orders FIELD=VALUE --maxlen 100000 --keep-unread";
        assert!(fix(&stream).contains("--group mail --delete-done --exec COMMAND; or"), "{}", fix(&stream));
        assert!(fix(&stream).ends_with(trim), "{}", fix(&stream));
        stream.groups[1].lag.count = UNTRIMMED_LENGTH;
        assert!(
            fix(&stream).starts_with("group mail has not read most of it yet: start more workers with: ")
        );
        stream.groups.clear();
        assert_eq!(fix(&stream), format!("let producers trim it: {trim}"));
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
