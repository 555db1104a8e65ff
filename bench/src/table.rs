//! Tables: columns, and rows that hold every repetition on every server.

use crate::stats::{Spread, significant, thousands};
use crate::targets;

/// One figure of a sample.
pub(crate) struct Column {
    /// Name in JSON, with the unit last.
    pub(crate) key: &'static str,
    /// Heading in tables: quantity, comma, unit.
    pub(crate) heading: &'static str,
    pub(crate) compare: Compare,
}

impl Column {
    /// Returns the heading without the unit.
    pub(crate) fn quantity(&self) -> &'static str {
        self.heading.rsplit_once(", ").map_or(self.heading, |(quantity, _)| quantity)
    }

    /// Returns the unit in the heading, or an empty text if it has none.
    pub(crate) fn unit(&self) -> &'static str {
        self.heading.rsplit_once(", ").map_or("", |(_, unit)| unit)
    }
}

/// How a column compares the subject with a peer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Compare {
    /// Not compared.
    No,
    /// Less is better: the peer's figure divided by the subject's.
    Less,
    /// More is better: the subject's figure divided by the peer's.
    More,
    /// Extra cost of the subject over the peer, in percent.
    Cost,
}

/// What a line of a table shows.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Layout {
    /// The figures of the subject and of one peer.
    ByPeer,
    /// The figures of one server. For tables with many columns.
    ByServer,
}

/// A kind of table.
pub(crate) struct Table {
    /// The topic's name in `--only`.
    pub(crate) topic: &'static str,
    pub(crate) heading: &'static str,
    /// How to read the table; printed above it in docs/benchmarks.md.
    pub(crate) intro: &'static str,
    pub(crate) layout: Layout,
    pub(crate) columns: &'static [Column],
}

/// One figure per column; `None` if it was not measured.
pub(crate) type Sample = Vec<Option<f64>>;

/// One workload on the servers that can run it, the subject first.
pub(crate) struct Row {
    pub(crate) table: &'static Table,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) servers: Vec<String>,
    /// For each server, one sample per repetition.
    pub(crate) samples: Vec<Vec<Sample>>,
}

impl Row {
    pub(crate) fn new(
        table: &'static Table,
        name: impl Into<String>,
        title: impl Into<String>,
        servers: Vec<String>,
    ) -> Row {
        let samples = vec![Vec::new(); servers.len()];
        Row { table, name: name.into(), title: title.into(), servers, samples }
    }

    /// Returns the median over all repetitions.
    pub(crate) fn median(&self, server: usize, column: usize) -> Option<f64> {
        Spread::of(self.samples[server].iter().filter_map(|sample| sample[column])).map(|s| s.median)
    }

    /// Compares the subject with a peer, repetition by repetition: these figures were measured right after each other.
    pub(crate) fn compared(&self, peer: usize, column: usize) -> Option<Spread> {
        let compare = self.table.columns[column].compare;
        let pairs = self.samples[0].iter().zip(&self.samples[peer]);
        Spread::of(pairs.filter_map(|(ours, theirs)| {
            let (ours, theirs) = (ours[column]?, theirs[column]?);
            match compare {
                Compare::No => None,
                Compare::Less => Some(theirs / ours),
                Compare::More => Some(ours / theirs),
                Compare::Cost => Some((ours / theirs - 1.0) * 100.0),
            }
        }))
    }

    /// Returns the peer with the best figure in a column.
    pub(crate) fn best_peer(&self, column: usize) -> Option<usize> {
        self.best_of(1..self.servers.len(), column)
    }

    /// Like `best_peer`, considering only peers with these names.
    pub(crate) fn best_peer_named(&self, column: usize, names: &[&str]) -> Option<usize> {
        let is_named = |peer: &usize| names.contains(&self.servers[*peer].as_str());
        self.best_of((1..self.servers.len()).filter(is_named), column)
    }

