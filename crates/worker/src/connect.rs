//! Opens the backend that a URL names.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::backend::{Admin, Embedded, Error, ErrorKind, Redis, ServerOptions};

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
/// In user names and passwords, special characters are percent-encoded: `%40` for `@`. TLS parameters name PEM files:
/// `?ca=FILE` is the certificate of the authority that signed the server's certificate; `&cert=FILE&key=FILE` are the
/// client's certificate and key. For servers, `?protocol=3` selects RESP3.
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
/// `embedded:FOLDER` creates a store if the folder is empty or does not exist. [`ConnectOptions`] keep passwords and
/// certificates out of the URL.
pub async fn connect(url: &str) -> Result<Arc<dyn Admin>, Error> {
    ConnectOptions::new().connect(url).await
}

/// Connects like [`connect`], but fails instead of creating a store in a folder.
pub async fn connect_existing(url: &str) -> Result<Arc<dyn Admin>, Error> {
    ConnectOptions::new().connect_existing(url).await
}

/// Options for connecting to a store, in addition to its URL. Parameters of the URL have precedence.
///
/// ```no_run
/// # async fn example() -> Result<(), millstream_worker::Error> {
/// use millstream_worker::ConnectOptions;
///
/// let options = ConnectOptions::new()
///     .password(std::env::var("ORDERS_PASSWORD").unwrap_or_default())
///     .ca_file("/etc/tls/ca.pem")
///     .client_certificate("/etc/tls/worker.pem", "/etc/tls/worker.key");
/// let backend = options.connect("rediss://worker@store.example:6380").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ConnectOptions {
    password: Option<String>,
    ca: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    insecure: bool,
}

impl ConnectOptions {
    /// Returns options that add nothing to the URL.
    pub fn new() -> ConnectOptions {
        ConnectOptions::default()
    }

    /// Sets the password of the user that the URL names, or of the user `default` if it names none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> ConnectOptions {
        self.password = Some(password.into());
        self
    }

    /// Sets the file with the certificate authority that signs the server's certificate, in PEM. Without it, the public
    /// authorities that are built into this program are trusted (Mozilla's list), not those of the system.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> ConnectOptions {
        self.ca = Some(path.into());
        self
    }

    /// Sets the files with the client's certificate and its private key, in PEM.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> ConnectOptions {
        self.client = Some((certificate.into(), key.into()));
        self
    }

    /// Accepts any certificate of the server. The connection is encrypted, but anybody can pose as the server.
    #[must_use]
    pub fn insecure(mut self) -> ConnectOptions {
        self.insecure = true;
        self
    }

    /// Connects to a store. Creates an embedded store if the folder is empty or does not exist.
    pub async fn connect(&self, url: &str) -> Result<Arc<dyn Admin>, Error> {
        self.open(url, |folder| Embedded::open(folder)).await
    }

    /// Connects to a store that exists.
    pub async fn connect_existing(&self, url: &str) -> Result<Arc<dyn Admin>, Error> {
        self.open(url, |folder| Embedded::open_existing(folder)).await
    }

    async fn open(
        &self,
        url: &str,
        open_folder: impl FnOnce(&str) -> Result<Embedded, Error>,
    ) -> Result<Arc<dyn Admin>, Error> {
        if self.needs_tls() && !is_tls(url) {
            return Err(Error::new(
                ErrorKind::BadUrl,
                "invalid URL: certificates need TLS; expected rediss://HOST or rediss+cluster://HOST,HOST",
            ));
        }
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Arc::new(Embedded::in_memory())),
            Some(("embedded", folder)) if !folder.is_empty() => Ok(Arc::new(open_folder(folder)?)),
            Some(("redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" | "valkey+unix", _)) => {
                Ok(Arc::new(Redis::connect(url, self.server_options(url)?).await?))
            }
            Some(("redis+cluster" | "rediss+cluster" | "valkey+cluster" | "valkeys+cluster", _)) => {
                Ok(Arc::new(Redis::connect_cluster(&node_urls(url), self.server_options(url)?).await?))
            }
            _ => Err(Error::new(
                ErrorKind::BadUrl,
                "invalid URL: expected redis://HOST, rediss://HOST, redis+cluster://HOST,HOST, rediss+cluster://HOST,HOST, \
                 unix://SOCKET, embedded:FOLDER or memory:",
            )),
        }
    }

    fn needs_tls(&self) -> bool {
        self.ca.is_some() || self.client.is_some() || self.insecure
    }

    /// Combines these options with the parameters of a URL.
    fn server_options(&self, url: &str) -> Result<ServerOptions, Error> {
        let file = |name: &str| parameter(url, name).map(PathBuf::from);
        let ca = file("ca").or_else(|| self.ca.clone());
        let client = match (file("cert"), file("key")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => self.client.clone(),
            _ => {
                let message = "invalid URL: cert= and key= must be given together";
                return Err(Error::new(ErrorKind::BadUrl, message));
            }
        };
        let client = client.map(|(certificate, key)| read_client(&certificate, &key)).transpose()?;
        let ca = ca.map(|path| read_certificates(&path).map(|(pem, _)| pem)).transpose()?;
        let (password, insecure) = (self.password.clone(), self.insecure);
        Ok(ServerOptions { ca, client, insecure, password })
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectOptions { password, ca, client, insecure } = self;
        let password = password.as_ref().map(|_| "***");
        f.debug_struct("ConnectOptions")
            .field("password", &password)
            .field("ca", ca)
            .field("client", client)
            .field("insecure", insecure)
            .finish()
    }
}

