//! Groups and their consumers.

use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::super::{ConsumerInfo, Error, ErrorKind, GroupInfo, Start, StreamId};
use super::reply::{array, count, id, pairs, text};
use super::{NOBODY, Redis};

impl Redis {
    pub(super) async fn create_group(&self, stream: &str, group: &str, start: Start) -> Result<bool, Error> {
        let mut command = cmd("XGROUP");
        command.arg("CREATE").arg(stream).arg(group).arg(start_id(start)).arg("MKSTREAM");
        match self.link.command(stream, command).await {
            Ok(_) => Ok(true),
            Err(error) if says(&error, "BUSYGROUP") => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn move_group(&self, stream: &str, group: &str, start: Start) -> Result<(), Error> {
        let mut command = cmd("XGROUP");
        command.arg("SETID").arg(stream).arg(group).arg(start_id(start));
        self.link.command(stream, command).await.map_err(missing_key_is_no_group)?;
        Ok(())
    }

    pub(super) async fn delete_group(&self, stream: &str, group: &str) -> Result<bool, Error> {
        let mut command = cmd("XGROUP");
        command.arg("DESTROY").arg(stream).arg(group);
        match self.link.command(stream, command).await {
            Ok(answer) => Ok(count(answer)? > 0),
            Err(error) if is_missing_key(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn groups(&self, stream: &str) -> Result<Vec<GroupInfo>, Error> {
        match self.link.command(stream, info("GROUPS", stream)).await {
            Ok(answer) => array(answer)?.into_iter().map(group_info).collect(),
            Err(error) if is_missing_key(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn consumers(&self, stream: &str, group: &str) -> Result<Vec<ConsumerInfo>, Error> {
        let mut command = info("CONSUMERS", stream);
        command.arg(group);
        let answer = self.link.command(stream, command).await.map_err(missing_key_is_no_group)?;
        let consumers = array(answer)?.into_iter().map(consumer_info);
        let mut consumers: Vec<ConsumerInfo> = consumers.collect::<Result<_, _>>()?;
        consumers.retain(|consumer| consumer.name != NOBODY);
        consumers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(consumers)
    }

    pub(super) async fn remove_consumer(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        heir: &str,
    ) -> Result<u64, Error> {
        if self.has(|natives| natives.adopt).await? {
            let mut command = cmd("XADOPT");
            command.arg(stream).arg(group).arg(consumer).arg(heir);
            return count(self.link.command(stream, command).await?);
        }
        let answer = self.scripts.remove_consumer.run(self, &[stream], &[&group, &consumer, &heir]).await?;
        count(answer)
    }

    pub(super) async fn remove_empty_consumer(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
    ) -> Result<bool, Error> {
        if !self.has(|natives| natives.adopt).await? {
            let answer =
                self.scripts.remove_empty_consumer.run(self, &[stream], &[&group, &consumer]).await?;
            return Ok(count(answer)? > 0);
        }
        let consumers = self.consumers(stream, group).await?;
        match consumers.iter().find(|found| found.name == consumer) {
            Some(found) if found.pending > 0 => return Ok(false),
            Some(_) => {}
            None => return Ok(true),
        }
        // Should something come at the last moment, an heir of a name that nobody else has keeps it until it is claimed.
        let heir = format!("{consumer}:heir");
        if self.remove_consumer(stream, group, consumer, &heir).await? == 0 {
            let mut command = cmd("XGROUP");
            command.arg("DELCONSUMER").arg(stream).arg(group).arg(&heir);
            self.link.command(stream, command).await?;
        }
        Ok(true)
    }
}

/// `XINFO what stream`.
pub(super) fn info(what: &str, stream: &str) -> Cmd {
    let mut command = cmd("XINFO");
    command.arg(what).arg(stream);
    command
}

/// Whether an error begins with these words.
pub(super) fn says(error: &Error, words: &str) -> bool {
    error.to_string().starts_with(words)
}

pub(super) fn is_missing_key(error: &Error) -> bool {
    says(error, "ERR no such key") || says(error, "ERR The XGROUP subcommand requires the key to exist")
}

fn missing_key_is_no_group(error: Error) -> Error {
    if is_missing_key(&error) { Error::new(ErrorKind::NoGroup, error.to_string()) } else { error }
}

fn start_id(start: Start) -> String {
    match start {
        Start::Beginning => StreamId::MIN.to_string(),
        Start::End => "$".to_owned(),
        Start::After(id) => id.to_string(),
    }
}

fn group_info(value: Value) -> Result<GroupInfo, Error> {
    let mut group = GroupInfo {
        name: String::new(),
        consumers: 0,
        pending: 0,
        last_delivered: StreamId::MIN,
        entries_read: None,
        lag: None,
    };
    for (name, value) in pairs(value)? {
        let known = |value| if matches!(value, Value::Nil) { Ok(None) } else { count(value).map(Some) };
        match &*text(name)? {
            "name" => group.name = text(value)?,
            "consumers" => group.consumers = count(value)?,
            "pending" => group.pending = count(value)?,
            "last-delivered-id" => group.last_delivered = id(value)?,
            "entries-read" => group.entries_read = known(value)?,
            "lag" => group.lag = known(value)?,
            _ => {}
        }
    }
    Ok(group)
}

fn consumer_info(value: Value) -> Result<ConsumerInfo, Error> {
    let mut consumer = ConsumerInfo { name: String::new(), pending: 0, idle: Duration::ZERO, inactive: None };
    for (name, value) in pairs(value)? {
        match &*text(name)? {
            "name" => consumer.name = text(value)?,
            "pending" => consumer.pending = count(value)?,
            "idle" => consumer.idle = Duration::from_millis(count(value)?),
            "inactive" => consumer.inactive = inactive(value)?,
            _ => {}
        }
    }
    Ok(consumer)
}

/// A consumer that never got anything has -1.
fn inactive(value: Value) -> Result<Option<Duration>, Error> {
    Ok(u64::try_from(super::reply::integer(value)?).ok().map(Duration::from_millis))
}
