//! What is known of a command: one [`CommandSpec`] each, written down as a chain of facts.

use millstream_protocol::commands::ArgList;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::{Call, Reply};

/// The function that reads a request's arguments, the names included, and does what the command does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// Needs only the data. Commands that may block are of this kind: whoever makes a key ready runs them again.
    Data(fn(&mut Txn<'_>, &mut Writer, ArgList<'_>) -> Reply),
    /// Needs the server or the connection as well.
    Call(fn(&mut Call<'_, '_, '_>, ArgList<'_>) -> Reply),
}

/// What a command must have locked before it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach {
    /// Nothing.
    Nothing,
    /// One key, the argument of this number.
    Key(usize),
    /// The keys after the word STREAMS.
    Streams,
    /// The keys it names.
    Keys,
    /// Every key of every database.
    Everything,
    /// Every key of every database if the function says so of the request, otherwise nothing.
    EverythingIf(fn(ArgList<'_>) -> bool),
}

/// Everything that is known of a command or subcommand before it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandSpec {
    /// In small letters; a subcommand is `container|name`.
    pub(crate) name: &'static str,
    /// The number of arguments, the names included; negative: at least as many.
    pub(crate) arity: i32,
    /// What kind of command it is.
    pub(crate) flags: Flags,
    /// Where its keys are and what happens to them.
    pub(crate) keys: &'static [KeySpec],
    /// Its categories of access control, those that follow from the flags included.
    pub(crate) categories: Categories,
    /// The chapter it belongs to.
    pub(crate) group: Group,
    /// The version that brought it: of Redis, or of Millstream if it is Millstream's own.
    pub(crate) since: &'static str,
    /// Whether it is Millstream's own: Redis has no such command.
    pub(crate) own: bool,
    /// What it does, in a line.
    pub(crate) summary: &'static str,
    /// How it is spelled, on a line: see the module `arguments`, which reads it.
    pub(crate) syntax: &'static str,
    /// What it costs.
    pub(crate) complexity: &'static str,
    /// Hints for proxies and cluster clients.
    pub(crate) tips: &'static [&'static str],
    /// Where it differs from Redis on purpose.
    pub(crate) note: Option<&'static str>,
    /// Runs it.
    pub(crate) run: Run,
    /// What it must have locked.
    pub(crate) reach: Reach,
    /// Its place in the table.
    index: usize,
    /// How many of the following specs are its subcommands.
    pub(crate) subcommand_count: usize,
}

/// The facts that every command has; the methods below add those that some have.
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
        reach: Reach::Nothing,
        index: 0,
        subcommand_count: 0,
    }
}

impl CommandSpec {
    /// Flags beside those that are there.
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

    /// Millstream's own: the version that brought it is one of Millstream.
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

    /// It must have everything locked.
    pub(crate) const fn locks_everything(mut self) -> CommandSpec {
        self.reach = Reach::Everything;
        self
    }

    /// It must have everything locked if the function says so of the request.
    pub(crate) const fn locks_everything_if(mut self, needed: fn(ArgList<'_>) -> bool) -> CommandSpec {
        self.reach = Reach::EverythingIf(needed);
        self
    }

    /// Completes the facts with those that follow from others.
    pub(crate) const fn complete(mut self, index: usize, subcommand_count: usize) -> CommandSpec {
        self.index = index;
        self.subcommand_count = subcommand_count;
        match self.keys {
            [] => {}
            [KeySpec { begin: KeysBegin::At(at), find: KeysFind::Range { last: 0, .. }, .. }] => {
                self.reach = Reach::Key(*at as usize);
            }
            [KeySpec { begin: KeysBegin::AfterStreams { .. }, .. }] => self.reach = Reach::Streams,
            _ => self.reach = Reach::Keys,
        }
        self.categories = self.categories.with(Categories::implied_by(self.flags));
        self
    }

    /// Its place in the table: a number below its length.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Whether a request of this many arguments can be right.
    #[inline]
    pub(crate) const fn arity_ok(&self, args: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }

    /// Whether it is a subcommand.
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

    /// The name a client sends: of a subcommand, the part after the container's.
    pub(crate) fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Where the keys are as three numbers: the first, the last (negative: from the end) and the step
    /// between them. All 0 when there are none or they have no fixed place.
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

/// What kind of command it is, as Redis tells clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Flags {
            $($(#[$doc])* pub(crate) const $name: Flags = Flags(1 << $bit);)*

            /// Every flag with its name, in the order in which they are told.
            const NAMES: &[(Flags, &str)] = &[$((Flags::$name, $text)),*];
        }
    };
}

flags! {
    /// May change data.
    WRITE = 0, "write";
    /// Reads data and changes none.
    READONLY = 1, "readonly";
    /// Refused when memory is short.
    DENYOOM = 2, "denyoom";
    /// For operators.
    ADMIN = 3, "admin";
    /// Of no use in scripts.
    NOSCRIPT = 4, "noscript";
    /// May wait.
    BLOCKING = 5, "blocking";
    /// Allowed while data is being loaded.
    LOADING = 6, "loading";
    /// Allowed when data may be old.
    STALE = 7, "stale";
    /// Not shown by MONITOR.
    SKIP_MONITOR = 8, "skip_monitor";
    /// Not noted in the slow log.
    SKIP_SLOWLOG = 9, "skip_slowlog";
    /// Takes little and constant time.
    FAST = 10, "fast";
    /// Allowed before a client has authenticated.
    NO_AUTH = 11, "no_auth";
    /// Need not name any key.
    NO_MANDATORY_KEYS = 12, "no_mandatory_keys";
    /// Refused while data is being loaded in the background.
    NO_ASYNC_LOADING = 13, "no_async_loading";
    /// Refused inside a transaction.
    NO_MULTI = 14, "no_multi";
    /// Its keys have no fixed place.
    MOVABLEKEYS = 15, "movablekeys";
    /// Allowed while a script runs.
    ALLOW_BUSY = 16, "allow_busy";
}

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);

    /// These and others.
    pub(crate) const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    #[inline]
    pub(crate) const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of these.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| *name)
    }
}

