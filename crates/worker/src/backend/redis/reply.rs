//! Converts replies of the server to values. RESP3 has maps; RESP2 sends them as arrays of names and values.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use millstream_protocol::ids::parse_id;
use redis::Value;

use super::super::{
    ConsumerInfo, Delivery, Entry, Error, Fields, GroupInfo, GroupMissed, PendingRow, StreamId, StreamInfo,
};
use super::RELEASED_CONSUMER;
use super::errors::{from_server, unexpected_reply};

/// Returns the reply, or an error if the server replied with one.
pub(super) fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(from_server(&error)),
        value => Ok(value),
    }
}

/// Returns the elements of an array. Nil is an empty array.
pub(super) fn array(value: Value) -> Result<Vec<Value>, Error> {
    match checked(value)? {
        Value::Array(items) | Value::Set(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect()),
        _ => Err(unexpected_reply("an array")),
    }
}

/// Returns the elements of an array with exactly `N` elements.
pub(super) fn tuple<const N: usize>(value: Value) -> Result<[Value; N], Error> {
    array(value)?.try_into().map_err(|_| unexpected_reply(&format!("an array of {N} elements")))
}

/// Returns the pairs of a map, or of an array of names and values.
pub(super) fn pairs(value: Value) -> Result<Vec<(Value, Value)>, Error> {
    if let Value::Map(pairs) = value {
        return Ok(pairs);
    }
    in_pairs(array(value)?, Ok)
}

/// Groups alternating names and values into pairs, without copying them.
fn in_pairs<T>(items: Vec<Value>, read: impl Fn(Value) -> Result<T, Error>) -> Result<Vec<(T, T)>, Error> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let Some(name) = items.next() {
        let value = items.next().ok_or_else(|| unexpected_reply("an even number of elements"))?;
        pairs.push((read(name)?, read(value)?));
    }
    Ok(pairs)
}

pub(super) fn bytes(value: Value) -> Result<Bytes, Error> {
    match checked(value)? {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.into_bytes().into()),
        Value::Okay => Ok(Bytes::from_static(b"OK")),
        Value::Int(number) => Ok(number.to_string().into_bytes().into()),
        _ => Err(unexpected_reply("a string")),
    }
}

pub(super) fn text(value: Value) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&bytes(value)?).into_owned())
}

pub(super) fn integer(value: Value) -> Result<i64, Error> {
    let number = match checked(value)? {
        Value::Int(number) => Some(number),
        Value::Boolean(yes) => Some(yes.into()),
        Value::BulkString(digits) => std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| unexpected_reply("an integer"))
}

/// Returns a count. A negative number becomes 0.
pub(super) fn count(value: Value) -> Result<u64, Error> {
    Ok(u64::try_from(integer(value)?).unwrap_or(0))
}

pub(super) fn sum_of_counts(values: impl IntoIterator<Item = Value>) -> Result<u64, Error> {
    values.into_iter().try_fold(0, |sum: u64, value| Ok(sum.saturating_add(count(value)?)))
}

pub(super) fn id(value: Value) -> Result<StreamId, Error> {
    match checked(value)? {
        Value::BulkString(text) => parse_id(&text).map_err(|_| unexpected_reply("a stream id")),
        Value::SimpleString(text) => parse_id(text.as_bytes()).map_err(|_| unexpected_reply("a stream id")),
        _ => Err(unexpected_reply("a stream id")),
    }
}

/// Returns the fields of an entry, or `None` if it was deleted.
pub(super) fn fields(value: Value) -> Result<Option<Fields>, Error> {
    match value {
        Value::Nil => Ok(None),
        value => in_pairs(array(value)?, bytes).map(Some),
    }
}

/// Parses the reply of XRANGE.
pub(super) fn entries(value: Value) -> Result<Vec<Entry>, Error> {
    let entry = |value| {
        let [at, content] = tuple(value)?;
        Ok(Entry { id: id(at)?, fields: fields(content)?.unwrap_or_default() })
    };
    array(value)?.into_iter().map(entry).collect()
}

