//! The types of values that settings have: parsing, errors, and formatting.

use std::fmt;

use crate::memory::Available;

pub(super) const ONE_MIB: i64 = 1024 * 1024;

/// `maxmemory auto` is this percentage of the memory that the process may use. The rest is for what the server does not
/// count: fragmentation, thread stacks, and the kernel's buffers of sockets and files.
const AUTO_PERCENT: u64 = 80;

/// The stored value of `maxmemory-clients auto`.
pub(crate) const CLIENT_MEMORY_AUTO: i64 = i64::MIN;

/// The values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Any text.
    Text,
    /// `yes` or `no`.
    YesNo,
    /// An integer in a range.
    Number {
        /// The smallest accepted value.
        min: i64,
        /// The greatest accepted value.
        max: i64,
    },
    /// A number of bytes, optionally with a unit, such as `64mb`.
    Bytes {
        /// The smallest accepted value.
        min: i64,
        /// The greatest accepted value.
        max: i64,
    },
    /// A number of bytes, a percentage of the memory that the process may use, such as `50%`, or `auto`: 80 % of it.
    /// The server computes the number of bytes when the setting is set.
    MemoryLimit,
    /// A number of bytes, a percentage of `maxmemory`, such as `5%`, or `auto`. A percentage is stored as a negative
    /// number, and `auto` as `CLIENT_MEMORY_AUTO`.
    ClientMemory,
    /// Permissions of a file as an octal number, at most 777.
    Permissions,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A number of bytes, or Redis' list of client classes (`normal 256mb 64mb 60 pubsub …`).
    ///
    /// Of the list, only the hard limit of `normal` is used. There are no clients of other classes. Soft limits are not
    /// needed, because the server stops reading requests from a client that does not read its replies.
    OutputLimit,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, a number of bytes, or yes (1) and no (0).
    Number(i64),
    /// A text or a word.
    Text(String),
}

/// Why a setting does not accept a value. The texts are those of Redis' CONFIG SET, except the text of `Fixed`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the texts below say what each means")]
pub enum SettingError {
    NotYesNo,
    NotANumber,
    NotBytes,
    NotBytesOrPercent,
    PercentTooLarge,
    NotMemoryLimit,
    /// The system does not report how much memory the process may use, so the server cannot compute a percentage.
    UnknownMemory,
    NotOctal,
    NotPermissions,
    OutOfRange {
        min: i64,
        max: i64,
    },
    NotOneOf(&'static [&'static str]),
    NotClasses,
    Repeated,
    Immutable,
    TooManyClients {
        possible: u64,
    },
    Fixed {
        value: String,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::NotYesNo => f.write_str("argument must be 'yes' or 'no'"),
            SettingError::NotANumber => f.write_str("argument couldn't be parsed into an integer"),
            SettingError::NotBytes => f.write_str("argument must be a memory value"),
            SettingError::NotBytesOrPercent => f.write_str("argument must be a memory or percent value"),
            SettingError::PercentTooLarge => f.write_str("percentage argument must be less or equal to 100"),
            SettingError::NotMemoryLimit => {
                f.write_str("argument must be a memory or percent value, or 'auto'")
            }
            SettingError::UnknownMemory => {
                f.write_str("the system does not report its memory; set a number of bytes, or 0 for no limit")
            }
            SettingError::NotOctal => f.write_str("argument couldn't be parsed as an octal number"),
            SettingError::NotPermissions => f.write_str("argument must be between 0 and 777 inclusive"),
            SettingError::OutOfRange { min, max } => {
                write!(f, "argument must be between {min} and {max} inclusive")
            }
            SettingError::NotOneOf(words) => {
                write!(f, "argument(s) must be one of the following: {}", words.join(", "))
            }
            SettingError::NotClasses => {
                f.write_str("Wrong number of arguments in buffer limit configuration.")
            }
            SettingError::Repeated => f.write_str("duplicate parameter"),
            SettingError::Immutable => f.write_str("can't set immutable config"),
            SettingError::TooManyClients { possible } => write!(
                f,
                "The operating system is not able to handle the specified number of clients, try with {possible}"
            ),
            SettingError::Fixed { value } => write!(f, "the only supported value is '{value}'"),
        }
    }
}

