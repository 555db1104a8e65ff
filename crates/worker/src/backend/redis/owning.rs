//! Ownership of streams: acquires, renews and gives up leases, and reads as an owner.
//!
//! ```text
//! {orders}:lease:GROUP   "FENCE INSTANCE", expires      who owns the stream now
//! {orders}:fence:GROUP   "FENCE INSTANCE", stays        who acquired it last
//! ```
//!
//! Everything is done with transactions: WATCH lets EXEC fail if another worker has acquired the stream in between.
//! This needs no scripts, and it costs an owner's read little, because the WATCH for the next read travels with the
//! last one:
//!
//! ```text
//! MULTI · XREADGROUP · EXEC · WATCH fence · GET fence        one write, one round trip
//! ```
//!
//! WATCH belongs to a connection. So each owned stream has a connection of its own, to the node that has its slot.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, Cmd, RedisError, ServerError, Value};

use super::super::{
    Claimant, Delivery, Error, InspectStore, Range, Read, ReadMessages, StreamId, StreamOwner,
};
use super::Redis;
use super::commands::{self, Id, command, millis};
use super::connection::{CONNECT_TIMEOUT, Link, REPLY_TIMEOUT, pipeline_of};
use super::dial::{OpenConnection, Target};
use super::errors::{from_redis, from_server, unexpected_reply};
use super::look::time_ms;
use super::nodes::NodeAddress;
use super::reply::{array, bytes, checked, deliveries, group_info, integer, only_stream};
use super::routing::{NodeRefusal, Route, no_owner};
use crate::names::{fence_key, lease_key};

/// Maximum number of unread entries that are counted to repair the lag of a group.
const UNREAD_MAX: usize = 10_000;
/// Number of transactions that an acquisition tries while others change the keys.
const TRANSACTIONS_MAX: usize = 3;

/// The connections of owned streams, by their fences.
pub(super) struct OwnerConnections {
    server: Target,
    config: AsyncConnectionConfig,
    unused: Mutex<HashMap<String, OwnerConnection>>,
}

/// A connection that only the calls for one owned stream use.
struct OwnerConnection {
    connection: OpenConnection,
    /// `None` if there is only one server.
    node: Option<NodeAddress>,
    /// The value of the fence that the connection watches. `None` if it watches nothing.
    watched: Option<Value>,
}

/// Why commands over the connection of an owner have no result.
enum TransactionFailure {
    /// The server replied with an error. A node of a cluster may name another node.
    Server(ServerError),
    Broken(RedisError),
    /// The reply has another form than expected.
    Other(Error),
}

impl From<RedisError> for TransactionFailure {
    fn from(error: RedisError) -> TransactionFailure {
        TransactionFailure::Broken(error)
    }
}

impl From<Error> for TransactionFailure {
    fn from(error: Error) -> TransactionFailure {
        TransactionFailure::Other(error)
    }
}

impl OwnerConnections {
    pub(super) fn new(server: Target) -> OwnerConnections {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(REPLY_TIMEOUT));
        OwnerConnections { server, config, unused: Mutex::default() }
    }

    async fn take(
        &self,
        fence: &str,
        node: Option<&NodeAddress>,
        target: &Target,
    ) -> Result<OwnerConnection, RedisError> {
        let unused = self.unused.lock().remove(fence).filter(|unused| unused.node.as_ref() == node);
        if let Some(unused) = unused {
            return Ok(unused);
        }
        let connection = target.connect(&self.config).await?;
        Ok(OwnerConnection { connection, node: node.cloned(), watched: None })
    }

    fn put_back(&self, fence: String, connection: OwnerConnection) {
        self.unused.lock().insert(fence, connection);
    }
}

impl OwnerConnection {
    /// Sends commands in one round trip. Fails with the first error of the server.
    async fn send(&mut self, commands: Vec<Cmd>) -> Result<Vec<Value>, TransactionFailure> {
        let replies = self.replies(commands).await?;
        match replies.iter().find_map(server_error) {
            Some(error) => Err(TransactionFailure::Server(error.clone())),
            None => Ok(replies),
        }
    }

    /// Sends commands in one round trip. Each reply can be an error.
    async fn replies(&mut self, commands: Vec<Cmd>) -> Result<Vec<Value>, TransactionFailure> {
        Ok(self.connection.pipeline(&pipeline_of(commands)).await?)
    }
}

