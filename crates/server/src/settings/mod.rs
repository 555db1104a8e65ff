//! Settings: what they are ([`SETTINGS`], one table) and what they stand at ([`Settings`], shared by all
//! threads).
//!
//! Numbers and switches are atomics, so a connection may ask for a limit on every batch. Where values come
//! from, flags, environment or file, is the caller's business.

mod table;
mod value;

use std::sync::atomic::{AtomicI64, Ordering};

use millstream_protocol::errors::{self, CommandError};
use parking_lot::RwLock;

use crate::descriptors;

pub use table::{Change, Fallback, Id, SETTINGS, Setting};
pub use value::{Kind, Refused, Value};

/// The values in force.
pub struct Settings {
    /// By [`Id`]; unused places of texts stay 0.
    numbers: Box<[AtomicI64]>,
    /// By [`Id`]; unused places of numbers stay empty.
    texts: RwLock<Box<[String]>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

impl Settings {
    /// Every setting at its fallback.
    pub fn new() -> Settings {
        let settings = Settings {
            numbers: SETTINGS.iter().map(|_| AtomicI64::new(0)).collect(),
            texts: RwLock::new(vec![String::new(); SETTINGS.len()].into()),
        };
        for setting in SETTINGS {
            let value = setting.kind.parse(&setting.fallback_text()).expect("a tested property of the table");
            settings.store(setting.id, value);
        }
        settings
    }

    /// Sets a value at start, when all but facts may be set.
    pub fn set(&self, id: Id, text: &str) -> Result<(), Refused> {
        let value = id.setting().kind.parse(text)?;
        if id.setting().change == Change::Never && value != self.value(id) {
            return Err(Refused::Fixed { stands_at: self.show(id) });
        }
        self.store(id, value);
        Ok(())
    }

    /// Changes several settings of a running server, all or none. Returns which changed. An error repeats the name as the
    /// client spelled it.
    pub(crate) fn change(&self, pairs: &[(&str, &str)]) -> Result<Vec<Id>, CommandError> {
        let mut parsed: Vec<(Id, Value)> = Vec::with_capacity(pairs.len());
        for (name, text) in pairs {
            let setting = Setting::find(name).ok_or_else(|| errors::unknown_setting(name.as_bytes()))?;
            let refused = |why: Refused| errors::setting_refused(name.as_bytes(), &why.to_string());
            let value = self.check(setting, text).map_err(refused)?;
            if parsed.iter().any(|(other, _)| *other == setting.id) {
                return Err(refused(Refused::Repeated));
            }
            self.check_clients(setting.id, &value).map_err(refused)?;
            parsed.push((setting.id, value));
        }
        Ok(parsed
            .into_iter()
            .map(|(id, value)| {
                self.store(id, value);
                id
            })
            .collect())
    }

    /// The value of a setting that may become this while the server runs.
    fn check(&self, setting: &Setting, text: &str) -> Result<Value, Refused> {
        let value = setting.kind.parse(text)?;
        // Setting a fact to what it is anyway is what many clients' start-up does.
        let may_change = match setting.change {
            Change::Anytime => true,
            Change::AtStart => false,
            Change::Never => value == self.value(setting.id),
        };
        if may_change { Ok(value) } else { Err(Refused::Immutable) }
    }

    /// What clients take must not be what the server needs for itself.
    fn check_clients(&self, id: Id, value: &Value) -> Result<(), Refused> {
        let (Id::MaxClients, Value::Number(wanted)) = (id, value) else { return Ok(()) };
        let possible = descriptors::clients_possible(wanted.unsigned_abs(), self.size(Id::IoThreads));
        if possible < wanted.unsigned_abs() { Err(Refused::TooManyClients { possible }) } else { Ok(()) }
    }

    fn store(&self, id: Id, value: Value) {
        match value {
            Value::Number(number) => self.numbers[id as usize].store(number, Ordering::Relaxed),
            Value::Text(text) => self.texts.write()[id as usize] = text,
        }
    }

    fn value(&self, id: Id) -> Value {
        match id.setting().kind {
            Kind::Text | Kind::Choice(_) => Value::Text(self.text(id)),
            _ => Value::Number(self.number(id)),
        }
    }

    /// A number or a number of bytes.
    pub fn number(&self, id: Id) -> i64 {
        self.numbers[id as usize].load(Ordering::Relaxed)
    }

    /// A number that cannot be negative.
    pub fn size(&self, id: Id) -> usize {
        usize::try_from(self.number(id)).unwrap_or(0)
    }

    /// A switch.
    pub fn is_on(&self, id: Id) -> bool {
        self.number(id) != 0
    }

    /// A text or a word.
    pub fn text(&self, id: Id) -> String {
        self.texts.read()[id as usize].clone()
    }

    /// Whether a text is empty.
    pub fn is_empty(&self, id: Id) -> bool {
        self.texts.read()[id as usize].is_empty()
    }

    /// Any value as CONFIG GET shows it.
    pub fn show(&self, id: Id) -> String {
        match self.value(id) {
            Value::Text(text) => text,
            Value::Number(number) => id.setting().kind.show(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_server_stands_at_the_fallbacks() {
        let settings = Settings::new();
        assert_eq!(settings.number(Id::Port), 6379);
        assert!(settings.is_on(Id::ExactLag));
        assert_eq!(settings.text(Id::Bind), "127.0.0.1 -::1");
        assert_eq!(settings.show(Id::ProtoMaxBulkLen), "536870912");
        assert_eq!(settings.show(Id::ProtectedMode), "yes");
        assert!(settings.number(Id::IoThreads) >= 1);
    }

    #[test]
    fn config_set_changes_all_or_none() {
        let settings = Settings::new();
        let changed = settings.change(&[("timeout", "5"), ("EXACT-LAG", "no")]);
        assert_eq!(changed, Ok(vec![Id::Timeout, Id::ExactLag]));
        assert!(!settings.is_on(Id::ExactLag));

        let refused = settings.change(&[("timeout", "9"), ("maxclients", "0")]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and \
             4294967295 inclusive"
        );
        assert_eq!(settings.number(Id::Timeout), 5);
    }

    #[test]
    fn what_is_fixed_at_start_stays() {
        let settings = Settings::new();
        let refused = |pairs, why: Refused| {
            let told = settings.change(pairs).unwrap_err().to_string();
            assert!(told.ends_with(&format!(" - {why}")), "{told}");
        };
        refused(&[("port", "7000")], Refused::Immutable);
        assert_eq!(settings.change(&[("maxmemory", "0")]), Ok(vec![Id::MaxMemory]));
        refused(&[("maxmemory", "1gb")], Refused::Immutable);
        refused(&[("appendonly", "no")], Refused::Immutable);
        refused(&[("timeout", "1"), ("timeout", "2")], Refused::Repeated);
        assert_eq!(settings.change(&[("sky", "blue")]), Err(errors::unknown_setting(b"sky")));
    }
}
