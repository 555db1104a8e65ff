//! Small parts of the case format: quoted bytes, command arguments, and `{…}` substitution.

use std::collections::HashMap;

/// Values of `{name}`: counters of `@each`, and values stored by `<… as name>`.
pub(crate) type Bindings = HashMap<String, String>;

/// Splits a command line into arguments at spaces that are not inside double quotes.
pub(crate) fn arguments(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut rest = line.trim_start();
    let mut arguments = Vec::new();
    while !rest.is_empty() {
        let argument;
        if rest.starts_with('"') {
            (argument, rest) = quoted(rest)?;
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            argument = rest.as_bytes()[..end].to_vec();
            rest = &rest[end..];
        }
        arguments.push(argument);
        rest = rest.trim_start();
    }
    Ok(arguments)
}

/// Parses the quoted text at the start of `source`. Returns its bytes and the rest after the closing quote.
pub(crate) fn quoted(source: &str) -> Result<(Vec<u8>, &str), String> {
    let missing = || format!("a closing quote is missing in {source}");
    let mut bytes = Vec::new();
    let mut chars = source.strip_prefix('"').ok_or_else(|| format!("expected a quote at {source}"))?.chars();
    loop {
        match chars.next().ok_or_else(missing)? {
            '"' => return Ok((bytes, chars.as_str())),
            '\\' => match chars.next().ok_or_else(missing)? {
                'r' => bytes.push(b'\r'),
                'n' => bytes.push(b'\n'),
                't' => bytes.push(b'\t'),
                'x' => {
                    let digits: String = chars.by_ref().take(2).collect();
                    bytes.push(
                        u8::from_str_radix(&digits, 16).map_err(|error| format!("\\x{digits}: {error}"))?,
                    );
                }
                other => bytes.extend_from_slice(other.to_string().as_bytes()),
            },
            plain => bytes.extend_from_slice(plain.to_string().as_bytes()),
        }
    }
}

/// Replaces `{name}` by its value and `{text*3}` by three copies of the text. Other braces stay.
pub(crate) fn substitute(template: &str, bindings: &Bindings) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let inside = &rest[open + 1..];
        let replacement =
            inside.find('}').and_then(|close| Some((replacement(&inside[..close], bindings)?, close)));
        out.push_str(&rest[..open]);
        match replacement {
            Some((text, close)) => {
                out.push_str(&text);
                rest = &inside[close + 1..];
            }
            None => {
                out.push('{');
                rest = inside;
            }
        }
    }
    out + rest
}

fn replacement(name: &str, bindings: &Bindings) -> Option<String> {
    if let Some(bound) = bindings.get(name) {
        return Some(bound.clone());
    }
    let (text, times) = name.rsplit_once('*')?;
    Some(text.repeat(times.parse().ok()?))
}
