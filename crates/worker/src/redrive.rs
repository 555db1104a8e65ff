//! Another chance for dead letters: back to the group they ended for, or to the whole stream.
//!
//! A letter is deleted only after its message is back, so nothing is lost wherever it stops; a redrive that was cut off
//! may give the last few messages a second time. Dropping the future stops it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::backend::{
    Acknowledgement, Admin, Backend, Error, ErrorKind, Idempotence, NewEntry, Order, Range, StreamId,
};
use crate::dead_letter::{self, Letter};
use crate::message::Message;
use crate::names;
use crate::outcome::Reason;

/// How many letters are read at once.
const PAGE: usize = 256;
/// How long it is remembered that a message was given another chance.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Further chances are given, but no longer counted.
const COUNTED_MAX: u64 = 16;

/// Which dead letters get another chance, where, and how fast.
#[derive(Clone, Debug, Default)]
pub struct Redrive {
    /// Which letters.
    pub filter: Filter,
    /// Where to.
    pub to: Destination,
    /// The most messages in a second.
    pub rate: Option<f64>,
    /// The most messages in all. Letters that stay do not count.
    pub limit: Option<u64>,
    /// Only count what would be done.
    pub dry_run: bool,
}

/// Where messages go back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// To the group that gave up on it; the others have dealt with theirs.
    #[default]
    Group,
    /// To the end of the stream as a new entry, for all of its groups.
    AllGroups,
}

/// Which dead letters. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of this group.
    pub group: Option<String>,
    /// Those that ended for this reason.
    pub reason: Option<Reason>,
    /// Those whose error or type of error contains this text.
    pub error: Option<String>,
    /// These letters, by their ids among the dead letters or in the stream they come from.
    pub ids: Option<BTreeSet<StreamId>>,
    /// Those that ended at least so long ago.
    pub older_than: Option<Duration>,
    /// Those that ended at most so long ago.
    pub newer_than: Option<Duration>,
}

impl Filter {
    /// Whether a letter is meant.
    pub fn matches(&self, letter: &Letter, now: SystemTime) -> bool {
        let age = now.duration_since(letter.dead_at).unwrap_or_default();
        self.group.as_ref().is_none_or(|group| *group == letter.group)
            && self.reason.is_none_or(|reason| letter.reason == Some(reason))
            && self.error.as_ref().is_none_or(|text| {
                letter.error.contains(text.as_str()) || letter.error_type.contains(text.as_str())
            })
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&letter.id) || ids.contains(&letter.origin))
            && self.older_than.is_none_or(|least| age >= least)
            && self.newer_than.is_none_or(|most| age <= most)
    }
}

/// How far a redrive has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many letters there were when it began.
    pub total: u64,
    /// How many were looked at.
    pub looked_at: u64,
    /// How many of these were meant.
    pub matched: u64,
    /// How many are back.
    pub redriven: u64,
    /// How many cannot go back because their entry is gone from the stream; their letters stay.
    pub gone: u64,
    /// How many of these have lost their payload too. The others can still go back to all groups.
    pub payload_gone: u64,
    /// How many cannot go back because their group is gone; their letters stay. They can go back when it is made
    /// again, or to all groups.
    pub no_group: u64,
    /// How many entries were no dead letters of ours.
    pub foreign: u64,
}

impl Progress {
    /// How many of those that were meant can go back, or are back.
    pub fn returning(&self) -> u64 {
        self.matched - self.gone - self.no_group
    }

    fn stay(&mut self, why: Stays) {
        match why {
            Stays::EntryGone => self.gone += 1,
            Stays::PayloadGone => {
                self.gone += 1;
                self.payload_gone += 1;
            }
            Stays::NoGroup => self.no_group += 1,
        }
    }
}

/// Why a letter cannot go back.
#[derive(Clone, Copy)]
enum Stays {
    EntryGone,
    PayloadGone,
    NoGroup,
}

