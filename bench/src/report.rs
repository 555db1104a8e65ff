//! The whole run: rows are printed as they come, and saved as Markdown and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::doc;
use crate::options::Options;
use crate::server;
use crate::table::{self, Row, Table};
use crate::targets;
use crate::topics::{self, memory, scans, speed};

/// As seen from the root of the repository, where `scripts/bench` starts this program.
const DOCS: &str = "docs";
/// Around the short table.
const README_MARK: &str = "bench";

/// What was measured, and under which circumstances.
pub(crate) struct Report {
    about: Vec<(&'static str, String)>,
    rows: Vec<Row>,
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
        let about = about(options)?;
        for (what, value) in &about {
            println!("{what:<10} {value}");
        }
        if options.is_debug_build() {
            println!(
                "\nA DEBUG BUILD is measured: this shows that the harness works, and nothing about speed."
            );
        }
        Ok(Report { about, rows: Vec::new(), printed: None, begun: ProcessorTime::now() })
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

    /// What was measured so far for this table.
    pub(crate) fn rows_of(&self, table: &Table) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.table.heading == table.heading).collect()
    }

    /// Something to know about what is missing, or what follows from it.
    pub(crate) fn note(&self, text: &str) {
        println!("({text})");
    }

    pub(crate) fn save(mut self, options: &Options) -> Result<(), Failure> {
        if let Some(percent) = ProcessorTime::now().taken_since(self.begun) {
            let host = format!("took {percent:.1} % of the processors for others meanwhile");
            println!("\n{:<10} {host}", "host");
            self.about.push(("host", host));
        }
        fs::create_dir_all(&options.out)?;
        fs::write(options.out.join("results.json"), self.json())?;
        fs::write(options.out.join("table.md"), self.markdown())?;
        if let Some(summary) = targets::summary(&self.rows) {
            println!("\n{summary}{}", if options.quick { ", at the small sizes of --quick" } else { "" });
        }
        println!("\nSaved {0}/results.json and {0}/table.md", options.out.display());
        if let Some(file) = &options.json {
            fs::write(file, self.json()).map_err(|e| format!("{}: {e}", file.display()))?;
            println!("Saved {}", file.display());
        }
        if let Some(readme) = &options.readme {
            match self.short_table() {
                Some(table) => {
                    fs::write(readme, replaced_in_file(readme, README_MARK, &table)?)?;
                    println!("Replaced the table of {}", readme.display());
                }
                None => println!("Left {} alone: not all of its rows were measured", readme.display()),
            }
        }
        if options.doc {
            let left = doc::write(Path::new(DOCS), &self.rows, &self.circumstances())?;
            println!("Wrote docs/benchmarks.md");
            left.iter().for_each(|heading| {
                println!("Left its table \"{heading}\" alone: not all of its rows were measured")
            });
        }
        Ok(())
    }

    /// The circumstances without which figures mean nothing, as one sentence.
    fn circumstances(&self) -> String {
        let parts: Vec<_> = self.about.iter().map(|(what, value)| format!("{what}: {value}")).collect();
        format!("{}.", parts.join("; "))
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        for rows in doc::tables(&self.rows) {
            let _ = writeln!(out, "## {}\n\n{}", rows[0].table.heading, doc::table_of(&rows));
        }
        let _ = writeln!(out, "{}", self.circumstances());
        out
    }

    /// The rows that a newcomer asks for: what one operation costs here and there. `None` if not all of them were measured.
    fn short_table(&self) -> Option<String> {
        let headlines = [&speed::TABLE, &scans::TABLE, &memory::TABLE];
        if !headlines.iter().all(|table| topics::is_whole(&self.rows_of(table))) {
            return None;
        }
        let peer = match self.rows.first()?.servers.as_slice() {
            [_, peer] => peer,
            _ => "best peer",
        };
        let heading = ["workload", "millstream", peer, "times less"].map(str::to_owned);
        let lines: Vec<_> = self
            .rows
            .iter()
            .filter(|row| row.is_headline)
            .filter_map(|row| {
                let best = row.best_peer(0)?;
                let unit = row.table.columns[0].heading.rsplit_once(", ").map_or("", |(_, unit)| unit);
                let unit = unit.trim_end_matches("/op");
                let cell = |server| {
                    row.median(server, 0)
                        .map_or("–".into(), |v| format!("{} {unit}", crate::stats::significant(v)))
                };
                let title = match row.table.topic {
                    "memory" => format!("bytes {}", row.title),
                    _ => row.title.clone(),
                };
                let name = row.name_among_peers(best).map_or(String::new(), |name| format!(" {name}"));
                Some(vec![title, cell(0), cell(best) + &name, row.compared_text(best, 0).unwrap_or_default()])
            })
            .collect();
        let table = table::markdown(&heading, &lines);
        let rest = "All that is measured: [docs/benchmarks.md](docs/benchmarks.md).";
        Some(format!("{table}\n{} {rest}\n", self.circumstances()))
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

/// What was asked of its figures and found, with the comma before it; nothing where nothing was asked.
fn json_targets(row: &Row) -> String {
    let judged = (1..row.servers.len()).flat_map(|peer| targets::judge(row, peer));
    let targets: Vec<_> = judged
        .map(|one| {
            format!(
                "{{\"figure\": {}, \"asked\": {:.4}, \"found\": {:.4}, \"met\": {}}}",
                quoted(one.column),
                one.asked(),
                one.found,
                one.is_met()
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

fn about(options: &Options) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut versions = Vec::new();
    for program in options.servers() {
        versions.push(format!("{} = {}", program.name, server::version(&program)?));
    }
    let size = if options.quick { "--quick, " } else { "" };
    let build = if options.is_debug_build() { "debug, without optimisation" } else { "optimised" };
    Ok(vec![
        ("measured", moment()),
        ("servers", versions.join(", ")),
        ("build", build.to_owned()),
        ("machine", machine()),
        (
            "settings",
            format!(
                "{size}{} repetitions, {} of what is long to prepare; defaults but for persistence as each table says, \
                 maxclients, and peers rewriting their log only when asked, save for recovery",
                options.repetitions,
                options.heavy_repetitions()
            ),
        ),
    ])
}

/// The day, and the state of the repository, where the system can tell them.
fn moment() -> String {
    let told = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let day = told("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(|| "some day".into());
    let commit = told("git", &["describe", "--always", "--dirty"]);
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

/// What the processors of this machine have done since it was started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcessorTime {
    all: u64,
    /// They had work, and the machine's host had other machines to run.
    taken: u64,
}

impl ProcessorTime {
    fn now() -> ProcessorTime {
        ProcessorTime::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line: user, nice, system, idle, waiting for the disk, interrupts, soft ones, taken; what follows is in these already.
    fn read(stat: &str) -> ProcessorTime {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        ProcessorTime { all: ticks.iter().sum(), taken: ticks.get(7).copied().unwrap_or(0) }
    }

    /// In parts of a hundred; `None` on a machine from which nobody ever took any.
    fn taken_since(self, before: ProcessorTime) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        (self.taken > 0).then(|| 100.0 * (self.taken - before.taken) as f64 / all as f64)
    }
}

/// Its text with another table between the marks.
fn replaced_in_file(file: &Path, mark: &str, table: &str) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(doc::replace_between_marks(&text, mark, table).ok_or_else(|| doc::lacks_marks(file, mark))?)
}

/// A line for the terminal.
fn aligned(cells: &[String], table: &Table) -> String {
    let peer = table.columns.len() + 1;
    let mut out = String::new();
    for (at, cell) in cells.iter().enumerate() {
        let gap = |width: usize| " ".repeat(width.saturating_sub(cell.chars().count()));
        match at {
            0 => out.push_str(&format!("{cell}{}", gap(42))),
            _ if at == peer => out.push_str(&format!("   {cell}{}", gap(10))),
            _ if at > 2 * table.columns.len() + 1 => out.push_str(&format!("   {cell}{}", gap(20))),
            _ => out.push_str(&format!("{} {cell}", gap(11))),
        }
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_a_part_of_all_time() {
        let before = ProcessorTime::read("cpu  10 0 10 70 5 0 5 100 7 7\ncpu0 1 1 1 1 1 1 1 1\n");
        let after = ProcessorTime::read("cpu  20 0 20 130 5 0 5 120 9 9\n");
        assert_eq!(before, ProcessorTime { all: 200, taken: 100 });
        assert_eq!(after.taken_since(before), Some(20.0));
        assert_eq!(before.taken_since(before), None);
        let own = ProcessorTime::read("cpu  10 0 10 70 5 0 5 0 0 0\n");
        assert_eq!(own.taken_since(ProcessorTime::read("")), None);
    }

    #[test]
    fn text_in_json_is_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
