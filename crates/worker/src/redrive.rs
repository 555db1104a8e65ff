//! Redrives dead letters: returns their messages to the group that gave up on them, or adds them to the stream again.
//!
//! A dead letter is deleted only after its message has been redriven, so an interrupted redrive loses nothing. The next
//! redrive may then redrive the last few messages a second time. To stop a redrive, drop its future.
//!
//! Dead letters of other programs may name neither the group nor the original entry. If the stream has only one group,
//! it must be the one that gave up on the message; otherwise the caller names the group. If the original entry is
//! unknown or gone, the message is added to the stream as a new entry, unless other groups would receive it too.
//!
//! A dead letter names the stream that its message comes from, but anybody who can add to the dead-letter stream can
//! write any name. So a redrive returns messages to one stream only, which the caller knows.

mod filter;
mod rate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

pub use filter::Filter;

use rate::RateLimiter;
use schemars::JsonSchema;
use serde::Serialize;

use crate::backend::{
    Acknowledgement, Admin, Backend, Error, ErrorKind, IdOrder, Idempotence, NewEntry, Range, StreamId,
};
use crate::dead_letter::{DeadLetter, DeadLetterFormat, FieldMap};
use crate::message::Message;
use crate::names;
use crate::outcome::Reason;

/// Number of dead letters to read per call.
const PAGE_SIZE: usize = 256;
/// How long the store remembers that a message was redriven.
const REDRIVE_KEY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The group in the redrive keys of entries that a redrive to all groups added.
const ALL_GROUPS: &str = "";
/// Maximum number of redrives that are counted per message. Further redrives work but are not counted.
const REDRIVES_COUNTED_MAX: u64 = 16;

/// Which dead letters to redrive, where to, and how fast.
#[derive(Clone, Debug, Default)]
pub struct Redrive {
    /// The stream to which messages are returned. Dead letters of other streams are skipped.
    ///
    /// `None` means the stream whose default dead-letter stream is redriven (see [`names::dead_letters_of`]).
    pub stream: Option<String>,
    /// The fields of dead letters that another program wrote. See [`DeadLetterFormat`].
    pub field_map: Option<FieldMap>,
    /// Which dead letters to redrive. Its group is also the group of dead letters that name none.
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
            None => {
                names::dead_letters_of(stream) == dead_letters
                    || names::origin_of(dead_letters) == Some(stream)
            }
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

/// The progress of a redrive, as counts of dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Progress {
    /// Dead letters in the stream when the redrive started.
    pub total: u64,
    /// Dead letters examined so far.
    #[serde(skip)]
    pub scanned: u64,
    /// Dead letters that match the filter, as far as they were processed.
    #[serde(skip)]
    pub matched: u64,
    /// Messages redriven.
    pub redriven: u64,
    /// Messages of dead letters that match the filter and were, or in a dry run would be, added as new entries.
    pub added: u64,
    /// Dead letters not redriven because the original entry is no longer in its stream. They are kept.
    pub gone: u64,
    /// The part of `gone` whose payload is lost too. The rest can still be redriven to all groups.
    pub payload_gone: u64,
    /// Dead letters not redriven because their group does not exist. They are kept. To redrive them, recreate the group
    /// or redrive to all groups.
    pub no_group: u64,
    /// Dead letters not redriven because they name no group, and the stream has several. They are kept. To redrive
    /// them, name the group in the filter, or redrive to all groups.
    pub unknown_group: u64,
    /// Dead letters not redriven because they name another stream. They are kept.
    pub other_stream: u64,
    /// Entries of the dead-letter stream that are not dead letters.
    pub foreign: u64,
}

impl Progress {
    /// Returns the number of matching dead letters that were redriven, or would be in a dry run.
    pub fn redrivable(&self) -> u64 {
        self.matched.saturating_sub(self.skipped())
    }

    /// Returns the number of matching dead letters that were not redriven, for any reason.
    pub fn skipped(&self) -> u64 {
        self.gone + self.no_group + self.unknown_group + self.other_stream
    }

    /// Returns the sum of the progress of two redrives.
    #[must_use]
    pub fn plus(&self, other: &Progress) -> Progress {
        Progress {
            total: self.total + other.total,
            scanned: self.scanned + other.scanned,
            matched: self.matched + other.matched,
            redriven: self.redriven + other.redriven,
            added: self.added + other.added,
            gone: self.gone + other.gone,
            payload_gone: self.payload_gone + other.payload_gone,
            no_group: self.no_group + other.no_group,
            unknown_group: self.unknown_group + other.unknown_group,
            other_stream: self.other_stream + other.other_stream,
            foreign: self.foreign + other.foreign,
        }
    }

