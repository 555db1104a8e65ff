//! Facts about a server: its version, and whether its data survives a crash.
//!
//! An unknown fact is not reported as a problem, because managed servers often hide their settings. If the user lacks
//! the permission to read them, a note says so.

use super::finding::{DoctorFinding, Subject};
use crate::backend::{Admin, ServerInfo};
use crate::monitor::Health;

/// From this share of `maxmemory` on, doctor reports that memory is short.
const MEMORY_PERCENT_HIGH: u64 = 90;

/// What is known about the server. `None` if the store is embedded and has no server.
#[derive(Clone, Debug)]
pub struct ServerFacts(Option<ServerInfo>);

impl ServerFacts {
    /// The settings that the findings are about.
    pub const SETTINGS: [&str; 5] = ["appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory"];

    /// Asks the server of a store.
    pub async fn query(backend: &dyn Admin) -> ServerFacts {
        let info = backend.server(&ServerFacts::SETTINGS).await;
        ServerFacts(info.unwrap_or_else(|_| Some(ServerInfo::default())))
    }

    /// Uses the facts and [`SETTINGS`](ServerFacts::SETTINGS) of a server that were read before. `None` if the store
    /// has no server.
    pub fn new(info: Option<ServerInfo>) -> ServerFacts {
        ServerFacts(info)
    }

    /// Whether the store is embedded and has no server.
    pub fn is_embedded(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the product and its version, such as `redis 7.0.15`. `None` if it is unknown.
    pub fn version(&self) -> Option<String> {
        let names = ["millstream_version", "valkey_version", "redis_version"];
        names.into_iter().find_map(|name| {
            let version = self.fact(name)?;
            Some(format!("{} {version}", name.trim_end_matches("_version")))
        })
    }

    /// Returns a field of INFO.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.facts.get(name).map(String::as_str)
    }

    /// Returns a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.settings.get(name).map(String::as_str)
    }

    /// Returns the memory in use in percent of `maxmemory`, rounded up. `None` if it is unknown or there is no limit.
    fn memory_percent(&self) -> Option<u64> {
        let bytes = |name| self.fact(name)?.parse::<u64>().ok();
        let (used, limit) = (bytes("used_memory")?, bytes("maxmemory").filter(|limit| *limit > 0)?);
        Some(used.saturating_mul(100).div_ceil(limit))
    }

    /// Describes how the server persists its data. `None` if the server does not report its settings.
    pub fn persistence(&self) -> Option<String> {
        let log = match (self.setting("appendonly")?, self.setting("appendfsync")) {
            ("yes", Some(policy)) => format!("log, appendfsync {policy}"),
            ("yes", None) => "log".to_owned(),
            _ => "no log".to_owned(),
        };
        Some(match self.setting("save") {
            Some("") | None => log,
            Some(rules) => format!("{log}; snapshots by {rules}"),
        })
    }

    /// Returns the findings about the server.
    pub fn findings(&self) -> Vec<DoctorFinding> {
        let mut findings = Vec::new();
        let mut report = |health, code, text: &str, way_out: &str| {
            let (text, way_out) = (text.to_owned(), way_out.into());
            findings.push(DoctorFinding {
                health,
                code,
                subject: Subject::Server,
                consumer: None,
                text,
                way_out,
            });
        };
        if let Some(denied) = self.0.as_ref().and_then(|info| info.denied.as_ref()) {
            report(
                Health::Ok,
                "not_permitted",
                &format!("the server could not be checked: {denied}"),
                "grant the user +info and +config|get, or run doctor as another user",
            );
        }
        let settings = (self.setting("appendonly"), self.setting("appendfsync"), self.setting("save"));
        match settings {
            (Some("no"), _, None | Some("")) => report(
                Health::Degraded,
                "not_durable",
                "nothing is written to disk: a restart loses every message",
                "start the server with --appendonly yes",
            ),
            (Some("no"), _, Some(_)) => report(
                Health::Degraded,
                "snapshots_only",
                "the server only takes snapshots: a crash loses every message since the last snapshot",
                "start the server with --appendonly yes, or run: redis-cli CONFIG SET appendonly yes",
            ),
            (Some("yes"), Some("everysec"), _) => report(
                Health::Ok,
                "synced_every_second",
                "the log is synced once a second: a power cut can lose the last two seconds",
                "if no message may be lost, set appendfsync always",
            ),
            (Some("yes"), Some("no"), _) => report(
                Health::Degraded,
                "never_synced",
                "the server never syncs the log: a power cut loses what the operating system has not written to disk",
                "set appendfsync everysec or always",
            ),
            _ => {}
        }
        if let Some(policy) = self.setting("maxmemory-policy").filter(|policy| policy.starts_with("allkeys"))
        {
            report(
                Health::Critical,
                "evicts_streams",
                &format!("maxmemory-policy {policy} can evict whole streams when memory is short"),
                "run: redis-cli CONFIG SET maxmemory-policy noeviction",
            );
        }
        match self.memory_percent() {
            Some(percent) if percent > 100 => report(
                Health::Critical,
                "memory_full",
                "more memory is in use than maxmemory: the server refuses new messages",
                "trim or delete streams, or raise maxmemory",
            ),
            Some(percent) if percent >= MEMORY_PERCENT_HIGH => report(
                Health::Degraded,
                "memory_almost_full",
                &format!("{percent} % of maxmemory is in use: above it, the server refuses new messages"),
                "trim or delete streams, or raise maxmemory",
            ),
            _ => {}
        }
        let failed = ["rdb_last_bgsave_status", "aof_last_write_status"];
        for name in failed.into_iter().filter(|name| self.fact(name) == Some("err")) {
            // Only Millstream has it.
            let error = self.fact("log_error").filter(|error| name.starts_with("aof") && !error.is_empty());
            let (what, way_out) = error.map_or((None, None), split_remedy);
            report(
                Health::Critical,
                "write_failed",
                &match what {
                    Some(what) => format!("the server cannot write to disk: {what}"),
                    None => format!("the last write to disk failed ({name} is err)"),
                },
                way_out.unwrap_or("check the server's log and the free space on its disk"),
            );
        }
        findings
    }
}

