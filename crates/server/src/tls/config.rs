//! Builds rustls' configuration from the settings and their files.
//!
//! Everything is checked here: the files parse, the key belongs to the certificate, every protocol and cipher is known.
//! So a configuration that was built can replace the one in force.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use super::sessions::SessionCache;
use crate::settings::{Id, Setting};

/// Number of tickets per handshake with which a client can resume its TLS 1.3 session.
const TICKETS: usize = 1;

/// OpenSSL's names of the ciphers that rustls has. The first three are those of TLS 1.3.
const CIPHERS: [(&str, CipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
const TLS13_CIPHERS: usize = 3;

/// A TLS setting that cannot be used, and why.
#[derive(Debug)]
pub struct TlsError {
    setting: Id,
    problem: String,
}

impl TlsError {
    fn new(setting: Id, problem: impl Into<String>) -> TlsError {
        TlsError { setting, problem: problem.into() }
    }

    pub(crate) fn setting(&self) -> &'static Setting {
        self.setting.setting()
    }

    fn file(setting: Id, path: &Path, problem: impl fmt::Display) -> TlsError {
        TlsError::new(setting, format!("cannot use {}: {problem}", path.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting().name, self.problem)
    }
}

impl std::error::Error for TlsError {}

pub(super) struct TlsSettings {
    cert_file: PathBuf,
    key_file: PathBuf,
    ca_cert_file: PathBuf,
    ca_cert_dir: PathBuf,
    auth_clients: String,
    protocols: String,
    ciphers: String,
    cipher_suites: String,
    /// The maximum number of sessions and their lifetime. `None` if sessions cannot be resumed.
    sessions: Option<(usize, Duration)>,
}

/// What identifies the content of the TLS files without reading them. `None` if there is no such file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(PathBuf, Option<FileVersion>)>);

#[derive(Debug, PartialEq, Eq)]
struct FileVersion {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
}

impl TlsSettings {
    /// Reads the values with `show`, which returns a setting's value as CONFIG GET would.
    pub(super) fn new(show: impl Fn(Id) -> String) -> TlsSettings {
        let number = |id| show(id).parse::<u64>().unwrap_or(0);
        let sessions = (show(Id::TlsSessionCaching) == "yes").then(|| {
            let size = usize::try_from(number(Id::TlsSessionCacheSize)).unwrap_or(usize::MAX);
            (size, Duration::from_secs(number(Id::TlsSessionCacheTimeout)))
        });
        TlsSettings {
            cert_file: show(Id::TlsCertFile).into(),
            key_file: show(Id::TlsKeyFile).into(),
            ca_cert_file: show(Id::TlsCaCertFile).into(),
            ca_cert_dir: show(Id::TlsCaCertDir).into(),
            auth_clients: show(Id::TlsAuthClients),
            protocols: show(Id::TlsProtocols),
            ciphers: show(Id::TlsCiphers),
            cipher_suites: show(Id::TlsCipherSuites),
            sessions,
        }
    }

    pub(super) fn includes(id: Id) -> bool {
        use Id::*;
        matches!(
            id,
            TlsCertFile
                | TlsKeyFile
                | TlsCaCertFile
                | TlsCaCertDir
                | TlsAuthClients
                | TlsProtocols
                | TlsCiphers
                | TlsCipherSuites
                | TlsSessionCaching
                | TlsSessionCacheSize
                | TlsSessionCacheTimeout
        )
    }

    pub(super) fn build(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(self.provider()?);
        let verifier = self.verifier(&provider)?;
        let (chain, key) = (self.chain()?, self.key()?);
        let cannot_use = |error| TlsError::new(Id::TlsProtocols, format!("cannot be used: {error}"));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions()?)
            .map_err(cannot_use)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| {
                let key = self.key_file.display();
                TlsError::file(Id::TlsCertFile, &self.cert_file, format_args!("with the key {key}: {error}"))
            })?;
        match self.sessions {
            Some((size, timeout)) => {
                config.session_storage = Arc::new(SessionCache::new(size, timeout));
                config.send_tls13_tickets = TICKETS;
            }
            None => {
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
        }
        Ok(config)
    }

    fn provider(&self) -> Result<CryptoProvider, TlsError> {
        let mut provider = ring::default_provider();
        let (tls13, tls12) = CIPHERS.split_at(TLS13_CIPHERS);
        let suites13 = chosen(Id::TlsCipherSuites, &self.cipher_suites, tls13, &provider)?;
        let suites12 = chosen(Id::TlsCiphers, &self.ciphers, tls12, &provider)?;
        provider.cipher_suites = [suites13, suites12].concat();
        Ok(provider)
    }

    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
        let words: Vec<&str> = self.protocols.split_ascii_whitespace().collect();
        if words.is_empty() {
            return Ok(vec![&TLS13, &TLS12]);
        }
        words
            .into_iter()
            .map(|word| match word.to_ascii_lowercase().as_str() {
                "tlsv1.2" => Ok(&TLS12),
                "tlsv1.3" => Ok(&TLS13),
                _ => Err(TlsError::new(
                    Id::TlsProtocols,
                    format!("unknown or outdated version '{word}': use TLSv1.2, TLSv1.3 or both"),
                )),
            })
            .collect()
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain = certificates(Id::TlsCertFile, self.required(Id::TlsCertFile, &self.cert_file)?)?;
        match chain.is_empty() {
            true => Err(TlsError::file(Id::TlsCertFile, &self.cert_file, "it contains no PEM certificate")),
            false => Ok(chain),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let path = self.required(Id::TlsKeyFile, &self.key_file)?;
        let text = fs::read(path).map_err(|error| TlsError::file(Id::TlsKeyFile, path, error))?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let is_encrypted = String::from_utf8_lossy(&text).contains("ENCRYPTED");
            let problem = match error {
                _ if is_encrypted => {
                    "the key is encrypted, which is not supported. Write a decrypted copy that only \
                                      the server can read: openssl pkey -in KEY -out COPY"
                        .to_owned()
                }
                pem::Error::NoItemsFound => "it contains no PEM private key".to_owned(),
                error => error.to_string(),
            };
            TlsError::file(Id::TlsKeyFile, path, problem)
        })
    }

    fn required<'a>(&self, setting: Id, path: &'a Path) -> Result<&'a Path, TlsError> {
        match path.as_os_str().is_empty() {
            true => Err(TlsError::new(setting, "this setting is required if tls-port is set")),
            false => Ok(path),
        }
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        if self.auth_clients == "no" {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        let mut roots = RootCertStore::empty();
        for (setting, path) in self.authorities()? {
            for certificate in certificates(setting, &path)? {
                roots.add(certificate).map_err(|error| TlsError::file(setting, &path, error))?;
            }
        }
        if roots.is_empty() {
            return Err(TlsError::new(
                Id::TlsAuthClients,
                format!(
                    "'{}' needs the authorities of client certificates: set tls-ca-cert-file or tls-ca-cert-dir, or \
                     accept clients without certificates with tls-auth-clients no",
                    self.auth_clients
                ),
            ));
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let builder = if self.auth_clients == "yes" { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|error| TlsError::new(Id::TlsAuthClients, error.to_string()))
    }

    /// Returns the files with authorities, and the setting that names each.
    fn authorities(&self) -> Result<Vec<(Id, PathBuf)>, TlsError> {
        let mut files = Vec::new();
        if !self.ca_cert_file.as_os_str().is_empty() {
            files.push((Id::TlsCaCertFile, self.ca_cert_file.clone()));
        }
        if !self.ca_cert_dir.as_os_str().is_empty() {
            let found = files_in(&self.ca_cert_dir)
                .map_err(|error| TlsError::file(Id::TlsCaCertDir, &self.ca_cert_dir, error))?;
            files.extend(found.into_iter().map(|path| (Id::TlsCaCertDir, path)));
        }
        Ok(files)
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        let authorities = self.authorities().unwrap_or_default().into_iter().map(|(_, path)| path);
        let files = [self.cert_file.clone(), self.key_file.clone()].into_iter().chain(authorities);
        let describe = |path: &PathBuf| {
            let found = fs::metadata(path).ok()?;
            Some(FileVersion { modified: found.modified().ok()?, bytes: found.len(), inode: found.ino() })
        };
        Fingerprint(files.map(|path| (path.clone(), describe(&path))).collect())
    }
}

