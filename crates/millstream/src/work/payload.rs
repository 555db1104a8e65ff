//! A message in the form that a handler program gets: a JSON object, and environment variables.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use millstream_worker::Message;
use millstream_worker::operate::fields;
use millstream_worker::trace::{TRACEPARENT, TRACESTATE};
use serde_json::{Value, json};

use crate::ops::trace::{TRACEPARENT_VARIABLE, TRACESTATE_VARIABLE};

/// Maximum size of one variable with its name. Linux limits a single variable to 128 KiB.
const VARIABLE_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of the variables of all fields. Linux limits the arguments and the environment of a process together,
/// usually to 2 MiB.
const FIELDS_BYTES_MAX: usize = 512 * 1024;
/// What a variable takes in addition to its name and value: `=`, a NUL byte and a pointer.
const VARIABLE_OVERHEAD_BYTES: usize = 10;

/// An environment variable: name and value.
pub(super) type Variable = (String, OsString);

/// Returns the message as JSON:
/// `{"id":"1-1","stream":"orders","group":"billing","attempt":1,"fields":{"item":"book"}}`. A message with a trace also
/// has `traceparent` and, if there is one, `tracestate`. If the worker orders messages, it has `fence`, and `key` and
/// `partition` if the message has them. `stream` is the name that the worker was given.
pub(super) fn payload(message: &Message) -> Value {
    let mut json = json!({
        "id": message.id.to_string(),
        "stream": &*message.logical_stream,
        "group": &*message.group,
        "attempt": message.attempt,
    });
    if let Some(key) = message.key() {
        json["key"] = fields::whole_value(key);
    }
    if let Some(number) = message.partition {
        json["partition"] = number.into();
    }
    if let Some(fence) = message.fence {
        json["fence"] = fence.into();
    }
    if let Some(trace) = message.handler_trace() {
        json[TRACEPARENT] = trace.to_string().into();
        if let Some(state) = trace.state {
            json[TRACESTATE] = state.into();
        }
    }
    json["fields"] = fields::object(&message.fields);
    json
}

/// A message or a batch as environment variables.
///
/// A variable that is too long or contains a NUL byte is left out, and so are the fields that exceed
/// [`FIELDS_BYTES_MAX`]. If the names of several fields give the same variable, the first one counts. The JSON has all
/// fields.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// What identifies the message or the batch.
    pub(super) message: Vec<Variable>,
    pub(super) fields: Vec<Variable>,
}

impl Variables {
    pub(super) fn of_message(message: &Message) -> Variables {
        let about = [
            ("MILLSTREAM_ID", message.id.to_string()),
            ("MILLSTREAM_STREAM", message.logical_stream.to_string()),
            ("MILLSTREAM_GROUP", message.group.to_string()),
            ("MILLSTREAM_ATTEMPT", message.attempt.to_string()),
        ];
        let about: Vec<_> = about.into_iter().chain(trace_variables(message)).collect();
        let mut about = about_message(&about);
        about.extend(message.key().and_then(|key| variable("MILLSTREAM_ORDER_KEY".to_owned(), key)));
        let partition = message.partition.map(|number| ("MILLSTREAM_PARTITION", number.to_string()));
        let fence = message.fence.map(|number| ("MILLSTREAM_FENCE", number.to_string()));
        about.extend(about_message(&partition.into_iter().chain(fence).collect::<Vec<_>>()));
        let mut fields = Vec::new();
        let (mut names, mut bytes_left) = (HashSet::new(), FIELDS_BYTES_MAX);
        for (name, value) in message.fields.iter() {
            // A name that is too long is not converted at all.
            if name.len() > VARIABLE_BYTES_MAX || !names.insert(variable_name(name)) {
                continue;
            }
            let Some(variable) = variable(variable_name(name), value) else { continue };
            let Some(left) = bytes_left.checked_sub(size_of(&variable)) else { break };
            bytes_left = left;
            fields.push(variable);
        }
        Variables { message: about, fields }
    }

    /// Returns the variables for a batch of messages: their group and their number, and the trace of a single message.
    pub(super) fn of_batch(messages: &[Message]) -> Variables {
        let group = messages.first().map_or_else(String::new, |message| message.group.to_string());
        let mut about = vec![("MILLSTREAM_GROUP", group), ("MILLSTREAM_COUNT", messages.len().to_string())];
        if let [message] = messages {
            about.extend(trace_variables(message));
        }
        Variables { message: about_message(&about), fields: Vec::new() }
    }
}

/// Returns the variables with the trace of a message, if it has one.
fn trace_variables(message: &Message) -> Vec<(&'static str, String)> {
    let Some(trace) = message.handler_trace() else { return Vec::new() };
    let parent = (TRACEPARENT_VARIABLE, trace.to_string());
    std::iter::once(parent).chain(trace.state.map(|state| (TRACESTATE_VARIABLE, state))).collect()
}

fn about_message(about: &[(&str, String)]) -> Vec<Variable> {
    about
        .iter()
        .filter_map(|(name, value)| variable((*name).to_owned(), value.replace('\0', "").as_bytes()))
        .collect()
}

/// Returns a variable, or `None` if it cannot be passed to a process.
fn variable(name: String, value: &[u8]) -> Option<Variable> {
    let fits = name.len() + value.len() <= VARIABLE_BYTES_MAX && !value.contains(&0);
    fits.then(|| (name, OsString::from_vec(value.to_vec())))
}

