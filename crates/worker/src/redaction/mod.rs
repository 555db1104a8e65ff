//! Hides the values of fields whose names match a pattern, before anybody makes JSON or text of them.
//!
//! A pattern is a glob over names, without regard to case. It matches the name of a field, such as `card`. It also
//! matches inside a value that is JSON: the dotted path of a member, such as `data.user.email` in the field `data`,
//! and, if the pattern has no dot, the name of a member at any depth. Array indexes are not part of a path. A string
//! that contains JSON is searched too.
//!
//! If a value begins like JSON and is not valid, or is nested too deeply, its members are unknown. It is hidden if it
//! contains what the last name of a pattern is made of. The rest of a JSON text stays as it is, to the digit.

mod json;

use std::borrow::Cow;
use std::ops::Range;

use millstream_protocol::glob;
use millstream_store::dead_letter::{ERROR, ERROR_TYPE};

use crate::backend::Fields;

/// What a hidden value is replaced by inside of text.
pub const HIDDEN: &str = "(hidden)";
/// The patterns that apply unless the operator sets others.
pub const DEFAULT_GLOBS: [&str; 4] = ["*password*", "*secret*", "*token*", "authorization"];
/// Hidden values with fewer characters are masked in errors only where they are whole words.
const SECRET_CHARS_MIN: usize = 4;
/// Number of hidden values of an entry that are searched in its error. If there are more, the whole error is hidden.
const SECRETS_MAX: usize = 1000;
/// Bytes of an error times the number of hidden values that are searched in it. Beyond, the whole error is hidden.
const MASK_WORK_MAX: usize = 16 * 1024 * 1024;

/// Which values to hide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction {
    globs: Vec<String>,
}

/// Hides what [`DEFAULT_GLOBS`] match.
impl Default for Redaction {
    fn default() -> Redaction {
        Redaction { globs: DEFAULT_GLOBS.map(str::to_owned).to_vec() }
    }
}

impl Redaction {
    /// Hides what these patterns match. Returns an error if a pattern is empty or too long.
    pub fn new<S: Into<String>>(globs: impl IntoIterator<Item = S>) -> Result<Redaction, String> {
        let globs: Vec<String> = globs.into_iter().map(Into::into).collect();
        match globs.iter().find(|glob| glob.is_empty() || glob::check(glob.as_bytes()).is_err()) {
            Some(glob) => Err(format!(
                "invalid pattern '{}': expected 1 to {} bytes, for example card* or data.user.email",
                glob.chars().take(40).collect::<String>(),
                glob::PATTERN_BYTES_MAX
            )),
            None => Ok(Redaction { globs }),
        }
    }

    /// Hides nothing.
    pub fn none() -> Redaction {
        Redaction { globs: Vec::new() }
    }

    /// Hides every value.
    pub fn everything() -> Redaction {
        Redaction { globs: vec!["*".to_owned()] }
    }

    /// Returns the patterns.
    pub fn globs(&self) -> &[String] {
        &self.globs
    }

    /// Whether the values of fields with this name are hidden as a whole.
    pub fn hides(&self, name: &[u8]) -> bool {
        self.globs.iter().any(|glob| glob == "*" || glob::matches_ignoring_case(glob.as_bytes(), name))
    }

