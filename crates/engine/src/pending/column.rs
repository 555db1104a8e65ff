//! One column of a chunk. Each number is stored as its distance from a common base, in the fewest bytes that
//! fit (frame-of-reference encoding).
//!
//! A column does not own its bytes and does not know what its numbers mean.

/// Bytes per number. With `Zero`, all numbers of the column are equal to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Width {
    Zero = 0,
    One = 1,
    Two = 2,
    Four = 4,
    Eight = 8,
}

/// Number of bytes that a read loads, whatever the width.
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

    /// Returns the greatest distance of this width, which is also the bit mask of a distance.
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

/// How the numbers of a column are stored. An encoding of width eight always has base zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) base: u64,
    pub(super) width: Width,
}

impl Encoding {
    /// Returns the narrowest encoding for numbers in `extent`. Prefers base zero if that costs nothing: small
    /// numbers that change often (consumers, sequence numbers, counts) then never fall below the base.
    pub(super) fn narrowest(extent: Extent) -> Encoding {
        let width = Width::for_distance(extent.max - extent.min);
        let base = if Width::for_distance(extent.max) == width { 0 } else { extent.min };
        Encoding { base, width }
    }

    /// Returns an encoding for numbers in `extent` and for greater numbers: the headroom is a quarter of the
    /// distance from its minimum to its maximum. If the numbers of a column rise and the low ones are
    /// removed, the column then does not need a new base at every step.
    pub(super) fn with_headroom(extent: Extent) -> Encoding {
        let headroom = (extent.max - extent.min) / 4;
        Encoding::narrowest(Extent { min: extent.min, max: extent.max.saturating_add(headroom) })
    }

    /// Returns an encoding of the same width for `value` and the greater numbers that will probably follow.
    pub(super) fn starting_at(self, value: u64) -> Encoding {
        let base = if value <= self.width.distance_max() { 0 } else { value };
        Encoding { base, width: self.width }
    }

    #[inline(always)]
    pub(super) fn holds(self, value: u64) -> bool {
        value.checked_sub(self.base).is_some_and(|distance| distance <= self.width.distance_max())
    }

    #[inline(always)]
    pub(super) fn read(self, bytes: &[u8], at: usize) -> u64 {
        // One load for every width; the mask removes the bytes after the number.
        let distance = match bytes.get(at..).and_then(<[u8]>::first_chunk::<READ_BYTES>) {
            Some(word) => u64::from_le_bytes(*word) & self.width.distance_max(),
            None if self.width == Width::Zero => 0,
            None => self.read_at_end(bytes, at),
        };
        self.base.wrapping_add(distance)
    }

    /// Reads the distance at byte offset `at` if fewer than [`READ_BYTES`] bytes follow.
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

    /// Writes all `values` into `bytes`, which has exactly the needed length.
    pub(super) fn write_all(self, bytes: &mut [u8], values: &[u64]) {
        self.write_run(bytes, values.iter().copied());
    }

    /// Fills `bytes` with numbers from `values`, which yields at least as many as fit.
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
    *bytes[at..].first_chunk().expect("the bytes of a column cover all its rows")
}

#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn fill<const N: usize>(bytes: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
    bytes.as_chunks_mut::<N>().0.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
}

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

