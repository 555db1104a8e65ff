//! Compares the replies of two servers byte for byte.
//!
//! Two kinds of differences are allowed: values that depend on the clock, and behaviour in which the reference is
//! older than the Redis version that Millstream follows. Every exception is in this file, with its reason.

use crate::play::Exchange;
use crate::script::{Argv, Script, is_named, line};
use crate::support::resp::{Value, escape};

/// The first reply that differs.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The command.
    pub command: String,
    /// Reply of the first server.
    pub left: String,
    /// Reply of the second server.
    pub right: String,
}

impl Difference {
    /// The second server crashed.
    pub(crate) fn crash() -> Difference {
        Difference {
            command: "some command".to_string(),
            left: "(alive)".to_string(),
            right: "(the server crashed)".to_string(),
        }
    }
}

/// Returns the first difference between two runs of a script.
pub(crate) fn difference(left: &[Exchange], right: &[Exchange], script: &Script) -> Option<Difference> {
    let mut masks = Masks { script, queued: [Vec::new(), Vec::new()] };
    for (one, other) in left.iter().zip(right) {
        let (Some(first), Some(second)) = (&one.reply, &other.reply) else {
            if one.reply.is_none() && other.reply.is_none() {
                continue;
            }
            return Some(found(one, other));
        };
        if first.raw != second.raw && masks.masked(one, &first.value) != masks.masked(one, &second.value) {
            return Some(found(one, other));
        }
        masks.follow(one, &first.value);
    }
    None
}

fn found(one: &Exchange, other: &Exchange) -> Difference {
    let bytes = |exchange: &Exchange| match &exchange.reply {
        Some(reply) => escape(&reply.raw),
        None => "(no reply)".to_string(),
    };
    Difference { command: line(&one.command), left: bytes(one), right: bytes(other) }
}

/// Tracks the commands that a transaction has queued, so that each part of EXEC's reply is masked like its command's
/// reply.
struct Masks<'s> {
    script: &'s Script,
    queued: [Vec<Argv>; 2],
}

impl Masks<'_> {
    fn follow(&mut self, exchange: &Exchange, reply: &Value) {
        let queue = &mut self.queued[exchange.connection];
        if *reply == Value::Simple(b"QUEUED".to_vec()) {
            queue.push(exchange.command.clone());
        } else if is_named(&exchange.command, "EXEC") || is_named(&exchange.command, "DISCARD") {
            queue.clear();
        }
    }

    fn masked(&self, exchange: &Exchange, reply: &Value) -> Value {
        let queue = &self.queued[exchange.connection];
        match reply {
            Value::Array(parts) if is_named(&exchange.command, "EXEC") && parts.len() == queue.len() => {
                Value::Array(queue.iter().zip(parts).map(|(command, part)| self.of(command, part)).collect())
            }
            _ => self.of(&exchange.command, reply),
        }
    }

    fn of(&self, command: &Argv, reply: &Value) -> Value {
        let name = command[0].to_ascii_uppercase();
        match (name.as_slice(), reply) {
            (b"XREAD" | b"XREADGROUP" | b"XADD", Value::Error(text)) => Value::Error(normalize_error(text)),
            (b"XPENDING", Value::Array(rows)) if command.len() > 3 => {
                Value::Array(rows.iter().map(pending_row).collect())
            }
            (b"XINFO", _) => self.info(reply),
            // The order of these replies is not specified.
            (b"HGETALL", Value::Array(flat)) => sorted(&Value::Array(flat.chunks(2).map(array).collect())),
            (b"KEYS" | b"SMEMBERS" | b"HKEYS" | b"HVALS" | b"HGETALL" | b"SCAN", _) => sorted(reply),
            _ => reply.clone(),
        }
    }

    /// Masks a reply of XINFO: maps within arrays within maps.
    fn info(&self, reply: &Value) -> Value {
        match reply {
            Value::Map(pairs) => Value::Map(self.pairs(pairs.iter().map(|(key, value)| (key, value)))),
            Value::Array(items) if is_flat_map(items) => {
                let pairs = items.chunks(2).map(|two| (&two[0], &two[1]));
                Value::Map(self.pairs(pairs))
            }
            Value::Array(items) => Value::Array(items.iter().map(|item| self.info(item)).collect()),
            other => other.clone(),
        }
    }

    fn pairs<'a>(&self, pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Vec<(Value, Value)> {
        let mut kept = Vec::new();
        for (key, value) in pairs {
            let Value::Bulk(name) = key else { continue };
            let value = match name.as_slice() {
                // Fields since Redis 7.2.
                b"inactive" | b"active-time" if !self.script.knows_activity => continue,
                b"inactive" | b"active-time" => sign(value),
                // Fields since Redis 8.6 and 8.8.
                b"idmp-duration" | b"idmp-maxsize" | b"pids-tracked" | b"iids-tracked" => continue,
                b"iids-added" | b"iids-duplicates" | b"nacked-count" => continue,
                // These depend on how the radix tree is built.
                b"radix-tree-keys" | b"radix-tree-nodes" => Value::Int(0),
                b"idle" | b"seen-time" => Value::Int(0),
                b"lag" | b"entries-read" if !self.script.lag_is_comparable => Value::Null,
                b"pending" => timed_rows(value),
                b"groups" | b"consumers" => self.info(value),
                _ => value.clone(),
            };
            kept.push((key.clone(), value));
        }
        kept
    }
}