/// Categories of access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Categories(u32);

macro_rules! categories {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        impl Categories {
            $(pub(crate) const $name: Categories = Categories(1 << $bit);)*

            /// Every category with its name, in the order in which they are told.
            pub(crate) const NAMES: &[(Categories, &str)] = &[$((Categories::$name, $text)),*];
        }
    };
}

categories! {
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
    const fn with(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }

    /// What a command's flags say about its categories.
    const fn implied_by(flags: Flags) -> Categories {
        let mut implied = if flags.contains(Flags::FAST) { Categories::FAST } else { Categories::SLOW };
        if flags.contains(Flags::WRITE) {
            implied = implied.with(Categories::WRITE);
        }
        // Scripts that may only read are in no category of reading: what they do is theirs.
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

    /// Whether all of `other` are among these.
    pub(crate) const fn contains(self, other: Categories) -> bool {
        self.0 & other.0 == other.0
    }

    /// The category of this name, in whatever case.
    pub(crate) fn by_name(name: &[u8]) -> Option<Categories> {
        let found = Categories::NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(category, _)| *category)
    }

    /// The names of these, without the `@`.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Categories::NAMES.iter().filter(move |(category, _)| self.contains(*category)).map(|(_, name)| *name)
    }
}

/// The chapters of the manual.
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
    /// As Redis names it.
    pub(crate) const fn name(self) -> &'static str {
        self.names().0
    }

    /// As a heading of COMPAT.md.
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

/// Some keys of a command: where they begin, which they are, what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySpec {
    /// How the command uses them, in Redis' words, separated by blanks.
    pub(crate) usage: &'static str,
    /// Where the search begins.
    pub(crate) begin: KeysBegin,
    /// Which arguments from there on are keys.
    pub(crate) find: KeysFind,
}

/// Where a search for keys begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysBegin {
    /// At the argument of this number.
    At(i32),
    /// After the word STREAMS, which stands at the argument `from` or later.
    AfterStreams {
        /// The first argument that may be the word.
        from: i32,
    },
}

/// Which arguments are keys, from where the search began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysFind {
    /// Every `step`-th up to `last`.
    Range {
        /// From the beginning of the search; negative: from the end of the arguments.
        last: i32,
        /// The distance between two keys.
        step: i32,
        /// Only the first 1/`limit` of the arguments. 0 and 1: all.
        limit: i32,
    },
    /// The first argument says how many follow.
    Counted,
}

/// One key, the argument `at`.
pub(crate) const fn key(usage: &'static str, at: i32) -> KeySpec {
    key_range(usage, at, 0, 1)
}

/// Every `step`-th argument from `at` to `last`.
pub(crate) const fn key_range(usage: &'static str, at: i32, last: i32, step: i32) -> KeySpec {
    KeySpec { usage, begin: KeysBegin::At(at), find: KeysFind::Range { last, step, limit: 0 } }
}

/// The first half of the arguments after STREAMS.
pub(crate) const fn streams(usage: &'static str, from: i32) -> KeySpec {
    KeySpec {
        usage,
        begin: KeysBegin::AfterStreams { from },
        find: KeysFind::Range { last: -1, step: 1, limit: 2 },
    }
}

/// As many keys as the argument `at` says.
pub(crate) const fn counted_keys(usage: &'static str, at: i32) -> KeySpec {
    KeySpec { usage, begin: KeysBegin::At(at), find: KeysFind::Counted }
}
