//! A finding of the doctor: a problem or a remark, its subject, and a fix.

use std::fmt;

use crate::monitor::Health;
use crate::operate::command::WayOut;

/// A problem, or a remark if its health is [`Health::Ok`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorFinding {
    /// Severity.
    pub health: Health,
    /// Stable identifier for programs.
    pub code: &'static str,
    /// What has the problem.
    pub subject: Subject,
    /// The consumer of the group that has the problem. `None` if it concerns the whole group.
    pub consumer: Option<String>,
    /// Description of the problem.
    pub text: String,
    /// What the operator can do about it.
    pub way_out: WayOut,
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The server of the store.
    Server,
    /// A stream.
    Stream(String),
    /// A group.
    Group {
        /// The stream of the group.
        stream: String,
        /// Its name.
        group: String,
    },
}

impl Subject {
    /// Names a group.
    pub fn group_of(stream: &str, group: &str) -> Subject {
        Subject::Group { stream: stream.to_owned(), group: group.to_owned() }
    }

    /// Returns the stream. `None` for the server.
    pub fn stream(&self) -> Option<&str> {
        match self {
            Subject::Server => None,
            Subject::Stream(stream) | Subject::Group { stream, .. } => Some(stream),
        }
    }

    /// Returns the group. `None` for the server and for a stream.
    pub fn group(&self) -> Option<&str> {
        match self {
            Subject::Server | Subject::Stream(_) => None,
            Subject::Group { group, .. } => Some(group),
        }
    }
}

/// Names the server, the stream or the group.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Server => f.write_str("server"),
            Subject::Stream(stream) => write!(f, "stream {stream}"),
            Subject::Group { stream, group } => write!(f, "group {group} of {stream}"),
        }
    }
}
