//! One column of a chunk: numbers kept as distances from a common base, in the fewest bytes that fit.
//!
//! A column does not own its bytes and does not know what its numbers mean.

/// Bytes per number. `Zero` is a column whose numbers are all equal to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Width {
    Zero = 0,
    One = 1,
    Two = 2,
    Four = 4,
    Eight = 8,
}

/// Bytes that are read at once, whatever the width.
pub(super) const READ_BYTES: usize = 8;

impl Width {
    fn for_distance(distance: u64) -> Width {
        match distance {
            0 => Width::Zero,
            1..=0xff => Width::One,
            0x100..=0xffff => Width::Two,
            0x1_0000..=0xffff_ffff => Width::Four,
            _ => Width::Eight,
        }
    }

    /// The greatest distance, which is also a mask of the bits that make up one.
    #[inline]
    fn distance_max(self) -> u64 {
        const BY_BYTES: [u64; 9] = [0, 0xff, 0xffff, 0, 0xffff_ffff, 0, 0, 0, u64::MAX];
        BY_BYTES[self as usize]
    }

    #[inline(always)]
    pub(super) fn bytes(self) -> usize {
        self as usize
    }
}

/// How the numbers of a column are stored. A form of width eight always has base zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) base: u64,
    pub(super) width: Width,
}

impl Form {
    /// The narrowest form for numbers in `extent`. Base zero is preferred where it costs nothing: small
    /// numbers that come and go (consumers, sequences, counts) then never fall below the base.
    pub(super) fn covering(extent: Extent) -> Form {
        let width = Width::for_distance(extent.max - extent.min);
        let base = if Width::for_distance(extent.max) == width { 0 } else { extent.min };
        Form { base, width }
    }

    /// A form with room to grow upwards, so that a column whose numbers keep rising while its low ones are
    /// removed is not re-based at every step.
    pub(super) fn roomy(extent: Extent) -> Form {
        let headroom = (extent.max - extent.min) / 4;
        Form::covering(Extent { min: extent.min, max: extent.max.saturating_add(headroom) })
    }

    /// This form's width, around a number that is likely to be followed by greater ones.
    pub(super) fn starting_at(self, value: u64) -> Form {
        let base = if value <= self.width.distance_max() { 0 } else { value };
        Form { base, width: self.width }
    }

    #[inline(always)]
    pub(super) fn holds(self, value: u64) -> bool {
        value.checked_sub(self.base).is_some_and(|distance| distance <= self.width.distance_max())
    }

    /// The number written at byte `at`. Fastest if at least [`READ_BYTES`] bytes are there.
    #[inline(always)]
    pub(super) fn read(self, bytes: &[u8], at: usize) -> u64 {
        // One load for every width; what lies behind the number is cut off.
        let distance = match bytes.get(at..).and_then(<[u8]>::first_chunk::<READ_BYTES>) {
            Some(word) => u64::from_le_bytes(*word) & self.width.distance_max(),
            None if self.width == Width::Zero => 0,
            None => self.read_at_end(bytes, at),
        };
        self.base.wrapping_add(distance)
    }

    /// The distance written at byte `at`, with few bytes or none behind it.
    #[cold]
    fn read_at_end(self, bytes: &[u8], at: usize) -> u64 {
        match self.width {
            Width::Zero => 0,
            Width::One => u64::from(bytes[at]),
            Width::Two => u64::from(u16::from_le_bytes(take(bytes, at))),
            Width::Four => u64::from(u32::from_le_bytes(take(bytes, at))),
            Width::Eight => u64::from_le_bytes(take(bytes, at)),
        }
    }

    /// Writes `value` at byte `at`.
    #[inline(always)]
    pub(super) fn write(self, bytes: &mut [u8], at: usize, value: u64) {
        debug_assert!(self.holds(value));
        let distance = value.wrapping_sub(self.base);
        match self.width {
            Width::Zero => {}
            Width::One => bytes[at] = distance as u8,
            Width::Two => put(bytes, at, (distance as u16).to_le_bytes()),
            Width::Four => put(bytes, at, (distance as u32).to_le_bytes()),
            Width::Eight => put(bytes, at, distance.to_le_bytes()),
        }
    }

    /// Writes `values` from the beginning of `bytes`, which is exactly as long as they need.
    pub(super) fn write_all(self, bytes: &mut [u8], values: &[u64]) {
        self.write_run(bytes, values.iter().copied());
    }

