//! One thing that was found, what it concerns, and the way out.

use millstream_worker::monitor::Health;
use serde_json::{Value, json};

/// Something that was found. What is [`Health::Ok`] is a remark.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// How bad it is.
    pub(super) health: Health,
    /// A fixed word for programs.
    pub(super) code: &'static str,
    /// The stream it is about; `None` if it is about the server as a whole.
    pub(super) stream: Option<String>,
    /// The group of the stream, if it is about one.
    pub(super) group: Option<String>,
    /// What was found, for people.
    pub(super) text: String,
    /// What to do about it.
    pub(super) way_out: String,
}

impl Finding {
    /// What it is about, for people.
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
