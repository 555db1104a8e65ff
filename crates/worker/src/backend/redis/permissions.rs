//! Permissions of the user: explains a denied command, and checks before a worker starts that nothing is missing.
//!
//! A server denies a command, or a key of a command. Its error names neither the key nor, on some servers, the user.
//! The error that callers get names both, and the rule that grants the permission.

use redis::{Arg, Cmd, ServerError, Value};

use super::super::{Error, ErrorKind, StreamId, WorkerAccess};
use super::Redis;
use super::commands::{self, Id, command};
use super::errors::{from_server, kind_of};
use super::probe::{Feature, PROBE_GROUP};
use super::scripts;
use crate::names::{fence_key, lease_key};

/// Commands whose first argument is a subcommand. ACL rules name both: `+xgroup|create`.
///
/// The rule for one of them without its subcommand would grant all subcommands: `+config` allows CONFIG SET.
const WITH_SUBCOMMANDS: [&str; 9] =
    ["client", "cluster", "config", "memory", "slowlog", "xdelay", "xgroup", "xinfo", "xpolicy"];

/// Returns the error for a denied command, or `None` if the reply is another error.
pub(super) fn denied(user: &str, command: &Cmd, reply: &ServerError) -> Option<Error> {
    let rules = missing_rules(command, reply)?;
    let what = match &*rules {
        [rule, ..] if rule.starts_with('+') => {
            let names: Vec<String> =
                rules.iter().map(|rule| rule[1..].replace('|', " ").to_uppercase()).collect();
            format!("run {}", names.join(" or "))
        }
        _ => format!("access {} with {}", keys(command).join(" and "), rule_name(command).to_uppercase()),
    };
    let (reason, rules) = (from_server(reply), rules.join(" "));
    let message = format!(
        "user {user} has no permission to {what}: {reason}; grant it with: ACL SETUSER {user} {rules}"
    );
    Some(Error::new(ErrorKind::Denied, message))
}

/// Returns the ACL rules that would allow a denied command, or `None` if the reply is another error.
fn missing_rules(command: &Cmd, reply: &ServerError) -> Option<Vec<String>> {
    let details = reply.details().unwrap_or_default();
    let is_denied = kind_of(reply.code(), details) == ErrorKind::Denied
        && !matches!(reply.code(), "NOAUTH" | "WRONGPASS");
    if !is_denied {
        return None;
    }
    if details.contains(" key") {
        return Some(keys(command).iter().map(|key| format!("~{}", escape_glob(key))).collect());
    }
    let ours = rule_name(command);
    let named = details.split_once("run the '").and_then(|(_, rest)| rest.split('\'').next());
    let names = match named {
        // Redis 6.2 omits the subcommand.
        Some(name) if ours.split('|').next() == Some(name) => vec![ours],
        // In a script, the command is another than the one that the backend sent.
        Some(name) => vec![name.to_owned()],
        // Before version 7.2, Redis does not name the command of a script: it is one of these.
        None if ["eval", "evalsha"].contains(&&*ours) => {
            arguments(command).get(1).map_or(Vec::new(), |script| scripts::commands_of(script))
        }
        // A text that only another server or a proxy has.
        None => vec![ours],
    };
    Some(names.into_iter().map(|name| format!("+{name}")).collect())
}

/// Returns the name of a command as ACL rules have it: `xack`, or `xgroup|create`.
fn rule_name(command: &Cmd) -> String {
    let mut arguments = arguments(command).into_iter().map(|argument| argument.to_lowercase());
    let name = arguments.next().unwrap_or_default();
    match arguments.next().filter(|_| WITH_SUBCOMMANDS.contains(&&*name)) {
        Some(subcommand) => format!("{name}|{subcommand}"),
        None => name,
    }
}

