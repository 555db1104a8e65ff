//! The arguments of a command as a tree, read off its syntax line. COMMAND DOCS tells it.
//!
//! ```text
//! key value          names: values to be given        [ … ]      may be left out
//! COUNT count        a word, with the values that     < … >      one thing
//!                    follow it up to the next word    a | b c    one phrase or the other
//! id [id ...]        once or more                     *|id       one word or the other
//! ```

use crate::command::CommandSpec;

/// One argument, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    /// What it is called.
    pub(crate) name: String,
    /// What it consists of.
    pub(crate) kind: Kind,
    /// The word before it.
    pub(crate) token: Option<&'static str>,
    /// Whether it may be left out.
    pub(crate) optional: bool,
    /// Whether it may be repeated.
    pub(crate) multiple: bool,
}

/// What an argument consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The word alone.
    PureToken,
    /// Any text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Double,
    /// A key: those of the command's key spec of this number.
    Key(usize),
    /// A pattern.
    Pattern,
    /// A point in time.
    UnixTime,
    /// One of these.
    OneOf(Vec<Argument>),
    /// All of these.
    Block(Vec<Argument>),
}

impl Kind {
    /// As Redis names it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::PureToken => "pure-token",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Key(_) => "key",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::OneOf(_) => "oneof",
            Kind::Block(_) => "block",
        }
    }
}

/// The arguments of a command, its names left out.
pub(crate) fn arguments(spec: &CommandSpec) -> Vec<Argument> {
    let names = spec.name.len() + 1;
    let syntax = spec.syntax.get(names..).unwrap_or_default();
    let mut reader = Reader { command: spec.name, keys: spec.keys.len(), keys_seen: 0 };
    match reader.choice(syntax) {
        // What merely stands side by side at the top is no block.
        Argument { kind: Kind::Block(arguments), token: None, optional: false, multiple: false, .. } => {
            arguments
        }
        argument => vec![argument],
    }
}

/// Reads one syntax line.
struct Reader {
    command: &'static str,
    keys: usize,
    keys_seen: usize,
}

impl Reader {
    /// Phrases between lone bars; mostly there is one.
    fn choice(&mut self, syntax: &'static str) -> Argument {
        let mut phrases: Vec<Vec<&'static str>> = vec![Vec::new()];
        for item in items(syntax) {
            match (item, phrases.last_mut()) {
                ("|", _) => phrases.push(Vec::new()),
                (_, Some(phrase)) => phrase.push(item),
                (_, None) => {}
            }
        }
        one_of(phrases.into_iter().map(|phrase| block(self.phrase(&phrase))).collect())
    }

    fn phrase(&mut self, mut items: &[&'static str]) -> Vec<Argument> {
        let mut arguments = Vec::new();
        while let Some((&item, rest)) = items.split_first() {
            items = rest;
            if is_keyword(item) {
                let values = rest.iter().take_while(|item| belongs_to_keyword(item)).count();
                let (values, rest) = rest.split_at(values);
                items = rest;
                let values = self.phrase(values);
                arguments.push(after_token(item, values));
            } else if let Some(repeated) = repetition(item) {
                repeat_last(&mut arguments, repeated.split(' ').count());
            } else if let Some(inner) = within(item, '[', ']') {
                arguments.push(Argument { optional: true, ..self.choice(inner) });
            } else if let Some(inner) = within(item, '<', '>') {
                arguments.push(self.choice(inner));
            } else {
                arguments.push(one_of(item.split('|').map(|word| self.word(word)).collect()));
            }
        }
        arguments
    }

    fn word(&mut self, word: &'static str) -> Argument {
        if is_keyword(word) {
            return after_token(word, Vec::new());
        }
        let kind = match word {
            "key" | "newkey" | "source" | "destination" => self.key(),
            "pattern" => Kind::Pattern,
            "unix-time-seconds" | "unix-time-milliseconds" => Kind::UnixTime,
            "increment" if self.command.ends_with("float") => Kind::Double,
            // Lists wait for seconds and parts of them, WAIT and its kin for whole milliseconds.
            "timeout" if self.command.ends_with("pop") => Kind::Double,
            "bytes" | "client-id" | "count" | "cursor" | "db" | "decrement" | "destination-db"
            | "entries" | "entries-added" | "entries-read" | "increment" | "index1" | "index2"
            | "maxcount" | "milliseconds" | "min-idle-time" | "ms" | "numids" | "numkeys" | "numlocal"
            | "numreplicas" | "protover" | "seconds" | "start" | "stop" | "timeout" => Kind::Integer,
            _ => Kind::String,
        };
        // The ends of a range of ids are no numbers.
        let kind = if self.command.starts_with('x') && word == "start" { Kind::String } else { kind };
        argument(word.to_owned(), kind)
    }

    /// Every argument that is a key has a key spec; where one covers several arguments, they share it.
    fn key(&mut self) -> Kind {
        let index = self.keys_seen.min(self.keys.saturating_sub(1));
        self.keys_seen += 1;
        Kind::Key(index)
    }
}

fn argument(name: String, kind: Kind) -> Argument {
    Argument { name, kind, token: None, optional: false, multiple: false }
}

/// Several arguments as one.
fn block(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => argument(joined(&arguments), Kind::Block(arguments)),
    }
}

/// A choice, if there is any.
fn one_of(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => argument(joined(&arguments), Kind::OneOf(arguments)),
    }
}

/// A word and its values.
fn after_token(word: &'static str, values: Vec<Argument>) -> Argument {
    let name = match word {
        "=" => "equal".to_owned(),
        "~" => "approximately".to_owned(),
        "*" => "auto-id".to_owned(),
        "$" => "last-id".to_owned(),
        word => word.to_ascii_lowercase(),
    };
    let named = match values.len() {
        0 => argument(name, Kind::PureToken),
        1 => block(values),
        _ => argument(name, Kind::Block(values)),
    };
    Argument { token: Some(word), ..named }
}

