//! What was measured, as a table for the terminal, as Markdown and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::load::Sample;
use crate::options::Options;
use crate::server;

const MARK_BEGIN: &str = "<!-- bench: begin -->";
const MARK_END: &str = "<!-- bench: end -->";
const HEADING: [&str; 7] = ["workload", "CPU", "op/s", "peer", "CPU", "op/s", "times cheaper"];

/// One workload on every server, the subject first.
pub(crate) struct Measured {
    name: &'static str,
    title: &'static str,
    /// Per server, one for each repetition. Empty for figures in bytes.
    pub(crate) samples: Vec<Vec<Sample>>,
    /// Per server. Empty for figures in operations.
    bytes: Vec<f64>,
}

impl Measured {
    pub(crate) fn speed(name: &'static str, title: &'static str, servers: usize) -> Measured {
        Measured { name, title, samples: vec![Vec::new(); servers], bytes: Vec::new() }
    }

    pub(crate) fn memory(name: &'static str, title: &'static str, bytes: Vec<f64>) -> Measured {
        Measured { name, title, samples: Vec::new(), bytes }
    }

    /// How many times the subject is cheaper than the peer, repetition by repetition: neighbours in time.
    fn times_cheaper(&self, peer: usize) -> Spread {
        if self.samples.is_empty() {
            return Spread::of(vec![self.bytes[peer] / self.bytes[0]]);
        }
        let pairs = self.samples[0].iter().zip(&self.samples[peer]);
        Spread::of(pairs.map(|(ours, theirs)| theirs.cpu_us_per_op / ours.cpu_us_per_op).collect())
    }

    /// The subject's cost and throughput, then the peer's: median cells of a table row.
    fn cells(&self, server: usize) -> (String, String) {
        match self.samples.get(server) {
            None => (format!("{:.1} B", self.bytes[server]), String::new()),
            Some(samples) => {
                let cost = Spread::of(samples.iter().map(|s| s.cpu_us_per_op).collect());
                let rate = Spread::of(samples.iter().map(|s| s.ops_per_second).collect());
                (format!("{} µs", significant(cost.median)), thousands(rate.median))
            }
        }
    }
}

/// Median, least and greatest.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread { median: (low + high) / 2.0, min: values[0], max: values[values.len() - 1] }
    }

    fn text(&self) -> String {
        match self.min == self.max {
            true => format!("{}×", significant(self.median)),
            false => {
                format!("{}× ({}–{})", significant(self.median), significant(self.min), significant(self.max))
            }
        }
    }
}

/// The whole run. Rows are printed as they come.
pub(crate) struct Report {
    about: Vec<(&'static str, String)>,
    subject: String,
    peers: Vec<String>,
    rows: Vec<Measured>,
}

impl Report {
    pub(crate) fn begin(options: &Options) -> Result<Report, Failure> {
        let report = Report {
            about: about(options),
            subject: options.subject.name.clone(),
            peers: options.peers.iter().map(|p| p.name.clone()).collect(),
            rows: Vec::new(),
        };
        for (what, value) in &report.about {
            println!("{what:<10} {value}");
        }
        println!(
            "\nServer CPU per operation, throughput as the generator saw it: medians. {} first.\n",
            report.subject
        );
        println!("{}", aligned(&HEADING.map(str::to_owned)));
        Ok(report)
    }

    pub(crate) fn add(&mut self, row: Measured) {
        for line in self.lines(&row) {
            println!("{}", aligned(&line));
        }
        self.rows.push(row);
    }

    pub(crate) fn save(&self, options: &Options) -> Result<(), Failure> {
        fs::create_dir_all(&options.out)?;
        fs::write(options.out.join("results.json"), self.json())?;
        fs::write(options.out.join("table.md"), self.markdown())?;
        println!("\nSaved {0}/results.json and {0}/table.md", options.out.display());
        if let Some(readme) = &options.readme {
            replace_between_marks(readme, &self.markdown())?;
            println!("Replaced the table of {}", readme.display());
        }
        Ok(())
    }

    /// One line for each peer.
    fn lines(&self, row: &Measured) -> Vec<[String; 7]> {
        let (cost, rate) = row.cells(0);
        let lines = self.peers.iter().enumerate().map(|(at, peer)| {
            let (peer_cost, peer_rate) = row.cells(at + 1);
            let cheaper = row.times_cheaper(at + 1).text();
            [row.title.to_owned(), cost.clone(), rate.clone(), peer.clone(), peer_cost, peer_rate, cheaper]
        });
        lines.collect()
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        let ours = &self.subject;
        let _ = writeln!(out, "| workload | {ours} CPU | op/s | peer | peer CPU | op/s | times cheaper |");
        let _ = writeln!(out, "|---|--:|--:|---|--:|--:|--:|");
        for line in self.rows.iter().flat_map(|row| self.lines(row)) {
            let _ = writeln!(out, "| {} |", line.join(" | "));
        }
        let about: Vec<_> = self.about.iter().map(|(what, value)| format!("{what}: {value}")).collect();
        let _ = writeln!(out, "\n{}.", about.join("; "));
        out
    }