    fn count_skipped(&mut self, reason: SkipReason) {
        match reason {
            SkipReason::EntryGone => self.gone += 1,
            SkipReason::PayloadGone => {
                self.gone += 1;
                self.payload_gone += 1;
            }
            SkipReason::NoGroup => self.no_group += 1,
            SkipReason::UnknownGroup => self.unknown_group += 1,
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
    UnknownGroup,
    OtherStream,
}

/// What happened to a dead letter, or would happen in a dry run.
#[derive(Clone, Copy)]
enum Redriven {
    /// Its entry is pending again in its group.
    Restored,
    /// Its message was added to the stream as a new entry.
    Added,
    Skipped(SkipReason),
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
    let format = DeadLetterFormat::new(dead_letters, request.stream.as_deref(), request.field_map.clone());
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
            match format.read(entry) {
                Some(dead_letter) if request.filter.matches(&dead_letter, now) => matching.push(dead_letter),
                Some(_) => {}
                None => progress.foreign += 1,
            }
        }
        count_redrives(backend, &mut matching).await;
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
                Ok(done) => {
                    progress.matched += 1;
                    progress.added += u64::from(matches!(done, Redriven::Added));
                    match done {
                        Redriven::Skipped(reason) => progress.count_skipped(reason),
                        Redriven::Restored | Redriven::Added => redriven.push(dead_letter.id),
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

    /// Redrives one message. In a dry run, only finds out what would happen.
    async fn redrive_one(&mut self, dead_letter: &DeadLetter) -> Result<Redriven, Error> {
        if !self.request.returns_to(&dead_letter.stream, self.dead_letters) {
            return Ok(Redriven::Skipped(SkipReason::OtherStream));
        }
        if dead_letter.reason == Some(Reason::PayloadGone) {
            return Ok(Redriven::Skipped(SkipReason::PayloadGone));
        }
        if self.request.to == Destination::AllGroups {
            return self.add(dead_letter).await;
        }
        let group = match self.group_of(dead_letter).await? {
            Ok(group) => group,
            Err(reason) => return Ok(Redriven::Skipped(reason)),
        };
        let is_back = match dead_letter.origin {
            Some(origin) => self.restore(dead_letter, &group, origin).await,
            None => Ok(false),
        };
        match is_back {
            Ok(true) => Ok(Redriven::Restored),
            // No other group would receive the new entry.
            Ok(false) if dead_letter.is_foreign && self.groups(&dead_letter.stream).await?.len() == 1 => {
                self.add(dead_letter).await
            }
            Ok(false) => Ok(Redriven::Skipped(SkipReason::EntryGone)),
            // The group was deleted since its name was looked up.
            Err(error) if error.kind() == ErrorKind::NoGroup => Ok(Redriven::Skipped(SkipReason::NoGroup)),
            Err(error) => Err(error),
        }
    }

    /// Returns the group to which the message of a dead letter returns, or why there is none.
    async fn group_of(&mut self, dead_letter: &DeadLetter) -> Result<Result<String, SkipReason>, Error> {
        let named = match dead_letter.group.as_str() {
            "" => self.request.filter.group.clone(),
            group => Some(group.to_owned()),
        };
        let groups = self.groups(&dead_letter.stream).await?;
        Ok(match named {
            Some(group) if groups.contains(&group) => Ok(group),
            Some(_) => Err(SkipReason::NoGroup),
            None => match groups.len() {
                0 => Err(SkipReason::NoGroup),
                1 => groups.first().cloned().ok_or(SkipReason::NoGroup),
                _ => Err(SkipReason::UnknownGroup),
            },
        })
    }

    async fn groups(&mut self, stream: &str) -> Result<&BTreeSet<String>, Error> {
        if !self.groups.contains_key(stream) {
            let groups = match self.backend.groups(stream).await {
                Ok(groups) => groups.into_iter().map(|group| group.name).collect(),
                Err(error) if error.kind() == ErrorKind::NoGroup => BTreeSet::new(),
                Err(error) => return Err(error),
            };
            self.groups.insert(stream.to_owned(), groups);
        }
        Ok(&self.groups[stream])
    }

    /// Makes the original entry pending again in this group. Returns false if it is no longer in the stream.
    async fn restore(&self, dead_letter: &DeadLetter, group: &str, origin: StreamId) -> Result<bool, Error> {
        if self.request.dry_run {
            let found = self.backend.range(&dead_letter.stream, Range::single(origin)).await?;
            return Ok(!found.is_empty());
        }
        restore(self.backend, dead_letter, group, origin).await
    }

    /// Adds the message to its stream as a new entry.
    async fn add(&self, dead_letter: &DeadLetter) -> Result<Redriven, Error> {
        if dead_letter.fields.is_empty() {
            return Ok(Redriven::Skipped(SkipReason::PayloadGone));
        }
        if !self.request.dry_run {
            add_to_stream(self.backend, self.dead_letters, dead_letter).await?;
        }
        Ok(Redriven::Added)
    }
}

/// Makes the entry pending again in its group.
///
/// Counts the redrive first: the message may be delivered and fail again immediately.
async fn restore(
    backend: &dyn Admin,
    dead_letter: &DeadLetter,
    group: &str,
    origin: StreamId,
) -> Result<bool, Error> {
    let stream = dead_letter.stream.as_str();
    let count = dead_letter.redrives.saturating_add(1);
    let key = names::redrive_key(stream, group, &origin.to_string(), count);
    // The message starts again with its first attempt.
    let forget = vec![origin];
    let counted = Acknowledgement { ids: vec![], remember: vec![(key, REDRIVE_KEY_LIFETIME)], forget };
    backend.acknowledge(stream, group, &counted).await?;
    backend.restore(stream, group, origin).await
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
    let added = backend.add(&dead_letter.stream, &[entry], None).await?;
    if dead_letter.is_foreign {
        return Ok(());
    }
    // Any producer can write the field of the new entry, so keys count its redrives.
    let stream = dead_letter.stream.as_str();
    let count = dead_letter.redrives.saturating_add(1).min(REDRIVES_COUNTED_MAX);
    let key = |id: &StreamId, n| names::redrive_key(stream, ALL_GROUPS, &id.to_string(), n);
    let keys = added.iter().flat_map(|id| (1..=count).map(move |n| (key(id, n), REDRIVE_KEY_LIFETIME)));
    let counted = Acknowledgement { ids: vec![], remember: keys.collect(), forget: vec![] };
    backend.acknowledge(stream, &dead_letter.group, &counted).await?;
    Ok(())
}

/// Returns how often each message was redriven: the number of its redrive keys in the store.
pub(crate) async fn redrive_counts(backend: &dyn Backend, messages: &[&Message]) -> Result<Vec<u64>, Error> {
    let entry = |message: &&Message| RedrivenEntry {
        stream: message.stream.to_string(),
        group: message.group.to_string(),
        id: message.id.to_string(),
    };
    remembered_redrives(backend, messages.iter().map(entry).collect()).await
}

/// Raises the number of redrives of each dead letter to the number that the store has recorded.
///
/// A server that dead-letters entries by itself does not know the number. If the store cannot be asked, for example
/// because the user has no permission, the numbers stay as they are.
pub async fn count_redrives(backend: &dyn Backend, dead_letters: &mut [DeadLetter]) {
    let mut known: Vec<&mut DeadLetter> =
        dead_letters.iter_mut().filter(|dead_letter| !dead_letter.is_foreign).collect();
    let entry = |dead_letter: &&mut DeadLetter| RedrivenEntry {
        stream: dead_letter.stream.clone(),
        group: dead_letter.group.clone(),
        id: dead_letter.origin.map(|id| id.to_string()).unwrap_or_default(),
    };
    if let Ok(remembered) = remembered_redrives(backend, known.iter().map(entry).collect()).await {
        for (dead_letter, remembered) in known.iter_mut().zip(remembered) {
            dead_letter.redrives = dead_letter.redrives.max(remembered);
        }
    }
}

/// An entry that was dead-lettered, and the group that gave up on it.
struct RedrivenEntry {
    stream: String,
    group: String,
    id: String,
}

impl RedrivenEntry {
    /// Returns the keys of its `n`-th redrive: to all groups, or to its group alone.
    fn keys(&self, n: u64) -> [String; 2] {
        [ALL_GROUPS, &self.group].map(|group| names::redrive_key(&self.stream, group, &self.id, n))
    }
}

/// Returns the number of redrives of each entry that the store has recorded.
async fn remembered_redrives(backend: &dyn Backend, entries: Vec<RedrivenEntry>) -> Result<Vec<u64>, Error> {
    // Most messages were never redriven, so first check only the first redrive of each.
    let first: Vec<String> = entries.iter().flat_map(|entry| entry.keys(1)).collect();
    let redriven = backend.seen(&first).await?;
    let mut counts = Vec::with_capacity(entries.len());
    for (entry, seen) in entries.iter().zip(redriven.chunks(2)) {
        counts.push(if seen.contains(&true) {
            let keys: Vec<String> = (1..=REDRIVES_COUNTED_MAX).flat_map(|n| entry.keys(n)).collect();
            let seen = backend.seen(&keys).await?;
            seen.chunks(2).take_while(|keys| keys.contains(&true)).count() as u64
        } else {
            0
        });
    }
    Ok(counts)
}
