//! README's short table: six rows against the best of Redis 8.2 and Valkey 9.1.
//!
//! docs/benchmarks.md has every row against every peer.

use crate::stats::significant;
use crate::table::{Row, markdown};

/// The peers of the table, by their names in `--peer`.
pub(crate) const PEERS: [&str; 2] = ["redis-8.2", "valkey-9.1"];

/// A row of the table, and the measured row that it shows.
struct ReadmeRow {
    topic: &'static str,
    name: &'static str,
    title: &'static str,
}

const ROWS: [ReadmeRow; 6] = [
    ReadmeRow { topic: "speed", name: "xadd-short-p16", title: "XADD, pipeline 16" },
    ReadmeRow { topic: "speed", name: "xreadgroup-10-p16", title: "XREADGROUP COUNT 10, pipeline 16" },
    ReadmeRow { topic: "speed", name: "xack-order-p64", title: "XACK in order, pipeline 64" },
    ReadmeRow {
        topic: "speed",
        name: "cycle-one",
        title: "10 XADD, XREADGROUP COUNT 10 and XACK of 10 in one pipeline",
    },
    ReadmeRow { topic: "speed", name: "xadd-blocked-1000", title: "XADD with 1,000 blocked readers" },
    ReadmeRow { topic: "memory", name: "pending-fresh", title: "memory per pending entry, just delivered" },
];

/// The circumstances of a run that README states.
pub(crate) struct Circumstances<'a> {
    /// Day and commit.
    pub(crate) measured: &'a str,
    pub(crate) machine: &'a str,
    /// Name and printed version of every server, the subject first.
    pub(crate) versions: &'a [(String, String)],
}

impl Circumstances<'_> {
    /// Returns product and version of a server: `Redis 8.2.3`. Falls back to the server's name.
    fn product(&self, server: &str) -> String {
        let version = self.versions.iter().find(|(name, _)| name == server).map(|(_, version)| version);
        version.map_or(server.to_owned(), |version| product(version))
    }

    /// The line below the table.
    fn line(&self) -> String {
        let subject = self.versions.first().map(|(name, _)| name.as_str());
        let products: Vec<_> = subject.into_iter().chain(PEERS).map(|name| self.product(name)).collect();
        format!("Measured {}: {}; {}.", self.measured, products.join(", "), self.machine)
    }
}

