//! Idempotent processing: a message whose key was processed within a window is acknowledged without running the handler.
//!
//! Keys are asked for in one call for each batch read, before any handler runs, and remembered in the same step that
//! acknowledges. Two copies in the hands of one worker are run one after the other, so the second is seen. Two copies
//! that two workers run at the very same moment are both run: what must not happen twice at all belongs into one
//! transaction with its effect.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::message::Message;
use crate::names;

/// For how long a processed message is remembered, and by which key.
///
/// A duration is enough, `.dedupe(Duration::from_secs(86_400))`: the key is then the id of the entry, which tells
/// repeated deliveries. Where a producer may send twice, take a key of the message itself:
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
    window: Duration,
    key: Key,
}

type KeyFunction = dyn Fn(&Message) -> Option<String> + Send + Sync;

#[derive(Clone)]
enum Key {
    Id,
    Field(String),
    Function(Arc<KeyFunction>),
}

impl Dedupe {
    /// Remembered for so long, by the id of the entry.
    pub fn within(window: Duration) -> Dedupe {
        Dedupe { window, key: Key::Id }
    }

    /// By the value of a field. Messages without it are always run.
    pub fn by_field(mut self, name: impl Into<String>) -> Dedupe {
        self.key = Key::Field(name.into());
        self
    }

    /// By what a function makes of the message. Messages for which it gives `None` are always run.
    pub fn by(mut self, key: impl Fn(&Message) -> Option<String> + Send + Sync + 'static) -> Dedupe {
        self.key = Key::Function(Arc::new(key));
        self
    }

    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// The name under which the message is remembered.
    pub(crate) fn key_of(&self, message: &Message) -> Option<String> {
        let key = match &self.key {
            Key::Id => message.id.to_string(),
            Key::Field(name) => String::from_utf8_lossy(message.field(name)?).into_owned(),
            Key::Function(function) => function(message)?,
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
        let key = match &self.key {
            Key::Id => "id",
            Key::Field(name) => name,
            Key::Function(_) => "function",
        };
        f.debug_struct("Dedupe").field("window", &self.window).field("key", &key).finish()
    }
}

/// The keys this worker is at work on, so that a second copy waits for the first.
#[derive(Debug, Default)]
pub(crate) struct AtWork {
    keys: Mutex<HashSet<Arc<str>>>,
}

impl AtWork {
    /// Takes a key; `None` if a copy is at work on it.
    pub(crate) fn take(&self, key: &str) -> Option<Arc<str>> {
        let mut keys = self.keys.lock();
        if keys.contains(key) {
            return None;
        }
        let key: Arc<str> = key.into();
        keys.insert(Arc::clone(&key));
        Some(key)
    }

    /// Nobody is at work on these keys any more.
    pub(crate) fn forget<'a>(&self, done: impl Iterator<Item = &'a Arc<str>>) {
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
    fn a_key_at_work_is_taken_once() {
        let at_work = AtWork::default();
        let key = at_work.take("a").unwrap();
        assert_eq!(at_work.take("a"), None);
        at_work.forget([&key].into_iter());
        assert!(at_work.take("a").is_some());
    }
}
