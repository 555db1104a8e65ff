//! Moving messages to the dead letters: by a script where there are some, in steps elsewhere.

use redis::{Cmd, Value};

use super::super::{Admin, Backend, Consumer, DeadLetter, Error, ErrorKind, StreamId};
use super::commands::{self, Id, command};
use super::reply::{array, count, entries, id, text};
use super::{Redis, scripts};

/// A letter with more fields than this does not fit a script's stack.
const FIELDS_PER_SCRIPT: usize = 1000;

impl Redis {
    pub(super) async fn move_letters(
        &self,
        consumer: Consumer<'_>,
        letters: &[DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        let mut moved = Vec::with_capacity(letters.len());
        let mut batch: Vec<&DeadLetter> = Vec::new();
        let mut fields = 0;
        let scripts = self.has(|natives| natives.scripts).await?;
        for letter in letters {
            if !scripts || letter.fields.len() > FIELDS_PER_SCRIPT {
                if self.move_in_steps(consumer, letter).await? {
                    moved.push(letter.origin);
                }
                continue;
            }
            if fields + letter.fields.len() > FIELDS_PER_SCRIPT {
                moved.extend(self.move_by_script(consumer, &batch).await?);
                (batch, fields) = (Vec::new(), 0);
            }
            fields += letter.fields.len();
            batch.push(letter);
        }
        moved.extend(self.move_by_script(consumer, &batch).await?);
        Ok(moved)
    }

    async fn move_by_script(
        &self,
        consumer: Consumer<'_>,
        letters: &[&DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let Consumer { stream, group, name } = consumer;
        let mut keys = vec![stream];
        let mut places = Vec::with_capacity(letters.len());
        for letter in letters {
            let known = keys.iter().skip(1).position(|key| *key == letter.to);
            places.push(known.map_or(keys.len() + 1, |at| at + 2));
            if known.is_none() {
                keys.push(&letter.to);
            }
        }
        let arguments = |mut script: Cmd| {
            script.arg(group).arg(name);
            for (letter, place) in letters.iter().zip(&places) {
                script.arg(Id(letter.origin)).arg(place).arg(2 * letter.fields.len());
                for (field, value) in &letter.fields {
                    script.arg(&**field).arg(&**value);
                }
            }
            script
        };
        let answer = scripts::DEAD_LETTER.run(self, &keys, arguments).await?;
        array(answer)?.into_iter().map(id).collect()
    }

    /// Without a script: extending makes sure that the row is ours and stays so for a while; then the letter is added
    /// and the row acknowledged in one step.
    async fn move_in_steps(&self, consumer: Consumer<'_>, letter: &DeadLetter) -> Result<bool, Error> {
        let Consumer { stream, group, .. } = consumer;
        let is_ours = !self.extend(consumer, &[letter.origin]).await?.is_empty();
        if !is_ours && self.find_row(stream, group, letter.origin).await? != (true, false) {
            return Ok(false);
        }
        // The step must not fail by half.
        let kind = self.link.command(&letter.to, command!("TYPE", &letter.to)).await?;
        if !matches!(&*text(kind)?, "none" | "stream") {
            let message = format!("{} is to take dead letters and is not a stream", letter.to);
            return Err(Error::new(ErrorKind::WrongType, message));
        }
        let add = commands::add(&letter.to, &letter.fields, None, None);
        let acknowledge = commands::acknowledge(stream, group, &[letter.origin]);
        let mut answers = self.link.transaction(stream, vec![add, acknowledge]).await?.into_iter();
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

    /// Whether an entry is pending in a group, and whether the stream still has it.
    pub(super) async fn find_row(
        &self,
        stream: &str,
        group: &str,
        id: StreamId,
    ) -> Result<(bool, bool), Error> {
        let look = vec![commands::pending_row(stream, group, id), commands::entry(stream, id)];
        let mut answers = self.link.pipeline(stream, look).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        Ok((!array(next())?.is_empty(), !entries(next())?.is_empty()))
    }
}
