//! Findings about policies and delayed messages, on stores that have them.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{Error, PolicyInfo};
use millstream_worker::monitor::{GroupSnapshot, Health, StreamSnapshot};

use super::finding::Finding;
use crate::ops::shell::suggest;
use crate::ops::value::{age, counted};

/// A delayed message that is late by this much is reported.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Fewer late acknowledgements than this are not reported: a consumer that restarts causes some.
const LATE_ACKS_MIN: u64 = 10;
/// Late acknowledgements are reported if they are at least this share of the entries that the group has read.
const LATE_ACKS_PERCENT: u64 = 5;
/// Without a lease, pending entries are reported if one has been idle for this long.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// Returns the findings about the policies of a stream and its groups.
pub(super) async fn findings(backend: &dyn Admin, stream: &StreamSnapshot) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    // A store without policies, or a user who may not see them.
    let Some(of_stream) = backend.policy(&stream.name, None).await? else { return Ok(findings) };
    let now_ms = backend.now_ms(&stream.name).await?;
    findings.extend(overdue(&stream.name, &of_stream, now_ms));
    for group in &stream.groups {
        if let Some(info) = backend.policy(&stream.name, Some(&group.name)).await? {
            findings.extend(blocked(&stream.name, &group.name, &info));
            findings.extend(lease_shorter_than_work(group, &info));
            findings.extend(no_policy(group, &info));
        }
    }
    Ok(findings)
}

/// Delayed messages that should have been added long ago.
fn overdue(stream: &str, info: &PolicyInfo, now_ms: u64) -> Option<Finding> {
    let late = Duration::from_millis(now_ms.saturating_sub(info.delayed_first?.ms));
    (late > LATE_MAX).then(|| Finding {
        health: Health::Critical,
        code: "delayed_overdue",
        stream: Some(stream.to_owned()),
        group: None,
        text: format!("a delayed message is {} late: the server cannot add it", age(late)),
        way_out: format!(
            "if the last id of the stream is the greatest possible one, no entry can be added: use another stream; \
             list delayed messages with: {}",
            suggest("delayed ls", &[stream], "")
        ),
    })
}

/// Messages that the server cannot dead-letter.
fn blocked(stream: &str, group: &str, info: &PolicyInfo) -> Option<Finding> {
    let error = info.dead_letter_error.as_ref()?;
    let attempts = counted(counter(info, "dlq-errors"), "attempt", "attempts");
    Some(Finding {
        health: Health::Critical,
        code: "dlq_blocked",
        stream: Some(stream.to_owned()),
        group: Some(group.to_owned()),
        text: format!("the server cannot dead-letter messages ({attempts} failed): {error}"),
        way_out: format!(
            "make space on the disk, or remove the key that is in the way, or name another dead-letter stream: {}",
            suggest("group policy", &[stream, group], "--dlq NAME")
        ),
    })
}

/// Consumers that acknowledge many entries after their lease has run out.
fn lease_shorter_than_work(group: &GroupSnapshot, info: &PolicyInfo) -> Option<Finding> {
    let lease = Duration::from_millis(info.in_force.lease_ms?);
    let (late, read) = (counter(info, "late-acks"), group.entries_read.unwrap_or(0));
    let is_share = late.saturating_mul(100) >= read.saturating_mul(LATE_ACKS_PERCENT);
    (late >= LATE_ACKS_MIN && is_share).then(|| Finding {
        health: Health::Degraded,
        code: "lease_shorter_than_work",
        stream: Some(group.stream.clone()),
        group: Some(group.name.clone()),
        text: format!(
            "{} acknowledged after the lease of {} had run out, or when the message was no longer pending: consumers work \
             longer than the lease, so that other consumers get the same messages",
            counted(late, "message was", "messages were"),
            age(lease)
        ),
        way_out: format!(
            "set a lease that is longer than the work, or let consumers extend theirs with XEXTEND, or read fewer messages at \
             a time: {}",
            suggest("group policy", &[&group.stream, &group.name], "--lease DURATION")
        ),
    })
}

/// Messages that plain clients left pending, in a group where nothing redelivers them.
fn no_policy(group: &GroupSnapshot, info: &PolicyInfo) -> Option<Finding> {
    let idle = group.scan.longest_idle.filter(|idle| *idle >= IDLE_MAX)?;
    let has_worker = group.workers.iter().any(|worker| worker.is_alive());
    (info.in_force.lease_ms.is_none() && !has_worker).then(|| Finding {
        health: Health::Ok,
        code: "no_policy",
        stream: Some(group.stream.clone()),
        group: Some(group.name.clone()),
        text: format!(
            "{} pending, one of them idle for {}, and nothing redelivers them: the group has no lease and no worker",
            counted(group.pending, "message is", "messages are"),
            age(idle)
        ),
        way_out: format!(
            "let the server redeliver what consumers do not acknowledge in time: {}",
            suggest("group policy", &[&group.stream, &group.name], "--lease 30s")
        ),
    })
}

/// Returns a counter of the policy; 0 if the store does not report it.
fn counter(info: &PolicyInfo, name: &str) -> u64 {
    let found = info.counters.iter().find(|(found, _)| found == name);
    found.map_or(0, |(_, count)| count.unsigned_abs())
}
