//! Findings about policies and delayed messages, on stores that have them.

use std::time::Duration;

use super::ServerFacts;
use super::finding::{DoctorFinding, Subject};
use crate::backend::policy::PolicyField;
use crate::backend::{Admin, Error, PolicyInfo};
use crate::monitor::{GroupSnapshot, Health, StreamSnapshot};
use crate::names;
use crate::operate::command::{Command, WayOut};
use crate::operate::wording::{age, counted};

/// A delayed message that is late by this much is reported.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Fewer late acknowledgements than this are not reported: a consumer that restarts causes some.
const LATE_ACKS_MIN: u64 = 10;
/// Late acknowledgements are reported if they are at least this share of the entries that the group has read.
const LATE_ACKS_PERCENT: u64 = 5;
/// Without a lease, pending entries are reported if one has been idle for this long.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// Returns the findings about the policies of a stream and its groups.
pub(super) async fn findings(
    backend: &dyn Admin,
    server: &ServerFacts,
    stream: &StreamSnapshot,
) -> Result<Vec<DoctorFinding>, Error> {
    let mut findings = Vec::new();
    // A store without policies, or a user who may not see them.
    let Some(of_stream) = backend.policy(&stream.name, None).await? else { return Ok(findings) };
    let now_ms = backend.now_ms(&stream.name).await?;
    findings.extend(overdue(&stream.name, &of_stream, now_ms));
    for group in &stream.groups {
        findings.extend(of_group(backend, server, group).await?);
    }
    Ok(findings)
}

/// Returns the findings about the policy of a group.
pub(super) async fn of_group(
    backend: &dyn Admin,
    server: &ServerFacts,
    group: &GroupSnapshot,
) -> Result<Vec<DoctorFinding>, Error> {
    let Some(info) = backend.policy(&group.stream, Some(&group.name)).await? else { return Ok(Vec::new()) };
    let found = [
        denied(group, &info).or_else(|| blocked(group, &info)),
        without_owner(server, group, &info),
        lease_shorter_than_work(group, &info),
        no_policy(group, &info),
    ];
    Ok(found.into_iter().flatten().collect())
}

/// Explains missed entries by the policy of their stream, if it has a limit that removes unread entries.
pub(super) async fn explain_missed(
    backend: &dyn Admin,
    stream: &str,
    findings: &mut [DoctorFinding],
) -> Result<(), Error> {
    let is_missed =
        |finding: &DoctorFinding| finding.code == "missed" && finding.subject.stream() == Some(stream);
    if !findings.iter().any(is_missed) {
        return Ok(());
    }
    let Some(way_out) = backend.policy(stream, None).await?.and_then(|info| raise_limits(stream, &info))
    else {
        return Ok(());
    };
    findings.iter_mut().filter(|finding| is_missed(finding)).for_each(|finding| {
        finding.way_out = way_out.clone();
    });
    Ok(())
}

