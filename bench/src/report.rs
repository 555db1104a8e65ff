//! The results of a run: prints each row when it is measured, and saves all rows as Markdown and as JSON.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::Failure;
use crate::doc;
use crate::options::{Options, Program};
use crate::server;
use crate::table::{Layout, Row, Table};
use crate::topics;

/// The measured rows and the circumstances of the run.
pub(crate) struct Report {
    /// Name and version of every server, the subject first.
    versions: Vec<(String, String)>,
    /// Circumstances, in the order in which they are printed.
    about: Vec<(&'static str, String)>,
    rows: Vec<Row>,
    /// Sentences under tables, each with its table's heading.
    notes: Vec<(&'static str, String)>,
    /// Heading of the table that was printed last.
    printed: &'static str,
    begun: ProcessorTime,
}

impl Report {
    pub(crate) fn begin(options: &Options) -> Result<Report, Failure> {
        if options.doc {
            doc::check_marks(
                Path::new(doc::TABLES),
                topics::tables().into_iter().map(|table| table.heading),
            )?;
        }
        options.readme.as_deref().map_or(Ok(()), doc::check_readme)?;
        let version = |program: Program| Ok((program.name.clone(), server::version(&program)?));
        let versions = options.servers().into_iter().map(version).collect::<Result<Vec<_>, Failure>>()?;
        let about = about(options, &versions);
        about.iter().for_each(|(what, value)| println!("{what:<10} {value}"));
        if options.is_debug_build() {
            println!(
                "\nThis is a DEBUG BUILD: the run shows that the benchmark works, and nothing about speed."
            );
        }
        let begun = ProcessorTime::now();
        Ok(Report { versions, about, rows: Vec::new(), notes: Vec::new(), printed: "", begun })
    }

    pub(crate) fn add(&mut self, row: Row) {
        if self.printed != row.table.heading {
            self.printed = row.table.heading;
            println!("\n{}\n{}", row.table.heading, aligned(&Row::heading(row.table), row.table));
        }
        row.lines().iter().for_each(|line| println!("{}", aligned(line, row.table)));
        self.rows.push(row);
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Prints a sentence that belongs under this table, and keeps it for the documents.
    pub(crate) fn note(&mut self, table: &'static Table, text: String) {
        println!("{text}");
        self.notes.push((table.heading, text));
    }

    pub(crate) fn save(mut self, options: &Options) -> Result<(), Failure> {
        if let Some(percent) = ProcessorTime::now().stolen_since(self.begun) {
            let host = format!("other virtual machines took {percent:.1} % of the CPU time");
            println!("\n{:<10} {host}", "host");
            self.about.push(("host", host));
        }
        let results = format!("{:#}\n", self.json());
        fs::create_dir_all(&options.out)?;
        fs::write(options.out.join("results.json"), &results)?;
        fs::write(options.out.join("table.md"), self.markdown())?;
        println!("\nSaved {0}/results.json and {0}/table.md", options.out.display());
        if let Some(file) = &options.json {
            fs::write(file, &results).map_err(|e| format!("{}: {e}", file.display()))?;
            println!("Saved {}", file.display());
        }
        if options.doc {
            self.write_tables()?;
        }
        if let Some(file) = &options.readme {
            let about = |wanted: &str| {
                self.about.iter().find(|(what, _)| *what == wanted).map_or("", |(_, text)| text)
            };
            let measured = format!("{}; {}", about("measured"), about("machine"));
            doc::write_readme(file, &self.rows, &self.versions, &measured)?;
            println!("Replaced the table in {}", file.display());
        }
        Ok(())
    }

    /// Replaces the tables in the document whose rows were all measured.
    fn write_tables(&self) -> Result<(), Failure> {
        for rows in doc::tables(&self.rows) {
            let heading = rows[0].table.heading;
            if topics::is_whole(&rows) {
                let table = doc::table_of(&rows, &self.notes);
                doc::write_table(Path::new(doc::TABLES), &rows, &table, &self.circumstances())?;
                println!("Wrote the table \"{heading}\" in {}", doc::TABLES);
            } else {
                println!("Left the table \"{heading}\" unchanged: not all of its rows were measured");
            }
        }
        Ok(())
    }

    /// Returns the circumstances of the run as one sentence.
    fn circumstances(&self) -> String {
        let parts: Vec<_> = self.about.iter().map(|(what, value)| format!("{what}: {value}")).collect();
        format!("{}.", parts.join("; "))
    }

    fn markdown(&self) -> String {
        let table = |rows: &Vec<&Row>| {
            format!("## {}\n\n{}\n", rows[0].table.heading, doc::table_of(rows, &self.notes))
        };
        let tables: String = doc::tables(&self.rows).iter().map(table).collect();
        format!("{tables}{}\n", self.circumstances())
    }

    fn json(&self) -> Value {
        let about = self.about.iter().map(|(what, value)| ((*what).to_owned(), json!(value)));
        let rows = self.rows.iter().map(json_row).collect::<Vec<_>>();
        Value::Object(about.chain([("rows".to_owned(), json!(rows))]).collect())
    }
}

fn json_row(row: &Row) -> Value {
    // With more digits, figures would look more precise than they are.
    let figure = |value: &Option<f64>| json!(value.map(|value| (value * 1e4).round() / 1e4));
    let keys = || row.table.columns.iter().map(|column| column.key.to_owned());
    let sample = |sample: &Vec<Option<f64>>| keys().zip(sample.iter().map(figure)).collect::<Map<_, _>>();
    let of_server = |samples: &Vec<_>| json!(samples.iter().map(sample).collect::<Vec<_>>());
    let samples: Map<_, _> = row.servers.iter().cloned().zip(row.samples.iter().map(of_server)).collect();
    json!({ "topic": row.table.topic, "name": row.name, "title": row.title, "samples": samples })
}

fn about(options: &Options, versions: &[(String, String)]) -> Vec<(&'static str, String)> {
    let versions: Vec<_> = versions.iter().map(|(name, version)| format!("{name} = {version}")).collect();
    let size = if options.quick { "--quick, " } else { "" };
    let build = if options.is_debug_build() { "debug, without optimisation" } else { "optimised" };
    let (repetitions, heavy) = (options.repetitions(), options.heavy_repetitions());
    let settings = format!(
        "{size}{repetitions} repetitions ({heavy} for rows with long preparation); server defaults, except persistence \
         (as each table states), maxclients, and automatic log rewriting on peers (on only for Recovery)"
    );
    vec![
        ("measured", day_and_commit()),
        ("servers", versions.join(", ")),
        ("build", build.to_owned()),
        ("machine", machine()),
        ("settings", settings),
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
    let file = |path| fs::read_to_string(path).unwrap_or_default();
    let cpu = file("/proc/cpuinfo");
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown processor");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kib: u64 =
        file("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let (gib, kernel) = (kib.div_ceil(1024 * 1024), file("/proc/sys/kernel/osrelease"));
    format!("{model}, {cores} cores, {gib} GiB, Linux {}", kernel.trim())
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

/// Aligns the cells of a line for the terminal.
fn aligned(cells: &[String], table: &Table) -> String {
    // The places of the cell with a server's name and of the last figure, and the width of figures.
    let (name, last, figure) = match table.layout {
        Layout::ByPeer => (table.columns.len() + 1, 2 * table.columns.len() + 1, 11),
        Layout::ByServer => (1, table.columns.len() + 1, 19),
    };
    let cell = |(at, cell): (usize, &String)| match at {
        0 => format!("{cell:<42}"),
        _ if at == name => format!("   {cell:<10}"),
        _ if at > last => format!("   {cell:<20}"),
        _ => format!(" {cell:>figure$}"),
    };
    let line: String = cells.iter().enumerate().map(cell).collect();
    line.trim_end().to_owned()
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
}
