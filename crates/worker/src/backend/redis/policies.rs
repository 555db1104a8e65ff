//! Policies of streams and groups: XPOLICY, on a server that has it.

use redis::{Cmd, Value};

use super::super::policy::{Backoff, Policy, PolicyField, PolicyValue};
use super::super::{BackendFuture, Error, ErrorKind, PolicyInfo};
use super::Redis;
use super::commands::command;
use super::errors::is_missing_key;
use super::probe::Feature;
use super::reply::{array, bytes, count, id, integer, pairs, text, tuple};

impl Redis {
    pub(super) fn get_policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
    ) -> BackendFuture<'a, Option<PolicyInfo>> {
        Box::pin(async move {
            let reply = match self.has(Feature::Policies, stream).await {
                Ok(true) => {
                    self.connection.command(stream, of_owner(command!("XPOLICY", "GET", stream), group)).await
                }
                Ok(false) => return Ok(None),
                Err(error) => Err(error),
            };
            match reply {
                Ok(reply) => policy_info(reply).map(Some),
                Err(error) if is_missing_key(&error) || error.kind() == ErrorKind::NoGroup => Ok(None),
                // Workers do without. Do not ask again: the server logs denied commands.
                Err(error) if error.kind() == ErrorKind::Denied => {
                    self.probe.assume(Feature::Policies, false);
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
    }

    pub(super) fn change_policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
        change: &'a Policy,
        off: &'a [PolicyField],
    ) -> BackendFuture<'a, ()> {
        let mut set = of_owner(command!("XPOLICY", "SET", stream), group);
        for (field, value) in change.fields() {
            set.arg(field.name());
            match value {
                PolicyValue::Number(number) => set.arg(number),
                PolicyValue::Backoff(Backoff { first_ms, longest_ms }) => set.arg(first_ms).arg(longest_ms),
                PolicyValue::Key(key) => set.arg(key),
            };
        }
        for field in off {
            set.arg(field.name());
            match field {
                PolicyField::AckedAge => set.arg(-1),
                PolicyField::Backoff => set.arg(0).arg(0),
                PolicyField::DeadLetters => set.arg(""),
                _ => set.arg(0),
            };
        }
        Box::pin(async move { self.connection.command(stream, set).await.map(drop) })
    }

    pub(super) fn forget_policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
    ) -> BackendFuture<'a, ()> {
        let reset = of_owner(command!("XPOLICY", "RESET", stream), group);
        Box::pin(async move { self.connection.command(stream, reset).await.map(drop) })
    }
}

fn of_owner(mut command: Cmd, group: Option<&str>) -> Cmd {
    if let Some(group) = group {
        command.arg("GROUP").arg(group);
    }
    command
}

/// Parses the reply of XPOLICY GET. Numbers with unknown names are counters.
pub(super) fn policy_info(reply: Value) -> Result<PolicyInfo, Error> {
    let mut info = PolicyInfo::default();
    for (name, value) in pairs(reply)? {
        let name = text(name)?;
        match (field_named(&name), value) {
            (Some(_), Value::Nil) => {}
            (Some(PolicyField::DeadLetters), key) => {
                info.in_force.set(PolicyField::DeadLetters, PolicyValue::Key(&bytes(key)?));
            }
            (Some(PolicyField::Backoff), value) => {
                let [first, longest] = tuple(value)?;
                let backoff = Backoff { first_ms: count(first)?, longest_ms: count(longest)? };
                info.in_force.set(PolicyField::Backoff, PolicyValue::Backoff(backoff));
            }
            (Some(field), number) => info.in_force.set(field, PolicyValue::Number(count(number)?)),
            (None, own) if name == "own" => {
                for field in array(own)? {
                    info.own.extend(field_named(&text(field)?));
                }
            }
            (None, error) if name == "last-dlq-error" => {
                info.dead_letter_error = if error == Value::Nil { None } else { Some(text(error)?) };
            }
            (None, owner) if name == "owner" => {
                info.owner = if owner == Value::Nil { None } else { Some(text(owner)?) };
            }
            (None, denied) if name == "dlq-denied" => info.is_owner_denied = count(denied)? > 0,
            (None, ticket) if name == "delayed-first" => {
                info.delayed_first = if ticket == Value::Nil { None } else { Some(id(ticket)?) };
            }
            (None, groups) if name == "group-dlqs" => {
                for group in array(groups)? {
                    let [group, dead_letters] = tuple(group)?;
                    info.group_dead_letters.push((text(group)?, text(dead_letters)?));
                }
            }
            (None, number @ Value::Int(_)) => info.counters.push((name, integer(number)?)),
            (None, _) => {}
        }
    }
    Ok(info)
}

fn field_named(name: &str) -> Option<PolicyField> {
    PolicyField::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
}
