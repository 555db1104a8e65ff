//! A few short items in one allocation, for small hashes and sets.
//!
//! ```text
//! +-----+-----------+-----+-----------+--
//! | len |   bytes   | len |   bytes   | …      len: one byte, so an item is short
//! +-----+-----------+-----+-----------+--
//! ```
//!
//! A search reads item by item. With at most [`ITEMS_MAX`] items (or pairs) of up to [`ITEM_BYTES_MAX`] bytes
//! this is cheaper than hashing. An item takes one extra byte instead of a pointer, a length and an
//! allocation.

use crate::memory::allocation_bytes;

/// Maximum number of items (of a set) or pairs (of a hash) that are packed.
pub(super) const ITEMS_MAX: usize = 128;
/// Maximum length of a packed item in bytes.
pub(super) const ITEM_BYTES_MAX: usize = 64;

/// A sequence of short byte strings. The offset of an item is the offset of its length byte.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedItems {
    bytes: Vec<u8>,
    items: u32,
}

impl PackedItems {
    pub(super) fn len(&self) -> usize {
        self.items as usize
    }

    pub(super) fn can_hold(item: &[u8]) -> bool {
        item.len() <= ITEM_BYTES_MAX
    }

    /// Returns the item at `offset` and the offset of the next item.
    pub(super) fn item_at(&self, offset: usize) -> Option<(&[u8], usize)> {
        let start = offset + 1;
        let end = start + usize::from(*self.bytes.get(offset)?);
        Some((&self.bytes[start..end], end))
    }

    /// Returns the offset of the first item equal to `wanted`, comparing only every `stride`-th item.
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

    pub(super) fn replace(&mut self, offset: usize, item: &[u8]) {
        let Some((old, end)) = self.item_at(offset) else { return };
        if old.len() < item.len() {
            self.make_room(item.len());
        }
        self.bytes[offset] = len_byte(item);
        self.bytes.splice(offset + 1..end, item.iter().copied());
    }

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

    pub(super) fn check(&self) -> Result<(), String> {
        let (mut offset, mut items) = (0, 0);
        while offset < self.bytes.len() {
            let len = usize::from(self.bytes[offset]);
            if len > ITEM_BYTES_MAX || offset + 1 + len > self.bytes.len() {
                return Err(format!(
                    "packed item of {len} bytes at {offset} is too long or ends after byte {}",
                    self.bytes.len()
                ));
            }
            offset += 1 + len;
            items += 1;
        }
        if items != self.items {
            return Err(format!("{items} packed items, but the count is {}", self.items));
        }
        Ok(())
    }

    /// Grows by a quarter instead of doubling: there can be millions of these values, and they rarely grow.
    fn make_room(&mut self, additional: usize) {
        let needed = self.bytes.len() + additional;
        if needed > self.bytes.capacity() {
            self.bytes.reserve_exact(additional + needed / 4);
        }
    }
}

fn len_byte(item: &[u8]) -> u8 {
    assert!(PackedItems::can_hold(item), "an item of {} bytes is too long to be packed", item.len());
    item.len() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(items: &[&[u8]]) -> PackedItems {
        let mut packed = PackedItems::default();
        items.iter().for_each(|item| packed.push(item));
        packed
    }

    #[test]
    fn find_compares_only_every_stride_th_item() {
        let packed = packed(&[b"a", b"b", b"b", b"c"]);
        assert_eq!(packed.find(b"b", 1), Some(2));
        assert_eq!(packed.find(b"b", 2), Some(4));
        assert_eq!(packed.find(b"c", 2), None);
    }

    #[test]
    fn replace_and_remove_keep_the_other_items() {
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
    fn push_panics_for_an_item_that_is_too_long() {
        packed(&[&[0; ITEM_BYTES_MAX + 1]]);
    }
}
