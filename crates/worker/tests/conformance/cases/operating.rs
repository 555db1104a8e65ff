//! What operators do to a store: trim streams, ask for memory, and look at the server.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{
    Acknowledgement, ErrorKind, Range, Release, SnapshotRequest, Start, StreamId, Trim,
};

use super::reading::make_stream;
use super::{consumer, kind, pending, reader, wait_until};

pub(crate) async fn all(backend: &dyn Admin) {
    trims(backend).await;
    trims_keep_what_a_group_needs(backend).await;
    memory(backend).await;
    groups_move_only_from_where_they_were_seen(backend).await;
    claims_of_listed_rows(backend).await;
}

async fn groups_move_only_from_where_they_were_seen(backend: &dyn Admin) {
    let stream = "moving";
    let ids = make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let move_from = |from, start| backend.move_group_from(stream, "g", from, start);
    let position = async || backend.groups(stream).await.unwrap()[0].last_delivered;
    assert!(!move_from(ids[0], Start::Beginning).await.unwrap());
    assert_eq!(position().await, ids[1]);
    assert!(move_from(ids[1], Start::Beginning).await.unwrap());
    assert_eq!(position().await, StreamId::MIN);
    assert!(move_from(StreamId::MIN, Start::After(ids[0])).await.unwrap());
    assert_eq!(position().await, ids[0]);
    assert!(move_from(ids[0], Start::End).await.unwrap());
    assert_eq!(position().await, ids[2]);
    let no_group = backend.move_group_from(stream, "none", ids[2], Start::End).await;
    assert_eq!(kind(no_group), Some(ErrorKind::NoGroup));
    let no_stream = backend.move_group_from("moving:none", "g", ids[2], Start::End).await;
    assert_eq!(kind(no_stream), Some(ErrorKind::NoGroup));
}

async fn claims_of_listed_rows(backend: &dyn Admin) {
    let stream = "claiming";
    let ids = make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 3)).await.unwrap();
    backend.release(consumer(stream, "a"), &[Release::counted(ids[1], 1)]).await.unwrap();
    let mut rows = pending(backend, stream).await;
    assert_eq!(rows.len(), 3);
    // The first row is claimed as it is. The last one looks as if it had been delivered since it was listed.
    rows[2].idle = Some(Duration::from_secs(3600));
    let claimed = backend.claim(consumer(stream, "b"), &rows).await.unwrap();
    assert_eq!(claimed, ids[..2]);
    let owners: Vec<(Option<String>, u64)> =
        pending(backend, stream).await.into_iter().map(|row| (row.consumer, row.deliveries)).collect();
    let owner = |name: &str, deliveries| (Some(name.to_owned()), deliveries);
    assert_eq!(owners, [owner("b", 2), owner("b", 2), owner("a", 1)]);
    assert_eq!(backend.claim(consumer(stream, "b"), &[]).await.unwrap(), []);
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
