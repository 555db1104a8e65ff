//! A set: distinct members. A small set of integers is a sorted array. Any other small set is packed in
//! insertion order. A set with more members or longer ones is a hash table. A set is converted only in this
//! direction, never back.

use super::packed::{self, PackedItems};
use super::table::Table;
use super::{Hashing, Layout};
use crate::bytes::number::{IntegerText, parse_integer};
use crate::memory::allocation_bytes;

/// Maximum number of members of a sorted array of integers.
const INTEGERS_MAX: usize = 512;

/// A set value.
#[derive(Clone, Debug)]
pub struct Set {
    repr: SetRepr,
}

#[derive(Clone, Debug)]
enum SetRepr {
    /// Ascending.
    Integers(Vec<i64>),
    Packed(PackedItems),
    Table(Box<Table<()>>),
}

impl Default for Set {
    fn default() -> Self {
        Set { repr: SetRepr::Integers(Vec::new()) }
    }
}

impl Set {
    /// Creates a set of these members in this layout, or in the layout they need. Ignores members that occur
    /// again.
    pub fn with_layout<'a>(
        layout: Layout,
        count: usize,
        members: impl Iterator<Item = &'a [u8]>,
        hashing: &Hashing,
    ) -> Set {
        let repr = match layout {
            Layout::Table => SetRepr::Table(Box::new(Table::with_capacity(count, hashing))),
            Layout::Packed => SetRepr::Packed(PackedItems::default()),
            _ => SetRepr::Integers(Vec::new()),
        };
        let mut set = Set { repr };
        members.for_each(|member| set.apply_add(&[member], hashing));
        set
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        match &self.repr {
            SetRepr::Integers(integers) => integers.len(),
            SetRepr::Packed(packed) => packed.len(),
            SetRepr::Table(table) => table.len(),
        }
    }

    /// Returns whether the set has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the set contains `member`.
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.repr {
            SetRepr::Integers(integers) => {
                parse_integer(member).is_some_and(|integer| integers.binary_search(&integer).is_ok())
            }
            SetRepr::Packed(packed) => packed.find(member, 1).is_some(),
            SetRepr::Table(table) => table.get(member).is_some(),
        }
    }

    /// Calls `visit` with every member.
    pub fn visit(&self, mut visit: impl FnMut(&[u8])) {
        match &self.repr {
            SetRepr::Integers(integers) => {
                integers.iter().for_each(|&integer| visit(IntegerText::new(integer).as_bytes()));
            }
            SetRepr::Packed(packed) => packed.iter().for_each(visit),
            SetRepr::Table(table) => table.iter().for_each(|(member, ())| visit(member)),
        }
    }

    /// Returns the memory layout.
    pub fn layout(&self) -> Layout {
        match self.repr {
            SetRepr::Integers(_) => Layout::SortedIntegers,
            SetRepr::Packed(_) => Layout::Packed,
            SetRepr::Table(_) => Layout::Table,
        }
    }

    pub(crate) fn apply_add(&mut self, members: &[&[u8]], hashing: &Hashing) {
        for member in members {
            if !self.contains(member) {
                self.convert_for(member, hashing);
                self.add(member);
            }
        }
    }

    /// Converts the set, if needed, to a representation that can hold one more member.
    fn convert_for(&mut self, member: &[u8], hashing: &Hashing) {
        let packs = PackedItems::can_hold(member) && self.len() < packed::ITEMS_MAX;
        match &self.repr {
            SetRepr::Integers(integers)
                if parse_integer(member).is_some() && integers.len() < INTEGERS_MAX => {}
            SetRepr::Integers(_) if packs && parse_integer(member).is_none() => {
                let mut packed = PackedItems::default();
                self.visit(|member| packed.push(member));
                self.repr = SetRepr::Packed(packed);
            }
            SetRepr::Packed(_) if packs => {}
            SetRepr::Table(_) => {}
            SetRepr::Integers(_) | SetRepr::Packed(_) => {
                let mut table = Box::new(Table::with_capacity(self.len() + 1, hashing));
                self.visit(|member| table.insert(member, ()));
                self.repr = SetRepr::Table(table);
            }
        }
    }

    fn add(&mut self, member: &[u8]) {
        match &mut self.repr {
            SetRepr::Integers(integers) => {
                if let Some(integer) = parse_integer(member) {
                    let at = integers.partition_point(|&held| held < integer);
                    integers.insert(at, integer);
                }
            }
            SetRepr::Packed(packed) => packed.push(member),
            SetRepr::Table(table) => table.insert(member, ()),
        }
    }

    pub(crate) fn apply_remove(&mut self, members: &[&[u8]]) {
        for member in members {
            match &mut self.repr {
                SetRepr::Integers(integers) => {
                    let found =
                        parse_integer(member).and_then(|integer| integers.binary_search(&integer).ok());
                    if let Some(at) = found {
                        integers.remove(at);
                    }
                }
                SetRepr::Packed(packed) => {
                    if let Some(at) = packed.find(member, 1) {
                        packed.remove(at, 1);
                    }
                }
                SetRepr::Table(table) => table.remove(member),
            }
        }
    }

    /// Returns the bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        match &self.repr {
            SetRepr::Integers(integers) => allocation_bytes(integers.capacity() * size_of::<i64>()),
            SetRepr::Packed(packed) => packed.memory_bytes(),
            SetRepr::Table(table) => allocation_bytes(size_of_val(&**table)) + table.memory_bytes(),
        }
    }

    /// Verifies that the representation is valid and no member occurs twice.
    pub fn check(&self) -> Result<(), String> {
        match &self.repr {
            SetRepr::Integers(integers) if !integers.is_sorted_by(|a, b| a < b) => {
                Err("the integers of a set are not sorted".to_owned())
            }
            SetRepr::Integers(integers) if integers.len() > INTEGERS_MAX => {
                Err(format!("a sorted array of {} integers is too long", integers.len()))
            }
            SetRepr::Integers(_) => Ok(()),
            SetRepr::Packed(packed) => packed.check().and_then(|()| check_distinct(packed)),
            SetRepr::Table(table) => table.check(),
        }
    }
}