    /// The same for numbers that come from anywhere; at least as many as there is room for.
    #[inline]
    pub(super) fn write_run(self, bytes: &mut [u8], values: impl Iterator<Item = u64>) {
        let distances = values.map(|value| value.wrapping_sub(self.base));
        match self.width {
            Width::Zero => {}
            Width::One => bytes.iter_mut().zip(distances).for_each(|(slot, d)| *slot = d as u8),
            Width::Two => fill(bytes, distances.map(|d| (d as u16).to_le_bytes())),
            Width::Four => fill(bytes, distances.map(|d| (d as u32).to_le_bytes())),
            Width::Eight => fill(bytes, distances.map(u64::to_le_bytes)),
        }
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a column is as long as its rows need")
}

#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn fill<const N: usize>(bytes: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
    bytes.as_chunks_mut::<N>().0.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
}

/// The smallest and the greatest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Extent {
    pub(super) fn of(value: u64) -> Extent {
        Extent { min: value, max: value }
    }

    pub(super) fn join(self, other: Extent) -> Extent {
        Extent { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// A view of some rows of a column.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    form: Form,
    rows: usize,
    /// `rows` numbers of the form's width, little endian.
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    pub(super) fn new(form: Form, bytes: &'a [u8], rows: usize) -> Column<'a> {
        debug_assert_eq!(bytes.len(), rows * form.width.bytes());
        Column { form, rows, bytes }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn get(self, row: usize) -> u64 {
        self.form.read(self.bytes, row * self.form.width.bytes())
    }

    /// How many rows hold less than `bound`. The numbers ascend.
    #[inline]
    pub(super) fn count_below(self, bound: u64) -> usize {
        let Some(bound) = bound.checked_sub(self.form.base) else { return 0 };
        match self.form.width {
            Width::Zero => self.rows * usize::from(0 < bound),
            Width::One => self.bytes.partition_point(|d| u64::from(*d) < bound),
            Width::Two => {
                self.bytes.as_chunks().0.partition_point(|d| u64::from(u16::from_le_bytes(*d)) < bound)
            }
            Width::Four => {
                self.bytes.as_chunks().0.partition_point(|d| u64::from(u32::from_le_bytes(*d)) < bound)
            }
            Width::Eight => self.bytes.as_chunks().0.partition_point(|d| u64::from_le_bytes(*d) < bound),
        }
    }

    /// The first row at or after `from` that holds exactly `value`.
    pub(super) fn find_equal(self, from: usize, value: u64) -> Option<usize> {
        let distance = value.checked_sub(self.form.base)?;
        self.find(from, |candidate| candidate == distance)
    }

    /// The first row at or after `from` that holds `limit` or less.
    pub(super) fn find_at_most(self, from: usize, limit: u64) -> Option<usize> {
        let distance = limit.checked_sub(self.form.base)?;
        self.find(from, |candidate| candidate <= distance)
    }

    fn find(self, from: usize, mut wanted: impl FnMut(u64) -> bool) -> Option<usize> {
        let bytes = &self.bytes[from * self.form.width.bytes()..];
        let found = match self.form.width {
            Width::Zero => (from < self.rows && wanted(0)).then_some(0),
            Width::One => bytes.iter().position(|b| wanted(u64::from(*b))),
            Width::Two => shorts(bytes).position(|d| wanted(u64::from(d))),
            Width::Four => words(bytes).position(|d| wanted(u64::from(d))),
            Width::Eight => longs(bytes).position(wanted),
        };
        found.map(|row| from + row)
    }

    /// The smallest number; of none, the base.
    pub(super) fn min(self) -> u64 {
        // Compared in their own width, so that the compiler can take many at a time.
        let distance = match self.form.width {
            Width::Zero => 0,
            Width::One => least(self.bytes.iter().copied()),
            Width::Two => least(shorts(self.bytes)),
            Width::Four => least(words(self.bytes)),
            Width::Eight => least(longs(self.bytes)),
        };
        self.form.base.wrapping_add(distance)
    }

    /// The greatest number; of none, the base.
    pub(super) fn max(self) -> u64 {
        let distance = match self.form.width {
            Width::Zero => 0,
            Width::One => greatest(self.bytes.iter().copied()),
            Width::Two => greatest(shorts(self.bytes)),
            Width::Four => greatest(words(self.bytes)),
            Width::Eight => greatest(longs(self.bytes)),
        };
        self.form.base.wrapping_add(distance)
    }

    pub(super) fn extent(self) -> Extent {
        Extent { min: self.min(), max: self.max() }
    }

    /// The numbers, written to the beginning of `values`.
    pub(super) fn decode(self, values: &mut [u64]) -> &[u64] {
        let values = &mut values[..self.rows];
        let base = self.form.base;
        let slots = values.iter_mut();
        match self.form.width {
            Width::Zero => slots.for_each(|slot| *slot = base),
            Width::One => {
                slots.zip(self.bytes).for_each(|(slot, d)| *slot = base.wrapping_add(u64::from(*d)))
            }
            Width::Two => {
                slots.zip(shorts(self.bytes)).for_each(|(slot, d)| *slot = base.wrapping_add(u64::from(d)));
            }
            Width::Four => {
                slots.zip(words(self.bytes)).for_each(|(slot, d)| *slot = base.wrapping_add(u64::from(d)));
            }
            Width::Eight => slots.zip(longs(self.bytes)).for_each(|(slot, d)| *slot = base.wrapping_add(d)),
        }
        values
    }
}

fn shorts(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))
}

fn longs(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b))
}

