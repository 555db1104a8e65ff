//! Operations on hashes, for keys that workers keep beside their streams.

use std::iter;

use millstream_engine::Refusal;
use smallvec::SmallVec;

use super::Verb;
use crate::txn::Txn;

/// Returns the value of each field; `None` for a field that does not exist.
#[derive(Clone, Debug)]
pub struct HashGet<B = Vec<u8>> {
    /// The hash.
    pub key: B,
    /// The fields.
    pub fields: Vec<B>,
}

impl<B: AsRef<[u8]>> Verb for HashGet<B> {
    type Output = Vec<Option<Vec<u8>>>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        let Some(hash) = txn.hash(self.key.as_ref())? else { return Ok(vec![None; self.fields.len()]) };
        let value = |field: &B| hash.get(field.as_ref()).map(<[u8]>::to_vec);
        Ok(self.fields.iter().map(value).collect())
    }
}

/// Returns the number of fields; 0 if the hash does not exist.
#[derive(Clone, Copy, Debug)]
pub struct HashLength<B = Vec<u8>> {
    /// The hash.
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for HashLength<B> {
    type Output = u64;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        txn.hash_len(self.key.as_ref())
    }
}

/// Returns all fields and their values.
#[derive(Clone, Copy, Debug)]
pub struct HashGetAll<B = Vec<u8>> {
    /// The hash.
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for HashGetAll<B> {
    type Output = Vec<(Vec<u8>, Vec<u8>)>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        let mut all = Vec::new();
        if let Some(hash) = txn.hash(self.key.as_ref())? {
            all.reserve(hash.len());
            hash.visit(|field, value| all.push((field.to_vec(), value.to_vec())));
        }
        Ok(all)
    }
}

/// Returns the names of all fields.
#[derive(Clone, Copy, Debug)]
pub struct HashFields<B = Vec<u8>> {
    /// The hash.
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for HashFields<B> {
    type Output = Vec<Vec<u8>>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        let mut fields = Vec::new();
        if let Some(hash) = txn.hash(self.key.as_ref())? {
            fields.reserve(hash.len());
            hash.visit(|field, _| fields.push(field.to_vec()));
        }
        Ok(fields)
    }
}

/// Sets fields to values. Creates the hash if it does not exist.
#[derive(Clone, Debug)]
pub struct HashSet<B = Vec<u8>> {
    /// The hash.
    pub key: B,
    /// The fields and their values, at least one.
    pub pairs: Vec<(B, B)>,
}

impl<B: AsRef<[u8]>> Verb for HashSet<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn bytes(&self) -> u64 {
        self.pairs.iter().map(|(field, value)| (field.as_ref().len() + value.as_ref().len()) as u64).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let flat = self.pairs.iter().flat_map(|(field, value)| [field.as_ref(), value.as_ref()]);
        let flat: SmallVec<[&[u8]; 16]> = flat.collect();
        if !flat.is_empty() {
            txn.hash_set(self.key.as_ref(), &flat)?;
        }
        Ok(())
    }
}

/// Removes fields. Returns the number of removed fields.
#[derive(Clone, Debug)]
pub struct HashDelete<B = Vec<u8>> {
    /// The hash.
    pub key: B,
    /// The fields.
    pub fields: Vec<B>,
}

impl<B: AsRef<[u8]>> Verb for HashDelete<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let fields: SmallVec<[&[u8]; 16]> = self.fields.iter().map(AsRef::as_ref).collect();
        txn.hash_delete(self.key.as_ref(), &fields)
    }
}