/// A view of consecutive rows of a column.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    encoding: Encoding,
    rows: usize,
    /// `rows` numbers of the encoding's width, little-endian.
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    pub(super) fn new(encoding: Encoding, bytes: &'a [u8], rows: usize) -> Column<'a> {
        debug_assert_eq!(bytes.len(), rows * encoding.width.bytes());
        Column { encoding, rows, bytes }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn get(self, row: usize) -> u64 {
        self.encoding.read(self.bytes, row * self.encoding.width.bytes())
    }

    #[inline]
    pub(super) fn count_below(self, bound: u64) -> usize {
        let Some(bound) = bound.checked_sub(self.encoding.base) else { return 0 };
        match self.encoding.width {
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

    pub(super) fn find_equal(self, from: usize, value: u64) -> Option<usize> {
        let distance = value.checked_sub(self.encoding.base)?;
        self.find(from, |candidate| candidate == distance)
    }

    pub(super) fn find_at_most(self, from: usize, limit: u64) -> Option<usize> {
        let distance = limit.checked_sub(self.encoding.base)?;
        self.find(from, |candidate| candidate <= distance)
    }

    fn find(self, from: usize, mut wanted: impl FnMut(u64) -> bool) -> Option<usize> {
        let bytes = &self.bytes[from * self.encoding.width.bytes()..];
        let found = match self.encoding.width {
            Width::Zero => (from < self.rows && wanted(0)).then_some(0),
            Width::One => bytes.iter().position(|b| wanted(u64::from(*b))),
            Width::Two => shorts(bytes).position(|d| wanted(u64::from(d))),
            Width::Four => words(bytes).position(|d| wanted(u64::from(d))),
            Width::Eight => longs(bytes).position(wanted),
        };
        found.map(|row| from + row)
    }

    /// Returns the smallest number, or the base if there are no rows.
    pub(super) fn min(self) -> u64 {
        // Compares numbers in their own width, so that the compiler can use vector instructions.
        let distance = match self.encoding.width {
            Width::Zero => 0,
            Width::One => least(self.bytes.iter().copied()),
            Width::Two => least(shorts(self.bytes)),
            Width::Four => least(words(self.bytes)),
            Width::Eight => least(longs(self.bytes)),
        };
        self.encoding.base.wrapping_add(distance)
    }

    /// Returns the greatest number, or the base if there are no rows.
    pub(super) fn max(self) -> u64 {
        let distance = match self.encoding.width {
            Width::Zero => 0,
            Width::One => greatest(self.bytes.iter().copied()),
            Width::Two => greatest(shorts(self.bytes)),
            Width::Four => greatest(words(self.bytes)),
            Width::Eight => greatest(longs(self.bytes)),
        };
        self.encoding.base.wrapping_add(distance)
    }

    pub(super) fn extent(self) -> Extent {
        Extent { min: self.min(), max: self.max() }
    }

    pub(super) fn decode(self, values: &mut [u64]) -> &[u64] {
        let values = &mut values[..self.rows];
        let base = self.encoding.base;
        let slots = values.iter_mut();
        match self.encoding.width {
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

    fn stored(values: &[u64]) -> (Encoding, Vec<u8>) {
        let extent = values.iter().map(|v| Extent::of(*v)).reduce(Extent::join).expect("at least one value");
        let encoding = Encoding::narrowest(extent);
        let mut bytes = vec![0; values.len() * encoding.width.bytes()];
        encoding.write_all(&mut bytes, values);
        (encoding, bytes)
    }

    #[test]
    fn every_width_round_trips_its_numbers() {
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
            let (encoding, bytes) = stored(&values);
            assert_eq!(encoding.width, width, "{values:?}");
            let column = Column::new(encoding, &bytes, values.len());
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
    fn encoding_rejects_numbers_below_its_base() {
        // 253 - (u64::MAX - 1) wraps around to 255. Such a distance must not count as one that fits.
        let encoding = Encoding::narrowest(Extent { min: u64::MAX - 1, max: u64::MAX });
        assert!(!encoding.holds(0));
        assert!(!encoding.holds(253));
        assert!(encoding.holds(u64::MAX));
    }

    #[test]
    fn base_is_zero_for_small_numbers_and_for_width_eight() {
        assert_eq!(Encoding::narrowest(Extent { min: 3, max: 9 }), Encoding { base: 0, width: Width::One });
        assert_eq!(Encoding::narrowest(Extent { min: 1, max: 1 }), Encoding { base: 1, width: Width::Zero });
        assert_eq!(
            Encoding::narrowest(Extent { min: 5, max: u64::MAX }),
            Encoding { base: 0, width: Width::Eight }
        );
        assert_eq!(Encoding { base: 0, width: Width::Eight }.starting_at(u64::MAX).base, 0);
    }

    #[test]
    fn find_starts_at_the_given_row() {
        let (encoding, bytes) = stored(&[500, 1000, 500, 900]);
        let column = Column::new(encoding, &bytes, 4);
        assert_eq!(column.find_equal(1, 500), Some(2));
        assert_eq!(column.find_at_most(3, 899), None);
        assert_eq!(column.find_equal(4, 500), None);
        let (encoding, bytes) = stored(&[7, 7]);
        let column = Column::new(encoding, &bytes, 2);
        assert_eq!(column.find_equal(1, 7), Some(1));
        assert_eq!(column.find_equal(2, 7), None);
    }
}
