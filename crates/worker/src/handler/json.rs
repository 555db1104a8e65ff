//! A message as a value of your own type.

use std::any::type_name;
use std::ops::Deref;

use bytes::Bytes;
use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::extract::FromMessage;
use super::shared::Shared;
use crate::message::Message;
use crate::outcome::HandlerError;

/// Fields that can contain one JSON document. The first that exists is used.
const DOCUMENT_FIELDS: [&str; 3] = ["data", "payload", "json"];

/// The message as a `T`.
///
/// If the message has a field `data`, `payload` or `json` (in this order), `T` is read from the JSON document in
/// it. Otherwise each field of the message is a member of `T`. Values of fields are text. If a member is a number
/// or a bool, the text is parsed. If it is a list, a map or a struct, the text is read as JSON. If several fields
/// have the same name, the `Deserialize` implementation of `T` decides; for structs this is an error.
///
/// ```text
/// XADD orders * data '{"id":7,"tags":["new"]}'      \  both are
/// XADD orders * id 7 tags '["new"]'                 /  Order { id: 7, tags: vec!["new"] }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DeserializeOwned + Send> FromMessage for Json<T> {
    fn from_message(message: &Message, _: &Shared) -> Result<Json<T>, HandlerError> {
        let document = DOCUMENT_FIELDS.iter().find_map(|name| Some((name, message.field(name)?)));
        match document {
            Some((name, value)) => serde_json::from_slice(value)
                .map_err(|error| unreadable::<T>(format_args!("field {name}"), &error)),
            None => T::deserialize(MapDeserializer::new(
                message.fields.iter().map(|(name, value)| (JsonValue(name), JsonValue(value))),
            ))
            .map_err(|error| unreadable::<T>(format_args!("the fields"), &error)),
        }
        .map(Json)
    }
}

fn unreadable<T>(what: std::fmt::Arguments<'_>, error: &serde_json::Error) -> HandlerError {
    let message = format!("cannot read {what} as {}: {error}", type_name::<T>());
    HandlerError::decode(message).of_type(type_name::<serde_json::Error>())
}

/// The text of one field. It deserializes as the type that the caller expects.
struct JsonValue<'a>(&'a Bytes);

impl<'a> JsonValue<'a> {
    fn text(&self) -> Result<&'a str, serde_json::Error> {
        std::str::from_utf8(self.0).map_err(serde_json::Error::custom)
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for JsonValue<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parse_text {
    ($($method:ident $visit:ident,)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, serde_json::Error> {
            visitor.$visit(self.text()?.parse().map_err(serde_json::Error::custom)?)
        }
    )+};
}

macro_rules! read_json {
    ($($method:ident($($arg:ident: $type:ty),*),)+) => {$(
        fn $method<V: Visitor<'de>>(self, $($arg: $type,)* visitor: V) -> Result<V::Value, serde_json::Error> {
            let mut json = serde_json::Deserializer::from_slice(self.0);
            let value = json.$method($($arg,)* visitor)?;
            json.end()?;
            Ok(value)
        }
    )+};
}

impl<'de> Deserializer<'de> for JsonValue<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, serde_json::Error> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, serde_json::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, serde_json::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, serde_json::Error> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, serde_json::Error> {
        visitor.visit_borrowed_bytes(self.0)
    }

    // The name of a variant without a value can stand alone. Everything else is JSON.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, serde_json::Error> {
        let text = self.text()?;
        if variants.contains(&text) {
            return StrDeserializer::new(text).deserialize_enum(name, variants, visitor);
        }
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_enum(name, variants, visitor)
    }

    parse_text! {
        deserialize_bool visit_bool,
        deserialize_i8 visit_i8,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_i128 visit_i128,
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_u128 visit_u128,
        deserialize_f32 visit_f32,
        deserialize_f64 visit_f64,
    }

    read_json! {
        deserialize_seq(),
        deserialize_map(),
        deserialize_tuple(len: usize),
        deserialize_struct(name: &'static str, fields: &'static [&'static str]),
        deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_unit(),
        deserialize_unit_struct(name: &'static str),
    }

    forward_to_deserialize_any! { char str string identifier ignored_any }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::message::sample;
    use crate::outcome::{ErrorClass, Reason};

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum PaymentKind {
        Card,
        Cash,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Invoice {
        id: u64,
        price: f64,
        paid: bool,
        kind: PaymentKind,
        note: Option<String>,
        #[serde(default)]
        tags: Vec<String>,
    }

    fn take<T: DeserializeOwned + Send>(fields: &[(&str, &str)]) -> Result<T, HandlerError> {
        Json::from_message(&sample(fields), &Shared::default()).map(|json| json.0)
    }

    fn invoice() -> Invoice {
        Invoice {
            id: 7,
            price: 1.5,
            paid: true,
            kind: PaymentKind::Card,
            note: None,
            tags: vec!["new".to_owned()],
        }
    }

    const DOCUMENT: &str = r#"{"id":7,"price":1.5,"paid":true,"kind":"card","tags":["new"]}"#;

    #[test]
    fn a_document_can_be_in_any_of_its_fields() {
        for name in DOCUMENT_FIELDS {
            assert_eq!(take::<Invoice>(&[("other", "x"), (name, DOCUMENT)]).unwrap(), invoice());
        }
    }

    #[test]
    fn data_has_precedence_over_payload() {
        assert_eq!(take::<u8>(&[("payload", "1"), ("data", "2")]).unwrap(), 2);
    }

    #[test]
    fn fields_are_read_as_the_types_of_the_members() {
        let fields = [
            ("id", "7"),
            ("price", "1.5"),
            ("paid", "true"),
            ("kind", "card"),
            ("tags", r#"["new"]"#),
            ("x", "y"),
        ];
        assert_eq!(take::<Invoice>(&fields).unwrap(), invoice());
        let cash = take::<Invoice>(&[
            ("id", "1"),
            ("price", "2"),
            ("paid", "false"),
            ("kind", "cash"),
            ("note", "n"),
        ]);
        let cash = cash.unwrap();
        assert_eq!((cash.kind, cash.note.as_deref()), (PaymentKind::Cash, Some("n")));
    }

    #[test]
    fn fields_without_a_type_are_strings() {
        let value: serde_json::Value = take(&[("a", "1"), ("b", "x")]).unwrap();
        assert_eq!(value, serde_json::json!({"a": "1", "b": "x"}));
        let map: BTreeMap<String, u8> = take(&[("a", "1"), ("b", "2")]).unwrap();
        assert_eq!(map.into_values().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn unreadable_messages_are_rejected_with_reason_decode() {
        for fields in
            [&[("data", "{")][..], &[("id", "seven")], &[("id", "7"), ("id", "8")], &[("tags", "[1")]]
        {
            let error = take::<Invoice>(fields).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Reject, "{fields:?}");
            assert_eq!(error.failure().reason, Reason::Decode, "{fields:?}");
            assert!(error.failure().error.contains("Invoice"), "{error}");
        }
    }
}
