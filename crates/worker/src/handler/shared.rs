//! State that all calls of a handler share: database pools, clients, settings.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Shared values by type, at most one of each type.
#[derive(Clone, Default)]
pub struct Shared {
    // A worker has only a few values, so a linear search is faster than hashing.
    values: Vec<(TypeId, &'static str, Arc<dyn Any + Send + Sync>)>,
}

impl Shared {
    /// Adds a value. Replaces an earlier value of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.retain(|(id, ..)| *id != TypeId::of::<T>());
        self.values.push((TypeId::of::<T>(), type_name::<T>(), Arc::new(value)));
    }

    /// Returns the value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (.., value) = self.values.iter().find(|(id, ..)| *id == TypeId::of::<T>())?;
        value.clone().downcast().ok()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.iter().map(|(_, name, _)| name)).finish()
    }
}

/// The error of a handler that takes state which the worker does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingState {
    /// The type that the handler takes.
    pub name: &'static str,
}

impl fmt::Display for MissingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the handler takes Data<{0}>, but the worker has no such state: add it with .state(value) before .build()",
            self.name
        )
    }
}

impl std::error::Error for MissingState {}

/// An argument that does not depend on a message: allowed in a batch handler after its `Vec`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not shared by all messages of a batch",
    label = "not shared by a batch",
    note = "after its `Vec<_>` a batch handler takes `Data<T>`; take the cancellation of each message with \
            `Vec<(CancellationToken, ...)>`"
)]
pub trait FromShared: Sized + Send {
    /// Returns the value.
    fn from_shared(shared: &Shared) -> Result<Self, MissingState>;

    /// Checks that the worker has what the argument needs. Called once, before the first message.
    fn check(_shared: &Shared) -> Result<(), MissingState> {
        Ok(())
    }
}

/// State that all calls of a handler share.
#[derive(Debug)]
pub struct Data<T>(pub Arc<T>);

impl<T> Clone for Data<T> {
    fn clone(&self) -> Data<T> {
        Data(Arc::clone(&self.0))
    }
}

impl<T> Deref for Data<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> FromShared for Data<T> {
    fn from_shared(shared: &Shared) -> Result<Data<T>, MissingState> {
        shared.get().map(Data).ok_or(MissingState { name: type_name::<T>() })
    }

    fn check(shared: &Shared) -> Result<(), MissingState> {
        shared.get::<T>().map(drop).ok_or(MissingState { name: type_name::<T>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_each_type() {
        let mut shared = Shared::default();
        shared.insert(1_u32);
        shared.insert("pool");
        shared.insert(2_u32);
        assert_eq!(shared.get::<u32>().as_deref(), Some(&2));
        assert_eq!(shared.get::<&str>().as_deref(), Some(&"pool"));
        assert_eq!(shared.get::<u64>(), None);
        assert_eq!(format!("{shared:?}"), r#"{"&str", "u32"}"#);
    }

    #[test]
    fn the_error_names_the_missing_type() {
        let missing = <Data<u64> as FromShared>::check(&Shared::default()).unwrap_err();
        assert!(missing.to_string().contains("Data<u64>"), "{missing}");
    }
}
