//! One suite for all backends: callers of the trait see the same behaviour on every store.
//!
//! `cases` contains the checks; the tests here start the stores. Tests with a server of their own also check what
//! only a server can do: go down, come back, refuse.

mod cases;
#[path = "../../../millstream/tests/support/certificates.rs"]
mod certificates;
mod full;
mod observing;
mod over_streams;
mod patterns;
#[path = "../../../millstream/tests/support/peers.rs"]
mod peers;
mod permissions;
mod resharding;
mod servers;
mod tls;
mod watching;

use std::time::Duration;

use millstream_worker::backend::{Capability, ErrorKind, Idempotence, NewEntry, Read, SnapshotRequest};
use millstream_worker::{Admin, connect};
use peers::{PEERS, Peer, REDIS_6_2, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use servers::{Cluster, Program, Server, new_folder};

/// Longest wait for a condition on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn memory_backend_passes_all_cases() {
    let backend = connect("memory:").await.unwrap();
    cases::all(&*backend).await;
    cases::deleting::by_a_worker(&backend).await;
    cases::delaying::with_producer(&backend).await;
    assert!(backend.supports(Capability::ExactLag, "s").await.unwrap());
    assert_eq!(backend.server(&["appendonly"]).await.unwrap(), None);
    cases::operating::without_a_server(&*backend).await;
    assert_eq!(backend.save_snapshot().await.unwrap(), SnapshotRequest::NotNeeded);
}

