//! Reports for programs: one JSON object. Keys of the data are text with bytes that are not printable ASCII escaped as `\xNN`.

use std::fmt::Write;

use millstream_store::check::{DamagedKey, Finding, LostKeys, LostPositions, Report, SalvageReport};

/// A folder that was checked.
pub(super) fn of_report(report: &Report) -> String {
    let mut out = report_value(report).0;
    out.push('\n');
    out
}

/// A folder that was saved from.
pub(super) fn of_salvage(report: &SalvageReport) -> String {
    let mut out = object([
        ("lost_nothing", bool(report.lost_nothing())),
        ("lost_positions", array(&report.lost_positions, positions)),
        ("lost_snapshot_keys", optional(report.lost_keys_count)),
        ("lost_snapshot_places", array(&report.lost_keys, place)),
        ("damaged_keys", array(&report.damaged_keys, damaged_key)),
        ("found", report_value(&report.found)),
        ("saved", report_value(&report.saved)),
    ])
    .0;
    out.push('\n');
    out
}

/// Finished JSON.
struct Json(String);

fn report_value(report: &Report) -> Json {
    let held = report.contents;
    let contents = object([
        ("keys", number(held.keys)),
        ("streams", number(held.streams)),
        ("entries", number(held.entries)),
        ("groups", number(held.groups)),
        ("pending", number(held.pending)),
    ]);
    object([
        ("folder", text(&report.folder)),
        ("sound", bool(report.is_sound())),
        ("in_use", report.in_use.as_deref().map_or_else(null, text)),
        (
            "files",
            array(&report.files, |file| object([("name", text(&file.name)), ("bytes", number(file.bytes))])),
        ),
        ("manifest", report.manifest.as_ref().map_or_else(null, manifest)),
        ("snapshot", report.snapshot.as_ref().map_or_else(null, snapshot)),
        ("log", log(report)),
        ("contents", contents),
        ("leftovers", array(&report.leftovers, |name| text(name))),
        ("damage", array(&report.damage, finding)),
    ])
}

fn manifest(manifest: &millstream_store::log::Manifest) -> Json {
    object([
        ("snapshot", optional(manifest.snapshot)),
        ("first", number(manifest.first)),
        ("durable", number(manifest.durable)),
    ])
}

fn snapshot(found: &millstream_store::check::FoundSnapshot) -> Json {
    object([
        ("name", text(&found.name)),
        ("position", number(found.position)),
        ("keys", number(found.keys)),
        ("keys_written", optional(found.keys_written)),
    ])
}

fn log(report: &Report) -> Json {
    let found = &report.log;
    let torn = found.torn.as_ref().map_or_else(null, |torn| {
        object([("file", text(&torn.file)), ("offset", number(torn.at)), ("bytes", number(torn.bytes))])
    });
    object([
        ("segments", number(found.segments as u64)),
        ("bytes", number(found.bytes)),
        ("records", number(found.records)),
        ("first", number(found.first)),
        ("last", number(found.last)),
        ("torn", torn),
    ])
}

fn finding(found: &Finding) -> Json {
    let key = found.key.as_ref().map_or_else(null, |(_, key)| bytes(key));
    object([
        ("file", text(&found.file)),
        ("offset", optional(found.offset)),
        ("position", optional(found.position)),
        ("db", optional(found.key.as_ref().map(|(db, _)| u64::from(*db)))),
        ("key", key),
        ("what", text(&found.what)),
        ("way_out", text(found.way_out)),
    ])
}

fn positions(lost: &LostPositions) -> Json {
    object([
        ("first", number(lost.first)),
        ("last", optional(lost.last)),
        ("file", text(&lost.file)),
        ("what", text(&lost.what)),
    ])
}

fn place(lost: &LostKeys) -> Json {
    object([("file", text(&lost.file)), ("offset", number(lost.offset)), ("what", text(&lost.what))])
}

fn damaged_key(damaged: &DamagedKey) -> Json {
    object([
        ("db", number(u64::from(damaged.db))),
        ("key", bytes(&damaged.key)),
        ("changes_left_out", number(damaged.changes)),
        ("position", optional(damaged.position)),
        ("why", text(&damaged.why)),
    ])
}

fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    let members: Vec<String> =
        members.into_iter().map(|(name, value)| format!("\"{name}\":{}", value.0)).collect();
    Json(format!("{{{}}}", members.join(",")))
}

fn array<T>(items: &[T], json: impl Fn(&T) -> Json) -> Json {
    let items: Vec<String> = items.iter().map(|item| json(item).0).collect();
    Json(format!("[{}]", items.join(",")))
}

fn text(text: &str) -> Json {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                write!(out, "\\u{:04x}", u32::from(control)).expect("a string takes everything")
            }
            other => out.push(other),
        }
    }
    out.push('"');
    Json(out)
}

fn bytes(bytes: &[u8]) -> Json {
    text(&bytes.escape_ascii().to_string())
}

fn number(number: u64) -> Json {
    Json(number.to_string())
}

fn optional(number: Option<u64>) -> Json {
    number.map_or_else(null, self::number)
}

fn bool(bool: bool) -> Json {
    Json(bool.to_string())
}

fn null() -> Json {
    Json("null".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(text("a\"b\\c\n\u{1}é").0, "\"a\\\"b\\\\c\\u000a\\u0001é\"");
        assert_eq!(bytes(b"k\xff\"").0, "\"k\\\\xff\\\\\\\"\"");
        assert_eq!(
            object([("a", number(1)), ("b", array(&[1u64, 2], |n| number(*n))), ("c", null())]).0,
            r#"{"a":1,"b":[1,2],"c":null}"#
        );
    }
}
