//! What a server tells about itself: its version, and whether what it holds survives a crash. One that does not tell is no
//! problem: managed ones often hide their settings.

use millstream_worker::Admin;
use millstream_worker::backend::ServerInfo;
use millstream_worker::monitor::Health;
use serde_json::{Value, json};

use super::finding::Finding;
use crate::ops::table::Facts;

/// What is known of the server; `None` if the store has none.
#[derive(Debug)]
pub(super) struct Server(Option<ServerInfo>);

/// Asks the server behind a store.
pub(super) async fn ask(backend: &dyn Admin) -> Server {
    let settings = ["appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory"];
    Server(backend.server(&settings).await.unwrap_or_else(|_| Some(ServerInfo::default())))
}

impl Server {
    fn version(&self) -> Option<String> {
        let name = ["millstream_version", "valkey_version", "redis_version"];
        name.into_iter().find_map(|name| {
            let version = self.fact(name)?;
            Some(format!("{} {version}", name.trim_end_matches("_version")))
        })
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.facts.get(name).map(String::as_str)
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.settings.get(name).map(String::as_str)
    }

    /// How what it holds survives a crash, in one sentence; `None` if it does not tell.
    fn persistence(&self) -> Option<String> {
        let log = match (self.setting("appendonly")?, self.setting("appendfsync")) {
            ("yes", Some(policy)) => format!("log, synced {policy}"),
            ("yes", None) => "log".to_owned(),
            _ => "no log".to_owned(),
        };
        Some(match self.setting("save") {
            Some("") | None => log,
            Some(rules) => format!("{log}; snapshots by {rules}"),
        })
    }

    pub(super) fn put(&self, facts: &mut Facts) {
        let unknown = || "unknown".to_owned();
        if self.0.is_none() {
            return facts
                .push("server", format!("none: the store of millstream {}", env!("CARGO_PKG_VERSION")));
        }
        facts.push("server", self.version().unwrap_or_else(unknown));
        facts.push("persistence", self.persistence().unwrap_or_else(unknown));
    }

    pub(super) fn json(&self) -> Value {
        if self.0.is_none() {
            return Value::Null;
        }
        json!({
            "version": self.version(),
            "appendonly": self.setting("appendonly"),
            "appendfsync": self.setting("appendfsync"),
            "save": self.setting("save"),
            "maxmemory": self.setting("maxmemory"),
            "maxmemory_policy": self.setting("maxmemory-policy"),
        })
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |health, code, text: &str, way_out: &str| {
            let (text, way_out) = (text.to_owned(), way_out.to_owned());
            findings.push(Finding { health, code, stream: None, group: None, text, way_out });
        };
        let settings = (self.setting("appendonly"), self.setting("appendfsync"), self.setting("save"));
        match settings {
            (Some("no"), _, None | Some("")) => find(
                Health::Degraded,
                "not_durable",
                "nothing is written to disk: a restart loses every message",
                "start it with --appendonly yes",
            ),
            (Some("no"), _, Some(_)) => find(
                Health::Degraded,
                "snapshots_only",
                "only snapshots are written: a crash loses every message since the last one",
                "start it with --appendonly yes, or: redis-cli CONFIG SET appendonly yes",
            ),
            (Some("yes"), Some("everysec"), _) => find(
                Health::Ok,
                "synced_every_second",
                "the log is synced every second: a power cut loses up to the last one",
                "for messages that must not be lost, set appendfsync always",
            ),
            (Some("yes"), Some("no"), _) => find(
                Health::Degraded,
                "never_synced",
                "the log is never synced: a power cut loses what the system had not yet written",
                "set appendfsync everysec or always",
            ),
            _ => {}
        }
        if let Some(policy) = self.setting("maxmemory-policy").filter(|policy| policy.starts_with("allkeys"))
        {
            find(
                Health::Critical,
                "evicts_streams",
                &format!("maxmemory-policy {policy} may remove whole streams when memory is short"),
                "redis-cli CONFIG SET maxmemory-policy noeviction",
            );
        }
        let failed = ["rdb_last_bgsave_status", "aof_last_write_status"];
        for name in failed.into_iter().filter(|name| self.fact(name) == Some("err")) {
            find(
                Health::Critical,
                "write_failed",
                &format!("the last write to disk failed ({name} is err)"),
                "see the server's log, and whether its disk is full",
            );
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(settings: &[(&str, &str)]) -> Server {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Server(Some(ServerInfo { settings, ..ServerInfo::default() }))
    }

    fn codes(settings: &[(&str, &str)]) -> Vec<&'static str> {
        server(settings).findings().iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn settings_that_lose_messages_are_found() {
        assert_eq!(codes(&[("appendonly", "no"), ("save", "")]), ["not_durable"]);
        assert_eq!(codes(&[("appendonly", "no"), ("save", "3600 1")]), ["snapshots_only"]);
        assert_eq!(codes(&[("appendonly", "yes"), ("appendfsync", "no")]), ["never_synced"]);
        assert_eq!(codes(&[("appendonly", "yes"), ("appendfsync", "always")]), [""; 0]);
        assert_eq!(codes(&[("maxmemory-policy", "allkeys-lru")]), ["evicts_streams"]);
        assert_eq!(codes(&[]), [""; 0], "what is not told is not held against it");
    }
}
