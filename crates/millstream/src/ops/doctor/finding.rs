//! One thing that was found, what it concerns, and the way out.

use std::fmt;

use millstream_worker::monitor::Health;
use serde_json::{Value, json};

/// What a finding is about.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// The server as a whole.
    Server,
    /// A stream.
    Stream(String),
    /// A group of a stream.
    Group(String, String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Server => f.write_str("server"),
            Subject::Stream(stream) => write!(f, "stream {stream}"),
            Subject::Group(stream, group) => write!(f, "group {group} of {stream}"),
        }
    }
}

/// Something that was found. What is [`Health::Ok`] is a remark.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// How bad it is.
    pub(super) health: Health,
    /// A fixed word for programs.
    pub(super) code: &'static str,
    /// What it is about.
    pub(super) subject: Subject,
    /// What was found, for people.
    pub(super) text: String,
    /// What to do about it.
    pub(super) way_out: String,
}

impl Finding {
    pub(super) fn json(&self) -> Value {
        let (stream, group) = match &self.subject {
            Subject::Server => (None, None),
            Subject::Stream(stream) => (Some(stream), None),
            Subject::Group(stream, group) => (Some(stream), Some(group)),
        };
        json!({
            "health": self.health.to_string(),
            "code": self.code,
            "stream": stream,
            "group": group,
            "text": self.text,
            "way_out": self.way_out,
        })
    }
}
