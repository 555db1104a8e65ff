//! Stores that require TLS, a client certificate and a password: every tool can connect, with flags and with
//! environment variables, and no password is shown.

use std::fs;
use std::net::TcpListener;

use crate::support::certificates::Certificates;
use crate::support::run::Run;
use crate::test_store::TestStore;

const PASSWORD: &str = "p@ss:/?#%&é w";
const ENCODED_PASSWORD: &str = "p%40ss%3A%2F%3F%23%25%26%C3%A9%20w";

/// A server with orders, and the files that clients need.
struct SecureStore {
    store: TestStore,
    /// Its folder contains the files.
    _files: TestStore,
    certificates: Certificates,
    /// The address of the server, for URLs.
    address: String,
}

impl SecureStore {
    fn new() -> SecureStore {
        let files = TestStore::embedded();
        let certificates = Certificates::new(&files.folder);
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).unwrap().port();
        let (port, authority) = (port.to_string(), certificates.path("ca.pem"));
        let mut flags = certificates.flags("server");
        flags.extend(["--tls-port", &port, "--tls-ca-cert-file", &authority].map(str::to_owned));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let store = TestStore::empty(&flags);
        store.fill();
        store.call(&["CONFIG", "SET", "requirepass", PASSWORD]);
        SecureStore { store, _files: files, certificates, address: format!("127.0.0.1:{port}") }
    }

    /// Runs the binary with these arguments and variables, and checks that it does not print the password.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
        let mut command = self.store.command(arguments);
        command.env_remove("MILLSTREAM_URL").envs(variables.iter().copied());
        let output = command.output().expect("run the binary");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let (code, out, err) = (output.status.code(), text(output.stdout), text(output.stderr));
        for secret in [PASSWORD, ENCODED_PASSWORD] {
            assert!(!out.contains(secret) && !err.contains(secret), "{arguments:?} printed the password");
        }
        Run { command: arguments.join(" "), code, out, err }
    }
}

#[test]
fn every_tool_connects_with_tls_a_client_certificate_and_a_password() {
    let secure = SecureStore::new();
    let path = |file: &str| secure.certificates.path(file);
    let (ca, cert, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let url = format!("rediss://{}", secure.address);
    let variables = [
        ("MILLSTREAM_URL", &*url),
        ("MILLSTREAM_PASSWORD", PASSWORD),
        ("MILLSTREAM_CACERT", &*ca),
        ("MILLSTREAM_CERT", &*cert),
        ("MILLSTREAM_KEY", &*key),
    ];
    for command in [
        &["add", "orders", "item=book"][..],
        &["tail", "orders", "--no-follow"],
        &["stream", "ls"],
        &["group", "describe", "orders"],
        &["pending", "ls", "orders", "billing"],
        &["dlq", "ls", "orders"],
        &["lag"],
        &["top", "--once", "--interval", "100ms"],
        &["metrics", "--once"],
    ] {
        secure.run(command, &variables).ok();
    }
    secure.run(&["doctor"], &variables).exits(5).stdout_contains("exact_lag");
    let work = ["work", "--stream", "orders", "--group", "new", "--exec", "env", "--until-empty"];
    let worked = secure.run(&work, &variables).ok();
    assert!(!worked.out.contains("MILLSTREAM_PASSWORD"), "handlers inherit the password: {}", worked.out);

    // The same with flags, and the password in a file or in the URL.
    let password_file = path("password");
    fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
    let with_password = format!("rediss://:{ENCODED_PASSWORD}@{}", secure.address);
    let tls = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    secure.run(&[&["lag", "--url", &url, "--password-file", &password_file][..], &tls].concat(), &[]).ok();
    secure.run(&[&["stream", "ls", "--url", &with_password][..], &tls].concat(), &[]).ok();
    let insecure = ["--insecure", "--cert", &cert, "--key", &key];
    secure.run(&[&["lag", "--url", &with_password][..], &insecure].concat(), &[]).ok();
}

#[test]
fn each_problem_with_tls_or_the_password_has_its_own_remedy() {
    let secure = SecureStore::new();
    let path = |file: &str| secure.certificates.path(file);
    let (ca, cert, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let url = format!("rediss://{}", secure.address);
    let lag = |flags: &[&str]| secure.run(&[&["lag", "--url", &url][..], flags].concat(), &[]);
    let full = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    lag(&full).exits(3).stderr_contains("MILLSTREAM_PASSWORD");
    lag(&[]).exits(3).stderr_contains("not signed by a trusted authority").stderr_contains("--cacert FILE");
    lag(&["--cacert", &ca]).exits(3).stderr_contains("client certificate").stderr_contains("--cert FILE");
    lag(&["--cert", &cert]).exits(2).stderr_contains("--cert and --key");
    lag(&["--cacert", &key]).exits(1).stderr_contains("contains no certificate");
    lag(&["--password-file", "/nowhere"]).exits(1).stderr_contains("cannot read the password file /nowhere");
    let wrong = format!("rediss://:wrong-one@{}", secure.address);
    let denied = secure.run(&[&["lag", "--url", &wrong][..], &full].concat(), &[]).exits(3);
    assert!(!denied.err.contains("wrong-one"), "{}", denied.err);

    let plain = format!("redis://{}", secure.address);
    secure.run(&["lag", "--url", &plain], &[]).exits(3).stderr_contains("TLS").stderr_contains("rediss://");
    secure
        .run(&["lag", "--url", &plain, "--insecure"], &[])
        .exits(2)
        .stderr_contains("certificates need TLS");
}

/// The users of docs/workers/security.md can use the tools of their role, and no others.
#[test]
fn tools_run_with_the_documented_permissions() {
    let Some(store) = TestStore::redis() else { return };
    let page = include_str!("../../../../docs/workers/security.md");
    for line in page.lines().filter(|line| line.starts_with("ACL SETUSER ") && !line.contains("+xnack")) {
        store.call(&line.split(' ').collect::<Vec<_>>());
    }
    let run = |user: &str, arguments: &[&str]| {
        let url = store.url.replace("redis://", &format!("redis://{user}:secret@"));
        store.run(&[arguments, &["--url", &url]].concat())
    };
    for command in [
        &["lag"][..],
        &["top", "--once", "--interval", "100ms"],
        &["metrics", "--once"],
        &["stream", "info", "orders"],
        &["group", "describe", "orders"],
        &["pending", "ls", "orders", "billing"],
        &["dlq", "ls", "orders"],
        &["tail", "orders", "--no-follow"],
    ] {
        run("operator", command).ok();
    }
    let doctor = run("operator", &["doctor"]).exits(5);
    doctor
        .stdout_contains("extends")
        .stdout_contains("idempotent_adds, delayed_entries: user operator has no permission");
    let denied = run("operator", &["add", "orders", "item=pen"]).exits(3);
    let denied = denied.stderr_contains("grant it with: ACL SETUSER operator +xadd");
    assert!(!denied.err.contains("password"), "{}", denied.err);
    run("producer", &["add", "orders", "item=pen"]).ok();
    run("redriver", &["dlq", "redrive", "orders"]).ok();
    let work = ["work", "--stream", "orders", "--group", "billing", "--exec", "true", "--until-empty"];
    run("worker", &[&work[..], &["--lease", "100ms", "--dedupe", "1h"]].concat()).ok();
    run("producer", &work).exits(3).stderr_contains("+xreadgroup").stderr_contains("+xack");
    store.call(&["ACL", "SETUSER", "operator", "-info", "-config"]);
    run("operator", &["doctor"]).stdout_contains("the server could not be checked");
}
