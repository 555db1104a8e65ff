//! The three kinds of entries that workloads add: three short fields, JSON in one field, ten fields.

/// The kind of an entry's content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload {
    Short,
    Json,
    Ten,
}

impl Payload {
    /// Returns the fields of the n-th entry: name, value, name, value, …
    pub(crate) fn fields(self, n: u64) -> Vec<String> {
        match self {
            Payload::Short => short_fields(n),
            Payload::Json => json(n),
            Payload::Ten => ten_fields(n),
        }
    }
}

fn short_fields(n: u64) -> Vec<String> {
    let values =
        [("user", format!("u{}", n % 1000)), ("action", "click".into()), ("amount", (n % 100).to_string())];
    values.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn json(n: u64) -> Vec<String> {
    let mut rng = Rng::seeded(n);
    let text = format!(
        "{{\"order\":\"{}\",\"customer\":\"{}\",\"items\":[{{\"sku\":\"{}\",\"quantity\":{},\"price\":{}.{:02}}}],\
         \"currency\":\"EUR\",\"address\":{{\"street\":\"{} Mill Lane\",\"city\":\"{}\",\"country\":\"NL\"}},\
         \"note\":\"{}\",\"express\":{}}}",
        rng.letters(12),
        rng.letters(8),
        rng.letters(10),
        1 + rng.below(9),
        10 + rng.below(90),
        rng.below(100),
        10 + rng.below(90),
        rng.letters(10),
        rng.letters(40),
        ["true", "false"][rng.below(2) as usize],
    );
    vec!["data".into(), text]
}

/// Each entry has other field names in another order, so entries share no list of names.
fn ten_fields(n: u64) -> Vec<String> {
    let mut rng = Rng::seeded(n);
    let first = rng.below(40);
    (0..10)
        .flat_map(|at| {
            let name = format!("field{:02}", (first + at * (1 + n % 3)) % 40);
            let length = 4 + rng.below(6);
            [name, rng.letters(length)]
        })
        .collect()
}

/// A seeded random number generator: SplitMix64.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn seeded(seed: u64) -> Rng {
        Rng(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns the numbers below `end` in random order.
    pub(crate) fn shuffled(&mut self, end: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..end).collect();
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
        all
    }

    fn letters(&mut self, count: u64) -> String {
        (0..count).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_sizes_in_their_titles() {
        for n in 0..1000 {
            assert_eq!(Payload::Short.fields(n).len(), 6);
            let json_len = Payload::Json.fields(n)[1].len();
            assert!((240..=260).contains(&json_len), "JSON of {json_len} bytes");
            let ten = Payload::Ten.fields(n);
            assert_eq!(ten.len(), 20);
            let raw: usize = ten.iter().map(String::len).sum();
            assert!((100..=170).contains(&raw), "{raw} bytes of fields");
        }
        assert_ne!(Payload::Ten.fields(1), Payload::Ten.fields(2));
        assert_eq!(Payload::Ten.fields(1), Payload::Ten.fields(1));
    }

    #[test]
    fn shuffled_keeps_every_number() {
        let mut shuffled = Rng::seeded(7).shuffled(1000);
        assert_ne!(shuffled, (0..1000).collect::<Vec<_>>());
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..1000).collect::<Vec<_>>());
    }
}
