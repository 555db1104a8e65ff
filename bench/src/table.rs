//! What a table is made of: columns, and rows that hold every repetition on every server.

use crate::stats::{Spread, significant, thousands};
use crate::targets;

/// One figure of a sample.
pub(crate) struct Column {
    /// Its name in JSON, the unit last.
    pub(crate) key: &'static str,
    /// Its name for people, the unit last.
    pub(crate) heading: &'static str,
    pub(crate) compare: Compare,
}

impl Column {
    /// Its name for people without the unit.
    pub(crate) fn quantity(&self) -> &'static str {
        self.heading.rsplit_once(", ").map_or(self.heading, |(quantity, _)| quantity)
    }
}

/// How the figures of two servers are set against each other.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Compare {
    /// They are not.
    No,
    /// Less is better: how many times the peer's figure is ours.
    Less,
    /// More is better: how many times our figure is the peer's.
    More,
    /// How much more ours is than the peer's, in parts of a hundred.
    Cost,
}

/// A kind of table.
pub(crate) struct Table {
    /// As in `--only`.
    pub(crate) topic: &'static str,
    pub(crate) heading: &'static str,
    /// How to read it, for docs/benchmarks.md.
    pub(crate) intro: &'static str,
    pub(crate) columns: &'static [Column],
}

/// One figure for each column; `None` where it was not taken.
pub(crate) type Sample = Vec<Option<f64>>;

/// One workload on the servers that could run it, the subject first.
pub(crate) struct Row {
    pub(crate) table: &'static Table,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) servers: Vec<String>,
    /// Per server, one for each repetition.
    pub(crate) samples: Vec<Vec<Sample>>,
    /// Whether it belongs into a short table.
    pub(crate) is_headline: bool,
}

impl Row {
    pub(crate) fn new(
        table: &'static Table,
        name: impl Into<String>,
        title: impl Into<String>,
        servers: Vec<String>,
    ) -> Row {
        let samples = vec![Vec::new(); servers.len()];
        Row { table, name: name.into(), title: title.into(), servers, samples, is_headline: false }
    }

    /// The middle of what was measured.
    pub(crate) fn median(&self, server: usize, column: usize) -> Option<f64> {
        Spread::of(self.samples[server].iter().filter_map(|sample| sample[column])).map(|s| s.median)
    }

    /// The subject against a peer, repetition by repetition: neighbours in time.
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

    /// The peer that comes closest to the subject in a column, or is furthest ahead of it.
    pub(crate) fn best_peer(&self, column: usize) -> Option<usize> {
        let compared = |peer: usize| Some((peer, self.compared(peer, column)?.median));
        (1..self.servers.len()).filter_map(compared).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(peer, _)| peer)
    }

    /// Its name, for a row of several peers; nothing where there is only one.
    pub(crate) fn name_among_peers(&self, peer: usize) -> Option<&str> {
        (self.servers.len() > 2).then(|| self.servers[peer].as_str())
    }

    /// The heading of each cell of `lines`.
    pub(crate) fn heading(table: &Table) -> Vec<String> {
        let ours = table.columns.iter().map(|c| c.heading.to_owned());
        let theirs = table.columns.iter().map(|c| c.heading.to_owned());
        let compared = table.columns.iter().filter_map(compared_heading);
        let asked = targets::has_any(table).then(|| "asked".to_owned());
        std::iter::once("workload".to_owned())
            .chain(ours)
            .chain(std::iter::once("peer".to_owned()))
            .chain(theirs)
            .chain(compared)
            .chain(asked)
            .collect()
    }

    /// One line for each peer: title, our medians, the peer, its medians, the comparisons, what was asked. One line without
    /// a peer where none could do it.
    pub(crate) fn lines(&self) -> Vec<Vec<String>> {
        if self.servers.len() == 1 {
            return vec![self.line_alone()];
        }
        let columns = 0..self.table.columns.len();
        let medians = |server: usize| columns.clone().map(move |c| figure(self.median(server, c)));
        let peers = 1..self.servers.len();
        peers
            .map(|peer| {
                let compared = columns.clone().filter_map(|c| self.compared_text(peer, c));
                let judged = || targets::text(&targets::judge(self, peer));
                std::iter::once(self.title.clone())
                    .chain(medians(0))
                    .chain(std::iter::once(self.servers[peer].clone()))
                    .chain(medians(peer))
                    .chain(compared)
                    .chain(targets::has_any(self.table).then(judged))
                    .collect()
            })
            .collect()
    }

    fn line_alone(&self) -> Vec<String> {
        let columns = 0..self.table.columns.len();
        let mut line = vec![self.title.clone()];
        line.extend(columns.map(|column| figure(self.median(0, column))));
        line.resize(Row::heading(self.table).len(), "–".to_owned());
        line
    }

    /// `None`: the column is not compared.
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

/// A row of Markdown.
pub(crate) fn markdown_line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Heading and rows in Markdown: text to the left, numbers to the right.
pub(crate) fn markdown(heading: &[String], lines: &[Vec<String>]) -> String {
    let sides: String = heading
        .iter()
        .map(|cell| {
            if matches!(cell.as_str(), "workload" | "peer" | "size" | "server" | "asked") {
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
    fn neighbours_in_time_are_compared() {
        let spread = row().compared(1, 0).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 2.0, 4.0));
        assert_eq!(row().compared(1, 1).unwrap().median, 2.0);
        assert!(row().compared(1, 2).is_none());
    }

    #[test]
    fn the_best_peer_is_the_one_that_comes_closest() {
        let mut several = row();
        assert_eq!((several.best_peer(0), several.name_among_peers(1)), (Some(1), None));
        several.servers.push("c".into());
        several.samples.push(vec![vec![Some(1.5), Some(3000.0), None]; 3]);
        assert_eq!((several.best_peer(0), several.name_among_peers(2)), (Some(2), Some("c")));
        assert_eq!(several.best_peer(1), Some(2), "more is better there");
        assert_eq!(several.best_peer(2), None, "nobody compares it");
    }

    #[test]
    fn a_line_has_a_cell_for_each_heading() {
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
    fn what_no_peer_could_do_has_a_line_too() {
        let mut alone = row();
        alone.servers.truncate(1);
        alone.samples.truncate(1);
        assert_eq!(alone.lines(), [["XADD", "1.00", "2,000", "–", "–", "–", "–", "–", "–", "–"]]);
    }

    #[test]
    fn markdown_sets_numbers_to_the_right() {
        let text = markdown(&["workload".into(), "CPU".into()], &[vec!["x".into(), "1".into()]]);
        assert_eq!(text, "| workload | CPU |\n|---|--:|\n| x | 1 |\n");
    }
}
