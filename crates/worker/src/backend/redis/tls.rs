//! TLS connections: which certificates they trust and send, and errors that say what is wrong with which certificate.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError,
    RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

use super::super::{Error, ErrorKind};
use super::ServerOptions;

/// Returns what connects with TLS. If `insecure`, it accepts any certificate of the server.
pub(super) fn connector(options: &ServerOptions, insecure: bool) -> Result<TlsConnector, Error> {
    configured(options, insecure).map(|config| TlsConnector::from(Arc::new(config))).map_err(|reason| {
        Error::new(ErrorKind::Refused, format!("cannot use the certificates for TLS: {reason}"))
    })
}

fn configured(options: &ServerOptions, insecure: bool) -> Result<ClientConfig, Box<dyn StdError>> {
    let certificates = |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    match &options.ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => certificates(pem)?.into_iter().try_for_each(|certificate| roots.add(certificate))?,
    }
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let mut config = match &options.client {
        Some((chain, key)) => {
            config.with_client_auth_cert(certificates(chain)?, PrivateKeyDer::from_pem_slice(key)?)?
        }
        None => config.with_no_client_auth(),
    };
    if insecure {
        config.enable_sni = false;
        config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate(provider)));
    }
    Ok(config)
}

/// Accepts any certificate. The server must still have its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns a description of the TLS error in an error of the client library, or `None` if it is another error.
pub(super) fn describe(error: &RedisError) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref::<TlsError>() {
            return Some(text_of(tls));
        }
        // The client library keeps causes behind a shared reference, and an I/O error has its cause inside.
        cause = if let Some(shared) = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
            Some(&**shared)
        } else if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner)
        } else {
            error.source()
        };
    }
    None
}

fn text_of(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(reason) => match reason {
            CertificateError::UnknownIssuer => {
                "the server's certificate is not signed by a trusted authority".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the server's certificate is for another host: {reason}")
            }
            _ => format!("the server's certificate is invalid: {reason}"),
        },
        TlsError::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server requires a client certificate".to_owned()
        }
        TlsError::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied),
        ) => format!("the server rejected the client certificate: {alert:?}"),
        other => format!("TLS failed: {other}"),
    }
}
