//! What it takes to look at the streams and groups of a server, and to administer them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, Value};

use super::super::{
    Admin, Answer, Consumer, ConsumerInfo, Entry, Error, ErrorKind, GroupInfo, PendingFilter, PendingRow,
    PendingSummary, Range, ServerInfo, Start, StreamId,
};
use super::commands::{self, Id, command};
use super::errors::{from_redis, is_missing_key, missing_key_is_no_group};
use super::link::Link;
use super::reply::{
    array, checked, consumer_info, count, entries, group_info, id, integer, pairs, pending_row, text, tuple,
};
use super::{NOBODY, Redis, scripts};

impl Admin for Redis {
    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(async { self.link.command("", commands::ping()).await.map(drop) })
    }

    fn server<'a>(&'a self, settings: &'a [&'a str]) -> Answer<'a, Option<ServerInfo>> {
        Box::pin(async move {
            let told = text(self.link.command("", redis::cmd("INFO")).await?)?;
            let facts = told.lines().filter_map(|line| line.trim_end().split_once(':'));
            let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let questions = settings.iter().map(|name| command!("CONFIG", "GET", *name)).collect();
            let mut known = HashMap::new();
            // Managed servers often hide their settings.
            for answer in self.link.pipeline("", questions).await?.into_iter().flat_map(pairs) {
                for (name, value) in answer {
                    known.insert(text(name)?, text(value)?);
                }
            }
            Ok(Some(ServerInfo { facts, settings: known }))
        })
    }

    fn streams<'a>(&'a self, pattern: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let mut names = BTreeSet::new();
            match &self.link {
                Link::Server(_) => {
                    scan(pattern, &mut names, |command| self.link.command("", command)).await?;
                }
                Link::Cluster(cluster) => {
                    let masters: BTreeSet<(String, u16)> =
                        self.link.slots().await?.into_iter().map(|(_, host, port)| (host, port)).collect();
                    for (host, port) in masters {
                        let ask = |command| ask_node(cluster, &host, port, command);
                        scan(pattern, &mut names, ask).await?;
                    }
                }
            }
            Ok(names.into_iter().collect())
        })
    }

    fn range<'a>(&'a self, stream: &'a str, range: Range) -> Answer<'a, Vec<Entry>> {
        Box::pin(async move {
            if range.count == 0 {
                return Ok(Vec::new());
            }
            entries(self.link.command(stream, commands::range(stream, range)).await?)
        })
    }

    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Answer<'a, Vec<Entry>> {
        Box::pin(async move {
            if count == 0 {
                return Ok(Vec::new());
            }
            let command = |wait_ms| commands::read(stream, after, count, wait_ms);
            entries(self.wait_for(stream, block, command).await?)
        })
    }

    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> Answer<'a, u64> {
        Box::pin(async move {
            if ids.is_empty() {
                return Ok(0);
            }
            count(self.link.command(stream, commands::delete(stream, ids)).await?)
        })
    }

    fn delete_stream<'a>(&'a self, stream: &'a str) -> Answer<'a, bool> {
        Box::pin(async move {
            // An error if the key holds something else.
            self.link.command(stream, command!("XLEN", stream)).await?;
            Ok(integer(self.link.command(stream, command!("DEL", stream)).await?)? > 0)
        })
    }

    fn groups<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<GroupInfo>> {
        Box::pin(async move {
            let answer = match self.link.command(stream, command!("XINFO", "GROUPS", stream)).await {
                Err(error) if is_missing_key(&error) => return Ok(Vec::new()),
                answer => answer?,
            };
            let groups = array(answer)?.into_iter().map(group_info);
            let mut groups: Vec<GroupInfo> = groups.collect::<Result<_, _>>()?;
            if self.probe.found().nack != Some(true) {
                // Released rows are with a consumer here, which does not count.
                let looks = groups.iter().map(|group| command!("XINFO", "CONSUMERS", stream, &group.name));
                let listed = self.link.pipeline(stream, looks.collect()).await?;
                for (group, answer) in groups.iter_mut().zip(listed) {
                    // A group that has just been deleted has none.
                    group.consumers = consumers_in(answer).map_or(0, |consumers| consumers.len() as u64);
                }
            }
            Ok(groups)
        })
    }

    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, ()> {
        Box::pin(async move {
            let command = command!("XGROUP", "SETID", stream, group, commands::start_id(start));
            self.link.command(stream, command).await.map(drop).map_err(missing_key_is_no_group)
        })
    }

    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, bool> {
        Box::pin(async move {
            match self.link.command(stream, command!("XGROUP", "DESTROY", stream, group)).await {
                Ok(answer) => Ok(count(answer)? > 0),
                Err(error) if is_missing_key(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, PendingSummary> {
        Box::pin(async move {
            let answer = self.link.command(stream, command!("XPENDING", stream, group)).await?;
            let [total, first, last, owners] = tuple(answer)?;
            let total = count(total)?;
            let ids = if total == 0 { None } else { Some((id(first)?, id(last)?)) };
            let owner = |value| {
                let [name, rows] = tuple(value)?;
                Ok((text(name)?, count(rows)?))
            };
            let owners: Result<Vec<(String, u64)>, Error> = array(owners)?.into_iter().map(owner).collect();
            let mut consumers = owners?;
            consumers.retain(|(name, _)| !name.is_empty() && name != NOBODY);
            Ok(PendingSummary { total, ids, consumers })
        })
    }

    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> Answer<'a, Vec<PendingRow>> {
        Box::pin(async move {
            let command = commands::pending(stream, group, filter);
            array(self.link.command(stream, command).await?)?.into_iter().map(pending_row).collect()
        })
    }

    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> Answer<'a, bool> {
        Box::pin(async move {
            if !self.has(|natives| natives.nack).await? {
                let arguments = (group, NOBODY, Id(id));
                return Ok(count(scripts::RESTORE.run(self, &[stream], arguments).await?)? == 1);
            }
            let (is_pending, is_there) = self.find_row(stream, group, id).await?;
            if !is_there || is_pending {
                return Ok(is_there);
            }
            let mut command = commands::release(stream, group, &[id]);
            command.arg("RETRYCOUNT").arg(0).arg("FORCE");
            Ok(count(self.link.command(stream, command).await?)? > 0)
        })
    }

    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<ConsumerInfo>> {
        Box::pin(async move {
            let command = command!("XINFO", "CONSUMERS", stream, group);
            let answer = self.link.command(stream, command).await.map_err(missing_key_is_no_group)?;
            consumers_in(answer)
        })
    }

    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> Answer<'a, u64> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            if name == heir {
                let message = format!("{name} cannot be its own heir; name another consumer");
                return Err(Error::new(ErrorKind::Refused, message));
            }
            if self.has(|natives| natives.adopt).await? {
                return count(self.link.command(stream, commands::adopt(consumer, heir)).await?);
            }
            count(scripts::REMOVE_CONSUMER.run(self, &[stream], (group, name, heir)).await?)
        })
    }

    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> Answer<'a, bool> {
        Box::pin(async move {
            let Consumer { stream, group, name } = consumer;
            if !self.has(|natives| natives.adopt).await? {
                let answer = scripts::REMOVE_EMPTY_CONSUMER.run(self, &[stream], (group, name)).await?;
                return Ok(count(answer)? > 0);
            }
            let consumers = self.consumers(stream, group).await?;
            match consumers.iter().find(|found| found.name == name) {
                Some(found) if found.pending > 0 => return Ok(false),
                Some(_) => {}
                None => return Ok(true),
            }
            // Should something come at the last moment, an heir of a name that nobody else has keeps it until it is claimed.
            let heir = format!("{name}:heir");
            self.remove_consumer(consumer, &heir).await?;
            Ok(true)
        })
    }
}