/// Whether a RESP2 array is a map of XINFO. Such a map begins with the name `length` or `name`.
fn is_flat_map(items: &[Value]) -> bool {
    matches!(items.first(), Some(Value::Bulk(name)) if name == b"length" || name == b"name")
}

/// Normalizes errors whose text differs between versions.
fn normalize_error(text: &[u8]) -> Vec<u8> {
    let contains = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    if contains(b"Unbalanced") {
        return b"Unbalanced".to_vec();
    }
    // `ms-*` past the last sequence number: Redis 7.0 returns one of these texts, depending on a stale errno.
    if contains(b"Elements are too large") || contains(b"equal or smaller") {
        return b"not greater".to_vec();
    }
    text.to_vec()
}

/// Masks a row `[id, consumer, idle, count]` of XPENDING. Keeps the order of magnitude of `idle`, because XCLAIM's
/// IDLE and TIME set it.
fn pending_row(row: &Value) -> Value {
    match row {
        Value::Array(fields) if fields.len() == 4 => {
            let mut fields = fields.clone();
            fields[2] = magnitude(&fields[2]);
            Value::Array(fields)
        }
        other => other.clone(),
    }
}

/// Masks rows of XINFO STREAM FULL, in which the delivery time is the last but one field.
fn timed_rows(value: &Value) -> Value {
    let Value::Array(rows) = value else { return value.clone() };
    let row = |row: &Value| match row {
        Value::Array(fields) if fields.len() >= 3 => {
            let mut fields = fields.clone();
            let time = fields.len() - 2;
            fields[time] = magnitude(&fields[time]);
            Value::Array(fields)
        }
        other => other.clone(),
    };
    Value::Array(rows.iter().map(row).collect())
}

/// Keeps whether there is a time at all: a consumer that never received an entry has -1.
fn sign(value: &Value) -> Value {
    match value {
        Value::Int(ms) => Value::Int(ms.signum().min(0)),
        other => other.clone(),
    }
}

fn magnitude(value: &Value) -> Value {
    match value {
        Value::Int(ms) if *ms < 500_000 => Value::Int(0),
        Value::Int(ms) if *ms < 100_000_000_000 => Value::Int(1),
        Value::Int(_) => Value::Int(2),
        other => other.clone(),
    }
}

fn array(items: &[Value]) -> Value {
    Value::Array(items.to_vec())
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) | Value::Set(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(|item| format!("{item:?}"));
            Value::Array(items)
        }
        Value::Map(pairs) => {
            let mut pairs = pairs.clone();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Value::Map(pairs)
        }
        other => other.clone(),
    }
}
