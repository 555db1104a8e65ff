//! The same suites over TLS, with and without client certificates.

use std::path::PathBuf;
use std::process::Command;

use crate::suites;
use crate::support::certificates::Certificates;
use crate::support::process::{Server, free_port};
use crate::support::run::new_folder;

/// A server with a port for TLS.
struct TlsServer {
    server: Server,
    port: u16,
    certificates: Certificates,
    folder: PathBuf,
}

impl TlsServer {
    /// Starts a server. `auth_clients` is its setting `tls-auth-clients`.
    fn start(auth_clients: &str) -> TlsServer {
        let (folder, port) = (new_folder(), free_port());
        let certificates = Certificates::new(&folder);
        let (flags, authority) = (certificates.flags("server"), certificates.path("ca.pem"));
        let port_text = port.to_string();
        let mut arguments = vec!["--tls-port", &port_text, "--tls-auth-clients", auth_clients];
        arguments.extend(["--tls-ca-cert-file", &authority]);
        arguments.extend(flags.iter().map(String::as_str));
        TlsServer { server: Server::millstream(&arguments), port, certificates, folder }
    }

    /// Makes a suite connect over TLS.
    fn lead(&self, suite: &mut Command, has_certificate: bool) {
        suite.env("MILLSTREAM_TEST_PORT", self.port.to_string());
        suite.env("MILLSTREAM_TEST_CA", self.certificates.path("ca.pem"));
        if has_certificate {
            suite.env("MILLSTREAM_TEST_CERT", self.certificates.path("client.pem"));
            suite.env("MILLSTREAM_TEST_KEY", self.certificates.path("client.key"));
        }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn redis_py_with_certificate() {
    let tls = TlsServer::start("yes");
    let mut suite = suites::python("python", "test_sync.py", &tls.server);
    tls.lead(&mut suite, true);
    suites::run_python(&mut suite);
}

#[test]
fn redis_py_asyncio_without_certificate() {
    let tls = TlsServer::start("optional");
    let mut suite = suites::python("python", "test_asyncio.py", &tls.server);
    tls.lead(&mut suite, false);
    suites::run_python(&mut suite);
}

#[test]
fn node_redis_with_certificate() {
    let tls = TlsServer::start("yes");
    let mut suite = suites::node("node-redis.test.mjs", &tls.server);
    tls.lead(&mut suite, true);
    suites::run_node(&mut suite);
}

#[test]
fn ioredis_without_certificate() {
    let tls = TlsServer::start("no");
    let mut suite = suites::node("ioredis.test.mjs", &tls.server);
    tls.lead(&mut suite, false);
    suites::run_node(&mut suite);
}
