//! The rules of a user: parsing and printing. Parsing accepts any bytes and returns an error for those that are no
//! rule.

use std::fmt;

use ring::digest::{SHA256, digest};

use super::catalog::Catalog;
use super::selector::{Denial, RequiredKey, Selector, has_spaces, joined};

/// The SHA-256 hash of a password.
pub(crate) type PasswordHash = [u8; 32];

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) is_on: bool,
    /// Whether every password is right.
    pub(crate) no_password: bool,
    /// Shown, but without effect: the server never loads a value that a client has serialized.
    sanitize_payload: bool,
    passwords: Vec<PasswordHash>,
    root: Selector,
    selectors: Vec<Selector>,
}

/// Why a rule is refused. The texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    Syntax,
    UnknownCommand,
    FirstArgOfSubcommand,
    KeysAfterAll,
    ChannelsAfterAll,
    NoSuchPassword,
    InvalidHash,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::Syntax => "Syntax error",
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::InvalidHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RulesError {
    Rule {
        rule: Vec<u8>,
        error: RuleError,
    },
    /// This argument opens a parenthesis that no later argument closes.
    Unmatched {
        argument: Vec<u8>,
    },
}

impl Rules {
    /// Returns the rules of a new user: it is off and may do nothing.
    pub(super) fn of_new_user(catalog: &Catalog) -> Rules {
        Rules {
            is_on: false,
            no_password: false,
            sanitize_payload: true,
            passwords: Vec::new(),
            root: Selector::nothing(catalog),
            selectors: Vec::new(),
        }
    }

    /// Returns the rules of the user `default` before they are changed: it needs no password and may do everything.
    pub(super) fn of_default_user(catalog: &Catalog) -> Rules {
        let root = Selector::everything(catalog);
        Rules { is_on: true, no_password: true, root, ..Rules::of_new_user(catalog) }
    }

    /// Replaces all passwords by this one. An empty one means that no password is required.
    pub(super) fn set_only_password(&mut self, password: &str) {
        self.passwords.clear();
        self.no_password = password.is_empty();
        if !self.no_password {
            self.passwords.push(hash(password.as_bytes()));
        }
    }

    /// Whether a client must authenticate, even as `default`.
    pub(crate) fn requires_login(&self) -> bool {
        !self.is_on || !self.no_password
    }

    pub(super) fn allow_everything(&self) -> bool {
        self.root.allows_everything() || self.selectors.iter().any(Selector::allows_everything)
    }

    /// Whether a client can log in as this user with this password. The time this takes does not depend on which
    /// password is right, or on how many of its bytes are.
    pub(super) fn accept(&self, password: &[u8]) -> bool {
        self.accept_hash(&hash(password))
    }

    pub(super) fn accept_hash(&self, given: &PasswordHash) -> bool {
        let is_known = self.passwords.iter().fold(false, |found, known| found | are_equal(known, given));
        self.is_on & (self.no_password | is_known)
    }

