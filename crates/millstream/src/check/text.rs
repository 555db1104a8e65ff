//! Reports for people: what there is, then what is wrong, then what to do.

use std::fmt::{self, Display, Write};

use millstream_store::check::{DamagedKey, Finding, LostPositions, Report, SalvageReport};

/// More damaged places than this are counted, not shown; `--json` shows all. Losses are always all shown.
const SHOWN_MAX: usize = 50;

/// A folder that was checked.
pub(super) fn of_report(report: &Report) -> String {
    let mut out = String::new();
    line(&mut out, "folder", &report.folder);
    put_report(&mut out, report);
    match report.damage.len() {
        0 => line(&mut out, "verdict", "sound"),
        count => {
            line(
                &mut out,
                "verdict",
                format_args!("damaged in {}; nothing was changed", counted(count as u64, "place")),
            );
            put_some(&mut out, &report.damage, |out, found| {
                put_finding(out, found);
                tell(out, format_args!("    way out: {}", found.way_out));
            });
        }
    }
    out
}

/// A folder that was saved from.
pub(super) fn of_salvage(report: &SalvageReport) -> String {
    let mut out = String::new();
    line(&mut out, "from", &report.found.folder);
    put_report(&mut out, &report.found);
    if !report.found.is_sound() {
        line(&mut out, "damage", counted(report.found.damage.len() as u64, "place"));
        put_some(&mut out, &report.found.damage, put_finding);
    }
    line(&mut out, "to", &report.saved.folder);
    put_contents(&mut out, &report.saved);
    if report.lost_nothing() {
        line(&mut out, "verdict", "nothing was lost");
        if report.found.manifest.is_none() {
            out.push_str(
                "            though without the manifest nobody can tell whether the log was cut short\n",
            );
        }
        return out;
    }
    line(&mut out, "verdict", "something was lost");
    report.lost_positions.iter().for_each(|lost| put_positions(&mut out, lost));
    if let (Some(keys), false) = (report.lost_keys_count, report.lost_keys.is_empty()) {
        tell(&mut out, format_args!("  lost: {} of the snapshot", counted(keys, "key")));
    }
    for lost in &report.lost_keys {
        let (offset, file, what) = (lost.offset.unwrap_or(0), &lost.file, &lost.what);
        tell(&mut out, format_args!("  lost: keys at offset {offset} of {file}: {what}"));
    }
    report.damaged_keys.iter().for_each(|damaged| put_damaged_key(&mut out, damaged));
    out.push_str(
        "\nEvery intact record was applied in order, those behind damage too. Changes that do not fit what is left were left\n\
         out, and their keys are named above. A lost position may have concerned any key.\n",
    );
    out
}

fn put_report(out: &mut String, report: &Report) {
    if let Some(holder) = &report.in_use {
        line(
            out,
            "in use",
            format_args!("by {holder}: what is under way there may look torn or damaged here"),
        );
    }
    let bytes = report.files.iter().map(|file| file.bytes).sum();
    line(out, "files", format_args!("{}, {}", report.files.len(), size(bytes)));
    match &report.manifest {
        Some(manifest) => {
            let snapshot =
                manifest.snapshot.map_or("no snapshot".to_owned(), |at| format!("snapshot at {at}"));
            let (first, durable) = (manifest.first, manifest.durable);
            line(
                out,
                "manifest",
                format_args!("{snapshot}, log from {first}, durable to {durable} at least"),
            );
        }
        None => line(out, "manifest", "none that can be used"),
    }
    if let Some(snapshot) = &report.snapshot {
        let of = snapshot.keys_written.map_or("an unknown number".to_owned(), |keys| keys.to_string());
        line(out, "snapshot", format_args!("{}: {} of {of} keys intact", snapshot.name, snapshot.keys));
    }
    let log = &report.log;
    let segments = counted(log.segments as u64, "segment");
    let records = counted(log.records, "record");
    line(out, "log", format_args!("{segments}, {}, {records}, last position {}", size(log.bytes), log.last));
    if let Some(torn) = &log.torn {
        let (bytes, at, file) = (torn.bytes, torn.at, &torn.file);
        line(out, "torn tail", format_args!("{bytes} bytes at offset {at} of {file}"));
        tell(out, format_args!("{:12}nobody was told of them; the next start cuts them off", ""));
    }
    if !report.leftovers.is_empty() {
        line(out, "leftovers", format_args!("{}; the next start removes them", report.leftovers.join(", ")));
    }
    put_contents(out, report);
}

fn put_contents(out: &mut String, report: &Report) {
    let held = report.contents;
    let (keys, streams, entries) =
        (counted(held.keys, "key"), counted(held.streams, "stream"), counted(held.entries, "entry"));
    let (groups, pending) = (counted(held.groups, "group"), held.pending);
    line(out, "contents", format_args!("{keys}; {streams} with {entries}, {groups}, {pending} pending"));
}

fn put_finding(out: &mut String, found: &Finding) {
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
    tell(out, format_args!("  {}{at}\n    {}", found.file, found.what));
}

fn put_positions(out: &mut String, lost: &LostPositions) {
    let (first, file, what) = (lost.first, &lost.file, &lost.what);
    match lost.last {
        None => tell(out, format_args!("  lost: positions from {first} on ({file}: {what})")),
        Some(last) if last < first => {
            tell(out, format_args!("  in doubt: positions from {first} on ({file}: {what})"))
        }
        Some(last) if last == first => tell(out, format_args!("  lost: position {first} ({file}: {what})")),
        Some(last) => tell(out, format_args!("  lost: positions {first} to {last} ({file}: {what})")),
    }
}

fn put_damaged_key(out: &mut String, damaged: &DamagedKey) {
    let (key, db, why) = (Quoted(&damaged.key), damaged.db, &damaged.why);
    match damaged.position {
        Some(position) => {
            let changes = counted(damaged.changes, "change");
            tell(
                out,
                format_args!(
                    "  key {key} of database {db}: {changes} left out, from position {position} on: {why}"
                ),
            );
        }
        None => tell(out, format_args!("  key {key} of database {db} left out: {why}")),
    }
}

fn put_some<T>(out: &mut String, items: &[T], mut put: impl FnMut(&mut String, &T)) {
    items.iter().take(SHOWN_MAX).for_each(|item| put(out, item));
    if items.len() > SHOWN_MAX {
        tell(out, format_args!("  and {} more; --json lists them all", items.len() - SHOWN_MAX));
    }
}

fn line(out: &mut String, name: &str, what: impl Display) {
    tell(out, format_args!("{name:<12}{what}"));
}

fn tell(out: &mut String, what: fmt::Arguments<'_>) {
    writeln!(out, "{what}").expect("a string takes everything");
}

fn counted(count: u64, what: &str) -> String {
    match (count, what) {
        (1, _) => format!("1 {what}"),
        (_, "entry") => format!("{count} entries"),
        _ => format!("{count} {what}s"),
    }
}

/// Bytes as people say them.
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

/// A key between double quotes, whatever is in it.
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
    fn sizes_are_said_in_the_largest_unit_below_them() {
        let said = [0, 1023, 1024, 1536, 5 << 20, 3 << 30].map(size);
        assert_eq!(said, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB"]);
    }
}
