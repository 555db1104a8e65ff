//! Connections with TLS: certificates of servers and clients, and what the error says if something is wrong with one.

use std::path::PathBuf;

use millstream_worker::backend::ErrorKind;
use millstream_worker::{ConnectOptions, Error, connect};

use super::certificates::Certificates;
use super::peers::REDIS_7_0;
use super::servers::{Folder, Program, Server, free_port, new_folder};
use super::{cases, connect_error};

/// Certificates, removed on drop: those of [`Certificates::new`], and `foreign`, which another authority has signed.
struct TestCertificates {
    certificates: Certificates,
    _folder: Folder,
}

impl TestCertificates {
    fn new() -> TestCertificates {
        let folder = new_folder();
        let certificates = Certificates::new(folder.path());
        certificates.add_authority("other-ca");
        certificates.sign("foreign", "other-ca");
        TestCertificates { certificates, _folder: folder }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.certificates.path(file).into()
    }

    /// Returns arguments of a server with the certificate `name`.
    fn arguments(&self, name: &str, auth_clients: &str) -> Vec<String> {
        let mut arguments = self.certificates.flags(name);
        let authority = self.certificates.path("ca.pem");
        let more = ["--tls-ca-cert-file", &authority, "--tls-auth-clients", auth_clients];
        arguments.extend(more.map(str::to_owned));
        arguments
    }

    /// Options that trust the right authority.
    fn trusting(&self) -> ConnectOptions {
        ConnectOptions::new().ca_file(self.path("ca.pem"))
    }
}

fn programs() -> [Program; 2] {
    [Program::Peer(&REDIS_7_0), Program::Millstream]
}

fn start(program: Program, arguments: &[String], more: &[&str]) -> Option<Server> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Server::tls(program, &arguments)
}

async fn failure(options: &ConnectOptions, url: &str) -> Error {
    match options.connect(url).await {
        Ok(backend) => panic!("{url} connected to {}", backend.location()),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_password_pass_all_cases() {
    let certificates = TestCertificates::new();
    for program in programs() {
        let arguments = certificates.arguments("server", "no");
        let Some(server) = start(program, &arguments, &["--requirepass", "secret"]) else { continue };
        let at = format!("127.0.0.1:{}", server.port);
        let ca = certificates.path("ca.pem").display().to_string();
        let backend = connect(&format!("rediss://:secret@{at}/?ca={ca}")).await.unwrap();
        assert_eq!(backend.location(), format!("rediss://{at}"));
        cases::all(&*backend).await;
        connect(&format!("rediss://:secret@{at}/#insecure")).await.unwrap().ping().await.unwrap();
        let options = ConnectOptions::new().password("secret").insecure();
        options.connect(&format!("rediss://{at}")).await.unwrap().ping().await.unwrap();
        for denied in ["rediss://:wrong@", "rediss://nobody:secret@", "rediss://"] {
            let error = connect_error(&format!("{denied}{at}/?ca={ca}")).await;
            assert_eq!(error.kind(), ErrorKind::Denied, "{denied}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_can_require_client_certificates() {
    let certificates = TestCertificates::new();
    for program in programs() {
        let Some(server) = start(program, &certificates.arguments("server", "yes"), &[]) else { continue };
        let url = format!("rediss://127.0.0.1:{}", server.port);
        let with = |name: &str| {
            let key = certificates.path(&format!("{name}.key"));
            certificates.trusting().client_certificate(certificates.path(&format!("{name}.pem")), key)
        };
        with("client").connect(&url).await.unwrap().ping().await.unwrap();
        for (options, reason) in [
            (certificates.trusting(), "the server requires a client certificate"),
            (with("foreign"), "the server rejected the client certificate"),
        ] {
            let error = failure(&options, &url).await;
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{program:?}: {error}");
            // On a busy machine, the reason can get lost each time.
            let is_named = error.to_string().contains(reason)
                || error.to_string().contains("may require a client certificate");
            assert!(is_named, "{program:?}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_is_wrong_with_the_servers_certificate() {
    let certificates = TestCertificates::new();
    certificates.certificates.sign_for_days("expired", "ca", -1);
    let other_address = ["--bind", "127.0.0.2"];
    let arguments = certificates.arguments("server", "no");
    let Some(server) = start(Program::Millstream, &arguments, &other_address) else { return };
    let Some(expired) = start(programs()[0], &certificates.arguments("expired", "no"), &[]) else { return };
    let plain = Server::start(Program::Millstream, &[]);
    let other_ca = ConnectOptions::new().ca_file(certificates.path("other-ca.pem"));
    let cases = [
        (ConnectOptions::new(), format!("rediss://127.0.0.2:{}", server.port), "a trusted authority"),
        (other_ca, format!("rediss://127.0.0.2:{}", server.port), "a trusted authority"),
        (certificates.trusting(), format!("rediss://127.0.0.2:{}", server.port), "for another host"),
        (certificates.trusting(), format!("rediss://127.0.0.1:{}", expired.port), "has expired"),
        (certificates.trusting(), format!("rediss://127.0.0.1:{}", plain.port), "not speak TLS on this port"),
        (ConnectOptions::new(), format!("redis://127.0.0.2:{}", server.port), "TLS"),
        (ConnectOptions::new(), format!("redis://127.0.0.1:{}", expired.port), "may require TLS"),
    ];
    for (options, url, reason) in cases {
        for url in [url.clone(), url.replace("://", "+cluster://")] {
            let error = failure(&options, &url).await;
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{url}: {error}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_certificate_files_are_named() {
    let certificates = TestCertificates::new();
    let path = |file: &str| certificates.path(file);
    // Without extensions, openssl makes a certificate of version 1.
    certificates
        .certificates
        .openssl("x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out old.pem -days 2");
    let with =
        |certificate: &str, key: &str| ConnectOptions::new().client_certificate(path(certificate), path(key));
    for (options, parts) in [
        (ConnectOptions::new().ca_file(path("missing.pem")), ["cannot read", "missing.pem"]),
        (ConnectOptions::new().ca_file(path("ca.key")), ["ca.key", "contains no certificate"]),
        (with("client.pem", "client.pem"), ["client.pem", "contains no private key"]),
        (with("client.pem", "server.key"), ["server.key", "does not belong to"]),
        (with("old.pem", "client.key"), ["old.pem", "version 1"]),
    ] {
        let error = failure(&options, "rediss://127.0.0.1:1").await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
}

/// One node that serves all slots, with a user, a client certificate and TLS.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_can_require_client_certificates() {
    let certificates = TestCertificates::new();
    let (plain, port) = (free_port().to_string(), free_port().to_string());
    let mut arguments = certificates.arguments("server", "yes");
    // The test configures the node over the port without TLS.
    let more =
        ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-port", &port, "--cluster-port", &plain];
    arguments.extend(more.map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(server) = Server::redis(&arguments) else { return };
    assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "OK");
    assert_eq!(server.cli(&["ACL", "SETUSER", "worker", "on", ">p@ss", "~*", "+@all"]), "OK");
    cases::wait_until(|| async { server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") }).await;
    let options = certificates.trusting().password("p@ss");
    let options =
        options.client_certificate(certificates.path("client.pem"), certificates.path("client.key"));
    let backend = options.connect(&format!("rediss+cluster://worker@127.0.0.1:{port}")).await.unwrap();
    cases::producing::all(&*backend).await;
    cases::blocking::all(&*backend).await;
    cases::listing::all(&*backend).await;
}
