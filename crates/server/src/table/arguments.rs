//! Parses a command's syntax line into a tree of arguments, which COMMAND DOCS returns.
//!
//! ```text
//! key value       lower case: values                  [ … ]      optional
//! COUNT count     upper case: a token, with the       < … >      a group
//!                 values up to the next token         a | b c    one phrase or the other
//! id [id ...]     one or more times                   *|id       one word or the other
//! ```

use crate::command::CommandSpec;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) argument_type: ArgumentType,
    /// The token before it, such as COUNT.
    pub(crate) token: Option<&'static str>,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentType {
    PureToken,
    String,
    Integer,
    Double,
    /// A key. The number is the index of its key specification in the command's row.
    Key(usize),
    Pattern,
    UnixTime,
    /// Exactly one of these arguments.
    OneOf(Vec<Argument>),
    /// All of these arguments, in this order.
    Block(Vec<Argument>),
}

impl ArgumentType {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ArgumentType::PureToken => "pure-token",
            ArgumentType::String => "string",
            ArgumentType::Integer => "integer",
            ArgumentType::Double => "double",
            ArgumentType::Key(_) => "key",
            ArgumentType::Pattern => "pattern",
            ArgumentType::UnixTime => "unix-time",
            ArgumentType::OneOf(_) => "oneof",
            ArgumentType::Block(_) => "block",
        }
    }
}

pub(crate) fn arguments(spec: &CommandSpec) -> Vec<Argument> {
    let names = spec.name.len() + 1;
    let syntax = spec.syntax.get(names..).unwrap_or_default();
    let mut parser = SyntaxParser { command: spec.name, keys: spec.keys.len(), keys_seen: 0 };
    match parser.choice(syntax) {
        // At the top level, a sequence of arguments is a list and not a block.
        Argument {
            argument_type: ArgumentType::Block(arguments),
            token: None,
            optional: false,
            multiple: false,
            ..
        } => arguments,
        argument => vec![argument],
    }
}

struct SyntaxParser {
    command: &'static str,
    keys: usize,
    keys_seen: usize,
}

impl SyntaxParser {
    /// Parses phrases that are separated by ` | `. Most lines have only one phrase.
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
        let argument_type = match word {
            "key" | "newkey" | "source" | "destination" => self.key(),
            "pattern" => ArgumentType::Pattern,
            "unix-time-seconds" | "unix-time-milliseconds" => ArgumentType::UnixTime,
            "increment" if self.command.ends_with("float") => ArgumentType::Double,
            // BLPOP and BRPOP have a timeout in seconds with decimals; WAIT and WAITAOF in whole milliseconds.
            "timeout" if self.command.ends_with("pop") => ArgumentType::Double,
            "bytes" | "client-id" | "count" | "cursor" | "db" | "decrement" | "destination-db"
            | "entries" | "entries-added" | "entries-read" | "increment" | "index1" | "index2"
            | "maxcount" | "milliseconds" | "min-idle-time" | "ms" | "numids" | "numkeys" | "numlocal"
            | "numreplicas" | "protover" | "seconds" | "start" | "stop" | "timeout" => ArgumentType::Integer,
            _ => ArgumentType::String,
        };
        // In stream commands `start` is an id, which is not an integer.
        let is_id = self.command.starts_with('x') && word == "start";
        argument(word.to_owned(), if is_id { ArgumentType::String } else { argument_type })
    }

    /// Returns the type of the next key argument. The n-th key argument has the n-th key specification. If there are
    /// more arguments than specifications, they share the last one.
    fn key(&mut self) -> ArgumentType {
        let index = self.keys_seen.min(self.keys.saturating_sub(1));
        self.keys_seen += 1;
        ArgumentType::Key(index)
    }
}

fn argument(name: String, argument_type: ArgumentType) -> Argument {
    Argument { name, argument_type, token: None, optional: false, multiple: false }
}

/// Combines several arguments into a block. A single argument is returned as it is.
fn block(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => argument(joined(&arguments), ArgumentType::Block(arguments)),
    }
}

/// Combines several arguments into a choice. A single argument is returned as it is.
fn one_of(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => argument(joined(&arguments), ArgumentType::OneOf(arguments)),
    }
}

