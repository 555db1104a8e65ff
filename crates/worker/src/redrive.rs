//! Redrives dead letters: returns their messages to the group that gave up on them, or adds them to the stream again.
//!
//! A dead letter is deleted only after its message has been redriven, so an interrupted redrive loses nothing. The next
//! redrive may then redrive the last few messages a second time. To stop a redrive, drop its future.
//!
//! A dead letter names the stream that its message comes from, but anybody who can add to the dead-letter stream can
//! write any name. So a redrive returns messages to one stream only, which the caller knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::backend::{
    Acknowledgement, Admin, Backend, Error, ErrorKind, IdOrder, Idempotence, NewEntry, Range, StreamId,
};
use crate::dead_letter::{self, DeadLetter};
use crate::message::Message;
use crate::names;
use crate::outcome::Reason;

/// Number of dead letters to read per call.
const PAGE_SIZE: usize = 256;
/// How long the store remembers that a message was redriven.
const REDRIVE_KEY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum number of redrives that are counted per message. Further redrives work but are not counted.
const REDRIVES_COUNTED_MAX: u64 = 16;

/// Which dead letters to redrive, where to, and how fast.
#[derive(Clone, Debug, Default)]
pub struct Redrive {
    /// The stream to which messages are returned. Dead letters of other streams are skipped.
    ///
    /// `None` means the stream whose default dead-letter stream is redriven (see [`names::dead_letters_of`]).
    pub stream: Option<String>,
    /// Which dead letters to redrive.
    pub filter: Filter,
    /// Where the messages go.
    pub to: Destination,
    /// Maximum number of messages per second. `None` means unlimited.
    pub rate: Option<f64>,
    /// Maximum number of messages in total. Dead letters that cannot be redriven do not count.
    pub limit: Option<u64>,
    /// Only count the dead letters, without changing anything.
    pub dry_run: bool,
}

impl Redrive {
    /// Whether messages of `stream` are returned to it when this dead-letter stream is redriven.
    pub fn returns_to(&self, stream: &str, dead_letters: &str) -> bool {
        match &self.stream {
            Some(wanted) => wanted == stream,
            None => names::dead_letters_of(stream) == dead_letters,
        }
    }
}

/// Where redriven messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// To the group that gave up on the message. Other groups do not receive it again.
    #[default]
    Group,
    /// To the end of the stream, as a new entry for all groups.
    AllGroups,
}

/// Selects dead letters. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only dead letters of this group.
    pub group: Option<String>,
    /// Only dead letters with this reason.
    pub reason: Option<Reason>,
    /// Only dead letters whose error message or error type contains this text.
    pub error: Option<String>,
    /// Only dead letters with these ids: their own, or those of the original entries.
    pub ids: Option<BTreeSet<StreamId>>,
    /// Only messages dead-lettered at least this long ago.
    pub older_than: Option<Duration>,
    /// Only messages dead-lettered at most this long ago.
    pub newer_than: Option<Duration>,
}

impl Filter {
    /// Returns whether a dead letter meets all conditions.
    pub fn matches(&self, dead_letter: &DeadLetter, now: SystemTime) -> bool {
        let age = now.duration_since(dead_letter.dead_at).unwrap_or_default();
        self.group.as_ref().is_none_or(|group| *group == dead_letter.group)
            && self.reason.is_none_or(|reason| dead_letter.reason == Some(reason))
            && self.error.as_ref().is_none_or(|text| {
                dead_letter.error.contains(text.as_str()) || dead_letter.error_type.contains(text.as_str())
            })
            && self
                .ids
                .as_ref()
                .is_none_or(|ids| ids.contains(&dead_letter.id) || ids.contains(&dead_letter.origin))
            && self.older_than.is_none_or(|least| age >= least)
            && self.newer_than.is_none_or(|most| age <= most)
    }
}

