//! Trimming a stream and deleting entries. The plan of a trim says what groups lose.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::operation::{Admins, Done, Effect, OnProgress, Operate, Planned};
use super::plan::{Plan, bound_of};
use crate::backend::{
    Admin, Error, ErrorKind, GroupInfo, IdOrder, PendingFilter, Range, StreamId, StreamInfo, Trim, TrimLimit,
};
use crate::monitor::{Lag, count_after, lag_of};

/// Maximum number of entries, and of pending entries of each group, that a preview reads.
pub const COUNTED_MAX: usize = 10_000;
/// Number of entries or pending entries per call.
const PAGE: usize = 1000;

/// Trims a stream: to its newest entries, or to those from an id on.
#[derive(Clone, Debug)]
pub struct TrimStream {
    /// The name of the stream.
    pub stream: String,
    /// What to keep.
    pub limit: TrimLimit,
    /// Keep entries that a group has not read or not acknowledged.
    pub keep_unread: bool,
}

/// What a trim removes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TrimEffect {
    /// The name of the stream.
    pub stream: String,
    /// Number of its entries.
    pub length: u64,
    /// Number of entries that would be removed.
    #[serde(skip)]
    pub matched: u64,
    /// Whether that number is exact. If not, it is a lower bound.
    pub exact: bool,
    /// The first entry, or the id before which everything is removed. `None` if the entry is too far from both ends.
    #[serde(serialize_with = "id_text")]
    #[schemars(with = "Option<String>")]
    pub first_kept: Option<StreamId>,
    /// Whether entries are kept that a group has not read or not acknowledged.
    pub keep_unread: bool,
    /// What each group loses.
    pub groups: Vec<GroupLoss>,
    /// Number of entries that were removed.
    pub removed: u64,
}

/// What a group loses in a trim. Numbers that are not exact are lower bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GroupLoss {
    /// The name of the group.
    pub group: String,
    /// Number of entries that it has not read.
    pub unread: u64,
    /// Whether that number is exact.
    pub unread_exact: bool,
    /// Number of entries that are pending. `None` if it is not known.
    pub pending: Option<u64>,
    /// Whether that number is exact.
    pub pending_exact: bool,
}

fn id_text<S: Serializer>(id: &Option<StreamId>, serializer: S) -> Result<S::Ok, S::Error> {
    id.map(|id| id.to_string()).serialize(serializer)
}

/// Removes nothing that was added since the plan. The plan is out of date if another group would lose entries, or if
/// the oldest entry is another one.
impl Operate for TrimStream {
    type Effect = TrimEffect;

    async fn plan(&self, backend: &Admins, planned: Option<&str>) -> Planned<TrimEffect> {
        let (backend, stream) = (&**backend, &*self.stream);
        let info = backend.stream(stream).await?;
        let info =
            info.ok_or_else(|| Error::new(ErrorKind::Refused, format!("there is no stream {stream}")))?;
        let groups = backend.groups(stream).await?;
        let cut = match (planned, self.limit) {
            (Some(planned), _) => Some(bound_of(planned)).filter(|cut| *cut > StreamId::MIN),
            (None, TrimLimit::MinId(id)) => Some(id),
            (None, TrimLimit::Length(length)) => first_of_newest(backend, stream, &info, length).await?,
        };
        let effect = effect(backend, &info, &groups, self, cut).await?;
        let losses = effect.groups.iter();
        let losses =
            losses.map(|loss| (&loss.group, loss.unread > 0, loss.pending.is_none_or(|pending| pending > 0)));
        let losses: Vec<_> = losses.collect();
        let seen = ("trim", stream, self.limit, self.keep_unread, effect.matched > 0, losses);
        let digest = Plan::new((), cut.unwrap_or_default(), &seen).digest;
        Ok(Plan::with_digest(effect, digest))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<TrimEffect>,
        _: OnProgress<'_, TrimEffect>,
    ) -> Done<TrimEffect> {
        let cut = Some(bound_of(&plan.digest)).filter(|cut| *cut > StreamId::MIN);
        let limit = cut.map_or(self.limit, TrimLimit::MinId);
        let trim = Trim { limit, exact: true, keep_unread: self.keep_unread };
        let removed = backend.trim(&self.stream, trim).await?;
        Ok(Some(TrimEffect { removed, ..plan.effect }))
    }
}