/// Parses the entries of a reply of XREADGROUP. If the read also claims, each entry has an idle time and its previous
/// deliveries. Both are 0 for a new entry. The idle time of a released entry is -1.
pub(super) fn deliveries(value: Value) -> Result<Vec<Delivery>, Error> {
    let delivery = |value| {
        let mut parts = array(value)?.into_iter();
        let (Some(at), Some(content)) = (parts.next(), parts.next()) else {
            return Err(unexpected_reply("an entry"));
        };
        let idle = parts.next().map_or(Ok(0), integer)?;
        let previous = parts.next().map_or(Ok(0), count)?;
        let (claimed, deliveries) = (idle != 0 || previous != 0, previous.saturating_add(1));
        Ok(Delivery { id: id(at)?, fields: fields(content)?, deliveries, claimed })
    };
    array(value)?.into_iter().map(delivery).collect()
}

/// Returns the entries in the reply of a read of a single stream, or nil if there are none.
pub(super) fn only_stream(value: Value) -> Result<Value, Error> {
    if let Value::Map(pairs) = value {
        return Ok(pairs.into_iter().next().map_or(Value::Nil, |(_, entries)| entries));
    }
    match array(value)?.into_iter().next() {
        Some(stream) => tuple(stream).map(|[_, entries]| entries),
        None => Ok(Value::Nil),
    }
}

/// Returns the names of streams and their entries in the reply of a read of several streams.
pub(super) fn streams(value: Value) -> Result<Vec<(Bytes, Value)>, Error> {
    if let Value::Map(pairs) = value {
        return pairs.into_iter().map(|(name, entries)| Ok((bytes(name)?, entries))).collect();
    }
    array(value)?
        .into_iter()
        .map(|stream| {
            let [name, entries] = tuple(stream)?;
            Ok((bytes(name)?, entries))
        })
        .collect()
}

/// A range of slots of a cluster, and the nodes that serve them as hosts and ports: the master first, then its
/// replicas. The host is empty if the cluster does not know it.
pub(super) type SlotRange = (RangeInclusive<u16>, Vec<(String, u16)>);

/// Parses the reply of CLUSTER SLOTS.
pub(super) fn slots(value: Value) -> Result<Vec<SlotRange>, Error> {
    let number = |value| u16::try_from(count(value)?).map_err(|_| unexpected_reply("a slot or port number"));
    let host = |value| if matches!(value, Value::Nil) { Ok(String::new()) } else { text(value) };
    let mut found = Vec::new();
    for range in array(value)? {
        let mut parts = array(range)?.into_iter();
        let (Some(first), Some(last)) = (parts.next(), parts.next()) else { continue };
        let mut nodes = Vec::new();
        for node in parts {
            let mut node = array(node)?.into_iter();
            let (Some(name), Some(port)) = (node.next(), node.next()) else { continue };
            nodes.push((host(name)?, number(port)?));
        }
        found.push((number(first)?..=number(last)?, nodes));
    }
    Ok(found)
}

pub(super) fn stream_info(value: Value) -> Result<StreamInfo, Error> {
    let mut stream = StreamInfo::default();
    for (name, value) in pairs(value)? {
        match &*text(name)? {
            "length" => stream.length = count(value)?,
            "groups" => stream.groups = count(value)?,
            "entries-added" => stream.entries_added = Some(count(value)?),
            "last-generated-id" => stream.last_id = id(value)?,
            "max-deleted-entry-id" => stream.max_deleted_id = Some(id(value)?),
            "first-entry" => stream.first_entry = entry_id(value)?,
            "last-entry" => stream.last_entry = entry_id(value)?,
            _ => {}
        }
    }
    Ok(stream)
}

fn entry_id(value: Value) -> Result<Option<StreamId>, Error> {
    array(value)?.into_iter().next().map(id).transpose()
}

pub(super) fn pending_row(value: Value) -> Result<PendingRow, Error> {
    let [at, owner, idle, counted] = tuple(value)?;
    let owner = text(owner)?;
    let is_owned = !owner.is_empty() && owner != RELEASED_CONSUMER;
    Ok(PendingRow {
        id: id(at)?,
        consumer: is_owned.then_some(owner),
        idle: u64::try_from(integer(idle)?).ok().filter(|_| is_owned).map(Duration::from_millis),
        deliveries: count(counted)?,
    })
}