/// Checks that a server reports its version and those of the requested settings that it has.
async fn describes_itself(backend: &dyn Admin, version: &str) {
    let server = backend.server(&["appendonly", "no-such-setting", "save"]).await.unwrap().unwrap();
    assert!(server.facts.contains_key(version), "{server:?}");
    let mut settings: Vec<_> = server.settings.keys().map(String::as_str).collect();
    settings.sort_unstable();
    assert_eq!(settings, ["appendonly", "save"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_backend_passes_all_cases_and_keeps_its_data() {
    let folder = new_folder();
    let url = format!("embedded:{}", folder.path().display());
    let backend = connect(&url).await.unwrap();
    assert_eq!(backend.location(), url);
    cases::all(&*backend).await;
    cases::leave_data(&*backend, || async {}).await;
    let snapshot = backend.save_snapshot().await.unwrap();
    assert!(matches!(snapshot, SnapshotRequest::Taken { keys, .. } if keys > 1), "{snapshot:?}");
    drop(backend);
    // All data is restored, and the folder was unlocked.
    cases::check_data(&*connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn millstream_server_passes_all_cases() {
    let server = Server::start(Program::Millstream, &[]);
    let backend = connect(&server.url()).await.unwrap();
    for capability in [
        Capability::ReadClaims,
        Capability::Releases,
        Capability::Extends,
        Capability::IdempotentAdds,
        Capability::ExactLag,
    ] {
        assert!(backend.supports(capability, "s").await.unwrap(), "{capability:?}");
    }
    assert_eq!(backend.streams("*").await.unwrap(), [""; 0], "a probe created a stream");
    let resp3 = connect(&format!("{}/?protocol=3", server.url())).await.unwrap();
    for backend in [backend, resp3] {
        cases::all(&*backend).await;
        cases::many::limited(&*backend).await;
        cases::delaying::with_producer(&backend).await;
        cases::deleting::by_a_worker(&backend).await;
        describes_itself(&*backend, "millstream_version").await;
        cases::operating::on_a_server(&*backend).await;
        cases::operating::no_snapshot_in_memory(&*backend).await;
    }
}

/// Redis 6.2 is the oldest supported server.
#[tokio::test(flavor = "multi_thread")]
async fn redis_6_2_passes_all_cases() {
    real_server(&REDIS_6_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_7_0_passes_all_cases() {
    real_server(&REDIS_7_0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_8_2_passes_all_cases() {
    real_server(&REDIS_8_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_9_1_passes_all_cases() {
    real_server(&VALKEY_9_1).await;
}

async fn real_server(peer: &'static Peer) {
    let Some(server) = Server::peer(peer, &[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    // At the same time in another database, because cases wait. Redis 6.2 blocks until the timeout if a stream is
    // deleted.
    let resp3 = connect(&format!("{}/8?protocol=3", server.url())).await.unwrap();
    tokio::join!(Box::pin(cases::all(&*backend)), Box::pin(cases::all(&*resp3)));
    if peer.redis_version >= (7, 0) {
        cases::groups::lag_is_reported(&*backend).await;
    }
    cases::deleting::by_a_worker(&backend).await;
    describes_itself(&*backend, "redis_version").await;
    describes_itself(&*resp3, "redis_version").await;
    cases::operating::on_a_server(&*resp3).await;
    cases::operating::snapshot_in_background(&*backend).await;
    let other_database = connect(&format!("{}/7", server.url())).await.unwrap();
    assert!(other_database.location().ends_with("/7"));
    assert_eq!(other_database.streams("*").await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cluster_passes_all_cases() {
    cluster(&REDIS_7_0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_cluster_passes_all_cases() {
    cluster(&VALKEY_9_1).await;
}

async fn cluster(peer: &'static Peer) {
    let Some(cluster) = Cluster::start(peer) else { return };
    let backend = connect(&cluster.url()).await.unwrap();
    cases::all(&*backend).await;
    cases::groups::lag_is_reported(&*backend).await;
    cases::blocking::follow_a_slot(&*backend, &cluster).await;
    describes_itself(&*backend, "redis_version").await;
    cases::operating::on_a_server(&*backend).await;
    cases::operating::snapshot_in_background(&*backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_reported_as_unreachable() {
    let port = servers::free_port();
    for scheme in ["redis", "redis+cluster"] {
        let error = connect_error(&format!("{scheme}://127.0.0.1:{port}")).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{scheme}: {error}");
        assert!(error.is_transient());
    }
}

/// The connection stays open, but the server does not reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_replying_is_reported_as_unreachable() {
    let Some(server) = Server::redis(&[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    cases::reading::make_stream(&*backend, "silent", 0).await;
    let read = Read { block: Some(Duration::from_millis(10)), ..cases::reader("silent", "a", 1) };
    backend.read(&read).await.unwrap();
    server.signal("STOP");
    let (pinged, read) = tokio::join!(backend.ping(), backend.read(&read));
    server.signal("CONT");
    for error in [pinged.unwrap_err(), read.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
    cases::wait_until(|| async { backend.ping().await.is_ok() }).await;
    cases::all(&*backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_reconnects_to_redis() {
    if let Some(server) = Server::redis(&["--appendonly", "yes", "--appendfsync", "always"]) {
        reconnects(server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_reconnects_to_millstream() {
    reconnects(Server::start(Program::Millstream, &["--appendonly", "yes", "--appendfsync", "always"])).await;
}

/// Calls fail while the server is down, and succeed after its restart, with the same backend.
async fn reconnects(mut server: Server) {
    let backend = connect(&server.url()).await.unwrap();
    cases::leave_data(&*backend, || async { server.kill() }).await;
    let error = backend.ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    server.restart();
    cases::wait_until(|| async { backend.ping().await.is_ok() }).await;
    cases::check_data(&*backend).await;
    cases::all(&*backend).await;
    cases::operating::snapshot_in_background(&*backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_writes_and_dead_letters_atomically() {
    for peer in PEERS {
        let Some(server) = Server::peer(peer, &["--maxmemory-policy", "noeviction"]) else { continue };
        let backend = connect(&server.url()).await.unwrap();
        cases::settling::without_memory(&*backend, |limit| server.configure("maxmemory", limit)).await;
    }
}

/// The script that deletes acknowledged entries computes with ids of 128 bits, as text.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_entries_are_deleted_whatever_their_ids_are() {
    let Some(server) = Server::redis(&[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    let max = u64::MAX.to_string();
    let ids = [
        "9-9".to_owned(),
        "9-10".to_owned(),
        "99-99".to_owned(),
        "99-100".to_owned(),
        format!("99-{max}"),
        "100-0".to_owned(),
        "9007199254740993-9007199254740993".to_owned(),
        "9007199254740993-9007199254740994".to_owned(),
    ];
    for id in &ids {
        assert_eq!(server.cli(&["XADD", "s", id, "n", "1"]), *id);
    }
    server.cli(&["XGROUP", "CREATE", "s", "g", "0"]);
    server.cli(&["XGROUP", "CREATE", "s", "h", "$"]);
    for (at, id) in ids.iter().enumerate() {
        // Delivered and pending: the entry stays. Acknowledged: exactly this entry goes.
        assert_eq!(
            server.cli(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "s", ">"]).lines().nth(1),
            Some(&**id)
        );
        assert_eq!(backend.delete_done("s", false).await.unwrap(), 0, "{id}");
        assert_eq!(server.cli(&["XACK", "s", "g", id]), "1");
        assert_eq!(backend.delete_done("s", false).await.unwrap(), 1, "{id}");
        assert_eq!(server.cli(&["XLEN", "s"]), (ids.len() - at - 1).to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uncertain_capabilities_are_probed_again() {
    let Some(server) = Server::redis(&["--maxmemory-policy", "noeviction", "--maxmemory", "1"]) else {
        return;
    };
    let backend = connect(&server.url()).await.unwrap();
    let idempotence = Idempotence { producer: "p".into(), iid: "1".into() };
    let entry = NewEntry { idempotence: Some(idempotence), ..cases::entry("n", "1") };
    let error = backend.add("s", std::slice::from_ref(&entry), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotWritable, "{error}");
    server.configure("maxmemory", "0");
    backend.add("s", &[entry], None).await.unwrap();
    assert!(!backend.supports(Capability::IdempotentAdds, "s").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_to_a_replica_is_reported_as_busy() {
    let Some(server) = Server::redis(&[]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    cases::reading::make_stream(&*backend, "replica", 1).await;
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = backend.add("replica", &[cases::entry("n", "1")], None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

async fn connect_error(url: &str) -> millstream_worker::Error {
    match connect(url).await {
        Ok(backend) => panic!("{url} connected to {}", backend.location()),
        Err(error) => error,
    }
}

/// These replies are not complete, and they would not fit into memory if they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_too_large_fails_before_it_is_complete() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    for (reply, what) in [
        ("*5000000\r\n:1\r\n".to_owned(), "a reply that takes more than 256 MiB"),
        ("$300000000\r\nx".to_owned(), "a reply that takes more than 256 MiB"),
        (format!("+{}", "x".repeat(64 << 10)), "a line of more than 64 KiB"),
    ] {
        let serving = tokio::task::spawn_blocking({
            let listener = listener.try_clone().unwrap();
            move || {
                let (mut socket, _) = listener.accept().unwrap();
                let _ = socket.read(&mut [0; 4096]);
                let _ = socket.write_all(reply.as_bytes());
                // The client closes the connection, although the reply is not complete.
                socket.read_to_end(&mut Vec::new())
            }
        });
        let error = connect_error(&url).await;
        assert!(error.to_string().contains(what), "{error}");
        drop(serving.await.unwrap());
    }
}

/// A server that announces more than it sends, or nests arrays without end, must not make a worker allocate memory or
/// overflow its stack.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_replies_are_reported_as_errors() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hostile = [
        "*1\r\n".repeat(100_000),
        "%1\r\n".repeat(100_000),
        "*9223372036854775807\r\n".to_owned(),
        "*4294967297\r\n:1\r\n".to_owned(),
        "$9223372036854775807\r\nx".to_owned(),
        "nonsense\r\n".to_owned(),
    ];
    for replies in hostile {
        let beginning = replies[..20.min(replies.len())].to_owned();
        let url = format!("redis://{address}");
        let connecting = tokio::time::timeout(TIMEOUT, connect(&url));
        let serving = tokio::task::spawn_blocking({
            let listener = listener.try_clone().unwrap();
            move || {
                let (mut socket, _) = listener.accept().unwrap();
                let _ = socket.read(&mut [0; 4096]);
                let _ = socket.write_all(replies.as_bytes());
            }
        });
        let (connected, served) = tokio::join!(connecting, serving);
        served.unwrap();
        assert!(connected.expect("it ends").is_err(), "{beginning:?}");
    }
}
