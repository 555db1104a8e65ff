//! Writes what visitors of the dashboard do into the audit log of the server, in its format.

use std::sync::Arc;

use millstream_dash::options::AuditSink;
use millstream_server::InProcess;
use serde_json::Value;

/// The fields of a record that become part of the line, besides the action. The others are the time, which the line
/// has, and the visitor.
const DETAILS: [&str; 11] =
    ["asked", "matched", "done", "dry_run", "stream", "group", "consumer", "name", "path", "code", "error"];

/// Returns what receives the records of the dashboard.
pub(super) fn sink(server: InProcess) -> AuditSink {
    Arc::new(move |record| {
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        let from = format!("{}:0", text("from"));
        match text("action") {
            // The server itself writes a line about each login.
            "login" | "login_failed" | "logout" => {}
            "refused" => server.audit_refusal(&from, &describe(record)),
            _ => server.audit(&from, text("user"), &describe(record)),
        }
    })
}

/// Returns the action and its details, such as `dashboard pending/ack stream=orders group=billing done=3`.
fn describe(record: &Value) -> String {
    let mut line = format!("dashboard {}", record["action"].as_str().unwrap_or_default());
    for name in DETAILS {
        let value = match &record[name] {
            Value::Null | Value::Bool(false) => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        line.push_str(&format!(" {name}={value}"));
    }
    line
}
