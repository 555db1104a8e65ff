//! Deletes entries that every group has acknowledged: all of them, or those beyond the limit of a producer.
//!
//! If the server has trims that keep what a group still needs (ACKED), it decides for each entry. On other servers a
//! script finds the first entry that a group still needs, and trims the entries before it. Both are atomic: a group
//! that is created meanwhile keeps the entries from its position on.
//!
//! XACKDEL would delete with the acknowledgement. But on Redis 8.2 it takes almost twice as much of the server's time
//! as XACK and a trim of many entries.

use super::super::{Error, PendingFilter, StreamId, Trim, TrimLimit};
use super::Redis;
use super::commands::{self, Id, command};
use super::errors::is_missing_key;
use super::probe::Feature;
use super::reply::{array, count, group_info, pending_row};
use super::scripts;

/// Maximum number of entries that one trim removes. The server executes no other command meanwhile.
const ENTRIES_PER_TRIM: u64 = 10_000;

impl Redis {
    /// Deletes the entries before the first one that a group still needs. With `gaps`, also deletes later ones that
    /// every group has acknowledged, if the server can. Returns the number deleted.
    pub(super) async fn delete_acknowledged(&self, stream: &str, gaps: bool) -> Result<u64, Error> {
        if !self.has(Feature::AckedTrims, stream).await? {
            return self.trim_by_script(stream, ("ALL", "", "=")).await;
        }
        let mut deleted = 0;
        let Some(end) = self.first_needed(stream, gaps).await? else { return Ok(0) };
        loop {
            // Removes whole blocks of entries, which is cheap. The exact trim at the end finds only a few.
            let limit = ("~", Id(end), "LIMIT", ENTRIES_PER_TRIM);
            let trim = command!("XTRIM", stream, "MINID", limit, "ACKED");
            let trimmed = count(self.connection.command(stream, trim).await?)?;
            deleted = trimmed.saturating_add(deleted);
            if trimmed < ENTRIES_PER_TRIM / 2 {
                let exact = command!("XTRIM", stream, "MINID", "=", Id(end), "ACKED");
                return Ok(count(self.connection.command(stream, exact).await?)?.saturating_add(deleted));
            }
        }
    }

    /// Prepares a stream for new entries whose add trims it, and returns the trim that is left for the add.
    ///
    /// A trim that keeps unread entries belongs to the add if the server can do so (ACKED). Otherwise a script trims
    /// first: if it fails, nothing was added yet.
    pub(super) async fn trim_before_adding(
        &self,
        stream: &str,
        entries: usize,
        trim: Option<Trim>,
    ) -> Result<Option<Trim>, Error> {
        match trim {
            Some(limit) if limit.keep_unread && !self.has(Feature::AckedTrims, stream).await? => {
                self.trim_acknowledged(stream, entries, limit).await.map(|_| None)
            }
            trim => Ok(trim),
        }
    }

    /// Trims a stream. Returns the number of entries removed.
    pub(super) async fn trim_now(&self, stream: &str, trim: Trim) -> Result<u64, Error> {
        if trim.keep_unread && !self.has(Feature::AckedTrims, stream).await? {
            return self.trim_acknowledged(stream, 0, trim).await;
        }
        let exactness = commands::exactness_sign(trim);
        let mut command = match trim.limit {
            TrimLimit::Length(length) => command!("XTRIM", stream, "MAXLEN", exactness, length),
            TrimLimit::MinId(id) => command!("XTRIM", stream, "MINID", exactness, Id(id)),
        };
        if trim.keep_unread {
            command.arg("ACKED");
        }
        count(self.connection.command(stream, command).await?)
    }

    /// Trims entries that every group has acknowledged with a script. Leaves room for entries that are added next.
    async fn trim_acknowledged(&self, stream: &str, entries: usize, trim: Trim) -> Result<u64, Error> {
        let exactness = commands::exactness_sign(trim);
        match trim.limit {
            TrimLimit::Length(length) => {
                let length = length.saturating_sub(entries as u64).to_string();
                self.trim_by_script(stream, ("MAXLEN", &length, exactness)).await
            }
            TrimLimit::MinId(id) => self.trim_by_script(stream, ("MINID", &id.to_string(), exactness)).await,
        }
    }

    /// Trims entries that every group has acknowledged, up to a limit. Returns the number trimmed.
    async fn trim_by_script(&self, stream: &str, limit: (&str, &str, &str)) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            let arguments = (ENTRIES_PER_TRIM, limit);
            let trimmed = count(scripts::TRIM_ACKNOWLEDGED.run(self, &[stream], arguments).await?)?;
            total = trimmed.saturating_add(total);
            if trimmed < ENTRIES_PER_TRIM / 2 {
                return Ok(total);
            }
        }
    }

    /// Returns the smallest id that a group has not read or, unless `gaps` is set, has not acknowledged. `None` if
    /// there are no groups.
    async fn first_needed(&self, stream: &str, gaps: bool) -> Result<Option<StreamId>, Error> {
        let groups = match self.connection.command(stream, command!("XINFO", "GROUPS", stream)).await {
            Err(error) if is_missing_key(&error) => return Ok(None),
            reply => array(reply?)?,
        };
        let (mut needed, mut queries) = (Vec::new(), Vec::new());
        for group in groups {
            let group = group_info(group)?;
            needed.extend(group.last_delivered.next());
            if group.pending > 0 && !gaps {
                let first = PendingFilter::starting_at(StreamId::MIN, 1);
                queries.push(commands::pending(stream, &group.name, &first));
            }
        }
        for reply in self.connection.pipeline(stream, queries).await? {
            // If the group was deleted in between, it needs nothing.
            let Ok(rows) = array(reply) else { continue };
            for row in rows {
                needed.push(pending_row(row)?.id);
            }
        }
        Ok(needed.into_iter().min())
    }
}
