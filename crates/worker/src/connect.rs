//! Opens the backend that a URL names.

use std::fs;
use std::sync::Arc;

use crate::backend::{Admin, Certificates, Embedded, Error, ErrorKind, Redis};

/// Connects to the store that a URL names:
///
/// | URL | store |
/// |---|---|
/// | `redis://[user:password@]host[:port][/database]` | a server that speaks the Redis protocol |
/// | `rediss://…` | the same over TLS; `#insecure` at the end accepts any certificate |
/// | `redis+cluster://[user:password@]host:port,host:port…`, `rediss+cluster://…` | a Redis or Valkey Cluster |
/// | `unix:///path/to/socket[?db=N&user=NAME&pass=PASSWORD]` | a server on this machine, over its Unix socket |
/// | `embedded:FOLDER` | the embedded store in a folder, which only one process at a time can open |
/// | `memory:` | an embedded store in memory, which is lost when the process ends |
///
/// TLS parameters name PEM files: `?ca=FILE` is the certificate of the authority that signed the server's
/// certificate; `&cert=FILE&key=FILE` are the client's certificate and key. For servers, `?protocol=3` selects RESP3.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), millstream_worker::Error> {
/// let backend = millstream_worker::connect("memory:").await?;
/// backend.ping().await?;
/// # Ok(())
/// # }
/// ```
///
/// `embedded:FOLDER` creates a store if the folder is empty or does not exist.
pub async fn connect(url: &str) -> Result<Arc<dyn Admin>, Error> {
    open(url, |folder| Embedded::open(folder)).await
}

/// Connects like [`connect`], but fails instead of creating a store in a folder.
pub async fn connect_existing(url: &str) -> Result<Arc<dyn Admin>, Error> {
    open(url, |folder| Embedded::open_existing(folder)).await
}

async fn open(
    url: &str,
    open_folder: impl FnOnce(&str) -> Result<Embedded, Error>,
) -> Result<Arc<dyn Admin>, Error> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(Embedded::in_memory())),
        Some(("embedded", folder)) if !folder.is_empty() => Ok(Arc::new(open_folder(folder)?)),
        Some(("redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix", _)) => {
            Ok(Arc::new(Redis::connect(url, certificates(url)?).await?))
        }
        Some(("redis+cluster" | "rediss+cluster" | "valkey+cluster" | "valkeys+cluster", _)) => {
            Ok(Arc::new(Redis::connect_cluster(&node_urls(url), certificates(url)?).await?))
        }
        _ => Err(Error::new(
            ErrorKind::BadUrl,
            "invalid URL: expected redis://HOST, rediss://HOST, redis+cluster://HOST,HOST, rediss+cluster://HOST,HOST, \
             unix://SOCKET, embedded:FOLDER or memory:",
        )),
    }
}

/// Returns the URLs of a cluster's nodes. They differ only in the host.
fn node_urls(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let scheme = scheme.strip_suffix("+cluster").unwrap_or(scheme);
    let (authority, suffix) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let hosts = hosts.split(',').filter(|host| !host.is_empty());
    hosts.map(|host| format!("{scheme}://{user}{host}{suffix}")).collect()
}

/// Reads the certificate files named by a URL's parameters.
fn certificates(url: &str) -> Result<Certificates, Error> {
    let file = |name: &str| parameter(url, name).map(read_file).transpose();
    let ca = file("ca")?;
    let client = match (file("cert")?, file("key")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            return Err(Error::new(ErrorKind::BadUrl, "invalid URL: cert= and key= must be given together"));
        }
    };
    Ok(Certificates { ca, client })
}

/// Returns the value of a parameter in a URL's query.
fn parameter<'u>(url: &'u str, name: &str) -> Option<&'u str> {
    let (_, query) = url.split('#').next()?.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn read_file(path: &str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        Error::new(ErrorKind::Refused, format!("cannot read the certificate or key file {path}: {error}"))
            .with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_url_becomes_one_url_per_node() {
        assert_eq!(node_urls("redis+cluster://a:1,b:2"), ["redis://a:1", "redis://b:2"]);
        let secret = node_urls("rediss+cluster://u:p%40@a:1,b:2/?ca=/x#insecure");
        assert_eq!(secret, ["rediss://u:p%40@a:1/?ca=/x#insecure", "rediss://u:p%40@b:2/?ca=/x#insecure"]);
        assert_eq!(node_urls("redis+cluster://"), [""; 0]);
    }

    #[test]
    fn parameters_are_matched_by_full_name() {
        let url = "rediss://host/?xca=1&ca=/etc/ca.pem&key=k#insecure";
        assert_eq!(parameter(url, "ca"), Some("/etc/ca.pem"));
        assert_eq!(parameter(url, "key"), Some("k"));
        assert_eq!((parameter(url, "cert"), parameter("redis://host", "ca")), (None, None));
        assert_eq!(certificates(url).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[tokio::test]
    async fn invalid_urls_are_rejected() {
        for url in ["", "http://host", "memory:x", "embedded:", "redis+cluster://", "redis://"] {
            let error = connect(url).await.map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadUrl, "{url}: {error}");
        }
    }
}