fn server_error(reply: &Value) -> Option<&ServerError> {
    match reply {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

/// What is done over the connection of an owner. It runs again if the slot has moved to another node.
trait OwnerTask {
    type Output;

    fn run(
        &self,
        connection: &mut OwnerConnection,
    ) -> impl Future<Output = Result<Self::Output, TransactionFailure>> + Send;
}

/// Acquires a stream, if nobody owns it or this worker does. Returns the owner after it.
///
/// The fence grows even if this worker owns the stream already. Its last ownership has ended by then, but a server that
/// was slow may still execute a read of it, and would deliver messages that nobody expects.
struct Acquire<'a> {
    instance: &'a str,
    lease_key: &'a str,
    fence_key: &'a str,
    lease: Duration,
}

impl OwnerTask for Acquire<'_> {
    type Output = StreamOwner;

    async fn run(&self, connection: &mut OwnerConnection) -> Result<StreamOwner, TransactionFailure> {
        let Acquire { instance, lease_key, fence_key, lease } = *self;
        for _ in 0..TRANSACTIONS_MAX {
            connection.watched = None;
            let look = vec![
                command!("WATCH", lease_key, fence_key),
                command!("GET", lease_key),
                command!("PTTL", lease_key),
                command!("GET", fence_key),
                redis::cmd("TIME"),
            ];
            let [_, held, left, last, time] = five(connection.send(look).await?)?;
            let last = mark(&last);
            if let Some((fence, holder)) = mark(&held)
                && holder != instance
            {
                connection.send(vec![redis::cmd("UNWATCH")]).await?;
                return Ok(StreamOwner { fence, instance: holder, lease_left: lease_left(left)? });
            }
            // The time as a minimum: the fence grows even if a failover has lost the last one.
            let fence = last.map_or(0, |(fence, _)| fence).saturating_add(1).max(time_ms(time)?);
            let value = value(fence, instance);
            let set = vec![
                command!("SET", fence_key, &value),
                command!("SET", lease_key, &value, "PX", millis(lease)),
            ];
            if connection.execute(set).await? {
                return Ok(StreamOwner { fence, instance: instance.to_owned(), lease_left: lease });
            }
        }
        // Others acquire and give up the stream all the time: the caller tries again.
        Ok(StreamOwner { fence: 0, instance: String::new(), lease_left: Duration::from_millis(1) })
    }
}

/// Gives a stream up. Returns false if another worker owns it, or nobody does.
struct GiveUp<'a> {
    instance: &'a str,
    fence: u64,
    lease_key: &'a str,
}

impl OwnerTask for GiveUp<'_> {
    type Output = bool;

    async fn run(&self, connection: &mut OwnerConnection) -> Result<bool, TransactionFailure> {
        connection.watched = None;
        let look = vec![command!("WATCH", self.lease_key), command!("GET", self.lease_key)];
        let held = connection.send(look).await?.pop();
        if held.as_ref().and_then(mark) != Some((self.fence, self.instance.to_owned())) {
            connection.send(vec![redis::cmd("UNWATCH")]).await?;
            return Ok(false);
        }
        connection.execute(vec![command!("DEL", self.lease_key)]).await
    }
}

/// Reads new entries, unless another worker has acquired the stream. Returns the reply to XREADGROUP.
struct ReadOwned<'a> {
    read: &'a Read<'a>,
    fence_key: &'a str,
    expected: Value,
}

impl OwnerTask for ReadOwned<'_> {
    type Output = Option<Value>;

    async fn run(&self, connection: &mut OwnerConnection) -> Result<Option<Value>, TransactionFailure> {
        let watch = || [command!("WATCH", self.fence_key), command!("GET", self.fence_key)];
        loop {
            if connection.watched.is_none() {
                connection.watched = connection.send(watch().into()).await?.pop();
            }
            if connection.watched.as_ref() != Some(&self.expected) {
                return Ok(None);
            }
            connection.watched = None;
            let read = commands::read_group(self.read, None);
            let mut commands = vec![redis::cmd("MULTI"), read, redis::cmd("EXEC")];
            commands.extend(watch());
            let [_, queued, executed, watching, value] = five(connection.replies(commands).await?)?;
            if let Some(error) = server_error(&queued).or_else(|| server_error(&executed)) {
                return Err(TransactionFailure::Server(error.clone()));
            }
            if server_error(&watching).is_none() && server_error(&value).is_none() {
                connection.watched = Some(value);
            }
            // Nil: the fence has changed or moved to another node. The next turn finds out.
            if let Some(reply) = array(executed)?.pop() {
                return Ok(Some(reply));
            }
        }
    }
}

/// Sets the position of a group to where it is, with the number of entries that it has read.
struct SetEntriesRead<'a> {
    claimant: Claimant<'a>,
    fence_key: &'a str,
    expected: Value,
    position: StreamId,
    entries_read: u64,
}

