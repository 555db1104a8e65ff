//! The queues of one shard: who waits under which key, and for what.
//!
//! ```text
//! (db, key) -> Entries: XREAD readers, every one is asked
//!              Group g: XREADGROUP readers, asked while g has undelivered entries; those of them that claim,
//!                       also while something is idle long enough for them
//!              List:    BLPOP readers, asked while the list has values
//! ```
//!
//! A queue has a number, by which its readers find it again without a look at its key.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use smallvec::SmallVec;

use crate::dbkey::{DbKey, DbKeyMap, DbKeyRef};

/// What a reader waits for under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// Entries of a stream.
    Entries,
    /// Entries that this group has not delivered yet.
    Group(Box<[u8]>),
    /// The same, and what is pending in the group and was given back, or has been idle for so long.
    Claim {
        /// The group.
        group: Box<[u8]>,
        /// How long.
        min_idle_ms: u64,
    },
    /// Values of a list.
    List,
}

/// The keys of a blocking command, and what it waits for under each. Most commands name one key.
pub type Interests = SmallVec<[(Box<[u8]>, Interest); 1]>;

/// A reader that waits. Queues know nothing of its command, which runs under locks that they are part of.
pub(crate) struct Reader<C: ?Sized = dyn Any + Send + Sync> {
    /// Readers are served by rising number.
    pub(crate) number: u64,
    /// Where it stands, or stood.
    pub(crate) places: SmallVec<[Place; 1]>,
    pub(crate) command: C,
}

/// A queue, by its number, of a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shard: usize,
    pub(crate) queue: usize,
}

impl Reader {
    /// Sorted and distinct.
    pub(crate) fn shards(&self) -> SmallVec<[usize; 4]> {
        let mut shards: SmallVec<[usize; 4]> = self.places.iter().map(|place| place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

/// Which of a key's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueName<B = Box<[u8]>> {
    Entries,
    Group(B),
    List,
}

/// A [`QueueName`] to look for. Hashes as that does.
type QueueRef<'a> = QueueName<&'a [u8]>;

impl<B> QueueName<B> {
    fn map<'a, C>(&'a self, group: impl FnOnce(&'a B) -> C) -> QueueName<C> {
        match self {
            QueueName::Entries => QueueName::Entries,
            QueueName::Group(name) => QueueName::Group(group(name)),
            QueueName::List => QueueName::List,
        }
    }
}

impl Equivalent<QueueName> for QueueRef<'_> {
    fn equivalent(&self, name: &QueueName) -> bool {
        *self == name.map(|group| &**group)
    }
}

impl Interest {
    /// The queue in which readers with this interest stand.
    fn queue(&self) -> QueueRef<'_> {
        match self {
            Interest::Entries => QueueRef::Entries,
            Interest::Group(group) | Interest::Claim { group, .. } => QueueRef::Group(group),
            Interest::List => QueueRef::List,
        }
    }
}

/// Readers in the order they came, which is that of their numbers.
pub(crate) struct Queue {
    pub(crate) at: DbKey,
    pub(crate) name: QueueName,
    /// Who left before its turn is `None`; never the first, and no more than half of them.
    readers: VecDeque<(u64, Option<Arc<Reader>>)>,
    len: usize,
    /// Those of them that claim, and how long what they claim has been idle.
    claiming: BTreeMap<u64, u64>,
}

impl Queue {
    fn new(at: DbKey, name: QueueName) -> Queue {
        Queue { at, name, readers: VecDeque::new(), len: 0, claiming: BTreeMap::new() }
    }

    /// Whether nobody waits here: it is free to be used for another key.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first reader that came after number `after`.
    pub(crate) fn next(&self, after: Option<u64>) -> Option<&Arc<Reader>> {
        let first = after.map_or(0, |after| self.readers.partition_point(|(number, _)| *number <= after));
        self.readers.range(first..).find_map(|(_, reader)| reader.as_ref())
    }

    /// The first such reader that claims, and for which there is something idle long enough.
    pub(crate) fn next_claiming(
        &self,
        after: Option<u64>,
        has_idle: impl Fn(u64) -> bool,
    ) -> Option<&Arc<Reader>> {
        let mut claiming = self.claiming.range(after.map_or(0, |number| number + 1)..);
        let (number, _) = claiming.find(|(_, min_idle_ms)| has_idle(**min_idle_ms))?;
        self.readers[self.position(*number)?].1.as_ref()
    }

    /// For how long what this reader claims has been idle; `None` if it claims nothing here.
    pub(crate) fn claim_of(&self, number: u64) -> Option<u64> {
        self.claiming.get(&number).copied()
    }

    fn push(&mut self, reader: &Arc<Reader>) {
        debug_assert!(self.readers.back().is_none_or(|(last, _)| *last < reader.number));
        self.readers.push_back((reader.number, Some(Arc::clone(reader))));
        self.len += 1;
    }

    /// False if no such reader stood here.
    fn remove(&mut self, number: u64) -> bool {
        let Some(at) = self.position(number) else { return false };
        if self.readers[at].1.take().is_none() {
            return false;
        }
        self.len -= 1;
        self.claiming.remove(&number);
        while matches!(self.readers.front(), Some((_, None))) {
            self.readers.pop_front();
        }
        if self.readers.len() > 2 * self.len {
            self.readers.retain(|(_, reader)| reader.is_some());
        }
        true
    }

