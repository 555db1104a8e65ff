//! Writes tables between marks in documents: those of docs/benchmarks-tables.md, and README's short one.
//!
//! A run replaces the tables that it measured; text outside of marks is written by hand and stays.

use std::fs;
use std::path::Path;

use crate::Failure;
use crate::stats::significant;
use crate::table::{Row, markdown};
use crate::topics::README_PEERS;

/// The document with all tables, relative to the root of the repository, where `scripts/bench` starts this program.
pub(crate) const TABLES: &str = "docs/benchmarks-tables.md";
/// Name of the marks around README's table.
const README_MARK: &str = "bench";

/// A row of README's table, and the measured row that it shows.
pub(crate) const README_ROWS: [(&str, &str, &str); 6] = [
    ("speed", "xadd-short-p16", "XADD, pipeline 16"),
    ("speed", "xreadgroup-10-p16", "XREADGROUP COUNT 10, pipeline 16"),
    ("speed", "xack-order-p64", "XACK in order, pipeline 64"),
    ("speed", "cycle-one", "10 XADD, XREADGROUP COUNT 10 and XACK of 10 in one pipeline"),
    ("speed", "xadd-blocked-1000", "XADD with 1,000 blocked readers"),
    ("memory", "pending-fresh", "memory per pending entry, just delivered"),
];

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

/// Formats all rows of one table in Markdown, with its notes. Each note has its table's heading.
pub(crate) fn table_of(rows: &[&Row], notes: &[(&str, String)]) -> String {
    let lines: Vec<_> = rows.iter().flat_map(|row| row.lines()).collect();
    let of_table = notes.iter().filter(|(heading, _)| *heading == rows[0].table.heading);
    let notes: String = of_table.map(|(_, text)| format!("\n{text}\n")).collect();
    markdown(&Row::heading(rows[0].table), &lines) + &notes
}

/// Replaces the table of these rows in the document.
pub(crate) fn write_table(
    file: &Path,
    rows: &[&Row],
    table: &str,
    circumstances: &str,
) -> Result<(), Failure> {
    let block = format!("{}\n\n{table}\n<sub>{circumstances}</sub>\n", rows[0].table.intro);
    replace(file, &mark_of(rows[0].table.heading), &block)
}

/// Replaces README's table. `products` has name and printed version of every server, the subject first.
pub(crate) fn write_readme(
    file: &Path,
    rows: &[Row],
    products: &[(String, String)],
    measured: &str,
) -> Result<(), Failure> {
    let product = |name: &str| {
        let found = products.iter().find(|(known, _)| known == name);
        found.map_or(name.to_owned(), |(_, version)| capitalized(&version.replace(" server v=", " ")))
    };
    let find = |topic: &str, name: &str| rows.iter().find(|row| row.table.topic == topic && row.name == name);
    let line = |(topic, name, title): (&str, &str, &str)| {
        let cells = find(topic, name).and_then(|row| readme_cells(row, title, product));
        cells.ok_or_else(|| format!("{}: {topic}/{name} was not measured", file.display()))
    };
    let lines = README_ROWS.into_iter().map(line).collect::<Result<Vec<_>, _>>()?;
    let peers = README_PEERS.map(product);
    let best = format!("best of {}", peers.join(" and "));
    let table = markdown(&["workload".into(), "Millstream".into(), best, "ratio".into()], &lines);
    let servers = format!("{}, {}", product(&products[0].0), peers.join(", "));
    let measured = measured.replacen(';', &format!(": {servers};"), 1);
    let link = "All measurements: [docs/benchmarks-tables.md](docs/benchmarks-tables.md).";
    replace(file, README_MARK, &format!("{table}\nMeasured {measured}. {link}\n"))
}

/// `None` if the row was not measured on any of `README_PEERS`.
fn readme_cells(row: &Row, title: &str, product: impl Fn(&str) -> String) -> Option<Vec<String>> {
    let ratio = |peer: usize| row.compared(peer, 0).map_or(f64::INFINITY, |spread| spread.median);
    let is_named =
        |peer: &usize| README_PEERS.contains(&row.servers[*peer].as_str()) && ratio(*peer).is_finite();
    let best = (1..row.servers.len()).filter(is_named).min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)))?;
    let unit =
        row.table.columns[0].heading.rsplit_once(", ").map_or("", |(_, unit)| unit.trim_end_matches("/op"));
    let figure = |server| Some(format!("{} {unit}", significant(row.median(server, 0)?)));
    let theirs = format!("{} ({})", figure(best)?, product(&row.servers[best]));
    Some(vec![title.to_owned(), figure(0)?, theirs, row.compared_text(best, 0)?])
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Turns `Latency of a message, always` into `latency-of-a-message-always`.
pub(crate) fn mark_of(heading: &str) -> String {
    heading.to_lowercase().replace(',', "").replace(' ', "-")
}

