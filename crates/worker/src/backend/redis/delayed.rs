//! Delayed entries: XADD with a delay and XDELAY, on a server that has them.

use std::borrow::Cow;

use redis::{Cmd, Value};

use super::super::{BackendFuture, Due, Entry, Error, StreamId, no_delays};
use super::Redis;
use super::commands::{Id, Ids, command};
use super::probe::Feature;
use super::reply::{count, entries};

impl Redis {
    /// Returns the id with which XADD delays an entry. Fails if the server cannot delay entries.
    pub(super) async fn delayed_id(&self, stream: &str, due: Due) -> Result<Cow<'static, str>, Error> {
        if !self.has(Feature::Delays, stream).await? {
            return Err(no_delays(&self.location));
        }
        Ok(match due {
            Due::In(delay_ms) => format!("*+{delay_ms}").into(),
            Due::At(due_ms) => format!("*@{due_ms}").into(),
        })
    }

    pub(super) fn list_delayed<'a>(
        &'a self,
        stream: &'a str,
        first: StreamId,
        max_count: usize,
    ) -> BackendFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            let range = command!("XDELAY", "RANGE", stream, Id(first), "+", "COUNT", max_count);
            entries(self.xdelay(stream, range).await?)
        })
    }

    /// Runs XDELAY DEL or XDELAY NOW.
    pub(super) fn change_delayed<'a>(
        &'a self,
        subcommand: &'a str,
        stream: &'a str,
        tickets: &'a [StreamId],
    ) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            if tickets.is_empty() {
                return Ok(0);
            }
            count(self.xdelay(stream, command!("XDELAY", subcommand, stream, Ids(tickets))).await?)
        })
    }

    async fn xdelay(&self, stream: &str, command: Cmd) -> Result<Value, Error> {
        let reply = self.connection.command(stream, command).await;
        reply.map_err(|error| match error.to_string().to_lowercase().contains("unknown command") {
            true => no_delays(&self.location),
            false => error,
        })
    }
}
