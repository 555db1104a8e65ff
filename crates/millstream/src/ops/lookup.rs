//! Looks up streams, groups and consumers named on the command line. If one does not exist, the error lists those
//! that do.

use std::collections::BTreeSet;
use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::Error;
use millstream_worker::backend::{ConsumerInfo, ErrorKind, GroupInfo, StreamInfo};
use millstream_worker::monitor::{GroupSnapshot, Monitor, StreamSnapshot};
use millstream_worker::names::{is_control_stream, origin_of};
use millstream_worker::partitions::{Named, logical_name};

use super::failure::Failure;
use super::safe_text::printable;
use super::shell::{suggest, word};
use super::value;

/// Maximum number of names that an error lists. The rest is only counted.
const NAMES_MAX: usize = 10;
/// Minimum length of a stream's name that another name can mistype.
const MISTYPED_MIN: usize = 4;

/// Returns a stream that must exist.
pub(crate) async fn stream(backend: &dyn Admin, name: &str) -> Result<StreamInfo, Failure> {
    if let Some(info) = find_stream(backend, name).await? {
        return Ok(info);
    }
    let others = shown_names(backend).await?;
    Err(not_found(
        &format!("stream {} does not exist in {}", printable(name), backend.location()),
        "streams",
        &others,
        &format!("create it with: {}", suggest("add", &[name, "FIELD=VALUE"], "")),
    ))
}

/// Returns the names of all streams as people use them: a logical stream instead of its partitions, and
/// no control stream and no dead-letter stream of another one.
async fn shown_names(backend: &dyn Admin) -> Result<Vec<String>, Failure> {
    let names = backend.streams("*").await?.into_iter().filter(|name| !is_control_stream(name));
    let shown = |name: String| match logical_name(origin_of(&name).unwrap_or(&name)) {
        Some(logical) => logical.to_owned(),
        None => name,
    };
    let names: BTreeSet<String> = names.map(shown).collect();
    let is_of_another = |name: &&String| origin_of(name).is_some_and(|origin| names.contains(origin));
    Ok(names.iter().filter(|name| !is_of_another(name)).cloned().collect())
}

/// Returns the existing stream that a mistyped name probably means: their names differ by one character.
pub(crate) async fn similar_stream(backend: &dyn Admin, name: &str) -> Result<Option<String>, Failure> {
    Ok(shown_names(backend).await?.into_iter().find(|other| is_mistyped(name, other)))
}

