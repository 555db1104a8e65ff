//! What the operators of a server ask: its slow log and its clients. On a cluster, all masters are asked.

use std::time::Duration;

use redis::{Cmd, Value};

use super::super::{ClientInfo, Error, SlowCommand};
use super::Redis;
use super::commands::command;
use super::connection::Link;
use super::errors::from_redis;
use super::reply::{array, bytes, count, text};

impl Redis {
    /// Sends a command to the server, or to every master of the cluster. Returns their replies, with the addresses of
    /// the nodes of a cluster. Fails if one of them fails.
    pub(super) async fn on_every_node(&self, command: &Cmd) -> Result<Vec<(Option<String>, Value)>, Error> {
        let nodes = match &self.connection.link {
            Link::Server(_) => {
                let reply = self.connection.command("", command.clone()).await?;
                return Ok(vec![(None, reply)]);
            }
            Link::Cluster(nodes) => nodes,
        };
        nodes.refresh(nodes.version()).await.map_err(from_redis)?;
        let mut replies = Vec::new();
        for node in nodes.masters() {
            let reply = self.call_node(&node, command.clone()).await?;
            replies.push((Some(node.address.to_string()), reply));
        }
        Ok(replies)
    }

    pub(super) async fn slowest_commands(&self, count: usize) -> Result<Vec<SlowCommand>, Error> {
        let mut found = Vec::new();
        for (node, reply) in self.on_every_node(&command!("SLOWLOG", "GET", count)).await? {
            for row in array(reply)? {
                found.push(SlowCommand { node: node.clone(), ..slow_command(row)? });
            }
        }
        found.sort_by_key(|slow: &SlowCommand| (std::cmp::Reverse(slow.at_ms), std::cmp::Reverse(slow.id)));
        found.truncate(count);
        Ok(found)
    }

    pub(super) async fn connected_clients(&self) -> Result<Vec<ClientInfo>, Error> {
        let mut found = Vec::new();
        for (node, reply) in self.on_every_node(&command!("CLIENT", "LIST")).await? {
            let clients = text(reply)?;
            let clients = clients.lines().filter(|line| !line.trim().is_empty()).map(client_info);
            found.extend(clients.map(|client| ClientInfo { node: node.clone(), ..client }));
        }
        Ok(found)
    }
}

/// Parses a record of SLOWLOG GET. Servers may add fields at the end.
fn slow_command(row: Value) -> Result<SlowCommand, Error> {
    let mut parts = array(row)?.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let or_empty = |value| if value == Value::Nil { Ok(String::new()) } else { text(value) };
    Ok(SlowCommand {
        id: count(next())?,
        at_ms: count(next())?.saturating_mul(1000),
        took: Duration::from_micros(count(next())?),
        command: array(next())?.into_iter().map(bytes).collect::<Result<_, _>>()?,
        client: or_empty(next())?,
        client_name: or_empty(next())?,
        node: None,
    })
}

/// Parses a line of CLIENT LIST: names and values, with `=` between them. Unknown names are skipped.
fn client_info(line: &str) -> ClientInfo {
    let mut client = ClientInfo::default();
    let (mut library, mut version) = ("", "");
    for (name, value) in line.split(' ').filter_map(|pair| pair.split_once('=')) {
        let number = || value.trim().parse::<u64>().ok();
        let seconds = || Duration::from_secs(number().unwrap_or_default());
        match name {
            "id" => client.id = number().unwrap_or_default(),
            "addr" => client.address = value.to_owned(),
            "name" => client.name = value.to_owned(),
            "user" => client.user = value.to_owned(),
            "db" => client.database = number().unwrap_or_default(),
            "age" => client.age = seconds(),
            "idle" => client.idle = seconds(),
            "flags" => (client.flags, client.is_blocked) = (value.to_owned(), value.contains('b')),
            "cmd" => client.last_command = value.to_owned(),
            "tot-mem" => client.memory_bytes = number(),
            "lib-name" => library = value,
            "lib-ver" => version = value,
            _ => {}
        }
    }
    client.library = format!("{library} {version}").trim().to_owned();
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_client_list_is_parsed() {
        let line = "id=7 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name=a age=61 idle=2 flags=b db=3 \
                    tot-mem=1928 cmd=xreadgroup user=default lib-name=redis-rs lib-ver=1.0 new=thing odd";
        let client = client_info(line);
        assert_eq!((client.id, &*client.address, &*client.name), (7, "127.0.0.1:4711", "a"));
        assert_eq!((client.age, client.idle), (Duration::from_secs(61), Duration::from_secs(2)));
        assert_eq!((client.is_blocked, client.database, client.memory_bytes), (true, 3, Some(1928)));
        assert_eq!((&*client.last_command, &*client.library), ("xreadgroup", "redis-rs 1.0"));
        assert_eq!(client_info("id=x flags=N").library, "");
    }
}