/// The last arguments may come again, all of them together.
fn repeat_last(arguments: &mut Vec<Argument>, count: usize) {
    let repeated = arguments.split_off(arguments.len().saturating_sub(count));
    arguments.push(Argument { multiple: true, ..block(repeated) });
}

fn joined(arguments: &[Argument]) -> String {
    let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
    names.join("-")
}

/// Words in capitals, and signs.
fn is_keyword(item: &str) -> bool {
    !item.contains(|c: char| c.is_ascii_lowercase() || matches!(c, '[' | '<' | '|'))
}

/// Whether an item is a value of the word before it: neither a word itself, nor an option.
fn belongs_to_keyword(item: &'static str) -> bool {
    !is_keyword(item) && (!item.starts_with('[') || repetition(item).is_some())
}

/// `[id ...]`
fn repetition(item: &'static str) -> Option<&'static str> {
    within(item, '[', ']')?.strip_suffix(" ...").filter(|inner| !inner.contains('['))
}

fn within(item: &'static str, open: char, close: char) -> Option<&'static str> {
    item.strip_prefix(open)?.strip_suffix(close)
}

/// The words and brackets of a syntax line.
fn items(syntax: &'static str) -> impl Iterator<Item = &'static str> {
    let mut depth = 0;
    syntax
        .split(move |c: char| {
            match c {
                '[' | '<' => depth += 1,
                ']' | '>' => depth -= 1,
                _ => {}
            }
            c == ' ' && depth == 0
        })
        .filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COMMANDS;
    use crate::table::lookup::lookup_full_name;

    /// The tree on a line: `?` may be left out, `+` may be repeated.
    fn shown(arguments: &[Argument]) -> String {
        let shown: Vec<String> = arguments.iter().map(shown_one).collect();
        shown.join(" ")
    }

    fn shown_one(argument: &Argument) -> String {
        let inner = match &argument.kind {
            Kind::PureToken => String::new(),
            Kind::OneOf(inner) => format!("({})", shown(inner).replace(' ', "/")),
            Kind::Block(inner) => format!("{{{}}}", shown(inner)),
            kind => format!("{}:{}", argument.name, kind.name()),
        };
        let marks = [(argument.optional, "?"), (argument.multiple, "+")];
        let marks: String = marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark).collect();
        format!("{}{}{inner}", marks, argument.token.unwrap_or_default())
    }

    fn tree(name: &str) -> String {
        shown(&arguments(lookup_full_name(name.as_bytes()).unwrap()))
    }

    #[test]
    fn syntax_lines_become_trees() {
        let cases = [
            ("ping", "?message:string"),
            ("multi", ""),
            ("xlen", "key:key"),
            ("xack", "key:key group:string +id:string"),
            (
                "xadd",
                "key:key ?NOMKSTREAM ?(KEEPREF/DELREF/ACKED) \
                 ?(IDMPAUTOproducer-id:string/IDMP{producer-id:string/idempotent-id:string}) \
                 ?{(MAXLEN/MINID) ?(=/~) threshold:string ?LIMITcount:integer} (*/id:string) \
                 +{field:string value:string}",
            ),
            (
                "xreadgroup",
                "GROUP{group:string consumer:string} ?COUNTcount:integer ?MAXCOUNTmaxcount:integer \
                 ?MAXSIZEbytes:integer ?BLOCKmilliseconds:integer ?CLAIMmin-idle-time:integer ?NOACK \
                 STREAMS{+key:key +id:string}",
            ),
            (
                "xnack",
                "key:key group:string (SILENT/FAIL/FATAL) IDS{numids:integer +id:string} \
                 ?RETRYCOUNTcount:integer ?FORCE",
            ),
            (
                "xpending",
                "key:key group:string \
                 ?{?IDLEmin-idle-time:integer start:string end:string count:integer ?consumer:string}",
            ),
            ("mset", "+{key:key value:string}"),
            ("blpop", "+key:key timeout:double"),
            (
                "getex",
                "key:key ?(EXseconds:integer/PXmilliseconds:integer/EXATunix-time-seconds:unix-time/\
                 PXATunix-time-milliseconds:unix-time/PERSIST)",
            ),
            (
                "command|list",
                "?FILTERBY(MODULEmodule-name:string/ACLCATcategory:string/PATTERNpattern:pattern)",
            ),
            ("replicaof", "NO ONE"),
        ];
        for (name, expected) in cases {
            assert_eq!(tree(name), expected, "{name}");
        }
    }

    #[test]
    fn keys_point_to_their_specs() {
        for spec in &COMMANDS {
            for argument in flattened(&arguments(spec)) {
                if let Kind::Key(index) = argument.kind {
                    assert!(index < spec.keys.len(), "{}", spec.name);
                }
                assert!(!argument.name.is_empty(), "{}", spec.name);
                assert!(!argument.name.contains(['[', ']', '<', '>', '|', ' ']), "{}", spec.name);
            }
        }
        let rename = arguments(lookup_full_name(b"rename").unwrap());
        assert_eq!(rename.iter().map(|key| &key.kind).collect::<Vec<_>>(), [&Kind::Key(0), &Kind::Key(1)]);
    }

    fn flattened(arguments: &[Argument]) -> Vec<&Argument> {
        let inner = |argument| match argument {
            &Argument { kind: Kind::OneOf(ref inner) | Kind::Block(ref inner), .. } => flattened(inner),
            _ => Vec::new(),
        };
        arguments.iter().flat_map(|argument| [vec![argument], inner(argument)].concat()).collect()
    }
}
