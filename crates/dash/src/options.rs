//! The options of a dashboard and its limits. Reads no environment and no command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::metrics::MoreSeries;
use millstream_worker::operate::command::Command;
use millstream_worker::redaction::Redaction;
use serde_json::Value;

/// Maximum number of open connections. For another one, the dashboard closes one that sends no request or reads
/// nothing, or whose request it has just answered.
pub const CONNECTIONS_MAX: usize = 128;
/// Maximum number of requests that are handled at a time, other than those of [`PROBES`].
pub const REQUESTS_MAX: usize = 64;
/// The paths that are answered even while [`REQUESTS_MAX`] others are handled.
pub const PROBES: [&str; 3] = ["/livez", "/readyz", "/metrics"];
/// Maximum number of connections that receive events, searches included.
pub const EVENT_STREAMS_MAX: usize = 32;
/// Maximum number of searches at a time.
pub const SEARCHES_MAX: usize = 4;
/// Maximum number of jobs at a time.
pub const JOBS_MAX: usize = 2;
/// Maximum size of a request's body.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Maximum size of a request's line and headers.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a client can take to send a request, and the dashboard to answer it.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client can read nothing of an answer before the dashboard disconnects it.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of one answer.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Number of wrong passwords in a minute, of one user from one address, after which further ones are checked slowly.
pub const LOGIN_FAILURES_MAX: usize = 5;
/// How long a slow check of a password takes.
pub const SLOW_LOGIN_DELAY: Duration = Duration::from_secs(1);
/// Number of wrong passwords in a minute, of one address and all users together, after which further ones are checked
/// one after the other, each after another [`SLOW_LOGIN_DELAY`].
pub const ADDRESS_FAILURES_MAX: usize = 30;
/// Maximum number of logins of such an address that wait for their turn. They must be over before [`ANSWER_TIMEOUT`].
pub const LOGINS_WAITING_MAX: u32 = 8;
/// How long a session lasts.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Receives each record of an action, a login or a refusal.
pub type AuditSink = Arc<dyn Fn(&Value) + Send + Sync>;

/// The options of a dashboard.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Whether every request that could change something is refused.
    pub read_only: bool,
    /// Whether values of fields are shown. If not, only their names are.
    pub payloads: bool,
    /// Which values of fields are hidden.
    pub redaction: Redaction,
    /// The URL under which visitors reach the dashboard, if a proxy is in front of it.
    pub public_url: Option<PublicUrl>,
    /// Further host names that requests may have.
    pub allowed_hosts: Vec<String>,
    /// Receives each record of an action, in addition to the log and to the last ones in memory.
    pub audit: Option<AuditSink>,
    /// The series of `/metrics` beyond those of streams and groups.
    pub more_series: MoreSeries,
    /// Writes a suggested command as a line for a shell.
    pub command_line: fn(&Command) -> String,
    /// The folder of the pages, instead of the embedded ones. Only in debug builds.
    pub assets: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            payloads: true,
            redaction: Redaction::default(),
            public_url: None,
            allowed_hosts: Vec::new(),
            audit: None,
            more_series: MoreSeries::default(),
            command_line: plain_line,
            assets: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("read_only", &self.read_only)
            .field("payloads", &self.payloads)
            .field("redaction", &self.redaction)
            .field("public_url", &self.public_url)
            .field("allowed_hosts", &self.allowed_hosts)
            .finish_non_exhaustive()
    }
}

/// Writes a command with every name in single quotes.
fn plain_line(command: &Command) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut line = format!("millstream {}", command.subcommand);
    for (name, value) in &command.options {
        line.push_str(&format!(" {name}"));
        if let Some(value) = value {
            line.push_str(&format!("={}", quoted(value)));
        }
    }
    if !command.names.is_empty() {
        line.push_str(" --");
    }
    for name in &command.names {
        line.push_str(&format!(" {}", quoted(name)));
    }
    line
}

/// The URL under which visitors reach the dashboard: `https://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Whether visitors use TLS.
    pub is_https: bool,
    /// The host, with the port if it is not the default of the scheme. In lower case.
    pub host: String,
    /// The path below which the dashboard is, without a slash at the end. Empty if it is the root.
    pub base: String,
}

impl PublicUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<PublicUrl, String> {
        let invalid = || format!("invalid URL '{text}': expected https://HOST[:PORT][/PATH]");
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let is_https = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(invalid()),
        };
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let base = path.trim_end_matches('/');
        let is_plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte));
        if host.is_empty() || !is_plain(host) || !is_plain(base) {
            return Err(invalid());
        }
        let default_port = if is_https { ":443" } else { ":80" };
        let host = host.strip_suffix(default_port).unwrap_or(host).to_ascii_lowercase();
        Ok(PublicUrl { is_https, host, base: base.to_owned() })
    }

    /// Returns the origin, as browsers send it.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.is_https { "https" } else { "http" }, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_has_a_scheme_a_host_and_perhaps_a_path() {
        let url = PublicUrl::parse("https://Ops.example:443/tools/millstream/").unwrap();
        assert_eq!((url.origin().as_str(), url.base.as_str()), ("https://ops.example", "/tools/millstream"));
        let url = PublicUrl::parse("http://ops.example:8080").unwrap();
        assert_eq!((url.origin().as_str(), url.base.as_str()), ("http://ops.example:8080", ""));
        for invalid in [
            "",
            "ops.example",
            "ftp://ops.example",
            "https://",
            "https:///x",
            "https://a b",
            "https://u@h",
            "https://h/?q",
        ] {
            assert!(PublicUrl::parse(invalid).is_err(), "{invalid}");
        }
    }
}
