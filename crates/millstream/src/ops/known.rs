//! What was named on the command line must be there; if it is not, the error says what is.

use millstream_worker::Admin;
use millstream_worker::Error;
use millstream_worker::backend::{ConsumerInfo, ErrorKind, GroupInfo, StreamInfo};

use super::failure::Failure;
use super::value;

/// More names than this are counted, not told.
const TOLD_MAX: usize = 10;

/// A stream that must be there.
pub(crate) async fn stream(backend: &dyn Admin, name: &str) -> Result<StreamInfo, Failure> {
    if let Some(info) = look(backend, name).await? {
        return Ok(info);
    }
    let others = backend.streams("*").await?;
    Err(missing(
        &format!("there is no stream {name} in {}", backend.place()),
        &others,
        &format!("begin it with: millstream add {name} field=value"),
    ))
}

/// A stream if it is there.
pub(crate) async fn look(backend: &dyn Admin, name: &str) -> Result<Option<StreamInfo>, Failure> {
    backend.stream(name).await.map_err(|error| about(name, error))
}

/// The streams that match a pattern.
pub(crate) async fn streams(
    backend: &dyn Admin,
    pattern: &str,
) -> Result<Vec<(String, StreamInfo)>, Failure> {
    let mut streams = Vec::new();
    for name in backend.streams(pattern).await? {
        // A stream may have gone since it was listed.
        if let Some(info) = backend.stream(&name).await? {
            streams.push((name, info));
        }
    }
    Ok(streams)
}

/// An error of a call about this stream. Not every store names it.
pub(crate) fn about(stream: &str, error: Error) -> Failure {
    if error.kind() != ErrorKind::WrongType {
        return error.into();
    }
    let stream = value::text(stream.as_bytes());
    Failure::Other(format!(
        "'{stream}' holds something else than a stream (WRONGTYPE)\nuse another name, or delete it first: redis-cli DEL {stream}"
    ))
}

/// A group that must be there.
pub(crate) async fn group(backend: &dyn Admin, stream: &str, name: &str) -> Result<GroupInfo, Failure> {
    self::stream(backend, stream).await?;
    let mut groups = backend.groups(stream).await?;
    if let Some(at) = groups.iter().position(|group| group.name == name) {
        return Ok(groups.swap_remove(at));
    }
    let others: Vec<String> = groups.into_iter().map(|group| group.name).collect();
    Err(missing(
        &format!("stream {stream} has no group {name}"),
        &others,
        &format!("make it with: millstream group create {stream} {name}"),
    ))
}

/// A consumer that must be there.
pub(crate) async fn consumer(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    name: &str,
) -> Result<ConsumerInfo, Failure> {
    self::group(backend, stream, group).await?;
    let mut consumers = backend.consumers(stream, group).await?;
    if let Some(at) = consumers.iter().position(|consumer| consumer.name == name) {
        return Ok(consumers.swap_remove(at));
    }
    let others: Vec<String> = consumers.into_iter().map(|consumer| consumer.name).collect();
    Err(missing(
        &format!("group {group} of stream {stream} has no consumer {name}"),
        &others,
        "consumers come to be when they first read",
    ))
}

/// The sentence for something that is not there: what is, or how to make one.
pub(crate) fn missing(what: &str, others: &[String], if_none: &str) -> Failure {
    if others.is_empty() {
        return Failure::NotFound(format!("{what}, and no other either\n{if_none}"));
    }
    let told: Vec<String> = others.iter().take(TOLD_MAX).map(|name| value::text(name.as_bytes())).collect();
    let more = match others.len().saturating_sub(TOLD_MAX) {
        0 => String::new(),
        more => format!(" and {} more", value::count(more as u64)),
    };
    Failure::NotFound(format!("{what}\nthere are: {}{more}", told.join(", ")))
}