    /// Mostly it is the first that is looked for, or one that was.
    fn position(&self, number: u64) -> Option<usize> {
        let (first, _) = self.readers.front()?;
        match number.checked_sub(*first)? {
            0 => Some(0),
            _ => self.readers.binary_search_by_key(&number, |(number, _)| *number).ok(),
        }
    }
}

/// The waiting readers of one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    /// By number. One without readers is free to be used for another key.
    queues: Vec<Queue>,
    free: Vec<usize>,
    /// The numbers of those that have readers.
    numbers: DbKeyMap<HashMap<QueueName, usize, foldhash::fast::RandomState>>,
}

impl Waiting {
    pub(crate) fn has(&self, db: u32, key: &[u8]) -> bool {
        !self.numbers.is_empty() && self.numbers.contains_key(&DbKeyRef { db, key })
    }

    pub(crate) fn keys_of(&self, db: u32) -> impl Iterator<Item = Box<[u8]>> {
        self.numbers.keys().filter(move |at| at.db == db).map(|at| at.key.clone())
    }

    pub(crate) fn key_count(&self) -> usize {
        self.numbers.len()
    }

    /// How many keys readers of groups wait for: they are woken when the key is deleted, too.
    pub(crate) fn group_key_count(&self) -> usize {
        let of_group = |queue: &QueueName| matches!(queue, QueueName::Group(_));
        self.numbers.values().filter(|queues| queues.keys().any(of_group)).count()
    }

    /// The numbers of a key's queues.
    pub(crate) fn numbers_of(&self, db: u32, key: &[u8]) -> SmallVec<[usize; 4]> {
        self.numbers.get(&DbKeyRef { db, key }).into_iter().flat_map(HashMap::values).copied().collect()
    }

    pub(crate) fn queue(&self, number: usize) -> &Queue {
        &self.queues[number]
    }

    /// The queue for this interest, which somebody is about to join.
    pub(crate) fn queue_for(&mut self, db: u32, key: &[u8], interest: &Interest) -> usize {
        let (at, name) = (DbKeyRef { db, key }, interest.queue());
        match self.numbers.get(&at).and_then(|queues| queues.get(&name)) {
            Some(number) => *number,
            None => self.open(at, name),
        }
    }

    fn open(&mut self, at: DbKeyRef<'_>, name: QueueRef<'_>) -> usize {
        let name = name.map(|group| Box::from(*group));
        let queue = Queue::new(at.into(), name.clone());
        let number = match self.free.pop() {
            Some(number) => {
                self.queues[number] = queue;
                number
            }
            None => {
                self.queues.push(queue);
                self.queues.len() - 1
            }
        };
        self.numbers.entry(at.into()).or_default().insert(name, number);
        number
    }

    pub(crate) fn join(&mut self, queue: usize, interest: &Interest, reader: &Arc<Reader>) {
        let queue = &mut self.queues[queue];
        queue.push(reader);
        if let Interest::Claim { min_idle_ms, .. } = interest {
            queue.claiming.insert(reader.number, *min_idle_ms);
        }
    }

    /// Takes a reader out of a queue. False if it did not stand there, whatever the queue is used for by now.
    pub(crate) fn leave(&mut self, queue: usize, reader: u64) -> bool {
        let left = self.queues[queue].remove(reader);
        if left && self.queues[queue].is_empty() {
            self.close(queue);
        }
        left
    }

    fn close(&mut self, number: usize) {
        // What a name and a long queue took is given back.
        let vacant = Queue::new(DbKeyRef { db: 0, key: &[] }.into(), QueueName::Entries);
        let Queue { at, name, .. } = std::mem::replace(&mut self.queues[number], vacant);
        let at = DbKeyRef { db: at.db, key: &at.key };
        if let Some(queues) = self.numbers.get_mut(&at) {
            queues.remove(&name);
            if queues.is_empty() {
                self.numbers.remove(&at);
            }
        }
        self.free.push(number);
    }

    /// Whether a reader stands in a queue.
    pub(crate) fn holds(&self, queue: usize, reader: u64) -> bool {
        let queue = &self.queues[queue];
        queue.position(reader).is_some_and(|at| queue.readers[at].1.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::Random;

    fn reader(number: u64) -> Arc<Reader> {
        Arc::new(Reader { number, places: SmallVec::new(), command: () })
    }

    #[test]
    fn a_queue_is_an_ordered_set_of_readers_that_keeps_no_room_for_who_left() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let at = DbKeyRef { db: 0, key: b"s" };
            let mut queue = Queue::new(at.into(), QueueName::Entries);
            let mut model = BTreeMap::new();
            for number in 0..400 {
                let any = random.below(number + 1);
                match random.below(3) {
                    0 => assert_eq!(queue.remove(any), model.remove(&any).is_some()),
                    1 if random.below(2) == 0 => {
                        let first = model.pop_first().map(|(first, _)| first);
                        assert_eq!(first.is_some_and(|first| queue.remove(first)), first.is_some());
                    }
                    _ => {
                        queue.push(&reader(number));
                        model.insert(number, ());
                    }
                }
                let next = |after| queue.next(after).map(|reader| reader.number);
                assert_eq!(next(None), model.first_key_value().map(|(first, _)| *first));
                assert_eq!(next(Some(any)), model.range(any + 1..).next().map(|(next, _)| *next));
                assert_eq!(queue.len, model.len());
                assert!(queue.readers.len() <= 2 * queue.len);
            }
        }
    }
}
