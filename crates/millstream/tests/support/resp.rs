//! RESP2 and RESP3 replies as a tree of values. Deliberately independent of the product's own codec, so that a bug
//! there cannot hide itself in the tests.

use std::fmt;

/// One reply. RESP2's two nulls and RESP3's null stay distinct.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `+text`
    Simple(Vec<u8>),
    /// `-text`, and RESP3's `!` form
    Error(Vec<u8>),
    /// `:n`
    Int(i64),
    /// `$n`
    Bulk(Vec<u8>),
    /// `$-1`
    NullBulk,
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    /// `*n`
    Array(Vec<Value>),
    /// `%n`
    Map(Vec<(Value, Value)>),
    /// `~n`
    Set(Vec<Value>),
    /// `>n`
    Push(Vec<Value>),
    /// `,text`
    Double(Vec<u8>),
    /// `#t` or `#f`
    Bool(bool),
    /// `=n`, without the three characters that name the format
    Verbatim(Vec<u8>),
    /// `(text`
    BigNumber(Vec<u8>),
}

/// The bytes are not a reply of either protocol.
#[derive(Debug)]
pub(crate) struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not RESP: {}", self.0)
    }
}

/// Encodes a command as an array of bulk strings.
pub(crate) fn encode<A: AsRef<[u8]>>(argv: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", argv.len()).into_bytes();
    for arg in argv {
        out.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        out.extend_from_slice(arg.as_ref());
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Decodes the first reply in `bytes` and returns it with its length. `None` while the reply is incomplete.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.value()?.map(|value| (value, reader.at)))
}

/// Reads values from a buffer that can end anywhere. `None` means that more bytes are needed.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Option<Value>, Malformed> {
        let Some(line) = self.line() else { return Ok(None) };
        let Some((&kind, rest)) = line.split_first() else { return Err(malformed(line)) };
        Ok(match kind {
            b'+' => Some(Value::Simple(rest.to_vec())),
            b'-' => Some(Value::Error(rest.to_vec())),
            b':' => Some(Value::Int(number(rest)?)),
            b',' => Some(Value::Double(rest.to_vec())),
            b'(' => Some(Value::BigNumber(rest.to_vec())),
            b'_' => Some(Value::Null),
            b'#' => Some(Value::Bool(rest == b"t")),
            b'$' if rest == b"-1" => Some(Value::NullBulk),
            b'*' if rest == b"-1" => Some(Value::NullArray),
            b'$' => self.bytes_of(rest)?.map(|text| Value::Bulk(text.to_vec())),
            b'!' => self.bytes_of(rest)?.map(|text| Value::Error(text.to_vec())),
            b'=' => self.bytes_of(rest)?.map(|text| Value::Verbatim(text.get(4..).unwrap_or(&[]).to_vec())),
            b'*' => self.items(number(rest)?)?.map(Value::Array),
            b'~' => self.items(number(rest)?)?.map(Value::Set),
            b'>' => self.items(number(rest)?)?.map(Value::Push),
            b'%' => self.items(number(rest)? * 2)?.map(|flat| Value::Map(pairs(flat))),
            _ => return Err(malformed(line)),
        })
    }

    /// Returns the bytes up to the next CRLF, without the CRLF.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        self.at += end + 2;
        Some(&rest[..end])
    }

    fn bytes_of(&mut self, length: &[u8]) -> Result<Option<&'a [u8]>, Malformed> {
        let length = number(length)? as usize;
        let Some(text) = self.bytes.get(self.at..self.at + length) else { return Ok(None) };
        match self.bytes.get(self.at + length..self.at + length + 2) {
            None => Ok(None),
            Some(b"\r\n") => {
                self.at += length + 2;
                Ok(Some(text))
            }
            Some(_) => Err(malformed(text)),
        }
    }

    fn items(&mut self, count: i64) -> Result<Option<Vec<Value>>, Malformed> {
        let mut items = Vec::new();
        for _ in 0..count {
            match self.value()? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(items))
    }
}

fn pairs(flat: Vec<Value>) -> Vec<(Value, Value)> {
    let mut items = flat.into_iter();
    let mut pairs = Vec::new();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| malformed(text))
}

fn malformed(bytes: &[u8]) -> Malformed {
    Malformed(escape(bytes))
}

/// Escapes bytes as they would be typed between double quotes.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        match byte {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x20..0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}
