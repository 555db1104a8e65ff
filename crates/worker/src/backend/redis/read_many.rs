//! Reads of several streams: with one command on a server, by polling on a cluster.
//!
//! One command cannot read streams of different slots. So on a cluster, the backend sends one command for each stream,
//! all those for a node in one round trip, over the connections that other calls use. It does not block: without
//! entries, it polls again after a pause that grows with the number of streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::time::sleep;

use super::super::{Delivery, Error, ErrorKind, Read, ReadMany, StreamRead};
use super::Redis;
use super::commands::{self, millis};
use super::connection::Link;
use super::errors::{from_redis, starts_with};
use super::nodes::Nodes;
use super::probe::Feature;
use super::read::BLOCK_MAX;
use super::reply::{checked, deliveries, only_stream, streams};

/// Pause between two polls of a cluster, for each stream: an idle reader sends at most 5,000 commands per second.
const POLL_PAUSE_PER_STREAM: Duration = Duration::from_micros(200);
/// The shortest and the longest pause between two polls of a cluster.
const POLL_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// Maximum number of commands that are sent to a server in one round trip.
const COMMANDS_PER_CALL: usize = 500;

impl Redis {
    pub(super) async fn read_streams(&self, read: &ReadMany<'_>) -> Result<Vec<StreamRead>, Error> {
        let Some(first) = read.streams.first().filter(|_| read.count > 0) else { return Ok(Vec::new()) };
        let claim_idle = match read.claim_idle {
            Some(idle) if self.read_claims(first).await? => Some(idle),
            _ => None,
        };
        let read = &ReadMany { claim_idle, ..*read };
        match &self.connection.link {
            Link::Cluster(nodes) => self.poll_until_found(nodes, read).await,
            Link::Server(_) => self.read_together(first, read).await,
        }
    }

    /// Reads all streams with one command. If the server refuses it because of one stream, reads each on its own.
    async fn read_together(&self, first: &str, read: &ReadMany<'_>) -> Result<Vec<StreamRead>, Error> {
        let max = self.has(Feature::ReadLimit, first).await?.then_some(read.max);
        let begin = Instant::now();
        loop {
            let left = read.block.unwrap_or_default().saturating_sub(begin.elapsed());
            // A BLOCK of 0 would wait without limit.
            let wait = left.min(BLOCK_MAX).max(Duration::from_millis(1));
            let reply = match read.block {
                Some(_) => {
                    let command = commands::read_groups(read, max, Some(millis(wait)));
                    self.blocking.call(&self.connection, first, &command, wait).await
                }
                None => self.connection.command(first, commands::read_groups(read, max, None)).await,
            };
            let found = match reply {
                Ok(reply) => in_order(reply, read.streams)?,
                Err(error) if is_about_one_stream(&error) => return self.read_each(read).await,
                Err(error) => return Err(error),
            };
            if !found.is_empty() || left <= wait {
                return Ok(found);
            }
        }
    }

    /// Reads each stream on its own, without blocking.
    async fn read_each(&self, read: &ReadMany<'_>) -> Result<Vec<StreamRead>, Error> {
        let mut found = Vec::new();
        for (chunk, streams) in read.streams.chunks(COMMANDS_PER_CALL).enumerate() {
            let commands = streams.iter().map(|stream| commands::read_group(&one_of(read, stream), None));
            let commands: Vec<_> = commands.collect();
            let replies = self.connection.replies(&streams[0], commands.clone()).await?;
            for (at, (reply, command)) in replies.into_iter().zip(&commands).enumerate() {
                let result = self.connection.explained(command, Ok(reply)).and_then(read_of_one);
                found.extend(stream_read(chunk * COMMANDS_PER_CALL + at, result));
            }
        }
        Ok(found)
    }

    /// Polls a cluster until a stream has entries, or cannot be read for a reason that does not pass, or the time is
    /// over.
    async fn poll_until_found(
        &self,
        nodes: &Arc<Nodes>,
        read: &ReadMany<'_>,
    ) -> Result<Vec<StreamRead>, Error> {
        let pause =
            POLL_PAUSE_PER_STREAM.saturating_mul(u32::try_from(read.streams.len()).unwrap_or(u32::MAX));
        let pause = pause.clamp(POLL_PAUSES.0, POLL_PAUSES.1);
        let deadline = Instant::now() + read.block.unwrap_or_default();
        loop {
            let command = |at: usize| commands::read_group(&one_of(read, &read.streams[at]), None);
            let replies = nodes.send_each(read.streams, command).await;
            let found = replies.into_iter().enumerate().filter_map(|(at, reply)| {
                let result = match reply {
                    Ok(reply) => checked(reply).and_then(read_of_one),
                    Err(error) if error.is_io_error() => Err(from_redis(error)),
                    Err(error) => Err(self.connection.explain(&command(at), error)),
                };
                stream_read(at, result)
            });
            let found: Vec<StreamRead> = found.collect();
            let is_worth_returning = |read: &StreamRead| match &read.result {
                Ok(_) => true,
                Err(error) => !error.is_transient(),
            };
            let now = Instant::now();
            if now >= deadline || found.iter().any(is_worth_returning) {
                return Ok(found);
            }
            sleep(pause.min(deadline - now)).await;
        }
    }
}

/// Returns a read of one of the streams that does not block.
fn one_of<'a>(read: &ReadMany<'a>, stream: &'a str) -> Read<'a> {
    let ReadMany { group, consumer, count, claim_idle, .. } = *read;
    Read { stream, group, consumer, count, block: None, claim_idle }
}

fn read_of_one(reply: Value) -> Result<Vec<Delivery>, Error> {
    deliveries(only_stream(reply)?)
}

/// Returns the result for a stream, or `None` if it has no entries.
fn stream_read(stream: usize, result: Result<Vec<Delivery>, Error>) -> Option<StreamRead> {
    let is_empty = result.as_ref().is_ok_and(Vec::is_empty);
    (!is_empty).then_some(StreamRead { stream, result })
}

/// Returns whether a server refuses a read of several streams because of one of them.
fn is_about_one_stream(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoGroup | ErrorKind::WrongType | ErrorKind::Denied)
        || starts_with(error, "UNBLOCKED")
}

/// Returns the entries of each stream in a reply. The server keeps the order of the streams in the command.
fn in_order(reply: Value, names: &[Arc<str>]) -> Result<Vec<StreamRead>, Error> {
    let mut found = Vec::new();
    let mut at = 0;
    for (name, entries) in streams(reply)? {
        let Some(ahead) = names[at..].iter().position(|stream| stream.as_bytes() == &name[..]) else {
            return Err(super::errors::unexpected_reply("the streams in the order of the command"));
        };
        found.extend(stream_read(at + ahead, deliveries(entries)));
        at += ahead + 1;
    }
    Ok(found)
}
