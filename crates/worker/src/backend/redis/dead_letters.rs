//! Moves pending entries to dead-letter streams: with a script, or in steps if the server has no scripts or the dead
//! letter has too many fields for one.

use redis::Value;

use crate::names::retry_key;

use super::super::{
    AddOptions, ChangeStore, Consumer, Error, ErrorKind, NewDeadLetter, PendingFilter, SettleMessages,
    StreamId,
};
use super::commands::{self, Id, command};
use super::probe::Feature;
use super::reply::{array, count, entries, id, text};
use super::{Redis, scripts};

/// Maximum number of fields, of all dead letters together, in one script. More would overflow the Lua stack.
const FIELDS_PER_SCRIPT: usize = 1000;

impl Redis {
    /// Adds dead letters and acknowledges the entries they come from: many per script, or one by one in steps.
    pub(super) async fn dead_letter_all(
        &self,
        consumer: Consumer<'_>,
        dead_letters: &[NewDeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        let has_scripts = self.has(Feature::Scripts, consumer.stream).await?;
        let fits =
            |dead_letter: &&NewDeadLetter| has_scripts && dead_letter.fields.len() <= FIELDS_PER_SCRIPT;
        let (small, others): (Vec<&NewDeadLetter>, Vec<&NewDeadLetter>) = dead_letters.iter().partition(fits);
        let mut moved = Vec::with_capacity(dead_letters.len());
        let mut rest = small.as_slice();
        while !rest.is_empty() {
            let mut fields = 0;
            let fit = rest.iter().take_while(|dead_letter| {
                fields += dead_letter.fields.len();
                fields <= FIELDS_PER_SCRIPT
            });
            let (chunk, later) = rest.split_at(fit.count());
            moved.extend(self.dead_letter_by_script(consumer, chunk).await?);
            rest = later;
        }
        for dead_letter in others {
            if self.dead_letter_in_steps(consumer, dead_letter).await? {
                moved.push(dead_letter.origin);
            }
        }
        Ok(moved)
    }

    async fn dead_letter_by_script(
        &self,
        Consumer { stream, group, name }: Consumer<'_>,
        dead_letters: &[&NewDeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        let records = retry_key(stream, group);
        let mut keys = vec![stream, &records];
        keys.extend(dead_letters.iter().map(|dead_letter| dead_letter.to.as_str()));
        let mut rows = Vec::with_capacity(dead_letters.len());
        for dead_letter in dead_letters {
            let fields: Vec<_> =
                dead_letter.fields.iter().map(|(field, value)| (&**field, &**value)).collect();
            rows.push((Id(dead_letter.origin), 2 * fields.len(), fields));
        }
        let reply = scripts::DEAD_LETTER.run(self, &keys, (group, name, rows)).await?;
        array(reply)?.into_iter().map(id).collect()
    }

    /// Moves one entry without a script. Returns false if the entry is no longer pending for the consumer.
    ///
    /// 1. Extend the lease. This checks that the consumer owns the entry, and keeps others from claiming it.
    /// 2. Add the dead letter, acknowledge the entry and delete its retry record in one transaction.
    async fn dead_letter_in_steps(
        &self,
        consumer: Consumer<'_>,
        dead_letter: &NewDeadLetter,
    ) -> Result<bool, Error> {
        let Consumer { stream, group, .. } = consumer;
        let is_ours = !self.extend(consumer, &[dead_letter.origin]).await?.is_empty();
        if !is_ours && self.entry_status(stream, group, dead_letter.origin).await? != (true, false) {
            return Ok(false);
        }
        // A transaction does not roll back: check now what could make the XADD fail.
        let kind = self.connection.command(&dead_letter.to, command!("TYPE", &dead_letter.to)).await?;
        if !matches!(&*text(kind)?, "none" | "stream") {
            let message =
                format!("cannot add dead letters to {}: the key exists and is not a stream", dead_letter.to);
            return Err(Error::new(ErrorKind::WrongType, message));
        }
        let add = commands::add(&dead_letter.to, "*", &dead_letter.fields, None, AddOptions::default());
        let acknowledge = commands::acknowledge(stream, group, &[dead_letter.origin]);
        let forget = commands::forget(stream, group, &[dead_letter.origin]);
        let mut replies =
            self.connection.transaction(stream, vec![add, acknowledge, forget]).await?.into_iter();
        let (Some(added), Some(acknowledged)) = (replies.next(), replies.next()) else {
            return Err(super::errors::unexpected_reply("two replies"));
        };
        let added = id(added)?;
        if count(acknowledged)? > 0 {
            return Ok(true);
        }
        // Another call acknowledged the entry first: remove the dead letter again.
        self.delete_entries(&dead_letter.to, &[added]).await?;
        Ok(false)
    }

    /// Returns whether an entry is pending in a group, and whether the stream still has it.
    pub(super) async fn entry_status(
        &self,
        stream: &str,
        group: &str,
        id: StreamId,
    ) -> Result<(bool, bool), Error> {
        let commands =
            vec![commands::pending(stream, group, &PendingFilter::single(id)), commands::entry(stream, id)];
        let mut replies = self.connection.pipeline(stream, commands).await?.into_iter();
        let mut next = || replies.next().unwrap_or(Value::Nil);
        Ok((!array(next())?.is_empty(), !entries(next())?.is_empty()))
    }
}