/// Suggests higher limits, or to keep what a group has not acknowledged. Returns `None` if the stream has no limit.
fn raise_limits(stream: &str, info: &PolicyInfo) -> Option<WayOut> {
    let limits = [
        (PolicyField::MaxAge, "--max-age", "DURATION"),
        (PolicyField::MaxLength, "--max-length", "N"),
        (PolicyField::MaxBytes, "--max-bytes", "BYTES"),
    ];
    let set = limits
        .into_iter()
        .filter(|(field, ..)| info.in_force.get(*field).is_some_and(|value| !value.is_off()));
    let set: Vec<_> = set.map(|(_, option, value)| (option, value)).collect();
    let change = |of: fn(&'static str) -> &'static str| {
        set.iter().fold(Command::new("stream policy", &[stream]), |command, (option, value)| {
            command.option(option, of(value))
        })
    };
    (!set.is_empty()).then(|| {
        WayOut::text(
            "these entries are gone: the policy of the stream also removes unread entries; raise its limit: ",
        )
        .run(change(|value| value))
        .then("; or remove only what every group has acknowledged: ")
        .run(change(|_| "off").option("--acked-age", "0s"))
    })
}

/// Delayed messages that should have been added long ago.
fn overdue(stream: &str, info: &PolicyInfo, now_ms: u64) -> Option<DoctorFinding> {
    let late = Duration::from_millis(now_ms.saturating_sub(info.delayed_first?.ms));
    (late > LATE_MAX).then(|| DoctorFinding {
        health: Health::Critical,
        code: "delayed_overdue",
        subject: Subject::Stream(stream.to_owned()),
        consumer: None,
        text: format!("a delayed message is {} late: the server cannot add it", age(late)),
        way_out: WayOut::text(
            "if the last id of the stream is the greatest possible one, no entry can be added: use another stream; \
             list delayed messages with: ",
        )
        .run(Command::new("delayed ls", &[stream])),
    })
}

/// Messages that the server cannot dead-letter.
fn blocked(group: &GroupSnapshot, info: &PolicyInfo) -> Option<DoctorFinding> {
    let error = info.dead_letter_error.as_ref()?;
    let attempts = counted(counter(info, "dlq-errors"), "attempt", "attempts");
    Some(DoctorFinding {
        health: Health::Critical,
        code: "dlq_blocked",
        subject: Subject::group_of(&group.stream, &group.name),
        consumer: None,
        text: format!("the server cannot dead-letter messages ({attempts} failed): {error}"),
        way_out: WayOut::text(
            "make space on the disk, or remove the key that is in the way, or name another dead-letter stream: ",
        )
        .run(set_policy(group).option("--dlq", "NAME")),
    })
}

/// A policy whose owner has lost the right to add dead letters.
fn denied(group: &GroupSnapshot, info: &PolicyInfo) -> Option<DoctorFinding> {
    let owner = info.owner.as_ref().filter(|_| info.is_owner_denied)?;
    let attempts = counted(counter(info, "dlq-errors"), "attempt", "attempts");
    Some(DoctorFinding {
        health: Health::Critical,
        code: "dlq_denied",
        subject: Subject::group_of(&group.stream, &group.name),
        consumer: None,
        text: format!(
            "the server does not dead-letter messages ({attempts} failed): user {owner}, who owns the policy, may not add \
             entries to {}, or no longer exists",
            dead_letters(group, info)
        ),
        way_out: WayOut::text(
            "messages at the delivery limit stay pending until the user gets the right, or until another user sets the \
             policy: ",
        )
        .run(set_policy(group).option("--dlq", &dead_letters(group, info))),
    })
}

/// A policy that acts with all rights, on a server whose users have different ones.
fn without_owner(server: &ServerFacts, group: &GroupSnapshot, info: &PolicyInfo) -> Option<DoctorFinding> {
    let has_users =
        server.fact("acl_users").and_then(|count| count.parse().ok()).is_some_and(|count: u64| count > 1);
    let acts = info.owner.is_none() && info.in_force.max_deliveries.is_some();
    (has_users && acts).then(|| DoctorFinding {
        health: Health::Ok,
        code: "policy_without_owner",
        subject: Subject::group_of(&group.stream, &group.name),
        consumer: None,
        text: format!(
            "the server dead-letters messages to {} with all rights: the policy was set before policies had owners",
            dead_letters(group, info)
        ),
        way_out: WayOut::text("to give it only your rights, set it again: ")
            .run(set_policy(group).option("--dlq", &dead_letters(group, info))),
    })
}

/// Returns the dead-letter stream of a group with a delivery limit.
fn dead_letters(group: &GroupSnapshot, info: &PolicyInfo) -> String {
    info.dead_letters().unwrap_or_else(|| names::dead_letters_of(&group.stream))
}

/// Consumers that acknowledge many entries after their lease has run out.
fn lease_shorter_than_work(group: &GroupSnapshot, info: &PolicyInfo) -> Option<DoctorFinding> {
    let lease = Duration::from_millis(info.in_force.lease_ms?);
    let (late, read) = (counter(info, "late-acks"), group.entries_read.unwrap_or(0));
    let is_share = late.saturating_mul(100) >= read.saturating_mul(LATE_ACKS_PERCENT);
    (late >= LATE_ACKS_MIN && is_share).then(|| DoctorFinding {
        health: Health::Degraded,
        code: "lease_shorter_than_work",
        subject: Subject::group_of(&group.stream, &group.name),
        consumer: None,
        text: format!(
            "{} acknowledged after the lease of {} had run out, or when the message was no longer pending: consumers work \
             longer than the lease, so that other consumers get the same messages",
            counted(late, "message was", "messages were"),
            age(lease)
        ),
        way_out: WayOut::text(
            "set a lease that is longer than the work, or let consumers extend theirs with XEXTEND, or read fewer messages at \
             a time: ",
        )
        .run(set_policy(group).option("--lease", "DURATION")),
    })
}

/// Messages that plain clients left pending, in a group where nothing redelivers them.
fn no_policy(group: &GroupSnapshot, info: &PolicyInfo) -> Option<DoctorFinding> {
    let idle = group.scan.longest_idle.filter(|idle| *idle >= IDLE_MAX)?;
    let has_worker = group.workers.iter().any(|worker| worker.is_alive());
    (info.in_force.lease_ms.is_none() && !has_worker).then(|| DoctorFinding {
        health: Health::Ok,
        code: "no_policy",
        subject: Subject::group_of(&group.stream, &group.name),
        consumer: None,
        text: format!(
            "{} pending, one of them idle for {}, and nothing redelivers them: the group has no lease and no worker",
            counted(group.pending, "message is", "messages are"),
            age(idle)
        ),
        way_out: WayOut::text("let the server redeliver what consumers do not acknowledge in time: ")
            .run(set_policy(group).option("--lease", "30s")),
    })
}

fn set_policy(group: &GroupSnapshot) -> Command {
    Command::new("group policy", &[&group.stream, &group.name])
}

/// Returns a counter of the policy; 0 if the store does not report it.
fn counter(info: &PolicyInfo, name: &str) -> u64 {
    let found = info.counters.iter().find(|(found, _)| found == name);
    found.map_or(0, |(_, count)| count.unsigned_abs())
}