/// Fails, before minutes of measuring, if a document has no marks for a table.
pub(crate) fn check_marks(file: &Path, headings: impl Iterator<Item = &'static str>) -> Result<(), Failure> {
    let text = read(file)?;
    headings.map(mark_of).try_for_each(|mark| replaced(file, &text, &mark, "").map(drop))
}

/// Fails if the file has no marks for README's table.
pub(crate) fn check_readme(file: &Path) -> Result<(), Failure> {
    replaced(file, &read(file)?, README_MARK, "").map(drop)
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()).into())
}

fn replace(file: &Path, mark: &str, block: &str) -> Result<(), Failure> {
    let text = replaced(file, &read(file)?, mark, block)?;
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()).into())
}

/// Returns the text with the part between the marks replaced.
fn replaced(file: &Path, text: &str, mark: &str, block: &str) -> Result<String, Failure> {
    let (begin, end) = (format!("<!-- {mark}: begin -->"), format!("<!-- {mark}: end -->"));
    let parts = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let Some((head, tail)) = parts else {
        let file = file.display();
        return Err(format!(
            "{file}: the lines {begin} and {end} are missing; add them where the table belongs"
        )
        .into());
    };
    Ok(format!("{head}{begin}\n{block}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::{self, memory, speed};

    #[test]
    fn the_documents_have_marks_for_every_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let headings = topics::tables().into_iter().map(|table| table.heading);
        check_marks(&root.join(TABLES), headings).unwrap();
        check_readme(&root.join("README.md")).unwrap();
        assert!(check_marks(Path::new("nowhere"), std::iter::empty()).is_err());
    }

    #[test]
    fn only_text_between_the_marks_is_replaced() {
        let (file, text) = (Path::new("x.md"), "above\n<!-- a: begin -->\nold\n<!-- a: end -->\nbelow\n");
        let new = "above\n<!-- a: begin -->\nnew\n<!-- a: end -->\nbelow\n";
        assert_eq!(replaced(file, text, "a", "new\n").unwrap(), new);
        assert!(replaced(file, text, "b", "new\n").is_err());
    }

    #[test]
    fn readme_shows_the_better_of_its_two_peers() {
        let file = std::env::temp_dir().join(format!("millstream-bench-readme-{}", std::process::id()));
        fs::write(&file, "By hand.\n<!-- bench: begin -->\n<!-- bench: end -->\n").unwrap();
        let servers = [("millstream", 1.0), ("redis", 1.5), ("redis-8.2", 4.0), ("valkey-9.1", 3.0)];
        let row = |(topic, name, _): (&str, &str, &str)| {
            let table = if topic == "memory" { &memory::TABLE } else { &speed::TABLE };
            let sample = |cost| vec![[vec![Some(cost)], vec![None; table.columns.len() - 1]].concat()];
            let samples = servers.map(|(_, cost)| sample(cost)).to_vec();
            let servers = servers.map(|(name, _)| name.to_owned()).to_vec();
            Row { table, name: name.into(), title: String::new(), servers, samples }
        };
        let mut rows: Vec<_> = README_ROWS.into_iter().map(row).collect();
        let versions =
            ["millstream 0.1.0", "Redis server v=7.0.15", "Redis server v=8.2.3", "Valkey server v=9.1.2"];
        let products: Vec<_> =
            servers.iter().zip(versions).map(|((name, _), v)| ((*name).into(), v.into())).collect();
        write_readme(&file, &rows, &products, "2026-11-16 at 512a7ea; AMD EPYC, 2 cores").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        for part in [
            "By hand.\n",
            "| workload | Millstream | best of Redis 8.2.3 and Valkey 9.1.2 | ratio |\n",
            "| XADD, pipeline 16 | 1.00 µs | 3.00 µs (Valkey 9.1.2) | 3.00× |\n",
            "just delivered | 1.00 B | 3.00 B (Valkey 9.1.2) | 3.00× |\n",
            "\nMeasured 2026-11-16 at 512a7ea: Millstream 0.1.0, Redis 8.2.3, Valkey 9.1.2; AMD EPYC, 2 cores. All",
        ] {
            assert!(text.contains(part), "{part} {text}");
        }
        rows.pop();
        assert!(
            write_readme(&file, &rows, &products, "")
                .unwrap_err()
                .to_string()
                .contains("memory/pending-fresh")
        );
        fs::remove_file(&file).unwrap();
    }
}
