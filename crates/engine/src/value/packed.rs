//! Few, short items in one allocation, for small hashes and sets.
//!
//! ```text
//! +-----+-----------+-----+-----------+--
//! | len |   bytes   | len |   bytes   | …      len: one byte, so an item is short
//! +-----+-----------+-----+-----------+--
//! ```
//!
//! Searching walks; with at most [`ITEMS_MAX`] items of [`ITEM_BYTES_MAX`] bytes that is cheaper than
//! hashing and costs one byte an item instead of a pointer, a length and an allocation.

use crate::memory::allocation_bytes;

/// The most items (of a set) or pairs (of a hash) that stay packed.
pub(super) const ITEMS_MAX: usize = 128;
/// The longest item that can be packed.
pub(super) const ITEM_BYTES_MAX: usize = 64;

/// A sequence of short byte strings. An offset points at an item's length byte.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    items: u32,
}

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.items as usize
    }

    /// Whether `item` is short enough to be kept here.
    pub(super) fn takes(item: &[u8]) -> bool {
        item.len() <= ITEM_BYTES_MAX
    }

    /// The item at `offset`, and the offset of the next.
    pub(super) fn item_at(&self, offset: usize) -> Option<(&[u8], usize)> {
        let start = offset + 1;
        let end = start + usize::from(*self.bytes.get(offset)?);
        Some((&self.bytes[start..end], end))
    }

    /// The offset of the first item equal to `wanted`, looking at every `stride`-th.
    pub(super) fn find(&self, wanted: &[u8], stride: usize) -> Option<usize> {
        let mut offset = 0;
        while let Some((item, mut next)) = self.item_at(offset) {
            if item == wanted {
                return Some(offset);
            }
            for _ in 1..stride {
                next = self.item_at(next)?.1;
            }
            offset = next;
        }
        None
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (item, next) = self.item_at(offset)?;
            offset = next;
            Some(item)
        })
    }

    pub(super) fn push(&mut self, item: &[u8]) {
        self.make_room(item.len() + 1);
        self.bytes.push(len_byte(item));
        self.bytes.extend_from_slice(item);
        self.items += 1;
    }

    /// Puts `item` in the place of the one at `offset`.
    pub(super) fn replace(&mut self, offset: usize, item: &[u8]) {
        let Some((old, end)) = self.item_at(offset) else { return };
        if old.len() < item.len() {
            self.make_room(item.len());
        }
        self.bytes[offset] = len_byte(item);
        self.bytes.splice(offset + 1..end, item.iter().copied());
    }

    /// Removes `count` items from `offset` on.
    pub(super) fn remove(&mut self, offset: usize, count: usize) {
        let mut end = offset;
        for _ in 0..count {
            let Some((_, next)) = self.item_at(end) else { break };
            end = next;
            self.items -= 1;
        }
        self.bytes.drain(offset..end);
        if self.bytes.len() * 4 < self.bytes.capacity() {
            self.bytes.shrink_to(self.bytes.len() * 2);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }

    /// Verifies that the items fill the bytes exactly.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut offset, mut items) = (0, 0);
        while offset < self.bytes.len() {
            let len = usize::from(self.bytes[offset]);
            if len > ITEM_BYTES_MAX || offset + 1 + len > self.bytes.len() {
                return Err(format!("packed item of {len} bytes at {offset} of {}", self.bytes.len()));
            }
            offset += 1 + len;
            items += 1;
        }
        if items != self.items {
            return Err(format!("{items} packed items, counted {}", self.items));
        }
        Ok(())
    }

    /// Grows by a quarter rather than by doubling: these live by the million and grow seldom.
    fn make_room(&mut self, additional: usize) {
        let needed = self.bytes.len() + additional;
        if needed > self.bytes.capacity() {
            self.bytes.reserve_exact(additional + needed / 4);
        }
    }
}

fn len_byte(item: &[u8]) -> u8 {
    assert!(Packed::takes(item), "an item of {} bytes is too long to be packed", item.len());
    item.len() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(items: &[&[u8]]) -> Packed {
        let mut packed = Packed::default();
        items.iter().for_each(|item| packed.push(item));
        packed
    }

    #[test]
    fn strides_look_at_fields_only() {
        let packed = packed(&[b"a", b"b", b"b", b"c"]);
        assert_eq!(packed.find(b"b", 1), Some(2));
        assert_eq!(packed.find(b"b", 2), Some(4));
        assert_eq!(packed.find(b"c", 2), None);
    }

    #[test]
    fn items_are_replaced_and_removed_in_place() {
        let mut packed = packed(&[b"one", b"", b"three"]);
        packed.replace(4, b"second");
        packed.remove(0, 1);
        assert_eq!(packed.iter().collect::<Vec<_>>(), [&b"second"[..], b"three"]);
        packed.replace(0, b"2");
        assert_eq!(packed.iter().collect::<Vec<_>>(), [&b"2"[..], b"three"]);
        packed.remove(0, 2);
        assert_eq!((packed.len(), packed.iter().count()), (0, 0));
        packed.check().unwrap();
    }

    #[test]
    #[should_panic(expected = "too long")]
    fn long_items_are_not_taken() {
        packed(&[&[0; ITEM_BYTES_MAX + 1]]);
    }
}
