//! What may be wrong with streams and groups, and the way out of it.

use millstream_worker::monitor::{Finding as Found, Health};
use millstream_worker::monitor::{GroupSnapshot, StreamSnapshot};

use super::finding::{Finding, Subject};
use crate::ops::shape;
use crate::ops::value::{count, counted};

/// A stream that has never lost an entry and is longer than this grows without end.
const UNTRIMMED_LENGTH: u64 = 100_000;

/// Everything found about a stream and its groups.
pub(super) fn findings(stream: &StreamSnapshot) -> Vec<Finding> {
    let mut findings = of_stream(stream);
    for group in &stream.groups {
        // Dead letters belong to the stream, and are told once for it.
        let found = group.verdict(&shape::limits()).findings.into_iter();
        findings
            .extend(found.filter(|found| found.code != "dead_letters").map(|found| of_group(group, found)));
    }
    findings
}

fn of_stream(stream: &StreamSnapshot) -> Vec<Finding> {
    let name = &stream.name;
    let mut findings = Vec::new();
    let mut find = |health, code, text: String, way_out: String| {
        findings.push(Finding { health, code, subject: Subject::Stream(name.clone()), text, way_out });
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
        "no_reader" => {
            format!("start a worker: millstream work --stream {stream} --group {name} --exec COMMAND")
        }
        "consumer_idle" => {
            format!("if it is gone for good: millstream consumer rm {stream} {name} CONSUMER --heir ANOTHER")
        }
        _ => format!(
            "see them with: millstream pending ls {stream} {name} --min-idle 5m; then: millstream pending claim {stream} {name} CONSUMER --min-idle 5m"
        ),
    };
    let subject = Subject::Group(stream.clone(), name.clone());
    Finding { health: found.health, code: found.code, subject, text: found.text, way_out }
}
