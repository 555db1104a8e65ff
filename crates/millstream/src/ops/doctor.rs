//! `millstream doctor`: checks a store, its streams and its groups for common problems, and suggests a fix for each.

use clap::Args;
use millstream_worker::backend::{Capability, ErrorKind};
use millstream_worker::monitor::{Health, Monitor};
use millstream_worker::operate::command::Command;
use millstream_worker::operate::doctor::{
    Diagnosis, DoctorFinding, FindingKind, FindingsQuery, SHOWN_DEFAULT, ServerFacts, diagnose,
};
use millstream_worker::operate::shapes::WholeDiagnosis;

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
  millstream doctor --code stuck --limit 100

A store with many unhealthy groups has many findings of few kinds. The command shows the first of each kind, and counts the \
others.

'native' lists what the store has commands for. Workers and tools replace what is 'emulated' by scripts or further \
calls. What is 'missing' is not possible on this store.

Exit code 5 means that there are problems to fix.";

/// Find problems in a store, its streams and its groups, and suggest fixes
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    /// Only findings with this code, such as stuck
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Maximum number of findings of each kind to show
    #[arg(long, value_name = "N", default_value_t = SHOWN_DEFAULT)]
    limit: usize,
    /// Number of findings of each kind to skip
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    #[command(flatten)]
    common: CommonOptions,
}

impl Doctor {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        backend.ping().await?;
        let monitor = Monitor::new(backend.clone());
        let mut streams = monitor.streams("*").await?;
        monitor.observe_growth(streams.iter_mut().flat_map(|stream| &mut stream.groups)).await?;
        let diagnosis = diagnose(&*backend, &streams).await?;
        let query = FindingsQuery {
            code: self.code.as_deref(),
            offset: self.offset,
            count: self.limit,
            ..FindingsQuery::default()
        };
        let kinds = diagnosis.kinds(&query);
        if self.common.json {
            print_json(&WholeDiagnosis::new(&diagnosis, &kinds, &line))?;
        } else {
            print(text(&diagnosis, &kinds, self.offset))?;
        }
        if diagnosis.health == Health::Ok { Ok(()) } else { Err(Failure::Check) }
    }
}

fn text(diagnosis: &Diagnosis, kinds: &[FindingKind<'_>], offset: usize) -> String {
    let mut properties = Properties::default();
    properties.push("store", &diagnosis.location);
    push_server(&mut properties, &diagnosis.server);
    push_capabilities(&mut properties, diagnosis);
    let streams = counted(diagnosis.streams, "stream", "streams");
    properties.push("checked", format!("{streams}, {}", counted(diagnosis.groups, "group", "groups")));
    let verdict = Cell::styled(health_style(diagnosis.health), diagnosis.health.to_string());
    properties.push("verdict", verdict);
    let mut text = properties.to_string();
    for kind in kinds {
        text.extend(kind.shown.iter().map(|finding| finding_text(finding)));
        text.push_str(&left_out_text(kind, offset));
    }
    text
}

fn finding_text(finding: &DoctorFinding) -> String {
    format!(
        "\n{}  {}: {}\n{DIM}fix:{DIM:#} {}\n",
        label(finding.health),
        printable(finding.subject.to_string()),
        printable(&finding.text),
        printable(finding.way_out.to_text(line))
    )
}

/// Says how many findings of a kind are not shown, and how to list those that follow.
fn left_out_text(kind: &FindingKind<'_>, offset: usize) -> String {
    let next = offset + kind.shown.len();
    let left = kind.count.saturating_sub(next);
    if left == 0 {
        return String::new();
    }
    let list = Command::new("doctor", &[]).option("--code", kind.code).option("--offset", &next.to_string());
    let more = counted(left as u64, "more finding", "more findings");
    format!("\n{}  {more} of the kind {}; list with: {}\n", label(kind.health), kind.code, line(&list))
}

fn label(health: Health) -> String {
    let style = health_style(health);
    if health == Health::Ok { format!("{style}note{style:#}") } else { format!("{style}{health}{style:#}") }
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
    // Many are unknown for the same reason, such as a full disk, which has a finding of its own.
    let mut unknown: Vec<(String, Vec<&str>)> = Vec::new();
    for (_, name, native) in &diagnosis.capabilities {
        let Err(error) = native else { continue };
        let why = match error.kind() {
            ErrorKind::NotWritable => "the store refuses writes now".to_owned(),
            _ => error.to_string(),
        };
        match unknown.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => unknown.push((why, vec![name])),
        }
    }
    for (why, names) in unknown {
        properties.push("unknown", printable(format!("{}: {why}", names.join(", "))));
    }
}
