//! A message in the form that a handler program gets: a JSON object, and environment variables.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use millstream_worker::Message;
use serde_json::{Value, json};

use crate::ops::value::fields_json;

/// Maximum size of one variable. Longer values are left out; Linux limits a single variable to 128 KiB.
const VARIABLE_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of all variables together. Linux limits the arguments and the environment of a process together.
const VARIABLES_BYTES_MAX: usize = 512 * 1024;

/// Returns the message as JSON:
/// `{"id":"1-1","stream":"orders","group":"billing","attempt":1,"fields":{"item":"book"}}`.
pub(super) fn payload(message: &Message) -> Value {
    json!({
        "id": message.id.to_string(),
        "stream": &*message.stream,
        "group": &*message.group,
        "attempt": message.attempt,
        "fields": fields_json(&message.fields),
    })
}

/// Returns the message as environment variables.
///
/// Field values that are too long or contain a NUL byte are left out. The JSON has all values.
pub(super) fn variables(message: &Message) -> Vec<(String, OsString)> {
    let mut variables: Vec<(String, OsString)> = vec![
        ("MILLSTREAM_ID".to_owned(), message.id.to_string().into()),
        ("MILLSTREAM_STREAM".to_owned(), message.stream.replace('\0', "").into()),
        ("MILLSTREAM_GROUP".to_owned(), message.group.replace('\0', "").into()),
        ("MILLSTREAM_ATTEMPT".to_owned(), message.attempt.to_string().into()),
    ];
    let mut bytes = 0;
    for (name, value) in message.fields.iter() {
        bytes += name.len() + value.len();
        let fits = value.len() <= VARIABLE_BYTES_MAX && bytes <= VARIABLES_BYTES_MAX;
        if fits && !value.contains(&0) {
            variables.push((variable_name(name), OsString::from_vec(value.to_vec())));
        }
    }
    variables
}

/// Returns the variables for a batch of messages: their group and their number.
pub(super) fn batch_variables(messages: &[Message]) -> Vec<(String, OsString)> {
    let group = messages.first().map_or_else(String::new, |message| message.group.replace('\0', ""));
    vec![
        ("MILLSTREAM_GROUP".to_owned(), group.into()),
        ("MILLSTREAM_COUNT".to_owned(), messages.len().to_string().into()),
    ]
}

/// Returns the variable for a field: `order-id` becomes `MILLSTREAM_FIELD_ORDER_ID`.
///
/// Because of the prefix, a message cannot set variables such as `PATH`.
fn variable_name(field: &[u8]) -> String {
    let character =
        |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() as char } else { '_' };
    let name: String = field.iter().map(character).collect();
    format!("MILLSTREAM_FIELD_{name}")
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use millstream_worker::backend::StreamId;

    use super::*;

    /// Returns a message for the tests of this folder.
    pub(in crate::work) fn sample(fields: &[(&'static str, &'static [u8])]) -> Message {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Message {
            stream: "orders".into(),
            group: "billing".into(),
            consumer: "one".into(),
            id: StreamId::new(7, 1),
            fields: Arc::new(fields),
            attempt: 2,
            cancelled: tokio_util::sync::CancellationToken::new(),
        }
    }

    #[test]
    fn a_message_becomes_a_json_object() {
        let json = payload(&sample(&[("item", b"book"), ("raw", b"\xff")]));
        assert_eq!(
            json.to_string(),
            r#"{"id":"7-1","stream":"orders","group":"billing","attempt":2,"fields":{"item":"book","raw":{"hex":"ff"}}}"#
        );
    }

    #[test]
    fn fields_become_prefixed_variables() {
        let long = vec![b'x'; VARIABLE_BYTES_MAX + 1].leak();
        let variables =
            variables(&sample(&[("order-id", b"17"), ("PATH", b"/evil"), ("nul", b"a\0b"), ("long", long)]));
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "MILLSTREAM_ID",
                "MILLSTREAM_STREAM",
                "MILLSTREAM_GROUP",
                "MILLSTREAM_ATTEMPT",
                "MILLSTREAM_FIELD_ORDER_ID",
                "MILLSTREAM_FIELD_PATH"
            ]
        );
        assert_eq!(variables[4].1, "17");
    }
}