/// Whether two names differ by one character that was left out, added, replaced or swapped with its neighbour. Names
/// that differ by a digit are usually intended.
fn is_mistyped(name: &str, other: &str) -> bool {
    let (mut a, mut b): (Vec<char>, Vec<char>) = (name.chars().collect(), other.chars().collect());
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    (a, b) = (a.split_off(common), b.split_off(common));
    while !a.is_empty() && !b.is_empty() && a.last() == b.last() {
        a.pop();
        b.pop();
    }
    if a.iter().chain(&b).any(char::is_ascii_digit) || other.chars().count() < MISTYPED_MIN {
        return false;
    }
    match (&a[..], &b[..]) {
        ([_], []) | ([], [_]) | ([_], [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

/// Returns a stream. `None` if it does not exist.
pub(crate) async fn find_stream(backend: &dyn Admin, name: &str) -> Result<Option<StreamInfo>, Failure> {
    backend.stream(name).await.map_err(|error| stream_error(name, error))
}

/// Returns the name of the stream that a name on the command line means: partition 3 of `orders` for `orders/3`.
pub(crate) async fn resolve(backend: &dyn Admin, name: &str) -> Result<String, Failure> {
    match Named::find(backend, name).await {
        Ok(Named::Stream(stream)) => Ok(stream.to_string()),
        Ok(Named::Partitions(_)) => Ok(name.to_owned()),
        Err(error) if error.kind() == ErrorKind::Refused => Err(Failure::NotFound(error.to_string())),
        Err(error) => Err(stream_error(name, error)),
    }
}

/// Returns a snapshot of a stream that must exist. It can be a logical one, or a partition.
pub(crate) async fn snapshot(backend: &Arc<dyn Admin>, name: &str) -> Result<StreamSnapshot, Failure> {
    let name = resolve(&**backend, name).await?;
    let found = Monitor::new(Arc::clone(backend)).stream(&name).await;
    if let Some(found) = found.map_err(|error| stream_error(&name, error))? {
        return Ok(found);
    }
    stream(&**backend, &name).await?;
    Err(Failure::NotFound(format!("stream {} was deleted a moment ago", printable(name))))
}

/// Returns a snapshot of a group that must exist. Its stream can be a logical one, or a partition.
pub(crate) async fn group_snapshot(
    backend: &Arc<dyn Admin>,
    stream: &str,
    name: &str,
) -> Result<GroupSnapshot, Failure> {
    let physical = resolve(&**backend, stream).await?;
    let found = Monitor::new(Arc::clone(backend)).group(&physical, name).await;
    if let Some(found) = found.map_err(|error| stream_error(&physical, error))? {
        return Ok(found);
    }
    let others = snapshot(backend, &physical).await?.groups;
    let others: Vec<String> = others.into_iter().map(|group| group.name).collect();
    Err(no_group(stream, name, &others))
}

/// Whether a name has wildcards, and so can match several streams.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '\\'])
}

pub(crate) async fn streams(
    backend: &dyn Admin,
    pattern: &str,
) -> Result<Vec<(String, StreamInfo)>, Failure> {
    let mut streams = Vec::new();
    for name in backend.streams(pattern).await? {
        // The stream may have been deleted since it was listed.
        if let Some(info) = backend.stream(&name).await? {
            streams.push((name, info));
        }
    }
    Ok(streams)
}

/// Converts the error of a call about this stream. Names the stream, because some stores do not.
pub(crate) fn stream_error(stream: &str, error: Error) -> Failure {
    if error.kind() != ErrorKind::WrongType {
        return error.into();
    }
    Failure::Other(format!(
        "key '{}' is not a stream (WRONGTYPE)\nuse another name, or delete the key with: redis-cli DEL {}",
        printable(stream),
        word(stream)
    ))
}

/// Returns a group that must exist.
pub(crate) async fn group(backend: &dyn Admin, stream: &str, name: &str) -> Result<GroupInfo, Failure> {
    self::stream(backend, stream).await?;
    let mut groups = backend.groups(stream).await?;
    if let Some(at) = groups.iter().position(|group| group.name == name) {
        return Ok(groups.swap_remove(at));
    }
    let others: Vec<String> = groups.into_iter().map(|group| group.name).collect();
    Err(no_group(stream, name, &others))
}

fn no_group(stream: &str, name: &str, others: &[String]) -> Failure {
    not_found(
        &format!("stream {} has no group {}", printable(stream), printable(name)),
        "groups",
        others,
        &format!("create it with: {}", suggest("group create", &[stream, name], "")),
    )
}

/// Returns the error for a consumer that does not exist.
pub(crate) fn no_consumer(stream: &str, group: &str, name: &str, others: &[ConsumerInfo]) -> Failure {
    let others: Vec<String> = others.iter().map(|consumer| consumer.name.clone()).collect();
    let [stream, group, name] = [stream, group, name].map(printable);
    not_found(
        &format!("group {group} of stream {stream} has no consumer {name}"),
        "consumers",
        &others,
        "a consumer is created by its first read",
    )
}

/// Returns the error for something that does not exist.
///
/// `what` is the first line. The second line lists the existing ones (`others`, of this `kind`), or gives `hint` if
/// there are none.
pub(crate) fn not_found(what: &str, kind: &str, others: &[String], hint: &str) -> Failure {
    if others.is_empty() {
        return Failure::NotFound(format!("{what}; there are no {kind}\n{hint}"));
    }
    let names: Vec<String> = others.iter().take(NAMES_MAX).map(printable).collect();
    let more = match others.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {} more", value::count(more as u64)),
    };
    Failure::NotFound(format!("{what}\nexisting {kind}: {}{more}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::is_mistyped;

    #[test]
    fn names_that_differ_by_one_character_are_typing_errors() {
        for name in ["ordrs", "orderss", "ordres", "orderz", "rders", "Orders", "order"] {
            assert!(is_mistyped(name, "orders"), "{name}");
        }
        for name in ["orders", "orders1", "invoices", "orders:eu", "odrres", ""] {
            assert!(!is_mistyped(name, "orders"), "{name}");
        }
        assert!(!is_mistyped("job2", "job1") && !is_mistyped("a", "b") && !is_mistyped("eu", "us"));
    }
}
