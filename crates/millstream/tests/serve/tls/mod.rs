//! TLS: commands over it, client certificates, reload, refused files, and clients that break off or misbehave.

pub(crate) mod client;
mod hostile;
mod reload;

use std::process::Command;

use rustls::version::{TLS12, TLS13};

use crate::process::{TempDir, eventually, millstream, request};
use client::{TlsClient, TlsServer};

#[test]
fn commands_run_over_every_version() {
    let tls = TlsServer::start(&[]);
    let port = tls.tls_port;
    assert!(tls.server.greeting.contains(&format!(", rediss://127.0.0.1:{port}")), "{}", tls.server.greeting);
    for version in [&TLS12, &TLS13] {
        let config = tls.config_for(None, &[version]);
        let mut client = TlsClient::connect(tls.address(), config).unwrap();
        client.call("PING", "+PONG\r\n");
        client.call("FLUSHALL", "+OK\r\n");
        client.call("XADD s 1-1 a b", "$3\r\n1-1\r\n");
        // Another client, without TLS, sees the same data.
        tls.server.connect().call("XLEN s", ":1\r\n");

        // A blocked client is woken.
        client.send("XREAD BLOCK 0 STREAMS s $\r\n");
        eventually("the client is blocked", || {
            tls.server.connect().ask(&["INFO clients"]).contains("blocked_clients:1")
        });
        tls.server.connect().call("XADD s 2-1 a b", "$3\r\n2-1\r\n");
        client.expect("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n2-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
        client.call("QUIT", "+OK\r\n");
        client.expect_closed();
    }
    let info = tls.server.connect().ask(&["INFO server"]);
    let ports = [tls.server.port, port].map(|port| format!(",port={port}\r\n"));
    assert!(info.contains("listener0:name=tcp,bind=127.0.0.1") && info.contains(&ports[0]), "{info}");
    assert!(info.contains("listener1:name=tls,bind=127.0.0.1") && info.contains(&ports[1]), "{info}");
}

#[test]
fn large_requests_and_replies_arrive_whole() {
    let tls = TlsServer::start(&[]);
    let mut client = tls.connect();
    let value: String = (0..3_000_000_u32).map(|number| char::from(b'a' + (number % 23) as u8)).collect();
    client.send(request(&["SET", "k", &value]));
    client.expect("+OK\r\n");
    // The replies fill the socket, so the server has to wait until it can send more.
    client.send("GET k\r\n".repeat(8));
    eventually("replies wait", || {
        let list = tls.server.connect().ask(&["CLIENT LIST"]);
        list.lines().any(|line| line.contains("cmd=get") && !line.contains(" omem=0 "))
    });
    let reply = format!("${}\r\n{value}\r\n", value.len());
    for _ in 0..8 {
        assert!(client.read(reply.len()) == reply.as_bytes(), "the reply differs");
    }

    // A reply of many entries is sent in slices.
    let adds: String = (1..=3_000).map(|id| format!("XADD s {id}-0 field value{id}\r\n")).collect();
    client.send(adds);
    (1..=3_000).for_each(|id| client.expect(&format!("${}\r\n{id}-0\r\n", format!("{id}-0").len())));
    client.send("XRANGE s - +\r\nPING\r\n");
    let entries: String = (1..=3_000)
        .map(|id| format!("*2\r\n{}{}", bulk(&format!("{id}-0")), pair(&format!("value{id}"))))
        .collect();
    client.expect(&format!("*3000\r\n{entries}+PONG\r\n"));
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn pair(value: &str) -> String {
    format!("*2\r\n{}{}", bulk("field"), bulk(value))
}

#[test]
fn many_pipelined_requests_arrive_in_order() {
    let tls = TlsServer::start(&[]);
    let mut client = tls.connect();
    let lengths = (0..400).map(|number| number * 97 % 30_000);
    let echoes: Vec<String> = lengths.map(|length| "e".repeat(length + 1)).collect();
    // Requests of many sizes, so that records end at every place of a request.
    for echo in &echoes {
        client.send(request(&["ECHO", echo]));
    }
    echoes.iter().for_each(|echo| client.expect(&bulk(echo)));
}

#[test]
fn port_zero_beside_tls_port_opens_only_the_tls_port() {
    let tls = TlsServer::start(&[]);
    let dir = TempDir::new();
    let mut command = millstream(&dir);
    command.args(["serve", "--appendonly", "no", "--port", "0", "--tls-auth-clients", "no"]);
    // The port of a server that has ended is free.
    let port = tls.tls_port;
    let flags = tls.certificates.flags("server");
    let TlsServer { server, .. } = &tls;
    server.signal("-KILL");
    command.args(["--tls-port", &port.to_string()]).args(flags);
    eventually("the port is free", || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
    let only = crate::process::Server::try_spawn(command, Some(dir)).unwrap();
    let listening = only.greeting.lines().find(|line| line.contains("listening")).unwrap();
    assert_eq!(listening.matches("127.0.0.1:").count(), 1, "{listening}");
    assert!(listening.contains(&format!("rediss://127.0.0.1:{port}")), "{listening}");
    let mut client = tls.connect();
    client.call("PING", "+PONG\r\n");
    let info = client.ask("INFO server").unwrap();
    assert!(info.contains(&format!("tcp_port:{port}\r\n")) && !info.contains("name=tcp"), "{info}");
}

#[test]
fn client_certificates_are_checked() {
    let tls = TlsServer::start_with(&[]);
    tls.certificates.add_authority("other");
    tls.certificates.sign("stranger", "other");
    tls.certificates.sign_for_days("expired", "ca", -1);
    let refused = |name| tls.ping_with(name).expect_err("no reply");

    assert_eq!(tls.ping_with(Some("client")).as_deref(), Ok("+PONG\r\n"));
    assert!(refused(None).contains("CertificateRequired"), "{}", refused(None));
    assert!(refused(Some("stranger")).contains("UnknownCA"), "{}", refused(Some("stranger")));
    assert!(refused(Some("expired")).contains("CertificateExpired"), "{}", refused(Some("expired")));

    tls.server.connect().call("CONFIG SET tls-auth-clients optional", "+OK\r\n");
    assert_eq!(tls.ping_with(None).as_deref(), Ok("+PONG\r\n"));
    assert_eq!(tls.ping_with(Some("client")).as_deref(), Ok("+PONG\r\n"));
    assert!(refused(Some("stranger")).contains("UnknownCA"));

    tls.server.connect().call("CONFIG SET tls-auth-clients no", "+OK\r\n");
    assert_eq!(tls.ping_with(None).as_deref(), Ok("+PONG\r\n"));
    assert_eq!(tls.ping_with(Some("stranger")).as_deref(), Ok("+PONG\r\n"));

    // Authorities can also come from a folder.
    let folder = TempDir::new();
    std::fs::copy(tls.certificates.path("other.pem"), folder.path.join("other.pem")).unwrap();
    let folder = folder.path.display();
    let set = format!("CONFIG SET tls-auth-clients yes tls-ca-cert-file '' tls-ca-cert-dir {folder}");
    tls.server.connect().call(&set, "+OK\r\n");
    assert_eq!(tls.ping_with(Some("stranger")).as_deref(), Ok("+PONG\r\n"));
    assert!(refused(Some("client")).contains("UnknownCA"));
}

/// A certificate proves who a client is. It is no password.
#[test]
fn certificate_does_not_replace_the_password() {
    let tls = TlsServer::start_with(&["--requirepass", "secret"]);
    assert_eq!(tls.ping_with(Some("client")).as_deref(), Ok("-NOAUTH Authentication required.\r\n"));
}

#[test]
fn requests_can_follow_the_login_in_the_same_record() {
    let tls = TlsServer::start(&["--requirepass", "secret"]);
    let mut client = tls.connect();
    // As long as a record can be.
    let echo = "e".repeat(16_000);
    client.send(format!("AUTH secret\r\nECHO {echo}\r\n"));
    client.expect(&format!("+OK\r\n{}", bulk(&echo)));
}

#[test]
fn unusable_tls_settings_are_refused_at_start() {
    let dir = TempDir::new();
    let made = crate::certificates::Certificates::new(&dir.path);
    made.openssl("pkey -in server.key -out encrypted.key -aes256 -passout pass:secret");
    dir.write("empty.pem", "no certificate\n");
    let refused = |flags: &[&str], expected: &str| {
        let mut command = millstream(&dir);
        command.args(["serve", "--appendonly", "no", "--port", "0", "--tls-port", "1"]).args(flags);
        command.args(["--bind", "-127.0.0.254", "--unixsocket", "socket"]);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(expected), "{printed}\nlacks: {expected}");
    };
    let own = ["--tls-cert-file", "server.pem", "--tls-key-file", "server.key"];
    let cert = |file| ["--tls-auth-clients", "no", "--tls-cert-file", file, "--tls-key-file", "server.key"];
    let key = |file| ["--tls-auth-clients", "no", "--tls-cert-file", "server.pem", "--tls-key-file", file];
    let with = |more: &[&'static str]| [&own[..], more].concat();

    refused(
        &own,
        "tls-auth-clients: 'yes' needs the authorities of client certificates: set tls-ca-cert-file",
    );
    refused(&with(&["--tls-auth-clients", "optional"]), "tls-auth-clients: 'optional' needs the authorities");
    refused(&with(&["--tls-ca-cert-file", "missing"]), "tls-ca-cert-file: cannot use missing: ");
    refused(&with(&["--tls-ca-cert-dir", "missing"]), "tls-ca-cert-dir: cannot use missing: ");
    refused(&["--tls-auth-clients", "no"], "tls-cert-file: this setting is required if tls-port is set");
    refused(&cert("missing"), "tls-cert-file: cannot use missing: ");
    refused(&cert("empty.pem"), "tls-cert-file: cannot use empty.pem: it contains no PEM certificate");
    refused(&cert("client.pem"), "tls-cert-file: cannot use client.pem: with the key server.key: ");
    refused(&key("server.pem"), "tls-key-file: cannot use server.pem: it contains no PEM private key");
    refused(&key("encrypted.key"), "tls-key-file: cannot use encrypted.key: the key is encrypted");
    refused(&with(&["--tls-auth-clients", "no", "--tls-protocols", "TLSv1.1"]), "outdated version 'TLSv1.1'");
    refused(
        &with(&["--tls-auth-clients", "no", "--tls-ciphers", "RC4"]),
        "tls-ciphers: unknown cipher 'RC4'",
    );
}

#[test]
fn versions_and_ciphers_can_be_limited() {
    let tls =
        TlsServer::start(&["--tls-protocols", "TLSv1.3", "--tls-ciphersuites", "TLS_AES_128_GCM_SHA256"]);
    let connect = |version| TlsClient::connect(tls.address(), tls.config_for(None, &[version])).map(drop);
    assert_eq!(connect(&TLS13), Ok(()));
    assert!(connect(&TLS12).is_err_and(|error| error.contains("ProtocolVersion")), "{:?}", connect(&TLS12));
    let set = "CONFIG SET tls-protocols TLSv1.2 tls-ciphers ECDHE-RSA-AES128-GCM-SHA256";
    tls.server.connect().call(set, "+OK\r\n");
    // The server's key is not an RSA key, so the only cipher cannot be used.
    assert!(connect(&TLS12).is_err_and(|error| error.contains("HandshakeFailure")), "{:?}", connect(&TLS12));
    tls.server.connect().call("CONFIG SET tls-ciphers ECDHE-ECDSA-AES128-GCM-SHA256", "+OK\r\n");
    assert_eq!(connect(&TLS12), Ok(()));
}

#[test]
fn redis_cli_and_our_own_tools_connect() {
    let tls = TlsServer::start_with(&[]);
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|file| tls.certificates.path(file));
    let port = tls.tls_port.to_string();
    let redis_cli = |flags: &[&str], command: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["--tls", "-p", &port, "--cacert", &ca]).args(flags).args(command);
        let output = cli.output().expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let with_certificate = ["--cert", cert.as_str(), "--key", key.as_str()];
    assert_eq!(redis_cli(&with_certificate, &["XADD", "s", "1-1", "a", "b"]), "1-1\n");
    assert_ne!(redis_cli(&[], &["PING"]), "PONG\n");
    tls.server.connect().call("CONFIG SET tls-auth-clients no", "+OK\r\n");
    assert_eq!(redis_cli(&[], &["XLEN", "s"]), "1\n");

    let dir = TempDir::new();
    let url = format!("rediss://127.0.0.1:{port}/?ca={ca}");
    let listed = millstream(&dir).args(["stream", "ls", "--url", &url]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    assert!(String::from_utf8_lossy(&listed.stdout).contains('s'), "{listed:?}");
}
