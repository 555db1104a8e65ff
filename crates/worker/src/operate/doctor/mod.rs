//! Finds problems in a store, its streams and its groups, and suggests a fix for each.

mod finding;
mod page;
mod partitions;
mod policies;
mod server;
mod streams;

use std::borrow::Borrow;
use std::collections::BTreeSet;

use crate::backend::{Admin, Capability, Error};
use crate::monitor::{Health, StreamSnapshot};

pub use finding::{DoctorFinding, Subject};
pub(crate) use page::TEXT_BYTES_MAX;
pub use page::{FindingKind, FindingsQuery, SHOWN_DEFAULT, SHOWN_MAX};
pub use server::ServerFacts;

/// A description of a store, and the findings about it.
#[derive(Debug)]
pub struct Diagnosis {
    /// The location of the store, for display.
    pub location: String,
    /// Each capability, its name, and whether the store has it natively, or why that is unknown.
    pub capabilities: Vec<(Capability, &'static str, Result<bool, Error>)>,
    /// What is known about the server.
    pub server: ServerFacts,
    /// Number of streams examined.
    pub streams: u64,
    /// Number of groups examined.
    pub groups: u64,
    /// The health of the worst finding.
    pub health: Health,
    /// The findings, worst first.
    pub findings: Vec<DoctorFinding>,
}

/// Examines a store. `streams` are snapshots of its streams.
pub async fn diagnose(
    backend: &dyn Admin,
    streams: &[impl Borrow<StreamSnapshot>],
) -> Result<Diagnosis, Error> {
    let server = ServerFacts::query(backend).await;
    let first = streams.first().map(|stream| &*stream.borrow().name);
    let findings = findings(backend, &server, streams).await?;
    Ok(Diagnosis {
        location: backend.location(),
        capabilities: capabilities(backend, first).await,
        server,
        streams: streams.len() as u64,
        groups: streams.iter().map(|stream| stream.borrow().groups.len() as u64).sum(),
        health: findings.first().map_or(Health::Ok, |finding| finding.health),
        findings,
    })
}

/// Returns the findings about the server, the streams, their groups and their policies, worst first.
pub async fn findings(
    backend: &dyn Admin,
    server: &ServerFacts,
    streams: &[impl Borrow<StreamSnapshot>],
) -> Result<Vec<DoctorFinding>, Error> {
    let mut findings = server.findings();
    let streams = || streams.iter().map(Borrow::borrow);
    // A dead-letter stream that a policy names needs no group either.
    let dead_letters: BTreeSet<&str> =
        streams().flat_map(|stream| &stream.dead_letter_streams).map(|(name, _)| &**name).collect();
    let needs_group = |finding: &DoctorFinding| match &finding.subject {
        Subject::Stream(name) => finding.code != "no_groups" || !dead_letters.contains(&**name),
        _ => true,
    };
    findings.extend(streams().flat_map(streams::findings).filter(needs_group));
    for stream in streams() {
        findings.extend(partitions::findings(backend, stream));
        // The policies of a logical stream are those of its partitions.
        for part in streams_behind(stream) {
            findings.extend(policies::findings(backend, server, part).await?);
            policies::explain_missed(backend, &part.name, &mut findings).await?;
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
    Ok(findings)
}

/// Returns the findings about one group: those of its snapshot, and those about its policy.
///
/// Does not examine the stream itself or the server.
pub async fn group_findings(
    backend: &dyn Admin,
    stream: &StreamSnapshot,
    group: &str,
) -> Result<Vec<DoctorFinding>, Error> {
    let is_meant = |finding: &DoctorFinding| finding.subject.group() == Some(group);
    let mut findings: Vec<DoctorFinding> = streams::findings(stream).into_iter().filter(is_meant).collect();
    if let Some(found) = stream.group(group).filter(|_| stream.partitioned.is_some()) {
        findings.extend(partitions::of_group(stream, found));
    }
    for part in streams_behind(stream) {
        policies::explain_missed(backend, &part.name, &mut findings).await?;
        if let Some(found) = part.group(group) {
            findings.extend(policies::of_group(backend, &ServerFacts::new(None), found).await?);
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
    Ok(findings)
}

/// Returns the partitions of a logical stream, or the stream itself.
fn streams_behind(stream: &StreamSnapshot) -> impl Iterator<Item = &StreamSnapshot> {
    let parts = stream.parts().iter().map(|part| &**part);
    parts.chain(stream.partitioned.is_none().then_some(stream))
}

/// Asks the store which capabilities it has natively. The question names a stream, but changes nothing.
pub async fn capabilities(
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