/// Gives dead letters another chance, the oldest first, and tells when it begins and after every few how far it has
/// come.
///
/// Letters that are added meanwhile are left for the next time, so what fails again at once is not driven in circles.
pub async fn redrive(
    backend: &dyn Admin,
    dead_letters: &str,
    request: &Redrive,
    mut tell: impl FnMut(&Progress),
) -> Result<Progress, Error> {
    let mut progress = Progress::default();
    let Some(info) = backend.stream(dead_letters).await? else { return Ok(progress) };
    progress.total = info.length;
    tell(&progress);
    let mut way = Way { backend, dead_letters, request, groups: BTreeMap::new() };
    let mut pace = Pace::new(request.rate);
    let mut from = StreamId::MIN;
    loop {
        let range = Range { first: from, last: info.last_id, order: Order::Rising, count: PAGE };
        let page = backend.range(dead_letters, range).await?;
        let Some(last) = page.last().map(|entry| entry.id) else { break };
        let now = SystemTime::now();
        let mut letters = Vec::new();
        for entry in &page {
            progress.looked_at += 1;
            match Letter::read(entry) {
                Some(letter) if request.filter.matches(&letter, now) => letters.push(letter),
                Some(_) => {}
                None => progress.foreign += 1,
            }
        }
        let mut rest = letters.as_slice();
        loop {
            let room = request.limit.map_or(u64::MAX, |limit| limit.saturating_sub(progress.returning()));
            let step = pace.step().min(rest.len()).min(usize::try_from(room).unwrap_or(usize::MAX));
            if step == 0 {
                break;
            }
            let (few, later) = rest.split_at(step);
            rest = later;
            pace.wait_for(few.len()).await;
            way.take(few, &mut progress).await?;
            tell(&progress);
        }
        let done = request.limit.is_some_and(|limit| progress.returning() >= limit);
        let Some(next) = last.next().filter(|_| !done) else { break };
        from = next;
    }
    tell(&progress);
    Ok(progress)
}

/// The way back for letters.
struct Way<'a> {
    backend: &'a dyn Admin,
    dead_letters: &'a str,
    request: &'a Redrive,
    /// The groups of the streams that letters came from, as they were when first asked for.
    groups: BTreeMap<String, BTreeSet<String>>,
}