    fn best_of(&self, peers: impl Iterator<Item = usize>, column: usize) -> Option<usize> {
        let compared = |peer: usize| Some((peer, self.compared(peer, column)?.median));
        peers.filter_map(compared).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(peer, _)| peer)
    }

    /// Returns the peer's name if the row has several peers.
    pub(crate) fn name_among_peers(&self, peer: usize) -> Option<&str> {
        (self.servers.len() > 2).then(|| self.servers[peer].as_str())
    }

    /// Returns the heading of each cell of `lines`.
    pub(crate) fn heading(table: &Table) -> Vec<String> {
        let figures = || table.columns.iter().map(|c| c.heading.to_owned());
        let mut heading = vec!["workload".to_owned()];
        match table.layout {
            Layout::ByPeer => heading.extend(figures().chain(["peer".to_owned()])),
            Layout::ByServer => heading.push("server".to_owned()),
        }
        heading.extend(figures());
        heading.extend(table.columns.iter().filter_map(compared_heading));
        heading.extend(targets::has_any(table).then(|| "target".to_owned()));
        heading
    }

    /// Returns one line per peer: title, the subject's medians, the peer, its medians, the comparisons, the targets.
    /// If no peer can run the workload, returns one line without a peer. In a table by server, returns one line per
    /// server, without the subject's medians in the lines of peers.
    pub(crate) fn lines(&self) -> Vec<Vec<String>> {
        match self.table.layout {
            Layout::ByPeer if self.servers.len() == 1 => vec![self.line_alone()],
            Layout::ByPeer => (1..self.servers.len()).map(|peer| self.line(peer)).collect(),
            Layout::ByServer => (0..self.servers.len()).map(|server| self.line(server)).collect(),
        }
    }

    fn line(&self, server: usize) -> Vec<String> {
        let columns = 0..self.table.columns.len();
        let medians = |server: usize| columns.clone().map(move |c| figure(self.median(server, c)));
        let mut line = vec![self.title.clone()];
        if self.table.layout == Layout::ByPeer {
            line.extend(medians(0));
        }
        line.push(self.servers[server].clone());
        line.extend(medians(server));
        if server == 0 {
            // The subject is not compared with itself.
            line.resize(Row::heading(self.table).len(), "–".to_owned());
            return line;
        }
        line.extend(columns.clone().filter_map(|c| self.compared_text(server, c)));
        line.extend(targets::has_any(self.table).then(|| targets::text(&targets::judge(self, server))));
        line
    }

    fn line_alone(&self) -> Vec<String> {
        let columns = 0..self.table.columns.len();
        let mut line = vec![self.title.clone()];
        line.extend(columns.map(|column| figure(self.median(0, column))));
        line.resize(Row::heading(self.table).len(), "–".to_owned());
        line
    }

    /// Returns the cell of a comparison, or `None` if the column is not compared.
    pub(crate) fn compared_text(&self, peer: usize, column: usize) -> Option<String> {
        let compare = self.table.columns[column].compare;
        let text = |spread: Spread| match compare {
            Compare::Cost => spread.percent(),
            _ => spread.times(),
        };
        (compare != Compare::No).then(|| self.compared(peer, column).map_or("–".into(), text))
    }
}

fn compared_heading(column: &Column) -> Option<String> {
    let quantity = column.quantity();
    match column.compare {
        Compare::No => None,
        Compare::Less => Some(format!("times less {quantity}")),
        Compare::More => Some(format!("times more {quantity}")),
        Compare::Cost => Some(format!("more {quantity}")),
    }
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value >= 1000.0 => thousands(value),
        Some(value) => significant(value),
    }
}