    /// Returns what may be shown of a value: all of it, or JSON in which the hidden members are replaced. `None` if the
    /// value is hidden.
    pub fn shown<'a>(&self, name: &[u8], value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.globs.is_empty() {
            return Some(Cow::Borrowed(value));
        }
        if self.hides(name) {
            return None;
        }
        match self.search(name, value, &mut Vec::new()) {
            json::FoundValue::Nothing => Some(Cow::Borrowed(value)),
            json::FoundValue::Replaced(text) => Some(Cow::Owned(text.into_bytes())),
            json::FoundValue::Hide => None,
        }
    }

    /// Returns what may be shown of the value of one of these fields, as [`shown`](Redaction::shown) does.
    ///
    /// The error in a dead letter can quote another field.
    pub fn shown_among<'a>(&self, fields: &Fields, name: &[u8], value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let is_error = [ERROR, ERROR_TYPE].iter().any(|error| error.as_bytes() == name);
        let shown = self.shown(name, value)?;
        if !is_error || self.globs.is_empty() {
            return Some(shown);
        }
        Some(Cow::Owned(self.mask(&String::from_utf8_lossy(&shown), fields).into_bytes()))
    }

    /// Returns an error with everything replaced that it quotes from the hidden values of these fields.
    ///
    /// Anybody who can add to the store chooses the error and the values. So if the search would take long, the whole
    /// error is hidden.
    pub fn mask(&self, error: &str, fields: &Fields) -> String {
        let secrets = self.secrets(fields);
        if secrets.len() > SECRETS_MAX || secrets.len().saturating_mul(error.len()) > MASK_WORK_MAX {
            return HIDDEN.to_owned();
        }
        let mut quoted: Vec<Range<usize>> =
            secrets.iter().flat_map(|secret| occurrences(error, secret)).collect();
        // An error is cut when it is stored: its end can be the beginning of a value.
        let cut = secrets.iter().filter_map(|secret| quoted_beginning(error, secret)).max();
        quoted.extend(cut.map(|bytes| error.len() - bytes..error.len()));
        without(error, quoted)
    }

    /// Returns the arguments of a command, as a slow log shows them, with the value after each hidden name replaced.
    /// Bytes that are not UTF-8 are replaced too.
    pub fn mask_arguments(&self, arguments: &[impl AsRef<[u8]>]) -> Vec<String> {
        let masked = arguments.iter().enumerate().map(|(at, argument)| {
            // The first two are the command and its key.
            let name = if at > 1 { arguments[at - 1].as_ref() } else { b"" };
            let shown =
                if at > 1 { self.shown(name, argument.as_ref()) } else { Some(argument.as_ref().into()) };
            shown.map_or_else(|| HIDDEN.to_owned(), |shown| String::from_utf8_lossy(&shown).into_owned())
        });
        masked.collect()
    }

    /// Searches a value for hidden members. Appends their values to `secrets`.
    fn search(&self, name: &[u8], value: &[u8], secrets: &mut Vec<String>) -> json::FoundValue {
        if !json::looks_like_json(value) {
            return json::FoundValue::Nothing;
        }
        let found = std::str::from_utf8(value).ok().and_then(|text| {
            json::hide(
                text,
                &String::from_utf8_lossy(name),
                &|path, key| self.hides_member(path, key),
                secrets,
            )
        });
        match found {
            Some(json::FoundValue::Hide) | None if self.may_occur_in(name, value) => json::FoundValue::Hide,
            Some(json::FoundValue::Hide) | None => json::FoundValue::Nothing,
            Some(found) => found,
        }
    }

    fn hides_member(&self, path: &str, key: &str) -> bool {
        self.globs.iter().any(|glob| {
            let matches = |text: &str| glob::matches_ignoring_case(glob.as_bytes(), text.as_bytes());
            matches(path) || !glob.contains('.') && matches(key)
        })
    }

    /// Whether a text that cannot be examined may have a hidden member: the name of the field and the text have all
    /// literal parts of the last name of a pattern, or an escaped character that could be part of it.
    fn may_occur_in(&self, name: &[u8], value: &[u8]) -> bool {
        let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
        let (name, text) = (lower(name), lower(value));
        let occurs = |literal: &str| {
            let can_be_escaped = literal.contains(['/', '"', '\\']) && text.contains('\\');
            can_be_escaped || name.contains(literal) || text.contains(literal)
        };
        text.contains("\\u")
            || self.globs.iter().any(|glob| {
                let member = glob.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
                // What a set of characters or an escaped one stands for is not worth finding out.
                glob.contains(['[', '\\']) || member.split(['*', '?']).all(occurs)
            })
    }

    /// Returns the hidden values of these fields, and the strings and numbers inside them, longest first.
    fn secrets(&self, fields: &Fields) -> Vec<String> {
        let mut secrets = Vec::new();
        for (name, value) in fields {
            if self.hides(name) {
                secrets.extend(std::str::from_utf8(value).map(str::to_owned));
                if json::looks_like_json(value)
                    && let Ok(text) = std::str::from_utf8(value)
                {
                    let _ = json::hide(text, "", &|_, _| true, &mut secrets);
                }
            } else if self.search(name, value, &mut secrets) == json::FoundValue::Hide {
                secrets.push(String::from_utf8_lossy(value).into_owned());
            }
        }
        let escaped: Vec<String> = secrets.iter().filter_map(|secret| escaped(secret)).collect();
        secrets.extend(escaped);
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        secrets
    }
}

/// Returns the text as it is written inside a JSON string, if that is different.
fn escaped(text: &str) -> Option<String> {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    (inner != text).then(|| inner.to_owned())
}

/// Returns where a text quotes a secret. A short one counts only where it is a whole word.
fn occurrences(text: &str, secret: &str) -> impl Iterator<Item = Range<usize>> {
    let is_short = secret.chars().count() < SECRET_CHARS_MIN;
    let is_part_of_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let found = text.match_indices(secret).map(|(at, found)| at..at + found.len());
    found.filter(move |found| {
        let (before, after) = (&text[..found.start], &text[found.end..]);
        !is_short || !is_part_of_word(before.chars().next_back()) && !is_part_of_word(after.chars().next())
    })
}

/// Returns how many bytes at the end of the text are the beginning of a secret. `None` if there are fewer than
/// [`SECRET_CHARS_MIN`].
///
/// It is the algorithm of Knuth, Morris and Pratt, because comparing the end with every beginning takes quadratic time.
fn quoted_beginning(text: &str, secret: &str) -> Option<usize> {
    let secret = secret.as_bytes();
    // All of the secret would be an occurrence.
    let secret = &secret[..secret.len().saturating_sub(1).min(text.len())];
    // For each beginning of the secret: the longest shorter beginning with which it ends.
    let mut shorter = vec![0; secret.len()];
    let extend = |shorter: &[usize], mut length: usize, byte: u8| {
        while length > 0 && secret.get(length) != Some(&byte) {
            length = shorter[length - 1];
        }
        length + usize::from(secret.get(length) == Some(&byte))
    };
    for end in 1..secret.len() {
        shorter[end] = extend(&shorter, shorter[end - 1], secret[end]);
    }
    let end = &text.as_bytes()[text.len() - secret.len()..];
    let quoted = end.iter().fold(0, |length, byte| extend(&shorter, length, *byte));
    (quoted >= SECRET_CHARS_MIN && text.is_char_boundary(text.len() - quoted)).then_some(quoted)
}

/// Returns the text with these parts replaced. Parts that overlap are replaced together.
fn without(text: &str, mut parts: Vec<Range<usize>>) -> String {
    parts.sort_by_key(|part| (part.start, std::cmp::Reverse(part.end)));
    let (mut masked, mut end) = (String::with_capacity(text.len()), 0);
    for part in parts {
        if part.start >= end {
            masked.push_str(&text[end..part.start]);
            masked.push_str(HIDDEN);
        }
        end = end.max(part.end);
    }
    masked.push_str(&text[end..]);
    masked
}

#[cfg(test)]
mod tests;
