//! What becomes of pending rows: acknowledged, extended, released, dead-lettered, restored.

use redis::cluster_routing::Slot;
use redis::{Cmd, Pipeline, Value, cmd, pipe};

use super::super::{Acknowledgement, DeadLetter, Error, ErrorKind, Release, StreamId};
use super::link::Link;
use super::look::pending_row;
use super::reply::{array, checked, count, entries, id, integer, text};
use super::request::{Id, millis};
use super::scripts::Argument;
use super::{NOBODY, Redis};

/// The most rows in one script: a script holds up everybody else.
const ROWS_PER_SCRIPT: usize = 500;

/// A letter with more fields than this does not fit a script's stack.
const FIELDS_PER_SCRIPT: usize = 1000;

impl Redis {
    pub(super) async fn acknowledge(
        &self,
        stream: &str,
        group: &str,
        done: &Acknowledgement,
    ) -> Result<u64, Error> {
        let Acknowledgement { ids, remember } = done;
        let ack = (!ids.is_empty()).then(|| ack_command(stream, group, ids));
        if remember.is_empty() {
            let Some(ack) = ack else { return Ok(0) };
            return count(self.link.command(stream, ack).await?);
        }
        let slot = Slot::for_key(stream);
        let is_near = |key: &str| matches!(self.link, Link::Server(_)) || Slot::for_key(key) == slot;
        let mut step = pipe();
        for (key, lifetime) in remember {
            let mut set = cmd("SET");
            set.arg(key).arg(1).arg("PX").arg(millis(*lifetime).max(1));
            if is_near(key) {
                step.add_command(set);
            } else {
                // On another server of the cluster: no common step, so it comes first.
                self.link.command(key, set).await?;
            }
        }
        let acknowledges = ack.is_some();
        if let Some(ack) = ack {
            step.add_command(ack);
        }
        let mut answers = self.in_one_step(stream, step).await?;
        let last = answers.pop().filter(|_| acknowledges);
        answers.into_iter().try_for_each(|answer| checked(answer).map(drop))?;
        last.map_or(Ok(0), count)
    }

    async fn in_one_step(&self, stream: &str, step: Pipeline) -> Result<Vec<Value>, Error> {
        match step.len() {
            0 => Ok(Vec::new()),
            1 => self.link.pipeline(stream, step).await,
            _ => self.link.transaction(stream, step).await,
        }
    }

