//! Settings: the table that declares them ([`SETTINGS`]), and their current values ([`Settings`]), which all threads
//! share.
//!
//! Numbers and switches are atomics, so reading one is cheap enough for every batch of requests. This module does not
//! know where values come from: flags, environment variables or a file.

mod table;
mod value;

use std::sync::atomic::{AtomicI64, Ordering};

use millstream_protocol::errors::{self, CommandError};
use parking_lot::RwLock;

use crate::descriptors;

pub use table::{Changeable, DefaultValue, Id, SETTINGS, Setting};
pub(crate) use value::CLIENT_MEMORY_AUTO;
pub use value::{SettingError, Value, ValueType};

/// The current values of all settings.
pub struct Settings {
    /// Indexed by [`Id`]. The places of text settings are unused.
    numbers: Box<[AtomicI64]>,
    /// Indexed by [`Id`]. The places of number settings are unused.
    texts: RwLock<Box<[String]>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

impl Settings {
    /// Returns the default value of every setting.
    pub fn new() -> Settings {
        let settings = Settings {
            numbers: SETTINGS.iter().map(|_| AtomicI64::new(0)).collect(),
            texts: RwLock::new(vec![String::new(); SETTINGS.len()].into()),
        };
        for setting in SETTINGS {
            let value =
                setting.value_type.parse(&setting.default_text()).expect("a test parses every default value");
            settings.store(setting.id, value);
        }
        settings
    }

    /// Returns a copy. Cheaper than default values: computing those reads files of the system.
    pub(crate) fn copied(&self) -> Settings {
        Settings {
            numbers: self.numbers.iter().map(|number| number.load(Ordering::Relaxed).into()).collect(),
            texts: RwLock::new(self.texts.read().clone()),
        }
    }

    /// Sets a value before the server starts. For a setting that can never change, only its current value is accepted.
    pub fn set(&self, id: Id, text: &str) -> Result<(), SettingError> {
        let value = id.setting().value_type.parse(text)?;
        if id.setting().changeable == Changeable::Never && value != self.value(id) {
            return Err(SettingError::Fixed { value: self.show(id) });
        }
        self.store(id, value);
        Ok(())
    }

    /// Parses and checks new values for settings of a running server, and changes none. [`Settings::apply`] sets them.
    ///
    /// An error quotes the name as the client spelled it.
    pub(crate) fn parse_change(&self, pairs: &[(&str, &str)]) -> Result<Vec<(Id, Value)>, CommandError> {
        let mut parsed: Vec<(Id, Value)> = Vec::with_capacity(pairs.len());
        for (name, text) in pairs {
            let setting = Setting::find(name).ok_or_else(|| errors::unknown_setting(name.as_bytes()))?;
            let error = |error: SettingError| errors::invalid_setting(name.as_bytes(), &error.to_string());
            let value = self.check(setting, text).map_err(error)?;
            if parsed.iter().any(|(other, _)| *other == setting.id) {
                return Err(error(SettingError::Repeated));
            }
            self.check_clients(setting.id, &value).map_err(error)?;
            parsed.push((setting.id, value));
        }
        Ok(parsed)
    }

    /// Sets values that [`Settings::parse_change`] has checked. Returns their settings.
    pub(crate) fn apply(&self, values: Vec<(Id, Value)>) -> Vec<Id> {
        values
            .into_iter()
            .map(|(id, value)| {
                self.store(id, value);
                id
            })
            .collect()
    }

    fn check(&self, setting: &Setting, text: &str) -> Result<Value, SettingError> {
        let value = setting.value_type.parse(text)?;
        // A setting that never changes accepts its only value, because many clients set it when they start.
        let is_allowed = match setting.changeable {
            Changeable::Anytime => true,
            Changeable::AtStart => false,
            Changeable::Never => value == self.value(setting.id),
        };
        if is_allowed { Ok(value) } else { Err(SettingError::Immutable) }
    }

