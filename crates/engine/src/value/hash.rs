//! A hash: fields and their values. Small ones are packed and keep the order in which fields came;
//! larger ones are a table. What has become a table stays one.

use super::packed::{self, Packed};
use super::table::Table;
use super::{Hashing, Layout};
use crate::memory::allocation_bytes;

/// A hash value.
#[derive(Clone, Debug)]
pub struct Hash {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// field, value, field, value…
    Packed(Packed),
    Table(Box<Table<Box<[u8]>>>),
}

/// A packed field is followed by its value.
const PAIR: usize = 2;

impl Default for Hash {
    fn default() -> Self {
        Hash { form: Form::Packed(Packed::default()) }
    }
}

impl Hash {
    /// A hash of these pairs in this layout, or in the one they need. A field that comes again changes its value.
    pub fn with_layout<'a>(
        layout: Layout,
        count: usize,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        hashing: Hashing,
    ) -> Hash {
        let mut hash = match layout {
            Layout::Table => Hash { form: Form::Table(Box::new(Table::with_capacity(count, hashing))) },
            _ => Hash::default(),
        };
        pairs.for_each(|(field, value)| hash.set(field, value, hashing));
        hash
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / PAIR,
            Form::Table(table) => table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.form {
            Form::Packed(packed) => {
                let (_, value_at) = packed.item_at(packed.find(field, PAIR)?)?;
                Some(packed.item_at(value_at)?.0)
            }
            Form::Table(table) => Some(table.get(field)?),
        }
    }

    /// Hands every field and its value to `visit`.
    pub fn visit<'a>(&'a self, mut visit: impl FnMut(&'a [u8], &'a [u8])) {
        match &self.form {
            Form::Packed(packed) => {
                let mut items = packed.iter();
                while let (Some(field), Some(value)) = (items.next(), items.next()) {
                    visit(field, value);
                }
            }
            Form::Table(table) => table.iter().for_each(|(field, value)| visit(field, value)),
        }
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        match self.form {
            Form::Packed(_) => Layout::Packed,
            Form::Table(_) => Layout::Table,
        }
    }

    /// Gives fields their values: field, value, field, value…
    pub(crate) fn apply_set(&mut self, pairs: &[&[u8]], hashing: Hashing) {
        for pair in pairs.chunks_exact(PAIR) {
            self.set(pair[0], pair[1], hashing);
        }
    }

    fn set(&mut self, field: &[u8], value: &[u8], hashing: Hashing) {
        match &mut self.form {
            Form::Packed(packed) if !Packed::takes(field) || !Packed::takes(value) => {
                self.form = Form::Table(unpack(packed, hashing));
                self.set(field, value, hashing);
            }
            Form::Packed(packed) => match packed.find(field, PAIR) {
                Some(at) => packed.replace(at + 1 + field.len(), value),
                None if packed.len() < packed::ITEMS_MAX * PAIR => {
                    packed.push(field);
                    packed.push(value);
                }
                None => {
                    self.form = Form::Table(unpack(packed, hashing));
                    self.set(field, value, hashing);
                }
            },
            Form::Table(table) => table.insert(field, value.into()),
        }
    }

    /// Removes fields; those that are not there are passed over.
    pub(crate) fn apply_delete(&mut self, fields: &[&[u8]]) {
        for field in fields {
            match &mut self.form {
                Form::Packed(packed) => {
                    if let Some(at) = packed.find(field, PAIR) {
                        packed.remove(at, PAIR);
                    }
                }
                Form::Table(table) => table.remove(field),
            }
        }
    }

    /// Bytes allocated behind it.
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.memory_bytes(),
            Form::Table(table) => allocation_bytes(size_of_val(&**table)) + table.memory_bytes(),
        }
    }

    /// Verifies that the form is sound, and no field is there twice.
    pub fn check(&self) -> Result<(), String> {
        match &self.form {
            Form::Packed(packed) => packed.check().and_then(|()| check_pairs(packed)),
            Form::Table(table) => table.check(),
        }
    }
}

fn unpack(packed: &Packed, hashing: Hashing) -> Box<Table<Box<[u8]>>> {
    let mut table = Box::new(Table::with_capacity(packed.len() / PAIR + 1, hashing));
    let mut items = packed.iter();
    while let (Some(field), Some(value)) = (items.next(), items.next()) {
        table.insert(field, value.into());
    }
    table
}

fn check_pairs(packed: &Packed) -> Result<(), String> {
    if !packed.len().is_multiple_of(PAIR) || packed.len() > packed::ITEMS_MAX * PAIR {
        return Err(format!("a packed hash of {} items", packed.len()));
    }
    let mut fields: Vec<_> = packed.iter().step_by(PAIR).collect();
    fields.sort_unstable();
    match fields.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!("packed hash field {} is there twice", two[0].escape_ascii())),
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
    fn small_hashes_keep_the_order_of_fields() {
        let mut hash = Hash::default();
        hash.apply_set(&[b"z", b"1", b"a", b"2", b"m", b"3", b"a", b"22"], Hashing::new(1));
        hash.apply_delete(&[b"z", b"absent"]);
        let expected = [(&b"a"[..], &b"22"[..]), (b"m", b"3")].map(|(f, v)| (f.to_vec(), v.to_vec()));
        assert_eq!(contents(&hash), expected);
        assert_eq!(hash.layout(), Layout::Packed);
    }

    #[test]
    fn a_long_value_or_many_fields_make_a_table() {
        let long = [b'x'; packed::ITEM_BYTES_MAX + 1];
        let mut hash = Hash::default();
        hash.apply_set(&[b"f", b"v", b"g", &long], Hashing::new(1));
        assert_eq!((hash.layout(), hash.len()), (Layout::Table, 2));
        assert_eq!((hash.get(b"f"), hash.get(b"g")), (Some(&b"v"[..]), Some(&long[..])));

        let mut hash = Hash::default();
        for n in 0..=packed::ITEMS_MAX as u32 {
            assert_eq!(hash.layout(), Layout::Packed, "{n}");
            hash.apply_set(&[&n.to_le_bytes(), b"v"], Hashing::new(1));
        }
        assert_eq!((hash.layout(), hash.len()), (Layout::Table, packed::ITEMS_MAX + 1));
        hash.check().unwrap();
    }
}
