//! The properties of a command: one [`CommandSpec`] each, built by a chain of method calls.

use millstream_protocol::commands::ArgList;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::{Call, Reply};

/// The function that runs a command. It gets all arguments, including the command's own name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// Needs only the data. Commands that can block are of this kind, because the thread that makes a key ready
    /// runs them again, and that thread serves another connection.
    Data(fn(&mut Txn<'_>, &mut Writer, ArgList<'_>) -> Reply),
    /// Needs the server or the connection as well.
    Call(fn(&mut Call<'_, '_, '_>, ArgList<'_>) -> Reply),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum LockScope {
    Nothing,
    /// One key: the argument with this index.
    Key(usize),
    Streams,
    Keys,
    Everything,
    /// Every key of every database if the function returns true for the arguments, otherwise no key.
    EverythingIf(fn(ArgList<'_>) -> bool),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandSpec {
    /// The name in lower case; of a subcommand, `container|name`.
    pub(crate) name: &'static str,
    /// The number of arguments, including the name; if negative, the minimum number.
    pub(crate) arity: i32,
    pub(crate) flags: Flags,
    pub(crate) keys: &'static [KeySpec],
    /// Its ACL categories, including those that follow from the flags.
    pub(crate) categories: Categories,
    pub(crate) group: Group,
    /// The version that introduced it: of Redis, or of Millstream if Redis has no such command.
    pub(crate) since: &'static str,
    /// Whether only Millstream has this command.
    pub(crate) own: bool,
    pub(crate) summary: &'static str,
    /// Its syntax in one line, in the notation that the module `arguments` parses.
    pub(crate) syntax: &'static str,
    pub(crate) complexity: &'static str,
    /// Hints for proxies and cluster clients.
    pub(crate) tips: &'static [&'static str],
    /// How it differs from Redis on purpose.
    pub(crate) note: Option<&'static str>,
    pub(crate) run: Run,
    pub(crate) lock_scope: LockScope,
    index: usize,
    /// The number of its subcommands, which follow it in the table.
    pub(crate) subcommand_count: usize,
}

/// Creates a command with the properties that every command has. The methods below set the others.
pub(crate) const fn command(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    run: Run,
) -> CommandSpec {
    CommandSpec {
        name,
        arity,
        flags,
        keys: &[],
        categories: Categories(0),
        group: Group::Server,
        since,
        own: false,
        summary: "",
        syntax: "",
        complexity: "O(1)",
        tips: &[],
        note: None,
        run,
        lock_scope: LockScope::Nothing,
        index: 0,
        subcommand_count: 0,
    }
}

impl CommandSpec {
    pub(crate) const fn flags(mut self, flags: Flags) -> CommandSpec {
        self.flags = self.flags.with(flags);
        self
    }

    pub(crate) const fn keys(mut self, keys: &'static [KeySpec]) -> CommandSpec {
        self.keys = keys;
        self
    }

    pub(crate) const fn category(mut self, category: Categories) -> CommandSpec {
        self.categories = self.categories.with(category);
        self
    }

    pub(crate) const fn group(mut self, group: Group) -> CommandSpec {
        self.group = group;
        self
    }

    pub(crate) const fn own(mut self) -> CommandSpec {
        self.own = true;
        self
    }

    pub(crate) const fn text(mut self, syntax: &'static str, summary: &'static str) -> CommandSpec {
        self.syntax = syntax;
        self.summary = summary;
        self
    }

    pub(crate) const fn complexity(mut self, complexity: &'static str) -> CommandSpec {
        self.complexity = complexity;
        self
    }

    pub(crate) const fn tips(mut self, tips: &'static [&'static str]) -> CommandSpec {
        self.tips = tips;
        self
    }

    pub(crate) const fn note(mut self, note: &'static str) -> CommandSpec {
        self.note = Some(note);
        self
    }

    pub(crate) const fn locks_everything(mut self) -> CommandSpec {
        self.lock_scope = LockScope::Everything;
        self
    }

    pub(crate) const fn locks_everything_if(mut self, needed: fn(ArgList<'_>) -> bool) -> CommandSpec {
        self.lock_scope = LockScope::EverythingIf(needed);
        self
    }

    /// Sets the properties that follow from others and from the place in the table.
    pub(crate) const fn complete(mut self, index: usize, subcommand_count: usize) -> CommandSpec {
        self.index = index;
        self.subcommand_count = subcommand_count;
        match self.keys {
            [] => {}
            [KeySpec { begin: KeysBegin::At(at), find: KeysFind::Range { last: 0, .. }, .. }] => {
                self.lock_scope = LockScope::Key(*at as usize);
            }
            [KeySpec { begin: KeysBegin::AfterStreams { .. }, .. }] => self.lock_scope = LockScope::Streams,
            _ => self.lock_scope = LockScope::Keys,
        }
        self.categories = self.categories.with(Categories::implied_by(self.flags));
        self
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(crate) const fn arity_ok(&self, args: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }

    pub(crate) const fn is_subcommand(&self) -> bool {
        let name = self.name.as_bytes();
        let mut at = 0;
        while at < name.len() {
            if name[at] == b'|' {
                return true;
            }
            at += 1;
        }
        false
    }

    /// Returns the name without that of the container: `create` for `xgroup|create`.
    pub(crate) fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Returns the places of the keys as COMMAND shows them: the first, the last (negative: counted from the end)
    /// and the step between them. All are 0 if there are no keys or they have no fixed place.
    pub(crate) fn key_range(&self) -> (i32, i32, i32) {
        let (mut first, mut last, mut step) = (0, 0, 0);
        for (number, spec) in self.keys.iter().enumerate() {
            let KeySpec {
                begin: KeysBegin::At(from),
                find: KeysFind::Range { last: range_last, step: range_step, .. },
                ..
            } = *spec
            else {
                return (0, 0, 0);
            };
            if number == 0 {
                (first, step) = (from, range_step);
            }
            last = if range_last >= 0 { from + range_last } else { range_last };
        }
        (first, last, step)
    }
}

/// Declares the values of a set of bits, with the names that Redis gives them.
macro_rules! named_bits {
    ($set:ident: $($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl $set {
            $($(#[$doc])* pub(crate) const $name: $set = $set(1 << $bit);)*

            pub(crate) const NAMES: &[($set, &str)] = &[$(($set::$name, $text)),*];

            pub(crate) const fn with(self, other: $set) -> $set {
                $set(self.0 | other.0)
            }

            #[inline]
            pub(crate) const fn contains(self, other: $set) -> bool {
                self.0 & other.0 == other.0
            }

            pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
                $set::NAMES.iter().filter(move |(value, _)| self.contains(*value)).map(|(_, name)| *name)
            }
        }
    };
}

/// Flags of a command, in the order of COMMAND INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u32);

named_bits! {
    Flags:
    WRITE = 0, "write";
    READONLY = 1, "readonly";
    /// Refused by Redis when memory is short.
    DENYOOM = 2, "denyoom";
    ADMIN = 3, "admin";
    NOSCRIPT = 4, "noscript";
    BLOCKING = 5, "blocking";
    LOADING = 6, "loading";
    /// Allowed on a replica whose data may be outdated.
    STALE = 7, "stale";
    SKIP_MONITOR = 8, "skip_monitor";
    SKIP_SLOWLOG = 9, "skip_slowlog";
    /// Runs in little time, O(1) or O(log n).
    FAST = 10, "fast";
    NO_AUTH = 11, "no_auth";
    NO_MANDATORY_KEYS = 12, "no_mandatory_keys";
    /// Refused while data is being loaded in the background.
    NO_ASYNC_LOADING = 13, "no_async_loading";
    NO_MULTI = 14, "no_multi";
    MOVABLEKEYS = 15, "movablekeys";
    /// Allowed while a script runs.
    ALLOW_BUSY = 16, "allow_busy";
}

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    /// Refused unless a setting allows it. COMMAND INFO does not show this flag.
    pub(crate) const PROTECTED: Flags = Flags(1 << 31);
    /// Can make many entries pending, or make pending entries take more memory. COMMAND INFO does not show this flag.
    pub(crate) const PENDS: Flags = Flags(1 << 30);

    #[inline]
    pub(crate) const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// ACL categories, in the order of ACL CAT. Their names have no `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Categories(u32);

named_bits! {
    Categories:
    KEYSPACE = 0, "keyspace";
    READ = 1, "read";
    WRITE = 2, "write";
    SET = 3, "set";
    SORTEDSET = 4, "sortedset";
    LIST = 5, "list";
    HASH = 6, "hash";
    STRING = 7, "string";
    BITMAP = 8, "bitmap";
    HYPERLOGLOG = 9, "hyperloglog";
    GEO = 10, "geo";
    STREAM = 11, "stream";
    PUBSUB = 12, "pubsub";
    ADMIN = 13, "admin";
    FAST = 14, "fast";
    SLOW = 15, "slow";
    BLOCKING = 16, "blocking";
    DANGEROUS = 17, "dangerous";
    CONNECTION = 18, "connection";
    TRANSACTION = 19, "transaction";
    SCRIPTING = 20, "scripting";
}

impl Categories {
    const fn implied_by(flags: Flags) -> Categories {
        let mut implied = if flags.contains(Flags::FAST) { Categories::FAST } else { Categories::SLOW };
        if flags.contains(Flags::WRITE) {
            implied = implied.with(Categories::WRITE);
        }
        // As in Redis, EVAL_RO and similar commands are not in the category `read`.
        if flags.contains(Flags::READONLY) && !flags.contains(Flags::NO_MANDATORY_KEYS) {
            implied = implied.with(Categories::READ);
        }
        if flags.contains(Flags::ADMIN) {
            implied = implied.with(Categories::ADMIN).with(Categories::DANGEROUS);
        }
        if flags.contains(Flags::BLOCKING) {
            implied = implied.with(Categories::BLOCKING);
        }
        implied
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn by_name(name: &[u8]) -> Option<Categories> {
        let found = Categories::NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(category, _)| *category)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Stream,
    Generic,
    String,
    Hash,
    List,
    Set,
    Transactions,
    Connection,
    Server,
    Cluster,
    Scripting,
}

impl Group {
    pub(crate) const fn name(self) -> &'static str {
        self.names().0
    }

    pub(crate) const fn heading(self) -> &'static str {
        self.names().1
    }

    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Group::Stream => ("stream", "Streams"),
            Group::Generic => ("generic", "Keys"),
            Group::String => ("string", "Strings"),
            Group::Hash => ("hash", "Hashes"),
            Group::List => ("list", "Lists"),
            Group::Set => ("set", "Sets"),
            Group::Transactions => ("transactions", "Transactions"),
            Group::Connection => ("connection", "Connection"),
            Group::Server => ("server", "Server"),
            Group::Cluster => ("cluster", "Cluster"),
            Group::Scripting => ("scripting", "Scripts and functions"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySpec {
    /// How the command uses them: Redis' flags, separated by spaces.
    pub(crate) usage: &'static str,
    pub(crate) begin: KeysBegin,
    pub(crate) find: KeysFind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysBegin {
    /// At the argument with this index.
    At(i32),
    AfterStreams {
        from: i32,
    },
    /// After the word DLQ of XPOLICY SET, if it has one.
    AfterDlq {
        from: i32,
    },
}

/// Which arguments are keys, counted from where the search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysFind {
    /// Every `step`-th up to `last`.
    Range {
        /// The last key, counted from where the search begins; if negative, from the end of the arguments.
        last: i32,
        step: i32,
        /// Only the first 1/`limit` of the arguments. 0 and 1: all.
        limit: i32,
    },
    /// The first argument is the number of keys that follow it.
    Counted,
}

pub(crate) const fn key(usage: &'static str, at: i32) -> KeySpec {
    key_range(usage, at, 0, 1)
}

/// Returns a spec for every `step`-th argument from `at` to `last`.
pub(crate) const fn key_range(usage: &'static str, at: i32, last: i32, step: i32) -> KeySpec {
    KeySpec { usage, begin: KeysBegin::At(at), find: KeysFind::Range { last, step, limit: 0 } }
}

/// Returns a spec for the first half of the arguments after STREAMS.
pub(crate) const fn streams(usage: &'static str, from: i32) -> KeySpec {
    KeySpec {
        usage,
        begin: KeysBegin::AfterStreams { from },
        find: KeysFind::Range { last: -1, step: 1, limit: 2 },
    }
}

pub(crate) const fn dead_letters_key(usage: &'static str, from: i32) -> KeySpec {
    KeySpec {
        usage,
        begin: KeysBegin::AfterDlq { from },
        find: KeysFind::Range { last: 0, step: 1, limit: 0 },
    }
}

pub(crate) const fn counted_keys(usage: &'static str, at: i32) -> KeySpec {
    KeySpec { usage, begin: KeysBegin::At(at), find: KeysFind::Counted }
}
