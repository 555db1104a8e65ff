//! Selects dead letters: where they are, which match a filter, how many there are by reason and by error. Purges and
//! redrives them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;

use super::error_counts::{ErrorCounts, TextCounts};
use super::operation::{Admins, Done, Effect, OnProgress, Operate, Planned};
use super::plan::{Plan, bound_of};
use super::wording::millis_since_epoch;
use crate::backend::{Admin, Error, ErrorKind, IdOrder, Range, StreamId};
use crate::dead_letter::{DeadLetter, DeadLetterFormat, FieldMap};
use crate::monitor::dead_letter_streams;
use crate::names::{self, DEAD_LETTERS_SUFFIX};
use crate::redaction::Redaction;
use crate::redrive::{Filter, Progress, Redrive, redrive};

/// Number of dead letters read per call.
const PAGE: usize = 500;
/// Number of dead letters deleted per call.
const DELETED_AT_ONCE: usize = 1000;

/// A dead-letter stream, and how to read it.
#[derive(Clone, Debug)]
pub struct DeadLetterSource {
    /// Its name.
    pub name: String,
    /// The format of its entries.
    pub format: DeadLetterFormat,
    /// The stream whose dead letters are meant, if other streams may have theirs here too.
    only_of: Option<String>,
}

/// Returns the names that the dead-letter stream of a stream can have, in order of precedence: those that policies
/// name, and the defaults. The name of a dead-letter stream itself stands for that stream.
pub async fn candidates(backend: &dyn Admin, stream: &str) -> Result<Vec<String>, Error> {
    if stream.ends_with(DEAD_LETTERS_SUFFIX) {
        return Ok(vec![stream.to_owned()]);
    }
    let policy = backend.policy(stream, None).await?;
    let mut candidates = dead_letter_streams(stream, policy.as_ref());
    // Other programs do not use a hash tag.
    let untagged = format!("{stream}{DEAD_LETTERS_SUFFIX}");
    if !candidates.contains(&untagged) {
        candidates.push(untagged);
    }
    Ok(candidates)
}

/// Returns those of the candidates that exist, with their lengths.
///
/// All but the first are optional: the user may have access only to the keys that workers use. An error comes with the
/// name of the stream.
pub async fn existing(
    backend: &dyn Admin,
    candidates: &[String],
) -> Result<Vec<(String, u64)>, (String, Error)> {
    let mut found = Vec::new();
    for (at, name) in candidates.iter().enumerate() {
        match backend.stream(name).await {
            Ok(Some(info)) => found.push((name.clone(), info.length)),
            Ok(None) => {}
            Err(error) if at > 0 && error.kind() == ErrorKind::Denied => {}
            Err(error) => return Err((name.clone(), error)),
        }
    }
    Ok(found)
}

impl DeadLetterSource {
    /// Describes a dead-letter stream. `stream` is the stream that the dead letters come from; `None` if the caller
    /// named only the dead-letter stream. `field_map` describes the dead letters of other programs.
    pub fn new(name: &str, stream: Option<&str>, field_map: Option<FieldMap>) -> DeadLetterSource {
        let format = DeadLetterFormat::new(name, stream, field_map);
        let is_shared = |stream: &&str| name != names::dead_letters_of(stream);
        let only_of = stream.filter(is_shared).map(str::to_owned);
        DeadLetterSource { name: name.to_owned(), format, only_of }
    }

    /// Finds the dead-letter stream of a stream: the one that the caller names, or the first that exists. `None` if
    /// there is none.
    pub async fn find(
        backend: &dyn Admin,
        stream: &str,
        named: Option<&str>,
    ) -> Result<Option<DeadLetterSource>, Error> {
        let candidates = match named {
            Some(name) => vec![name.to_owned()],
            None => candidates(backend, stream).await?,
        };
        let found = existing(backend, &candidates).await.map_err(|(_, error)| error)?;
        let origin = (named.is_some_and(|name| name != stream) || !stream.ends_with(DEAD_LETTERS_SUFFIX))
            .then_some(stream);
        Ok(found.first().map(|(name, _)| DeadLetterSource::new(name, origin, None)))
    }

    /// Whether the stream is empty or one of its first entries is a dead letter.
    pub async fn has_dead_letters(&self, backend: &dyn Admin) -> Result<bool, Error> {
        let entries = backend.range(&self.name, Range::starting_at(StreamId::MIN, PAGE)).await?;
        Ok(entries.is_empty() || entries.iter().any(|entry| self.format.read(entry).is_some()))
    }