impl OwnerTask for SetEntriesRead<'_> {
    type Output = bool;

    async fn run(&self, connection: &mut OwnerConnection) -> Result<bool, TransactionFailure> {
        let Claimant { stream, group, .. } = self.claimant;
        connection.watched = None;
        let look = vec![
            command!("WATCH", self.fence_key),
            command!("GET", self.fence_key),
            command!("XINFO", "GROUPS", stream),
        ];
        let mut replies = connection.send(look).await?;
        let (groups, fence) = (replies.pop().unwrap_or(Value::Nil), replies.pop());
        let found = array(groups)?.into_iter().map(group_info).collect::<Result<Vec<_>, _>>()?;
        let is_there = found.iter().any(|found| found.name == group && found.last_delivered == self.position);
        if fence.as_ref() != Some(&self.expected) || !is_there {
            connection.send(vec![redis::cmd("UNWATCH")]).await?;
            return Ok(false);
        }
        let read = self.entries_read;
        let set = command!("XGROUP", "SETID", stream, group, Id(self.position), "ENTRIESREAD", read);
        connection.execute(vec![set]).await
    }
}

impl Redis {
    pub(super) async fn acquire_stream(
        &self,
        claimant: Claimant<'_>,
        lease: Duration,
    ) -> Result<StreamOwner, Error> {
        let Claimant { stream, group, instance } = claimant;
        let (lease_key, fence_key) = (&lease_key(stream, group), &fence_key(stream, group));
        self.as_owner(fence_key, Acquire { instance, lease_key, fence_key, lease }).await
    }

    /// Renews a lease, then checks whose it is. If it has another owner by then, that one's lease becomes longer once.
    pub(super) async fn renew_lease(
        &self,
        claimant: Claimant<'_>,
        fence: u64,
        lease: Duration,
    ) -> Result<bool, Error> {
        let key = &lease_key(claimant.stream, claimant.group);
        let renew = command!("GETEX", key, "PX", millis(lease));
        let held = self.connection.command(key, renew).await?;
        Ok(mark(&held).is_some_and(|held| held == (fence, claimant.instance.to_owned())))
    }

    pub(super) async fn give_stream_up(&self, claimant: Claimant<'_>, fence: u64) -> Result<bool, Error> {
        let Claimant { stream, group, instance } = claimant;
        let (lease_key, fence_key) = (&lease_key(stream, group), &fence_key(stream, group));
        let given_up = self.as_owner(fence_key, GiveUp { instance, fence, lease_key }).await;
        // The worker no longer needs the connection.
        self.owning.unused.lock().remove(fence_key);
        given_up
    }

    pub(super) async fn find_owner(&self, stream: &str, group: &str) -> Result<Option<StreamOwner>, Error> {
        let (lease, fence) = (&lease_key(stream, group), &fence_key(stream, group));
        let commands = vec![command!("GET", lease), command!("PTTL", lease), command!("GET", fence)];
        let replies = self.connection.pipeline(stream, commands).await?;
        let three = <[Value; 3]>::try_from(replies);
        let [held, left, last] = three.map_err(|_| unexpected_reply("three replies"))?;
        let owner = |(fence, instance), lease_left| StreamOwner { fence, instance, lease_left };
        if let Some(held) = mark(&checked(held)?) {
            return Ok(Some(owner(held, lease_left(left)?)));
        }
        Ok(mark(&checked(last)?).map(|last| owner(last, Duration::ZERO)))
    }

    pub(super) async fn read_as_owner(
        &self,
        read: &Read<'_>,
        claimant: Claimant<'_>,
        fence: u64,
    ) -> Result<Option<Vec<Delivery>>, Error> {
        let fence_key = &fence_key(read.stream, read.group);
        let expected = Value::BulkString(value(fence, claimant.instance).into_bytes());
        let reply = self.as_owner(fence_key, ReadOwned { read, fence_key, expected }).await?;
        reply.map(|reply| deliveries(only_stream(checked(reply)?)?)).transpose()
    }

