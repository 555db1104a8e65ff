//! New certificates without a restart: CONFIG SET, SIGHUP, and files that cannot be used.

use super::client::{TlsClient, TlsServer};
use crate::process::TempDir;

#[test]
fn config_set_reads_the_files_again_and_connections_stay() {
    let tls = TlsServer::start(&[]);
    let mut earlier = tls.connect();
    let first = tls.certificate("server");
    assert_eq!(earlier.server_certificate(), first);

    // The same paths with new content.
    tls.certificates.sign("server", "ca");
    assert_eq!(tls.connect().server_certificate(), first);
    let path = tls.certificates.path("server.pem");
    tls.server.connect().call(&format!("CONFIG SET tls-cert-file {path}"), "+OK\r\n");
    let second = tls.certificate("server");
    assert_ne!(second, first);
    assert_eq!(tls.connect().server_certificate(), second);
    earlier.call("PING", "+PONG\r\n");

    // Other paths, both in one command.
    let [cert, key] = ["client.pem", "client.key"].map(|file| tls.certificates.path(file));
    tls.server.connect().call(&format!("CONFIG SET tls-cert-file {cert} tls-key-file {key}"), "+OK\r\n");
    assert_eq!(tls.connect().server_certificate(), tls.certificate("client"));
    let shown = tls.server.connect().ask(&["CONFIG GET tls-key-file"]);
    assert!(shown.contains("client.key"), "{shown}");
    earlier.call("PING", "+PONG\r\n");
}

#[test]
fn unusable_files_leave_the_earlier_certificate_in_force() {
    let tls = TlsServer::start(&[]);
    let first = tls.certificate("server");
    let [cert, key] = ["client.pem", "client.key"].map(|file| tls.certificates.path(file));
    for (settings, related) in [
        // The certificate and the key do not belong together.
        (format!("tls-cert-file {cert}"), "tls-cert-file"),
        (format!("tls-key-file {key}"), "tls-key-file"),
        (format!("tls-cert-file {cert} tls-key-file /missing"), "tls-key-file"),
        (format!("maxclients 7 tls-cert-file {cert}"), "tls-cert-file"),
        ("tls-ciphers RC4".to_owned(), "tls-ciphers"),
    ] {
        let reply = tls.server.connect().ask(&[&format!("CONFIG SET {settings}")]);
        let expected = format!("-ERR CONFIG SET failed (possibly related to argument '{related}') - tls-");
        assert!(reply.starts_with(&expected), "{settings}: {reply}");
        assert_eq!(tls.connect().server_certificate(), first);
    }
    let shown = tls.server.connect().ask(&["CONFIG GET tls-cert-file", "CONFIG GET maxclients"]);
    assert!(shown.contains("server.pem") && !shown.contains("$1\r\n7\r\n"), "{shown}");
}

#[test]
fn sighup_reads_the_files_again() {
    let dir = TempDir::new();
    let file = dir.write("m.toml", "timeout = 50\n");
    let mut tls = TlsServer::start(&["--config", &file]);
    let first = tls.certificate("server");
    let mut earlier = tls.connect();
    tls.certificates.sign("new", "ca");

    // Only the certificate is new: the key does not fit. So the setting does not change either.
    tls.copy("new.pem", "server.pem");
    dir.write("m.toml", "timeout = 60\n");
    tls.server.signal("-HUP");
    let line = tls.server.line_with("SIGHUP");
    assert!(line.contains("nothing was changed: the server cannot use the TLS files"), "{line}");
    assert!(line.contains("keeps the earlier ones: tls-cert-file: cannot use "), "{line}");
    assert_eq!(tls.connect().server_certificate(), first);
    tls.server.connect().call("CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$2\r\n50\r\n");

    tls.copy("new.key", "server.key");
    tls.server.signal("-HUP");
    let line = tls.server.line_with("SIGHUP");
    assert!(
        line.contains("SIGHUP: changed timeout to 60; the server has read the TLS files again, and uses"),
        "{line}"
    );
    assert_eq!(tls.connect().server_certificate(), tls.certificate("new"));
    earlier.call("PING", "+PONG\r\n");
}

/// A session of an earlier configuration cannot be resumed: its client may have had a certificate that is no longer
/// accepted.
#[test]
fn sessions_are_resumed_until_the_configuration_changes() {
    let tls = TlsServer::start(&[]);
    let config = tls.config(None);
    let connect = || {
        let mut client = TlsClient::connect(tls.address(), config.clone()).unwrap();
        // The ticket for the next connection arrives with the first reply.
        client.call("PING", "+PONG\r\n");
        client.is_resumed()
    };
    assert!(!connect());
    assert!(connect());
    tls.server.connect().call("CONFIG SET tls-session-cache-size 100", "+OK\r\n");
    assert!(!connect());
    assert!(connect());
    tls.server.connect().call("CONFIG SET tls-session-caching no", "+OK\r\n");
    assert!(!connect());
    assert!(!connect());
}
