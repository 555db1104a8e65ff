//! A list: values in order, with pushes and pops at both ends.

use std::collections::VecDeque;

use super::Layout;
use crate::ListEnd;
use crate::memory::allocation_bytes;

/// Lists of up to this many bytes have the layout `Packed`.
const PACKED_BYTES_MAX: usize = 8192;
/// A list with a capacity of at most this many values is not shrunk.
const SHRINK_FROM: usize = 32;

/// A list value. Access by position, push and pop take constant time.
#[derive(Clone, Debug, Default)]
pub struct List {
    values: VecDeque<Box<[u8]>>,
    value_bytes: usize,
    content_bytes: usize,
}

impl List {
    /// Creates a list of these values, head first.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> List {
        let mut list = List::default();
        values.for_each(|value| list.apply_push(ListEnd::Tail, &[value]));
        list
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether the list has no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the values at these positions, head first.
    ///
    /// # Panics
    /// If the range is not within the list.
    pub fn range(&self, positions: std::ops::Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.values.range(positions).map(|value| &**value)
    }

    /// Returns the first `count` values from one end, outermost first.
    pub fn from_end(&self, end: ListEnd, count: usize) -> impl Iterator<Item = &[u8]> {
        let last = self.len().wrapping_sub(1);
        (0..count.min(self.len())).map(move |n| match end {
            ListEnd::Head => &*self.values[n],
            ListEnd::Tail => &*self.values[last - n],
        })
    }

    /// Returns the layout.
    pub fn layout(&self) -> Layout {
        if self.value_bytes + self.len() > PACKED_BYTES_MAX { Layout::LongList } else { Layout::Packed }
    }

    pub(crate) fn apply_push(&mut self, end: ListEnd, values: &[&[u8]]) {
        for &value in values {
            self.value_bytes += value.len();
            self.content_bytes += allocation_bytes(value.len());
            match end {
                ListEnd::Head => self.values.push_front(value.into()),
                ListEnd::Tail => self.values.push_back(value.into()),
            }
        }
    }

    pub(crate) fn apply_pop(&mut self, end: ListEnd, count: u64) {
        for _ in 0..count {
            let popped = match end {
                ListEnd::Head => self.values.pop_front(),
                ListEnd::Tail => self.values.pop_back(),
            };
            let Some(value) = popped else { break };
            self.value_bytes -= value.len();
            self.content_bytes -= allocation_bytes(value.len());
        }
        if self.values.capacity() > SHRINK_FROM && self.len() * 4 < self.values.capacity() {
            self.values.shrink_to(self.len() * 2);
        }
    }

    /// Returns the bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        allocation_bytes(self.values.capacity() * size_of::<Box<[u8]>>()) + self.content_bytes
    }

    /// Verifies that the byte counts are correct.
    pub fn check(&self) -> Result<(), String> {
        let value_bytes: usize = self.values.iter().map(|value| value.len()).sum();
        let content_bytes: usize = self.values.iter().map(|value| allocation_bytes(value.len())).sum();
        if (value_bytes, content_bytes) != (self.value_bytes, self.content_bytes) {
            return Err(format!(
                "the values of a list have {value_bytes} bytes, but it counts {}",
                self.value_bytes
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[&[u8]]) -> List {
        let mut list = List::default();
        list.apply_push(ListEnd::Tail, values);
        list
    }

    #[test]
    fn pushing_at_the_head_reverses_the_order() {
        let mut list = list(&[b"c"]);
        list.apply_push(ListEnd::Head, &[b"b", b"a"]);
        assert_eq!(list.range(0..3).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(list.from_end(ListEnd::Tail, 2).collect::<Vec<_>>(), [b"c", b"b"]);
    }

    #[test]
    fn popping_more_values_than_exist_empties_the_list() {
        let mut list = list(&[b"a", b"b"]);
        list.apply_pop(ListEnd::Tail, u64::MAX);
        assert!(list.is_empty());
        assert_eq!(list.from_end(ListEnd::Tail, 1).count(), 0);
        list.check().unwrap();
    }

    #[test]
    fn list_frees_memory_when_values_are_popped() {
        let mut list = list(&vec![&b"value"[..]; 10_000]);
        assert_eq!(list.layout(), Layout::LongList);
        let full = list.memory_bytes();
        list.apply_pop(ListEnd::Head, 9_990);
        assert!(list.memory_bytes() < full / 100, "{} of {full}", list.memory_bytes());
        assert_eq!(list.layout(), Layout::Packed);
        list.check().unwrap();
    }
}