async fn ask_node(cluster: &ClusterConnection, host: &str, port: u16, command: Cmd) -> Result<Value, Error> {
    let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
    let answer = cluster.clone().route_command(command, RoutingInfo::SingleNode(node)).await;
    answer.map_err(from_redis).and_then(checked)
}

/// The consumers that XINFO CONSUMERS lists, by name, without the one that stands for nobody.
fn consumers_in(answer: Value) -> Result<Vec<ConsumerInfo>, Error> {
    let consumers = array(answer)?.into_iter().map(consumer_info);
    let mut consumers: Vec<ConsumerInfo> = consumers.collect::<Result<_, _>>()?;
    consumers.retain(|consumer| consumer.name != NOBODY);
    consumers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(consumers)
}

/// Walks over the keys of one server.
async fn scan<A: Future<Output = Result<Value, Error>>>(
    pattern: &str,
    names: &mut BTreeSet<String>,
    ask: impl Fn(Cmd) -> A,
) -> Result<(), Error> {
    let mut cursor = "0".to_owned();
    loop {
        let [next, keys] = tuple(ask(commands::scan(&cursor, pattern)).await?)?;
        for key in array(keys)? {
            names.insert(text(key)?);
        }
        cursor = text(next)?;
        if cursor == "0" {
            return Ok(());
        }
    }
}