/// Returns whether a URL asks for TLS.
pub fn is_tls(url: &str) -> bool {
    ["rediss:", "valkeys:", "rediss+cluster:", "valkeys+cluster:"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
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

/// Returns the value of a parameter in a URL's query.
fn parameter<'u>(url: &'u str, name: &str) -> Option<&'u str> {
    let (_, query) = url.split('#').next()?.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Reads the files of a client's certificate and key, and checks that they belong together.
fn read_client(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let (certificate_pem, chain) = read_certificates(certificate)?;
    let key_pem = read_file(key)?;
    let private = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| {
        let message =
            format!("{} contains no private key in PEM, or an encrypted one: {error}", key.display());
        Error::new(ErrorKind::Refused, message)
    })?;
    let provider = rustls::crypto::ring::default_provider();
    if let Err(error) = CertifiedKey::from_der(chain, private, &provider) {
        let (certificate, key) = (certificate.display(), key.display());
        let message = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("the key {key} does not belong to the certificate {certificate}")
            }
            error if format!("{error:?}").contains("UnsupportedCertVersion") => format!(
                "cannot use the certificate {certificate}: it is of version 1; create it with an extension, \
                 for example extendedKeyUsage=clientAuth, so that it is of version 3"
            ),
            error => format!("cannot use the certificate {certificate} with the key {key}: {error}"),
        };
        return Err(Error::new(ErrorKind::Refused, message));
    }
    Ok((certificate_pem, key_pem))
}

/// Reads a file of certificates. Returns its text and the certificates.
fn read_certificates(path: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), Error> {
    let pem = read_file(path)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok((pem, certificates)),
        _ => {
            Err(Error::new(ErrorKind::Refused, format!("{} contains no certificate in PEM", path.display())))
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        let path = path.display();
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
        let error = ConnectOptions::new().server_options("rediss://host/?cert=/c").err().unwrap();
        assert_eq!((error.kind(), error.to_string().contains("together")), (ErrorKind::BadUrl, true));
    }

    #[tokio::test]
    async fn certificates_need_a_url_with_tls() {
        let options = ConnectOptions::new().password("secret").insecure();
        assert!(!format!("{options:?}").contains("secret"));
        for url in ["redis://host", "redis+cluster://host", "unix:///x", "memory:", "embedded:x"] {
            let error = options.connect(url).await.map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadUrl, "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn invalid_urls_are_rejected() {
        for url in ["", "http://host", "memory:x", "embedded:", "redis+cluster://", "redis://"] {
            let error = connect(url).await.map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadUrl, "{url}: {error}");
        }
    }
}
