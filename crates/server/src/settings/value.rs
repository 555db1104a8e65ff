//! What values settings take: how they are read, why one is refused, how they are shown.

use std::fmt;

pub(super) const ONE_MIB: i64 = 1024 * 1024;

/// The values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything.
    Text,
    /// `yes` or `no`.
    YesNo,
    /// A whole number in a range.
    Number {
        /// The smallest allowed.
        min: i64,
        /// The greatest allowed.
        max: i64,
    },
    /// A number of bytes, `64mb` and the like included.
    Bytes {
        /// The smallest allowed.
        min: i64,
        /// The greatest allowed.
        max: i64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A number of bytes, or Redis' list of classes (`normal 256mb 64mb 60 pubsub …`) of which the hard
    /// limit of `normal` counts: there is no other class, and a client that does not read is not read from.
    OutputLimit,
}

/// A value, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a number, a size, or yes (1) and no (0).
    Number(i64),
    /// Of a text or a word.
    Text(String),
}

/// Why a value is refused. The words are those of CONFIG SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Neither `yes` nor `no`.
    NotYesNo,
    /// Not a number at all.
    NotANumber,
    /// Not a number of bytes.
    NotBytes,
    /// A number outside the range.
    OutOfRange {
        /// The smallest allowed.
        min: i64,
        /// The greatest allowed.
        max: i64,
    },
    /// None of the words.
    NotOneOf(&'static [&'static str]),
    /// Not a list of client classes with three numbers each.
    NotClasses,
    /// Named twice.
    Repeated,
    /// It may not change while the server runs.
    Immutable,
    /// The system has descriptors for fewer clients.
    TooManyClients {
        /// For so many.
        possible: u64,
    },
    /// It can be nothing else.
    Fixed {
        /// What it is.
        stands_at: String,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotYesNo => f.write_str("argument must be 'yes' or 'no'"),
            Refused::NotANumber => f.write_str("argument couldn't be parsed into an integer"),
            Refused::NotBytes => f.write_str("argument must be a memory value"),
            Refused::OutOfRange { min, max } => {
                write!(f, "argument must be between {min} and {max} inclusive")
            }
            Refused::NotOneOf(words) => {
                write!(f, "argument(s) must be one of the following: {}", words.join(", "))
            }
            Refused::NotClasses => f.write_str("Wrong number of arguments in buffer limit configuration."),
            Refused::Repeated => f.write_str("duplicate parameter"),
            Refused::Immutable => f.write_str("can't set immutable config"),
            Refused::TooManyClients { possible } => write!(
                f,
                "The operating system is not able to handle the specified number of clients, try with {possible}"
            ),
            Refused::Fixed { stands_at } => write!(f, "in this version it is always '{stands_at}'"),
        }
    }
}

impl Kind {
    /// Reads a value.
    pub fn parse(self, text: &str) -> Result<Value, Refused> {
        match self {
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::YesNo => parse_yes_no(text).map(i64::from).map(Value::Number),
            Kind::Number { min, max } => {
                within(text.trim().parse().map_err(|_| Refused::NotANumber)?, min, max)
            }
            Kind::Bytes { min, max } => within(parse_bytes(text)?, min, max),
            Kind::Choice(words) => parse_choice(text, words).map(Value::Text),
            Kind::OutputLimit => parse_output_limit(text).map(Value::Number),
        }
    }

    /// Shows a number the way CONFIG GET does.
    pub fn show(self, number: i64) -> String {
        match self {
            Kind::YesNo => String::from(if number == 0 { "no" } else { "yes" }),
            Kind::OutputLimit => format!("normal {number} 0 0"),
            _ => number.to_string(),
        }
    }

    /// What to write where a value is expected, in a usage line.
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Text => "TEXT",
            Kind::YesNo => "yes|no",
            Kind::Number { .. } => "N",
            Kind::Bytes { .. } | Kind::OutputLimit => "BYTES",
            Kind::Choice(_) => "WORD",
        }
    }
}

fn within(number: i64, min: i64, max: i64) -> Result<Value, Refused> {
    if (min..=max).contains(&number) {
        Ok(Value::Number(number))
    } else {
        Err(Refused::OutOfRange { min, max })
    }
}

fn parse_yes_no(text: &str) -> Result<bool, Refused> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Refused::NotYesNo),
    }
}

fn parse_choice(text: &str, words: &'static [&'static str]) -> Result<String, Refused> {
    let known = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    known.map(|word| (*word).to_owned()).ok_or(Refused::NotOneOf(words))
}

/// `1k` is a thousand bytes, `1kb` is 1024, as in Redis.
fn parse_bytes(text: &str) -> Result<i64, Refused> {
    let text = text.trim().to_ascii_lowercase();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let factor: i64 = match unit {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err(Refused::NotBytes),
    };
    let number: i64 = digits.parse().map_err(|_| Refused::NotBytes)?;
    number.checked_mul(factor).ok_or(Refused::NotBytes)
}

/// A bare number of bytes, or classes with three numbers each.
fn parse_output_limit(text: &str) -> Result<i64, Refused> {
    if let Ok(bytes) = parse_bytes(text) {
        return Ok(bytes);
    }
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(Refused::NotClasses);
    }
    let mut normal = None;
    for class in words.chunks_exact(4) {
        let hard = parse_bytes(class[1])?;
        parse_bytes(class[2])?;
        parse_bytes(class[3])?;
        match class[0].to_ascii_lowercase().as_str() {
            "normal" => normal = Some(hard),
            "slave" | "replica" | "pubsub" => {}
            _ => return Err(Refused::NotClasses),
        }
    }
    normal.ok_or(Refused::NotClasses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_know_decimal_and_binary_units() {
        let bytes = |text| parse_bytes(text);
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64mb"), Ok(64 << 20));
        assert_eq!(bytes("1K"), Ok(1000));
        assert_eq!(bytes("1Gb"), Ok(1 << 30));
        for bad in ["", "mb", "64 mb", "-1", "1tb", "99999999999gb"] {
            assert_eq!(bytes(bad), Err(Refused::NotBytes), "{bad}");
        }
    }

    #[test]
    fn numbers_outside_their_range_say_the_range() {
        let port = Kind::Number { min: 0, max: 65_535 };
        assert_eq!(port.parse("65535"), Ok(Value::Number(65_535)));
        let refused = port.parse("65536").unwrap_err();
        assert_eq!(refused.to_string(), "argument must be between 0 and 65535 inclusive");
        assert_eq!(port.parse("http"), Err(Refused::NotANumber));
    }

    #[test]
    fn yes_and_no_are_the_only_switch_positions() {
        assert_eq!(Kind::YesNo.parse("YES"), Ok(Value::Number(1)));
        assert_eq!(Kind::YesNo.parse("no"), Ok(Value::Number(0)));
        assert_eq!(Kind::YesNo.parse("true"), Err(Refused::NotYesNo));
    }

    #[test]
    fn the_output_limit_is_bytes_or_redis_classes() {
        let limit = |text| parse_output_limit(text);
        assert_eq!(limit("10mb"), Ok(10 << 20));
        assert_eq!(limit("normal 1mb 0 0 replica 256mb 64mb 60"), Ok(1 << 20));
        assert_eq!(limit("pubsub 1mb 0 0"), Err(Refused::NotClasses));
        assert_eq!(limit("normal 1mb 0"), Err(Refused::NotClasses));
        assert_eq!(Kind::OutputLimit.show(5), "normal 5 0 0");
    }
}
