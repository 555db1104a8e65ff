//! Expected replies: a value written once, with its exact type, that applies to both protocols.
//!
//! ```text
//! "text"            bulk string; \r \n \t \" \\ \xNN           +OK            simple string, +"of several words"
//! 12                integer                                    -ERR text      error, to the end of the line; inside
//! nil               $-1, in RESP3 _                                           a structure -"ERR text"
//! nil-array         *-1, in RESP3 _                            [a, b]         array; [a, ...] allows more items
//! {"k": v}          map, flat in RESP2; {"k": v, ...} allows   (a, b)         array in any order
//!                   more pairs
//! streams{"k": v}   map; in RESP2 an array of pairs            set[a, b]      set in any order; in RESP2 an array
//! double"1.5"       in RESP2 a bulk string                     verbatim"txt"  in RESP2 a bulk string
//! true false        in RESP2 1 and 0                           push[a, b]     in RESP2 an array
//! <any> <int> <int 0..50> <bulk> <id> <error>                  placeholders by type; <has "text"> by content
//! <int as name>     any of them, stored for later use as {name}
//! raw"bytes"        exactly these bytes on the wire (only as a whole expectation)
//! ```

use super::text::{Bindings, quoted};
use crate::support::resp::{Value, escape};

/// Protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The default of a new connection.
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// An expected reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pattern {
    /// A fixed value, written as in RESP3 except for the two nulls.
    Exactly(Value),
    /// Items in order. `open` allows more after them.
    Array { items: Vec<Pattern>, open: bool },
    /// Items in any order.
    AnyOrder(Vec<Pattern>),
    /// A set: like [`Pattern::AnyOrder`], but typed.
    Set(Vec<Pattern>),
    /// An out-of-band message.
    Push(Vec<Pattern>),
    /// Pairs in order, flat in RESP2. `open` allows any order and further pairs.
    Map { pairs: Vec<(Pattern, Pattern)>, open: bool },
    /// Pairs in order, each its own array in RESP2.
    Streams(Vec<(Pattern, Pattern)>),
    /// `<…>`
    Placeholder(Placeholder),
    /// `<… as name>`
    Named(Box<Pattern>, String),
}

/// The values that a placeholder accepts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Placeholder {
    /// Any value.
    Anything,
    /// An integer within these bounds.
    Int(i64, i64),
    /// A bulk string.
    Bulk,
    /// A bulk string `ms-seq`.
    Id,
    /// An error.
    Error,
    /// A text that contains these bytes.
    Has(Vec<u8>),
}