    /// Returns an error unless the root permissions or one of the selectors allow the whole request.
    pub(super) fn check(
        &self,
        command: usize,
        argv: &[&[u8]],
        keys: &[RequiredKey<'_>],
    ) -> Result<(), Denial> {
        let mut denial = match self.root.check(command, argv, keys) {
            Ok(()) => return Ok(()),
            Err(denial) => denial,
        };
        for selector in &self.selectors {
            match selector.check(command, argv, keys) {
                Ok(()) => return Ok(()),
                Err(other) => denial = denial.max(other),
            }
        }
        Err(denial)
    }

    /// Applies rules from left to right. If it fails, some of them may have been applied.
    pub(super) fn apply_all(&mut self, args: &[&[u8]], catalog: &Catalog) -> Result<(), RulesError> {
        for rule in merge_parentheses(args)? {
            if let Err(error) = self.apply(&rule, catalog) {
                return Err(RulesError::Rule { rule, error });
            }
        }
        Ok(())
    }

    fn apply(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("nopass") => {
                self.no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.no_password = false;
                self.passwords.clear();
            }
            _ if is("sanitize-payload") => self.sanitize_payload = true,
            _ if is("skip-sanitize-payload") => self.sanitize_payload = false,
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => *self = Rules::of_new_user(catalog),
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', hex @ ..] => self.add_password(from_hex(hex).ok_or(RuleError::InvalidHash)?),
            [b'<', password @ ..] => self.remove_password(hash(password))?,
            [b'!', hex @ ..] => self.remove_password(from_hex(hex).ok_or(RuleError::InvalidHash)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::nothing(catalog);
                for rule in words(rules) {
                    // In the ACL file, the parenthesis would end the selector.
                    if rule.ends_with(b")") {
                        return Err(RuleError::Syntax);
                    }
                    selector.apply(rule, catalog)?;
                }
                self.selectors.push(selector);
            }
            _ => self.root.apply(rule, catalog)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Returns the words that ACL GETUSER shows as flags.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        flags.push(if self.sanitize_payload { "sanitize-payload" } else { "skip-sanitize-payload" });
        flags
    }

    pub(crate) fn password_hashes(&self) -> Vec<String> {
        self.passwords.iter().map(|hash| to_hex(hash)).collect()
    }

    /// Returns the permissions outside parentheses.
    pub(crate) fn root(&self) -> &Selector {
        &self.root
    }

    /// Returns the permissions in parentheses.
    pub(crate) fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns the rules as ACL LIST shows them. Parsing them gives the same rules again.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.password_hashes().iter().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.root.text());
        parts.extend(self.selectors.iter().map(|selector| [b"(", &selector.text()[..], b")"].concat()));
        joined(parts.iter())
    }
}

/// Parses a line `user NAME rule…` of an ACL file. Returns the name and the rules.
///
/// Returns `None` if the line does not begin with `user` and a name.
pub(super) fn parse_line<'a>(
    line: &'a [u8],
    catalog: &Catalog,
) -> Option<(&'a [u8], Result<Rules, RulesError>)> {
    let words: Vec<&[u8]> = words(line).collect();
    let [b"user", name, args @ ..] = &words[..] else { return None };
    if !is_user_name(name) {
        return None;
    }
    let mut rules = Rules::of_new_user(catalog);
    Some((name, rules.apply_all(args, catalog).map(|()| rules)))
}

/// Parses a line of an ACL file and returns it as ACL SAVE would write it. Returns `None` if it is invalid.
#[cfg(any(test, fuzzing))]
pub(crate) fn normalized_line(line: &[u8], catalog: &Catalog) -> Option<Vec<u8>> {
    let (name, rules) = parse_line(line, catalog)?;
    rules.ok().map(|rules| line_of(name, &rules))
}

pub(super) fn line_of(name: &[u8], rules: &Rules) -> Vec<u8> {
    [b"user ", name, b" ", &rules.text()[..]].concat()
}

pub(super) fn is_user_name(name: &[u8]) -> bool {
    !name.is_empty() && !has_spaces(name)
}

pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c))
        .filter(|word| !word.is_empty())
}

/// Joins the arguments from one that opens a parenthesis to the one that closes it.
fn merge_parentheses(args: &[&[u8]]) -> Result<Vec<Vec<u8>>, RulesError> {
    let mut merged: Vec<Vec<u8>> = Vec::with_capacity(args.len());
    let mut opened: Option<&[u8]> = None;
    for &arg in args {
        match (opened, merged.last_mut()) {
            (Some(_), Some(selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(arg);
            }
            _ => {
                merged.push(arg.to_vec());
                opened = arg.starts_with(b"(").then_some(arg);
            }
        }
        if arg.ends_with(b")") {
            opened = None;
        }
    }
    match opened {
        Some(argument) => Err(RulesError::Unmatched { argument: argument.to_vec() }),
        None => Ok(merged),
    }
}

pub(crate) fn hash(password: &[u8]) -> PasswordHash {
    digest(&SHA256, password).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Compares all bytes, so that the time it takes does not reveal where the first difference is.
fn are_equal(one: &PasswordHash, other: &PasswordHash) -> bool {
    one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &[u8]) -> Option<PasswordHash> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = digits.as_chunks::<2>();
    if digits.len() != 64 || !pairs.1.is_empty() {
        return None;
    }
    let mut hash = PasswordHash::default();
    for (byte, [high, low]) in hash.iter_mut().zip(pairs.0) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(hash)
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
