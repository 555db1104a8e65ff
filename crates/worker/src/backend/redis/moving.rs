//! Moves a group, unless it has moved since the caller looked.
//!
//! A script compares and moves in one step. On a server without scripts, such as Millstream's own, a transaction does:
//! WATCH lets it fail if the stream changes after the comparison. WATCH needs a connection of its own. Any change of
//! the stream lets the transaction fail, so on a busy stream it is tried again, and in the end the group is moved
//! without it.

use redis::Value;

use super::super::{Error, ErrorKind, Start, StreamId};
use super::Redis;
use super::commands::{self, command};
use super::connection::Link;
use super::errors::{from_redis, missing_key_is_no_group};
use super::probe::Feature;
use super::reply::{array, count, group_info};
use super::scripts;

/// Number of transactions that are tried while the stream keeps changing.
const TRANSACTIONS_MAX: usize = 20;

impl Redis {
    /// Moves the group if its position is `from`. Returns false if it has another position.
    pub(super) async fn move_unless_moved(
        &self,
        stream: &str,
        group: &str,
        from: StreamId,
        start: Start,
    ) -> Result<bool, Error> {
        let target = commands::start_id(start);
        if self.has(Feature::Scripts, stream).await? {
            let arguments = (group, from.to_string(), target);
            let reply = scripts::MOVE_GROUP.run(self, &[stream], arguments).await;
            return match reply.map_err(missing_key_is_no_group)? {
                Value::Nil => Err(no_group(stream, group)),
                moved => Ok(count(moved)? == 1),
            };
        }
        if matches!(self.connection.link, Link::Server(_)) {
            for _ in 0..TRANSACTIONS_MAX {
                if let Some(moved) = self.move_in_transaction(stream, group, from, &target).await? {
                    return Ok(moved);
                }
            }
        }
        let groups = self.connection.command(stream, command!("XINFO", "GROUPS", stream)).await;
        if position(groups.map_err(missing_key_is_no_group)?, stream, group)? != from {
            return Ok(false);
        }
        let set = command!("XGROUP", "SETID", stream, group, target);
        self.connection.command(stream, set).await.map_err(missing_key_is_no_group)?;
        Ok(true)
    }

    /// Compares and moves in a transaction. `None` if the stream changed in between.
    async fn move_in_transaction(
        &self,
        stream: &str,
        group: &str,
        from: StreamId,
        target: &str,
    ) -> Result<Option<bool>, Error> {
        let connection = self.blocking.take_server().await.map_err(from_redis)?;
        let run = async |command: redis::Cmd| {
            let reply = connection.clone().command(&command).await.and_then(Value::extract_error);
            self.connection.explained(&command, reply)
        };
        run(command!("WATCH", stream)).await?;
        let groups = run(command!("XINFO", "GROUPS", stream)).await.map_err(missing_key_is_no_group)?;
        if position(groups, stream, group)? != from {
            return Ok(Some(false));
        }
        run(redis::cmd("MULTI")).await?;
        run(command!("XGROUP", "SETID", stream, group, target)).await?;
        let executed = run(redis::cmd("EXEC")).await?;
        Ok((executed != Value::Nil).then_some(true))
    }
}

fn position(groups: Value, stream: &str, group: &str) -> Result<StreamId, Error> {
    for found in array(groups)? {
        let found = group_info(found)?;
        if found.name == group {
            return Ok(found.last_delivered);
        }
    }
    Err(no_group(stream, group))
}

fn no_group(stream: &str, group: &str) -> Error {
    Error::new(ErrorKind::NoGroup, format!("stream {stream} has no group {group}"))
}
