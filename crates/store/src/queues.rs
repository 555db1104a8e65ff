//! The queues of blocked readers of one shard. A key can have several queues:
//!
//! ```text
//! (db, key) -> Entries: XREAD readers; an added entry serves all of them
//!              Group g: XREADGROUP readers, served while g has undelivered entries; readers that claim are
//!                       also served while a pending entry has been idle for long enough
//!              List:    BLPOP readers, served while the list has values
//! ```
//!
//! Each queue has a number. A blocked reader stores the numbers of its queues and finds them without a lookup by key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::dbkey::{DbKey, DbKeyMap, DbKeyRef};
use crate::secret::SecretState;
use crate::txn::Txn;

/// What a reader is blocked on at one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// New entries of a stream.
    Entries,
    /// Entries that this group has not delivered yet.
    Group {
        /// The group.
        group: Box<[u8]>,
        /// The consumer that reads.
        consumer: Arc<[u8]>,
    },
    /// Entries that this group has not delivered yet, and pending entries that were released or have been idle for at
    /// least `min_idle_ms`.
    Claim {
        /// The group.
        group: Box<[u8]>,
        /// The consumer that reads.
        consumer: Arc<[u8]>,
        /// Minimum idle time in milliseconds.
        min_idle_ms: u64,
    },
    /// Values of a list.
    List,
}

/// The keys of a blocking command, and what it is blocked on at each of them. Most commands have one key.
pub type Interests = SmallVec<[(Box<[u8]>, Interest); 1]>;

/// The result of running a blocked reader's command again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeResult {
    /// The reader has its result, which may be an error. It is not blocked any more.
    Served,
    /// There is nothing for the reader. It keeps its place in the queues.
    StillBlocked,
}

/// Runs the whole command of a blocked reader again.
type BlockedCommand = Box<dyn FnMut(&mut Txn<'_>) -> ServeResult + Send>;

/// A blocked reader.
pub(crate) struct BlockedReader {
    /// Readers are served in ascending order of this number.
    pub(crate) number: u64,
    /// The consumer that reads, in the queue of a group.
    pub(crate) consumer: Option<Arc<[u8]>>,
    /// The queues that it joined. It may have left them already.
    pub(crate) queues: SmallVec<[QueueId; 1]>,
    pub(crate) command: Mutex<BlockedCommand>,
}

/// Identifies a queue by the number of its shard and its number within the shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueId {
    pub(crate) shard: usize,
    pub(crate) queue: usize,
}

impl BlockedReader {
    /// Returns the numbers of the shards that its queues are in, sorted and distinct.
    pub(crate) fn shards(&self) -> SmallVec<[usize; 4]> {
        let mut shards: SmallVec<[usize; 4]> = self.queues.iter().map(|queue| queue.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

/// The name of a queue among the queues of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueName<B = Box<[u8]>> {
    Entries,
    Group(B),
    List,
}

/// A borrowed [`QueueName`]. It has the same hash.
type QueueNameRef<'a> = QueueName<&'a [u8]>;

impl<B> QueueName<B> {
    fn is_group(&self) -> bool {
        matches!(self, QueueName::Group(_))
    }

    fn map<'a, C>(&'a self, group: impl FnOnce(&'a B) -> C) -> QueueName<C> {
        match self {
            QueueName::Entries => QueueName::Entries,
            QueueName::Group(name) => QueueName::Group(group(name)),
            QueueName::List => QueueName::List,
        }
    }
}

impl Equivalent<QueueName> for QueueNameRef<'_> {
    fn equivalent(&self, name: &QueueName) -> bool {
        *self == name.map(|group| &**group)
    }
}

impl Interest {
    /// Returns the name of the queue for readers with this interest.
    fn queue(&self) -> QueueNameRef<'_> {
        match self {
            Interest::Entries => QueueNameRef::Entries,
            Interest::Group { group, .. } | Interest::Claim { group, .. } => QueueNameRef::Group(group),
            Interest::List => QueueNameRef::List,
        }
    }

    /// Returns the consumer that reads; `None` if the reader does not read as a consumer.
    pub(crate) fn consumer(&self) -> Option<&Arc<[u8]>> {
        match self {
            Interest::Group { consumer, .. } | Interest::Claim { consumer, .. } => Some(consumer),
            Interest::Entries | Interest::List => None,
        }
    }
}

/// A queue of blocked readers, in ascending order of their numbers.
pub(crate) struct Queue {
    pub(crate) key: DbKey,
    pub(crate) name: QueueName,
    /// `None` for a reader that has left. The first item is never `None`, and at most half of the items are.
    readers: VecDeque<(u64, Option<Arc<BlockedReader>>)>,
    /// Number of readers that have not left.
    len: usize,
    /// The numbers of the readers that claim, and the minimum idle time of each, in milliseconds.
    claiming: BTreeMap<u64, u64>,
    /// When a pending entry that waits becomes due and the readers that claim must be served, in Unix milliseconds.
    wake_at_ms: Option<u64>,
}

