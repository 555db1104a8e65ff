//! Finds hidden members in JSON text and replaces them, without changing the rest of the text.
//!
//! It walks over the text once, without recursion over nested values: the text comes from anybody who can add to the
//! store.

use super::HIDDEN;

/// Maximum depth of nested values whose names are examined.
const DEPTH_MAX: usize = 64;
/// Maximum bytes of the path of a member.
const PATH_BYTES_MAX: usize = 1024;
/// Maximum number of strings inside one another that are examined as JSON.
const STRINGS_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundValue {
    /// No hidden member.
    Nothing,
    /// The text with its hidden members replaced.
    Replaced(String),
    /// The text was not examined to its end.
    Hide,
}

/// Whether a value begins like a JSON object, array or string.
pub(super) fn looks_like_json(value: &[u8]) -> bool {
    value.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"{[\"".contains(byte))
}

/// Replaces the members of a JSON text for which `is_hidden` returns true. It gets the path of a member, which begins
/// with `path`, and its name. Appends the hidden strings and numbers to `secrets`.
///
/// Returns `None` if the text is not valid JSON.
pub(super) fn hide(
    text: &str,
    path: &str,
    is_hidden: &dyn Fn(&str, &str) -> bool,
    secrets: &mut Vec<String>,
) -> Option<FoundValue> {
    hide_in(text, path, is_hidden, secrets, 0)
}

fn hide_in(
    text: &str,
    path: &str,
    is_hidden: &dyn Fn(&str, &str) -> bool,
    secrets: &mut Vec<String>,
    strings: usize,
) -> Option<FoundValue> {
    let (path, root_bytes) = (path.to_owned(), path.len());
    let output = String::new();
    JsonWalk { text, at: 0, levels: Vec::new(), path, root_bytes, hidden: None, output, copied: 0, strings }
        .run(is_hidden, secrets)
}

/// An object or an array that has begun and not ended.
struct Level {
    is_object: bool,
    path_bytes: usize,
}

/// A hidden value that has begun and not ended.
struct Hiding {
    start: usize,
    depth: usize,
}

struct JsonWalk<'a> {
    text: &'a str,
    at: usize,
    levels: Vec<Level>,
    path: String,
    /// The length of the path of the whole text.
    root_bytes: usize,
    hidden: Option<Hiding>,
    output: String,
    /// The part of the text that `output` has.
    copied: usize,
    /// Number of strings around this text.
    strings: usize,
}

