//! A set: distinct members. Integers are kept sorted, other small sets packed in the order in which
//! members came, everything else in a table. A set only ever moves on to a later form.

use super::packed::{self, Packed};
use super::table::Table;
use super::{Hashing, Layout};
use crate::bytes::number::{IntegerText, parse_integer};
use crate::memory::allocation_bytes;

/// The most members a set of integers has before it becomes a table.
const INTEGERS_MAX: usize = 512;

/// A set value.
#[derive(Clone, Debug)]
pub struct Set {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// Ascending.
    Integers(Vec<i64>),
    Packed(Packed),
    Table(Box<Table<()>>),
}

impl Default for Set {
    fn default() -> Self {
        Set { form: Form::Integers(Vec::new()) }
    }
}

impl Set {
    /// A set of these members in this layout, or in the one they need. A member that comes again changes nothing.
    pub fn with_layout<'a>(
        layout: Layout,
        count: usize,
        members: impl Iterator<Item = &'a [u8]>,
        hashing: Hashing,
    ) -> Set {
        let form = match layout {
            Layout::Table => Form::Table(Box::new(Table::with_capacity(count, hashing))),
            Layout::Packed => Form::Packed(Packed::default()),
            _ => Form::Integers(Vec::new()),
        };
        let mut set = Set { form };
        members.for_each(|member| set.apply_add(&[member], hashing));
        set
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.len(),
            Form::Packed(packed) => packed.len(),
            Form::Table(table) => table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `member` is one.
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Integers(integers) => {
                parse_integer(member).is_some_and(|integer| integers.binary_search(&integer).is_ok())
            }
            Form::Packed(packed) => packed.find(member, 1).is_some(),
            Form::Table(table) => table.get(member).is_some(),
        }
    }

    /// Hands every member to `visit`.
    pub fn visit(&self, mut visit: impl FnMut(&[u8])) {
        match &self.form {
            Form::Integers(integers) => {
                integers.iter().for_each(|&integer| visit(IntegerText::new(integer).as_bytes()));
            }
            Form::Packed(packed) => packed.iter().for_each(visit),
            Form::Table(table) => table.iter().for_each(|(member, ())| visit(member)),
        }
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        match self.form {
            Form::Integers(_) => Layout::SortedIntegers,
            Form::Packed(_) => Layout::Packed,
            Form::Table(_) => Layout::Table,
        }
    }

    /// Members join; those that are there already change nothing.
    pub(crate) fn apply_add(&mut self, members: &[&[u8]], hashing: Hashing) {
        for member in members {
            if !self.contains(member) {
                self.make_fit(member, hashing);
                self.add(member);
            }
        }
    }

    /// Moves on to a form that can take one more, `member`.
    fn make_fit(&mut self, member: &[u8], hashing: Hashing) {
        let packs = Packed::takes(member) && self.len() < packed::ITEMS_MAX;
        match &self.form {
            Form::Integers(integers) if parse_integer(member).is_some() && integers.len() < INTEGERS_MAX => {}
            Form::Integers(_) if packs && parse_integer(member).is_none() => {
                let mut packed = Packed::default();
                self.visit(|member| packed.push(member));
                self.form = Form::Packed(packed);
            }
            Form::Packed(_) if packs => {}
            Form::Table(_) => {}
            Form::Integers(_) | Form::Packed(_) => {
                let mut table = Box::new(Table::with_capacity(self.len() + 1, hashing));
                self.visit(|member| table.insert(member, ()));
                self.form = Form::Table(table);
            }
        }
    }

    fn add(&mut self, member: &[u8]) {
        match &mut self.form {
            Form::Integers(integers) => {
                if let Some(integer) = parse_integer(member) {
                    let at = integers.partition_point(|&held| held < integer);
                    integers.insert(at, integer);
                }
            }
            Form::Packed(packed) => packed.push(member),
            Form::Table(table) => table.insert(member, ()),
        }
    }

    /// Members leave; those that are not there are passed over.
    pub(crate) fn apply_remove(&mut self, members: &[&[u8]]) {
        for member in members {
            match &mut self.form {
                Form::Integers(integers) => {
                    let found =
                        parse_integer(member).and_then(|integer| integers.binary_search(&integer).ok());
                    if let Some(at) = found {
                        integers.remove(at);
                    }
                }
                Form::Packed(packed) => {
                    if let Some(at) = packed.find(member, 1) {
                        packed.remove(at, 1);
                    }
                }
                Form::Table(table) => table.remove(member),
            }
        }
    }

    /// Bytes allocated behind it.
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => allocation_bytes(integers.capacity() * size_of::<i64>()),
            Form::Packed(packed) => packed.memory_bytes(),
            Form::Table(table) => allocation_bytes(size_of_val(&**table)) + table.memory_bytes(),
        }
    }

    /// Verifies that the form is sound, and no member is there twice.
    pub fn check(&self) -> Result<(), String> {
        match &self.form {
            Form::Integers(integers) if !integers.is_sorted_by(|a, b| a < b) => {
                Err("the integers of a set are out of order".to_owned())
            }
            Form::Integers(integers) if integers.len() > INTEGERS_MAX => {
                Err(format!("a set of {} sorted integers", integers.len()))
            }
            Form::Integers(_) => Ok(()),
            Form::Packed(packed) => packed.check().and_then(|()| check_distinct(packed)),
            Form::Table(table) => table.check(),
        }
    }
}

fn check_distinct(packed: &Packed) -> Result<(), String> {
    let mut members: Vec<_> = packed.iter().collect();
    members.sort_unstable();
    match members.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!("packed member {} is there twice", two[0].escape_ascii())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHING: fn() -> Hashing = || Hashing::new(1);

    fn members(set: &Set) -> Vec<String> {
        let mut all = Vec::new();
        set.visit(|member| all.push(String::from_utf8(member.to_vec()).unwrap()));
        all
    }

    #[test]
    fn integers_are_sorted_by_value() {
        let mut set = Set::default();
        set.apply_add(&[b"10", b"9", b"-3", b"9"], HASHING());
        assert_eq!(members(&set), ["-3", "9", "10"]);
        assert!(set.contains(b"9") && !set.contains(b"09"));
        set.apply_remove(&[b"9", b"x"]);
        assert_eq!((set.len(), set.layout()), (2, Layout::SortedIntegers));
    }

    #[test]
    fn a_word_among_integers_packs_the_set() {
        let mut set = Set::default();
        set.apply_add(&[b"2", b"1", b"word", b"0"], HASHING());
        assert_eq!(members(&set), ["1", "2", "word", "0"]);
        assert_eq!(set.layout(), Layout::Packed);
        set.apply_add(&[&[b'x'; packed::ITEM_BYTES_MAX + 1]], HASHING());
        assert_eq!((set.len(), set.layout()), (5, Layout::Table));
        set.check().unwrap();
    }

    #[test]
    fn many_integers_make_a_table() {
        let mut set = Set::default();
        for n in 0..=INTEGERS_MAX as i64 {
            assert_eq!(set.layout(), Layout::SortedIntegers, "{n}");
            set.apply_add(&[IntegerText::new(n).as_bytes()], HASHING());
        }
        assert_eq!((set.layout(), set.len()), (Layout::Table, INTEGERS_MAX + 1));
        assert!(set.contains(b"0"));
    }
}