/// Turns `Redis server v=8.2.3` into `Redis 8.2.3`, and `millstream 0.1.0` into `Millstream 0.1.0`.
fn product(version: &str) -> String {
    let text = version.replace(" server v=", " ");
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the table and its circumstances in Markdown, or the names of the rows that were not measured.
pub(crate) fn table(rows: &[Row], circumstances: &Circumstances) -> Result<String, Vec<String>> {
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for wanted in ROWS {
        let row = rows.iter().find(|row| row.table.topic == wanted.topic && row.name == wanted.name);
        match row.and_then(|row| line(row, wanted.title, circumstances)) {
            Some(line) => lines.push(line),
            None => missing.push(format!("{}/{}", wanted.topic, wanted.name)),
        }
    }
    if !missing.is_empty() {
        return Err(missing);
    }
    let peers = PEERS.map(|peer| circumstances.product(peer)).join(" and ");
    let heading =
        ["workload".to_owned(), "Millstream".to_owned(), format!("best of {peers}"), "ratio".to_owned()];
    let table = markdown(&heading, &lines);
    let line = circumstances.line();
    Ok(format!("{table}\n{line} All measurements: [docs/benchmarks.md](docs/benchmarks.md).\n"))
}

/// `None` if the row was not measured on any of `PEERS`.
fn line(row: &Row, title: &str, circumstances: &Circumstances) -> Option<Vec<String>> {
    let best = row.best_peer_named(0, &PEERS)?;
    let unit = row.table.columns[0].unit().trim_end_matches("/op");
    let figure = |server| Some(format!("{} {unit}", significant(row.median(server, 0)?)));
    let theirs = format!("{} ({})", figure(best)?, circumstances.product(&row.servers[best]));
    Some(vec![title.to_owned(), figure(0)?, theirs, row.compared_text(best, 0)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::{TOPICS, memory, speed};

    const CIRCUMSTANCES: [(&str, &str); 4] = [
        ("millstream", "millstream 0.1.0"),
        ("redis", "Redis server v=7.0.15"),
        ("redis-8.2", "Redis server v=8.2.3"),
        ("valkey-9.1", "Valkey server v=9.1.2"),
    ];

    /// A row with one repetition: the cost on each of these servers.
    fn row(wanted: &ReadmeRow, costs: &[(&str, f64)]) -> Row {
        let table = if wanted.topic == "memory" { &memory::TABLE } else { &speed::TABLE };
        let servers = costs.iter().map(|(server, _)| (*server).to_owned()).collect();
        let mut row = Row::new(table, wanted.name, "another title", servers);
        let sample = |cost: f64| {
            let mut sample = vec![None; table.columns.len()];
            sample[0] = Some(cost);
            vec![sample]
        };
        row.samples = costs.iter().map(|(_, cost)| sample(*cost)).collect();
        row
    }

    fn all_rows() -> Vec<Row> {
        let costs = [("millstream", 1.0), ("redis", 1.5), ("redis-8.2", 4.0), ("valkey-9.1", 3.0)];
        ROWS.iter().map(|wanted| row(wanted, &costs)).collect()
    }

    fn table_of(rows: &[Row]) -> Result<String, Vec<String>> {
        let versions = CIRCUMSTANCES.map(|(name, version)| (name.to_owned(), version.to_owned()));
        let measured = "2026-11-16 at 512a7ea";
        table(rows, &Circumstances { measured, machine: "AMD EPYC, 2 cores", versions: &versions })
    }

    #[test]
    fn every_readme_row_is_measured_by_its_topic() {
        for wanted in ROWS {
            let topic = TOPICS.iter().find(|topic| topic.name == wanted.topic).unwrap();
            assert!(topic.rows().iter().any(|(name, _)| name == wanted.name), "{}", wanted.name);
        }
    }

    #[test]
    fn readme_shows_the_better_of_its_two_peers() {
        let text = table_of(&all_rows()).unwrap();
        assert!(
            text.starts_with("| workload | Millstream | best of Redis 8.2.3 and Valkey 9.1.2 | ratio |\n"),
            "{text}"
        );
        assert!(
            text.contains("| XADD, pipeline 16 | 1.00 µs | 3.00 µs (Valkey 9.1.2) | 3.00× |\n"),
            "{text}"
        );
        assert!(text.contains("just delivered | 1.00 B | 3.00 B (Valkey 9.1.2) | 3.00× |\n"), "{text}");
        assert!(
            text.contains(
                "\nMeasured 2026-11-16 at 512a7ea: Millstream 0.1.0, Redis 8.2.3, Valkey 9.1.2; AMD EPYC, 2 cores. All"
            ),
            "{text}"
        );
        assert!(!text.contains("7.0.15"), "{text}");
    }

    #[test]
    fn readme_uses_one_peer_where_the_other_cannot_be_measured() {
        let mut rows = all_rows();
        rows[5] = row(&ROWS[5], &[("millstream", 2.0), ("redis", 3.0), ("redis-8.2", 150.0)]);
        let text = table_of(&rows).unwrap();
        assert!(text.contains("| 2.00 B | 150 B (Redis 8.2.3) | 75.0× |"), "{text}");
    }

    #[test]
    fn readme_names_the_rows_that_were_not_measured() {
        let mut rows = all_rows();
        rows[0] = row(&ROWS[0], &[("millstream", 1.0), ("redis", 1.5)]);
        rows.pop();
        assert_eq!(table_of(&rows).unwrap_err(), ["speed/xadd-short-p16", "memory/pending-fresh"]);
    }
}
