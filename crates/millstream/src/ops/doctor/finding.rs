//! A finding of `doctor`: a problem or a remark, its subject, and a fix.

use millstream_worker::monitor::Health;
use serde_json::{Value, json};

/// A problem, or a remark if its health is [`Health::Ok`].
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// Severity.
    pub(super) health: Health,
    /// Stable identifier for programs.
    pub(super) code: &'static str,
    /// The affected stream. `None` for a finding about the server.
    pub(super) stream: Option<String>,
    /// The affected group of the stream. `None` for a finding about the stream or the server.
    pub(super) group: Option<String>,
    /// Description of the problem.
    pub(super) text: String,
    /// What the operator can do about it.
    pub(super) way_out: String,
}

impl Finding {
    /// Names the affected server, stream or group.
    pub(super) fn subject(&self) -> String {
        match (&self.stream, &self.group) {
            (None, _) => "server".to_owned(),
            (Some(stream), None) => format!("stream {stream}"),
            (Some(stream), Some(group)) => format!("group {group} of {stream}"),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "health": self.health.to_string(),
            "code": self.code,
            "stream": self.stream,
            "group": self.group,
            "text": self.text,
            "way_out": self.way_out,
        })
    }
}
