//! Packs the points of a block, each relative to the one before it.
//!
//! ```text
//! point          mask: one bit for each column that does not continue as before; then, for each bit, a varint
//! points         0, then a varint: the number of points that continue as before
//! ```
//!
//! A counter (added, read) continues as before if it grows as much as before; another column, if it stays the same. The varint
//! is the zigzag form of the difference. Before the first point of a block, counters are taken to stand still.

/// Number of columns.
const COLUMNS: usize = 6;
/// The first columns are counters.
const COUNTERS: usize = 2;

/// The values of a group at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) added: Option<u64>,
    pub(super) read: Option<u64>,
    pub(super) lag: u64,
    pub(super) pending: u64,
    /// When the oldest unread entry was added. Unlike its age, it stays the same while the entry is unread.
    pub(super) oldest_unread_at_ms: Option<u64>,
    pub(super) dead_letters: u64,
}

/// The values as numbers: an unknown one is 0, the others are one more.
type Numbers = [u64; COLUMNS];

impl Values {
    fn numbers(&self) -> Numbers {
        let known = |value: Option<u64>| value.map_or(0, |value| value.saturating_add(1));
        [
            known(self.added),
            known(self.read),
            self.lag,
            self.pending,
            known(self.oldest_unread_at_ms),
            self.dead_letters,
        ]
    }

    fn from_numbers([added, read, lag, pending, oldest, dead_letters]: Numbers) -> Values {
        let known = |number: u64| number.checked_sub(1);
        Values {
            added: known(added),
            read: known(read),
            lag,
            pending,
            oldest_unread_at_ms: known(oldest),
            dead_letters,
        }
    }
}

/// What the next point is compared with.
#[derive(Clone, Copy, Debug, Default)]
struct Prediction {
    last: Numbers,
    growth: [u64; COUNTERS],
}

impl Prediction {
    fn after(values: &Values) -> Prediction {
        Prediction { last: values.numbers(), growth: [0; COUNTERS] }
    }

    /// Returns the predicted number of a column.
    fn column(&self, at: usize) -> u64 {
        self.last[at].wrapping_add(self.growth.get(at).copied().unwrap_or_default())
    }

    fn advance(&mut self, numbers: Numbers) {
        for (at, growth) in self.growth.iter_mut().enumerate() {
            *growth = numbers[at].wrapping_sub(self.last[at]);
        }
        self.last = numbers;
    }
}

/// Packs points.
#[derive(Debug)]
pub(super) struct Encoder {
    prediction: Prediction,
    bytes: Vec<u8>,
    /// Number of points at the end that continue as before and are not in `bytes` yet.
    unchanged: u64,
}

impl Encoder {
    /// Begins a block after a point with these values.
    pub(super) fn after(values: &Values) -> Encoder {
        Encoder { prediction: Prediction::after(values), bytes: Vec::new(), unchanged: 0 }
    }

    pub(super) fn add(&mut self, values: &Values) {
        let numbers = values.numbers();
        let changed = |at: &usize| numbers[*at] != self.prediction.column(*at);
        let mask = (0..COLUMNS).filter(changed).fold(0_u8, |mask, at| mask | 1 << at);
        if mask == 0 {
            self.unchanged += 1;
        } else {
            self.write_unchanged();
            self.bytes.push(mask);
            for (at, number) in numbers.iter().enumerate().filter(|(at, _)| mask & 1 << at != 0) {
                let difference = number.wrapping_sub(self.prediction.column(at)) as i64;
                write_varint(&mut self.bytes, zigzag(difference));
            }
        }
        self.prediction.advance(numbers);
    }

    /// Whether all points are as the one before the block.
    pub(super) fn is_unchanged(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes of all points.
    pub(super) fn finish(mut self) -> Box<[u8]> {
        self.write_unchanged();
        self.bytes.into_boxed_slice()
    }

    /// Calls `visit` with each point so far.
    pub(super) fn visit(&self, before: &Values, mut visit: impl FnMut(&Values)) {
        let mut decoder = Decoder::new(before, &self.bytes);
        decoder.by_ref().for_each(|values| visit(&values));
        for _ in 0..self.unchanged {
            visit(&decoder.unchanged());
        }
    }

    pub(super) fn last(&self) -> Values {
        Values::from_numbers(self.prediction.last)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn write_unchanged(&mut self) {
        if self.unchanged > 0 {
            self.bytes.push(0);
            write_varint(&mut self.bytes, self.unchanged);
            self.unchanged = 0;
        }
    }
}

/// Unpacks the points of a block.
pub(super) struct Decoder<'a> {
    prediction: Prediction,
    bytes: &'a [u8],
    /// Number of points left that continue as before.
    unchanged: u64,
}

impl<'a> Decoder<'a> {
    /// Unpacks a block after a point with these values.
    pub(super) fn new(before: &Values, bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { prediction: Prediction::after(before), bytes, unchanged: 0 }
    }

    /// Returns a point that continues as before.
    fn unchanged(&mut self) -> Values {
        let mut numbers = [0; COLUMNS];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = self.prediction.column(at);
        }
        self.prediction.advance(numbers);
        Values::from_numbers(numbers)
    }
}

impl Iterator for Decoder<'_> {
    type Item = Values;

    fn next(&mut self) -> Option<Values> {
        if self.unchanged == 0 {
            let (mask, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            if *mask != 0 {
                let mut numbers = [0; COLUMNS];
                for (at, number) in numbers.iter_mut().enumerate() {
                    let is_changed = mask & 1 << at != 0;
                    let difference = if is_changed { unzigzag(read_varint(&mut self.bytes)?) } else { 0 };
                    *number = self.prediction.column(at).wrapping_add(difference as u64);
                }
                self.prediction.advance(numbers);
                return Some(Values::from_numbers(numbers));
            }
            self.unchanged = read_varint(&mut self.bytes)?;
        }
        self.unchanged = self.unchanged.checked_sub(1)?;
        Some(self.unchanged())
    }
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