    /// Checks a new `maxclients`: the server itself needs some of the file descriptors.
    pub(crate) fn check_clients(&self, id: Id, value: &Value) -> Result<(), SettingError> {
        let (Id::MaxClients, Value::Number(wanted)) = (id, value) else { return Ok(()) };
        let possible = descriptors::allow_clients(
            wanted.unsigned_abs(),
            self.size(Id::IoThreads),
            !self.is_empty(Id::Http),
        );
        if possible < wanted.unsigned_abs() { Err(SettingError::TooManyClients { possible }) } else { Ok(()) }
    }

    fn store(&self, id: Id, value: Value) {
        match value {
            Value::Number(number) => self.numbers[id as usize].store(number, Ordering::Relaxed),
            Value::Text(text) => self.texts.write()[id as usize] = text,
        }
    }

    pub(crate) fn value(&self, id: Id) -> Value {
        match id.setting().value_type {
            ValueType::Text | ValueType::Choice(_) => Value::Text(self.text(id)),
            _ => Value::Number(self.number(id)),
        }
    }

    /// Returns a number or a number of bytes.
    pub fn number(&self, id: Id) -> i64 {
        self.numbers[id as usize].load(Ordering::Relaxed)
    }

    /// Returns a number that is never negative.
    pub fn size(&self, id: Id) -> usize {
        usize::try_from(self.number(id)).unwrap_or(0)
    }

    /// Returns whether a switch is `yes`.
    pub fn is_on(&self, id: Id) -> bool {
        self.number(id) != 0
    }

    /// Returns a text or a word.
    pub fn text(&self, id: Id) -> String {
        self.texts.read()[id as usize].clone()
    }

    /// Returns whether a text is empty.
    pub fn is_empty(&self, id: Id) -> bool {
        self.texts.read()[id as usize].is_empty()
    }

    /// Returns the value of any setting, formatted as CONFIG GET returns it.
    pub fn show(&self, id: Id) -> String {
        self.value(id).show(id)
    }
}

impl Value {
    /// Returns this value of a setting, formatted as CONFIG GET returns it.
    pub(crate) fn show(self, id: Id) -> String {
        match self {
            Value::Text(text) => text,
            Value::Number(number) => id.setting().value_type.show(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_settings_have_default_values() {
        let settings = Settings::new();
        assert_eq!(settings.number(Id::Port), 6379);
        assert!(settings.is_on(Id::ExactLag));
        assert_eq!(settings.text(Id::Bind), "127.0.0.1 -::1");
        assert_eq!(settings.show(Id::ProtoMaxBulkLen), "536870912");
        assert_eq!(settings.show(Id::ProtectedMode), "yes");
        assert!(settings.number(Id::IoThreads) >= 1);
    }

    impl Settings {
        fn change(&self, pairs: &[(&str, &str)]) -> Result<Vec<Id>, CommandError> {
            self.parse_change(pairs).map(|values| self.apply(values))
        }
    }

    #[test]
    fn config_set_changes_all_settings_or_none() {
        let settings = Settings::new();
        let changed = settings.change(&[("timeout", "5"), ("EXACT-LAG", "no")]);
        assert_eq!(changed, Ok(vec![Id::Timeout, Id::ExactLag]));
        assert!(!settings.is_on(Id::ExactLag));

        let error = settings.change(&[("timeout", "9"), ("maxclients", "0")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and \
             4294967295 inclusive"
        );
        assert_eq!(settings.number(Id::Timeout), 5);
    }

    #[test]
    fn settings_that_are_fixed_at_start_cannot_change() {
        let settings = Settings::new();
        let rejects = |pairs, expected: SettingError| {
            let error = settings.change(pairs).unwrap_err().to_string();
            assert!(error.ends_with(&format!(" - {expected}")), "{error}");
        };
        rejects(&[("port", "7000")], SettingError::Immutable);
        assert_eq!(settings.change(&[("maxmemory-policy", "noeviction")]), Ok(vec![Id::MaxMemoryPolicy]));
        rejects(&[("maxmemory-policy", "allkeys-lru")], SettingError::NotOneOf(&["noeviction"]));
        rejects(&[("appendonly", "no")], SettingError::Immutable);
        rejects(&[("timeout", "1"), ("timeout", "2")], SettingError::Repeated);
        assert_eq!(settings.change(&[("sky", "blue")]), Err(errors::unknown_setting(b"sky")));
    }
}