impl Queue {
    fn new(key: DbKey, name: QueueName) -> Queue {
        Queue { key, name, readers: VecDeque::new(), len: 0, claiming: BTreeMap::new(), wake_at_ms: None }
    }

    /// Returns whether the queue has no readers. Its number can then be reused for another key.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first reader with a number greater than `after`.
    pub(crate) fn next(&self, after: Option<u64>) -> Option<&Arc<BlockedReader>> {
        let first = after.map_or(0, |after| self.readers.partition_point(|(number, _)| *number <= after));
        self.readers.range(first..).find_map(|(_, reader)| reader.as_ref())
    }

    /// Returns the first claiming reader with a number greater than `after` whose minimum idle time `has_idle` accepts.
    pub(crate) fn next_claiming(
        &self,
        after: Option<u64>,
        has_idle: impl Fn(u64) -> bool,
    ) -> Option<&Arc<BlockedReader>> {
        let mut claiming = self.claiming.range(after.map_or(0, |number| number + 1)..);
        let (number, _) = claiming.find(|(_, min_idle_ms)| has_idle(**min_idle_ms))?;
        self.readers[self.position(*number)?].1.as_ref()
    }

    /// Returns the minimum idle time of a reader in milliseconds; `None` if it does not claim.
    pub(crate) fn claim_of(&self, number: u64) -> Option<u64> {
        self.claiming.get(&number).copied()
    }

    /// Returns whether a reader of the queue claims.
    pub(crate) fn has_claiming(&self) -> bool {
        !self.claiming.is_empty()
    }

    /// Returns when the readers that claim must be served, in Unix milliseconds.
    pub(crate) fn wake_at_ms(&self) -> Option<u64> {
        self.wake_at_ms
    }

    /// Returns the consumers that the readers of the queue read as.
    fn consumers(&self) -> impl Iterator<Item = &[u8]> {
        self.readers.iter().filter_map(|(_, reader)| reader.as_ref()?.consumer.as_deref())
    }

    /// Returns the number of the reader that joined last. It may have left.
    fn last(&self) -> Option<u64> {
        self.readers.back().map(|(number, _)| *number)
    }

    fn push(&mut self, reader: &Arc<BlockedReader>) {
        debug_assert!(self.last().is_none_or(|last| last < reader.number));
        self.readers.push_back((reader.number, Some(Arc::clone(reader))));
        self.len += 1;
    }

    /// Removes a reader. Returns false if it is not in the queue.
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

    /// Returns the index of a reader in `readers`. Fast if the reader is the first one or has left, which is usual.
    fn position(&self, number: u64) -> Option<usize> {
        let (first, _) = self.readers.front()?;
        match number.checked_sub(*first)? {
            0 => Some(0),
            _ => self.readers.binary_search_by_key(&number, |(number, _)| *number).ok(),
        }
    }
}

/// The blocked readers of one shard.
#[derive(Default)]
pub(crate) struct BlockedReaders {
    /// The queues by number. An empty queue can be reused for another key.
    queues: Vec<Queue>,
    /// The numbers of the empty queues.
    free: Vec<usize>,
    /// The numbers of the queues that have readers.
    numbers: DbKeyMap<QueuesOfKey>,
    /// Number of queues of group readers.
    group_queues: usize,
    /// The wake times of the queues that have one, in Unix milliseconds, each with the number of its queue.
    wake_times: BTreeSet<(u64, usize)>,
}

/// The numbers of the queues of one key.
type QueuesOfKey = HashMap<QueueName, usize, SecretState>;

fn has_group(queues: &QueuesOfKey) -> bool {
    queues.keys().any(QueueName::is_group)
}

impl BlockedReaders {
    /// Returns whether no readers are blocked on any key.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns whether readers are blocked on a key.
    pub(crate) fn has(&self, db: u32, key: &[u8]) -> bool {
        self.numbers.contains_key(&DbKeyRef { db, key })
    }

    /// Returns the keys of a database that readers are blocked on, and for each key whether group readers are among
    /// them.
    pub(crate) fn keys_of(&self, db: u32) -> impl Iterator<Item = (&[u8], bool)> {
        let of_db = self.numbers.iter().filter(move |(at, _)| at.db == db);
        of_db.map(|(at, queues)| (&*at.key, has_group(queues)))
    }

    /// Returns whether group readers are blocked on any key.
    pub(crate) fn has_group_readers(&self) -> bool {
        self.group_queues > 0
    }

    /// Returns the number of keys that readers are blocked on.
    pub(crate) fn key_count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of keys that group readers are blocked on. Deleting such a key also wakes its readers.
    pub(crate) fn group_key_count(&self) -> usize {
        if !self.has_group_readers() {
            return 0;
        }
        self.numbers.values().filter(|queues| has_group(queues)).count()
    }

