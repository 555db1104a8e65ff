//! `millstream doctor`: checks a store, its streams and its groups for common problems, and suggests a fix for each.

mod finding;
mod server;
mod streams;

use clap::Args;
use millstream_worker::backend::Capabilities;
use millstream_worker::monitor::{Health, Monitor};
use serde_json::{Map, Value, json};

use self::finding::Finding;
use self::server::ServerFacts;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::output::{DIM, health_style, print, print_json};
use super::safe_text::printable;
use super::table::{Cell, Properties};
use super::value::counted;

const EXAMPLES: &str = "\
Examples:
  millstream doctor
  millstream doctor --json

Exit code 5 means that there are problems to fix.";

/// Find problems in a store, its streams and its groups, and suggest fixes
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    #[command(flatten)]
    common: CommonOptions,
}

impl Doctor {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        backend.ping().await?;
        let server = server::query(&*backend).await;
        let streams = Monitor::new(backend.clone()).streams("*").await?;
        let mut findings = server.findings();
        findings.extend(streams.iter().flat_map(streams::findings));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let diagnosis = Diagnosis {
            location: backend.location(),
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

/// The result: a description of the store, and the findings.
struct Diagnosis {
    location: String,
    capabilities: Capabilities,
    server: ServerFacts,
    streams: u64,
    groups: u64,
    /// The health of the worst finding.
    health: Health,
    /// Sorted, worst first.
    findings: Vec<Finding>,
}

impl Diagnosis {
    /// Returns the names of all capabilities, and whether the store has them natively.
    fn named_capabilities(&self) -> [(&'static str, bool); 5] {
        let native = self.capabilities;
        [
            ("read_claims", native.read_claims),
            ("releases", native.releases),
            ("extends", native.extends),
            ("idempotent_adds", native.idempotent_adds),
            ("exact_lag", native.exact_lag),
        ]
    }

    fn json(&self) -> Value {
        let known = |native: bool| self.capabilities.confirmed.then_some(native);
        let capabilities: Map<String, Value> = self
            .named_capabilities()
            .into_iter()
            .map(|(name, native)| (name.to_owned(), known(native).into()))
            .collect();
        json!({
            "place": self.location,
            "health": self.health.to_string(),
            "server": self.server.json(),
            "capabilities": capabilities,
            "streams": self.streams,
            "groups": self.groups,
            "findings": self.findings.iter().map(Finding::json).collect::<Value>(),
        })
    }

    fn text(&self) -> String {
        let mut properties = Properties::default();
        properties.push("store", &self.location);
        self.server.push_to(&mut properties);
        self.push_capabilities(&mut properties);
        let streams = counted(self.streams, "stream", "streams");
        properties.push("checked", format!("{streams}, {}", counted(self.groups, "group", "groups")));
        properties.push("verdict", Cell::styled(health_style(self.health), self.health.to_string()));
        let mut text = properties.to_string();
        for finding in &self.findings {
            let style = health_style(finding.health);
            let label =
                if finding.health == Health::Ok { "note".to_owned() } else { finding.health.to_string() };
            text.push_str(&format!(
                "\n{style}{label}{style:#}  {}: {}\n{DIM}fix:{DIM:#} {}\n",
                printable(finding.subject()),
                printable(&finding.text),
                printable(&finding.way_out)
            ));
        }
        text
    }

    /// Adds the capabilities: native ones, those that the tools emulate, and missing ones.
    fn push_capabilities(&self, properties: &mut Properties) {
        if !self.capabilities.confirmed {
            properties.push(
                "native",
                "unknown: the server currently rejects writes, and the capability test must write",
            );
            return;
        }
        let names = |wanted: fn(&str, bool) -> bool| {
            let capabilities =
                self.named_capabilities().into_iter().filter(|(name, native)| wanted(name, *native));
            let names: Vec<&str> = capabilities.map(|(name, _)| name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        // Idempotent adds cannot be emulated: only the server can recognize a repeated message.
        properties.push("native", names(|_, native| native));
        properties.push("emulated", names(|name, native| !native && name != "idempotent_adds"));
        properties.push("missing", names(|name, native| !native && name == "idempotent_adds"));
    }
}