fn after_token(word: &'static str, values: Vec<Argument>) -> Argument {
    let name = match word {
        "=" => "equal".to_owned(),
        "~" => "approximately".to_owned(),
        "*" => "auto-id".to_owned(),
        "$" => "last-id".to_owned(),
        word => word.to_ascii_lowercase(),
    };
    let named = match values.len() {
        0 => argument(name, ArgumentType::PureToken),
        1 => block(values),
        _ => argument(name, ArgumentType::Block(values)),
    };
    Argument { token: Some(word), ..named }
}

/// Makes the last `count` arguments one argument that can be repeated.
fn repeat_last(arguments: &mut Vec<Argument>, count: usize) {
    let repeated = arguments.split_off(arguments.len().saturating_sub(count));
    arguments.push(Argument { multiple: true, ..block(repeated) });
}

fn joined(arguments: &[Argument]) -> String {
    let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
    names.join("-")
}

/// Returns whether an item is a token: a word in upper case, or a symbol such as `~`.
fn is_keyword(item: &str) -> bool {
    !item.contains(|c: char| c.is_ascii_lowercase() || matches!(c, '[' | '<' | '|'))
}

/// Returns whether an item is a value of the token before it: it is neither a token nor an option.
fn belongs_to_keyword(item: &'static str) -> bool {
    !is_keyword(item) && (!item.starts_with('[') || repetition(item).is_some())
}

/// Returns `id` for an item such as `[id ...]`.
fn repetition(item: &'static str) -> Option<&'static str> {
    within(item, '[', ']')?.strip_suffix(" ...").filter(|inner| !inner.contains('['))
}

fn within(item: &'static str, open: char, close: char) -> Option<&'static str> {
    item.strip_prefix(open)?.strip_suffix(close)
}

/// Splits a syntax line at spaces that are not inside brackets.
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

    /// Formats a tree on one line: `?` marks an optional argument, `+` a repeatable one.
    fn format_all(arguments: &[Argument]) -> String {
        let formatted: Vec<String> = arguments.iter().map(format_one).collect();
        formatted.join(" ")
    }

    fn format_one(argument: &Argument) -> String {
        let inner = match &argument.argument_type {
            ArgumentType::PureToken => String::new(),
            ArgumentType::OneOf(inner) => format!("({})", format_all(inner).replace(' ', "/")),
            ArgumentType::Block(inner) => format!("{{{}}}", format_all(inner)),
            argument_type => format!("{}:{}", argument.name, argument_type.name()),
        };
        let marks = [(argument.optional, "?"), (argument.multiple, "+")];
        let marks: String = marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark).collect();
        format!("{}{}{inner}", marks, argument.token.unwrap_or_default())
    }

    fn tree(name: &str) -> String {
        format_all(&arguments(lookup_full_name(name.as_bytes()).unwrap()))
    }

    #[test]
    fn syntax_lines_are_parsed_into_trees() {
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
                 ?RETRYCOUNTcount:integer ?FORCE ?DELAYmilliseconds:integer",
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
    fn key_arguments_refer_to_existing_key_specifications() {
        for spec in &COMMANDS {
            for argument in flattened(&arguments(spec)) {
                if let ArgumentType::Key(index) = argument.argument_type {
                    assert!(index < spec.keys.len(), "{}", spec.name);
                }
                assert!(!argument.name.is_empty(), "{}", spec.name);
                assert!(!argument.name.contains(['[', ']', '<', '>', '|', ' ']), "{}", spec.name);
            }
        }
        let rename = arguments(lookup_full_name(b"rename").unwrap());
        assert_eq!(
            rename.iter().map(|key| &key.argument_type).collect::<Vec<_>>(),
            [&ArgumentType::Key(0), &ArgumentType::Key(1)]
        );
    }

    fn flattened(arguments: &[Argument]) -> Vec<&Argument> {
        let inner = |argument| match argument {
            &Argument {
                argument_type: ArgumentType::OneOf(ref inner) | ArgumentType::Block(ref inner),
                ..
            } => flattened(inner),
            _ => Vec::new(),
        };
        arguments.iter().flat_map(|argument| [vec![argument], inner(argument)].concat()).collect()
    }
}
