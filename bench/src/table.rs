//! Tables: columns, and rows that hold every repetition on every server.

use crate::stats::{Spread, significant};

/// One figure of a sample.
pub(crate) struct Column {
    /// Name in JSON, with the unit last.
    pub(crate) key: &'static str,
    /// Heading in tables: quantity, comma, unit.
    pub(crate) heading: &'static str,
    pub(crate) compare: Compare,
}

/// Describes a column.
pub(crate) const fn column(key: &'static str, heading: &'static str, compare: Compare) -> Column {
    Column { key, heading, compare }
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
    /// How to read the table; printed above it in docs/benchmarks-tables.md.
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

    /// Returns the heading of each cell of `lines`.
    pub(crate) fn heading(table: &Table) -> Vec<String> {
        let figures = || table.columns.iter().map(|c| c.heading.to_owned());
        let mut heading = vec!["workload".to_owned()];
        match table.layout {
            Layout::ByPeer => heading.extend(figures().chain(["peer".to_owned()])),
            Layout::ByServer => heading.push("server".to_owned()),
        }
        heading.extend(figures());
        heading.extend(table.columns.iter().filter_map(|column| {
            let quantity = column.heading.rsplit_once(", ").map_or(column.heading, |(quantity, _)| quantity);
            match column.compare {
                Compare::No => None,
                Compare::Less => Some(format!("times less {quantity}")),
                Compare::More => Some(format!("times more {quantity}")),
                Compare::Cost => Some(format!("more {quantity}")),
            }
        }));
        heading
    }

    /// Returns one line per peer: title, the subject's medians, the peer, its medians, the comparisons.
    /// If no peer can run the workload, returns one line without a peer. In a table by server, returns one line per
    /// server, without the subject's medians in the lines of peers.
    pub(crate) fn lines(&self) -> Vec<Vec<String>> {
        match self.table.layout {
            Layout::ByPeer if self.servers.len() > 1 => {
                (1..self.servers.len()).map(|peer| self.line(peer)).collect()
            }
            Layout::ByPeer => vec![self.line(0)],
            Layout::ByServer => (0..self.servers.len()).map(|server| self.line(server)).collect(),
        }
    }

    /// The subject is not compared with itself.
    fn line(&self, server: usize) -> Vec<String> {
        let columns = 0..self.table.columns.len();
        let medians =
            |server| columns.clone().map(move |c| self.median(server, c).map_or("–".into(), significant));
        let mut line = vec![self.title.clone()];
        if self.table.layout == Layout::ByPeer {
            line.extend(medians(0));
        }
        if self.table.layout == Layout::ByServer || server > 0 {
            line.push(self.servers[server].clone());
            line.extend(medians(server));
        }
        if server > 0 {
            line.extend(columns.clone().filter_map(|c| self.compared_text(server, c)));
        }
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

/// Formats a Markdown table: text columns left-aligned, figures right-aligned.
pub(crate) fn markdown(heading: &[String], lines: &[Vec<String>]) -> String {
    let side =
        |cell: &String| if matches!(cell.as_str(), "workload" | "peer" | "server") { "---|" } else { "--:|" };
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let sides: String = heading.iter().map(side).collect();
    format!("{}|{sides}\n{}", line(heading), lines.iter().map(|cells| line(cells)).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn table(layout: Layout) -> Table {
        const COLUMNS: &[Column] = &[
            column("cpu_us", "CPU, µs/op", Compare::Less),
            column("op_s", "op/s", Compare::More),
            column("p50_ms", "p50, ms", Compare::No),
        ];
        Table { topic: "test", heading: "Test", intro: "", layout, columns: COLUMNS }
    }

    static BY_PEER: Table = table(Layout::ByPeer);
    static BY_SERVER: Table = table(Layout::ByServer);

    fn row(table: &'static Table) -> Row {
        let (servers, samples) = (vec!["a".into(), "b".into()], vec![Vec::new(); 2]);
        let mut row = Row { table, name: "xadd".into(), title: "XADD".into(), servers, samples };
        for (ours, theirs) in [(1.0, 4.0), (2.0, 4.0), (1.0, 3.0)] {
            row.samples[0].push(vec![Some(ours), Some(2000.0), None]);
            row.samples[1].push(vec![Some(theirs), Some(1000.0), Some(0.5)]);
        }
        row
    }

    #[test]
    fn figures_of_the_same_repetition_are_compared() {
        let spread = row(&BY_PEER).compared(1, 0).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 2.0, 4.0));
        assert_eq!(row(&BY_PEER).compared(1, 1).unwrap().median, 2.0);
        assert!(row(&BY_PEER).compared(1, 2).is_none());
    }

    #[test]
    fn every_line_has_a_cell_per_heading() {
        let line = ["XADD", "1.00", "2,000", "–", "b", "4.00", "1,000", "0.50", "3.00× (2.00–4.00)", "2.00×"];
        assert_eq!(row(&BY_PEER).lines(), [line]);
        assert_eq!(Row::heading(&BY_PEER).len(), line.len());
        assert_eq!(Row::heading(&BY_PEER)[8..], ["times less CPU", "times more op/s"]);
        let mut alone = row(&BY_PEER);
        alone.servers.truncate(1);
        assert_eq!(alone.lines(), [["XADD", "1.00", "2,000", "–", "–", "–", "–", "–", "–", "–"]]);
    }

    #[test]
    fn a_table_by_server_has_a_line_per_server() {
        let lines = [
            ["XADD", "a", "1.00", "2,000", "–", "–", "–"],
            ["XADD", "b", "4.00", "1,000", "0.50", "3.00× (2.00–4.00)", "2.00×"],
        ];
        assert_eq!(row(&BY_SERVER).lines(), lines);
        assert_eq!(Row::heading(&BY_SERVER)[..3], ["workload", "server", "CPU, µs/op"]);
    }

    #[test]
    fn markdown_aligns_figures_to_the_right() {
        let text = markdown(&["workload".into(), "CPU".into()], &[vec!["x".into(), "1".into()]]);
        assert_eq!(text, "| workload | CPU |\n|---|--:|\n| x | 1 |\n");
    }
}