impl Effect for TrimEffect {
    fn matched(&self) -> u64 {
        self.matched
    }

    fn done(&self) -> u64 {
        self.removed
    }
}

/// Returns the first of the newest `length` entries, or the id after the last one if there are none to keep. `None` if
/// it is more than [`COUNTED_MAX`] entries from both ends.
async fn first_of_newest(
    backend: &dyn Admin,
    stream: &str,
    info: &StreamInfo,
    length: u64,
) -> Result<Option<StreamId>, Error> {
    let (Some(first), Some(last)) = (info.first_entry, info.last_entry) else { return Ok(None) };
    let surplus = info.length.saturating_sub(length);
    if surplus == 0 {
        return Ok(Some(first));
    }
    if length == 0 {
        return Ok(last.next());
    }
    let steps = |count: u64| usize::try_from(count).ok().filter(|count| *count <= COUNTED_MAX);
    match (steps(length), steps(surplus)) {
        (Some(length), _) => nth(backend, stream, IdOrder::Descending, length).await,
        (None, Some(surplus)) => nth(backend, stream, IdOrder::Ascending, surplus + 1).await,
        (None, None) => Ok(None),
    }
}

/// Returns the id of the `n`-th entry from one end of the stream, counting from 1.
async fn nth(backend: &dyn Admin, stream: &str, order: IdOrder, n: usize) -> Result<Option<StreamId>, Error> {
    let (mut left, mut range) = (n, Range { order, ..Range::starting_at(StreamId::MIN, PAGE) });
    loop {
        range.count = PAGE.min(left);
        let page = backend.range(stream, range).await?;
        let Some(last) = page.last().map(|entry| entry.id) else { return Ok(None) };
        left -= page.len();
        if left == 0 {
            return Ok(Some(last));
        }
        let next = if order == IdOrder::Ascending { last.next() } else { last.prev() };
        match (next, order) {
            (None, _) => return Ok(None),
            (Some(next), IdOrder::Ascending) => range.first = next,
            (Some(next), IdOrder::Descending) => range.last = next,
        }
    }
}

async fn effect(
    backend: &dyn Admin,
    info: &StreamInfo,
    groups: &[GroupInfo],
    TrimStream { stream, limit, keep_unread }: &TrimStream,
    cut: Option<StreamId>,
) -> Result<TrimEffect, Error> {
    let needed = if *keep_unread { first_needed(backend, stream, groups).await? } else { None };
    let cut = match (cut, needed) {
        (Some(cut), Some(needed)) => Some(cut.min(needed)),
        (cut, needed) => cut.or(needed),
    };
    let (removed, exact) = match (limit, cut) {
        (_, Some(cut)) => removed_before(backend, stream, info, cut).await?,
        (TrimLimit::Length(length), None) => (info.length.saturating_sub(*length), true),
        (TrimLimit::MinId(_), None) => (0, true),
    };
    let mut losses = Vec::new();
    for group in groups {
        let lag = lag_of(backend, stream, info, group, COUNTED_MAX).await?;
        // All entries that are kept are unread if the first of them is.
        let is_behind = cut.is_none_or(|cut| group.last_delivered < cut);
        let unread =
            if is_behind { lag.count.saturating_sub(info.length.saturating_sub(removed)) } else { 0 };
        let pending = match cut {
            Some(cut) if group.pending > 0 => Some(pending_before(backend, stream, &group.name, cut).await?),
            Some(_) => Some((0, true)),
            None => (group.pending == 0).then_some((0, true)),
        };
        losses.push(GroupLoss {
            group: group.name.clone(),
            unread,
            unread_exact: exact && lag.is_exact(),
            pending: pending.map(|(pending, _)| pending),
            pending_exact: pending.is_some_and(|(_, exact)| exact),
        });
    }
    // A store that checks each entry also removes acknowledged entries after the first that a group needs.
    let exact = exact && needed.is_none();
    Ok(TrimEffect {
        stream: stream.clone(),
        length: info.length,
        matched: removed,
        exact,
        first_kept: cut,
        keep_unread: *keep_unread,
        groups: losses,
        removed: 0,
    })
}

