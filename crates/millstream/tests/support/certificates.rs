//! Certificates for tests, made by the program `openssl`: authorities, and certificates that they sign.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with certificates and keys: `NAME.pem` and `NAME.key`.
pub(crate) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes the authority `ca`, and the certificates `server` and `client` that it signs.
    pub(crate) fn new(folder: &Path) -> Certificates {
        let certificates = Certificates { folder: folder.to_owned() };
        certificates.add_authority("ca");
        certificates.sign("server", "ca");
        certificates.sign("client", "ca");
        certificates
    }

    pub(crate) fn add_authority(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 {NEW_KEY} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"
        ));
    }

    /// Makes a certificate for 127.0.0.1, or replaces it and its key.
    pub(crate) fn sign(&self, name: &str, authority: &str) {
        self.sign_for_days(name, authority, 2);
    }

    /// Makes a certificate that is valid for this number of days. If the number is negative, it has expired.
    pub(crate) fn sign_for_days(&self, name: &str, authority: &str, days: i32) {
        // Extensions also make the certificate one of version 3, which rustls requires.
        fs::write(self.folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n")
            .expect("write names");
        self.openssl(&format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {name}.pem \
             -days {days} -extfile names"
        ));
    }

    /// Runs openssl in the folder, with these arguments.
    pub(crate) fn openssl(&self, arguments: &str) {
        let made = Command::new("openssl")
            .args(arguments.split_ascii_whitespace())
            .current_dir(&self.folder)
            .output()
            .expect("openssl is installed");
        assert!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Returns the flags of a server with this certificate.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        vec!["--tls-cert-file".to_owned(), certificate, "--tls-key-file".to_owned(), key]
    }
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
