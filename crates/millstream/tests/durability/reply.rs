//! Picks replies apart. Everything gives `None` or nothing where a reply has another shape: the checks downstream then
//! find something missing.

use crate::entry::{Fields, Id, recognise};
use crate::ledger::Seen;
use crate::support::resp::Value;

/// The bytes of a string of either kind.
pub(crate) fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => Some(text),
        _ => None,
    }
}

/// The bytes of a string as an owned text.
pub(crate) fn string(value: &Value) -> String {
    text(value).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

/// An integer.
pub(crate) fn int(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// An id.
pub(crate) fn id(value: &Value) -> Option<Id> {
    Id::parse(text(value)?)
}

/// The items of an array; nothing for any null.
pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

/// The value after this name in a flat map.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    list(value).chunks_exact(2).find(|pair| text(&pair[0]) == Some(name.as_bytes())).map(|pair| &pair[1])
}

/// An entry: its id, and its fields unless it was deleted.
pub(crate) fn entry(value: &Value) -> Option<(Id, Option<Fields>)> {
    let [id_value, fields] = list(value) else { return None };
    let fields = match fields {
        Value::Array(items) => Some(items.iter().filter_map(|item| text(item).map(<[u8]>::to_vec)).collect()),
        _ => None,
    };
    Some((id(id_value)?, fields))
}

/// A list of entries of one stream as they were shown.
pub(crate) fn seen(key: &'static str, entries: &Value) -> Vec<Seen> {
    list(entries)
        .iter()
        .filter_map(entry)
        .map(|(id, fields)| Seen { key, id, mark: fields.as_deref().and_then(recognise) })
        .collect()
}

/// The reply of XREAD and XREADGROUP: streams with their entries.
pub(crate) fn seen_in_streams(keys: &[&'static str], reply: &Value) -> Vec<Seen> {
    let mut all = Vec::new();
    for stream in list(reply) {
        let [name, entries] = list(stream) else { continue };
        if let Some(&key) = keys.iter().find(|key| text(name) == Some(key.as_bytes())) {
            all.extend(seen(key, entries));
        }
    }
    all
}
