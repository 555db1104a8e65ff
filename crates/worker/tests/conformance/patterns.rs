//! A worker that reads all streams of a pattern: a thousand streams, new ones, deleted ones, and a flooded one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_worker::backend::{ErrorKind, NewEntry};
use millstream_worker::{Admin, Backoff, Message, Worker, WorkerBuilder, WorkerHandle, connect};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cases::{self, entry, wait_until};
use super::peers::{REDIS_7_0, VALKEY_9_1};
use super::servers::{Cluster, Program, Server};

/// Messages of the flooded stream. More than the worker handles while the test runs.
const FLOOD: usize = 60_000;

/// The number of handled messages of each stream.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<HashMap<String, usize>>>);

impl Handled {
    fn count(&self, stream: &str) -> usize {
        self.0.lock().unwrap().get(stream).copied().unwrap_or_default()
    }

    fn streams(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

struct Running {
    handle: WorkerHandle,
    handled: Handled,
    drain: oneshot::Sender<()>,
    task: JoinHandle<millstream_worker::Report>,
}

fn start(backend: &Arc<dyn Admin>) -> Running {
    start_with(backend, |worker| worker)
}

fn start_with(backend: &Arc<dyn Admin>, options: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Running {
    let handled = Handled::default();
    let counted = handled.clone();
    let handler = move |message: Message| {
        *counted.0.lock().unwrap().entry(message.stream.to_string()).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(2))
    };
    let worker = Worker::builder(backend.clone())
        .streams_matching("orders:*")
        .group("g")
        .handler(handler)
        .concurrency(8)
        .retry(Backoff::fixed(Duration::from_millis(10)));
    let worker = options(worker).build().unwrap();
    let handle = worker.handle();
    let (drain, drained) = oneshot::channel::<()>();
    let task =
        tokio::spawn(
            async move { worker.run_until(async { drop(drained.await) }).await.expect("it drains") },
        );
    Running { handle, handled, drain, task }
}

async fn add(backend: &dyn Admin, stream: &str, count: usize) {
    let entries: Vec<NewEntry> = (0..count).map(|n| entry("n", &n.to_string())).collect();
    for some in entries.chunks(1000) {
        backend.add(stream, some, None).await.unwrap();
    }
}

/// Runs a worker for a pattern that matches `count` streams. `check` is called while it reads all of them.
async fn many_streams(backend: Arc<dyn Admin>, count: usize, check: impl Fn(&str)) {
    let name = |n: usize| format!("orders:{n}");
    for n in 0..count {
        add(&*backend, &name(n), 1).await;
    }
    // None of these matches.
    let others = ["{orders:1}:dlq", "orders:{7}:dlq", "orders:{ae}.1", "order:1", "other"];
    for other in others {
        add(&*backend, other, 1).await;
    }
    let running = start(&backend);
    let Running { handle, handled, .. } = &running;
    wait_until(|| async { handled.streams() == count }).await;
    assert_eq!(handle.streams().len(), count);
    check("while all streams are quiet");

    // A flooded stream does not starve the others, and new streams are found meanwhile, with all of their messages.
    add(&*backend, &name(0), FLOOD).await;
    wait_until(|| async { handled.count(&name(0)) > 100 }).await;
    for n in 1..count {
        add(&*backend, &name(n), 1).await;
    }
    for _ in 0..3 {
        add(&*backend, "orders:new", 1).await;
    }
    let is_through = || (1..count).all(|n| handled.count(&name(n)) == 2) && handled.count("orders:new") == 3;
    wait_until(|| async { is_through() }).await;
    assert!(handled.count(&name(0)) < FLOOD, "the flooded stream was handled first");
    check("while one stream is flooded");

    // Deleted streams are left. One of them comes back.
    for n in 0..10 {
        assert!(backend.delete_stream(&name(n)).await.unwrap());
    }
    wait_until(|| async { handle.streams().len() == count + 1 - 10 }).await;
    add(&*backend, &name(3), 1).await;
    wait_until(|| async { handled.count(&name(3)) == 3 }).await;
    assert_eq!(handle.streams().len(), count + 1 - 9);
    assert!(backend.streams("orders:1").await.unwrap().is_empty(), "the worker made a deleted stream again");
    // A deleted group is created again.
    assert!(backend.delete_group(&name(30), "g").await.unwrap());
    add(&*backend, &name(30), 1).await;
    wait_until(|| async { handled.count(&name(30)) == 3 }).await;
    let text = handle.metrics_text().await;
    let streams = format!("millstream_streams{{stream=\"orders:*\",group=\"g\"}} {}\n", count + 1 - 9);
    assert!(text.contains(&streams), "{text}");

    drop(running.drain);
    let report = running.task.await.unwrap();
    assert_eq!(report.dead, 0, "{report}");
    for other in others {
        assert!(backend.groups(other).await.unwrap().is_empty(), "{other}");
    }
    let pending = backend.pending_summary(&name(20), "g").await.unwrap().total;
    assert_eq!((pending, backend.groups(&name(20)).await.unwrap()[0].consumers), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reads_a_thousand_streams_of_the_embedded_store() {
    many_streams(connect("memory:").await.unwrap(), 1000, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reads_a_thousand_streams_of_millstream() {
    on_server(&Server::start(Program::Millstream, &[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reads_a_thousand_streams_of_redis() {
    let Some(server) = Server::peer(&REDIS_7_0, &[]) else { return };
    on_server(&server).await;
}

async fn on_server(server: &Server) {
    let backend = connect(&server.url()).await.unwrap();
    many_streams(backend, 1000, |when| {
        // One shared connection, one for blocking reads, and that of redis-cli.
        let clients = server.cli(&["CLIENT", "LIST"]);
        assert!(clients.lines().count() <= 3, "{when}: {clients}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reads_the_streams_of_all_nodes_of_a_cluster() {
    let Some(cluster) = Cluster::start(&VALKEY_9_1) else { return };
    let backend = connect(&cluster.url()).await.unwrap();
    let (backend, cluster) = follow_a_moving_slot(backend, cluster).await;
    many_streams(backend, 300, |when| {
        for clients in cluster.clients() {
            // One shared connection, and that of redis-cli. Nodes that move keys have some of their own.
            let ours = clients.lines().filter(|client| !client.contains("cmd=restore"));
            assert!(ours.count() <= 2, "{when}: {clients}");
        }
    })
    .await;
}

/// The slot of a stream moves twice while messages are added to it.
async fn follow_a_moving_slot(backend: Arc<dyn Admin>, cluster: Cluster) -> (Arc<dyn Admin>, Cluster) {
    let stream = "orders:moving";
    add(&*backend, stream, 1).await;
    let running = start(&backend);
    wait_until(|| async { running.handled.count(stream) == 1 }).await;
    let moving = tokio::task::spawn_blocking(move || {
        (0..2).for_each(|_| cluster.reshard(stream, Duration::from_millis(50)));
        cluster
    });
    let mut added = 1;
    while !moving.is_finished() {
        add(&*backend, stream, 1).await;
        added += 1;
    }
    let cluster = moving.await.unwrap();
    wait_until(|| async { running.handled.count(stream) >= added }).await;
    drop(running.drain);
    let report = running.task.await.unwrap();
    assert_eq!((report.acknowledged as usize, running.handled.count(stream)), (added, added), "{report}");
    assert!(backend.delete_stream(stream).await.unwrap());
    (backend, cluster)
}

/// A message that another consumer has read and not acknowledged is taken over.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_crashed_workers_are_taken_over() {
    let server = Server::redis(&[]);
    let url = server.as_ref().map_or("memory:".to_owned(), Server::url);
    for url in [&*url, "memory:"] {
        let backend = connect(url).await.unwrap();
        for stream in ["orders:1", "orders:2"] {
            cases::reading::make_stream(&*backend, stream, 2).await;
            assert_eq!(backend.read(&cases::reader(stream, "crashed", 1)).await.unwrap().len(), 1);
        }
        let running = start_with(&backend, |worker| worker.lease(Duration::from_millis(200)));
        let count = || ["orders:1", "orders:2"].map(|stream| running.handled.count(stream));
        wait_until(|| async { count() == [2, 2] }).await;
        drop(running.drain);
        assert_eq!(running.task.await.unwrap().acknowledged, 4, "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_list_streams_learns_which_permission_is_missing() {
    let Some(server) = Server::redis(&[]) else { return };
    assert_eq!(server.cli(&["ACL", "SETUSER", "bob", "on", ">secret", "~*", "+@all", "-scan"]), "OK");
    let backend = connect(&server.url().replace("//", "//bob:secret@")).await.unwrap();
    let worker = Worker::builder(backend).streams_matching("orders:*").group("g");
    let error = worker.handler(|_: Message| async {}).build().unwrap().run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().ends_with("ACL SETUSER bob +scan"), "{error}");
}