    pub(super) async fn extend(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        ids: &[StreamId],
    ) -> Result<Vec<StreamId>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        if self.has(|natives| natives.extend).await? {
            let mut command = cmd("XEXTEND");
            command.arg(stream).arg(group).arg(consumer).arg("IDS").arg(ids.len());
            for id in ids {
                command.arg(Id(*id));
            }
            let answers = array(self.link.command(stream, command).await?)?;
            let mut ours = Vec::with_capacity(ids.len());
            for (id, answer) in ids.iter().zip(answers) {
                if integer(answer)? == 1 {
                    ours.push(*id);
                }
            }
            return Ok(ours);
        }
        let mut ours = Vec::with_capacity(ids.len());
        for some in ids.chunks(ROWS_PER_SCRIPT) {
            let some: Vec<Id> = some.iter().copied().map(Id).collect();
            let mut arguments: Vec<&dyn Argument> = vec![&group, &consumer];
            arguments.extend(some.iter().map(|id| id as &dyn Argument));
            for extended in array(self.scripts.extend.run(self, &[stream], &arguments).await?)? {
                ours.push(id(extended)?);
            }
        }
        Ok(ours)
    }

    pub(super) async fn release(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        rows: &[Release],
    ) -> Result<u64, Error> {
        if rows.is_empty() {
            return Ok(0);
        }
        if self.has(|natives| natives.nack).await? {
            return self.release_natively(stream, group, consumer, rows).await;
        }
        let mut released = 0;
        for some in rows.chunks(ROWS_PER_SCRIPT) {
            let some: Vec<(Id, &Release)> = some.iter().map(|row| (Id(row.id), row)).collect();
            let mut arguments: Vec<&dyn Argument> = vec![&group, &consumer, &NOBODY];
            for (id, row) in &some {
                arguments.extend([id as &dyn Argument, &row.delivery, &row.deliveries]);
            }
            released += count(self.scripts.release.run(self, &[stream], &arguments).await?)?;
        }
        Ok(released)
    }

    /// XNACK asks neither whose a row is nor how often it was delivered. Extending asks the first and keeps the row from being
    /// claimed in between; then the second is looked up.
    async fn release_natively(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        rows: &[Release],
    ) -> Result<u64, Error> {
        let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
        let ours = self.extend(stream, group, consumer, &ids).await?;
        let mut rows: Vec<&Release> = rows.iter().filter(|row| ours.contains(&row.id)).collect();
        let mut lookups = pipe();
        for row in &rows {
            lookups
                .cmd("XPENDING")
                .arg(stream)
                .arg(group)
                .arg(Id(row.id))
                .arg(Id(row.id))
                .arg(1)
                .arg(consumer);
        }
        let mut found = Vec::with_capacity(rows.len());
        for answer in self.link.pipeline(stream, lookups).await? {
            let row = array(answer)?.into_iter().next().map(pending_row).transpose()?;
            found.push(row.map(|row| row.deliveries));
        }
        let mut found = found.into_iter();
        rows.retain(|row| found.next().flatten() == Some(row.delivery));
        rows.sort_by_key(|row| row.deliveries);
        let mut batch = pipe();
        for same in rows.chunk_by(|a, b| a.deliveries == b.deliveries) {
            let mut command = nack_command(stream, group, same.iter().map(|row| row.id));
            command.arg("RETRYCOUNT").arg(same[0].deliveries);
            batch.add_command(command);
        }
        let answers = self.link.pipeline(stream, batch).await?;
        answers.into_iter().map(count).sum()
    }

    pub(super) async fn dead_letter(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        letters: &[DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        let mut moved = Vec::with_capacity(letters.len());
        let mut batch: Vec<&DeadLetter> = Vec::new();
        let mut fields = 0;
        let scripts = self.has(|natives| natives.scripts).await?;
        for letter in letters {
            if !scripts || letter.fields.len() > FIELDS_PER_SCRIPT {
                if self.dead_letter_in_steps(stream, group, consumer, letter).await? {
                    moved.push(letter.origin);
                }
                continue;
            }
            if fields + letter.fields.len() > FIELDS_PER_SCRIPT {
                moved.extend(self.dead_letter_by_script(stream, group, consumer, &batch).await?);
                (batch, fields) = (Vec::new(), 0);
            }
            fields += letter.fields.len();
            batch.push(letter);
        }
        moved.extend(self.dead_letter_by_script(stream, group, consumer, &batch).await?);
        Ok(moved)
    }

    async fn dead_letter_by_script(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        letters: &[&DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let mut keys = vec![stream];
        let mut heads = Vec::with_capacity(letters.len());
        for letter in letters {
            let known = keys.iter().skip(1).position(|key| *key == letter.to);
            let place = known.map_or(keys.len() + 1, |at| at + 2);
            if known.is_none() {
                keys.push(&letter.to);
            }
            heads.push((Id(letter.origin), place, 2 * letter.fields.len()));
        }
        let mut arguments: Vec<&dyn Argument> = vec![&group, &consumer];
        for ((origin, place, size), letter) in heads.iter().zip(letters) {
            arguments.extend([origin as &dyn Argument, place as &dyn Argument, size as &dyn Argument]);
            for (name, value) in &letter.fields {
                arguments.extend([name as &dyn Argument, value as &dyn Argument]);
            }
        }
        let answer = self.scripts.dead_letter.run(self, &keys, &arguments).await?;
        array(answer)?.into_iter().map(id).collect()
    }

    /// Without a script: extending makes sure that the row is ours and stays so for a while; then the letter is added
    /// and the row acknowledged in one step.
    async fn dead_letter_in_steps(
        &self,
        stream: &str,
        group: &str,
        consumer: &str,
        letter: &DeadLetter,
    ) -> Result<bool, Error> {
        let is_ours = !self.extend(stream, group, consumer, &[letter.origin]).await?.is_empty();
        if !is_ours && !self.is_pending_and_gone(stream, group, letter.origin).await? {
            return Ok(false);
        }
        // The step must not fail by half.
        let mut kind = cmd("TYPE");
        kind.arg(&letter.to);
        if !matches!(&*text(self.link.command(&letter.to, kind).await?)?, "none" | "stream") {
            let message = format!("{} is to take dead letters and is not a stream", letter.to);
            return Err(Error::new(ErrorKind::WrongType, message));
        }
        let mut step = pipe();
        let mut add = cmd("XADD");
        add.arg(&letter.to).arg("*");
        for (name, value) in &letter.fields {
            add.arg(&**name).arg(&**value);
        }
        step.add_command(add);
        step.add_command(ack_command(stream, group, &[letter.origin]));
        let mut answers = self.link.transaction(stream, step).await?.into_iter();
        let (Some(added), Some(acknowledged)) = (answers.next(), answers.next()) else {
            return Err(super::errors::malformed("two answers"));
        };
        let added = id(added)?;
        if count(acknowledged)? > 0 {
            return Ok(true);
        }
        // Somebody else was done with the row at the same moment: theirs counts.
        self.delete_entries(&letter.to, &[added]).await?;
        Ok(false)
    }

    async fn is_pending_and_gone(&self, stream: &str, group: &str, origin: StreamId) -> Result<bool, Error> {
        let mut look = pipe();
        look.cmd("XPENDING").arg(stream).arg(group).arg(Id(origin)).arg(Id(origin)).arg(1);
        look.cmd("XRANGE").arg(stream).arg(Id(origin)).arg(Id(origin));
        let mut answers = self.link.pipeline(stream, look).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        Ok(!array(next())?.is_empty() && entries(next())?.is_empty())
    }

    pub(super) async fn restore(&self, stream: &str, group: &str, at: StreamId) -> Result<bool, Error> {
        if !self.has(|natives| natives.nack).await? {
            let arguments: [&dyn Argument; 3] = [&group, &NOBODY, &Id(at)];
            return Ok(integer(self.scripts.restore.run(self, &[stream], &arguments).await?)? == 1);
        }
        let mut look = pipe();
        look.cmd("XPENDING").arg(stream).arg(group).arg(Id(at)).arg(Id(at)).arg(1);
        look.cmd("XRANGE").arg(stream).arg(Id(at)).arg(Id(at));
        let mut answers = self.link.pipeline(stream, look).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let is_pending = !array(next())?.is_empty();
        if entries(next())?.is_empty() {
            return Ok(false);
        }
        if !is_pending {
            let mut command = nack_command(stream, group, [at]);
            command.arg("RETRYCOUNT").arg(0).arg("FORCE");
            return Ok(count(self.link.command(stream, command).await?)? > 0);
        }
        Ok(true)
    }

    pub(super) async fn seen(&self, keys: &[String]) -> Result<Vec<bool>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = cmd("MGET");
        get.arg(keys);
        let first = &*keys[0];
        let is_one_slot = || keys.iter().all(|key| Slot::for_key(key) == Slot::for_key(first));
        if matches!(self.link, Link::Server(_)) || is_one_slot() {
            let answers = array(self.link.command(first, get).await?)?;
            return Ok(answers.iter().map(|answer| !matches!(answer, Value::Nil)).collect());
        }
        let mut seen = Vec::with_capacity(keys.len());
        for key in keys {
            let mut exists = cmd("EXISTS");
            exists.arg(key);
            seen.push(integer(self.link.command(key, exists).await?)? > 0);
        }
        Ok(seen)
    }
}

fn ack_command(stream: &str, group: &str, ids: &[StreamId]) -> Cmd {
    let mut command = Cmd::with_capacity(3 + ids.len(), 32 + stream.len() + group.len() + 20 * ids.len());
    command.arg("XACK").arg(stream).arg(group);
    for id in ids {
        command.arg(Id(*id));
    }
    command
}

fn nack_command(
    stream: &str,
    group: &str,
    ids: impl IntoIterator<Item = StreamId, IntoIter: ExactSizeIterator>,
) -> Cmd {
    let ids = ids.into_iter();
    let mut command = cmd("XNACK");
    command.arg(stream).arg(group).arg("SILENT").arg("IDS").arg(ids.len());
    for id in ids {
        command.arg(Id(id));
    }
    command
}
