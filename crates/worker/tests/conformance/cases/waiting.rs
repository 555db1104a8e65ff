//! Waiting for entries, and that it holds nobody up.

use std::time::{Duration, Instant};

use millstream_worker::Admin;
use millstream_worker::backend::{Read, Start, StreamId};

use super::{PATIENCE, entry, ids_of, reader, reading};
use crate::servers::Cluster;

pub(super) async fn all(backend: &dyn Admin) {
    in_vain(backend).await;
    until_it_comes(backend).await;
    many_wait(backend).await;
    following(backend).await;
}

async fn in_vain(backend: &dyn Admin) {
    let stream = "waiting:vain";
    reading::make(backend, stream, 0).await;
    for block in [Duration::ZERO, Duration::from_micros(10), Duration::from_millis(150)] {
        let begin = Instant::now();
        let read = Read { block: Some(block), ..reader(stream, "a", 1) };
        assert_eq!(backend.read(&read).await.unwrap(), []);
        assert_eq!(backend.follow(stream, StreamId::MIN, 5, block).await.unwrap(), []);
        // Not to the millisecond: redis-server counts whole ones, of a calendar that may be set meanwhile.
        assert!(begin.elapsed() >= block * 2 * 9 / 10, "it waits");
    }
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn until_it_comes(backend: &dyn Admin) {
    let stream = "waiting:coming";
    reading::make(backend, stream, 0).await;
    let read = Read { block: Some(PATIENCE), ..reader(stream, "a", 10) };
    let (read, added) = tokio::join!(backend.read(&read), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backend.add(stream, &[entry("n", "1")], None).await.unwrap()
    });
    assert_eq!(ids_of(&read.unwrap()), added);
    // What is there already is not waited for.
    let added = backend.add(stream, &[entry("n", "2"), entry("n", "3")], None).await.unwrap();
    let read = Read { block: Some(PATIENCE), ..reader(stream, "a", 10) };
    assert_eq!(ids_of(&backend.read(&read).await.unwrap()), added);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Many wait at once; other calls go through meanwhile, and each entry is given to one of them.
async fn many_wait(backend: &dyn Admin) {
    const READERS: usize = 12;
    let stream = "waiting:many";
    reading::make(backend, stream, 0).await;
    let names: Vec<String> = (0..READERS).map(|n| format!("reader-{n}")).collect();
    let reads: Vec<Read<'_>> =
        names.iter().map(|name| Read { block: Some(PATIENCE), ..reader(stream, name, 1) }).collect();
    let waiting = async {
        let mut waiting: Vec<_> = reads.iter().map(|read| backend.read(read)).collect();
        let mut read = Vec::new();
        std::future::poll_fn(|context| {
            waiting.retain_mut(|answer| match answer.as_mut().poll(context) {
                std::task::Poll::Ready(answer) => {
                    read.extend(ids_of(&answer.unwrap()));
                    false
                }
                std::task::Poll::Pending => true,
            });
            if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        read
    };
    let (mut read, added) = tokio::join!(waiting, async {
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

async fn following(backend: &dyn Admin) {
    let stream = "waiting:following";
    // There need be no stream yet.
    let follow = backend.follow(stream, StreamId::MIN, 2, PATIENCE);
    let (met, added) = tokio::join!(follow, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backend.add(stream, &[entry("n", "1"), entry("n", "2"), entry("n", "3")], None).await.unwrap()
    });
    let met = met.unwrap();
    assert!(!met.is_empty() && met.len() <= 2 && met[0].id == added[0]);
    let rest = backend.follow(stream, added[1], 9, PATIENCE).await.unwrap();
    assert_eq!(rest.iter().map(|entry| entry.id).collect::<Vec<_>>(), added[2..]);
    assert_eq!(backend.follow(stream, StreamId::MIN, 0, Duration::from_millis(1)).await.unwrap(), []);
    assert_eq!(backend.groups(stream).await.unwrap(), [], "nobody joins a group");
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// Waits for one new entry, as long as the store needs to find itself.
pub(crate) async fn read_one(backend: &dyn Admin, stream: &str) {
    let read = Read { block: Some(Duration::from_secs(5)), ..reader(stream, "a", 1) };
    super::until(|| async {
        match backend.read(&read).await {
            Ok(read) => read.len() == 1,
            Err(error) => {
                assert!(error.is_passing(), "{error}");
                false
            }
        }
    })
    .await;
}

/// A slot goes to another server: those who wait for its keys find it.
pub(crate) async fn follow_a_slot(backend: &dyn Admin, cluster: &Cluster) {
    let stream = "waiting:slot";
    let block = Duration::from_millis(1);
    assert_eq!(backend.follow(stream, StreamId::MIN, 1, block).await.unwrap(), []);
    cluster.move_slot_of(stream);
    let added = backend.add(stream, &[entry("n", "1")], None).await.unwrap();
    let met = backend.follow(stream, StreamId::MIN, 1, PATIENCE).await.unwrap();
    assert_eq!(met[0].id, added[0]);
    backend.create_group(stream, "g", Start::Beginning).await.unwrap();
    let read = Read { block: Some(PATIENCE), ..reader(stream, "a", 1) };
    assert_eq!(ids_of(&backend.read(&read).await.unwrap()), added);
    assert!(backend.delete_stream(stream).await.unwrap());
}
