//! The options common to all tools, and the connection to the store that these options select.

use std::sync::Arc;

use clap::Args;
use millstream_worker::backend::ErrorKind;
use millstream_worker::{Admin, Error};

use super::failure::Failure;

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
/// Environment variables that set the URL if `--url` is missing, in order of precedence.
const URL_VARIABLES: [&str; 2] = ["MILLSTREAM_URL", "REDIS_URL"];

/// The options common to all tools.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CommonOptions {
    /// Store to use: redis://HOST:PORT, rediss://HOST:PORT (TLS), redis+cluster://HOST,HOST,
    /// rediss+cluster://HOST,HOST, unix://SOCKET, embedded:FOLDER or memory:
    /// [env: MILLSTREAM_URL, REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(short, long, global = true, value_name = "URL", help_heading = "Common options")]
    url: Option<String>,
    /// Print JSON instead of text
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
}

impl CommonOptions {
    /// Returns the URL of the store: from `--url`, from the environment, or the default.
    pub(crate) fn url(&self) -> String {
        let from_environment = |name: &str| std::env::var(name).ok().filter(|url| !url.is_empty());
        let url = self.url.clone().or_else(|| URL_VARIABLES.into_iter().find_map(from_environment));
        url.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// Connects to a store that must exist.
    pub(crate) async fn connect(&self) -> Result<Arc<dyn Admin>, Failure> {
        let url = self.url();
        millstream_worker::connect_existing(&url).await.map_err(|error| {
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
        millstream_worker::connect(&url).await.map_err(|error| cannot_open(&url, error))
    }
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
