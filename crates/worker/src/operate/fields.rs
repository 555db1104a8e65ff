//! The fields of entries in JSON.
//!
//! The command line and handlers get an object ([`object`]). The dashboard gets an array of pairs ([`FieldsView`]),
//! because it shows fields in their order, hides some values, and cuts long ones.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::wording::printable;
use crate::backend::Fields;
use crate::redaction::Redaction;

/// Maximum bytes of a value in a list. A longer one is cut.
pub const LISTED_BYTES_MAX: usize = 4 * 1024;
/// Maximum bytes of a value of a single entry. A longer one is cut.
pub const WHOLE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Returns fields as a JSON object.
///
/// A name that occurs more than once has an array of values. A value that is not UTF-8 is `{"hex": "…"}`. In a name,
/// bytes that are not UTF-8 are escaped.
pub fn object(fields: &Fields) -> Value {
    let mut object = Map::new();
    for (name, value) in fields {
        let value = whole_value(value);
        match object.entry(name_text(name)) {
            serde_json::map::Entry::Vacant(vacant) => {
                vacant.insert(value);
            }
            serde_json::map::Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Value::Array(values) => values.push(value),
                first => *first = json!([first.take(), value]),
            },
        }
    }
    Value::Object(object)
}

/// Returns a value as JSON: text, or `{"hex": "…"}` if it is not UTF-8.
pub fn whole_value(value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "hex": hex(value) }),
    }
}

/// How fields are shown: which values are hidden, and how much of a long one is shown.
#[derive(Clone, Copy, Debug)]
pub struct FieldsView<'a> {
    /// Which values are hidden.
    pub redaction: &'a Redaction,
    /// Maximum bytes of a value.
    pub value_bytes_max: usize,
}

impl<'a> FieldsView<'a> {
    /// Shows at most [`LISTED_BYTES_MAX`] of each value.
    pub fn listed(redaction: &'a Redaction) -> FieldsView<'a> {
        FieldsView { redaction, value_bytes_max: LISTED_BYTES_MAX }
    }

    /// Shows at most [`WHOLE_BYTES_MAX`] of each value.
    pub fn whole(redaction: &'a Redaction) -> FieldsView<'a> {
        FieldsView { redaction, value_bytes_max: WHOLE_BYTES_MAX }
    }

    /// Returns fields as pairs of name and value, in their order.
    pub fn pairs(&self, fields: &Fields) -> Vec<FieldPair> {
        let pair = |(name, value): &(Bytes, Bytes)| {
            let shown = self.value_in(fields, name, value);
            match std::str::from_utf8(name) {
                Ok(name) => FieldPair::Named(name.to_owned(), shown),
                Err(_) => FieldPair::Escaped(printable(name), shown, hex(name)),
            }
        };
        fields.iter().map(pair).collect()
    }

    /// Returns the value of a field.
    pub fn value(&self, name: &[u8], value: &[u8]) -> ShownValue {
        self.value_in(&Fields::new(), name, value)
    }

    fn value_in(&self, fields: &Fields, name: &[u8], value: &[u8]) -> ShownValue {
        let Some(shown) = self.redaction.shown_among(fields, name, value) else {
            return ShownValue { hidden: Some(true), ..ShownValue::default() };
        };
        let is_cut = shown.len() > self.value_bytes_max;
        let text = std::str::from_utf8(&shown).ok();
        ShownValue {
            text: text.map(|text| beginning(text, self.value_bytes_max).to_owned()),
            hex: text.is_none().then(|| hex(&shown[..shown.len().min(self.value_bytes_max)])),
            hidden: None,
            bytes: is_cut.then_some(value.len()),
            cut: is_cut.then_some(true),
        }
    }
}

/// A field: its name and its value. A name that is not UTF-8 is escaped, and its hexadecimal digits follow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum FieldPair {
    /// A field whose name is UTF-8.
    Named(String, ShownValue),
    /// A field whose name is not UTF-8.
    Escaped(String, ShownValue, String),
}

/// A value of a field: text, or hexadecimal digits if it is not UTF-8, or hidden. `bytes` and `cut` say that only its
/// beginning is here, and how long it is.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ShownValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<bool>,
}

/// Returns the first characters of a text, at most `bytes_max` bytes.
fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn name_text(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| printable(name), str::to_owned)
}

/// Returns bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| char::from(DIGITS[usize::from(number)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &'static [u8], value: &'static [u8]) -> (Bytes, Bytes) {
        (Bytes::from(name), Bytes::from(value))
    }

    #[test]
    fn an_object_keeps_all_values_of_a_name() {
        let fields =
            vec![field(b"a", b"1"), field(b"b", b"two words"), field(b"a", b"\xff"), field(b"c", b"")];
        assert_eq!(object(&fields), json!({"a": ["1", {"hex": "ff"}], "b": "two words", "c": ""}));
    }

    #[test]
    fn an_array_keeps_the_order_and_hides_values() {
        let fields =
            vec![field(b"b", b"1"), field(b"a", b"\xff\x00"), field(b"\xfe", b""), field(b"token", b"x")];
        let expected = json!([
            ["b", {"text": "1"}],
            ["a", {"hex": "ff00"}],
            ["\\xfe", {"text": ""}, "fe"],
            ["token", {"hidden": true}],
        ]);
        assert_eq!(json!(FieldsView::listed(&Redaction::default()).pairs(&fields)), expected);
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let redaction = Redaction::none();
        let view = FieldsView::listed(&redaction);
        let value = |value: &[u8]| json!(view.value(b"a", value));
        let whole = "x".repeat(LISTED_BYTES_MAX);
        assert_eq!(value(whole.as_bytes()), json!({ "text": whole }));
        let longer = format!("{}é", "x".repeat(LISTED_BYTES_MAX - 1));
        let expected =
            json!({ "text": "x".repeat(LISTED_BYTES_MAX - 1), "bytes": LISTED_BYTES_MAX + 1, "cut": true });
        assert_eq!(value(longer.as_bytes()), expected);
        let binary = value(&[0xff; LISTED_BYTES_MAX + 1]);
        assert_eq!(binary["hex"].as_str().unwrap().len(), 2 * LISTED_BYTES_MAX);
        assert_eq!(binary["bytes"], LISTED_BYTES_MAX + 1);
    }
}