/// Splits an error of the log into what happened and, if it says so, what to do.
fn split_remedy(error: &str) -> (Option<&str>, Option<&str>) {
    let remedies = ["move the ", "the command SAVE ", "free disk space "];
    match remedies.into_iter().filter_map(|remedy| error.rfind(remedy)).max() {
        Some(at) => (Some(error[..at].trim_end_matches([':', ';', ' '])), Some(&error[at..])),
        None => (Some(error), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::command::WayOut;

    fn server(settings: &[(&str, &str)]) -> ServerFacts {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ServerFacts(Some(ServerInfo { settings, ..ServerInfo::default() }))
    }

    fn codes(settings: &[(&str, &str)]) -> Vec<&'static str> {
        server(settings).findings().iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn settings_that_lose_messages_are_reported() {
        assert_eq!(codes(&[("appendonly", "no"), ("save", "")]), ["not_durable"]);
        assert_eq!(codes(&[("appendonly", "no"), ("save", "3600 1")]), ["snapshots_only"]);
        assert_eq!(codes(&[("appendonly", "yes"), ("appendfsync", "no")]), ["never_synced"]);
        assert_eq!(codes(&[("appendonly", "yes"), ("appendfsync", "always")]), [""; 0]);
        assert_eq!(codes(&[("maxmemory-policy", "allkeys-lru")]), ["evicts_streams"]);
        assert_eq!(codes(&[]), [""; 0], "unknown settings are no problem");
    }

    #[test]
    fn a_failed_write_is_reported_with_the_error_of_the_log_and_its_remedy() {
        let finding = |error: &str| {
            let facts = [("aof_last_write_status", "err"), ("log_error", error)];
            let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let found = ServerFacts(Some(ServerInfo { facts, ..ServerInfo::default() })).findings().remove(0);
            (found.text, found.way_out)
        };
        let cases = [
            ("/d was moved or removed. Changes are refused: move the folder back", "move the folder back"),
            (
                "/d/1.log was removed. Changes are refused: the command SAVE writes it",
                "the command SAVE writes it",
            ),
            (
                "no space left: x; free disk space to allow writes again",
                "free disk space to allow writes again",
            ),
        ];
        for (error, way_out) in cases {
            let what = error.strip_suffix(way_out).unwrap().trim_end_matches([' ', ':', ';']);
            assert_eq!(
                finding(error),
                (format!("the server cannot write to disk: {what}"), WayOut::from(way_out))
            );
        }
        assert_eq!(finding("sync: EIO").0, "the server cannot write to disk: sync: EIO");
        assert_eq!(
            finding("").0,
            "the last write to disk failed (aof_last_write_status is err)",
            "as Redis says"
        );
    }

    #[test]
    fn memory_near_and_above_the_limit_is_reported() {
        let codes = |used: &str, limit: &str| {
            let facts = [("used_memory", used), ("maxmemory", limit)];
            let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let server = ServerFacts(Some(ServerInfo { facts, ..ServerInfo::default() }));
            server.findings().iter().map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(codes("101", "100"), ["memory_full"]);
        assert_eq!(codes("100", "100"), ["memory_almost_full"]);
        assert_eq!(codes("90", "100"), ["memory_almost_full"]);
        assert_eq!(codes("89", "100"), [""; 0]);
        assert_eq!(codes("89", "0"), [""; 0], "no limit");
    }
}
