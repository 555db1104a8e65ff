//! Adding entries.

use redis::pipe;

use super::super::{Error, NewEntry, StreamId, Trim};
use super::Redis;
use super::reply::id;
use super::request::trim_arguments;

impl Redis {
    pub(super) async fn add(
        &self,
        stream: &str,
        entries: &[NewEntry],
        trim: Option<Trim>,
    ) -> Result<Vec<StreamId>, Error> {
        let once_only = entries.iter().any(|entry| entry.idempotence.is_some())
            && self.has(|natives| natives.idempotence).await?;
        let mut batch = redis::Pipeline::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let size = entry.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            let mut command =
                redis::Cmd::with_capacity(10 + 2 * entry.fields.len(), 64 + stream.len() + size);
            command.arg("XADD").arg(stream);
            if let Some(once) = entry.idempotence.as_ref().filter(|_| once_only) {
                command.arg("IDMP").arg(&once.producer).arg(&once.iid);
            }
            if let Some(trim) = trim.filter(|_| at + 1 == entries.len()) {
                trim_arguments(&mut command, trim);
            }
            command.arg("*");
            for (name, value) in &entry.fields {
                command.arg(&**name).arg(&**value);
            }
            batch.add_command(command);
        }
        let answers = self.link.pipeline(stream, batch).await?;
        answers.into_iter().map(id).collect()
    }

    pub(super) async fn delete_entries(&self, stream: &str, ids: &[StreamId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut command = redis::cmd("XDEL");
        command.arg(stream);
        for id in ids {
            command.arg(super::request::Id(*id));
        }
        super::reply::count(self.link.command(stream, command).await?)
    }

    /// Removes a key that holds a stream, and no other.
    pub(super) async fn delete_stream(&self, stream: &str) -> Result<bool, Error> {
        let mut commands = pipe();
        commands.cmd("XLEN").arg(stream);
        commands.cmd("EXISTS").arg(stream);
        for answer in self.link.pipeline(stream, commands).await? {
            super::reply::checked(answer)?;
        }
        let mut command = redis::cmd("DEL");
        command.arg(stream);
        Ok(super::reply::integer(self.link.command(stream, command).await?)? > 0)
    }
}
