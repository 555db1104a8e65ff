//! A message as it is told to a program: one JSON object, and variables of the environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use millstream_worker::Message;
use serde_json::{Value, json};

use crate::ops::value::fields_json;

/// A longer value is left out of the environment, where a single one may have no more than 128 KiB on Linux.
const VARIABLE_BYTES_MAX: usize = 64 * 1024;
/// All values together: the arguments and the environment of a process share a limit.
const VARIABLES_BYTES_MAX: usize = 512 * 1024;

/// The message as JSON: `{"id":"1-1","stream":"orders","group":"billing","attempt":1,"fields":{"item":"book"}}`.
pub(super) fn payload(message: &Message) -> Value {
    json!({
        "id": message.id.to_string(),
        "stream": &*message.stream,
        "group": &*message.group,
        "attempt": message.attempt,
        "fields": fields_json(&message.fields),
    })
}

/// The message as variables. Values that no environment can hold are left out: they are in the JSON.
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

/// Several messages as variables: what is the same for all of them.
pub(super) fn batch_variables(messages: &[Message]) -> Vec<(String, OsString)> {
    let group = messages.first().map_or_else(String::new, |message| message.group.replace('\0', ""));
    vec![
        ("MILLSTREAM_GROUP".to_owned(), group.into()),
        ("MILLSTREAM_COUNT".to_owned(), messages.len().to_string().into()),
    ]
}

/// `order-id` becomes `MILLSTREAM_FIELD_ORDER_ID`. The prefix keeps a message from setting `PATH`.
fn variable_name(field: &[u8]) -> String {
    let letter =
        |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() as char } else { '_' };
    let name: String = field.iter().map(letter).collect();
    format!("MILLSTREAM_FIELD_{name}")
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use millstream_worker::backend::StreamId;

    use super::*;

    /// A message for the tests of this folder.
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
    fn a_message_is_one_object() {
        let told = payload(&sample(&[("item", b"book"), ("raw", b"\xff")]));
        assert_eq!(
            told.to_string(),
            r#"{"id":"7-1","stream":"orders","group":"billing","attempt":2,"fields":{"item":"book","raw":{"hex":"ff"}}}"#
        );
    }

    #[test]
    fn fields_are_variables_that_cannot_become_others() {
        let long = vec![b'x'; VARIABLE_BYTES_MAX + 1].leak();
        let told =
            variables(&sample(&[("order-id", b"17"), ("PATH", b"/evil"), ("nul", b"a\0b"), ("long", long)]));
        let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
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
        assert_eq!(told[4].1, "17");
    }
}
