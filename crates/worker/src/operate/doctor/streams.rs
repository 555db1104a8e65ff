//! Findings about streams and groups, and how to fix them.

use super::finding::{DoctorFinding, Subject};
use crate::heartbeat::WorkerInfo;
use crate::monitor::{Finding, GroupSnapshot, Health, Limits, StreamSnapshot};
use crate::operate::command::{Command, WayOut};
use crate::operate::wording::{count, counted};

/// Length from which a stream is reported if none of its entries was ever removed.
const UNTRIMMED_LENGTH: u64 = 100_000;

/// Returns the findings about a stream and its groups.
pub(super) fn findings(stream: &StreamSnapshot) -> Vec<DoctorFinding> {
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

fn stream_findings(stream: &StreamSnapshot) -> Vec<DoctorFinding> {
    let name = &stream.name;
    let mut findings = Vec::new();
    let mut report = |health, code, text: String, way_out: WayOut| {
        let subject = Subject::Stream(name.clone());
        findings.push(DoctorFinding { health, code, subject, consumer: None, text, way_out });
    };
    // A dead-letter stream needs no group.
    let is_dead_letters = name.ends_with(":dlq");
    if stream.groups.is_empty() && stream.info.length > 0 && !is_dead_letters {
        report(
            Health::Ok,
            "no_groups",
            format!("{}, and no group reads them", counted(stream.info.length, "entry", "entries")),
            WayOut::text("create a group with: ").run(Command::new("group create", &[name, "GROUP"])),
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
            WayOut::text("list them with: ")
                .run(Command::new("dlq ls", &[name]))
                .then("; then run: ")
                .run(Command::new("dlq redrive", &[name]))
                .then(", or: ")
                .run(Command::new("dlq purge", &[name])),
        );
    }
    findings
}

/// Suggests how to keep a stream from growing without deleting unread entries.
fn shrink(stream: &StreamSnapshot) -> WayOut {
    let slowest = stream.groups.iter().max_by_key(|group| group.lag.count);
    match slowest {
        // The unread entries themselves are what makes the stream long.
        Some(group) if group.lag.count >= stream.info.length / 2 => WayOut::text(format!(
            "group {} has not read most of it yet: start more workers with: ",
            group.name
        ))
        .run(start_worker(group, Some("--delete-done"))),
        Some(group) => WayOut::text("let workers delete what every group has acknowledged: ")
            .run(start_worker(group, Some("--delete-done")))
            .then("; or let producers trim only that: ")
            .run(add_keeping_unread(&stream.name)),
        None => WayOut::text("let producers trim it: ").run(add_keeping_unread(&stream.name)),
    }
}

/// Returns the command that adds an entry and trims the stream, but removes nothing that a group has not acknowledged.
fn add_keeping_unread(stream: &str) -> Command {
    Command::new("add", &[stream, "FIELD=VALUE"]).option("--maxlen", "100000").flag("--keep-unread")
}

fn group_finding(whole: &GroupSnapshot, found: Finding) -> DoctorFinding {
    // Commands about pending entries name the partition that has them.
    let part = match (&found.consumer, found.partition) {
        (Some(consumer), _) => whole.parts.iter().max_by_key(|part| pending_of(part, consumer)),
        (None, number) => whole.parts.iter().find(|part| number.is_some() && part.number() == number),
    };
    let group = part.map_or(whole, |part| &**part);
    let GroupSnapshot { stream, name, .. } = whole;
    let way_out = match found.code {
        "missed" => WayOut::text(
            "these entries are gone; find the producer that trims the stream (MAXLEN, MINID or XTRIM) and let it keep unread \
             entries: ",
        )
        .run(add_keeping_unread(logical(group)))
        .then("; or let workers delete what is done: ")
        .run(start_worker(group, Some("--delete-done"))),
        "lag" | "unread_age" => WayOut::text("start more workers with: ")
            .run(start_worker(group, None))
            .then("; only if nobody needs the unread entries, skip them with: ")
            .run(Command::new("group reset", &[stream, name]).flag("--to-latest")),
        "lag_grows" => WayOut::text("start more workers with: ").run(start_worker(group, None)),
        "running" => WayOut::text(
            "see what its handler waits for; if a call may take that long, start its worker with --slow-after; if not, limit it: ",
        )
        .run(start_worker(group, None).option("--timeout", "DURATION")),
        "keys_blocked" | "window_full" => WayOut::text("see the errors with: ")
            .run(Command::new("pending ls", &[stream, name]))
            .then(
                "; mend the handler, or let a message become a dead letter earlier with --max-attempts: its key then goes on \
                 without it",
            ),
        "no_reader" => WayOut::text("start a worker with: ").run(start_worker(group, None)),
        "worker_dead" => dead_worker(whole, found.consumer.as_deref().unwrap_or_default()),
        "circuit_open" => open_breaker(whole, found.consumer.as_deref().unwrap_or_default()),
        "name_in_use" => WayOut::text(
            "stop one of the workers, or give each a name of its own with --consumer, or leave --consumer out",
        ),
        "consumer_idle" => match &found.consumer {
            Some(consumer) => remove_consumer(group, consumer),
            None => WayOut::text("list them with: ").run(Command::new("consumer ls", &[stream, name])),
        },
        _ => handle_pending(group),
    };
    let Finding { health, code, text, consumer, .. } = found;
    DoctorFinding { health, code, subject: Subject::group_of(stream, name), consumer, text, way_out }
}

/// Suggests how to get pending entries handled.
///
/// Never to claim them for a consumer: a consumer that reads new entries does not learn of them, and a claim only
/// makes them look fresh.
fn handle_pending(group: &GroupSnapshot) -> WayOut {
    let GroupSnapshot { stream, name, .. } = group;
    let list =
        WayOut::text("list them, with their last errors: ").run(Command::new("pending ls", &[stream, name]));
    if group.live_workers().next().is_some() {
        return list.then(
            "; the worker takes over what other consumers leave, and retries what fails until its last attempt: mend the handler, or \
             see the log of the worker",
        );
    }
    list.then("; let a worker take them over and handle them: ").run(start_worker(group, None))
}

/// Suggests what to do about a worker that sends no heartbeats any more.
fn dead_worker(group: &GroupSnapshot, consumer: &str) -> WayOut {
    let has_pending = group.consumers.iter().any(|other| other.name == consumer && other.pending > 0);
    let has_others = group.workers.iter().any(WorkerInfo::is_alive);
    match (has_pending, has_others) {
        (false, _) => WayOut::text("find out in its log why it ended; it left no messages"),
        (true, true) => WayOut::text(
            "the other workers take its messages over when their leases run out; its log says why it ended",
        ),
        (true, false) => WayOut::text("let a worker take over its messages: ").run(start_worker(group, None)),
    }
}

/// Suggests how to find out why all handler calls of a worker fail.
fn open_breaker(group: &GroupSnapshot, consumer: &str) -> WayOut {
    let listen = group.workers_of(consumer).find_map(|worker| worker.heartbeat.listen.as_deref());
    let readyz = listen.map_or_else(String::new, |address| format!(" or http://{address}/readyz"));
    WayOut::text(format!(
        "see the error in its log{readyz}; the worker probes and continues by itself, and keeps all messages"
    ))
}

/// Suggests how to remove a consumer that will not come back. Only a worker handles what another consumer leaves
/// pending.
fn remove_consumer(group: &GroupSnapshot, consumer: &str) -> WayOut {
    let GroupSnapshot { stream, name, .. } = group;
    let remove = Command::new("consumer rm", &[stream, name, consumer]);
    if pending_of(group, consumer).unwrap_or_default() == 0 {
        return WayOut::text("if it will not come back, run: ").run(remove);
    }
    if group.live_workers().next().is_some() {
        return WayOut::text(
            "the workers take its pending entries over when their leases run out; if it will not come back, then run: ",
        )
        .run(remove);
    }
    WayOut::text("let a worker take over its pending entries: ").run(start_worker(group, None))
}

/// Returns the name of the stream that workers and producers use: for a partition, that of its logical stream.
fn logical(group: &GroupSnapshot) -> &str {
    group.part_of.as_ref().map_or(&group.stream, |part| &part.stream)
}

/// Returns the number of entries that are pending for a consumer. `None` if the group does not have this consumer.
fn pending_of(group: &GroupSnapshot, consumer: &str) -> Option<u64> {
    group.consumers.iter().find(|found| found.name == consumer).map(|found| found.pending)
}

/// Returns the command that starts a worker of the group, with one more option.
fn start_worker(group: &GroupSnapshot, flag: Option<&'static str>) -> Command {
    let work = Command::new("work", &[]).option("--stream", logical(group)).option("--group", &group.name);
    let work = flag.into_iter().fold(work, Command::flag);
    work.option("--exec", "COMMAND")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::ConsumerInfo;
    use crate::backend::{NewEntry, Start};
    use crate::monitor::Monitor;
    use bytes::Bytes;

    /// Writes a command without quotes.
    fn line(command: &Command) -> String {
        let names = command.names.iter().cloned();
        let options = command
            .options
            .iter()
            .flat_map(|(name, value)| std::iter::once((*name).to_owned()).chain(value.clone()));
        let words: Vec<String> = names.chain(options).collect();
        format!("millstream {} {}", command.subcommand, words.join(" "))
    }

    fn consumer(name: &str, pending: u64, idle_s: u64) -> ConsumerInfo {
        ConsumerInfo { name: name.to_owned(), pending, idle: Duration::from_secs(idle_s), inactive: None }
    }

    /// Returns the codes and fixes of the findings for a group with unread entries and these consumers.
    async fn fixes_for(consumers: Vec<ConsumerInfo>) -> Vec<(&'static str, String)> {
        let backend = crate::connect("memory:").await.unwrap();
        let fields = vec![(Bytes::from("item"), Bytes::from("book"))];
        backend.add("orders", &[NewEntry { fields, idempotence: None }], None).await.unwrap();
        backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
        let mut stream = Monitor::new(backend).stream("orders").await.unwrap().unwrap();
        stream.groups[0].scan.stuck = 1;
        stream.groups[0].consumers = consumers;
        findings(&stream).into_iter().map(|found| (found.code, found.way_out.to_text(line))).collect()
    }

    fn with_code<'a>(fixes: &'a [(&str, String)], code: &str) -> Vec<&'a str> {
        fixes.iter().filter(|(found, _)| *found == code).map(|(_, fix)| fix.as_str()).collect()
    }

    #[tokio::test]
    async fn fixes_move_no_entries_to_a_consumer() {
        let gone = [consumer("gone", 2, 600), consumer("empty", 0, 600), consumer("fresh", 1, 1)];
        let fixes = fixes_for(gone.to_vec()).await;
        let start = "millstream work --stream orders --group billing --exec COMMAND";
        assert_eq!(
            with_code(&fixes, "consumer_idle"),
            [
                format!("let a worker take over its pending entries: {start}"),
                "if it will not come back, run: millstream consumer rm orders billing empty".to_owned()
            ]
        );
        let [stuck] = with_code(&fixes, "stuck")[..] else { panic!("{fixes:?}") };
        assert!(stuck.ends_with(&format!("let a worker take them over and handle them: {start}")), "{stuck}");
    }

    #[tokio::test]
    async fn no_fix_of_a_long_stream_deletes_unread_entries() {
        let backend = crate::connect("memory:").await.unwrap();
        for group in ["billing", "mail"] {
            backend.create_group("orders", group, Start::Beginning).await.unwrap();
        }
        let mut stream = Monitor::new(backend).stream("orders").await.unwrap().unwrap();
        (stream.info.length, stream.info.entries_added) = (UNTRIMMED_LENGTH, Some(UNTRIMMED_LENGTH));
        let fix = |stream: &StreamSnapshot| {
            let found = findings(stream).into_iter().find(|found| found.code == "never_trimmed");
            found.expect("a finding about the length").way_out.to_text(line)
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
    }
}