/// Returns the regular files of a folder, in a fixed order.
fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Follows symbolic links: OpenSSL's folders consist of them.
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn certificates(setting: Id, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    all.map_err(|error| match error {
        pem::Error::Io(error) => TlsError::file(setting, path, error),
        error => TlsError::file(setting, path, error),
    })
}

/// Returns the ciphers of a list, or all of `known` if the list is empty.
fn chosen(
    setting: Id,
    list: &str,
    known: &[(&str, CipherSuite)],
    provider: &CryptoProvider,
) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let names: Vec<&str> = list.split([':', ' ', ',']).filter(|name| !name.is_empty()).collect();
    for name in &names {
        if !known.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            let all: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let problem = format!("unknown cipher '{name}': the server has {}", all.join(", "));
            return Err(TlsError::new(setting, problem));
        }
    }
    let is_chosen =
        |name: &str| names.is_empty() || names.iter().any(|other| other.eq_ignore_ascii_case(name));
    let suites = known.iter().filter(|(name, _)| is_chosen(name)).map(|(_, suite)| *suite);
    Ok(suites
        .filter_map(|suite| provider.cipher_suites.iter().find(|known| known.suite() == suite).copied())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn with(changes: &[(Id, &str)]) -> TlsSettings {
        let settings = Settings::new();
        changes.iter().for_each(|(id, value)| settings.set(*id, value).unwrap());
        TlsSettings::new(|id| settings.show(id))
    }

    #[test]
    fn all_ciphers_of_rustls_have_a_name_and_a_list_selects_some() {
        let all = with(&[]).provider().unwrap().cipher_suites;
        assert_eq!(all.len(), ring::default_provider().cipher_suites.len());
        assert_eq!(all.len(), CIPHERS.len());
        let one = [
            (Id::TlsCiphers, "ecdhe-rsa-aes128-gcm-sha256"),
            (Id::TlsCipherSuites, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384"),
        ];
        assert_eq!(with(&one).provider().unwrap().cipher_suites.len(), 3);
    }

    #[test]
    fn unknown_ciphers_and_versions_are_refused_by_name() {
        let error = |id, value| {
            let settings = with(&[(id, value)]);
            let refused = settings.provider().err().or_else(|| settings.versions().err());
            refused.expect("an error").to_string()
        };
        let ciphers = error(Id::TlsCiphers, "ECDHE-RSA-AES128-GCM-SHA256:DES-CBC3-SHA");
        assert!(
            ciphers.starts_with("tls-ciphers: unknown cipher 'DES-CBC3-SHA': the server has ECDHE-"),
            "{ciphers}"
        );
        let suites = error(Id::TlsCipherSuites, "TLS_AES_128_CCM_SHA256");
        assert!(suites.starts_with("tls-ciphersuites: unknown cipher 'TLS_AES_128_CCM_SHA256'"), "{suites}");
        let version = error(Id::TlsProtocols, "TLSv1.1 TLSv1.2");
        assert!(version.starts_with("tls-protocols: unknown or outdated version 'TLSv1.1'"), "{version}");
    }

    #[test]
    fn client_certificates_need_an_authority() {
        let provider = Arc::new(ring::default_provider());
        for word in ["yes", "optional"] {
            let error = with(&[(Id::TlsAuthClients, word)]).verifier(&provider).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("tls-auth-clients: '{word}' needs the authorities")),
                "{error}"
            );
        }
        assert!(with(&[(Id::TlsAuthClients, "no")]).verifier(&provider).is_ok());
    }

    #[test]
    fn fingerprint_changes_with_the_files() {
        let folder = std::env::temp_dir().join(format!("millstream-tls-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("cert", "one");
        let cert = folder.join("cert").display().to_string();
        let authorities = folder.display().to_string();
        let settings = with(&[(Id::TlsCertFile, &cert), (Id::TlsCaCertDir, &authorities)]);
        let mut last = settings.fingerprint();
        assert_eq!(last, settings.fingerprint());
        let mut has_changed = || {
            let before = std::mem::replace(&mut last, settings.fingerprint());
            before != last
        };
        write("cert", "another");
        assert!(has_changed());
        // As certbot and Kubernetes do: a new file in place of the old one, with the same length and time.
        let modified = fs::metadata(&cert).unwrap().modified().unwrap();
        write("new", "another");
        fs::File::options().write(true).open(folder.join("new")).unwrap().set_modified(modified).unwrap();
        assert!(has_changed());
        fs::rename(folder.join("new"), &cert).unwrap();
        assert!(has_changed() && !has_changed());
        write("authority", "");
        assert!(has_changed());
        fs::remove_dir_all(&folder).unwrap();
        assert!(has_changed());
    }
}