/// The progress of a redrive, as counts of dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Dead letters in the stream when the redrive started.
    pub total: u64,
    /// Dead letters examined so far.
    pub scanned: u64,
    /// Dead letters that match the filter, as far as they were processed.
    pub matched: u64,
    /// Messages redriven.
    pub redriven: u64,
    /// Dead letters not redriven because the original entry is no longer in its stream. They are kept.
    pub gone: u64,
    /// The part of `gone` whose payload is lost too. The rest can still be redriven to all groups.
    pub payload_gone: u64,
    /// Dead letters not redriven because their group does not exist. They are kept. To redrive them, recreate the group
    /// or redrive to all groups.
    pub no_group: u64,
    /// Dead letters not redriven because they name another stream. They are kept.
    pub other_stream: u64,
    /// Entries of the dead-letter stream that are not dead letters.
    pub foreign: u64,
}

impl Progress {
    /// Returns the number of matching dead letters that were redriven, or would be in a dry run.
    pub fn redrivable(&self) -> u64 {
        self.matched - self.skipped()
    }

    /// Returns the number of matching dead letters that were not redriven, for any reason.
    pub fn skipped(&self) -> u64 {
        self.gone + self.no_group + self.other_stream
    }

    fn count_skipped(&mut self, reason: SkipReason) {
        match reason {
            SkipReason::EntryGone => self.gone += 1,
            SkipReason::PayloadGone => {
                self.gone += 1;
                self.payload_gone += 1;
            }
            SkipReason::NoGroup => self.no_group += 1,
            SkipReason::OtherStream => self.other_stream += 1,
        }
    }
}

/// Why a dead letter cannot be redriven.
#[derive(Clone, Copy)]
enum SkipReason {
    EntryGone,
    PayloadGone,
    NoGroup,
    OtherStream,
}

/// Redrives dead letters, oldest first. Calls `on_progress` at the start and after every few messages.
///
/// Ignores dead letters that are added during the redrive. Otherwise a message that fails again immediately would be
/// redriven in an endless loop.
pub async fn redrive(
    backend: &dyn Admin,
    dead_letters: &str,
    request: &Redrive,
    mut on_progress: impl FnMut(&Progress),
) -> Result<Progress, Error> {
    let mut progress = Progress::default();
    let Some(info) = backend.stream(dead_letters).await? else { return Ok(progress) };
    progress.total = info.length;
    on_progress(&progress);
    let mut redriver = Redriver { backend, dead_letters, request, groups: BTreeMap::new() };
    let mut limiter = RateLimiter::new(request.rate);
    let mut from = StreamId::MIN;
    loop {
        let range = Range { first: from, last: info.last_id, order: IdOrder::Ascending, count: PAGE_SIZE };
        let page = backend.range(dead_letters, range).await?;
        let Some(last) = page.last().map(|entry| entry.id) else { break };
        let now = SystemTime::now();
        let mut matching = Vec::new();
        for entry in &page {
            progress.scanned += 1;
            match DeadLetter::read(entry) {
                Some(dead_letter) if request.filter.matches(&dead_letter, now) => matching.push(dead_letter),
                Some(_) => {}
                None => progress.foreign += 1,
            }
        }
        let mut rest = matching.as_slice();
        loop {
            let remaining =
                request.limit.map_or(u64::MAX, |limit| limit.saturating_sub(progress.redrivable()));
            let remaining = usize::try_from(remaining).unwrap_or(usize::MAX);
            let count = limiter.chunk_size().min(rest.len()).min(remaining);
            if count == 0 {
                break;
            }
            let (chunk, later) = rest.split_at(count);
            rest = later;
            limiter.acquire(chunk.len()).await;
            redriver.redrive_chunk(chunk, &mut progress).await?;
            on_progress(&progress);
        }
        let done = request.limit.is_some_and(|limit| progress.redrivable() >= limit);
        let Some(next) = last.next().filter(|_| !done) else { break };
        from = next;
    }
    on_progress(&progress);
    Ok(progress)
}

/// Redrives messages to their groups or streams.
struct Redriver<'a> {
    backend: &'a dyn Admin,
    /// The name of the dead-letter stream.
    dead_letters: &'a str,
    request: &'a Redrive,
    /// The groups of each original stream, cached when its first dead letter is redriven.
    groups: BTreeMap<String, BTreeSet<String>>,
}