fn check_distinct(packed: &PackedItems) -> Result<(), String> {
    let mut members: Vec<_> = packed.iter().collect();
    members.sort_unstable();
    match members.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!("packed member {} occurs twice", two[0].escape_ascii())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashing() -> Hashing {
        Hashing::new(1)
    }

    fn members(set: &Set) -> Vec<String> {
        let mut all = Vec::new();
        set.visit(|member| all.push(String::from_utf8(member.to_vec()).unwrap()));
        all
    }

    #[test]
    fn integers_are_sorted_by_value() {
        let mut set = Set::default();
        set.apply_add(&[b"10", b"9", b"-3", b"9"], &hashing());
        assert_eq!(members(&set), ["-3", "9", "10"]);
        assert!(set.contains(b"9") && !set.contains(b"09"));
        set.apply_remove(&[b"9", b"x"]);
        assert_eq!((set.len(), set.layout()), (2, Layout::SortedIntegers));
    }

    #[test]
    fn text_member_converts_integers_to_packed() {
        let mut set = Set::default();
        set.apply_add(&[b"2", b"1", b"word", b"0"], &hashing());
        assert_eq!(members(&set), ["1", "2", "word", "0"]);
        assert_eq!(set.layout(), Layout::Packed);
        set.apply_add(&[&[b'x'; packed::ITEM_BYTES_MAX + 1]], &hashing());
        assert_eq!((set.len(), set.layout()), (5, Layout::Table));
        set.check().unwrap();
    }

    #[test]
    fn many_integers_convert_to_a_table() {
        let mut set = Set::default();
        for n in 0..=INTEGERS_MAX as i64 {
            assert_eq!(set.layout(), Layout::SortedIntegers, "{n}");
            set.apply_add(&[IntegerText::new(n).as_bytes()], &hashing());
        }
        assert_eq!((set.layout(), set.len()), (Layout::Table, INTEGERS_MAX + 1));
        assert!(set.contains(b"0"));
    }
}
