//! The hash tags of partitions: short texts whose slots are evenly spaced.
//!
//! Tools that rebalance a cluster move ranges of slots. With evenly spaced slots, each range has its share of the
//! partitions, give or take one. Tags that count, such as `{1}` and `{2}`, would leave some nodes without any.

use crate::slots::{SLOTS, slot_of};

/// Maximum distance between the slot of a tag and the slot that would be exactly even.
const DISTANCE_MAX: u32 = 64;

/// Returns a tag for each of `count` partitions: the first hexadecimal number whose slot is near enough.
pub(super) fn evenly_spaced(count: usize) -> Vec<String> {
    let (slots, count) = (u32::from(SLOTS), count as u32);
    // Near enough that no two partitions can have the same tag.
    let distance = DISTANCE_MAX.min((slots / count - 1) / 2);
    (0..count)
        .map(|number| {
            let target = (4 * number + 1) * slots / (4 * count);
            let is_near = |tag: &String| u32::from(slot_of(tag)).abs_diff(target) <= distance;
            (0u32..).map(|number| format!("{number:x}")).find(is_near).unwrap_or_default()
        })
        .collect()
}