fn least<T: Copy + Ord + Into<u64>>(mut numbers: impl Iterator<Item = T>) -> u64 {
    numbers.next().map_or(0, |first| numbers.fold(first, Ord::min).into())
}

fn greatest<T: Copy + Ord + Into<u64>>(mut numbers: impl Iterator<Item = T>) -> u64 {
    numbers.next().map_or(0, |first| numbers.fold(first, Ord::max).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(values: &[u64]) -> (Form, Vec<u8>) {
        let extent = values.iter().map(|v| Extent::of(*v)).reduce(Extent::join).expect("some values");
        let form = Form::covering(extent);
        let mut bytes = vec![0; values.len() * form.width.bytes()];
        form.write_all(&mut bytes, values);
        (form, bytes)
    }

    #[test]
    fn every_width_gives_back_what_it_was_given() {
        let base = 1 << 40;
        let cases = [
            (vec![base; 3], Width::Zero),
            (vec![base, base + 255, base + 7], Width::One),
            (vec![base, base + 256, base + 65_535], Width::Two),
            (vec![base, base + 65_536, base + 0xffff_ffff], Width::Four),
            (vec![base, base + 0x1_0000_0000, 3], Width::Eight),
            (vec![u64::MAX, u64::MAX - 1], Width::One),
            (vec![u64::MAX, 0], Width::Eight),
        ];
        for (values, width) in cases {
            let (form, bytes) = stored(&values);
            assert_eq!(form.width, width, "{values:?}");
            let column = Column::new(form, &bytes, values.len());
            assert_eq!(column.decode(&mut [0; 4]), values);
            assert_eq!((0..values.len()).map(|row| column.get(row)).collect::<Vec<_>>(), values);
            let extent = column.extent();
            assert_eq!(Some(&extent.min), values.iter().min());
            assert_eq!(Some(&extent.max), values.iter().max());
            for value in &values {
                assert_eq!(column.find_equal(0, *value), values.iter().position(|v| v == value));
                assert_eq!(column.find_at_most(0, *value), values.iter().position(|v| v <= value));
            }
        }
    }

    #[test]
    fn a_number_below_the_base_never_seems_to_fit() {
        // u64::MAX - 1 is a wrapped distance of 255 away from 253: that must not count as near.
        let form = Form::covering(Extent { min: u64::MAX - 1, max: u64::MAX });
        assert!(!form.holds(0));
        assert!(!form.holds(253));
        assert!(form.holds(u64::MAX));
    }

    #[test]
    fn small_numbers_keep_base_zero_and_the_widest_form_always_does() {
        assert_eq!(Form::covering(Extent { min: 3, max: 9 }), Form { base: 0, width: Width::One });
        assert_eq!(Form::covering(Extent { min: 1, max: 1 }), Form { base: 1, width: Width::Zero });
        assert_eq!(Form::covering(Extent { min: 5, max: u64::MAX }), Form { base: 0, width: Width::Eight });
        assert_eq!(Form { base: 0, width: Width::Eight }.starting_at(u64::MAX).base, 0);
    }

    #[test]
    fn a_search_begins_where_it_is_told() {
        let (form, bytes) = stored(&[500, 1000, 500, 900]);
        let column = Column::new(form, &bytes, 4);
        assert_eq!(column.find_equal(1, 500), Some(2));
        assert_eq!(column.find_at_most(3, 899), None);
        assert_eq!(column.find_equal(4, 500), None);
        let (form, bytes) = stored(&[7, 7]);
        let column = Column::new(form, &bytes, 2);
        assert_eq!(column.find_equal(1, 7), Some(1));
        assert_eq!(column.find_equal(2, 7), None);
    }
}
