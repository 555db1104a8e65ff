//! Strings, hashes, lists and sets for embedded programs. Their operations are methods of the transaction, which the
//! server calls itself.

use std::iter;

use millstream_engine::Refusal;

use super::Verb;
use crate::txn::Txn;

/// Runs a function on one key in a transaction, for example methods of [`Txn`] on hashes.
///
/// `CHANGES` states whether the function may change the value of the key. It must use no other key.
#[derive(Clone)]
pub struct OnKey<F, const CHANGES: bool, B = Vec<u8>> {
    key: B,
    bytes: u64,
    run: F,
}

impl<T, F: FnMut(&mut Txn<'_>, &[u8]) -> Result<T, Refusal>, B> OnKey<F, false, B> {
    /// Creates a verb that only reads.
    pub fn read(key: B, run: F) -> OnKey<F, false, B> {
        OnKey { key, bytes: 0, run }
    }
}

impl<T, F: FnMut(&mut Txn<'_>, &[u8]) -> Result<T, Refusal>, B> OnKey<F, true, B> {
    /// Creates a verb that adds up to this many bytes; see [`Verb::bytes`].
    pub fn change(key: B, bytes: u64, run: F) -> OnKey<F, true, B> {
        OnKey { key, bytes, run }
    }
}

impl<T, F, const CHANGES: bool, B> Verb for OnKey<F, CHANGES, B>
where
    F: FnMut(&mut Txn<'_>, &[u8]) -> Result<T, Refusal>,
    B: AsRef<[u8]>,
{
    type Output = T;
    const CHANGES: bool = CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<T, Refusal> {
        (self.run)(txn, self.key.as_ref())
    }
}