/// Parses a whole expectation.
pub(crate) fn parse(source: &str) -> Result<Pattern, String> {
    let source = source.trim();
    let bytes = source.as_bytes();
    if bytes.first() == Some(&b'-')
        && bytes.get(1).is_some_and(|byte| *byte != b'"' && !byte.is_ascii_digit())
    {
        return Ok(Pattern::Exactly(Value::Error(bytes[1..].to_vec())));
    }
    let mut parser = Parser { rest: source };
    let pattern = parser.pattern()?;
    match parser.rest.trim() {
        "" => Ok(pattern),
        rest => Err(format!("unexpected text after the expectation: {rest}")),
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn pattern(&mut self) -> Result<Pattern, String> {
        self.blanks();
        const WORDS: [(&str, Value); 4] = [
            ("nil-array", Value::NullArray),
            ("nil", Value::NullBulk),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
        ];
        for (word, value) in WORDS {
            if self.take(word) {
                return Ok(Pattern::Exactly(value));
            }
        }
        if self.take("streams{") {
            return Ok(Pattern::Streams(self.pairs()?.0));
        }
        if self.take("set[") {
            return Ok(Pattern::Set(self.items(']')?.0));
        }
        if self.take("push[") {
            return Ok(Pattern::Push(self.items(']')?.0));
        }
        if self.take("double") {
            return Ok(Pattern::Exactly(Value::Double(self.quoted()?)));
        }
        if self.take("verbatim") {
            return Ok(Pattern::Exactly(Value::Verbatim(self.quoted()?)));
        }
        if self.take("[") {
            return self.items(']').map(|(items, open)| Pattern::Array { items, open });
        }
        if self.take("(") {
            return Ok(Pattern::AnyOrder(self.items(')')?.0));
        }
        if self.take("{") {
            return self.pairs().map(|(pairs, open)| Pattern::Map { pairs, open });
        }
        if self.take("<") {
            return self.placeholder();
        }
        self.scalar().map(Pattern::Exactly)
    }

    fn scalar(&mut self) -> Result<Value, String> {
        if self.rest.starts_with('"') {
            return self.quoted().map(Value::Bulk);
        }
        if self.rest.starts_with("-\"") {
            self.rest = &self.rest[1..];
            return self.quoted().map(Value::Error);
        }
        if self.take("+") {
            if self.rest.starts_with('"') {
                return self.quoted().map(Value::Simple);
            }
            return Ok(Value::Simple(self.word().as_bytes().to_vec()));
        }
        let word = self.word();
        word.parse().map(Value::Int).map_err(|_| format!("not a value: {word}"))
    }

    fn items(&mut self, close: char) -> Result<(Vec<Pattern>, bool), String> {
        let (mut items, mut open) = (Vec::new(), false);
        loop {
            self.blanks();
            if self.rest.starts_with(close) {
                self.rest = &self.rest[close.len_utf8()..];
                return Ok((items, open));
            }
            if self.take("...") {
                open = true;
            } else {
                items.push(self.pattern()?);
            }
            self.blanks();
            self.take(",");
        }
    }

    fn pairs(&mut self) -> Result<(Vec<(Pattern, Pattern)>, bool), String> {
        let (mut pairs, mut open) = (Vec::new(), false);
        loop {
            self.blanks();
            if self.take("}") {
                return Ok((pairs, open));
            }
            if self.take("...") {
                open = true;
            } else {
                let key = self.pattern()?;
                self.blanks();
                if !self.take(":") {
                    return Err(format!("expected a colon at {}", self.rest));
                }
                pairs.push((key, self.pattern()?));
            }
            self.blanks();
            self.take(",");
        }
    }

    /// Parses the text between `<` and `>`.
    fn placeholder(&mut self) -> Result<Pattern, String> {
        let kind = match self.word() {
            "any" => Placeholder::Anything,
            "int" => self.bounds()?,
            "bulk" => Placeholder::Bulk,
            "id" => Placeholder::Id,
            "error" => Placeholder::Error,
            "has" => {
                self.blanks();
                Placeholder::Has(self.quoted()?)
            }
            other => return Err(format!("unknown placeholder: <{other}>")),
        };
        self.blanks();
        let mut pattern = Pattern::Placeholder(kind);
        if self.take("as ") {
            pattern = Pattern::Named(Box::new(pattern), self.word().to_string());
        }
        self.blanks();
        if self.take(">") { Ok(pattern) } else { Err(format!("expected > at {}", self.rest)) }
    }

    fn bounds(&mut self) -> Result<Placeholder, String> {
        self.blanks();
        if !self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return Ok(Placeholder::Int(i64::MIN, i64::MAX));
        }
        let word = self.word();
        let bounds =
            word.split_once("..").and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        let (low, high) = bounds.ok_or_else(|| format!("invalid bounds: {word}"))?;
        Ok(Placeholder::Int(low, high))
    }

    fn quoted(&mut self) -> Result<Vec<u8>, String> {
        let (bytes, rest) = quoted(self.rest)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> &str {
        let ends = |c: char| c.is_whitespace() || ",:]})>".contains(c);
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

impl Pattern {
    /// Whether `value` matches on a connection of this protocol. Stores named values in `bindings`.
    pub(crate) fn matches(&self, value: &Value, protocol: Protocol, bindings: &mut Bindings) -> bool {
        let resp3 = protocol == Protocol::Resp3;
        match (self, value) {
            (Pattern::Exactly(expected), _) => in_protocol(expected, resp3) == *value,
            (Pattern::Placeholder(kind), _) => kind.accepts(value),
            (Pattern::Named(pattern, name), _) => {
                let matched = pattern.matches(value, protocol, bindings);
                bindings.insert(name.clone(), plain(value));
                matched
            }
            (Pattern::Array { items, open }, Value::Array(values)) => {
                (if *open { items.len() <= values.len() } else { items.len() == values.len() })
                    && in_order(items, values, protocol, bindings)
            }
            (Pattern::AnyOrder(items), Value::Array(values)) => {
                in_any_order(items, values, protocol, bindings)
            }
            (Pattern::Set(items), Value::Set(values)) if resp3 => {
                in_any_order(items, values, protocol, bindings)
            }
            (Pattern::Set(items), Value::Array(values)) if !resp3 => {
                in_any_order(items, values, protocol, bindings)
            }
            (Pattern::Push(items), Value::Push(values)) if resp3 => {
                items.len() == values.len() && in_order(items, values, protocol, bindings)
            }
            (Pattern::Push(items), Value::Array(values)) if !resp3 => {
                items.len() == values.len() && in_order(items, values, protocol, bindings)
            }
            (Pattern::Map { pairs, open }, Value::Map(found)) if resp3 => {
                map_matches(pairs, *open, found, protocol, bindings)
            }
            (Pattern::Map { pairs, open }, Value::Array(flat)) if !resp3 && flat.len() % 2 == 0 => {
                let found: Vec<_> = flat.chunks(2).map(|two| (two[0].clone(), two[1].clone())).collect();
                map_matches(pairs, *open, &found, protocol, bindings)
            }
            (Pattern::Streams(pairs), Value::Map(found)) if resp3 => {
                map_matches(pairs, false, found, protocol, bindings)
            }
            (Pattern::Streams(pairs), Value::Array(found)) if !resp3 => {
                let found: Option<Vec<_>> = found.iter().map(as_pair).collect();
                found.is_some_and(|found| map_matches(pairs, false, &found, protocol, bindings))
            }
            _ => false,
        }
    }
}

/// Converts a fixed expected value to the type that the protocol uses for it.
fn in_protocol(expected: &Value, resp3: bool) -> Value {
    match expected {
        Value::NullBulk | Value::NullArray if resp3 => Value::Null,
        Value::Double(text) | Value::Verbatim(text) if !resp3 => Value::Bulk(text.clone()),
        Value::Bool(truth) if !resp3 => Value::Int(i64::from(*truth)),
        other => other.clone(),
    }
}

fn as_pair(value: &Value) -> Option<(Value, Value)> {
    match value {
        Value::Array(items) if items.len() == 2 => Some((items[0].clone(), items[1].clone())),
        _ => None,
    }
}

fn in_order(items: &[Pattern], values: &[Value], protocol: Protocol, bindings: &mut Bindings) -> bool {
    items.iter().zip(values).all(|(item, value)| item.matches(value, protocol, bindings))
}

fn in_any_order(items: &[Pattern], values: &[Value], protocol: Protocol, bindings: &mut Bindings) -> bool {
    let mut left: Vec<&Value> = values.iter().collect();
    let found_all = items.iter().all(|item| {
        let found = left.iter().position(|value| item.matches(value, protocol, bindings));
        found.map(|at| left.swap_remove(at)).is_some()
    });
    found_all && left.is_empty()
}

fn map_matches(
    pairs: &[(Pattern, Pattern)],
    open: bool,
    found: &[(Value, Value)],
    protocol: Protocol,
    bindings: &mut Bindings,
) -> bool {
    let mut is_pair = |(key, value): &(Pattern, Pattern), (found_key, found_value): &(Value, Value)| {
        key.matches(found_key, protocol, bindings) && value.matches(found_value, protocol, bindings)
    };
    if open {
        return pairs.iter().all(|pair| found.iter().any(|other| is_pair(pair, other)));
    }
    pairs.len() == found.len() && pairs.iter().zip(found).all(|(pair, other)| is_pair(pair, other))
}

impl Placeholder {
    fn accepts(&self, value: &Value) -> bool {
        match (self, value) {
            (Placeholder::Anything, _) => true,
            (Placeholder::Int(low, high), Value::Int(number)) => (low..=high).contains(&number),
            (Placeholder::Bulk, Value::Bulk(_)) | (Placeholder::Error, Value::Error(_)) => true,
            (Placeholder::Id, Value::Bulk(text)) => is_id(text),
            (
                Placeholder::Has(part),
                Value::Bulk(text) | Value::Verbatim(text) | Value::Simple(text) | Value::Error(text),
            ) => text.windows(part.len()).any(|window| window == part),
            _ => false,
        }
    }
}

fn is_id(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.split_once('-').is_some_and(|(ms, seq)| ms.parse::<u64>().is_ok() && seq.parse::<u64>().is_ok())
}

/// Converts a stored value to the text of a command argument.
fn plain(value: &Value) -> String {
    match value {
        Value::Bulk(text) | Value::Simple(text) | Value::Verbatim(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        Value::Int(number) => number.to_string(),
        other => render(other),
    }
}

/// Renders a reply in the notation of expectations, with the types of its protocol.
pub(crate) fn render(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(render).collect::<Vec<_>>().join(", ");
    match value {
        Value::Simple(text) if text.iter().all(u8::is_ascii_alphanumeric) => format!("+{}", escape(text)),
        Value::Simple(text) => format!("+\"{}\"", escape(text)),
        Value::Error(text) => format!("-\"{}\"", escape(text)),
        Value::Int(number) => number.to_string(),
        Value::Bulk(text) => format!("\"{}\"", escape(text)),
        Value::NullBulk => "nil".to_string(),
        Value::NullArray => "nil-array".to_string(),
        Value::Null => "_".to_string(),
        Value::Array(items) => format!("[{}]", list(items)),
        Value::Set(items) => format!("set[{}]", list(items)),
        Value::Push(items) => format!("push[{}]", list(items)),
        Value::Map(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| format!("{}: {}", render(key), render(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Double(text) => format!("double\"{}\"", escape(text)),
        Value::Verbatim(text) => format!("verbatim\"{}\"", escape(text)),
        Value::BigNumber(text) => format!("({}", escape(text)),
        Value::Bool(truth) => truth.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::resp::decode;

    /// Whether an expectation matches a reply, given as raw bytes.
    fn matches(expectation: &str, protocol: Protocol, reply: &str) -> bool {
        let (value, _) = decode(reply.as_bytes()).expect("a reply").expect("all of it");
        parse(expectation).expect("an expectation").matches(&value, protocol, &mut Bindings::new())
    }

    #[test]
    fn one_expectation_covers_both_protocols() {
        for (expectation, resp2, resp3) in [
            ("nil", "$-1\r\n", "_\r\n"),
            ("nil-array", "*-1\r\n", "_\r\n"),
            (r#"{"a": 1}"#, "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"),
            (r#"streams{"a": 1}"#, "*1\r\n*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"),
            ("set[1, 2]", "*2\r\n:2\r\n:1\r\n", "~2\r\n:2\r\n:1\r\n"),
            (r#"double"1.5""#, "$3\r\n1.5\r\n", ",1.5\r\n"),
            ("true", ":1\r\n", "#t\r\n"),
            (r#"verbatim"hi""#, "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ] {
            assert!(matches(expectation, Protocol::Resp2, resp2), "{expectation} must match {resp2}");
            assert!(matches(expectation, Protocol::Resp3, resp3), "{expectation} must match {resp3}");
            assert!(
                !matches(expectation, Protocol::Resp2, resp3),
                "{expectation} in RESP2 must not match {resp3}"
            );
            assert!(
                !matches(expectation, Protocol::Resp3, resp2),
                "{expectation} in RESP3 must not match {resp2}"
            );
        }
    }

    #[test]
    fn a_pattern_matches_only_its_own_type() {
        assert!(!matches("1", Protocol::Resp2, "$1\r\n1\r\n"));
        assert!(!matches("\"OK\"", Protocol::Resp2, "+OK\r\n"));
        assert!(!matches("nil", Protocol::Resp2, "*-1\r\n"));
        assert!(!matches("-ERR x", Protocol::Resp2, "+ERR x\r\n"));
        assert!(!matches("<id>", Protocol::Resp2, "$3\r\n1-x\r\n"));
        assert!(!matches("<int 0..5>", Protocol::Resp2, ":6\r\n"));
    }

    #[test]
    fn only_open_patterns_allow_more_items() {
        let reply = "*2\r\n:1\r\n:2\r\n";
        assert!(matches("[1, ...]", Protocol::Resp2, reply));
        assert!(!matches("[1]", Protocol::Resp2, reply));
        assert!(!matches("[2, ...]", Protocol::Resp2, reply));
        assert!(matches("(2, 1)", Protocol::Resp2, reply));
        assert!(!matches("(2, 2)", Protocol::Resp2, reply));
    }
}
