//! Bytes per entry and per pending entry: how much resident memory grows while a stream does.
//!
//! Each figure comes from a server of its own that has done nothing else, and is taken on every server.

use crate::Failure;
use crate::load;
use crate::options::{Options, Program};
use crate::report::Measured;
use crate::server::Server;
use crate::wire::encode;

/// What fills memory.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    what: What,
}

enum What {
    Entries(fn(u64) -> Vec<String>),
    Pending,
}

/// Everything `scripts/bench` can measure in bytes, in the order of the table.
pub(crate) const MEASURES: &[Measure] = &[
    measure_of("bytes-short", "bytes per entry, 3 short fields", What::Entries(short_fields)),
    measure_of("bytes-json", "bytes per entry, 230-byte JSON", What::Entries(json)),
    measure_of("bytes-varied", "bytes per entry, 10 varied fields", What::Entries(varied_fields)),
    measure_of("bytes-pending", "bytes per pending entry", What::Pending),
];

const fn measure_of(name: &'static str, title: &'static str, what: What) -> Measure {
    Measure { name, title, what }
}

/// Takes one figure on every server.
pub(crate) fn measure(measure: &Measure, options: &Options) -> Result<Measured, Failure> {
    let programs = options.servers();
    let count = if options.quick { 200_000 } else { 1_000_000 };
    let bytes = programs
        .iter()
        .map(|program| match measure.what {
            What::Entries(fields) => bytes_per_entry(program, count, fields),
            What::Pending => bytes_per_pending(program, count),
        })
        .collect::<Result<_, _>>()?;
    Ok(Measured::memory(measure.name, measure.title, bytes))
}

fn bytes_per_entry(program: &Program, count: u64, fields: fn(u64) -> Vec<String>) -> Result<f64, Failure> {
    let server = Server::start(program)?;
    // The first batches pay for buffers and tables that do not grow with the stream.
    add(&server, "first", 5_000, fields)?;
    let before = server.resident_bytes()?;
    add(&server, "s", count, fields)?;
    per(count, before, server.resident_bytes()?)
}

fn bytes_per_pending(program: &Program, count: u64) -> Result<f64, Failure> {
    let server = Server::start(program)?;
    add(&server, "first", 5_000, short_fields)?;
    deliver(&server, "first", 5_000)?;
    add(&server, "s", count, short_fields)?;
    let before = server.resident_bytes()?;
    deliver(&server, "s", count)?;
    per(count, before, server.resident_bytes()?)
}

fn per(count: u64, before: u64, after: u64) -> Result<f64, Failure> {
    Ok(after.checked_sub(before).ok_or("resident memory shrank while data grew")? as f64 / count as f64)
}

fn add(server: &Server, key: &str, count: u64, fields: fn(u64) -> Vec<String>) -> Result<(), Failure> {
    load::send_in_order(server, count, 100, |n, out| {
        let mut command = vec!["XADD".to_owned(), key.to_owned(), "*".to_owned()];
        command.extend(fields(n));
        encode(out, &command);
    })
}

/// All entries go to ten consumers in turn, a hundred at a time.
fn deliver(server: &Server, key: &str, count: u64) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    connection.call(&["XGROUP", "CREATE", key, "g", "0"])?;
    load::send_in_order(server, count / 100, 1, |n, out| {
        let consumer = format!("c{}", n % 10);
        encode(out, &["XREADGROUP", "GROUP", "g", &consumer, "COUNT", "100", "STREAMS", key, ">"]);
    })?;
    match connection.call_int(&["XPENDING", key, "g"])? {
        pending if pending == count => Ok(()),
        pending => Err(format!("{pending} pending entries, expected {count}").into()),
    }
}

fn short_fields(n: u64) -> Vec<String> {
    let values =
        [("user", format!("u{}", n % 1000)), ("action", "click".into()), ("amount", (n % 100).to_string())];
    values.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn json(n: u64) -> Vec<String> {
    let mut dice = Dice(n);
    let text = format!(
        "{{\"order\":\"{}\",\"customer\":\"{}\",\"items\":[{{\"sku\":\"{}\",\"quantity\":{},\"price\":{}.{:02}}}],\
         \"currency\":\"EUR\",\"address\":{{\"street\":\"{} Mill Lane\",\"city\":\"{}\",\"country\":\"NL\"}},\
         \"note\":\"{}\",\"express\":{}}}",
        dice.letters(12),
        dice.letters(8),
        dice.letters(10),
        dice.below(9) + 1,
        dice.below(500) + 100,
        dice.below(100),
        dice.below(90) + 10,
        dice.letters(9),
        dice.letters(20),
        ["true", "false"][dice.below(2) as usize],
    );
    vec!["data".into(), text]
}

/// Names in another order and with other gaps in each entry, so that entries share no list of names.
fn varied_fields(n: u64) -> Vec<String> {
    let mut dice = Dice(n);
    let first = dice.below(40);
    (0..10)
        .flat_map(|at| {
            let name = format!("field{:02}", (first + at * (1 + n % 3)) % 40);
            let length = 4 + dice.below(6);
            [name, dice.letters(length)]
        })
        .collect()
}

/// Repeatable variety: SplitMix64, seeded by the entry's number.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
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
            assert_eq!(short_fields(n).len(), 6);
            let json_len = json(n)[1].len();
            assert!((220..=240).contains(&json_len), "JSON of {json_len} bytes");
            let varied = varied_fields(n);
            assert_eq!(varied.len(), 20);
            let raw: usize = varied.iter().map(String::len).sum();
            assert!((100..=170).contains(&raw), "{raw} bytes of fields");
        }
        assert_ne!(varied_fields(1), varied_fields(2));
        assert_eq!(varied_fields(1), varied_fields(1));
    }
}
