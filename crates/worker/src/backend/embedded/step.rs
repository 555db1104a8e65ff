//! A verb as one step on the store: a closure over the transaction of its keys.

use std::iter;

use millstream_store::Txn;
use millstream_store::embedded::{Command, Error, Refusal};

/// What is done under the lock of its keys. `CHANGES` says whether it may change something.
#[derive(Clone)]
pub(super) struct Step<const CHANGES: bool, F> {
    key: Vec<u8>,
    more_keys: Vec<Vec<u8>>,
    run: F,
}

impl<const CHANGES: bool, F> Step<CHANGES, F> {
    /// A step on one key.
    pub(super) fn on(key: &str, run: F) -> Self {
        Step { key: key.into(), more_keys: Vec::new(), run }
    }

    /// The step uses these keys too.
    pub(super) fn and<'k>(mut self, keys: impl IntoIterator<Item = &'k str>) -> Self {
        self.more_keys.extend(keys.into_iter().map(Vec::from));
        self
    }
}

impl<const CHANGES: bool, T, F> Command for Step<CHANGES, F>
where
    T: Send + 'static,
    F: FnMut(&mut Txn<'_>, &[u8]) -> Result<T, Refusal> + Clone + Send + 'static,
{
    type Output = T;
    const CHANGES: bool = CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key).chain(self.more_keys.iter().map(|key| &**key))
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<T, Error> {
        (self.run)(txn, &self.key).map_err(|refusal| Error::Refused { key: self.key.clone(), refusal })
    }
}
