//! The options common to all tools, and the connection to the store that these options select.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use millstream_worker::backend::ErrorKind;
use millstream_worker::{Admin, ConnectOptions, Error, is_tls};

use super::failure::Failure;

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
/// Environment variables that set the URL if `--url` is missing, in order of precedence.
const URL_VARIABLES: [&str; 2] = ["MILLSTREAM_URL", "REDIS_URL"];
/// The environment variable with the password for a URL that has none.
pub(crate) const PASSWORD_VARIABLE: &str = "MILLSTREAM_PASSWORD";
/// The environment variable with the password that visitors of the dashboard enter.
pub(crate) const DASH_PASSWORD_VARIABLE: &str = "MILLSTREAM_DASH_PASSWORD";
const CACERT_VARIABLE: &str = "MILLSTREAM_CACERT";
const CERT_VARIABLE: &str = "MILLSTREAM_CERT";
const KEY_VARIABLE: &str = "MILLSTREAM_KEY";

/// The path of this binary, for the packages in other languages.
const BINARY_VARIABLE: &str = "MILLSTREAM_BIN";

/// The environment variables of the tools that could be mistaken for misspelled settings of the server.
pub(crate) const TOOL_VARIABLES: [&str; 6] = [
    PASSWORD_VARIABLE,
    DASH_PASSWORD_VARIABLE,
    CACERT_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
    BINARY_VARIABLE,
];

/// The options common to all tools.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CommonOptions {
    /// Store to use: redis://HOST:PORT, rediss://HOST:PORT (TLS), redis+cluster://HOST,HOST,
    /// rediss+cluster://HOST,HOST, unix://SOCKET, embedded:FOLDER or memory:
    /// [env: MILLSTREAM_URL, REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(short, long, global = true, value_name = "URL", help_heading = "Common options")]
    url: Option<String>,
    /// Read the password from this file, if the URL has none [env: MILLSTREAM_PASSWORD is the password itself]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    password_file: Option<PathBuf>,
    /// Certificate of the authority that signed the server's certificate, for rediss:// [env: MILLSTREAM_CACERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    cacert: Option<PathBuf>,
    /// Client certificate, for rediss:// [env: MILLSTREAM_CERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate [env: MILLSTREAM_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    key: Option<PathBuf>,
    /// Accept any certificate of the server, even that of an attacker
    #[arg(long, global = true, help_heading = "Common options")]
    insecure: bool,
    /// Print JSON instead of text
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
}

impl CommonOptions {
    /// Returns the URL of the store: from `--url`, from the environment, or the default.
    pub(crate) fn url(&self) -> String {
        let url = self.url.clone().or_else(|| URL_VARIABLES.into_iter().find_map(variable));
        url.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// Connects to a store that must exist.
    pub(crate) async fn connect(&self) -> Result<Arc<dyn Admin>, Failure> {
        let url = self.url();
        self.options(&url)?.connect_existing(&url).await.map_err(|error| {
            let no_store = error.kind() == ErrorKind::NoStore;
            let failure = cannot_open(&url, error);
            if !no_store {
                return failure;
            }
            failure.with_line("create a store with: millstream add STREAM FIELD=VALUE --url embedded:FOLDER")
        })
    }

    /// Connects to a store. Creates an embedded store if the folder is missing or empty.
    pub(crate) async fn connect_or_create(&self) -> Result<Arc<dyn Admin>, Failure> {
        let url = self.url();
        self.options(&url)?.connect(&url).await.map_err(|error| cannot_open(&url, error))
    }

    /// Returns the password and the certificates. Variables for certificates apply only to URLs with TLS.
    fn options(&self, url: &str) -> Result<ConnectOptions, Failure> {
        let mut options = ConnectOptions::new();
        if let Some(password) = self.password()? {
            options = options.password(password);
        }
        let path = |name: &str| variable(name).filter(|_| is_tls(url)).map(PathBuf::from);
        if let Some(ca) = self.cacert.clone().or_else(|| path(CACERT_VARIABLE)) {
            options = options.ca_file(ca);
        }
        let client = match (&self.cert, &self.key) {
            (None, None) => (path(CERT_VARIABLE), path(KEY_VARIABLE)),
            given => (given.0.clone(), given.1.clone()),
        };
        options = match client {
            (Some(certificate), Some(key)) => options.client_certificate(certificate, key),
            (None, None) => options,
            _ => {
                return Err(Failure::Usage(format!(
                    "a client certificate needs its key: pass both --cert and --key, or set both {CERT_VARIABLE} and {KEY_VARIABLE}"
                )));
            }
        };
        Ok(if self.insecure { options.insecure() } else { options })
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.password_file else { return Ok(variable(PASSWORD_VARIABLE)) };
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(error) => {
                Err(Failure::Other(format!("cannot read the password file {}: {error}", path.display())))
            }
        }
    }
}

/// Returns the value of an environment variable. An empty value counts as none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn cannot_open(url: &str, error: Error) -> Failure {
    let message = format!("cannot open {}: {error}", redact_password(url));
    if error.kind() == ErrorKind::BadUrl {
        return Failure::Usage(message);
    }
    if error.kind() == ErrorKind::Unreachable && url.starts_with("embedded:") {
        return Failure::cannot_open_folder(&message);
    }
    let is_not_cluster = url.contains("+cluster://") && message.contains("cluster support disabled");
    let failure = Failure::from(Error::new(error.kind(), message));
    if is_not_cluster {
        failure.with_line("the server is not a cluster: remove +cluster from the URL")
    } else {
        failure
    }
}

/// Returns the URL with its password replaced by `***`.
fn redact_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:***@{host}{}", redact_pass_parameter(&rest[end..]))
        }
        None => format!("{scheme}://{}", redact_pass_parameter(rest)),
    }
}

/// Replaces the value of the `pass` parameter, which holds the password in the URL of a Unix socket.
fn redact_pass_parameter(rest: &str) -> String {
    let Some((before, secret)) = ["?pass=", "&pass="].iter().find_map(|name| {
        let at = rest.find(name)? + name.len();
        Some(rest.split_at(at))
    }) else {
        return rest.to_owned();
    };
    let end = secret.find(['&', '#']).unwrap_or(secret.len());
    format!("{before}***{}", &secret[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_replaced() {
        assert_eq!(redact_password("redis://me:secret@host:1/2"), "redis://me:***@host:1/2");
        assert_eq!(redact_password("redis://:p@ss@host"), "redis://:***@host");
        assert_eq!(redact_password("redis://host:1"), "redis://host:1");
        assert_eq!(redact_password("embedded:/x@y"), "embedded:/x@y");
        assert_eq!(redact_password("unix:///a?pass=b&db=1"), "unix:///a?pass=***&db=1");
        assert_eq!(redact_password("unix:///a?user=c&pass=b"), "unix:///a?user=c&pass=***");
    }
}
