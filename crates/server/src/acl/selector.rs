//! One set of permissions: which commands, on which keys. A user has one, and can have more in parentheses.
//!
//! The rules are kept as written, because ACL LIST shows them. Beside them there is a bit for every command, computed
//! when a rule is added, so that a check does not look at the rules.

use millstream_protocol::glob;

use super::catalog::Catalog;
use super::rules::RuleError;

/// The permissions of a user or of one of its selectors.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    /// One bit for every command, by its index in the command table.
    allowed: Box<[u64]>,
    command_count: usize,
    /// Whether the rules about commands begin with `+@all`; otherwise with `-@all`.
    from_all: bool,
    /// The rules about commands after that, in lower case, such as `+get` and `-@write`.
    command_rules: Vec<Box<[u8]>>,
    /// Commands that are allowed with this first argument only, such as `select` with `0`.
    first_args: Vec<(usize, Box<[u8]>)>,
    all_keys: bool,
    /// Patterns of keys, unless all keys are allowed.
    keys: Vec<KeyPattern>,
    all_channels: bool,
    /// Patterns of channels. They have no effect, because there is no publish/subscribe.
    channels: Vec<Box<[u8]>>,
}

#[derive(Clone, PartialEq, Eq)]
struct KeyPattern {
    pattern: Box<[u8]>,
    access: KeyAccess,
}

/// Reading, writing, both, or neither. A command that needs neither, such as EXISTS, is allowed with either right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyAccess {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl KeyAccess {
    const BOTH: KeyAccess = KeyAccess { read: true, write: true };

    fn includes(self, needed: KeyAccess) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequiredKey<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) access: KeyAccess,
}

/// Why a request is denied.
///
/// If several selectors deny a request, the server reports the greatest denial: a selector that denies a key allows the
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denial {
    Command,
    Key(usize),
}

