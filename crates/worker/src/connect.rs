//! From a URL to a backend.

use std::fs;
use std::sync::Arc;

use crate::backend::{Admin, Certificates, Embedded, Error, ErrorKind, Redis};

/// The backend behind a URL:
///
/// | URL | store |
/// |---|---|
/// | `redis://[user:password@]host[:port][/database]` | a server that speaks Redis' protocol |
/// | `rediss://…` | the same over TLS; `#insecure` at the end takes any certificate |
/// | `redis+cluster://[user:password@]host:port,host:port…`, `rediss+cluster://…` | a Redis or Valkey Cluster |
/// | `unix:///path/of/socket[?db=N&user=NAME&pass=PASSWORD]` | a server on this machine, by its Unix socket |
/// | `embedded:FOLDER` | the embedded store in a folder of this process alone |
/// | `memory:` | an embedded store that is gone with the process |
///
/// TLS takes `?ca=FILE` (who signs the server's certificate) and `&cert=FILE&key=FILE` (our own), all in PEM;
/// servers take `?protocol=3` for the newer protocol.
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
/// A store in a folder is made if the folder is empty or not there.
pub async fn connect(url: &str) -> Result<Arc<dyn Admin>, Error> {
    open(url, |folder| Embedded::open(folder)).await
}

/// The same for a store that must be there: looking at a folder makes none in it.
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
            Ok(Arc::new(Redis::connect_cluster(&nodes(url), certificates(url)?).await?))
        }
        _ => Err(Error::new(
            ErrorKind::BadUrl,
            "the URL of a store begins with redis://, rediss://, redis+cluster://, rediss+cluster://, unix://, embedded: or memory:",
        )),
    }
}

/// The URLs of a cluster's servers: everything but the host is the same for all.
fn nodes(url: &str) -> Vec<String> {
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

/// The certificates that a URL names.
fn certificates(url: &str) -> Result<Certificates, Error> {
    let file = |name: &str| parameter(url, name).map(read_file).transpose();
    let authority = file("ca")?;
    let own = match (file("cert")?, file("key")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            return Err(Error::new(
                ErrorKind::BadUrl,
                "a certificate needs its key: give both cert= and key=",
            ));
        }
    };
    Ok(Certificates { authority, own })
}

/// A parameter of a URL's query.
fn parameter<'u>(url: &'u str, name: &str) -> Option<&'u str> {
    let (_, query) = url.split('#').next()?.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn read_file(path: &str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        Error::new(ErrorKind::Refused, format!("cannot read {path}: {error}")).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_several_servers_with_one_way_in() {
        assert_eq!(nodes("redis+cluster://a:1,b:2"), ["redis://a:1", "redis://b:2"]);
        let secret = nodes("rediss+cluster://u:p%40@a:1,b:2/?ca=/x#insecure");
        assert_eq!(secret, ["rediss://u:p%40@a:1/?ca=/x#insecure", "rediss://u:p%40@b:2/?ca=/x#insecure"]);
        assert_eq!(nodes("redis+cluster://"), [""; 0]);
    }

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let url = "rediss://host/?xca=1&ca=/etc/ca.pem&key=k#insecure";
        assert_eq!(parameter(url, "ca"), Some("/etc/ca.pem"));
        assert_eq!(parameter(url, "key"), Some("k"));
        assert_eq!((parameter(url, "cert"), parameter("redis://host", "ca")), (None, None));
        assert_eq!(certificates(url).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[tokio::test]
    async fn what_is_no_store_is_refused_with_the_ones_there_are() {
        for url in ["", "http://host", "memory:x", "embedded:", "redis+cluster://", "redis://"] {
            let error = connect(url).await.map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadUrl, "{url}: {error}");
        }
    }
}
