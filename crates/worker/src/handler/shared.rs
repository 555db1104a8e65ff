//! What all calls of a handler share: database pools, clients, settings.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Values by their type, at most one of each.
#[derive(Clone, Default)]
pub struct Shared {
    // A worker has a handful: looking through them is quicker than hashing.
    values: Vec<(TypeId, &'static str, Arc<dyn Any + Send + Sync>)>,
}

impl Shared {
    /// Keeps a value, in place of an earlier one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.retain(|(id, ..)| *id != TypeId::of::<T>());
        self.values.push((TypeId::of::<T>(), type_name::<T>(), Arc::new(value)));
    }

    /// The value of this type.
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

/// A handler asks for shared state that the worker was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingState {
    /// The type asked for.
    pub name: &'static str,
}

impl fmt::Display for MissingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the handler takes Data<{0}>, and the worker has none: give it one with .state({0} …)",
            self.name
        )
    }
}

impl std::error::Error for MissingState {}

/// What can be had without a message: the arguments of a batch handler after its batch.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not something all messages of a batch share",
    label = "not shared by a batch",
    note = "after its `Vec<_>` a batch handler takes `Data<T>`; the cancellation of each message is in \
            `Vec<(CancellationToken, ...)>`"
)]
pub trait FromShared: Sized + Send {
    /// The value.
    fn from_shared(shared: &Shared) -> Result<Self, MissingState>;

    /// Whether the worker has what is asked for: looked at once, before the first message.
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
    fn one_value_of_each_type() {
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
    fn what_is_missing_is_named() {
        let missing = <Data<u64> as FromShared>::check(&Shared::default()).unwrap_err();
        assert!(missing.to_string().contains("Data<u64>"), "{missing}");
    }
}