    /// Returns the numbers of a key's queues.
    pub(crate) fn numbers_of(&self, db: u32, key: &[u8]) -> SmallVec<[usize; 4]> {
        self.numbers.get(&DbKeyRef { db, key }).into_iter().flat_map(HashMap::values).copied().collect()
    }

    /// Returns the consumers of a group whose reads are blocked. A consumer can occur more than once.
    pub(crate) fn consumers_of(&self, at: DbKeyRef<'_>, group: &[u8]) -> impl Iterator<Item = &[u8]> {
        let number = self.numbers.get(&at).and_then(|queues| queues.get(&QueueNameRef::Group(group)));
        number.into_iter().flat_map(|number| self.queues[*number].consumers())
    }

    pub(crate) fn queue(&self, number: usize) -> &Queue {
        &self.queues[number]
    }

    /// Returns the number of the queue for an interest. Creates the queue if it does not exist; the caller must then
    /// add a reader to it.
    pub(crate) fn queue_for(&mut self, db: u32, key: &[u8], interest: &Interest) -> usize {
        let (at, name) = (DbKeyRef { db, key }, interest.queue());
        match self.numbers.get(&at).and_then(|queues| queues.get(&name)) {
            Some(number) => *number,
            None => self.open(at, name),
        }
    }

    fn open(&mut self, at: DbKeyRef<'_>, name: QueueNameRef<'_>) -> usize {
        let name = name.map(|group| Box::from(*group));
        self.group_queues += usize::from(name.is_group());
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

    /// Adds a reader to a queue, unless it is in the queue already: a command may name a key twice.
    pub(crate) fn join(&mut self, queue: usize, interest: &Interest, reader: &Arc<BlockedReader>) {
        let queue = &mut self.queues[queue];
        if queue.last() == Some(reader.number) {
            return;
        }
        queue.push(reader);
        if let Interest::Claim { min_idle_ms, .. } = interest {
            queue.claiming.insert(reader.number, *min_idle_ms);
        }
    }

    /// Removes a reader from a queue. Returns false if it is not in the queue, for example because the queue is now
    /// used for another key.
    pub(crate) fn leave(&mut self, queue: usize, reader: u64) -> bool {
        let left = self.queues[queue].remove(reader);
        if left && self.queues[queue].is_empty() {
            self.close(queue);
        }
        left
    }

    /// Sets when the readers of a queue that claim must be served, in Unix milliseconds.
    pub(crate) fn set_wake_time(&mut self, number: usize, at_ms: Option<u64>) {
        if let Some(before_ms) = std::mem::replace(&mut self.queues[number].wake_at_ms, at_ms) {
            self.wake_times.remove(&(before_ms, number));
        }
        self.wake_times.extend(at_ms.map(|at_ms| (at_ms, number)));
    }

    /// Returns the earliest wake time of a queue, in Unix milliseconds.
    pub(crate) fn earliest_wake_ms(&self) -> Option<u64> {
        self.wake_times.first().map(|(at_ms, _)| *at_ms)
    }

    /// Returns the keys of the queues whose wake time has come.
    pub(crate) fn keys_to_wake(&self, now_ms: u64) -> Vec<DbKey> {
        let due = self.wake_times.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        due.map(|(_, number)| self.queues[*number].key.clone()).collect()
    }

    fn close(&mut self, number: usize) {
        self.set_wake_time(number, None);
        // The replacement has no name and no capacity, so the memory of the old queue is freed.
        let vacant = Queue::new(DbKeyRef { db: 0, key: &[] }.into(), QueueName::Entries);
        let Queue { key, name, .. } = std::mem::replace(&mut self.queues[number], vacant);
        self.group_queues -= usize::from(name.is_group());
        let at = DbKeyRef { db: key.db, key: &key.key };
        if let Some(queues) = self.numbers.get_mut(&at) {
            queues.remove(&name);
            if queues.is_empty() {
                self.numbers.remove(&at);
            }
        }
        self.free.push(number);
    }

    /// Returns whether a reader is in a queue.
    pub(crate) fn contains(&self, queue: usize, reader: u64) -> bool {
        let queue = &self.queues[queue];
        queue.position(reader).is_some_and(|at| queue.readers[at].1.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::generate::CodecRandom;

    fn reader(number: u64) -> Arc<BlockedReader> {
        let command = Mutex::new(Box::new(|_: &mut Txn<'_>| ServeResult::Served) as BlockedCommand);
        Arc::new(BlockedReader { number, consumer: None, queues: SmallVec::new(), command })
    }

    #[test]
    fn queue_is_an_ordered_set_of_readers_and_frees_the_slots_of_those_that_left() {
        for seed in 0..50 {
            let mut random = CodecRandom::new(seed);
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
