//! Implements [`Admin`]: inspecting and administering the streams, groups and consumers of a server.

use std::collections::{BTreeSet, HashMap};

use redis::{Cmd, Value};

use super::super::policy::{Policy, PolicyField};
use super::super::{
    BackendFuture, ChangeStore, ClientInfo, Consumer, ConsumerInfo, Entry, Error, ErrorKind, GroupInfo,
    GroupMissed, InspectStore, LookDetail, PendingFilter, PendingRow, PendingSummary, Range, ServerInfo,
    SlowCommand, SnapshotRequest, Start, StreamCursor, StreamId, StreamLook, StreamNames, Trim,
};
use super::commands::{self, Id, Ids, command};
use super::connection::NoReply;
use super::errors::{is_missing_key, missing_key_is_no_group};
use super::nodes::Node;
use super::probe::Feature;
use super::reply::{
    array, consumer_info, count, entries, group_info, group_missed, id, integer, pairs, pending_row, text,
    tuple,
};
use super::{RELEASED_CONSUMER, Redis, scripts};

impl InspectStore for Redis {
    fn ping(&self) -> BackendFuture<'_, ()> {
        Box::pin(async { self.connection.command("", redis::cmd("PING")).await.map(drop) })
    }

    fn server<'a>(&'a self, settings: &'a [&'a str]) -> BackendFuture<'a, Option<ServerInfo>> {
        Box::pin(async move {
            let mut denied = None;
            let mut or_denied = |error: Error| match error.kind() {
                ErrorKind::Denied => {
                    denied = Some(error.to_string());
                    Ok(Vec::new())
                }
                _ => Err(error),
            };
            // Redis before 7.0 accepts only one section. Others have sections that are expensive, so do not ask for
            // all.
            let sections = vec![redis::cmd("INFO"), command!("INFO", "commandstats")];
            let info = self.connection.pipeline("", sections).await.or_else(&mut or_denied)?;
            let mut facts = HashMap::new();
            for section in info {
                let section = text(section)?;
                let lines = section.lines().filter_map(|line| line.trim_end().split_once(':'));
                facts.extend(lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            let queries = settings.iter().map(|name| command!("CONFIG", "GET", *name)).collect();
            let mut known = HashMap::new();
            let replies = self.connection.pipeline("", queries).await.or_else(or_denied)?;
            // Skip other errors: managed servers often have no CONFIG GET.
            for reply in replies.into_iter().flat_map(pairs) {
                for (name, value) in reply {
                    known.insert(text(name)?, text(value)?);
                }
            }
            Ok(Some(ServerInfo { facts, settings: known, denied }))
        })
    }

    fn node_of(&self, stream: &str) -> Option<String> {
        self.connection.owner(stream)
    }

    fn streams<'a>(&'a self, pattern: &'a str) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let (mut names, mut next) = (BTreeSet::new(), Some(StreamCursor::default()));
            while let Some(from) = next {
                let page = self.walk(pattern, &from, 1).await?;
                names.extend(page.names.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
                next = page.next;
            }
            Ok(names.into_iter().collect())
        })
    }

    fn walk_streams<'a>(
        &'a self,
        pattern: &'a str,
        from: &'a StreamCursor,
        steps: usize,
    ) -> BackendFuture<'a, StreamNames> {
        Box::pin(self.walk(pattern, from, steps))
    }

    fn look<'a>(
        &'a self,
        streams: &'a [String],
        detail: &'a LookDetail,
    ) -> BackendFuture<'a, Vec<Result<Option<StreamLook>, Error>>> {
        Box::pin(self.look_at(streams, detail))
    }

    fn keys_per_node(&self, keys: &[&str]) -> Vec<(String, usize)> {
        self.connection.nodes().map(|nodes| nodes.keys_per_node(keys)).unwrap_or_default()
    }

    fn lengths<'a>(&'a self, streams: &'a [String]) -> BackendFuture<'a, Vec<Result<u64, Error>>> {
        Box::pin(self.lengths_of(streams))
    }

    fn range<'a>(&'a self, stream: &'a str, range: Range) -> BackendFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            if range.count == 0 {
                return Ok(Vec::new());
            }
            entries(self.connection.command(stream, commands::range(stream, range)).await?)
        })
    }

    fn delayed<'a>(
        &'a self,
        stream: &'a str,
        first: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Vec<Entry>> {
        self.list_delayed(stream, first, count)
    }

    fn memory_usage<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Option<u64>> {
        Box::pin(async move {
            match self.connection.command(stream, command!("MEMORY", "USAGE", stream)).await? {
                Value::Nil => Ok(None),
                bytes => count(bytes).map(Some),
            }
        })
    }

    fn slow_log(&self, count: usize) -> BackendFuture<'_, Vec<SlowCommand>> {
        Box::pin(self.slowest_commands(count))
    }

    fn clients(&self) -> BackendFuture<'_, Vec<ClientInfo>> {
        Box::pin(self.connected_clients())
    }

    fn groups<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Vec<GroupInfo>> {
        Box::pin(async move {
            let reply = match self.connection.command(stream, command!("XINFO", "GROUPS", stream)).await {
                Err(error) if is_missing_key(&error) => return Ok(Vec::new()),
                reply => reply?,
            };
            let groups = array(reply)?.into_iter().map(group_info);
            let mut groups: Vec<GroupInfo> = groups.collect::<Result<_, _>>()?;
            if self.probe.known(Feature::Nack) != Some(true) {
                // Do not count the consumer that owns released entries.
                let queries = groups.iter().map(|group| command!("XINFO", "CONSUMERS", stream, &group.name));
                let listed = self.connection.pipeline(stream, queries.collect()).await?;
                for (group, reply) in groups.iter_mut().zip(listed) {
                    // If the group was deleted in between, it has no consumers.
                    group.consumers = parse_consumers(reply).map_or(0, |consumers| consumers.len() as u64);
                }
            }
            Ok(groups)
        })
    }

    fn missed<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Vec<GroupMissed>> {
        Box::pin(async move {
            if !self.has_unless_denied(Feature::Missed, stream).await? {
                return Ok(Vec::new());
            }
            match self.connection.command(stream, command!("XINFO", "MISSED", stream)).await {
                Ok(reply) => array(reply)?.into_iter().map(group_missed).collect(),
                Err(error) if is_missing_key(&error) || error.kind() == ErrorKind::Denied => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        })
    }

    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, PendingSummary> {
        Box::pin(async move {
            let reply = self.connection.command(stream, command!("XPENDING", stream, group)).await?;
            let [total, first, last, owners] = tuple(reply)?;
            let total = count(total)?;
            let ids = if total == 0 { None } else { Some((id(first)?, id(last)?)) };
            let owner = |value| {
                let [name, rows] = tuple(value)?;
                Ok((text(name)?, count(rows)?))
            };
            let owners: Result<Vec<(String, u64)>, Error> = array(owners)?.into_iter().map(owner).collect();
            let mut consumers = owners?;
            consumers.retain(|(name, _)| !name.is_empty() && name != RELEASED_CONSUMER);
            Ok(PendingSummary { total, ids, consumers })
        })
    }

    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> BackendFuture<'a, Vec<PendingRow>> {
        Box::pin(async move {
            let command = commands::pending(stream, group, filter);
            array(self.connection.command(stream, command).await?)?.into_iter().map(pending_row).collect()
        })
    }

    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, Vec<ConsumerInfo>> {
        Box::pin(async move {
            let command = command!("XINFO", "CONSUMERS", stream, group);
            let reply = self.connection.command(stream, command).await.map_err(missing_key_is_no_group)?;
            parse_consumers(reply)
        })
    }
}

