//! The results of a run: prints each row when it is measured, and saves all rows as Markdown and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::doc;
use crate::options::{Options, Program};
use crate::readme;
use crate::server;
use crate::table::{Layout, Row, Table};
use crate::targets;

/// The folder of the documents, relative to the root of the repository, where `scripts/bench` starts this program.
const DOCS: &str = "docs";
/// Name of the marks around README's table.
const README_MARK: &str = "bench";

/// The measured rows and the circumstances of the run.
pub(crate) struct Report {
    /// Name and version of every server, the subject first.
    versions: Vec<(String, String)>,
    /// Circumstances, in the order in which they are printed.
    about: Vec<(&'static str, String)>,
    rows: Vec<Row>,
    /// Sentences under tables, each with its table's heading.
    conclusions: Vec<(&'static str, String)>,
    /// The table whose heading was printed last.
    printed: Option<&'static Table>,
    begun: ProcessorTime,
}

impl Report {
    pub(crate) fn begin(options: &Options) -> Result<Report, Failure> {
        if options.doc {
            doc::check(Path::new(DOCS))?;
        }
        if let Some(readme) = &options.readme {
            replaced_in_file(readme, README_MARK, "")?;
        }
        let versions = versions(options)?;
        let about = about(options, &versions);
        for (what, value) in &about {
            println!("{what:<10} {value}");
        }
        if options.is_debug_build() {
            println!(
                "\nThis is a DEBUG BUILD: the run shows that the benchmark works, and nothing about speed."
            );
        }
        Ok(Report {
            versions,
            about,
            rows: Vec::new(),
            conclusions: Vec::new(),
            printed: None,
            begun: ProcessorTime::now(),
        })
    }

    pub(crate) fn add(&mut self, row: Row) {
        if self.printed.is_none_or(|table| table.heading != row.table.heading) {
            println!("\n{}\n{}", row.table.heading, aligned(&Row::heading(row.table), row.table));
            self.printed = Some(row.table);
        }
        for line in row.lines() {
            println!("{}", aligned(&line, row.table));
        }
        self.rows.push(row);
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows of this table that were measured so far.
    pub(crate) fn rows_of(&self, table: &Table) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.table.heading == table.heading).collect()
    }

    /// Prints a remark, for example that a row was skipped.
    pub(crate) fn note(&self, text: &str) {
        println!("({text})");
    }

    /// Prints a sentence that belongs under this table, and keeps it for the documents.
    pub(crate) fn conclude(&mut self, table: &'static Table, text: String) {
        println!("{text}");
        self.conclusions.push((table.heading, text));
    }

    pub(crate) fn save(mut self, options: &Options) -> Result<(), Failure> {
        if let Some(percent) = ProcessorTime::now().stolen_since(self.begun) {
            let host = format!("other virtual machines took {percent:.1} % of the CPU time");
            println!("\n{:<10} {host}", "host");
            self.about.push(("host", host));
        }
        fs::create_dir_all(&options.out)?;
        fs::write(options.out.join("results.json"), self.json())?;
        fs::write(options.out.join("table.md"), self.markdown())?;
        if let Some(summary) = targets::summary(&self.rows) {
            println!("\n{summary}{}", if options.quick { " (with the small sizes of --quick)" } else { "" });
        }
        println!("\nSaved {0}/results.json and {0}/table.md", options.out.display());
        if let Some(file) = &options.json {
            fs::write(file, self.json()).map_err(|e| format!("{}: {e}", file.display()))?;
            println!("Saved {}", file.display());
        }
        if let Some(readme) = &options.readme {
            match self.readme_table() {
                Ok(table) => {
                    fs::write(readme, replaced_in_file(readme, README_MARK, &table)?)?;
                    println!("Replaced the table in {}", readme.display());
                }
                Err(missing) => println!(
                    "Left {} unchanged: these rows were not measured: {}",
                    readme.display(),
                    missing.join(", ")
                ),
            }
        }
        if options.doc {
            let unchanged =
                doc::write(Path::new(DOCS), &self.rows, &self.conclusions, &self.circumstances())?;
            println!("Wrote docs/benchmarks.md");
            unchanged.iter().for_each(|heading| {
                println!("Left its table \"{heading}\" unchanged: not all of its rows were measured")
            });
        }
        Ok(())
    }

    fn readme_table(&self) -> Result<String, Vec<String>> {
        let about = |wanted: &str| {
            let found = self.about.iter().find(|(what, _)| *what == wanted);
            found.map_or("", |(_, value)| value)
        };
        let (measured, machine) = (about("measured"), about("machine"));
        readme::table(&self.rows, &readme::Circumstances { measured, machine, versions: &self.versions })
    }

    /// Returns the circumstances of the run as one sentence.
    fn circumstances(&self) -> String {
        let parts: Vec<_> = self.about.iter().map(|(what, value)| format!("{what}: {value}")).collect();
        format!("{}.", parts.join("; "))
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        for rows in doc::tables(&self.rows) {
            let _ =
                writeln!(out, "## {}\n\n{}", rows[0].table.heading, doc::table_of(&rows, &self.conclusions));
        }
        let _ = writeln!(out, "{}", self.circumstances());
        out
    }

    fn json(&self) -> String {
        let mut out = String::from("{\n");
        for (what, value) in &self.about {
            let _ = writeln!(out, "  {}: {},", quoted(what), quoted(value));
        }
        let rows: Vec<_> = self.rows.iter().map(json_row).collect();
        let _ = write!(out, "  \"rows\": [\n{}\n  ]\n}}\n", rows.join(",\n"));
        out
    }
}

fn json_row(row: &Row) -> String {
    let servers: Vec<_> = row
        .servers
        .iter()
        .zip(&row.samples)
        .map(|(server, samples)| {
            let samples: Vec<_> = samples.iter().map(|sample| json_sample(row.table, sample)).collect();
            format!("{}: [{}]", quoted(server), samples.join(", "))
        })
        .collect();
    format!(
        "    {{\"topic\": {}, \"name\": {}, \"title\": {}{}, \"samples\": {{{}}}}}",
        quoted(row.table.topic),
        quoted(&row.name),
        quoted(&row.title),
        json_targets(row),
        servers.join(", ")
    )
}

/// Formats the row's targets, with a leading comma; empty if it has no targets.
fn json_targets(row: &Row) -> String {
    let of_peer = |peer| targets::judge(row, peer).into_iter().map(move |judged| (peer, judged));
    let targets: Vec<_> = (1..row.servers.len())
        .flat_map(of_peer)
        .map(|(peer, judged)| {
            format!(
                "{{\"peer\": {}, \"figure\": {}, \"asked\": {:.4}, \"found\": {:.4}, \"met\": {}}}",
                quoted(&row.servers[peer]),
                quoted(judged.column),
                judged.asked,
                judged.found,
                judged.is_met()
            )
        })
        .collect();
    match targets.is_empty() {
        true => String::new(),
        false => format!(", \"targets\": [{}]", targets.join(", ")),
    }
}

fn json_sample(table: &Table, sample: &[Option<f64>]) -> String {
    let figure = |value: &Option<f64>| value.map_or("null".to_owned(), |v| format!("{v:.4}"));
    let cells: Vec<_> = table
        .columns
        .iter()
        .zip(sample)
        .map(|(c, value)| format!("{}: {}", quoted(c.key), figure(value)))
        .collect();
    format!("{{{}}}", cells.join(", "))
}

fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn versions(options: &Options) -> Result<Vec<(String, String)>, Failure> {
    let version = |program: Program| Ok((program.name.clone(), server::version(&program)?));
    options.servers().into_iter().map(version).collect()
}

fn about(options: &Options, versions: &[(String, String)]) -> Vec<(&'static str, String)> {
    let versions: Vec<_> = versions.iter().map(|(name, version)| format!("{name} = {version}")).collect();
    let size = if options.quick { "--quick, " } else { "" };
    let build = if options.is_debug_build() { "debug, without optimisation" } else { "optimised" };
    vec![
        ("measured", day_and_commit()),
        ("servers", versions.join(", ")),
        ("build", build.to_owned()),
        ("machine", machine()),
        (
            "settings",
            format!(
                "{size}{} repetitions ({} for rows with long preparation); server defaults, except \
                 persistence (as each table states), maxclients, and automatic log rewriting on peers (on \
                 only for Recovery)",
                options.repetitions,
                options.heavy_repetitions()
            ),
        ),
    ]
}

/// Returns the day and the commit of the repository, as far as `date` and `git` print them.
fn day_and_commit() -> String {
    let output_of = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let day = output_of("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(|| "unknown day".into());
    let commit = output_of("git", &["describe", "--always", "--dirty"]);
    commit.map_or(day.clone(), |commit| format!("{day} at {commit}"))
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown processor");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    format!(
        "{}, {cores} cores, {} GiB, Linux {}",
        model.trim_start_matches(['\t', ' ', ':']),
        kib.div_ceil(1024 * 1024),
        kernel.trim()
    )
}

/// CPU time of this machine since it was started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcessorTime {
    all: u64,
    /// Steal time: this machine had work, and the host ran other virtual machines instead.
    stolen: u64,
}