/// Returns the first id that a group has not read or not acknowledged. `None` if there are no groups.
async fn first_needed(
    backend: &dyn Admin,
    stream: &str,
    groups: &[GroupInfo],
) -> Result<Option<StreamId>, Error> {
    let mut needed = Vec::new();
    for group in groups {
        needed.extend(group.last_delivered.next());
        if group.pending > 0 {
            let first = PendingFilter::starting_at(StreamId::MIN, 1);
            needed.extend(backend.pending(stream, &group.name, &first).await?.iter().map(|row| row.id));
        }
    }
    Ok(needed.into_iter().min())
}

/// Counts the entries before an id, from the nearer end of the stream.
async fn removed_before(
    backend: &dyn Admin,
    stream: &str,
    info: &StreamInfo,
    cut: StreamId,
) -> Result<(u64, bool), Error> {
    let Some(before) = cut.prev() else { return Ok((0, true)) };
    let (mut removed, mut first) = (0, StreamId::MIN);
    while removed < COUNTED_MAX as u64 {
        let range = Range { last: before, ..Range::starting_at(first, PAGE) };
        let page = backend.range(stream, range).await?;
        removed += page.len() as u64;
        match page.last().and_then(|entry| entry.id.next()) {
            Some(next) if page.len() == PAGE => first = next,
            _ => return Ok((removed, true)),
        }
    }
    let kept: Lag = count_after(backend, stream, info, before, COUNTED_MAX).await?;
    match kept.is_exact() {
        true => Ok((info.length.saturating_sub(kept.count), true)),
        false => Ok((removed, false)),
    }
}

/// Counts the pending entries of a group before an id.
async fn pending_before(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    cut: StreamId,
) -> Result<(u64, bool), Error> {
    let Some(last) = cut.prev() else { return Ok((0, true)) };
    let (mut found, mut filter) =
        (0, PendingFilter { last, ..PendingFilter::starting_at(StreamId::MIN, PAGE) });
    while found < COUNTED_MAX as u64 {
        let rows = backend.pending(stream, group, &filter).await?;
        found += rows.len() as u64;
        match rows.last().and_then(|row| row.id.next()) {
            Some(next) if rows.len() == PAGE => filter.first = next,
            _ => return Ok((found, true)),
        }
    }
    Ok((found, false))
}

/// Deletes entries.
#[derive(Clone, Debug)]
pub struct DeleteEntries {
    /// The name of the stream.
    pub stream: String,
    /// The ids of the entries.
    pub ids: Vec<StreamId>,
}

/// The deletion of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Deletion {
    /// The name of the stream.
    pub stream: String,
    /// Number of ids that were given.
    pub asked: u64,
    /// The ids of those entries that exist.
    #[serde(skip)]
    pub ids: Vec<StreamId>,
    /// Number of entries that were deleted.
    pub deleted: u64,
}

/// The plan is out of date if one of the entries is gone.
impl Operate for DeleteEntries {
    type Effect = Deletion;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<Deletion> {
        let mut ids = Vec::new();
        for id in &self.ids {
            ids.extend(backend.range(&self.stream, Range::single(*id)).await?.iter().map(|entry| entry.id));
        }
        let asked = self.ids.len() as u64;
        let effect = Deletion { stream: self.stream.clone(), asked, ids, deleted: 0 };
        let seen = ("delete", effect.clone());
        Ok(Plan::new(effect, StreamId::MIN, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<Deletion>,
        _: OnProgress<'_, Deletion>,
    ) -> Done<Deletion> {
        let deleted = backend.delete_entries(&self.stream, &plan.effect.ids).await?;
        Ok(Some(Deletion { deleted, ..plan.effect }))
    }
}

impl Effect for Deletion {
    fn matched(&self) -> u64 {
        self.ids.len() as u64
    }

    fn done(&self) -> u64 {
        self.deleted
    }
}
