//! Parses replies. A reply of an unexpected shape gives `None` or an empty list, so that later checks report missing
//! data.

use crate::entry::{Fields, Id, recognise};
use crate::ledger::Seen;
use crate::support::resp::Value;

/// Returns the bytes of a bulk or simple string.
pub(crate) fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => Some(text),
        _ => None,
    }
}

/// Returns a bulk or simple string as text.
pub(crate) fn string(value: &Value) -> String {
    text(value).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

/// Returns an integer.
pub(crate) fn int(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// Returns an entry id.
pub(crate) fn id(value: &Value) -> Option<Id> {
    Id::parse(text(value)?)
}

/// Returns the items of an array. Empty for a null.
pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

/// Returns the value of a name in a flat map.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    list(value).chunks_exact(2).find(|pair| text(&pair[0]) == Some(name.as_bytes())).map(|pair| &pair[1])
}

/// Returns the id of an entry, and its fields unless it was deleted.
pub(crate) fn entry(value: &Value) -> Option<(Id, Option<Fields>)> {
    let [id_value, fields] = list(value) else { return None };
    let fields = match fields {
        Value::Array(items) => Some(items.iter().filter_map(|item| text(item).map(<[u8]>::to_vec)).collect()),
        _ => None,
    };
    Some((id(id_value)?, fields))
}

/// Returns a list of entries of one stream.
pub(crate) fn seen(key: &'static str, entries: &Value) -> Vec<Seen> {
    list(entries)
        .iter()
        .filter_map(entry)
        .map(|(id, fields)| Seen { key, id, mark: fields.as_deref().and_then(recognise) })
        .collect()
}

/// Returns the entries in a reply of XREAD or XREADGROUP.
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
