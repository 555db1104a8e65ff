//! Reports of `check` as text: first the contents of the folder, then the damage, then the fixes.

use std::fmt::{self, Display, Write};

use millstream_store::check::{DamagedKey, Finding, LostPositions, Report, SalvageReport, Verdict};

/// Maximum number of damaged places that are listed. The rest is only counted; `--json` lists all of them.
///
/// Losses are always listed in full.
const SHOWN_MAX: usize = 50;

pub(super) fn of_report(report: &Report) -> String {
    let mut out = String::new();
    write_row(&mut out, "folder", &report.folder);
    write_report(&mut out, report);
    match report.damage.len() {
        0 => write_row(&mut out, "verdict", "sound"),
        count => {
            let places = counted(count as u64, "place");
            write_row(&mut out, "verdict", format_args!("damaged in {places}; nothing was changed"));
            write_some(&mut out, &report.damage, |out, found| {
                write_finding(out, found);
                write_text(out, format_args!("    fix: {}", found.way_out));
            });
        }
    }
    out
}

pub(super) fn of_salvage(report: &SalvageReport) -> String {
    let mut out = String::new();
    write_row(&mut out, "from", &report.found.folder);
    write_report(&mut out, &report.found);
    if !report.found.is_sound() {
        write_row(&mut out, "damage", counted(report.found.damage.len() as u64, "place"));
        write_some(&mut out, &report.found.damage, write_finding);
    }
    write_row(&mut out, "to", &report.saved.folder);
    write_contents(&mut out, &report.saved);
    match report.verdict {
        Verdict::Complete => {
            write_row(&mut out, "verdict", "nothing was lost");
            return out;
        }
        Verdict::CompleteSoFar => {
            let reached = report.reached;
            write_row(&mut out, "verdict", format_args!("nothing was lost up to position {reached}"));
            let meaning = "the store was not closed: the folder does not tell whether records followed";
            write_row(&mut out, "", meaning);
            return out;
        }
        Verdict::Unknown => write_row(&mut out, "verdict", "data may be lost"),
        Verdict::Lost => write_row(&mut out, "verdict", "data was lost"),
    }
    for doubt in &report.start_doubts {
        write_text(&mut out, format_args!("  possibly lost: data before the log: {doubt}"));
    }
    report.lost_positions.iter().for_each(|lost| write_lost_positions(&mut out, lost));
    if let Some(keys @ 1..) = report.lost_keys_count {
        write_text(&mut out, format_args!("  lost: {} of the snapshot", counted(keys, "key")));
    }
    let lost_keys = match report.lost_keys_count {
        Some(1..) => "lost",
        _ => "possibly lost",
    };
    for lost in &report.lost_keys {
        let (offset, file, what) = (lost.offset.unwrap_or(0), &lost.file, &lost.what);
        write_text(&mut out, format_args!("  {lost_keys}: keys at offset {offset} of {file}: {what}"));
    }
    report.damaged_keys.iter().for_each(|damaged| write_damaged_key(&mut out, damaged));
    out.push_str(
        "\nSalvage applied every intact record in order, including records after damage. It skipped changes that cannot\n\
         be applied to the salvaged data; their keys, if any, are listed above. A lost record may have changed any key.\n",
    );
    out
}

