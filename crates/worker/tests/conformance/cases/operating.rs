//! What operators do to a store: trim streams, ask for memory, and look at the server.

use millstream_worker::Admin;
use millstream_worker::backend::{Acknowledgement, ErrorKind, Range, SnapshotRequest, StreamId, Trim};

use super::reading::make_stream;
use super::{reader, wait_until};

pub(crate) async fn all(backend: &dyn Admin) {
    trims(backend).await;
    trims_keep_what_a_group_needs(backend).await;
    memory(backend).await;
}

async fn trims(backend: &dyn Admin) {
    assert_eq!(backend.trim("trim:none", Trim::exactly(1)).await.unwrap(), 0);
    let ids = make_stream(backend, "trim", 6).await;
    assert_eq!(backend.trim("trim", Trim::exactly(4)).await.unwrap(), 2);
    let before = Trim { exact: true, ..Trim::before(ids[3]) };
    assert_eq!(backend.trim("trim", before).await.unwrap(), 1);
    assert_eq!(backend.trim("trim", before).await.unwrap(), 0);
    let left = backend.range("trim", Range::starting_at(StreamId::MIN, 10)).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids[3..]);
}

async fn trims_keep_what_a_group_needs(backend: &dyn Admin) {
    let ids = make_stream(backend, "trim:needed", 6).await;
    backend.read(&reader("trim:needed", "a", 3)).await.unwrap();
    let done = Acknowledgement { ids: ids[..2].to_vec(), ..Acknowledgement::default() };
    backend.acknowledge("trim:needed", "g", &done).await.unwrap();
    // Two are acknowledged, one is pending, three are unread.
    assert_eq!(backend.trim("trim:needed", Trim::exactly(1).keep_unread()).await.unwrap(), 2);
    assert_eq!(backend.stream("trim:needed").await.unwrap().unwrap().length, 4);
}

async fn memory(backend: &dyn Admin) {
    assert_eq!(backend.memory_usage("memory:none").await.unwrap(), None);
    make_stream(backend, "memory", 5).await;
    assert!(backend.memory_usage("memory").await.unwrap().unwrap() > 100);
}

/// The slow log, the clients and the settings of a server.
pub(crate) async fn on_a_server(backend: &dyn Admin) {
    backend.set_server_setting("slowlog-log-slower-than", "0").await.unwrap();
    make_stream(backend, "slow", 2).await;
    let settings = backend.server(&["slowlog-log-slower-than"]).await.unwrap().unwrap().settings;
    assert_eq!(settings["slowlog-log-slower-than"], "0");
    let slow = backend.slow_log(50).await.unwrap();
    let of_stream = |command: &&millstream_worker::backend::SlowCommand| {
        command.command.iter().any(|argument| &**argument == b"slow") && command.at_ms > 0
    };
    assert!(slow.iter().any(|command| of_stream(&command) && !command.client.is_empty()), "{slow:?}");
    assert!(slow.windows(2).all(|two| two[0].at_ms >= two[1].at_ms));
    assert!(backend.slow_log(1).await.unwrap().len() == 1);
    backend.set_server_setting("slowlog-log-slower-than", "10000000").await.unwrap();
    backend.reset_slow_log().await.unwrap();
    assert!(!backend.slow_log(50).await.unwrap().iter().any(|command| of_stream(&command)));
    let clients = backend.clients().await.unwrap();
    assert!(
        clients.iter().any(|client| client.last_command.starts_with("client") && !client.address.is_empty())
    );
    let error = backend.set_server_setting("no-such-setting", "1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

/// A server without a log keeps its data in memory only.
pub(crate) async fn no_snapshot_in_memory(backend: &dyn Admin) {
    let error = backend.save_snapshot().await.unwrap_err();
    assert!(error.to_string().contains("in memory"), "{error}");
}

/// Snapshots of a server are taken in the background. Waits until one is done.
pub(crate) async fn snapshot_in_background(backend: &dyn Admin) {
    assert_eq!(backend.save_snapshot().await.unwrap(), SnapshotRequest::Started);
    let is_done = || async {
        let facts = backend.server(&[]).await.unwrap().unwrap().facts;
        facts.get("rdb_bgsave_in_progress").is_none_or(|running| running == "0")
    };
    wait_until(is_done).await;
}

/// An embedded store has no server.
pub(crate) async fn without_a_server(backend: &dyn Admin) {
    let kinds = [
        backend.slow_log(1).await.unwrap_err().kind(),
        backend.reset_slow_log().await.unwrap_err().kind(),
        backend.clients().await.unwrap_err().kind(),
        backend.set_server_setting("a", "b").await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Unsupported; 4]);
}