impl ProcessorTime {
    fn now() -> ProcessorTime {
        ProcessorTime::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. The guest times
    /// behind them are part of user and nice already.
    fn read(stat: &str) -> ProcessorTime {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        ProcessorTime { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// Returns the share of steal time in percent, or `None` on a machine that never had any.
    fn stolen_since(self, before: ProcessorTime) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        (self.stolen > 0).then(|| 100.0 * (self.stolen - before.stolen) as f64 / all as f64)
    }
}

/// Returns the file's text with another table between the marks.
fn replaced_in_file(file: &Path, mark: &str, table: &str) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(doc::replace_between_marks(&text, mark, table).ok_or_else(|| doc::lacks_marks(file, mark))?)
}

/// Aligns the cells of a line for the terminal.
fn aligned(cells: &[String], table: &Table) -> String {
    // The places of the cell with a server's name and of the last figure, and the width of figures.
    let (name, last, figure) = match table.layout {
        Layout::ByPeer => (table.columns.len() + 1, 2 * table.columns.len() + 1, 11),
        Layout::ByServer => (1, table.columns.len() + 1, 19),
    };
    let mut out = String::new();
    for (at, cell) in cells.iter().enumerate() {
        let gap = |width: usize| " ".repeat(width.saturating_sub(cell.chars().count()));
        match at {
            0 => out.push_str(&format!("{cell}{}", gap(42))),
            _ if at == name => out.push_str(&format!("   {cell}{}", gap(10))),
            _ if at > last => out.push_str(&format!("   {cell}{}", gap(20))),
            _ => out.push_str(&format!("{} {cell}", gap(figure))),
        }
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_a_share_of_all_time() {
        let before = ProcessorTime::read("cpu  10 0 10 70 5 0 5 100 7 7\ncpu0 1 1 1 1 1 1 1 1\n");
        let after = ProcessorTime::read("cpu  20 0 20 130 5 0 5 120 9 9\n");
        assert_eq!(before, ProcessorTime { all: 200, stolen: 100 });
        assert_eq!(after.stolen_since(before), Some(20.0));
        assert_eq!(before.stolen_since(before), None);
        let own = ProcessorTime::read("cpu  10 0 10 70 5 0 5 0 0 0\n");
        assert_eq!(own.stolen_since(ProcessorTime::read("")), None);
    }

    #[test]
    fn json_text_is_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
