//! Reads of several streams at once, and joining streams that exist.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_worker::Admin;
use millstream_worker::backend::{ErrorKind, ReadMany, Start, StreamRead};

use super::{TIMEOUT, entry, ids_of, make_a_string, reading};

pub(crate) async fn all(backend: &dyn Admin) {
    several_streams(backend).await;
    a_read_waits_for_the_first_entry(backend).await;
    one_stream_does_not_spoil_the_read(backend).await;
    join_only_what_exists(backend).await;
}

fn names(streams: &[&str]) -> Vec<Arc<str>> {
    streams.iter().map(|stream| Arc::from(*stream)).collect()
}

fn reader<'a>(streams: &'a [Arc<str>], count: usize) -> ReadMany<'a> {
    ReadMany { streams, group: "g", consumer: "a", count, max: 1000, block: None, claim_idle: None }
}

/// Returns the index of each stream and the number of its entries, or its error.
fn summary(read: &[StreamRead]) -> Vec<(usize, Result<usize, ErrorKind>)> {
    let count = |read: &StreamRead| read.result.as_ref().map(Vec::len).map_err(|error| error.kind());
    read.iter().map(|read| (read.stream, count(read))).collect()
}

async fn several_streams(backend: &dyn Admin) {
    // Different slots of a cluster.
    let streams = names(&["many:1", "many:2", "many:3"]);
    let first = reading::make_stream(backend, &streams[0], 5).await;
    reading::make_stream(backend, &streams[1], 0).await;
    reading::make_stream(backend, &streams[2], 1).await;
    let read = backend.read_many(&reader(&streams, 2)).await.unwrap();
    assert_eq!(summary(&read), [(0, Ok(2)), (2, Ok(1))]);
    let entries = read[0].result.as_ref().unwrap();
    assert_eq!((ids_of(entries), entries[0].deliveries), (first[..2].to_vec(), 1));
    assert!(entries[0].fields.is_some());
    let read = backend.read_many(&reader(&streams, 10)).await.unwrap();
    assert_eq!(summary(&read), [(0, Ok(3))]);
    assert_eq!(summary(&backend.read_many(&reader(&streams, 10)).await.unwrap()), []);
    assert_eq!(summary(&backend.read_many(&reader(&[], 10)).await.unwrap()), []);
    assert_eq!(summary(&backend.read_many(&reader(&streams, 0)).await.unwrap()), []);
    for stream in &streams {
        assert!(backend.delete_stream(stream).await.unwrap());
    }
}

/// On a store that can limit the entries of all streams together.
pub(crate) async fn limited(backend: &dyn Admin) {
    let streams = names(&["many:1", "many:2", "many:3"]);
    for stream in &streams {
        reading::make_stream(backend, stream, 3).await;
    }
    let read = ReadMany { max: 4, ..reader(&streams, 3) };
    assert_eq!(summary(&backend.read_many(&read).await.unwrap()), [(0, Ok(3)), (1, Ok(1))]);
    for stream in &streams {
        assert!(backend.delete_stream(stream).await.unwrap());
    }
}

async fn a_read_waits_for_the_first_entry(backend: &dyn Admin) {
    let streams = names(&["many:a", "many:b"]);
    for stream in &streams {
        reading::make_stream(backend, stream, 0).await;
    }
    let begin = Instant::now();
    let short = ReadMany { block: Some(Duration::from_millis(150)), ..reader(&streams, 1) };
    assert_eq!(summary(&backend.read_many(&short).await.unwrap()), []);
    // With tolerance: redis-server counts whole milliseconds of a wall clock that may be adjusted meanwhile.
    assert!(begin.elapsed() >= Duration::from_millis(135), "the read returned too early");
    let long = ReadMany { block: Some(TIMEOUT), ..reader(&streams, 1) };
    let (read, _) = tokio::join!(backend.read_many(&long), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        backend.add(&streams[1], &[entry("n", "1")], None).await.unwrap()
    });
    assert_eq!(summary(&read.unwrap()), [(1, Ok(1))]);
    for stream in &streams {
        assert!(backend.delete_stream(stream).await.unwrap());
    }
}

async fn one_stream_does_not_spoil_the_read(backend: &dyn Admin) {
    let streams = names(&["many:gone", "many:there", "{many}:string"]);
    reading::make_stream(backend, &streams[1], 1).await;
    make_a_string(backend, &streams[2]).await;
    let block = Some(TIMEOUT);
    let read = backend.read_many(&ReadMany { block, ..reader(&streams, 1) }).await.unwrap();
    assert_eq!(summary(&read), [(0, Err(ErrorKind::NoGroup)), (1, Ok(1)), (2, Err(ErrorKind::WrongType))]);
    // A stream that is deleted while the read waits.
    let streams = names(&["many:there", "many:deleted"]);
    reading::make_stream(backend, &streams[1], 0).await;
    let read = ReadMany { block, ..reader(&streams, 1) };
    let (read, _) = tokio::join!(backend.read_many(&read), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        backend.delete_stream(&streams[1]).await.unwrap()
    });
    assert_eq!(summary(&read.unwrap()), [(1, Err(ErrorKind::NoGroup))]);
    assert!(backend.delete_stream("many:there").await.unwrap());
}

async fn join_only_what_exists(backend: &dyn Admin) {
    let stream = "many:joined";
    assert!(!backend.join_group(stream, "g", Start::Beginning).await.unwrap());
    assert_eq!(backend.stream(stream).await.unwrap(), None, "joining created the stream");
    backend.add(stream, &[entry("n", "1")], None).await.unwrap();
    assert!(backend.join_group(stream, "g", Start::Beginning).await.unwrap());
    assert!(backend.join_group(stream, "g", Start::End).await.unwrap());
    assert_eq!(backend.groups(stream).await.unwrap()[0].last_delivered.to_string(), "0-0");
    assert!(backend.delete_stream(stream).await.unwrap());
}