/// Formats a row of a Markdown table.
pub(crate) fn markdown_line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Formats a Markdown table: text columns left-aligned, figures right-aligned.
pub(crate) fn markdown(heading: &[String], lines: &[Vec<String>]) -> String {
    let sides: String = heading
        .iter()
        .map(|cell| {
            if matches!(cell.as_str(), "workload" | "peer" | "size" | "server" | "target") {
                "---|"
            } else {
                "--:|"
            }
        })
        .collect();
    let mut out = markdown_line(heading);
    out.push_str(&format!("|{sides}\n"));
    out.extend(lines.iter().map(|line| markdown_line(line)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: Table = Table {
        topic: "test",
        heading: "Test",
        intro: "",
        layout: Layout::ByPeer,
        columns: &[
            Column { key: "cpu_us", heading: "CPU, µs/op", compare: Compare::Less },
            Column { key: "op_s", heading: "op/s", compare: Compare::More },
            Column { key: "p50_ms", heading: "p50, ms", compare: Compare::No },
        ],
    };

    fn row() -> Row {
        let mut row = Row::new(&TABLE, "xadd", "XADD", vec!["a".into(), "b".into()]);
        for (ours, theirs) in [(1.0, 4.0), (2.0, 4.0), (1.0, 3.0)] {
            row.samples[0].push(vec![Some(ours), Some(2000.0), None]);
            row.samples[1].push(vec![Some(theirs), Some(1000.0), Some(0.5)]);
        }
        row
    }

    #[test]
    fn figures_of_the_same_repetition_are_compared() {
        let spread = row().compared(1, 0).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 2.0, 4.0));
        assert_eq!(row().compared(1, 1).unwrap().median, 2.0);
        assert!(row().compared(1, 2).is_none());
    }

    #[test]
    fn best_peer_has_the_best_figure() {
        let mut several = row();
        assert_eq!((several.best_peer(0), several.name_among_peers(1)), (Some(1), None));
        several.servers.push("c".into());
        several.samples.push(vec![vec![Some(1.5), Some(3000.0), None]; 3]);
        assert_eq!((several.best_peer(0), several.name_among_peers(2)), (Some(2), Some("c")));
        assert_eq!(several.best_peer(1), Some(2), "more is better in this column");
        assert_eq!(several.best_peer(2), None, "this column is not compared");
    }

    #[test]
    fn best_peer_named_ignores_other_peers() {
        let mut several = row();
        several.servers.push("c".into());
        several.samples.push(vec![vec![Some(1.5), Some(3000.0), None]; 3]);
        assert_eq!(several.best_peer_named(0, &["b", "d"]), Some(1));
        assert_eq!(several.best_peer_named(0, &["b", "c"]), Some(2));
        assert_eq!(several.best_peer_named(0, &["d"]), None);
    }

    #[test]
    fn every_line_has_a_cell_per_heading() {
        let lines = row().lines();
        assert_eq!(
            lines,
            [["XADD", "1.00", "2,000", "–", "b", "4.00", "1,000", "0.50", "3.00× (2.00–4.00)", "2.00×"]]
        );
        let heading = Row::heading(&TABLE);
        assert_eq!(heading.len(), lines[0].len());
        assert_eq!(heading[8..], ["times less CPU", "times more op/s"]);
    }

    #[test]
    fn a_table_by_server_has_a_line_per_server() {
        static BY_SERVER: Table = Table {
            topic: "test",
            heading: "Test",
            intro: "",
            layout: Layout::ByServer,
            columns: TABLE.columns,
        };
        let row = Row { table: &BY_SERVER, ..row() };
        assert_eq!(
            row.lines(),
            [
                ["XADD", "a", "1.00", "2,000", "–", "–", "–"],
                ["XADD", "b", "4.00", "1,000", "0.50", "3.00× (2.00–4.00)", "2.00×"],
            ]
        );
        assert_eq!(Row::heading(&BY_SERVER)[..3], ["workload", "server", "CPU, µs/op"]);
        assert_eq!(Row::heading(&BY_SERVER).len(), 7);
    }

    #[test]
    fn a_row_without_peers_has_one_line() {
        let mut alone = row();
        alone.servers.truncate(1);
        alone.samples.truncate(1);
        assert_eq!(alone.lines(), [["XADD", "1.00", "2,000", "–", "–", "–", "–", "–", "–", "–"]]);
    }

    #[test]
    fn markdown_aligns_figures_to_the_right() {
        let text = markdown(&["workload".into(), "CPU".into()], &[vec!["x".into(), "1".into()]]);
        assert_eq!(text, "| workload | CPU |\n|---|--:|\n| x | 1 |\n");
    }
}