    /// Counts the unread entries of a group whose lag the server does not know, and tells the server.
    ///
    /// A replica does not learn how many entries a group has read. When it becomes a primary, it reports no lag, or, if
    /// it once learned the number with a copy of all data, one that is too large.
    pub(super) async fn repair_lag_as_owner(
        &self,
        claimant: Claimant<'_>,
        fence: u64,
    ) -> Result<bool, Error> {
        let Claimant { stream, group, instance } = claimant;
        let groups = self.groups(stream).await?;
        let Some(found) = groups.into_iter().find(|found| found.name == group) else { return Ok(false) };
        if found.lag == Some(0) {
            return Ok(false);
        }
        // Servers before 7.0 know no lag of any group.
        let Some(info) = self.stream(stream).await? else { return Ok(false) };
        let Some(added) = info.entries_added else { return Ok(false) };
        let has_read_all = info.last_entry.is_none_or(|last| last <= found.last_delivered);
        if let Some(lag) = found.lag
            && lag <= info.length
            && !has_read_all
        {
            return Ok(false);
        }
        let mut unread = 0;
        if let (Some(last), Some(mut first)) = (info.last_entry, found.last_delivered.next()) {
            while first <= last {
                let range = Range { last, ..Range::starting_at(first, UNREAD_MAX) };
                let page = self.range(stream, range).await?;
                unread += page.len();
                if unread >= UNREAD_MAX {
                    return Ok(false);
                }
                match page.last().and_then(|entry| entry.id.next()) {
                    Some(next) => first = next,
                    None => break,
                }
            }
        }
        let fence_key = &fence_key(stream, group);
        let set = SetEntriesRead {
            claimant,
            fence_key,
            expected: Value::BulkString(value(fence, instance).into_bytes()),
            position: found.last_delivered,
            entries_read: added.saturating_sub(unread as u64),
        };
        self.as_owner(fence_key, set).await
    }

    /// Runs a task over the connection for the stream with this fence. If a node refuses commands while slots move,
    /// runs it again over a connection to another node, or after a pause.
    async fn as_owner<T: OwnerTask>(&self, fence: &str, task: T) -> Result<T::Output, Error> {
        let nodes = match &self.connection.link {
            Link::Cluster(nodes) => nodes,
            Link::Server(_) => {
                let target = &self.owning.server;
                let mut connection = self.owning.take(fence, None, target).await.map_err(from_redis)?;
                let result = task.run(&mut connection).await.map_err(explain)?;
                self.owning.put_back(fence.to_owned(), connection);
                return Ok(result);
            }
        };
        let mut route = Route::new(nodes, fence);
        loop {
            let Some((node, asking)) = route.next() else {
                if route.refresh().await {
                    continue;
                }
                return Err(from_redis(no_owner(fence)));
            };
            // While a slot moves, a transaction would need all its keys on one node. So the call waits until it has
            // moved.
            if asking {
                if route.pause().await {
                    continue;
                }
                return Err(from_redis(no_owner(fence)));
            }
            let target = nodes.target(&node.address);
            let mut connection = match self.owning.take(fence, Some(&node.address), &target).await {
                Ok(connection) => connection,
                Err(error) if error.is_io_error() => {
                    if route.refresh().await {
                        continue;
                    }
                    return Err(from_redis(error));
                }
                Err(error) => return Err(from_redis(error)),
            };
            match task.run(&mut connection).await {
                Ok(result) => {
                    self.owning.put_back(fence.to_owned(), connection);
                    return Ok(result);
                }
                Err(TransactionFailure::Server(error)) => {
                    let may_go_on = match NodeRefusal::of(&error, &node) {
                        Some(refusal) => route.after_refusal(refusal).await,
                        None => false,
                    };
                    if !may_go_on {
                        return Err(from_server(&error));
                    }
                }
                Err(failure) => return Err(explain(failure)),
            }
        }
    }
}

fn explain(failure: TransactionFailure) -> Error {
    match failure {
        TransactionFailure::Server(error) => from_server(&error),
        TransactionFailure::Broken(error) => from_redis(error),
        TransactionFailure::Other(error) => error,
    }
}

impl OwnerConnection {
    /// Executes commands as a transaction. Returns false if a watched key has changed.
    async fn execute(&mut self, commands: Vec<Cmd>) -> Result<bool, TransactionFailure> {
        let mut all = vec![redis::cmd("MULTI")];
        all.extend(commands);
        all.push(redis::cmd("EXEC"));
        Ok(self.send(all).await?.pop() != Some(Value::Nil))
    }
}

fn value(fence: u64, instance: &str) -> String {
    format!("{fence} {instance}")
}

/// Parses the value of a lease or a fence. Returns `None` if the key does not exist, or if its value has another form.
fn mark(reply: &Value) -> Option<(u64, String)> {
    let text = bytes(reply.clone()).ok()?;
    let (fence, instance) = std::str::from_utf8(&text).ok()?.split_once(' ')?;
    Some((fence.parse().ok()?, instance.to_owned()))
}

fn lease_left(reply: Value) -> Result<Duration, Error> {
    Ok(u64::try_from(integer(reply)?).map_or(Duration::ZERO, Duration::from_millis))
}

fn five(replies: Vec<Value>) -> Result<[Value; 5], Error> {
    replies.try_into().map_err(|_| unexpected_reply("five replies"))
}
