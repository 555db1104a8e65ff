//! Writes tables and plots into docs/benchmarks.md.
//!
//! Tables and plots are between marks. A run replaces those that it measured; text outside of marks is written by hand
//! and stays.

use std::fs;
use std::path::Path;

use crate::Failure;
use crate::floor;
use crate::instructions;
use crate::plot::{self, Bar};
use crate::table::{self, Row};
use crate::topics::{self, growth, speed};

const FILE: &str = "benchmarks.md";
/// The mark of the table that compares operations with PING.
const FLOOR: &str = "floor";
const SPEED_PLOT: &str = "benchmarks-speed.svg";
const GROWTH_PLOT: &str = "benchmarks-growth.svg";

/// Checks, before minutes of measuring, that the document has marks for every table.
pub(crate) fn check(folder: &Path) -> Result<(), Failure> {
    let file = folder.join(FILE);
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let parts = topics::TOPICS.iter().flat_map(|topic| topic.parts);
    for mark in parts.map(|part| mark_of(part.table.heading)).chain([FLOOR.to_owned()]) {
        replace_between_marks(&text, &mark, "").ok_or_else(|| lacks_marks(&file, &mark))?;
    }
    Ok(())
}

/// Writes the tables of these rows, and their plots, into the folder. A table stays unchanged if one of its rows was
/// not measured. Returns the headings of the unchanged tables.
pub(crate) fn write(
    folder: &Path,
    rows: &[Row],
    conclusions: &Conclusions,
    circumstances: &str,
) -> Result<Vec<&'static str>, Failure> {
    let file = folder.join(FILE);
    let mut text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut unchanged = Vec::new();
    for rows in tables(rows) {
        if !topics::is_whole(&rows) {
            unchanged.push(rows[0].table.heading);
            continue;
        }
        let (table, plot) = (rows[0].table, plot_of(&rows));
        let mut block = format!("{}\n\n", table.intro);
        if let Some((name, title, svg)) = plot {
            fs::write(folder.join(name), svg)?;
            block.push_str(&format!("![{title}]({name})\n\n"));
        }
        block.push_str(&format!("{}\n<sub>{circumstances}</sub>\n", table_of(&rows, conclusions)));
        let mark = mark_of(table.heading);
        text = replace_between_marks(&text, &mark, &block).ok_or_else(|| lacks_marks(&file, &mark))?;
        if let Some(table) = floor_of(&rows) {
            text = replace_between_marks(&text, FLOOR, &table).ok_or_else(|| lacks_marks(&file, FLOOR))?;
        }
    }
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(unchanged)
}

/// Returns the table that compares operations with PING; only the speed table has its rows.
fn floor_of(rows: &[&Row]) -> Option<String> {
    let is_speed = rows[0].table.heading == speed::TABLE.heading;
    is_speed.then(|| floor::table(rows, &instructions::saved_counts())).flatten()
}

/// Groups rows by table, in the order of the tables' first rows.
pub(crate) fn tables(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut tables: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match tables.iter_mut().find(|rows| rows[0].table.heading == row.table.heading) {
            Some(rows) => rows.push(row),
            None => tables.push(vec![row]),
        }
    }
    tables
}