    fn json(&self) -> String {
        let mut out = String::from("{\n");
        for (what, value) in &self.about {
            let _ = writeln!(out, "  {}: {},", quoted(what), quoted(value));
        }
        out.push_str("  \"rows\": [\n");
        let servers: Vec<_> = std::iter::once(&self.subject).chain(&self.peers).collect();
        let rows: Vec<_> = self.rows.iter().map(|row| json_row(row, &servers)).collect();
        let _ = write!(out, "{}\n  ]\n}}\n", rows.join(",\n"));
        out
    }
}

fn json_row(row: &Measured, servers: &[&String]) -> String {
    let mut cells = vec![format!("\"workload\": {}", quoted(row.name))];
    for (at, server) in servers.iter().enumerate() {
        let value = match row.samples.get(at) {
            None => format!("{{\"bytes\": {:.2}}}", row.bytes[at]),
            Some(samples) => {
                format!("[{}]", samples.iter().map(json_sample).collect::<Vec<_>>().join(", "))
            }
        };
        cells.push(format!("{}: {value}", quoted(server)));
    }
    format!("    {{{}}}", cells.join(", "))
}

fn json_sample(sample: &Sample) -> String {
    let optional = |value: Option<f64>| value.map_or("null".to_owned(), |v| v.to_string());
    format!(
        "{{\"cpu_us_per_op\": {:.4}, \"ops_per_second\": {:.0}, \"p50_ms\": {}, \"p99_ms\": {}}}",
        sample.cpu_us_per_op,
        sample.ops_per_second,
        optional(sample.p50_ms),
        optional(sample.p99_ms)
    )
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

/// The circumstances without which figures mean nothing.
fn about(options: &Options) -> Vec<(&'static str, String)> {
    let programs = options.servers();
    let versions: Vec<_> = programs
        .iter()
        .map(|p| format!("{} = {}", p.name, server::version(p).unwrap_or_else(|| p.path.clone())))
        .collect();
    let size = if options.quick { "quick, " } else { "" };
    vec![
        ("servers", versions.join(", ")),
        ("machine", machine()),
        ("settings", format!("{size}{} repetitions, persistence off", options.repetitions)),
    ]
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown processor");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores, Linux {}", model.trim_start_matches(['\t', ' ', ':']), kernel.trim())
}

fn replace_between_marks(file: &Path, table: &str) -> Result<(), Failure> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let begin = text.find(MARK_BEGIN).map(|at| at + MARK_BEGIN.len());
    match (begin, text.find(MARK_END)) {
        (Some(begin), Some(end)) if begin <= end => {
            fs::write(file, format!("{}\n{table}{}", &text[..begin], &text[end..]))?;
            Ok(())
        }
        _ => Err(format!("{} lacks the lines {MARK_BEGIN} and {MARK_END}", file.display()).into()),
    }
}

fn aligned(cells: &[String; 7]) -> String {
    let [title, cost, rate, peer, peer_cost, peer_rate, cheaper] = cells;
    format!("{title:<36}{cost:>9}{rate:>12}   {peer:<8}{peer_cost:>9}{peer_rate:>12}   {cheaper}")
}

/// Three digits that matter.
fn significant(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(1234567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!([0.456, 4.56, 45.6, 456.0].map(significant), ["0.46", "4.56", "45.6", "456"]);
    }

    #[test]
    fn the_median_lies_between_the_middle_two() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(spread.text(), "2.50× (1.00–4.00)");
    }

    #[test]
    fn only_what_lies_between_the_marks_is_replaced() {
        let file = std::env::temp_dir().join(format!("millstream-bench-marks-{}", std::process::id()));
        fs::write(&file, format!("above\n{MARK_BEGIN}\nold\n{MARK_END}\nbelow\n")).unwrap();
        replace_between_marks(&file, "new\n").unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            format!("above\n{MARK_BEGIN}\nnew\n{MARK_END}\nbelow\n")
        );
        fs::write(&file, "no marks").unwrap();
        assert!(replace_between_marks(&file, "new\n").is_err());
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn text_in_json_is_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