    /// Returns a dead letter by its own id, or by that of its original entry. Looks at all dead letters.
    pub async fn find_by_id(&self, backend: &dyn Admin, id: StreamId) -> Result<Option<DeadLetter>, Error> {
        let own = backend.range(&self.name, Range::single(id)).await?;
        if let Some(dead_letter) = own.first().and_then(|entry| self.format.read(entry)) {
            return Ok(Some(dead_letter));
        }
        let mut found = None;
        self.for_each(backend, &Filter::default(), |dead_letter| {
            if dead_letter.ids().any(|known| known == id) {
                found = Some(dead_letter);
            }
            found.is_none()
        })
        .await?;
        Ok(found)
    }

    /// Calls `visit` with the dead letters that match, oldest first, until it returns false.
    pub async fn for_each(
        &self,
        backend: &dyn Admin,
        filter: &Filter,
        visit: impl FnMut(DeadLetter) -> bool,
    ) -> Result<(), Error> {
        self.for_each_in(backend, filter, IdOrder::Ascending, visit).await
    }

    /// Calls `visit` with the dead letters that match, in this order, until it returns false.
    pub async fn for_each_in(
        &self,
        backend: &dyn Admin,
        filter: &Filter,
        order: IdOrder,
        mut visit: impl FnMut(DeadLetter) -> bool,
    ) -> Result<(), Error> {
        let whole = Range { order, ..Range::starting_at(StreamId::MIN, usize::MAX) };
        let visit = |_, dead_letter: Option<DeadLetter>| match dead_letter.is_none_or(&mut visit) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        self.scan(backend, filter, whole, visit).await.map(drop)
    }

    /// Calls `visit` with the id of each entry of a range, and with the dead letter if it matches, until it breaks.
    /// Returns whether all entries of the range were visited.
    async fn scan(
        &self,
        backend: &dyn Admin,
        filter: &Filter,
        mut range: Range,
        mut visit: impl FnMut(StreamId, Option<DeadLetter>) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let (now, mut left) = (SystemTime::now(), range.count);
        let is_meant = |of: &str| self.only_of.as_ref().is_none_or(|stream| stream == of);
        loop {
            range.count = PAGE.min(left);
            if range.count == 0 {
                return Ok(false);
            }
            let page = backend.range(&self.name, range).await?;
            left -= page.len();
            for entry in &page {
                let dead_letter = self.format.read(entry);
                let dead_letter = dead_letter
                    .filter(|dead_letter| is_meant(&dead_letter.stream) && filter.matches(dead_letter, now));
                if visit(entry.id, dead_letter).is_break() {
                    return Ok(false);
                }
            }
            let last = page.last().filter(|_| page.len() == range.count).map(|entry| entry.id);
            match (last.and_then(|last| next_after(last, range.order)), range.order) {
                (None, _) => return Ok(true),
                (Some(next), IdOrder::Ascending) => range.first = next,
                (Some(next), IdOrder::Descending) => range.last = next,
            }
        }
    }
}

fn next_after(id: StreamId, order: IdOrder) -> Option<StreamId> {
    if order == IdOrder::Ascending { id.next() } else { id.prev() }
}

/// A page of dead letters, newest first, and counts of all that match.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetterPage {
    /// The dead letters.
    pub dead_letters: Vec<DeadLetter>,
    /// Number of dead letters that match.
    pub matched: u64,
    /// Whether all entries were examined. If not, `matched` and the counts are lower bounds, for the newest entries.
    pub exact: bool,
    /// The id after which the next page begins: it has older dead letters. `None` after the last page.
    pub next: Option<StreamId>,
    /// Those that match, by reason.
    pub by_reason: TextCounts,
    /// Those that match, by error.
    pub by_error: ErrorCounts,
}

impl Default for DeadLetterPage {
    fn default() -> DeadLetterPage {
        let (by_reason, by_error) = Default::default();
        DeadLetterPage { dead_letters: Vec::new(), matched: 0, exact: true, next: None, by_reason, by_error }
    }
}

