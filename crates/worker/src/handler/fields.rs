//! One field of a message as an argument.

use std::any::type_name;
use std::marker::PhantomData;
use std::ops::Deref;

use bytes::Bytes;

use super::extract::FromMessage;
use super::shared::Shared;
use crate::message::Message;
use crate::outcome::HandlerError;

/// The name of a field, as a type.
pub trait FieldName: Send + 'static {
    /// The name of the field.
    const NAME: &'static str;
}

/// The value of the field `N`, read as a `T`. Use `Option<T>` for a field that can be missing.
///
/// ```
/// use millstream_worker::handler::{Field, FieldName};
///
/// struct OrderId;
/// impl FieldName for OrderId { const NAME: &'static str = "order_id"; }
/// struct Coupon;
/// impl FieldName for Coupon { const NAME: &'static str = "coupon"; }
///
/// async fn ship(order: Field<OrderId, u64>, coupon: Field<Coupon, Option<String>>) {
///     println!("order {} with coupon {:?}", *order, *coupon);
/// }
/// # let backend = std::sync::Arc::new(millstream_worker::backend::Embedded::in_memory());
/// # millstream_worker::Worker::builder(backend).handler(ship);
/// ```
#[derive(Clone, Debug)]
pub struct Field<N, T = String>(pub T, PhantomData<fn() -> N>);

impl<N, T> Deref for Field<N, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<N: FieldName, T: FromField> FromMessage for Field<N, T> {
    fn from_message(message: &Message, _: &Shared) -> Result<Field<N, T>, HandlerError> {
        Ok(Field(T::from_field(N::NAME, message.field(N::NAME))?, PhantomData))
    }
}

/// A type that can be read from the value of a field.
#[diagnostic::on_unimplemented(
    message = "a field cannot be read as `{Self}`",
    note = "use `String`, `Bytes`, a number, `bool`, `Option` of these, or implement `FromField`"
)]
pub trait FromField: Sized + Send {
    /// Reads the value of the field `name`. `value` is `None` if the message has no such field.
    fn from_field(name: &str, value: Option<&Bytes>) -> Result<Self, HandlerError>;
}

impl FromField for Bytes {
    fn from_field(name: &str, value: Option<&Bytes>) -> Result<Bytes, HandlerError> {
        value.cloned().ok_or_else(|| missing(name))
    }
}

impl FromField for String {
    fn from_field(name: &str, value: Option<&Bytes>) -> Result<String, HandlerError> {
        text(name, value).map(str::to_owned)
    }
}

impl<T: FromField> FromField for Option<T> {
    fn from_field(name: &str, value: Option<&Bytes>) -> Result<Option<T>, HandlerError> {
        value.map(|value| T::from_field(name, Some(value))).transpose()
    }
}

macro_rules! parsed_from_field {
    ($($type:ty),+) => {$(
        impl FromField for $type {
            fn from_field(name: &str, value: Option<&Bytes>) -> Result<$type, HandlerError> {
                let text = text(name, value)?;
                text.parse().map_err(|error| {
                    let message = format!("cannot read field {name} as {}: {error}", type_name::<$type>());
                    HandlerError::decode(message).of_type("unreadable_field")
                })
            }
        }
    )+};
}

parsed_from_field!(bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

fn text<'a>(name: &str, value: Option<&'a Bytes>) -> Result<&'a str, HandlerError> {
    let value = value.ok_or_else(|| missing(name))?;
    std::str::from_utf8(value).map_err(|error| {
        HandlerError::decode(format!("field {name} is not UTF-8 text: {error}")).of_type("unreadable_field")
    })
}

fn missing(name: &str) -> HandlerError {
    HandlerError::decode(format!("field {name} is missing")).of_type("missing_field")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::sample;

    struct Amount;

    impl FieldName for Amount {
        const NAME: &'static str = "amount";
    }

    fn take<T: FromField>(fields: &[(&str, &str)]) -> Result<T, String> {
        Field::<Amount, T>::from_message(&sample(fields), &Shared::default())
            .map(|field| field.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_field_is_read_as_its_type() {
        assert_eq!(take::<u64>(&[("amount", "12")]), Ok(12));
        assert_eq!(take::<f64>(&[("amount", "1.5")]), Ok(1.5));
        assert_eq!(take::<String>(&[("amount", "x")]), Ok("x".to_owned()));
        assert_eq!(take::<Option<u8>>(&[]), Ok(None));
        assert_eq!(take::<Option<u8>>(&[("amount", "3")]), Ok(Some(3)));
    }

    #[test]
    fn errors_name_the_field() {
        assert_eq!(take::<String>(&[]), Err("field amount is missing".to_owned()));
        let wrong = take::<u8>(&[("amount", "lots")]).unwrap_err();
        assert!(wrong.starts_with("cannot read field amount as u8: "), "{wrong}");
    }
}