/// Returns the keys of a command that the backend sends.
fn keys(command: &Cmd) -> Vec<String> {
    let mut arguments = arguments(command);
    let name = arguments.remove(0);
    let range = match &*name.to_lowercase() {
        "eval" | "evalsha" => {
            let count = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(0);
            2..2 + count
        }
        "xgroup" | "xinfo" | "xdelay" | "xpolicy" | "memory" => 1..2,
        // Names of streams, then an id for each. A consumer or stream can have the name STREAMS too: the options before
        // it have no more arguments than these.
        "xread" | "xreadgroup" => {
            let options = if name.eq_ignore_ascii_case("xread") { 0 } else { 3 };
            let after = arguments.iter().skip(options).position(|argument| argument == "STREAMS");
            let first = options + after.map_or(0, |at| at + 1);
            first..first + (arguments.len() - first) / 2
        }
        "mget" => 0..arguments.len(),
        _ => 0..1,
    };
    arguments.get(range).unwrap_or_default().to_vec()
}

fn arguments(command: &Cmd) -> Vec<String> {
    let text = |argument| match argument {
        Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    command.args_iter().map(text).collect()
}

/// Escapes the characters of a key that have a meaning in key patterns.
fn escape_glob(key: &str) -> String {
    key.chars().flat_map(|c| "*?[]\\".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

impl Redis {
    /// Sends every command that a worker needs, with arguments that change nothing. Fails with the list of all
    /// permissions that are missing.
    pub(super) async fn check_worker_access(&self, access: &WorkerAccess<'_>) -> Result<(), Error> {
        let mut features =
            vec![Feature::ReadClaims, Feature::Nack, Feature::NackDelay, Feature::Extend, Feature::Adopt];
        if access.deletes_done {
            features.push(Feature::AckedTrims);
        }
        let mut missing = Vec::new();
        let probes: Vec<Cmd> = features.iter().map(|feature| feature.probe(access.stream)).collect();
        let replies = self.missing_permissions(access.stream, probes, &mut missing).await?;
        for (feature, reply) in features.into_iter().zip(replies) {
            // The backend probes a feature that stays unknown again when it needs it.
            let _ = self.probe.learn(feature, super::reply::checked(reply));
        }
        let mut commands = worker_commands(access);
        if self.probe.known(Feature::Adopt) == Some(false) {
            commands.push(command!("XGROUP", "DELCONSUMER", access.stream, PROBE_GROUP, "c"));
        }
        if self.probe.known(Feature::Extend) == Some(false) {
            commands.push(Feature::Scripts.probe(access.stream));
            commands.push(command!("EVALSHA", "0".repeat(40), 0));
        }
        self.missing_permissions(access.stream, commands, &mut missing).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let (user, stream, rules) = (&self.connection.user, access.stream, missing.join(" "));
        let message = format!(
            "user {user} lacks permissions that a worker of stream {stream} needs; grant them with: \
             ACL SETUSER {user} {rules}"
        );
        Err(Error::new(ErrorKind::Denied, message))
    }

    /// Sends commands, and adds the rules that would allow those that are denied. Returns the replies.
    async fn missing_permissions(
        &self,
        stream: &str,
        commands: Vec<Cmd>,
        missing: &mut Vec<String>,
    ) -> Result<Vec<Value>, Error> {
        let replies = self.connection.replies(stream, commands.clone()).await?;
        for (command, reply) in commands.iter().zip(&replies) {
            let Value::ServerError(error) = reply else { continue };
            for rule in missing_rules(command, error).unwrap_or_default() {
                if !missing.contains(&rule) {
                    missing.push(rule);
                }
            }
        }
        Ok(replies)
    }
}

/// Returns the commands of a worker, other than the probes of features, with arguments that change nothing: a group
/// that does not exist, an id that every server rejects, or a transaction that the server discards.
fn worker_commands(access: &WorkerAccess<'_>) -> Vec<Cmd> {
    let WorkerAccess { stream, dead_letters, read_keys, written_keys, hashes, owned_for, .. } = access;
    let (group, id, invalid) = (PROBE_GROUP, Id(StreamId::new(0, 1)), "invalid");
    let mut commands = vec![
        command!("XGROUP", "CREATE", stream, group, invalid),
        commands::acknowledge(stream, group, &[StreamId::new(0, 1)]),
        command!("XPENDING", stream, group),
        commands::entry(stream, StreamId::new(0, 1)),
        command!("XCLAIM", stream, group, "c", 0, id, "JUSTID"),
        command!("XINFO", "STREAM", stream),
        command!("XINFO", "GROUPS", stream),
        command!("XINFO", "CONSUMERS", stream, group),
        command!("XADD", dead_letters, "0-0", "f", "v"),
        command!("XDEL", dead_letters, invalid),
        command!("TYPE", dead_letters),
    ];
    if !hashes.is_empty() || owned_for.is_some() {
        commands.push(redis::cmd("TIME"));
    }
    if let Some((group, _)) = owned_for {
        // EXEC below ends the watch.
        commands.push(command!("WATCH", lease_key(stream, group), fence_key(stream, group)));
    }
    commands.push(redis::cmd("MULTI"));
    // Servers check the permission for a command when they queue it. They refuse to queue TYPE without a key, so EXEC
    // executes nothing.
    for hash in hashes {
        commands.push(command!("HLEN", hash));
        commands.push(command!("HMGET", hash, PROBE_GROUP));
        commands.push(command!("HGETALL", hash));
        commands.push(command!("HKEYS", hash));
        commands.push(command!("HSET", hash, PROBE_GROUP, 1));
        commands.push(command!("HDEL", hash, PROBE_GROUP));
    }
    if let Some((group, control)) = owned_for {
        let (lease, fence) = (&lease_key(stream, group), &fence_key(stream, group));
        commands.push(command!("GET", lease));
        commands.push(command!("SET", lease, 1, "PX", 1));
        commands.push(command!("SET", fence, 1));
        commands.push(command!("PTTL", lease));
        commands.push(command!("GETEX", lease, "PX", 1));
        commands.push(command!("DEL", lease));
        commands.push(redis::cmd("UNWATCH"));
        commands.push(command!("XADD", control, "*", "f", "v"));
        commands.push(commands::read(control, StreamId::MIN, 1, 1));
        commands.push(commands::read(stream, StreamId::MIN, 1, 1));
    }
    commands.push(redis::cmd("TYPE"));
    commands.push(redis::cmd("EXEC"));
    commands.extend(read_keys.iter().map(|key| command!("MGET", key)));
    commands.extend(written_keys.iter().map(|key| command!("SET", key, 1, "XX", "PX", 1)));
    commands
}

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    fn rules(command: &Cmd, code: &str, details: &str) -> Option<Vec<String>> {
        let error = make_extension_error(code.to_owned(), Some(details.to_owned()));
        missing_rules(command, &error.into_server_errors()?[0].1)
    }

    #[test]
    fn missing_rules_name_commands_and_keys() {
        let create = command!("XGROUP", "CREATE", "orders", "g", "$");
        let old = "this user has no permissions to run the 'xgroup' command or its subcommand";
        let new = "User bob has no permissions to run the 'xgroup|create' command";
        for text in [old, new] {
            assert_eq!(rules(&create, "NOPERM", text).unwrap(), ["+xgroup|create"], "{text}");
        }
        let script = command!("EVALSHA", "0", 2, "orders", "{orders}:dlq", "g");
        let inner =
            "ACL failure in script: User bob has no permissions to run the 'xclaim' command script: 0";
        assert_eq!(rules(&script, "ERR", inner).unwrap(), ["+xclaim"]);
        let key = "No permissions to access a key";
        assert_eq!(rules(&script, "NOPERM", key).unwrap(), ["~orders", "~{orders}:dlq"]);
        let read = command!("XREADGROUP", "GROUP", "g", "STREAMS", "COUNT", 1, "STREAMS", "a*b", ">");
        assert_eq!(rules(&read, "NOPERM", key).unwrap(), ["~a\\*b"]);
        let exec =
            "Transaction discarded because of: NOPERM User bob has no permissions to run the 'exec' command";
        assert_eq!(rules(&redis::cmd("EXEC"), "EXECABORT", exec).unwrap(), ["+exec"]);
        let other = "a proxy says no";
        assert_eq!(rules(&redis::cmd("PING"), "NOPERM", other).unwrap(), ["+ping"]);
        assert_eq!(rules(&create, "NOPERM", other).unwrap(), ["+xgroup|create"]);
        assert_eq!(rules(&create, "NOAUTH", "Authentication required."), None);
        assert_eq!(rules(&create, "ERR", "no such key"), None);
    }
}
