//! `millstream doctor`: looks at everything that tends to go wrong, and says the way out of each thing it finds.

mod finding;
mod server;
mod streams;

use clap::Args;
use millstream_worker::backend::Capabilities;
use millstream_worker::monitor::{Health, Monitor};
use serde_json::{Map, Value, json};

use self::finding::Finding;
use self::server::Server;
use super::connection::Common;
use super::failure::Failure;
use super::output::{DIM, print, print_json, style_of};
use super::table::{Cell, Facts};
use super::value::counted;

const EXAMPLES: &str = "\
Examples:
  millstream doctor
  millstream doctor --json

Exit code 5 if something should be done.";

/// Find what is wrong with a store, its streams and its groups, and the way out
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    #[command(flatten)]
    common: Common,
}

impl Doctor {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        backend.ping().await?;
        let server = server::ask(&*backend).await;
        let streams = Monitor::new(backend.clone()).streams("*").await?;
        let mut findings = server.findings();
        findings.extend(streams.iter().flat_map(streams::findings));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let diagnosis = Diagnosis {
            place: backend.place(),
            capabilities: backend.capabilities(),
            server,
            streams: streams.len() as u64,
            groups: streams.iter().map(|stream| stream.groups.len() as u64).sum(),
            health: findings.first().map_or(Health::Ok, |finding| finding.health),
            findings,
        };
        if self.common.json {
            print_json(&diagnosis.json())?;
        } else {
            print(diagnosis.text())?;
        }
        if diagnosis.health == Health::Ok { Ok(()) } else { Err(Failure::Check) }
    }
}

/// What was looked at, and what was found.
struct Diagnosis {
    place: String,
    capabilities: Capabilities,
    server: Server,
    streams: u64,
    groups: u64,
    /// That of the worst finding.
    health: Health,
    /// The worst first.
    findings: Vec<Finding>,
}

impl Diagnosis {
    /// What the store does natively, by name.
    fn abilities(&self) -> [(&'static str, bool); 5] {
        let can = self.capabilities;
        [
            ("read_claims", can.read_claims),
            ("releases", can.releases),
            ("extends", can.extends),
            ("idempotent_adds", can.idempotent_adds),
            ("exact_lag", can.exact_lag),
        ]
    }

    fn json(&self) -> Value {
        let known = |can: bool| self.capabilities.certain.then_some(can);
        let abilities: Map<String, Value> =
            self.abilities().into_iter().map(|(name, can)| (name.to_owned(), known(can).into())).collect();
        json!({
            "place": self.place,
            "health": self.health.to_string(),
            "server": self.server.json(),
            "capabilities": abilities,
            "streams": self.streams,
            "groups": self.groups,
            "findings": self.findings.iter().map(Finding::json).collect::<Value>(),
        })
    }

    fn text(&self) -> String {
        let mut facts = Facts::default();
        facts.push("store", &self.place);
        self.server.put(&mut facts);
        self.put_abilities(&mut facts);
        let streams = counted(self.streams, "stream", "streams");
        facts.push("looked at", format!("{streams}, {}", counted(self.groups, "group", "groups")));
        facts.push("verdict", Cell::painted(style_of(self.health), self.health.to_string()));
        let mut text = facts.to_string();
        for finding in &self.findings {
            let style = style_of(finding.health);
            let mark =
                if finding.health == Health::Ok { "remark".to_owned() } else { finding.health.to_string() };
            text.push_str(&format!(
                "\n{style}{mark}{style:#}  {}: {}\n{DIM}way out:{DIM:#} {}\n",
                finding.subject(),
                finding.text,
                finding.way_out
            ));
        }
        text
    }

    /// What the store does natively, what stands in for the rest, and what nothing does.
    fn put_abilities(&self, facts: &mut Facts) {
        if !self.capabilities.certain {
            facts.push("native", "not known: it cannot write now, and so cannot be tried out");
            return;
        }
        let names = |wanted: fn(&str, bool) -> bool| {
            let abilities = self.abilities().into_iter().filter(|(name, can)| wanted(name, *can));
            let names: Vec<&str> = abilities.map(|(name, _)| name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        // Nothing stands in for adding once: the producer has to know.
        facts.push("native", names(|_, can| can));
        facts.push("emulated", names(|name, can| !can && name != "idempotent_adds"));
        facts.push("missing", names(|name, can| !can && name == "idempotent_adds"));
    }
}