fn write_report(out: &mut String, report: &Report) {
    if let Some(holder) = &report.in_use {
        write_row(out, "in use", format_args!("by {holder}: its unfinished writes can look torn or damaged"));
    }
    let bytes = report.files.iter().map(|file| file.bytes).sum();
    write_row(out, "files", format_args!("{}, {}", report.files.len(), size(bytes)));
    let manifest = report.manifest.as_ref().map_or("missing or unusable".to_owned(), |manifest| {
        let snapshot = manifest.snapshot.map_or("no snapshot".to_owned(), |at| format!("snapshot at {at}"));
        let (first, durable) = (manifest.first, manifest.durable);
        format!("{snapshot}, log from position {first}, durable at least up to position {durable}")
    });
    write_row(out, "manifest", manifest);
    if let Some(snapshot) = &report.snapshot {
        let of = snapshot.keys_written.map_or("an unknown number".to_owned(), |keys| keys.to_string());
        write_row(out, "snapshot", format_args!("{}: {} of {of} keys intact", snapshot.name, snapshot.keys));
    }
    let log = &report.log;
    let segments = counted(log.segments as u64, "segment");
    let (bytes, records) = (size(log.bytes), counted(log.records, "record"));
    write_row(out, "log", format_args!("{segments}, {bytes}, {records}, last position {}", log.last));
    if let Some(torn) = &log.torn {
        let (bytes, at, file) = (torn.bytes, torn.at, &torn.file);
        write_row(out, "torn tail", format_args!("{bytes} bytes at offset {at} of {file}"));
        let meaning =
            "an unfinished write, which appendfsync always never acknowledged, or a damaged last record";
        write_row(out, "", format_args!("{meaning}; the next start removes it"));
    }
    if !report.leftovers.is_empty() {
        let names = report.leftovers.join(", ");
        write_row(out, "leftovers", format_args!("{names}; the next start removes them"));
    }
    write_contents(out, report);
}

fn write_contents(out: &mut String, report: &Report) {
    let contents = report.contents;
    let (keys, streams) = (counted(contents.keys, "key"), counted(contents.streams, "stream"));
    let (entries, groups) = (counted(contents.entries, "entry"), counted(contents.groups, "group"));
    let pending = contents.pending;
    write_row(out, "contents", format_args!("{keys}; {streams} with {entries}, {groups}, {pending} pending"));
}

fn write_finding(out: &mut String, found: &Finding) {
    let mut at = String::new();
    if let Some(offset) = found.offset {
        at += &format!(", offset {offset}");
    }
    if let Some(position) = found.position {
        at += &format!(", position {position}");
    }
    if let Some((db, key)) = &found.key {
        at += &format!(", key {} of database {db}", Quoted(key));
    }
    write_text(out, format_args!("  {}{at}\n    {}", found.file, found.what));
}

fn write_lost_positions(out: &mut String, lost: &LostPositions) {
    let first = lost.first;
    let positions = match lost.last {
        Some(last) if last == first => format!("position {first}"),
        Some(last) if last > first => format!("positions {first} to {last}"),
        _ => format!("positions from {first} on"),
    };
    let lost_or_not = if lost.is_proved { "lost" } else { "possibly lost" };
    write_text(out, format_args!("  {lost_or_not}: {positions} ({}: {})", lost.file, lost.what));
}

fn write_damaged_key(out: &mut String, damaged: &DamagedKey) {
    let (key, db, why) = (Quoted(&damaged.key), damaged.db, &damaged.why);
    let changes = counted(damaged.changes, "change");
    let skipped = match damaged.position {
        Some(position) => format!(": {changes} skipped, from position {position} on"),
        None => " skipped".to_owned(),
    };
    write_text(out, format_args!("  key {key} of database {db}{skipped}: {why}"));
}

fn write_some<T>(out: &mut String, items: &[T], mut put: impl FnMut(&mut String, &T)) {
    items.iter().take(SHOWN_MAX).for_each(|item| put(out, item));
    if items.len() > SHOWN_MAX {
        write_text(out, format_args!("  and {} more; --json lists them all", items.len() - SHOWN_MAX));
    }
}

fn write_row(out: &mut String, name: &str, what: impl Display) {
    write_text(out, format_args!("{name:<12}{what}"));
}

fn write_text(out: &mut String, what: fmt::Arguments<'_>) {
    writeln!(out, "{what}").expect("writing to a string cannot fail");
}

fn counted(count: u64, what: &str) -> String {
    match (count, what) {
        (1, _) => format!("1 {what}"),
        (_, "entry") => format!("{count} entries"),
        _ => format!("{count} {what}s"),
    }
}

/// Formats a number of bytes in the largest unit that fits, such as `1.5 KiB`.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", units[unit])
}

/// A key in double quotes, with special bytes escaped.
struct Quoted<'a>(&'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_the_largest_unit_that_fits() {
        let shown = [0, 1023, 1024, 1536, 5 << 20, 3 << 30].map(size);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB"]);
    }
}