/// Lists dead letters that are older than `after`, newest first, and counts all that match.
///
/// Examines at most `scan` entries to count, and as many to fill the page. `redaction` applies to the errors that are
/// counted; the dead letters are as they are in the stream.
pub async fn list(
    backend: &dyn Admin,
    source: &DeadLetterSource,
    filter: &Filter,
    after: Option<StreamId>,
    count: usize,
    scan: usize,
    redaction: &Redaction,
) -> Result<DeadLetterPage, Error> {
    let newest_first = Range { order: IdOrder::Descending, ..Range::starting_at(StreamId::MIN, scan) };
    let (mut matched, mut by_reason, mut by_error) = (0, TextCounts::default(), ErrorCounts::default());
    let mut page = PageOf { dead_letters: Vec::new(), count, next: None };
    let exact = source
        .scan(backend, filter, newest_first, |id, dead_letter| {
            if let Some(dead_letter) = &dead_letter {
                matched += 1;
                by_reason.add(reason_of(dead_letter));
                let error =
                    if dead_letter.error.is_empty() { &dead_letter.error_type } else { &dead_letter.error };
                by_error.add(&redaction.mask(error, &dead_letter.fields));
            }
            if after.is_none() {
                let _ = page.add(id, dead_letter);
            }
            ControlFlow::Continue(())
        })
        .await?;
    let complete = match after.map(StreamId::prev) {
        None => exact,
        Some(None) => true,
        Some(Some(last)) => {
            let older = Range { last, ..newest_first };
            source.scan(backend, filter, older, |id, dead_letter| page.add(id, dead_letter)).await?
        }
    };
    let next = page.next.filter(|_| !complete || page.is_full());
    Ok(DeadLetterPage { dead_letters: page.dead_letters, matched, exact, next, by_reason, by_error })
}

/// Collects a page.
struct PageOf {
    dead_letters: Vec<DeadLetter>,
    count: usize,
    /// The last entry that was examined for this page.
    next: Option<StreamId>,
}

impl PageOf {
    fn is_full(&self) -> bool {
        self.dead_letters.len() >= self.count
    }

    fn add(&mut self, id: StreamId, dead_letter: Option<DeadLetter>) -> ControlFlow<()> {
        if self.is_full() {
            return ControlFlow::Break(());
        }
        self.dead_letters.extend(dead_letter);
        self.next = Some(id);
        ControlFlow::Continue(())
    }
}

/// Returns the name of the reason, or the reason as another program wrote it. Empty if there is none.
pub fn reason_of(dead_letter: &DeadLetter) -> &str {
    dead_letter.reason.map_or(&dead_letter.reason_text, |reason| reason.as_str())
}

/// Deletes the dead letters that match a filter.
#[derive(Clone, Debug)]
pub struct PurgeDeadLetters {
    /// Where they are.
    pub source: DeadLetterSource,
    /// Which ones.
    pub filter: Filter,
}

/// The deletion of dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Purge {
    /// The name of the dead-letter stream.
    pub dead_letters: String,
    /// Number of those to delete.
    #[serde(skip)]
    pub matched: u64,
    /// Their ids, until they are deleted.
    #[serde(skip)]
    pub ids: Vec<StreamId>,
    /// Number of those that were deleted.
    pub deleted: u64,
}

/// Dead letters that are newer than the plan are not part of it, and their ages are those at its time.
impl Operate for PurgeDeadLetters {
    type Effect = Purge;

    async fn plan(&self, backend: &Admins, planned: Option<&str>) -> Planned<Purge> {
        let filter = planned.map_or(self.filter.clone(), |planned| as_planned(&self.filter, planned));
        let (filter, mut ids) = (filter.fixed(SystemTime::now()), Vec::new());
        let visit = |dead_letter: DeadLetter| {
            ids.push(dead_letter.id);
            true
        };
        self.source.for_each(&**backend, &filter, visit).await?;
        let bound = ids.last().copied().unwrap_or_default();
        let name = &self.source.name;
        let seen = ("purge", name.clone(), asked(&filter), ids.len(), ids.first().copied());
        let matched = ids.len() as u64;
        let effect = Purge { dead_letters: name.clone(), matched, ids, deleted: 0 };
        Ok(timed_plan(effect, bound, &filter, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<Purge>,
        report: OnProgress<'_, Purge>,
    ) -> Done<Purge> {
        let mut purge = plan.effect;
        let ids = std::mem::take(&mut purge.ids);
        report(&purge);
        for page in ids.chunks(DELETED_AT_ONCE) {
            purge.deleted += backend.delete_entries(&purge.dead_letters, page).await?;
            report(&purge);
        }
        Ok(Some(purge))
    }
}

impl Effect for Purge {
    fn matched(&self) -> u64 {
        self.matched
    }

    fn done(&self) -> u64 {
        self.deleted
    }

    fn takes_long(&self) -> bool {
        true
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.dead_letters)
    }

    fn add(&mut self, other: Purge) {
        self.matched += other.matched;
        self.deleted += other.deleted;
    }
}

/// Returns the messages of dead letters to their groups or streams.
#[derive(Clone, Debug)]
pub struct RedriveDeadLetters {
    /// The name of the dead-letter stream.
    pub dead_letters: String,
    /// Which dead letters, where to, and how fast.
    pub request: Redrive,
}

/// A redrive of dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RedriveEffect {
    /// The name of the dead-letter stream.
    pub dead_letters: String,
    /// How many there are, and what became of them.
    #[serde(flatten)]
    pub progress: Progress,
}