impl Selector {
    pub(super) fn nothing(catalog: &Catalog) -> Selector {
        let command_count = catalog.commands.len();
        Selector {
            allowed: vec![0; command_count.div_ceil(64)].into(),
            command_count,
            from_all: false,
            command_rules: Vec::new(),
            first_args: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    pub(super) fn everything(catalog: &Catalog) -> Selector {
        let mut selector = Selector::nothing(catalog);
        selector.set_all_commands(true);
        (selector.all_keys, selector.all_channels) = (true, true);
        selector
    }

    pub(super) fn allows_everything(&self) -> bool {
        self.all_keys && (0..self.command_count).all(|index| self.has_bit(index))
    }

    pub(super) fn check(
        &self,
        command: usize,
        argv: &[&[u8]],
        keys: &[RequiredKey<'_>],
    ) -> Result<(), Denial> {
        if !self.has_bit(command) && !self.allows_first_arg(command, argv) {
            return Err(Denial::Command);
        }
        match keys.iter().position(|key| !self.allows_key(key)) {
            Some(number) => Err(Denial::Key(number)),
            None => Ok(()),
        }
    }

    fn has_bit(&self, index: usize) -> bool {
        self.allowed.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn allows_first_arg(&self, command: usize, argv: &[&[u8]]) -> bool {
        let matches = |(allowed, arg): &(usize, Box<[u8]>)| {
            *allowed == command && argv.get(1).is_some_and(|first| first.eq_ignore_ascii_case(arg))
        };
        self.first_args.iter().any(matches)
    }

    fn allows_key(&self, key: &RequiredKey<'_>) -> bool {
        let matches = |allowed: &KeyPattern| {
            allowed.access.includes(key.access) && glob::matches(&allowed.pattern, key.key)
        };
        self.all_keys || self.keys.iter().any(matches)
    }

    pub(super) fn apply(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || rule == b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || rule == b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.set_all_commands(true),
            _ if is("nocommands") || is("-@all") => self.set_all_commands(false),
            [b'~', pattern @ ..] => self.add_keys(pattern, KeyAccess::BOTH)?,
            [b'%', rule @ ..] => self.add_keys_with_access(rule)?,
            [b'&', pattern @ ..] => self.add_channels(pattern)?,
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                self.set_category(*sign == b'+', category, catalog)?
            }
            [b'+', command @ ..] => self.allow_command(&command.to_ascii_lowercase(), catalog)?,
            [b'-', command @ ..] => self.deny_command(&command.to_ascii_lowercase(), catalog)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_all_commands(&mut self, allow: bool) {
        self.from_all = allow;
        self.command_rules.clear();
        self.first_args.clear();
        for index in 0..self.command_count {
            self.set_bit(index, allow);
        }
    }

    fn set_bit(&mut self, index: usize, allow: bool) {
        let bit = 1 << (index % 64);
        match allow {
            true => self.allowed[index / 64] |= bit,
            false => self.allowed[index / 64] &= !bit,
        }
    }

    /// Allows or denies a command with all its subcommands.
    fn set_command(&mut self, index: usize, allow: bool, catalog: &Catalog) {
        self.first_args.retain(|(command, _)| *command != index);
        for index in catalog.with_subcommands(index) {
            self.set_bit(index, allow);
        }
    }

    fn set_category(&mut self, allow: bool, name: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let category = catalog.category(name).ok_or(RuleError::UnknownCommand)?;
        for (index, command) in catalog.commands.iter().enumerate() {
            if command.categories & category != 0 {
                self.set_command(index, allow, catalog);
            }
        }
        self.keep_rule(allow, &[b"@", &name.to_ascii_lowercase()[..]].concat());
        Ok(())
    }

    fn allow_command(&mut self, name: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        if has_spaces(name) {
            return Err(RuleError::UnknownCommand);
        }
        match name.iter().rposition(|&byte| byte == b'|') {
            None => {
                let index = catalog.find(name).ok_or(RuleError::UnknownCommand)?;
                self.set_command(index, true, catalog);
            }
            Some(bar) => self.allow_subcommand(name, bar, catalog)?,
        }
        self.keep_rule(true, name);
        Ok(())
    }

    /// Allows a subcommand, or a command without subcommands if it has a certain first argument.
    fn allow_subcommand(&mut self, name: &[u8], bar: usize, catalog: &Catalog) -> Result<(), RuleError> {
        let (container, sub) = (&name[..bar], &name[bar + 1..]);
        let index = catalog.find(container).ok_or(RuleError::UnknownCommand)?;
        if container.contains(&b'|') {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if sub.is_empty() {
            return Err(RuleError::Syntax);
        }
        if catalog.with_subcommands(index).len() > 1 {
            let index = catalog.find(name).ok_or(RuleError::UnknownCommand)?;
            self.set_command(index, true, catalog);
        } else if !self.first_args.iter().any(|(command, arg)| *command == index && **arg == *sub) {
            self.first_args.push((index, sub.into()));
        }
        Ok(())
    }

    fn deny_command(&mut self, name: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let index = catalog.find(name).ok_or(RuleError::UnknownCommand)?;
        self.set_command(index, false, catalog);
        self.keep_rule(false, name);
        Ok(())
    }

    /// Appends a rule about commands, and removes the earlier rules that it makes void: those about the same command or
    /// category, and those about its subcommands.
    fn keep_rule(&mut self, allow: bool, name: &[u8]) {
        let is_void =
            |rule: &[u8]| rule[1..].strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest[0] == b'|');
        self.command_rules.retain(|rule| !is_void(rule));
        self.command_rules.push([if allow { b"+" } else { b"-" }, name].concat().into());
    }

    /// Adds the pattern of a rule such as `R~audit:*`, from which the `%` was removed.
    fn add_keys_with_access(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        let mut access = KeyAccess { read: false, write: false };
        let mut rest = rule;
        while let [letter, after @ ..] = rest {
            match letter.to_ascii_uppercase() {
                b'R' if !access.read => access.read = true,
                b'W' if !access.write => access.write = true,
                b'~' if access.read || access.write => return self.add_keys(after, access),
                _ => return Err(RuleError::Syntax),
            }
            rest = after;
        }
        Err(RuleError::Syntax)
    }

    fn add_keys(&mut self, pattern: &[u8], access: KeyAccess) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| *known.pattern == *pattern) {
            Some(known) => {
                known.access.read |= access.read;
                known.access.write |= access.write;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.into(), access }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| **known == *pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    /// Returns the rules about commands, such as `-@all +get`.
    pub(crate) fn command_text(&self) -> Vec<u8> {
        let first: &[u8] = if self.from_all { b"+@all" } else { b"-@all" };
        joined(std::iter::once(first).chain(self.command_rules.iter().map(|rule| &**rule)))
    }

    pub(crate) fn key_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let prefix = |access| match access {
            KeyAccess { read: true, write: true } => &b"~"[..],
            KeyAccess { read: true, .. } => b"%R~",
            _ => b"%W~",
        };
        joined(self.keys.iter().map(|key| [prefix(key.access), &key.pattern].concat()))
    }

    pub(crate) fn channel_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        joined(self.channels.iter().map(|pattern| [b"&", &**pattern].concat()))
    }

    pub(super) fn text(&self) -> Vec<u8> {
        let channels = self.channel_text();
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let parts = [self.key_text(), reset.to_vec(), channels, self.command_text()];
        joined(parts.iter().filter(|part| !part.is_empty()))
    }
}

pub(super) fn joined<T: AsRef<[u8]>>(parts: impl Iterator<Item = T>) -> Vec<u8> {
    let mut text = Vec::new();
    for part in parts {
        if !text.is_empty() {
            text.push(b' ');
        }
        text.extend_from_slice(part.as_ref());
    }
    text
}

/// Whether a name or pattern contains a space, a line end or a NUL byte. The ACL file could not contain it.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0))
}
