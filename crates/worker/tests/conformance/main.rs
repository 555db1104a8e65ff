//! One suite for every backend: whatever store is behind the trait, its callers see the same.
//!
//! `cases` has what is asked; the tests here say of whom. Those with a server of their own also look at what only a
//! server can do: go away, come back, refuse.

mod cases;
#[path = "../../../millstream/tests/support/peers.rs"]
mod peers;
mod servers;

use std::time::Duration;

use millstream_worker::backend::{ErrorKind, Idempotence, NewEntry, Read};
use millstream_worker::{Admin, connect};
use peers::{PEERS, Peer, REDIS_6_2, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use servers::{Cluster, Program, Server, Tls, new_folder};

/// How long a condition may take to come true on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    let backend = connect("memory:").await.unwrap();
    cases::all(&*backend).await;
    assert!(backend.capabilities().exact_lag);
    assert_eq!(backend.server(&["appendonly"]).await.unwrap(), None);
}

/// A server tells of itself and of the settings that were asked for, as far as it has them.
async fn tells_about_itself(backend: &dyn Admin, version: &str) {
    let server = backend.server(&["appendonly", "no-such-setting", "save"]).await.unwrap().unwrap();
    assert!(server.facts.contains_key(version), "{server:?}");
    let mut settings: Vec<_> = server.settings.keys().map(String::as_str).collect();
    settings.sort_unstable();
    assert_eq!(settings, ["appendonly", "save"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_folder() {
    let folder = new_folder();
    let url = format!("embedded:{}", folder.path().display());
    let backend = connect(&url).await.unwrap();
    assert_eq!(backend.place(), url);
    cases::all(&*backend).await;
    cases::survive(&*backend, || async {}).await;
    drop(backend);
    // Everything is there again, and the folder was free to open.
    cases::survived(&*connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn millstream_server() {
    let server = Server::start(Program::Millstream, &[]);
    let backend = connect(&server.url()).await.unwrap();
    let natively = backend.capabilities();
    assert!(natively.read_claims && natively.releases && natively.extends, "{natively:?}");
    assert!(natively.idempotent_adds && natively.exact_lag, "{natively:?}");
    let newer = connect(&format!("{}/?protocol=3", server.url())).await.unwrap();
    for backend in [backend, newer] {
        cases::all(&*backend).await;
        tells_about_itself(&*backend, "millstream_version").await;
    }
}

/// The oldest server there is support for.
#[tokio::test(flavor = "multi_thread")]
async fn redis_6_2_server() {
    real_server(&REDIS_6_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_7_0_server() {
    real_server(&REDIS_7_0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_8_2_server() {
    real_server(&REDIS_8_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_9_1_server() {
    real_server(&VALKEY_9_1).await;
}

async fn real_server(peer: &'static Peer) {
    let Some(server) = Server::peer(peer, &[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    cases::all(&*backend).await;
    if peer.redis_version >= (7, 0) {
        cases::groups::lag_is_told(&*backend).await;
    }
    let newer = connect(&format!("{}/?protocol=3", server.url())).await.unwrap();
    cases::all(&*newer).await;
    tells_about_itself(&*backend, "redis_version").await;
    tells_about_itself(&*newer, "redis_version").await;
    let elsewhere = connect(&format!("{}/7", server.url())).await.unwrap();
    assert!(elsewhere.place().ends_with("/7"));
    assert_eq!(elsewhere.streams("*").await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cluster() {
    cluster(&REDIS_7_0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_cluster() {
    cluster(&VALKEY_9_1).await;
}

async fn cluster(peer: &'static Peer) {
    let Some(cluster) = Cluster::start(peer) else { return };
    let backend = connect(&cluster.url()).await.unwrap();
    cases::all(&*backend).await;
    cases::groups::lag_is_told(&*backend).await;
    cases::waiting::follow_a_slot(&*backend, &cluster).await;
    tells_about_itself(&*backend, "redis_version").await;
}

/// A server of the cluster dies, and its replica takes over.
#[tokio::test(flavor = "multi_thread")]
async fn valkey_cluster_fails_over() {
    let Some(mut cluster) = Cluster::start(&VALKEY_9_1) else { return };
    cluster.add_replica();
    let backend = connect(&cluster.url()).await.unwrap();
    let streams: Vec<String> = (0..9).map(|n| format!("failover:{n}")).collect();
    for stream in &streams {
        cases::reading::make(&*backend, stream, 1).await;
        cases::waiting::read_one(&*backend, stream).await;
    }
    cluster.wait_for_the_replica();
    cluster.kill_the_first();
    for stream in &streams {
        cases::until(|| async {
            let added = backend.add(stream, &[cases::entry("n", "2")], None).await;
            if let Err(error) = &added {
                assert!(error.is_passing(), "{error}");
            }
            added.is_ok()
        })
        .await;
        cases::waiting::read_one(&*backend, stream).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_over_tls_with_a_password() {
    let Some(tls) = Tls::new() else { return };
    let arguments = tls.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(server) = Server::redis_tls(&arguments) else { return };
    let at = format!("127.0.0.1:{}", server.port);
    let ca = tls.authority();
    let backend = connect(&format!("rediss://:secret@{at}/?ca={ca}")).await.unwrap();
    assert_eq!(backend.place(), format!("rediss://{at}"));
    cases::all(&*backend).await;
    let insecure = connect(&format!("rediss://:secret@{at}/#insecure")).await.unwrap();
    insecure.ping().await.unwrap();

    for denied in ["rediss://:wrong@", "rediss://nobody:secret@", "rediss://"] {
        let error = refused(&format!("{denied}{at}/?ca={ca}")).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{denied}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for unreachable in [format!("rediss://:secret@{at}"), format!("redis://:secret@{at}")] {
        let error = refused(&unreachable).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{unreachable}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_unreachable() {
    let port = servers::free_port();
    for scheme in ["redis", "redis+cluster"] {
        let error = refused(&format!("{scheme}://127.0.0.1:{port}")).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{scheme}: {error}");
        assert!(error.is_passing());
    }
}

/// The connection stands, and nobody answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_is_unreachable() {
    let Some(server) = Server::redis(&[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    cases::reading::make(&*backend, "silent", 0).await;
    let read = Read { block: Some(Duration::from_millis(10)), ..cases::reader("silent", "a", 1) };
    backend.read(&read).await.unwrap();
    server.signal("STOP");
    let (pinged, read) = tokio::join!(backend.ping(), backend.read(&read));
    server.signal("CONT");
    for error in [pinged.unwrap_err(), read.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
    cases::until(|| async { backend.ping().await.is_ok() }).await;
    cases::all(&*backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_comes_back() {
    if let Some(server) = Server::redis(&["--appendonly", "yes", "--appendfsync", "always"]) {
        comes_back(server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn millstream_comes_back() {
    comes_back(Server::start(Program::Millstream, &["--appendonly", "yes", "--appendfsync", "always"])).await;
}

/// Calls fail while the server is away, and go through when it is there again: no new backend is needed.
async fn comes_back(mut server: Server) {
    let backend = connect(&server.url()).await.unwrap();
    cases::survive(&*backend, || async { server.kill() }).await;
    let error = backend.ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    server.restart();
    cases::until(|| async { backend.ping().await.is_ok() }).await;
    cases::survived(&*backend).await;
    cases::all(&*backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_takes_no_writes_and_buries_nothing_by_half() {
    for peer in PEERS {
        let Some(server) = Server::peer(peer, &["--maxmemory-policy", "noeviction"]) else { continue };
        let backend = connect(&server.url()).await.unwrap();
        cases::settling::without_memory(&*backend, |limit| server.configure("maxmemory", limit)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_could_not_tell_what_it_can_do_is_asked_again() {
    let Some(server) = Server::redis(&["--maxmemory-policy", "noeviction", "--maxmemory", "1"]) else {
        return;
    };
    let backend = connect(&server.url()).await.unwrap();
    assert!(!backend.capabilities().certain);
    let once = Idempotence { producer: "p".into(), iid: "1".into() };
    let entry = NewEntry { idempotence: Some(once), ..cases::entry("n", "1") };
    let error = backend.add("s", std::slice::from_ref(&entry), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotWritable, "{error}");
    server.configure("maxmemory", "0");
    backend.add("s", &[entry], None).await.unwrap();
    let can = backend.capabilities();
    assert!(can.certain && !can.idempotent_adds, "{can:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_busy() {
    let Some(server) = Server::redis(&[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    cases::reading::make(&*backend, "replica", 1).await;
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = backend.add("replica", &[cases::entry("n", "1")], None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

async fn refused(url: &str) -> millstream_worker::Error {
    match connect(url).await {
        Ok(backend) => panic!("{url} was let in to {}", backend.place()),
        Err(error) => error,
    }
}
