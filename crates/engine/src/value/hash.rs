//! A hash: fields and their values. A small hash is packed and keeps its fields in insertion order. A larger
//! one is a hash table, and stays one when it shrinks.

use super::packed::{self, PackedItems};
use super::table::Table;
use super::{Hashing, Layout};
use crate::memory::allocation_bytes;

/// A hash value.
#[derive(Clone, Debug)]
pub struct Hash {
    repr: HashRepr,
}

#[derive(Clone, Debug)]
enum HashRepr {
    /// field, value, field, value…
    Packed(PackedItems),
    Table(Box<Table<Box<[u8]>>>),
}

/// Number of items per field: a packed field is followed by its value.
const PAIR: usize = 2;

impl Default for Hash {
    fn default() -> Self {
        Hash { repr: HashRepr::Packed(PackedItems::default()) }
    }
}

impl Hash {
    /// Creates a hash of these pairs in this layout, or in the layout they need. If a field occurs twice, the
    /// later value wins.
    pub fn with_layout<'a>(
        layout: Layout,
        count: usize,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        hashing: &Hashing,
    ) -> Hash {
        let mut hash = match layout {
            Layout::Table => Hash { repr: HashRepr::Table(Box::new(Table::with_capacity(count, hashing))) },
            _ => Hash::default(),
        };
        pairs.for_each(|(field, value)| hash.set(field, value, hashing));
        hash
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        match &self.repr {
            HashRepr::Packed(packed) => packed.len() / PAIR,
            HashRepr::Table(table) => table.len(),
        }
    }

    /// Returns whether the hash has no fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.repr {
            HashRepr::Packed(packed) => {
                let (_, value_at) = packed.item_at(packed.find(field, PAIR)?)?;
                Some(packed.item_at(value_at)?.0)
            }
            HashRepr::Table(table) => Some(table.get(field)?),
        }
    }

    /// Calls `visit` with every field and its value.
    pub fn visit<'a>(&'a self, mut visit: impl FnMut(&'a [u8], &'a [u8])) {
        match &self.repr {
            HashRepr::Packed(packed) => {
                let mut items = packed.iter();
                while let (Some(field), Some(value)) = (items.next(), items.next()) {
                    visit(field, value);
                }
            }
            HashRepr::Table(table) => table.iter().for_each(|(field, value)| visit(field, value)),
        }
    }

    /// Returns the memory layout.
    pub fn layout(&self) -> Layout {
        match self.repr {
            HashRepr::Packed(_) => Layout::Packed,
            HashRepr::Table(_) => Layout::Table,
        }
    }

    pub(crate) fn apply_set(&mut self, pairs: &[&[u8]], hashing: &Hashing) {
        for pair in pairs.chunks_exact(PAIR) {
            self.set(pair[0], pair[1], hashing);
        }
    }

    fn set(&mut self, field: &[u8], value: &[u8], hashing: &Hashing) {
        match &mut self.repr {
            HashRepr::Packed(packed) if !PackedItems::can_hold(field) || !PackedItems::can_hold(value) => {
                self.repr = HashRepr::Table(unpack(packed, hashing));
                self.set(field, value, hashing);
            }
            HashRepr::Packed(packed) => match packed.find(field, PAIR) {
                Some(at) => packed.replace(at + 1 + field.len(), value),
                None if packed.len() < packed::ITEMS_MAX * PAIR => {
                    packed.push(field);
                    packed.push(value);
                }
                None => {
                    self.repr = HashRepr::Table(unpack(packed, hashing));
                    self.set(field, value, hashing);
                }
            },
            HashRepr::Table(table) => table.insert(field, value.into()),
        }
    }

    pub(crate) fn apply_delete(&mut self, fields: &[&[u8]]) {
        for field in fields {
            match &mut self.repr {
                HashRepr::Packed(packed) => {
                    if let Some(at) = packed.find(field, PAIR) {
                        packed.remove(at, PAIR);
                    }
                }
                HashRepr::Table(table) => table.remove(field),
            }
        }
    }

    /// Returns the bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        match &self.repr {
            HashRepr::Packed(packed) => packed.memory_bytes(),
            HashRepr::Table(table) => allocation_bytes(size_of_val(&**table)) + table.memory_bytes(),
        }
    }

    /// Verifies that the representation is valid and no field occurs twice.
    pub fn check(&self) -> Result<(), String> {
        match &self.repr {
            HashRepr::Packed(packed) => packed.check().and_then(|()| check_pairs(packed)),
            HashRepr::Table(table) => table.check(),
        }
    }
}

fn unpack(packed: &PackedItems, hashing: &Hashing) -> Box<Table<Box<[u8]>>> {
    let mut table = Box::new(Table::with_capacity(packed.len() / PAIR + 1, hashing));
    let mut items = packed.iter();
    while let (Some(field), Some(value)) = (items.next(), items.next()) {
        table.insert(field, value.into());
    }
    table
}

fn check_pairs(packed: &PackedItems) -> Result<(), String> {
    if !packed.len().is_multiple_of(PAIR) || packed.len() > packed::ITEMS_MAX * PAIR {
        return Err(format!("a packed hash has {} items, which is odd or too many", packed.len()));
    }
    let mut fields: Vec<_> = packed.iter().step_by(PAIR).collect();
    fields.sort_unstable();
    match fields.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!("packed hash field {} occurs twice", two[0].escape_ascii())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(hash: &Hash) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        hash.visit(|field, value| all.push((field.to_vec(), value.to_vec())));
        all
    }

    #[test]
    fn small_hash_keeps_insertion_order() {
        let mut hash = Hash::default();
        hash.apply_set(&[b"z", b"1", b"a", b"2", b"m", b"3", b"a", b"22"], &Hashing::new(1));
        hash.apply_delete(&[b"z", b"absent"]);
        let expected = [(&b"a"[..], &b"22"[..]), (b"m", b"3")].map(|(f, v)| (f.to_vec(), v.to_vec()));
        assert_eq!(contents(&hash), expected);
        assert_eq!(hash.layout(), Layout::Packed);
    }

    #[test]
    fn long_value_or_many_fields_convert_to_a_table() {
        let long = [b'x'; packed::ITEM_BYTES_MAX + 1];
        let mut hash = Hash::default();
        hash.apply_set(&[b"f", b"v", b"g", &long], &Hashing::new(1));
        assert_eq!((hash.layout(), hash.len()), (Layout::Table, 2));
        assert_eq!((hash.get(b"f"), hash.get(b"g")), (Some(&b"v"[..]), Some(&long[..])));

        let mut hash = Hash::default();
        for n in 0..=packed::ITEMS_MAX as u32 {
            assert_eq!(hash.layout(), Layout::Packed, "{n}");
            hash.apply_set(&[&n.to_le_bytes(), b"v"], &Hashing::new(1));
        }
        assert_eq!((hash.layout(), hash.len()), (Layout::Table, packed::ITEMS_MAX + 1));
        hash.check().unwrap();
    }
}