impl Redriver<'_> {
    /// Redrives a few messages and deletes their dead letters. In a dry run, only counts them.
    async fn redrive_chunk(&mut self, chunk: &[DeadLetter], progress: &mut Progress) -> Result<(), Error> {
        let mut redriven = Vec::with_capacity(chunk.len());
        let mut outcome = Ok(());
        for dead_letter in chunk {
            match self.redrive_one(dead_letter).await {
                Ok(skipped) => {
                    progress.matched += 1;
                    match skipped {
                        Some(reason) => progress.count_skipped(reason),
                        None => redriven.push(dead_letter.id),
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        // Delete the dead letters of redriven messages even after an error. Otherwise the next redrive would redrive
        // these messages again.
        if !redriven.is_empty() && !self.request.dry_run {
            self.backend.delete_entries(self.dead_letters, &redriven).await?;
            progress.redriven += redriven.len() as u64;
        }
        outcome
    }

    /// Redrives one message. In a dry run, only checks whether the message can be redriven. Returns `None`, or the
    /// reason for skipping the message.
    async fn redrive_one(&mut self, dead_letter: &DeadLetter) -> Result<Option<SkipReason>, Error> {
        if !self.request.returns_to(&dead_letter.stream, self.dead_letters) {
            return Ok(Some(SkipReason::OtherStream));
        }
        let all_groups = self.request.to == Destination::AllGroups;
        if dead_letter.reason == Some(Reason::PayloadGone) || (all_groups && dead_letter.fields.is_empty()) {
            return Ok(Some(SkipReason::PayloadGone));
        }
        if all_groups {
            if !self.request.dry_run {
                add_to_stream(self.backend, self.dead_letters, dead_letter).await?;
            }
            return Ok(None);
        }
        if !self.has_group(dead_letter).await? {
            return Ok(Some(SkipReason::NoGroup));
        }
        let exists = if self.request.dry_run {
            self.backend
                .range(&dead_letter.stream, Range::single(dead_letter.origin))
                .await
                .map(|found| !found.is_empty())
        } else {
            restore(self.backend, dead_letter).await
        };
        match exists {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(SkipReason::EntryGone)),
            // The group was deleted after `has_group` checked it.
            Err(error) if error.kind() == ErrorKind::NoGroup => Ok(Some(SkipReason::NoGroup)),
            Err(error) => Err(error),
        }
    }

    async fn has_group(&mut self, dead_letter: &DeadLetter) -> Result<bool, Error> {
        if let Some(groups) = self.groups.get(&dead_letter.stream) {
            return Ok(groups.contains(&dead_letter.group));
        }
        let groups: BTreeSet<String> = match self.backend.groups(&dead_letter.stream).await {
            Ok(groups) => groups.into_iter().map(|group| group.name).collect(),
            Err(error) if error.kind() == ErrorKind::NoGroup => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let has = groups.contains(&dead_letter.group);
        self.groups.insert(dead_letter.stream.clone(), groups);
        Ok(has)
    }
}

/// Makes the entry pending again in its group.
///
/// Counts the redrive first: the message may be delivered and fail again immediately.
async fn restore(backend: &dyn Admin, dead_letter: &DeadLetter) -> Result<bool, Error> {
    let (stream, group) = (dead_letter.stream.as_str(), dead_letter.group.as_str());
    let key = names::redrive_key(stream, group, &dead_letter.origin.to_string(), dead_letter.redrives + 1);
    let counted = Acknowledgement { ids: vec![], remember: vec![(key, REDRIVE_KEY_LIFETIME)] };
    backend.acknowledge(stream, group, &counted).await?;
    backend.restore(stream, group, dead_letter.origin).await
}

/// Adds the message to its stream as a new entry, idempotently if the store supports it.
async fn add_to_stream(
    backend: &dyn Admin,
    dead_letters: &str,
    dead_letter: &DeadLetter,
) -> Result<(), Error> {
    let idempotence =
        Idempotence { producer: format!("redrive:{dead_letters}"), iid: dead_letter.id.to_string() };
    let entry = NewEntry { fields: dead_letter.redriven_fields(), idempotence: Some(idempotence) };
    backend.add(&dead_letter.stream, &[entry], None).await?;
    Ok(())
}

/// Returns how often each message was redriven: the greater of its `dlq.redrives` field and
/// the number of its redrive keys in the store.
pub(crate) async fn redrive_counts(backend: &dyn Backend, messages: &[&Message]) -> Result<Vec<u64>, Error> {
    let key = |message: &Message, n| {
        names::redrive_key(&message.stream, &message.group, &message.id.to_string(), n)
    };
    // Most messages were never redriven, so first check only one key for each.
    let first: Vec<String> = messages.iter().map(|message| key(message, 1)).collect();
    let redriven = backend.seen(&first).await?;
    let mut counts = Vec::with_capacity(messages.len());
    for (message, was_redriven) in messages.iter().zip(redriven) {
        let remembered = if was_redriven {
            let keys: Vec<String> = (1..=REDRIVES_COUNTED_MAX).map(|n| key(message, n)).collect();
            backend.seen(&keys).await?.iter().take_while(|seen| **seen).count() as u64
        } else {
            0
        };
        counts.push(remembered.max(dead_letter::redrives_in(message)));
    }
    Ok(counts)
}

/// Spreads messages evenly over time.
struct RateLimiter {
    /// Messages per second. `None` means unlimited.
    rate: Option<f64>,
    next: Instant,
}

impl RateLimiter {
    fn new(rate: Option<f64>) -> RateLimiter {
        RateLimiter { rate: rate.filter(|rate| *rate > 0.0), next: Instant::now() }
    }

    /// Returns the number of messages to send together, so that there are about ten chunks per second.
    fn chunk_size(&self) -> usize {
        // The cast saturates: a rate beyond the range of usize becomes its maximum.
        self.rate.map_or(PAGE_SIZE, |rate| ((rate / 10.0) as usize).clamp(1, PAGE_SIZE))
    }

    /// Waits until this number of messages may be sent.
    async fn acquire(&mut self, messages: usize) {
        let Some(rate) = self.rate else { return };
        tokio::time::sleep_until(self.next).await;
        self.next = self.next.max(Instant::now()) + Duration::from_secs_f64(messages as f64 / rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Entry;
    use crate::message::sample;
    use crate::outcome::Failure;

    fn dead_letter(reason: Reason, error: &str, dead_at: SystemTime) -> DeadLetter {
        let failure = Failure { error: error.into(), error_type: "PayError".into(), reason };
        let dead_letter = dead_letter::compose(&sample(&[]), "dead", &failure, 0, dead_at);
        DeadLetter::read(&Entry { id: StreamId::new(5, 0), fields: dead_letter.fields }).unwrap()
    }

    #[test]
    fn filter_requires_every_condition() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let dead_letter = dead_letter(Reason::Panic, "index out of bounds", now - Duration::from_secs(10));
        let all = Filter {
            group: Some("billing".into()),
            reason: Some(Reason::Panic),
            error: Some("out of".into()),
            ids: Some([StreamId::new(5, 0)].into()),
            older_than: Some(Duration::from_secs(5)),
            newer_than: Some(Duration::from_secs(15)),
        };
        assert!(Filter::default().matches(&dead_letter, now));
        assert!(all.matches(&dead_letter, now));
        let wrong = [
            Filter { group: Some("mail".into()), ..all.clone() },
            Filter { reason: Some(Reason::Decode), ..all.clone() },
            Filter { error: Some("timeout".into()), ..all.clone() },
            Filter { ids: Some([StreamId::new(6, 0)].into()), ..all.clone() },
            Filter { older_than: Some(Duration::from_secs(11)), ..all.clone() },
            Filter { newer_than: Some(Duration::from_secs(9)), ..all.clone() },
        ];
        for filter in wrong {
            assert!(!filter.matches(&dead_letter, now), "{filter:?}");
        }
        let by_origin = Filter { ids: Some([sample(&[]).id].into()), ..Filter::default() };
        assert!(by_origin.matches(&dead_letter, now));
        let by_type = Filter { error: Some("PayError".into()), ..Filter::default() };
        assert!(by_type.matches(&dead_letter, now));
    }

    #[test]
    fn rate_limits_the_chunk_size() {
        assert_eq!(RateLimiter::new(None).chunk_size(), PAGE_SIZE);
        assert_eq!(RateLimiter::new(Some(0.5)).chunk_size(), 1);
        assert_eq!(RateLimiter::new(Some(200.0)).chunk_size(), 20);
        assert_eq!(RateLimiter::new(Some(1e12)).chunk_size(), PAGE_SIZE);
    }
}
