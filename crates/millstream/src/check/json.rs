//! Reports of `check` as JSON objects. Keys of the store are shown as strings: bytes outside of printable ASCII are
//! escaped, for example as `\xNN`.

use millstream_store::check::{DamagedKey, Finding, LostPositions, Report, SalvageReport, Verdict};
use serde_json::{Value, json};

pub(super) fn of_report(report: &Report) -> Value {
    let (contents, log) = (report.contents, &report.log);
    let snapshot = report.snapshot.as_ref().map(|found| {
        json!({
            "name": found.name, "position": found.position, "keys": found.keys, "keys_written": found.keys_written,
        })
    });
    let manifest = report.manifest.as_ref().map(|manifest| {
        json!({ "snapshot": manifest.snapshot, "first": manifest.first, "durable": manifest.durable })
    });
    let torn = log.torn.as_ref();
    json!({
        "folder": report.folder,
        "sound": report.is_sound(),
        "in_use": report.in_use,
        "files": list(&report.files, |file| json!({ "name": file.name, "bytes": file.bytes })),
        "manifest": manifest,
        "snapshot": snapshot,
        "log": {
            "segments": log.segments,
            "bytes": log.bytes,
            "records": log.records,
            "first": log.first,
            "last": log.last,
            "torn": torn.map(|torn| json!({ "file": torn.file, "offset": torn.at, "bytes": torn.bytes })),
        },
        "contents": {
            "keys": contents.keys,
            "streams": contents.streams,
            "entries": contents.entries,
            "groups": contents.groups,
            "pending": contents.pending,
        },
        "leftovers": report.leftovers,
        "damage": list(&report.damage, finding),
    })
}

pub(super) fn of_salvage(report: &SalvageReport) -> Value {
    json!({
        "verdict": verdict(report.verdict),
        "lost_nothing": lost_nothing(report.verdict),
        "reached": report.reached,
        "start_doubts": report.start_doubts,
        "lost_positions": list(&report.lost_positions, lost_positions),
        "lost_snapshot_keys": report.lost_keys_count,
        "lost_snapshot_places": list(&report.lost_keys, lost_keys),
        "damaged_keys": list(&report.damaged_keys, damaged_key),
        "found": of_report(&report.found),
        "saved": of_report(&report.saved),
    })
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Complete => "complete",
        Verdict::CompleteSoFar => "complete_so_far",
        Verdict::Unknown => "unknown",
        Verdict::Lost => "lost",
    }
}

/// `None` if the folder does not prove it.
fn lost_nothing(verdict: Verdict) -> Option<bool> {
    match verdict {
        Verdict::Complete => Some(true),
        Verdict::CompleteSoFar | Verdict::Unknown => None,
        Verdict::Lost => Some(false),
    }
}

fn finding(found: &Finding) -> Value {
    json!({
        "file": found.file,
        "offset": found.offset,
        "position": found.position,
        "db": found.key.as_ref().map(|(db, _)| db),
        "key": found.key.as_ref().map(|(_, key)| text(key)),
        "what": found.what,
        "way_out": found.way_out,
    })
}

fn lost_positions(lost: &LostPositions) -> Value {
    json!({ "first": lost.first, "last": lost.last, "file": lost.file, "what": lost.what, "proved": lost.is_proved })
}

fn lost_keys(lost: &Finding) -> Value {
    json!({ "file": lost.file, "offset": lost.offset, "what": lost.what })
}

fn damaged_key(damaged: &DamagedKey) -> Value {
    json!({
        "db": damaged.db,
        "key": text(&damaged.key),
        "changes_left_out": damaged.changes,
        "position": damaged.position,
        "why": damaged.why,
    })
}

fn list<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    items.iter().map(value).collect()
}

fn text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_other_bytes_are_escaped() {
        assert_eq!(json!(text(b"k\xff\"")).to_string(), "\"k\\\\xff\\\\\\\"\"");
    }
}
