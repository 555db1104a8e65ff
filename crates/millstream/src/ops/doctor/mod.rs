//! `millstream doctor`: looks at everything that tends to go wrong, and says the way out of each thing it finds.

mod finding;
mod server;
mod streams;

use clap::Args;
use millstream_worker::Admin;
use millstream_worker::monitor::{Health, Monitor};
use serde_json::{Value, json};

use self::finding::Finding;
use super::connection::Common;
use super::failure::Failure;
use super::output::{BAD, DIM, GOOD, WARN, print, print_json};
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
        let server = server::ask(&self.common.url()).await;
        let mut findings = server.findings();
        let streams = Monitor::new(backend.clone()).streams("*").await?;
        findings.extend(streams.iter().flat_map(streams::findings));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let health = findings.first().map_or(Health::Ok, |finding| finding.health);
        let looked_at = (streams.len(), streams.iter().map(|stream| stream.groups.len()).sum());
        if self.common.json {
            print_json(&told(&*backend, &server, looked_at, health, &findings))?;
        } else {
            print(&shown(&*backend, &server, looked_at, health, &findings))?;
        }
        if health == Health::Ok { Ok(()) } else { Err(Failure::Check) }
    }
}

/// What the store does natively, by name.
fn abilities(backend: &dyn Admin) -> [(&'static str, bool); 5] {
    let can = backend.capabilities();
    [
        ("read_claims", can.read_claims),
        ("releases", can.releases),
        ("extends", can.extends),
        ("idempotent_adds", can.idempotent_adds),
        ("exact_lag", can.exact_lag),
    ]
}

fn told(
    backend: &dyn Admin,
    server: &server::Server,
    (streams, groups): (usize, usize),
    health: Health,
    findings: &[Finding],
) -> Value {
    let certain = backend.capabilities().certain;
    let told = |can: bool| if certain { Value::from(can) } else { Value::Null };
    let abilities: serde_json::Map<String, Value> =
        abilities(backend).into_iter().map(|(name, can)| (name.to_owned(), told(can))).collect();
    json!({
        "place": backend.place(),
        "health": health.to_string(),
        "server": server.json(),
        "capabilities": abilities,
        "streams": streams,
        "groups": groups,
        "findings": findings.iter().map(Finding::json).collect::<Value>(),
    })
}

/// What the store does natively, what stands in for the rest, and what nothing does.
fn put_abilities(facts: &mut Facts, backend: &dyn Admin) {
    if !backend.capabilities().certain {
        facts.push("native", "not known: it cannot write now, and so cannot be tried out");
        return;
    }
    let (can, cannot): (Vec<_>, Vec<_>) = abilities(backend).into_iter().partition(|(_, can)| *can);
    // Nothing stands in for adding once: the producer has to know.
    let (missing, emulated): (Vec<_>, Vec<_>) =
        cannot.into_iter().partition(|(name, _)| *name == "idempotent_adds");
    let names = |abilities: Vec<(&str, bool)>| {
        let names: Vec<&str> = abilities.into_iter().map(|(name, _)| name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    facts.push("native", names(can));
    facts.push("emulated", names(emulated));
    facts.push("missing", names(missing));
}

fn shown(
    backend: &dyn Admin,
    server: &server::Server,
    (streams, groups): (usize, usize),
    health: Health,
    findings: &[Finding],
) -> String {
    let mut facts = Facts::default();
    facts.push("store", backend.place());
    server.put(&mut facts);
    put_abilities(&mut facts, backend);
    facts.push(
        "looked at",
        format!(
            "{}, {}",
            counted(streams as u64, "stream", "streams"),
            counted(groups as u64, "group", "groups")
        ),
    );
    facts.push("verdict", Cell::painted(style_of(health), health.to_string()));
    let mut text = facts.to_string();
    for finding in findings {
        let style = style_of(finding.health);
        let mark =
            if finding.health == Health::Ok { "remark".to_owned() } else { finding.health.to_string() };
        text.push_str(&format!(
            "\n{style}{mark}{style:#}  {}: {}\n{DIM}way out:{DIM:#} {}\n",
            finding.subject, finding.text, finding.way_out
        ));
    }
    text
}

fn style_of(health: Health) -> anstyle::Style {
    match health {
        Health::Ok => GOOD,
        Health::Degraded => WARN,
        Health::Critical => BAD,
    }
}