fn size_of((name, value): &Variable) -> usize {
    name.len() + value.len() + VARIABLE_OVERHEAD_BYTES
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
    use millstream_worker::trace::SpanId;

    use super::*;

    /// Returns a message for the tests of this folder.
    pub(in crate::work) fn sample(fields: &[(&'static str, &'static [u8])]) -> Message {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Message {
            stream: "orders".into(),
            logical_stream: "orders".into(),
            group: "billing".into(),
            consumer: "one".into(),
            id: StreamId::new(7, 1),
            fields: Arc::new(fields),
            attempt: 2,
            span_id: None,
            key_field: None,
            partition: None,
            fence: None,
            cancelled: tokio_util::sync::CancellationToken::new(),
        }
    }

    const TRACEPARENT_VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// Returns a message with a trace, as the worker passes it to a handler.
    pub(in crate::work) fn traced() -> Message {
        let fields: [(_, &[u8]); 2] =
            [("traceparent", TRACEPARENT_VALUE.as_bytes()), ("tracestate", b"foo=1")];
        Message { span_id: Some(SpanId::random()), ..sample(&fields) }
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
    fn a_message_with_a_trace_passes_it_on_with_the_span_of_its_handler() {
        let message = traced();
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-";
        let json = payload(&message);
        let traceparent = json["traceparent"].as_str().unwrap();
        assert!(traceparent.starts_with(trace) && traceparent != TRACEPARENT_VALUE, "{json}");
        assert_eq!(
            (&json["tracestate"], &json["fields"]["traceparent"]),
            (&"foo=1".into(), &TRACEPARENT_VALUE.into())
        );
        let variables = Variables::of_message(&message).message;
        assert_eq!(names(&variables)[4..], ["TRACEPARENT", "TRACESTATE"]);
        assert_eq!((&variables[4].1, &variables[5].1), (&traceparent.into(), &"foo=1".into()));
        let alone = Variables::of_batch(std::slice::from_ref(&message)).message;
        assert_eq!(names(&alone)[2..], ["TRACEPARENT", "TRACESTATE"]);
        assert_eq!(names(&Variables::of_batch(&[message.clone(), message]).message).len(), 2);
    }

    #[test]
    fn a_handler_gets_the_key() {
        let with_key = |field: &str| Message {
            key_field: Some(field.into()),
            ..sample(&[("customer", b"17"), ("raw", b"\xff"), ("nul", b"a\0b")])
        };
        let variable = |field| Variables::of_message(&with_key(field)).message.into_iter().nth(4);
        assert_eq!(payload(&with_key("customer"))["key"], "17");
        assert_eq!(variable("customer"), Some(("MILLSTREAM_ORDER_KEY".to_owned(), "17".into())));
        assert_eq!(payload(&with_key("raw"))["key"], json!({"hex": "ff"}));
        assert_eq!((payload(&with_key("other")).get("key"), variable("other")), (None, None));
        assert_eq!(variable("nul"), None);
    }

    #[test]
    fn a_handler_gets_the_partition_and_the_fence() {
        let message = Message {
            stream: "orders:{ae}.1".into(),
            partition: Some(3),
            fence: Some(1_760_000_000_000),
            ..sample(&[])
        };
        let json = payload(&message);
        assert_eq!(
            (&json["stream"], &json["partition"], &json["fence"]),
            (&"orders".into(), &3.into(), &1_760_000_000_000_u64.into())
        );
        let variables = Variables::of_message(&message).message;
        assert_eq!(names(&variables)[4..], ["MILLSTREAM_PARTITION", "MILLSTREAM_FENCE"]);
        assert_eq!(variables[1].1, "orders");
        assert_eq!((&*variables[4].1, &*variables[5].1), ("3".as_ref(), "1760000000000".as_ref()));
        assert!(["partition", "fence"].iter().all(|name| payload(&sample(&[])).get(name).is_none()));
    }

    fn names(variables: &[Variable]) -> Vec<&str> {
        variables.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn fields_become_prefixed_variables() {
        let variables = Variables::of_message(&sample(&[
            ("order-id", b"17"),
            ("PATH", b"/evil"),
            ("nul", b"a\0b"),
            ("order_id", b"18"),
        ]));
        assert_eq!(
            names(&variables.message),
            ["MILLSTREAM_ID", "MILLSTREAM_STREAM", "MILLSTREAM_GROUP", "MILLSTREAM_ATTEMPT"]
        );
        assert_eq!(names(&variables.fields), ["MILLSTREAM_FIELD_ORDER_ID", "MILLSTREAM_FIELD_PATH"]);
        assert_eq!(variables.fields[0].1, "17");
    }

    #[test]
    fn the_size_of_a_variable_includes_its_name() {
        let prefix = "MILLSTREAM_FIELD_".len();
        let long = |bytes: usize| -> &'static str { "x".repeat(bytes).leak() };
        let most = VARIABLE_BYTES_MAX - prefix - 1;
        for (name, value) in [(most, 1), (1, most)] {
            let fits = Variables::of_message(&sample(&[(long(name), long(value).as_bytes())]));
            assert_eq!(fits.fields.len(), 1, "{name} {value}");
            let too_long = Variables::of_message(&sample(&[(long(name), long(value + 1).as_bytes())]));
            assert_eq!(too_long.fields.len(), 0, "{name} {value}");
        }
        let message = Message { group: long(VARIABLE_BYTES_MAX).into(), ..sample(&[]) };
        assert_eq!(names(&Variables::of_batch(&[message]).message), ["MILLSTREAM_COUNT"]);
    }

    #[test]
    fn many_small_fields_stay_within_the_limit() {
        let fields: Vec<(&'static str, &'static [u8])> =
            (0..100_000).map(|n| (&*format!("f{n}").leak(), &b"v"[..])).collect();
        let variables = Variables::of_message(&sample(&fields));
        let bytes: usize = variables.fields.iter().map(size_of).sum();
        assert!(bytes <= FIELDS_BYTES_MAX && bytes > FIELDS_BYTES_MAX - 100, "{bytes}");
    }
}