impl JsonWalk<'_> {
    fn run(
        mut self,
        is_hidden: &dyn Fn(&str, &str) -> bool,
        secrets: &mut Vec<String>,
    ) -> Option<FoundValue> {
        loop {
            if !self.value(is_hidden, secrets)? {
                return Some(FoundValue::Hide);
            }
            // The next member, the next element, or the next document.
            loop {
                let is_object = self.levels.last().map(|level| level.is_object);
                match (self.next_byte(), is_object) {
                    (None, None) => return Some(self.finish()),
                    (None, Some(_)) => return None,
                    (Some(b','), Some(is_object)) => {
                        self.at += 1;
                        if is_object && !self.key(is_hidden)? {
                            return Some(FoundValue::Hide);
                        }
                        break;
                    }
                    (Some(b'}'), Some(true)) | (Some(b']'), Some(false)) => self.close(),
                    (Some(_), Some(_)) => return None,
                    (Some(_), None) => break,
                }
            }
        }
    }

    /// Reads a value, or the beginning of an object or array with members up to its first scalar. Returns false if the
    /// text must be hidden, and `None` if it is not valid.
    fn value(&mut self, is_hidden: &dyn Fn(&str, &str) -> bool, secrets: &mut Vec<String>) -> Option<bool> {
        loop {
            let opened = self.next_byte()?;
            let start = self.at;
            match opened {
                b'{' | b'[' => {
                    if self.levels.len() == DEPTH_MAX {
                        return Some(false);
                    }
                    self.at += 1;
                    let is_object = opened == b'{';
                    self.levels.push(Level { is_object, path_bytes: self.path.len() });
                    match (self.next_byte()?, is_object) {
                        (b'}', true) | (b']', false) => {
                            self.close();
                            return Some(true);
                        }
                        (_, true) if !self.key(is_hidden)? => return Some(false),
                        _ => {}
                    }
                }
                b'"' => {
                    let string = self.string()?;
                    return Some(self.string_ended(start, string, is_hidden, secrets));
                }
                _ => {
                    let is_scalar = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                    let rest = &self.text[start..];
                    self.at = start + rest.find(|c| !is_scalar(c)).unwrap_or(rest.len());
                    let scalar = &self.text[start..self.at];
                    if scalar.is_empty() || self.levels.is_empty() {
                        return None;
                    }
                    if self.hidden.is_some() && scalar.contains(|c: char| c.is_ascii_digit()) {
                        secrets.push(scalar.to_owned());
                    }
                    self.ended();
                    return Some(true);
                }
            }
        }
    }

    /// Handles a string value: it may be hidden, or contain JSON.
    fn string_ended(
        &mut self,
        start: usize,
        string: String,
        is_hidden: &dyn Fn(&str, &str) -> bool,
        secrets: &mut Vec<String>,
    ) -> bool {
        if self.hidden.is_some() {
            secrets.push(string);
        } else if looks_like_json(string.as_bytes()) {
            if self.strings == STRINGS_MAX {
                return false;
            }
            match hide_in(&string, &self.path, is_hidden, secrets, self.strings + 1) {
                Some(FoundValue::Nothing) | None => {}
                Some(FoundValue::Replaced(text)) => {
                    let quoted = serde_json::to_string(&text).unwrap_or_default();
                    self.replace(start, &quoted);
                }
                Some(FoundValue::Hide) => {
                    secrets.push(string);
                    self.replace(start, &format!("\"{HIDDEN}\""));
                }
            }
        }
        self.ended();
        true
    }

    /// Reads the name of a member and the colon after it. Returns false if the path is too long.
    fn key(&mut self, is_hidden: &dyn Fn(&str, &str) -> bool) -> Option<bool> {
        if self.next_byte()? != b'"' {
            return None;
        }
        let key = self.string()?;
        if self.next_byte()? != b':' {
            return None;
        }
        self.at += 1;
        let parent_bytes = self.levels.last().map_or(self.root_bytes, |level| level.path_bytes);
        self.path.truncate(parent_bytes);
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(&key);
        if self.path.len() > PATH_BYTES_MAX {
            return Some(false);
        }
        if self.hidden.is_none() && is_hidden(&self.path, &key) {
            self.next_byte()?;
            self.hidden = Some(Hiding { start: self.at, depth: self.levels.len() });
        }
        Some(true)
    }

    /// Reads a string with its quotes and returns its characters.
    fn string(&mut self) -> Option<String> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start + 1;
        while *bytes.get(end)? != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        self.at = end + 1;
        let quoted = self.text.get(start..self.at)?;
        match quoted.contains('\\') {
            true => serde_json::from_str(quoted).ok(),
            false => Some(quoted[1..quoted.len() - 1].to_owned()),
        }
    }

    /// Ends an object or array.
    fn close(&mut self) {
        self.at += 1;
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.path_bytes);
        }
        self.ended();
    }

    /// A value has ended: replaces it if it is the hidden one.
    fn ended(&mut self) {
        if let Some(hiding) = self.hidden.take_if(|hiding| hiding.depth == self.levels.len()) {
            self.replace(hiding.start, &format!("\"{HIDDEN}\""));
        }
    }

    /// Replaces the text from `start` to the current position.
    fn replace(&mut self, start: usize, with: &str) {
        self.output.push_str(&self.text[self.copied..start]);
        self.output.push_str(with);
        self.copied = self.at;
    }

    /// Skips white space and returns the next byte.
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn finish(mut self) -> FoundValue {
        if self.copied == 0 {
            return FoundValue::Nothing;
        }
        self.output.push_str(&self.text[self.copied..]);
        FoundValue::Replaced(self.output)
    }
}
