//! Where the store is, and the options that every command has.

use std::sync::Arc;

use clap::Args;
use millstream_worker::backend::ErrorKind;
use millstream_worker::{Admin, Error};

use super::failure::Failure;

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
/// Read in this order when no `--url` is given.
const VARIABLES: [&str; 2] = ["MILLSTREAM_URL", "REDIS_URL"];

/// The options that every command has.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// The store: redis://, rediss://, redis+cluster://HOST,HOST, rediss+cluster://HOST,HOST, unix://SOCKET,
    /// embedded:FOLDER or memory:
    /// [env: MILLSTREAM_URL, REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(short, long, global = true, value_name = "URL", help_heading = "Common options")]
    url: Option<String>,
    /// Tell it as JSON, for programs
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
}

impl Common {
    /// The URL of the store, wherever it was said.
    pub(crate) fn url(&self) -> String {
        let said = |name: &str| std::env::var(name).ok().filter(|url| !url.is_empty());
        let url = self.url.clone().or_else(|| VARIABLES.into_iter().find_map(said));
        url.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// The store, for looking and for changing what is there.
    pub(crate) async fn connect(&self) -> Result<Arc<dyn Admin>, Failure> {
        let url = self.url();
        millstream_worker::connect_existing(&url).await.map_err(|error| {
            let no_store = error.kind() == ErrorKind::NoStore;
            let failure = cannot_open(&url, error);
            if !no_store {
                return failure;
            }
            failure.and("make one in a folder of its own with: millstream add STREAM FIELD=VALUE --url embedded:FOLDER")
        })
    }

    /// The store, for commands that may begin one.
    pub(crate) async fn connect_or_create(&self) -> Result<Arc<dyn Admin>, Failure> {
        let url = self.url();
        millstream_worker::connect(&url).await.map_err(|error| cannot_open(&url, error))
    }
}

fn cannot_open(url: &str, error: Error) -> Failure {
    let message = format!("cannot open {}: {error}", without_password(url));
    if error.kind() == ErrorKind::BadUrl {
        return Failure::Usage(message);
    }
    if error.kind() == ErrorKind::Unreachable && url.starts_with("embedded:") {
        return Failure::cannot_open_folder(&message);
    }
    let is_no_cluster = url.contains("+cluster://") && message.contains("cluster support disabled");
    let failure = Failure::from(Error::new(error.kind(), message));
    if is_no_cluster { failure.and("it is no cluster: leave out +cluster in the URL") } else { failure }
}

/// A URL that may be shown.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((way_in, host)) => {
            let user = way_in.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:***@{host}{}", without_pass(&rest[end..]))
        }
        None => format!("{scheme}://{}", without_pass(rest)),
    }
}

/// The same for the parameter by which the URL of a Unix socket says it.
fn without_pass(rest: &str) -> String {
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
    fn passwords_are_not_shown() {
        assert_eq!(without_password("redis://me:secret@host:1/2"), "redis://me:***@host:1/2");
        assert_eq!(without_password("redis://:p@ss@host"), "redis://:***@host");
        assert_eq!(without_password("redis://host:1"), "redis://host:1");
        assert_eq!(without_password("embedded:/x@y"), "embedded:/x@y");
        assert_eq!(without_password("unix:///a?pass=b&db=1"), "unix:///a?pass=***&db=1");
        assert_eq!(without_password("unix:///a?user=c&pass=b"), "unix:///a?user=c&pass=***");
    }
}
