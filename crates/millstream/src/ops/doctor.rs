//! `millstream doctor`: checks a store, its streams and its groups for common problems, and suggests a fix for each.

use clap::Args;
use millstream_worker::backend::Capability;
use millstream_worker::monitor::{Health, Monitor};
use millstream_worker::operate::doctor::{Diagnosis, ServerFacts, diagnose};
use millstream_worker::operate::shapes;

use super::connection::CommonOptions;
use super::failure::Failure;
use super::output::{DIM, health_style, print, print_json};
use super::safe_text::printable;
use super::shell::line;
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
        let streams = Monitor::new(backend.clone()).streams("*").await?;
        let diagnosis = diagnose(&*backend, &streams).await?;
        if self.common.json {
            print_json(&shapes::diagnosis(&diagnosis, &line))?;
        } else {
            print(text(&diagnosis))?;
        }
        if diagnosis.health == Health::Ok { Ok(()) } else { Err(Failure::Check) }
    }
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut properties = Properties::default();
    properties.push("store", &diagnosis.location);
    push_server(&mut properties, &diagnosis.server);
    push_capabilities(&mut properties, diagnosis);
    let streams = counted(diagnosis.streams, "stream", "streams");
    properties.push("checked", format!("{streams}, {}", counted(diagnosis.groups, "group", "groups")));
    let verdict = Cell::styled(health_style(diagnosis.health), diagnosis.health.to_string());
    properties.push("verdict", verdict);
    let mut text = properties.to_string();
    for finding in &diagnosis.findings {
        let style = health_style(finding.health);
        let label = if finding.health == Health::Ok { "note".to_owned() } else { finding.health.to_string() };
        text.push_str(&format!(
            "\n{style}{label}{style:#}  {}: {}\n{DIM}fix:{DIM:#} {}\n",
            printable(finding.subject.to_string()),
            printable(&finding.text),
            printable(finding.way_out.to_text(line))
        ));
    }
    text
}

/// Adds the version of the server and how it persists its data.
fn push_server(properties: &mut Properties, server: &ServerFacts) {
    let unknown = || "unknown".to_owned();
    if server.is_embedded() {
        return properties
            .push("server", format!("none, embedded in millstream {}", env!("CARGO_PKG_VERSION")));
    }
    properties.push("server", server.version().unwrap_or_else(unknown));
    properties.push("persistence", server.persistence().unwrap_or_else(unknown));
}

/// Adds the capabilities: native ones, those that the tools emulate, and missing ones.
fn push_capabilities(properties: &mut Properties, diagnosis: &Diagnosis) {
    let mut push = |label, is_listed: &dyn Fn(Capability, Option<bool>) -> bool| {
        let listed = diagnosis
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
    for (_, name, native) in &diagnosis.capabilities {
        if let Err(error) = native {
            properties.push("unknown", printable(format!("{name}: {error}")));
        }
    }
}
