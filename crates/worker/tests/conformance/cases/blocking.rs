//! Blocking reads, and that they delay no other call.

use std::time::{Duration, Instant};

use millstream_worker::Admin;
use millstream_worker::backend::{Read, Start, StreamId};

use super::{TIMEOUT, entry, ids_of, reader, reading};
use crate::servers::Cluster;

pub(crate) async fn all(backend: &dyn Admin) {
    blocking_reads_time_out(backend).await;
    blocking_reads_return_new_entries(backend).await;
    many_blocked_reads(backend).await;
    follow_a_stream(backend).await;
}

async fn blocking_reads_time_out(backend: &dyn Admin) {
    let stream = "blocking:vain";
    reading::make_stream(backend, stream, 0).await;
    for block in [Duration::ZERO, Duration::from_micros(10), Duration::from_millis(150)] {
        let begin = Instant::now();
        let read = Read { block: Some(block), ..reader(stream, "a", 1) };
        assert_eq!(backend.read(&read).await.unwrap(), []);
        assert_eq!(backend.follow(stream, StreamId::MIN, 5, block).await.unwrap(), []);
        // With tolerance: redis-server counts whole milliseconds of a wall clock that may be adjusted meanwhile.
        assert!(begin.elapsed() >= block * 2 * 9 / 10, "the read returned too early");
    }
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn blocking_reads_return_new_entries(backend: &dyn Admin) {
    let stream = "blocking:coming";
    reading::make_stream(backend, stream, 0).await;
    let read = Read { block: Some(TIMEOUT), ..reader(stream, "a", 10) };
    let (read, added) = tokio::join!(backend.read(&read), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backend.add(stream, &[entry("n", "1")], None).await.unwrap()
    });
    assert_eq!(ids_of(&read.unwrap()), added);
    // A read of existing entries does not block.
    let added = backend.add(stream, &[entry("n", "2"), entry("n", "3")], None).await.unwrap();
    let read = Read { block: Some(TIMEOUT), ..reader(stream, "a", 10) };
    assert_eq!(ids_of(&backend.read(&read).await.unwrap()), added);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Many reads block at the same time. Other calls are not delayed, and each entry is delivered to one reader.
async fn many_blocked_reads(backend: &dyn Admin) {
    const READERS: usize = 12;
    let stream = "blocking:many";
    reading::make_stream(backend, stream, 0).await;
    let names: Vec<String> = (0..READERS).map(|n| format!("reader-{n}")).collect();
    let reads: Vec<Read<'_>> =
        names.iter().map(|name| Read { block: Some(TIMEOUT), ..reader(stream, name, 1) }).collect();
    let blocked = async {
        let mut blocked: Vec<_> = reads.iter().map(|read| backend.read(read)).collect();
        let mut read = Vec::new();
        std::future::poll_fn(|context| {
            blocked.retain_mut(|answer| match answer.as_mut().poll(context) {
                std::task::Poll::Ready(answer) => {
                    read.extend(ids_of(&answer.unwrap()));
                    false
                }
                std::task::Poll::Pending => true,
            });
            if blocked.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        read
    };
    let (mut read, added) = tokio::join!(blocked, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut added = Vec::new();
        for n in 0..READERS {
            backend.ping().await.unwrap();
            added.extend(backend.add(stream, &[entry("n", &n.to_string())], None).await.unwrap());
        }
        added
    });
    read.sort_unstable();
    assert_eq!(read, added);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn follow_a_stream(backend: &dyn Admin) {
    let stream = "blocking:following";
    // The stream need not exist yet.
    let follow = backend.follow(stream, StreamId::MIN, 2, TIMEOUT);
    let (followed, added) = tokio::join!(follow, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backend.add(stream, &[entry("n", "1"), entry("n", "2"), entry("n", "3")], None).await.unwrap()
    });
    let followed = followed.unwrap();
    assert!(!followed.is_empty() && followed.len() <= 2 && followed[0].id == added[0]);
    let rest = backend.follow(stream, added[1], 9, TIMEOUT).await.unwrap();
    assert_eq!(rest.iter().map(|entry| entry.id).collect::<Vec<_>>(), added[2..]);
    assert_eq!(backend.follow(stream, StreamId::MIN, 0, Duration::from_millis(1)).await.unwrap(), []);
    assert_eq!(backend.groups(stream).await.unwrap(), [], "following created a group");
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Waits for one new entry, and retries while the cluster fails over.
pub(crate) async fn read_one(backend: &dyn Admin, stream: &str) {
    let read = Read { block: Some(Duration::from_secs(5)), ..reader(stream, "a", 1) };
    super::wait_until(|| async {
        match backend.read(&read).await {
            Ok(read) => read.len() == 1,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                false
            }
        }
    })
    .await;
}

/// A slot moves to another server, and blocked reads of its keys follow.
pub(crate) async fn follow_a_slot(backend: &dyn Admin, cluster: &Cluster) {
    let stream = "blocking:slot";
    let block = Duration::from_millis(1);
    assert_eq!(backend.follow(stream, StreamId::MIN, 1, block).await.unwrap(), []);
    cluster.move_slot_of(stream);
    let added = backend.add(stream, &[entry("n", "1")], None).await.unwrap();
    let followed = backend.follow(stream, StreamId::MIN, 1, TIMEOUT).await.unwrap();
    assert_eq!(followed[0].id, added[0]);
    backend.create_group(stream, "g", Start::Beginning).await.unwrap();
    let read = Read { block: Some(TIMEOUT), ..reader(stream, "a", 1) };
    assert_eq!(ids_of(&backend.read(&read).await.unwrap()), added);
    assert!(backend.delete_stream(stream).await.unwrap());
}