/// Sentences under tables, each with its table's heading.
pub(crate) type Conclusions = [(&'static str, String)];

/// Formats all rows of one table in Markdown, with its conclusions. The growth table shows only the smallest and the
/// largest size; its plot shows the others.
pub(crate) fn table_of(rows: &[&Row], conclusions: &Conclusions) -> String {
    let of_table = conclusions.iter().filter(|(heading, _)| *heading == rows[0].table.heading);
    let conclusions: String = of_table.map(|(_, text)| format!("\n{text}\n")).collect();
    rows_of(rows) + &conclusions
}

fn rows_of(rows: &[&Row]) -> String {
    match rows[0].table.topic {
        topic if topic == growth::TABLE.topic => growth::summary(rows),
        _ => {
            let lines: Vec<_> = rows.iter().flat_map(|row| row.lines()).collect();
            let conclusion =
                speed::with_more_readers(rows).map_or(String::new(), |text| format!("\n{text}\n"));
            table::markdown(&Row::heading(rows[0].table), &lines) + &conclusion
        }
    }
}

/// Returns file name, title and content of the plot for these rows, if they have one.
fn plot_of(rows: &[&Row]) -> Option<(&'static str, &'static str, String)> {
    match rows[0].table.topic {
        "speed" => {
            let title = "How many times less CPU time an operation takes than on the best peer";
            Some((SPEED_PLOT, title, plot::bars(title, &bars(rows))))
        }
        "growth" => {
            let title = "CPU time per operation as one dimension grows";
            Some((GROWTH_PLOT, title, plot::panels(title, &growth::panels(rows))))
        }
        _ => None,
    }
}

/// Compares the first column of each row with its best peer.
fn bars(rows: &[&Row]) -> Vec<Bar> {
    let bar = |row: &&Row| {
        let peer = row.best_peer(0)?;
        let spread = row.compared(peer, 0)?;
        let name = row.name_among_peers(peer).map_or(String::new(), |name| format!(" {name}"));
        Some(Bar { label: row.title.clone(), times: spread.median, text: spread.times() + &name })
    };
    rows.iter().filter_map(bar).collect()
}

/// Turns `Latency of a message, always` into `latency-of-a-message-always`.
fn mark_of(heading: &str) -> String {
    heading.to_lowercase().replace(',', "").replace(' ', "-")
}

/// Returns the lines before and after a replaceable part.
fn marks(name: &str) -> [String; 2] {
    [format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->")]
}

/// Formats the error about a file without these marks.
pub(crate) fn lacks_marks(file: &Path, name: &str) -> String {
    let [begin, end] = marks(name);
    format!("{}: the lines {begin} and {end} are missing; add them where the table belongs", file.display())
}

/// Returns the text with the part between the marks replaced, or `None` if the marks are missing.
pub(crate) fn replace_between_marks(text: &str, name: &str, block: &str) -> Option<String> {
    let [begin, end] = marks(name);
    let begin = text.find(&begin)? + begin.len();
    let end = begin + text[begin..].find(&end)?;
    Some(format!("{}\n{block}{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Compare, Layout, Table};
    use crate::topics::scans;

    static TABLE: Table = Table {
        topic: "test",
        heading: "A test",
        intro: "How to read it.",
        layout: Layout::ByPeer,
        columns: &[Column { key: "cpu_us", heading: "CPU, µs/op", compare: Compare::Less }],
    };

    fn row(cost: f64) -> Row {
        row_of(&TABLE, cost)
    }

    fn row_of(table: &'static Table, cost: f64) -> Row {
        let mut row = Row::new(table, "xpending-idle", "XPENDING", vec!["ours".into(), "theirs".into()]);
        let sample = |cost| vec![vec![Some(cost); table.columns.len()]];
        row.samples = vec![sample(cost), sample(10.0)];
        row
    }

    #[test]
    fn the_document_has_marks_for_every_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        check(&folder).unwrap();
        assert!(check(Path::new("nowhere")).is_err());
    }

    #[test]
    fn only_text_between_the_marks_is_replaced() {
        let text = "above\n<!-- a: begin -->\nold\n<!-- a: end -->\nbelow\n";
        assert_eq!(
            replace_between_marks(text, "a", "new\n").unwrap(),
            "above\n<!-- a: begin -->\nnew\n<!-- a: end -->\nbelow\n"
        );
        assert!(replace_between_marks(text, "b", "new\n").is_none());
    }

    #[test]
    fn unmeasured_tables_and_handwritten_text_stay() {
        let folder = std::env::temp_dir().join(format!("millstream-bench-doc-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(FILE);
        let [begin, end] = marks("a-test");
        fs::write(
            &file,
            format!("By hand.\n{begin}\n{end}\n<!-- speed: begin -->\nold\n<!-- speed: end -->\n"),
        )
        .unwrap();
        write(&folder, &[row(5.0)], &[], "machine: a").unwrap();
        // The table of scans has more rows than this one.
        let rows = [row(2.0), row_of(&scans::TABLE, 2.0)];
        let conclusions = [("A test", "So it works.".to_owned()), ("Speed", "Not here.".to_owned())];
        let unchanged = write(&folder, &rows, &conclusions, "machine: b").unwrap();
        assert_eq!(unchanged, [scans::TABLE.heading]);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("| XPENDING | 2.00 | theirs | 10.0 | 5.00× |") && text.contains("machine: b"));
        assert!(text.contains("|\n\nSo it works.\n\n<sub>") && !text.contains("Not here."));
        assert!(!text.contains("5.00 | theirs") && !text.contains("machine: a"));
        assert!(
            text.starts_with("By hand.\n")
                && text.ends_with("<!-- speed: begin -->\nold\n<!-- speed: end -->\n")
        );
        fs::write(&file, "no marks").unwrap();
        assert!(write(&folder, &[row(5.0)], &[], "machine: a").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