impl ChangeStore for Redis {
    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            if ids.is_empty() {
                return Ok(0);
            }
            count(self.connection.command(stream, command!("XDEL", stream, Ids(ids))).await?)
        })
    }

    fn cancel_delayed<'a>(&'a self, stream: &'a str, tickets: &'a [StreamId]) -> BackendFuture<'a, u64> {
        self.change_delayed("DEL", stream, tickets)
    }

    fn promote_delayed<'a>(&'a self, stream: &'a str, tickets: &'a [StreamId]) -> BackendFuture<'a, u64> {
        self.change_delayed("NOW", stream, tickets)
    }

    fn trim<'a>(&'a self, stream: &'a str, trim: Trim) -> BackendFuture<'a, u64> {
        Box::pin(self.trim_now(stream, trim))
    }

    fn reset_slow_log(&self) -> BackendFuture<'_, ()> {
        Box::pin(async { self.on_every_node(&command!("SLOWLOG", "RESET")).await.map(drop) })
    }

    fn set_server_setting<'a>(&'a self, name: &'a str, value: &'a str) -> BackendFuture<'a, ()> {
        Box::pin(async move { self.on_every_node(&command!("CONFIG", "SET", name, value)).await.map(drop) })
    }

    fn save_snapshot(&self) -> BackendFuture<'_, SnapshotRequest> {
        Box::pin(async { self.on_every_node(&redis::cmd("BGSAVE")).await.map(|_| SnapshotRequest::Started) })
    }

    fn delete_stream<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            // XLEN fails if the key is not a stream.
            self.connection.command(stream, command!("XLEN", stream)).await?;
            Ok(integer(self.connection.command(stream, command!("DEL", stream)).await?)? > 0)
        })
    }

    fn set_policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
        change: &'a Policy,
        off: &'a [PolicyField],
    ) -> BackendFuture<'a, ()> {
        self.change_policy(stream, group, change, off)
    }

    fn reset_policy<'a>(&'a self, stream: &'a str, group: Option<&'a str>) -> BackendFuture<'a, ()> {
        self.forget_policy(stream, group)
    }

    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let command = command!("XGROUP", "SETID", stream, group, commands::start_id(start));
            self.connection.command(stream, command).await.map(drop).map_err(missing_key_is_no_group)
        })
    }

    fn move_group_from<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        from: StreamId,
        start: Start,
    ) -> BackendFuture<'a, bool> {
        Box::pin(self.move_unless_moved(stream, group, from, start))
    }

    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            match self.connection.command(stream, command!("XGROUP", "DESTROY", stream, group)).await {
                Ok(reply) => Ok(count(reply)? > 0),
                Err(error) if is_missing_key(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn claim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        rows: &'a [PendingRow],
    ) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(async move {
            let claims = rows.iter().map(|row| commands::claim(consumer, row)).collect();
            let mut claimed = Vec::new();
            for reply in self.connection.pipeline(consumer.stream, claims).await? {
                for found in array(reply)? {
                    claimed.push(id(found)?);
                }
            }
            Ok(claimed)
        })
    }

    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            if !self.has(Feature::Nack, stream).await? {
                let arguments = (group, RELEASED_CONSUMER, Id(id));
                return Ok(count(scripts::RESTORE.run(self, &[stream], arguments).await?)? == 1);
            }
            let (is_pending, exists) = self.entry_status(stream, group, id).await?;
            if !exists || is_pending {
                return Ok(exists);
            }
            let mut command = commands::release(stream, group, &[id]);
            command.arg("RETRYCOUNT").arg(0).arg("FORCE");
            Ok(count(self.connection.command(stream, command).await?)? > 0)
        })
    }

    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            if name == heir {
                let message = format!("consumer {name} cannot be its own heir; name another consumer");
                return Err(Error::new(ErrorKind::Refused, message));
            }
            if self.has(Feature::Adopt, stream).await? {
                return count(self.connection.command(stream, commands::adopt(consumer, heir)).await?);
            }
            count(scripts::REMOVE_CONSUMER.run(self, &[stream], (group, name, heir)).await?)
        })
    }

    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            if !self.has(Feature::Adopt, stream).await? {
                let reply = scripts::REMOVE_EMPTY_CONSUMER.run(self, &[stream], (group, name)).await?;
                return Ok(count(reply)? > 0);
            }
            let consumers = self.consumers(stream, group).await?;
            match consumers.iter().find(|found| found.name == name) {
                Some(found) if found.pending > 0 => return Ok(false),
                Some(_) => {}
                None => return Ok(true),
            }
            // If an entry arrives in between, an heir with an unused name owns it until another consumer claims it.
            let heir = format!("{name}:heir");
            self.remove_consumer(consumer, &heir).await?;
            Ok(true)
        })
    }
}
impl Redis {
    pub(super) async fn call_node(&self, node: &Node, command: Cmd) -> Result<Value, Error> {
        let reply = node.connection.command(&command).await;
        self.connection.explained(&command, reply.map_err(NoReply::into_error))
    }
}

/// Parses the reply of XINFO CONSUMERS, sorted by name, without [`RELEASED_CONSUMER`].
pub(super) fn parse_consumers(reply: Value) -> Result<Vec<ConsumerInfo>, Error> {
    let consumers = array(reply)?.into_iter().map(consumer_info);
    let mut consumers: Vec<ConsumerInfo> = consumers.collect::<Result<_, _>>()?;
    consumers.retain(|consumer| consumer.name != RELEASED_CONSUMER);
    consumers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(consumers)
}
