//! `millstream doctor`: checks a store, its streams and its groups for common problems, and suggests a fix for each.

mod finding;
mod policies;
mod server;
mod streams;

use clap::Args;
use millstream_worker::backend::Capability;
use millstream_worker::monitor::{Health, Monitor};
use millstream_worker::{Admin, Error};
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

'native' lists what the store has commands for. Workers and tools replace what is 'emulated' by scripts or further \
calls. What is 'missing' is not possible on this store.

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
        for stream in &streams {
            findings.extend(policies::findings(&*backend, stream).await?);
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let diagnosis = Diagnosis {
            location: backend.location(),
            capabilities: capabilities(&*backend, streams.first().map(|stream| &*stream.name)).await,
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
    /// Each capability, its name, and whether the store has it natively, or why that is unknown.
    capabilities: Vec<(Capability, &'static str, Result<bool, Error>)>,
    server: ServerFacts,
    streams: u64,
    groups: u64,
    /// The health of the worst finding.
    health: Health,
    /// Sorted, worst first.
    findings: Vec<Finding>,
}

impl Diagnosis {
    fn json(&self) -> Value {
        let capabilities = self.capabilities.iter();
        let capabilities: Map<String, Value> = capabilities
            .map(|(_, name, native)| ((*name).to_owned(), native.as_ref().ok().copied().into()))
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
        let mut push = |label, is_listed: &dyn Fn(Capability, Option<bool>) -> bool| {
            let listed = self
                .capabilities
                .iter()
                .filter(|(capability, _, native)| is_listed(*capability, native.as_ref().ok().copied()));
            let names: Vec<&str> = listed.map(|(_, name, _)| *name).collect();
            properties.push(label, if names.is_empty() { "none".to_owned() } else { names.join(", ") });
        };
        // Only the server can recognize a repeated message, or add a message later.
        let can_be_emulated =
            |capability| !matches!(capability, Capability::IdempotentAdds | Capability::DelayedEntries);
        push("native", &|_, native| native == Some(true));
        push("emulated", &|capability, native| native == Some(false) && can_be_emulated(capability));
        push("missing", &|capability, native| native == Some(false) && !can_be_emulated(capability));
        for (_, name, native) in &self.capabilities {
            if let Err(error) = native {
                properties.push("unknown", printable(format!("{name}: {error}")));
            }
        }
    }
}

/// Asks the store which capabilities it has natively. The question names a stream, but changes nothing.
async fn capabilities(
    backend: &dyn Admin,
    stream: Option<&str>,
) -> Vec<(Capability, &'static str, Result<bool, Error>)> {
    let named = [
        (Capability::ReadClaims, "read_claims"),
        (Capability::Releases, "releases"),
        (Capability::DelayedRelease, "delayed_releases"),
        (Capability::Extends, "extends"),
        (Capability::IdempotentAdds, "idempotent_adds"),
        (Capability::DelayedEntries, "delayed_entries"),
        (Capability::ExactLag, "exact_lag"),
        (Capability::Policies, "policies"),
    ];
    let mut capabilities = Vec::new();
    for (capability, name) in named {
        let native = backend.supports(capability, stream.unwrap_or("millstream:probe")).await;
        capabilities.push((capability, name, native));
    }
    capabilities
}