impl RedriveDeadLetters {
    async fn run(
        &self,
        backend: &Arc<dyn Admin>,
        request: &Redrive,
        report: OnProgress<'_, RedriveEffect>,
    ) -> Result<RedriveEffect, Error> {
        let effect = |progress: &Progress| RedriveEffect {
            dead_letters: self.dead_letters.clone(),
            progress: *progress,
        };
        let done = redrive(&**backend, &self.dead_letters, request, |now| report(&effect(now))).await?;
        Ok(effect(&done))
    }
}

/// Dead letters that are newer than the plan are not part of it, and their ages are those at its time.
impl Operate for RedriveDeadLetters {
    type Effect = RedriveEffect;

    async fn plan(&self, backend: &Admins, planned: Option<&str>) -> Planned<RedriveEffect> {
        let (name, request) = (&*self.dead_letters, &self.request);
        let filter = planned.map_or(request.filter.clone(), |planned| as_planned(&request.filter, planned));
        let last = backend.stream(name).await?.and_then(|info| info.last_entry).unwrap_or_default();
        let bound = filter.through.unwrap_or(last);
        let filter = Filter { through: Some(bound), ..filter.fixed(SystemTime::now()) };
        let dry = Redrive { filter: filter.clone(), rate: None, dry_run: true, ..request.clone() };
        let effect = self.run(backend, &dry, &mut |_| {}).await?;
        let progress = effect.progress;
        let seen = (
            "redrive",
            (name, &request.stream, asked(&filter), request.to, request.limit),
            (progress.matched, progress.added, progress.skipped()),
        );
        Ok(timed_plan(effect, bound, &filter, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<RedriveEffect>,
        report: OnProgress<'_, RedriveEffect>,
    ) -> Done<RedriveEffect> {
        let filter = as_planned(&self.request.filter, &plan.digest);
        let request = Redrive { filter, dry_run: false, ..self.request.clone() };
        self.run(backend, &request, report).await.map(Some)
    }

    fn after(&mut self, earlier: &RedriveEffect) {
        let limit = &mut self.request.limit;
        *limit = limit.map(|limit| limit.saturating_sub(earlier.progress.redrivable()));
    }
}

impl Effect for RedriveEffect {
    fn matched(&self) -> u64 {
        self.progress.matched
    }

    fn expected(&self) -> u64 {
        self.progress.redrivable()
    }

    fn done(&self) -> u64 {
        self.progress.redriven
    }

    fn takes_long(&self) -> bool {
        true
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.dead_letters)
    }

    fn add(&mut self, other: RedriveEffect) {
        self.progress = self.progress.plus(&other.progress);
    }
}

/// Makes a plan whose digest also holds the time of the filter.
fn timed_plan<T>(effect: T, bound: StreamId, filter: &Filter, seen: &impl std::fmt::Debug) -> Plan<T> {
    let plan = Plan::new(effect, bound, seen);
    let at_ms = filter.at.map_or(0, millis_since_epoch);
    Plan { digest: format!("{}.{at_ms}", plan.digest), ..plan }
}

/// Returns what a filter asks for, without the bounds of a plan.
fn asked(filter: &Filter) -> Filter {
    Filter { through: None, at: None, ..filter.clone() }
}

/// Returns the filter with the bounds of an earlier plan, so that it selects the same dead letters.
fn as_planned(filter: &Filter, digest: &str) -> Filter {
    let at_ms = digest.rsplit_once('.').and_then(|(_, at_ms)| at_ms.parse().ok());
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(at_ms.unwrap_or_default()));
    Filter { through: Some(bound_of(digest)), at, ..filter.clone() }
}
