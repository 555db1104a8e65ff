//! Arguments that a handler can take from its message.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::shared::{Data, FromShared, MissingState, Shared};
use crate::backend::{Fields, StreamId};
use crate::message::Message;
use crate::outcome::HandlerError;
use crate::trace::{TRACEPARENT, TRACESTATE};

/// An argument of a handler.
///
/// If the argument cannot be read from the message, return [`HandlerError::decode`]: the worker then rejects the
/// message. A tuple takes each of its elements from the message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from a message",
    label = "not an argument of a handler",
    note = "use `Json<T>`, `Text`, `Field<N, T>`, `Raw`, `MessageId`, `Attempt`, `Data<T>`, `Message`, `StreamName`, \
            `GroupName`, `ConsumerName`, `CancellationToken`, or implement `FromMessage`"
)]
pub trait FromMessage: Sized + Send {
    /// Reads the argument from a message.
    fn from_message(message: &Message, shared: &Shared) -> Result<Self, HandlerError>;

    /// Checks that the worker has what the argument needs. Called once, before the first message.
    fn check(_shared: &Shared) -> Result<(), MissingState> {
        Ok(())
    }
}

/// All fields, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub Arc<Fields>);

/// The text of the field `data`, `payload` or `text`, or of the only field beside `traceparent` and `tracestate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

/// The id of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub StreamId);

/// How often the message has been delivered, including this delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u64);

/// The stream from which the message was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamName(pub Arc<str>);

/// The group for which the message was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupName(pub Arc<str>);

/// The consumer to which the message was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerName(pub Arc<str>);

/// Arguments that every message has.
macro_rules! always_present {
    ($($type:ident: |$message:ident| $value:expr;)+) => {$(
        impl FromMessage for $type {
            fn from_message($message: &Message, _: &Shared) -> Result<$type, HandlerError> {
                Ok($value)
            }
        }
    )+};
}

always_present! {
    Message: |message| message.clone();
    Raw: |message| Raw(Arc::clone(&message.fields));
    MessageId: |message| MessageId(message.id);
    Attempt: |message| Attempt(message.attempt);
    StreamName: |message| StreamName(Arc::clone(&message.stream));
    GroupName: |message| GroupName(Arc::clone(&message.group));
    ConsumerName: |message| ConsumerName(Arc::clone(&message.consumer));
    CancellationToken: |message| message.cancelled.clone();
}

impl FromMessage for Text {
    fn from_message(message: &Message, _: &Shared) -> Result<Text, HandlerError> {
        let named = ["data", "payload", "text"].iter().find_map(|name| message.field(name));
        let is_trace = |name: &[u8]| name == TRACEPARENT.as_bytes() || name == TRACESTATE.as_bytes();
        let mut others = message.fields.iter().filter(|(name, _)| !is_trace(name));
        let value = match (named, others.next(), others.next()) {
            (Some(value), ..) | (None, Some((_, value)), None) => value,
            (None, ..) => {
                return Err(HandlerError::decode(
                    "the message has several fields, but no field data, payload or text",
                )
                .of_type("missing_field"));
            }
        };
        let text = std::str::from_utf8(value).map_err(HandlerError::decode)?;
        Ok(Text(text.to_owned()))
    }
}

impl<T: Send + Sync + 'static> FromMessage for Data<T> {
    fn from_message(_: &Message, shared: &Shared) -> Result<Data<T>, HandlerError> {
        Ok(Data::from_shared(shared)?)
    }

    fn check(shared: &Shared) -> Result<(), MissingState> {
        <Data<T> as FromShared>::check(shared)
    }
}

impl FromMessage for () {
    fn from_message(_: &Message, _: &Shared) -> Result<(), HandlerError> {
        Ok(())
    }
}

macro_rules! tuple_from_message {
    ($($part:ident),+) => {
        impl<$($part: FromMessage),+> FromMessage for ($($part,)+) {
            fn from_message(message: &Message, shared: &Shared) -> Result<Self, HandlerError> {
                Ok(($($part::from_message(message, shared)?,)+))
            }

            fn check(shared: &Shared) -> Result<(), MissingState> {
                $($part::check(shared)?;)+
                Ok(())
            }
        }
    };
}

tuple_from_message!(A);
tuple_from_message!(A, B);
tuple_from_message!(A, B, C);
tuple_from_message!(A, B, C, D);
tuple_from_message!(A, B, C, D, E);
tuple_from_message!(A, B, C, D, E, F);
tuple_from_message!(A, B, C, D, E, F, G);
tuple_from_message!(A, B, C, D, E, F, G, H);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::sample;
    use crate::outcome::Reason;

    fn take<T: FromMessage>(message: &Message) -> Result<T, HandlerError> {
        T::from_message(message, &Shared::default())
    }

    #[test]
    fn a_handler_can_take_each_property_of_a_message() {
        let message = sample(&[("a", "1")]);
        type Facts = (MessageId, Attempt, StreamName, GroupName, ConsumerName, Raw);
        let (id, attempt, stream, group, consumer, raw) = take::<Facts>(&message).unwrap();
        assert_eq!((id.0, attempt.0), (message.id, 1));
        assert_eq!((&*stream.0, &*group.0, &*consumer.0), ("orders", "billing", "one"));
        assert_eq!(raw.0, message.fields);
    }

    #[test]
    fn text_is_the_named_field_or_the_only_one() {
        assert_eq!(take::<Text>(&sample(&[("x", "a"), ("payload", "b")])).unwrap().0, "b");
        assert_eq!(take::<Text>(&sample(&[("x", "a")])).unwrap().0, "a");
        assert_eq!(
            take::<Text>(&sample(&[("traceparent", "t"), ("x", "a"), ("tracestate", "s")])).unwrap().0,
            "a"
        );
        let unclear = take::<Text>(&sample(&[("x", "a"), ("y", "b")])).unwrap_err();
        assert_eq!(unclear.failure().reason, Reason::Decode);
    }

    #[test]
    fn a_handler_takes_the_cancellation_token_of_its_message() {
        let message = sample(&[]);
        let token = take::<CancellationToken>(&message).unwrap();
        message.cancelled.cancel();
        assert!(token.is_cancelled());
    }

    #[test]
    fn missing_state_is_found_before_the_first_message() {
        assert!(<(MessageId, Data<u8>)>::check(&Shared::default()).is_err());
        let mut shared = Shared::default();
        shared.insert(9_u8);
        assert!(<(MessageId, Data<u8>)>::check(&shared).is_ok());
    }
}
