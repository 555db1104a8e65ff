//! Findings about policies and delayed messages, on stores that have them.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{Error, PolicyInfo};
use millstream_worker::monitor::{Health, StreamSnapshot};

use super::finding::Finding;
use crate::ops::shell::suggest;
use crate::ops::value::{age, counted};

/// A delayed message that is late by this much is reported.
const LATE_MAX: Duration = Duration::from_secs(10);

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
    let failed = info.counters.iter().find(|(name, _)| name == "dlq-errors").map_or(0, |(_, count)| *count);
    let attempts = counted(failed.unsigned_abs(), "attempt", "attempts");
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
