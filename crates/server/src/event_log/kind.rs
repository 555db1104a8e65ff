//! The kinds of events that clients cause. Each kind has its own limit on lines.

use super::Level;

/// Maximum number of lines per interval and source for administrative commands. Other events get one line.
const COMMAND_LINES_MAX: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    Connected,
    Refused,
    LoggedIn,
    /// A client sent a wrong password, or the name of a user that does not exist or is disabled.
    FailedLogin,
    /// The server closed the connection of a client that did not log in in time.
    LoginTimeout,
    ForeignProtocol,
    /// A client ran an administrative command that changed something.
    Command,
    /// A policy could not act, because its owner may not.
    PolicyDenied,
    CannotAccept,
    FailedHandshake,
    /// The server closed a client whose reply was too long.
    OutputLimit,
    /// The server closed a client that had not logged in and did not read its replies.
    UnreadReplies,
    /// The server closed a client whose requests were too long.
    QueryLimit,
    /// The server closed a client that sent nothing for too long.
    IdleClient,
    Disconnected,
}

impl EventKind {
    /// Returns its name in the audit log, or `None` if it does not belong there.
    pub(super) fn audit_name(self) -> Option<&'static str> {
        match self {
            EventKind::Connected => Some("connected"),
            EventKind::Refused => Some("refused"),
            EventKind::LoggedIn => Some("logged-in"),
            EventKind::FailedLogin => Some("failed-login"),
            EventKind::LoginTimeout => Some("login-timeout"),
            EventKind::ForeignProtocol => Some("foreign-protocol"),
            EventKind::Command => Some("command"),
            EventKind::PolicyDenied => Some("policy-denied"),
            _ => None,
        }
    }

    pub(super) fn is_audit(self) -> bool {
        self.audit_name().is_some()
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            EventKind::CannotAccept => "cannot accept connections, the server keeps trying",
            EventKind::FailedHandshake => "the TLS handshake failed",
            EventKind::OutputLimit => {
                "closed a client whose reply exceeds client-output-buffer-limit or what maxmemory-clients allows"
            }
            EventKind::UnreadReplies => {
                "closed a client that has not logged in and does not read its replies"
            }
            EventKind::QueryLimit => {
                "closed a client whose requests exceed client-query-buffer-limit, or 1 MB before login"
            }
            EventKind::IdleClient => "closed an idle client",
            EventKind::Disconnected => "a client disconnected",
            _ => "audit",
        }
    }

    pub(super) fn detail_name(self) -> &'static str {
        match self {
            EventKind::CannotAccept | EventKind::FailedHandshake => "error",
            EventKind::OutputLimit => "command",
            _ => "what",
        }
    }

    pub(super) fn level(self) -> Level {
        match self {
            EventKind::CannotAccept | EventKind::OutputLimit | EventKind::QueryLimit => Level::Warning,
            EventKind::IdleClient => Level::Verbose,
            EventKind::Disconnected => Level::Debug,
            _ => Level::Notice,
        }
    }

    pub(super) fn lines_max(self) -> u32 {
        if self == EventKind::Command { COMMAND_LINES_MAX } else { 1 }
    }
}