impl Way<'_> {
    /// Gives back a few messages, or only counts them, and deletes the letters of those that are back.
    async fn take(&mut self, letters: &[Letter], progress: &mut Progress) -> Result<(), Error> {
        let mut back = Vec::with_capacity(letters.len());
        let mut outcome = Ok(());
        for letter in letters {
            match self.take_one(letter).await {
                Ok(stays) => {
                    progress.matched += 1;
                    match stays {
                        Some(why) => progress.stay(why),
                        None => back.push(letter.id),
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        // Also after an error: what is back must not come again.
        if !back.is_empty() && !self.request.dry_run {
            self.backend.delete_entries(self.dead_letters, &back).await?;
            progress.redriven += back.len() as u64;
        }
        outcome
    }

    /// Why a letter stays, or `None` if its message is back, or would be.
    async fn take_one(&mut self, letter: &Letter) -> Result<Option<Stays>, Error> {
        let all_groups = self.request.to == Destination::AllGroups;
        if letter.reason == Some(Reason::PayloadGone) || (all_groups && letter.fields.is_empty()) {
            return Ok(Some(Stays::PayloadGone));
        }
        if all_groups {
            if !self.request.dry_run {
                add_again(self.backend, self.dead_letters, letter).await?;
            }
            return Ok(None);
        }
        if !self.has_group(letter).await? {
            return Ok(Some(Stays::NoGroup));
        }
        let there = if self.request.dry_run {
            self.backend.range(&letter.stream, Range::one(letter.origin)).await.map(|found| !found.is_empty())
        } else {
            restore(self.backend, letter).await
        };
        match there {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(Stays::EntryGone)),
            // It has just been removed.
            Err(error) if error.kind() == ErrorKind::NoGroup => Ok(Some(Stays::NoGroup)),
            Err(error) => Err(error),
        }
    }

    async fn has_group(&mut self, letter: &Letter) -> Result<bool, Error> {
        if let Some(groups) = self.groups.get(&letter.stream) {
            return Ok(groups.contains(&letter.group));
        }
        let groups: BTreeSet<String> = match self.backend.groups(&letter.stream).await {
            Ok(groups) => groups.into_iter().map(|group| group.name).collect(),
            Err(error) if error.kind() == ErrorKind::NoGroup => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let has = groups.contains(&letter.group);
        self.groups.insert(letter.stream.clone(), groups);
        Ok(has)
    }
}

/// Makes the entry pending again in its group. Counted before, because it may fail again at once.
async fn restore(backend: &dyn Admin, letter: &Letter) -> Result<bool, Error> {
    let (stream, group) = (letter.stream.as_str(), letter.group.as_str());
    let key = names::redrive_key(stream, group, &letter.origin.to_string(), letter.redrives + 1);
    let counted = Acknowledgement { ids: vec![], remember: vec![(key, REMEMBERED)] };
    backend.acknowledge(stream, group, &counted).await?;
    backend.restore(stream, group, letter.origin).await
}

/// Adds the message as a new entry, once only where the store can.
async fn add_again(backend: &dyn Admin, dead_letters: &str, letter: &Letter) -> Result<(), Error> {
    let idempotence = Idempotence { producer: format!("redrive:{dead_letters}"), iid: letter.id.to_string() };
    let entry = NewEntry { fields: letter.revived_fields(), idempotence: Some(idempotence) };
    backend.add(&letter.stream, &[entry], None).await?;
    Ok(())
}

/// How often each message has been given another chance, by its own word or by what is remembered.
pub(crate) async fn redrives_of(backend: &dyn Backend, messages: &[&Message]) -> Result<Vec<u64>, Error> {
    let key = |message: &Message, n| {
        names::redrive_key(&message.stream, &message.group, &message.id.to_string(), n)
    };
    // Most have never had one: one key each is asked first.
    let first: Vec<String> = messages.iter().map(|message| key(message, 1)).collect();
    let driven = backend.seen(&first).await?;
    let mut counts = Vec::with_capacity(messages.len());
    for (message, driven) in messages.iter().zip(driven) {
        let remembered = if driven {
            let keys: Vec<String> = (1..=COUNTED_MAX).map(|n| key(message, n)).collect();
            backend.seen(&keys).await?.iter().take_while(|seen| **seen).count() as u64
        } else {
            0
        };
        counts.push(remembered.max(dead_letter::redrives_in(message)));
    }
    Ok(counts)
}

/// Spreads messages evenly over time.
struct Pace {
    rate: Option<f64>,
    next: Instant,
}

impl Pace {
    fn new(rate: Option<f64>) -> Pace {
        Pace { rate: rate.filter(|rate| *rate > 0.0), next: Instant::now() }
    }

    /// How many to send in one go: about ten times a second.
    fn step(&self) -> usize {
        // A float beyond the range of the integer becomes its greatest value, and `min` follows.
        self.rate.map_or(PAGE, |rate| ((rate / 10.0) as usize).clamp(1, PAGE))
    }

    async fn wait_for(&mut self, messages: usize) {
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

    fn letter(reason: Reason, error: &str, dead_at: SystemTime) -> Letter {
        let failure = Failure { error: error.into(), error_type: "PayError".into(), reason };
        let letter = dead_letter::compose(&sample(&[]), "dead", &failure, 0, dead_at);
        Letter::read(&Entry { id: StreamId::new(5, 0), fields: letter.fields }).unwrap()
    }

    #[test]
    fn every_condition_must_hold() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let letter = letter(Reason::Panic, "index out of bounds", now - Duration::from_secs(10));
        let all = Filter {
            group: Some("billing".into()),
            reason: Some(Reason::Panic),
            error: Some("out of".into()),
            ids: Some([StreamId::new(5, 0)].into()),
            older_than: Some(Duration::from_secs(5)),
            newer_than: Some(Duration::from_secs(15)),
        };
        assert!(Filter::default().matches(&letter, now));
        assert!(all.matches(&letter, now));
        let wrong = [
            Filter { group: Some("mail".into()), ..all.clone() },
            Filter { reason: Some(Reason::Decode), ..all.clone() },
            Filter { error: Some("timeout".into()), ..all.clone() },
            Filter { ids: Some([StreamId::new(6, 0)].into()), ..all.clone() },
            Filter { older_than: Some(Duration::from_secs(11)), ..all.clone() },
            Filter { newer_than: Some(Duration::from_secs(9)), ..all.clone() },
        ];
        for filter in wrong {
            assert!(!filter.matches(&letter, now), "{filter:?}");
        }
        let by_origin = Filter { ids: Some([sample(&[]).id].into()), ..Filter::default() };
        assert!(by_origin.matches(&letter, now));
        let by_type = Filter { error: Some("PayError".into()), ..Filter::default() };
        assert!(by_type.matches(&letter, now));
    }

    #[test]
    fn a_rate_makes_small_steps() {
        assert_eq!(Pace::new(None).step(), PAGE);
        assert_eq!(Pace::new(Some(0.5)).step(), 1);
        assert_eq!(Pace::new(Some(200.0)).step(), 20);
        assert_eq!(Pace::new(Some(1e12)).step(), PAGE);
    }
}