pub(super) fn group_info(value: Value) -> Result<GroupInfo, Error> {
    let mut group = GroupInfo::default();
    for (name, value) in pairs(value)? {
        let known = |value| if matches!(value, Value::Nil) { Ok(None) } else { count(value).map(Some) };
        match &*text(name)? {
            "name" => group.name = text(value)?,
            "consumers" => group.consumers = count(value)?,
            "pending" => group.pending = count(value)?,
            "last-delivered-id" => group.last_delivered = id(value)?,
            "entries-read" => group.entries_read = known(value)?,
            "lag" => group.lag = known(value)?,
            _ => {}
        }
    }
    Ok(group)
}

/// Parses a group of the reply of XINFO MISSED.
pub(super) fn group_missed(value: Value) -> Result<GroupMissed, Error> {
    let mut missed = GroupMissed::default();
    for (name, value) in pairs(value)? {
        match &*text(name)? {
            "name" => missed.group = text(value)?,
            "missed" => missed.count = count(value)?,
            "missed-through" => missed.through = id(value)?,
            _ => {}
        }
    }
    Ok(missed)
}

pub(super) fn consumer_info(value: Value) -> Result<ConsumerInfo, Error> {
    let mut consumer = ConsumerInfo::default();
    for (name, value) in pairs(value)? {
        match &*text(name)? {
            "name" => consumer.name = text(value)?,
            "pending" => consumer.pending = count(value)?,
            "idle" => consumer.idle = Duration::from_millis(count(value)?),
            "inactive" => consumer.inactive = inactive(value)?,
            _ => {}
        }
    }
    Ok(consumer)
}

/// Parses the `inactive` time. It is -1 for a consumer that never received an entry.
fn inactive(value: Value) -> Result<Option<Duration>, Error> {
    Ok(u64::try_from(integer(value)?).ok().map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn resp2_and_resp3_replies_parse_alike() {
        let entry = || Value::Array(vec![bulk("5-1"), Value::Array(vec![bulk("a"), bulk("1")])]);
        let resp2 = Value::Array(vec![Value::Array(vec![bulk("s"), Value::Array(vec![entry()])])]);
        let resp3 = Value::Map(vec![(bulk("s"), Value::Array(vec![entry()]))]);
        let read = |reply| only_stream(reply).and_then(deliveries).unwrap();
        assert_eq!(read(resp2.clone()), read(resp3));
        assert_eq!(read(resp2)[0].id, StreamId::new(5, 1));
        assert_eq!(read(Value::Nil), []);
        let info = |reply| pairs(reply).unwrap();
        let row = (bulk("name"), bulk("g"));
        assert_eq!(info(Value::Array(vec![bulk("name"), bulk("g")])), info(Value::Map(vec![row])));
    }

    #[test]
    fn claimed_entries_count_this_delivery_and_deleted_ones_have_no_fields() {
        let row = |idle, previous| {
            Value::Array(vec![bulk("1-1"), Value::Nil, Value::Int(idle), Value::Int(previous)])
        };
        let read = deliveries(Value::Array(vec![row(900, 3), row(-1, 0), row(0, 0)])).unwrap();
        assert_eq!((read[0].deliveries, &read[0].fields), (4, &None));
        let counts: Vec<_> = read.iter().map(|row| (row.deliveries, row.claimed)).collect();
        assert_eq!(counts, [(4, true), (1, true), (1, false)]);
    }

    #[test]
    fn a_node_without_a_known_host_has_an_empty_one() {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), bulk("id")]);
        let range = Value::Array(vec![Value::Int(0), Value::Int(9), node(bulk("a"), 1), node(Value::Nil, 2)]);
        let nodes = vec![("a".to_owned(), 1), (String::new(), 2)];
        assert_eq!(slots(Value::Array(vec![range])).unwrap(), [(0..=9, nodes)]);
    }

    #[test]
    fn malformed_replies_are_errors() {
        assert!(id(bulk("x")).is_err() && id(Value::Nil).is_err());
        assert!(tuple::<2>(Value::Array(vec![Value::Nil])).is_err());
        assert!(pairs(Value::Array(vec![bulk("odd")])).is_err());
        assert!(integer(bulk("1x")).is_err() && text(Value::Array(Vec::new())).is_err());
    }
}