impl ValueType {
    /// Parses a value.
    pub fn parse(self, text: &str) -> Result<Value, SettingError> {
        match self {
            ValueType::Text => Ok(Value::Text(text.to_owned())),
            ValueType::YesNo => parse_yes_no(text).map(i64::from).map(Value::Number),
            ValueType::Number { min, max } => {
                within(text.trim().parse().map_err(|_| SettingError::NotANumber)?, min, max)
            }
            ValueType::Bytes { min, max } => within(parse_bytes(text)?, min, max),
            ValueType::MemoryLimit => parse_memory_limit(text).map(Value::Number),
            ValueType::ClientMemory => parse_client_memory(text).map(Value::Number),
            ValueType::Permissions => parse_permissions(text).map(Value::Number),
            ValueType::Choice(words) => parse_choice(text, words).map(Value::Text),
            ValueType::OutputLimit => parse_output_limit(text).map(Value::Number),
        }
    }

    /// Formats a number as CONFIG GET returns it.
    pub fn show(self, number: i64) -> String {
        match self {
            ValueType::YesNo => String::from(if number == 0 { "no" } else { "yes" }),
            ValueType::Permissions => format!("{number:o}"),
            ValueType::OutputLimit => format!("normal {number} 0 0"),
            ValueType::ClientMemory if number == CLIENT_MEMORY_AUTO => "auto".to_owned(),
            ValueType::ClientMemory if number < 0 => format!("{}%", number.unsigned_abs()),
            _ => number.to_string(),
        }
    }

    /// Returns the placeholder for a value in a usage line.
    pub fn placeholder(self) -> &'static str {
        match self {
            ValueType::Text => "TEXT",
            ValueType::YesNo => "yes|no",
            ValueType::Number { .. } => "N",
            ValueType::Permissions => "OCTAL",
            ValueType::Bytes { .. } | ValueType::OutputLimit => "BYTES",
            ValueType::MemoryLimit => "BYTES|N%|auto",
            ValueType::ClientMemory => "BYTES|N%|auto",
            ValueType::Choice(_) => "WORD",
        }
    }
}

fn within(number: i64, min: i64, max: i64) -> Result<Value, SettingError> {
    if (min..=max).contains(&number) {
        Ok(Value::Number(number))
    } else {
        Err(SettingError::OutOfRange { min, max })
    }
}

fn parse_yes_no(text: &str) -> Result<bool, SettingError> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(SettingError::NotYesNo),
    }
}

fn parse_permissions(text: &str) -> Result<i64, SettingError> {
    let mode = u32::from_str_radix(text.trim(), 8).map_err(|_| SettingError::NotOctal)?;
    if mode <= 0o777 { Ok(i64::from(mode)) } else { Err(SettingError::NotPermissions) }
}

fn parse_choice(text: &str, words: &'static [&'static str]) -> Result<String, SettingError> {
    let known = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    known.map(|word| (*word).to_owned()).ok_or(SettingError::NotOneOf(words))
}

/// Parses a number of bytes. As in Redis, `1k` is 1000 bytes and `1kb` is 1024 bytes.
fn parse_bytes(text: &str) -> Result<i64, SettingError> {
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
        _ => return Err(SettingError::NotBytes),
    };
    let number: i64 = digits.parse().map_err(|_| SettingError::NotBytes)?;
    number.checked_mul(factor).ok_or(SettingError::NotBytes)
}

fn parse_percent(text: &str) -> Option<Result<u64, SettingError>> {
    let percent: u64 = text.trim().strip_suffix('%')?.parse().ok()?;
    Some(if percent <= 100 { Ok(percent) } else { Err(SettingError::PercentTooLarge) })
}

/// Parses a limit of memory. `auto` is no limit if the system does not report its memory.
fn parse_memory_limit(text: &str) -> Result<i64, SettingError> {
    if let Ok(bytes) = parse_bytes(text) {
        return Ok(bytes);
    }
    let is_auto = text.trim().eq_ignore_ascii_case("auto");
    let percent = match parse_percent(text) {
        _ if is_auto => AUTO_PERCENT,
        // Zero bytes would be no limit.
        Some(Ok(0)) | None => return Err(SettingError::NotMemoryLimit),
        Some(percent) => percent?,
    };
    match Available::read() {
        Some(available) => Ok(i64::try_from(available.percent(percent)).unwrap_or(i64::MAX)),
        None if is_auto => Ok(0),
        None => Err(SettingError::UnknownMemory),
    }
}

fn parse_client_memory(text: &str) -> Result<i64, SettingError> {
    match parse_percent(text) {
        _ if text.trim().eq_ignore_ascii_case("auto") => Ok(CLIENT_MEMORY_AUTO),
        Some(percent) => percent.map(|percent| -(percent as i64)),
        None => parse_bytes(text).map_err(|_| SettingError::NotBytesOrPercent),
    }
}

