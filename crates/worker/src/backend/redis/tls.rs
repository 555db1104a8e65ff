//! Errors of TLS connections, in words that say what is wrong with which certificate.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

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
