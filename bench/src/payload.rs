//! The three kinds of entries that are added: three short fields, JSON in one field, ten fields.

/// What the fields of an entry hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload {
    Short,
    Json,
    Ten,
}

impl Payload {
    /// Names and values of the n-th entry, in turns.
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
    let mut dice = Dice::seeded(n);
    let text = format!(
        "{{\"order\":\"{}\",\"customer\":\"{}\",\"items\":[{{\"sku\":\"{}\",\"quantity\":{},\"price\":{}.{:02}}}],\
         \"currency\":\"EUR\",\"address\":{{\"street\":\"{} Mill Lane\",\"city\":\"{}\",\"country\":\"NL\"}},\
         \"note\":\"{}\",\"express\":{}}}",
        dice.letters(12),
        dice.letters(8),
        dice.letters(10),
        1 + dice.below(9),
        10 + dice.below(90),
        dice.below(100),
        10 + dice.below(90),
        dice.letters(10),
        dice.letters(40),
        ["true", "false"][dice.below(2) as usize],
    );
    vec!["data".into(), text]
}

/// Names in another order and with other gaps in each entry, so that entries share no list of names.
fn ten_fields(n: u64) -> Vec<String> {
    let mut dice = Dice::seeded(n);
    let first = dice.below(40);
    (0..10)
        .flat_map(|at| {
            let name = format!("field{:02}", (first + at * (1 + n % 3)) % 40);
            let length = 4 + dice.below(6);
            [name, dice.letters(length)]
        })
        .collect()
}

/// Repeatable variety: SplitMix64.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn seeded(seed: u64) -> Dice {
        Dice(seed)
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

    /// The numbers below `end` in a random order.
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
    fn payloads_are_what_their_titles_say() {
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
    fn shuffling_keeps_every_number() {
        let mut shuffled = Dice::seeded(7).shuffled(1000);
        assert_ne!(shuffled, (0..1000).collect::<Vec<_>>());
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..1000).collect::<Vec<_>>());
    }
}
