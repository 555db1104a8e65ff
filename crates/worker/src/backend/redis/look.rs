//! Looking: streams, their content, what is pending.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, Value, cmd};

use super::super::{
    Entry, Error, Order, PendingFilter, PendingRow, PendingSummary, Range, StreamId, StreamInfo,
};
use super::Redis;
use super::errors::from_redis;
use super::groups::{info, is_missing_key};
use super::link::Link;
use super::reply::{array, checked, count, entries, id, integer, pairs, text, tuple};
use super::request::{Id, idle_millis};

/// How many keys a server looks at in one step of a scan.
const KEYS_PER_SCAN: usize = 1000;

impl Redis {
    pub(super) async fn streams(&self, pattern: &str) -> Result<Vec<String>, Error> {
        let mut names = BTreeSet::new();
        match &self.link {
            Link::Server(_) => {
                scan(pattern, &mut names, |command| self.link.command("", command)).await?;
            }
            Link::Cluster(cluster) => {
                for (host, port) in self.masters().await? {
                    let ask = |command| ask_node(cluster, &host, port, command);
                    scan(pattern, &mut names, ask).await?;
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Where the masters of the cluster are.
    async fn masters(&self) -> Result<BTreeSet<(String, u16)>, Error> {
        let mut command = cmd("CLUSTER");
        command.arg("SLOTS");
        let mut masters = BTreeSet::new();
        for range in array(self.link.command("", command).await?)? {
            if let Some(master) = array(range)?.into_iter().nth(2) {
                let mut address = array(master)?.into_iter();
                let (Some(host), Some(port)) = (address.next(), address.next()) else { continue };
                masters.insert((text(host)?, u16::try_from(count(port)?).unwrap_or(0)));
            }
        }
        Ok(masters)
    }

    pub(super) async fn stream(&self, stream: &str) -> Result<Option<StreamInfo>, Error> {
        match self.link.command(stream, info("STREAM", stream)).await {
            Ok(answer) => stream_info(answer).map(Some),
            Err(error) if is_missing_key(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn range(&self, stream: &str, range: Range) -> Result<Vec<Entry>, Error> {
        if range.count == 0 {
            return Ok(Vec::new());
        }
        let (name, from, to) = match range.order {
            Order::Rising => ("XRANGE", range.first, range.last),
            Order::Falling => ("XREVRANGE", range.last, range.first),
        };
        let mut command = cmd(name);
        command.arg(stream).arg(Id(from)).arg(Id(to)).arg("COUNT").arg(range.count);
        entries(self.link.command(stream, command).await?)
    }

    pub(super) async fn pending_summary(&self, stream: &str, group: &str) -> Result<PendingSummary, Error> {
        let mut command = cmd("XPENDING");
        command.arg(stream).arg(group);
        let [total, first, last, owners] = tuple(self.link.command(stream, command).await?)?;
        let total = count(total)?;
        let ids = if total == 0 { None } else { Some((id(first)?, id(last)?)) };
        let owner = |value| {
            let [name, rows] = tuple(value)?;
            Ok((text(name)?, count(rows)?))
        };
        let owners: Result<Vec<(String, u64)>, Error> = array(owners)?.into_iter().map(owner).collect();
        let mut consumers = owners?;
        consumers.retain(|(name, _)| !name.is_empty() && name != super::NOBODY);
        Ok(PendingSummary { total, ids, consumers })
    }

    pub(super) async fn pending(
        &self,
        stream: &str,
        group: &str,
        filter: &PendingFilter,
    ) -> Result<Vec<PendingRow>, Error> {
        let mut command = cmd("XPENDING");
        command.arg(stream).arg(group);
        if let Some(idle) = filter.min_idle.filter(|idle| !idle.is_zero()) {
            command.arg("IDLE").arg(idle_millis(idle));
        }
        command.arg(Id(filter.first)).arg(Id(filter.last)).arg(filter.count);
        if let Some(consumer) = &filter.consumer {
            command.arg(consumer);
        }
        array(self.link.command(stream, command).await?)?.into_iter().map(pending_row).collect()
    }
}

async fn ask_node(cluster: &ClusterConnection, host: &str, port: u16, command: Cmd) -> Result<Value, Error> {
    let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
    let answer = cluster.clone().route_command(command, RoutingInfo::SingleNode(node)).await;
    answer.map_err(from_redis).and_then(checked)
}

/// Walks over the keys of one server.
async fn scan<A: Future<Output = Result<Value, Error>>>(
    pattern: &str,
    names: &mut BTreeSet<String>,
    ask: impl Fn(Cmd) -> A,
) -> Result<(), Error> {
    let mut cursor = "0".to_owned();
    loop {
        let mut command = cmd("SCAN");
        command
            .arg(&cursor)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(KEYS_PER_SCAN)
            .arg("TYPE")
            .arg("stream");
        let [next, keys] = tuple(ask(command).await?)?;
        for key in array(keys)? {
            names.insert(text(key)?);
        }
        cursor = text(next)?;
        if cursor == "0" {
            return Ok(());
        }
    }
}

fn stream_info(value: Value) -> Result<StreamInfo, Error> {
    let mut stream = StreamInfo {
        length: 0,
        groups: 0,
        entries_added: None,
        last_id: StreamId::MIN,
        max_deleted_id: None,
        first_entry: None,
        last_entry: None,
    };
    for (name, value) in pairs(value)? {
        match &*text(name)? {
            "length" => stream.length = count(value)?,
            "groups" => stream.groups = count(value)?,
            "entries-added" => stream.entries_added = Some(count(value)?),
            "last-generated-id" => stream.last_id = id(value)?,
            "max-deleted-entry-id" => stream.max_deleted_id = Some(id(value)?),
            "first-entry" => stream.first_entry = entry_id(value)?,
            "last-entry" => stream.last_entry = entry_id(value)?,
            _ => {}
        }
    }
    Ok(stream)
}

fn entry_id(value: Value) -> Result<Option<StreamId>, Error> {
    array(value)?.into_iter().next().map(id).transpose()
}

pub(super) fn pending_row(value: Value) -> Result<PendingRow, Error> {
    let [at, owner, idle, counted] = tuple(value)?;
    let owner = text(owner)?;
    let is_owned = !owner.is_empty() && owner != super::NOBODY;
    Ok(PendingRow {
        id: id(at)?,
        consumer: is_owned.then_some(owner),
        idle: u64::try_from(integer(idle)?).ok().filter(|_| is_owned).map(Duration::from_millis),
        deliveries: count(counted)?,
    })
}
