//! Moving messages to the dead letters: by a script where there are some, in steps elsewhere.

use redis::Value;

use super::super::{Admin, Backend, Consumer, DeadLetter, Error, ErrorKind, PendingFilter, StreamId};
use super::commands::{self, Id, command};
use super::reply::{array, count, entries, id, text};
use super::{Redis, scripts};

/// A letter with more fields than this does not fit a script's stack.
const FIELDS_PER_SCRIPT: usize = 1000;

impl Redis {
    /// Adds letters and acknowledges their origins: many in one script, one by one without.
    pub(super) async fn dead_letter_all(
        &self,
        consumer: Consumer<'_>,
        letters: &[DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        let has_scripts = self.has(|natives| natives.scripts).await?;
        let fits = |letter: &&DeadLetter| has_scripts && letter.fields.len() <= FIELDS_PER_SCRIPT;
        let (small, others): (Vec<&DeadLetter>, Vec<&DeadLetter>) = letters.iter().partition(fits);
        let mut moved = Vec::with_capacity(letters.len());
        let mut rest = small.as_slice();
        while !rest.is_empty() {
            let mut fields = 0;
            let fit = rest.iter().take_while(|letter| {
                fields += letter.fields.len();
                fields <= FIELDS_PER_SCRIPT
            });
            let (batch, later) = rest.split_at(fit.count());
            moved.extend(self.dead_letter_by_script(consumer, batch).await?);
            rest = later;
        }
        for letter in others {
            if self.dead_letter_in_steps(consumer, letter).await? {
                moved.push(letter.origin);
            }
        }
        Ok(moved)
    }

    async fn dead_letter_by_script(
        &self,
        Consumer { stream, group, name }: Consumer<'_>,
        letters: &[&DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        let mut keys = vec![stream];
        keys.extend(letters.iter().map(|letter| letter.to.as_str()));
        let mut rows = Vec::with_capacity(letters.len());
        for letter in letters {
            let fields: Vec<_> = letter.fields.iter().map(|(field, value)| (&**field, &**value)).collect();
            rows.push((Id(letter.origin), 2 * fields.len(), fields));
        }
        let answer = scripts::DEAD_LETTER.run(self, &keys, (group, name, rows)).await?;
        array(answer)?.into_iter().map(id).collect()
    }

    /// Without a script: extending makes sure that the row is ours and stays so for a while; then the letter is added
    /// and the row acknowledged in one step.
    async fn dead_letter_in_steps(&self, consumer: Consumer<'_>, letter: &DeadLetter) -> Result<bool, Error> {
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
        let look =
            vec![commands::pending(stream, group, &PendingFilter::one(id)), commands::entry(stream, id)];
        let mut answers = self.link.pipeline(stream, look).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        Ok((!array(next())?.is_empty(), !entries(next())?.is_empty()))
    }
}