/// Parses a number of bytes, or a list of client classes with three numbers each.
fn parse_output_limit(text: &str) -> Result<i64, SettingError> {
    if let Ok(bytes) = parse_bytes(text) {
        return Ok(bytes);
    }
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(SettingError::NotClasses);
    }
    let mut normal = None;
    for class in words.chunks_exact(4) {
        let hard = parse_bytes(class[1])?;
        parse_bytes(class[2])?;
        parse_bytes(class[3])?;
        match class[0].to_ascii_lowercase().as_str() {
            "normal" => normal = Some(hard),
            "slave" | "replica" | "pubsub" => {}
            _ => return Err(SettingError::NotClasses),
        }
    }
    normal.ok_or(SettingError::NotClasses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        let bytes = |text| parse_bytes(text);
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64mb"), Ok(64 << 20));
        assert_eq!(bytes("1K"), Ok(1000));
        assert_eq!(bytes("1Gb"), Ok(1 << 30));
        for bad in ["", "mb", "64 mb", "-1", "1tb", "99999999999gb"] {
            assert_eq!(bytes(bad), Err(SettingError::NotBytes), "{bad}");
        }
    }

    #[test]
    fn out_of_range_error_contains_the_range() {
        let port = ValueType::Number { min: 0, max: 65_535 };
        assert_eq!(port.parse("65535"), Ok(Value::Number(65_535)));
        let error = port.parse("65536").unwrap_err();
        assert_eq!(error.to_string(), "argument must be between 0 and 65535 inclusive");
        assert_eq!(port.parse("http"), Err(SettingError::NotANumber));
    }

    #[test]
    fn permissions_are_octal_numbers() {
        let permissions = |text| ValueType::Permissions.parse(text);
        assert_eq!(permissions("0"), Ok(Value::Number(0)));
        assert_eq!(permissions("770"), Ok(Value::Number(0o770)));
        assert_eq!(permissions("0777"), Ok(Value::Number(0o777)));
        assert_eq!(permissions("1000"), Err(SettingError::NotPermissions));
        for bad in ["", "8", "-1", "rwx", "99999999999"] {
            assert_eq!(permissions(bad), Err(SettingError::NotOctal), "{bad}");
        }
        assert_eq!(ValueType::Permissions.show(0o750), "750");
    }

    #[test]
    fn switches_accept_only_yes_and_no() {
        assert_eq!(ValueType::YesNo.parse("YES"), Ok(Value::Number(1)));
        assert_eq!(ValueType::YesNo.parse("no"), Ok(Value::Number(0)));
        assert_eq!(ValueType::YesNo.parse("true"), Err(SettingError::NotYesNo));
    }

    #[test]
    fn memory_limit_is_a_size_a_share_or_auto() {
        let limit = |text| parse_memory_limit(text);
        assert_eq!(limit("0"), Ok(0));
        assert_eq!(limit("100mb"), Ok(100 << 20));
        let all = limit("100%").unwrap();
        assert!(all > 0);
        assert_eq!(limit("auto"), limit("80%"));
        assert!((all / 2 - 1..=all / 2).contains(&limit("50%").unwrap()));
        assert_eq!(limit("101%"), Err(SettingError::PercentTooLarge));
        for bad in ["", "0%", "-1", "%", "automatic", "1.5gb"] {
            assert_eq!(limit(bad), Err(SettingError::NotMemoryLimit), "{bad}");
        }
    }

    #[test]
    fn memory_of_clients_is_a_size_or_a_share() {
        let limit = |text| parse_client_memory(text);
        assert_eq!(limit("1mb"), Ok(1 << 20));
        assert_eq!(limit("5%"), Ok(-5));
        assert_eq!(limit("0%"), Ok(0));
        assert_eq!(ValueType::ClientMemory.show(-5), "5%");
        assert_eq!(ValueType::ClientMemory.show(5), "5");
        assert_eq!(limit("101%"), Err(SettingError::PercentTooLarge));
        assert_eq!(limit("Auto").map(|number| ValueType::ClientMemory.show(number)), Ok("auto".to_owned()));
        for bad in ["", "autos", "%", "-5"] {
            assert_eq!(limit(bad), Err(SettingError::NotBytesOrPercent), "{bad}");
        }
    }

    #[test]
    fn output_limit_is_a_size_or_a_list_of_redis_classes() {
        let limit = |text| parse_output_limit(text);
        assert_eq!(limit("10mb"), Ok(10 << 20));
        assert_eq!(limit("normal 1mb 0 0 replica 256mb 64mb 60"), Ok(1 << 20));
        assert_eq!(limit("pubsub 1mb 0 0"), Err(SettingError::NotClasses));
        assert_eq!(limit("normal 1mb 0"), Err(SettingError::NotClasses));
        assert_eq!(ValueType::OutputLimit.show(5), "normal 5 0 0");
    }
}
