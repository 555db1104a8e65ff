//! Deduplication: the worker acknowledges a message whose key was processed within a window, without running the
//! handler.
//!
//! After each read and before any handler runs, the worker asks the store for all keys in one call. The store
//! remembers a key in the same step that acknowledges the message. If one worker reads two messages with the same
//! key, it runs them one after the other, so it detects the second. If two workers get two such messages at the
//! same time, both handlers run. If something must never happen twice, the handler must record the key in the same
//! transaction as its own changes.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::message::Message;
use crate::names;

/// How long a processed message is remembered, and by which key.
///
/// A duration is enough: `.dedupe(Duration::from_secs(86_400))`. The key is then the id of the entry, which detects
/// repeated deliveries. If a producer can send a message twice, use a key from the message itself:
///
/// ```
/// use std::time::Duration;
/// use millstream_worker::Dedupe;
///
/// let day = Duration::from_secs(86_400);
/// let by_field = Dedupe::within(day).by_field("order_id");
/// let by_function = Dedupe::within(day).by(|message| message.text("order_id").map(str::to_lowercase));
/// ```
#[derive(Clone)]
pub struct Dedupe {
    pub(crate) window: Duration,
    source: KeySource,
}

type KeyFunction = dyn Fn(&Message) -> Option<String> + Send + Sync;

#[derive(Clone)]
enum KeySource {
    Id,
    Field(String),
    Function(Arc<KeyFunction>),
}

impl Dedupe {
    /// Remembers processed messages for this long, by the id of the entry.
    pub fn within(window: Duration) -> Dedupe {
        Dedupe { window, source: KeySource::Id }
    }

    /// Uses the value of a field as the key. Messages without the field are always handled.
    pub fn by_field(mut self, name: impl Into<String>) -> Dedupe {
        self.source = KeySource::Field(name.into());
        self
    }

    /// Uses a function to compute the key. Messages for which it returns `None` are always handled.
    pub fn by(mut self, key: impl Fn(&Message) -> Option<String> + Send + Sync + 'static) -> Dedupe {
        self.source = KeySource::Function(Arc::new(key));
        self
    }

    /// Returns the key in the store under which the message is remembered, or `None` if it has none.
    pub(crate) fn key_of(&self, message: &Message) -> Option<String> {
        let key = match &self.source {
            KeySource::Id => message.id.to_string(),
            KeySource::Field(name) => String::from_utf8_lossy(message.field(name)?).into_owned(),
            KeySource::Function(function) => function(message)?,
        };
        Some(names::seen_key(&message.stream, &message.group, &key))
    }
}

impl From<Duration> for Dedupe {
    fn from(window: Duration) -> Dedupe {
        Dedupe::within(window)
    }
}

impl fmt::Debug for Dedupe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match &self.source {
            KeySource::Id => "id",
            KeySource::Field(name) => name,
            KeySource::Function(_) => "function",
        };
        f.debug_struct("Dedupe").field("window", &self.window).field("key", &key).finish()
    }
}

/// Keys of messages in flight, so that a second message with the same key waits for the first.
#[derive(Debug, Default)]
pub(crate) struct KeysInFlight {
    keys: Mutex<HashSet<Arc<str>>>,
}

impl KeysInFlight {
    /// Adds a key. Returns `None` if a message with this key is already in flight.
    pub(crate) fn reserve(&self, key: &str) -> Option<Arc<str>> {
        let mut keys = self.keys.lock();
        if keys.contains(key) {
            return None;
        }
        let key: Arc<str> = key.into();
        keys.insert(Arc::clone(&key));
        Some(key)
    }

    /// Removes the keys of messages that are no longer in flight.
    pub(crate) fn remove<'a>(&self, done: impl Iterator<Item = &'a Arc<str>>) {
        let mut done = done.peekable();
        if done.peek().is_none() {
            return;
        }
        let mut keys = self.keys.lock();
        done.for_each(|key| {
            keys.remove(key);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::sample;

    #[test]
    fn keys_come_from_the_id_a_field_or_a_function() {
        let (day, message) = (Duration::from_secs(86_400), sample(&[("order", "17")]));
        assert_eq!(Dedupe::from(day).key_of(&message).unwrap(), "{orders}:seen:billing:7-1");
        assert_eq!(
            Dedupe::within(day).by_field("order").key_of(&message).unwrap(),
            "{orders}:seen:billing:17"
        );
        assert_eq!(Dedupe::within(day).by_field("missing").key_of(&message), None);
        let by = Dedupe::within(day).by(|message| Some(format!("o{}", message.text("order")?)));
        assert_eq!(by.key_of(&message).unwrap(), "{orders}:seen:billing:o17");
    }

    #[test]
    fn a_key_is_reserved_once() {
        let keys = KeysInFlight::default();
        let key = keys.reserve("a").unwrap();
        assert_eq!(keys.reserve("a"), None);
        keys.remove([&key].into_iter());
        assert!(keys.reserve("a").is_some());
    }
}
