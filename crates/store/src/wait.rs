//! Readers that wait: per key, in the order they came, and woken no oftener than there is work.
//!
//! A reader is a closure that runs its whole command again. When a transaction ends, the thread that ran it goes
//! through the keys it made ready and, still under the lock, runs the readers that can be served. Readers of
//! one group form a queue of their own: when the group has nothing left to deliver the rest need
//! not be asked, so an XADD costs the same with ten readers waiting as with ten thousand.
//!
//! ```text
//! (db, key) -> Entries: XREAD readers, every one is asked
//!              Group g: XREADGROUP readers, asked while g has undelivered entries; those of them that claim,
//!                       also while something is idle long enough for them
//!              List:    BLPOP readers, asked while the list has values
//! ```
//!
//! What is pending becomes idle without anybody doing anything. So a reader that claims says when it is to be tried again
//! ([`WaitToken::retry_at_ms`]), and whoever it belongs to calls [`Store::retry`] then.
//!
//! A reader of several keys stands in several queues and is served with all its keys locked; it leaves
//! every queue at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{Equivalent, HashMap};
use millstream_engine::Value;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::BTreeMap;

use crate::dbkey::{DbKeyMap, DbKeyRef};
use crate::shard::Store;
use crate::txn::Txn;

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

/// What came of running a waiting reader's command again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It has its answer, good or bad, and waits no longer.
    Served,
    /// It goes on waiting where it stood.
    NotYet,
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

/// Which of a key's queues.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum QueueName {
    Entries,
    Group(Box<[u8]>),
    List,
}

/// A [`QueueName`] to look for. Hashes as that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum QueueRef<'a> {
    Entries,
    Group(&'a [u8]),
    List,
}

impl QueueName {
    fn as_ref(&self) -> QueueRef<'_> {
        match self {
            QueueName::Entries => QueueRef::Entries,
            QueueName::Group(group) => QueueRef::Group(group),
            QueueName::List => QueueRef::List,
        }
    }
}

impl Equivalent<QueueName> for QueueRef<'_> {
    fn equivalent(&self, name: &QueueName) -> bool {
        *self == name.as_ref()
    }
}

impl From<QueueRef<'_>> for QueueName {
    fn from(name: QueueRef<'_>) -> QueueName {
        match name {
            QueueRef::Entries => QueueName::Entries,
            QueueRef::Group(group) => QueueName::Group(group.into()),
            QueueRef::List => QueueName::List,
        }
    }
}

/// A waiting reader's place, to leave it again with [`Store::cancel`].
pub struct WaitToken {
    reader: Arc<Reader>,
    retry_at_ms: Option<u64>,
}

impl WaitToken {
    /// When the reader is to be tried again with [`Store::retry`], by the store's clock: something pending may be idle for
    /// long enough then. `None` for readers that do not claim.
    pub fn retry_at_ms(&self) -> Option<u64> {
        self.retry_at_ms
    }

    pub(crate) fn shards(&self, store: &Store) -> SmallVec<[usize; 4]> {
        self.reader.shards(store)
    }
}

type Command = Box<dyn FnMut(&mut Txn<'_>) -> Retry + Send>;

struct Reader {
    /// Readers are served by rising number.
    number: u64,
    db: u32,
    interests: Vec<(Box<[u8]>, Interest)>,
    command: Mutex<Command>,
}

impl Reader {
    fn shards(&self, store: &Store) -> SmallVec<[usize; 4]> {
        self.interests.iter().map(|(key, _)| store.shard_of(key)).collect()
    }
}

/// Readers by number.
#[derive(Default)]
struct Queue {
    readers: BTreeMap<u64, Arc<Reader>>,
    /// Those of them that claim, and how long what they claim has been idle.
    claiming: BTreeMap<u64, u64>,
}

impl Queue {
    /// The first reader that came after number `after`.
    fn next(&self, after: Option<u64>) -> Option<&Arc<Reader>> {
        self.readers.range(following(after)..).next().map(|(_, reader)| reader)
    }

    /// The first such reader that claims, and for which there is something idle long enough.
    fn next_claiming(&self, after: Option<u64>, has_idle: impl Fn(u64) -> bool) -> Option<&Arc<Reader>> {
        let mut claiming = self.claiming.range(following(after)..);
        let (number, _) = claiming.find(|(_, min_idle_ms)| has_idle(**min_idle_ms))?;
        self.readers.get(number)
    }
}

fn following(after: Option<u64>) -> u64 {
    after.map_or(0, |number| number + 1)
}

/// The waiting readers of one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    queues: DbKeyMap<HashMap<QueueName, Queue, foldhash::fast::RandomState>>,
}

impl Waiting {
    pub(crate) fn has(&self, db: u32, key: &[u8]) -> bool {
        !self.queues.is_empty() && self.queues.contains_key(&DbKeyRef { db, key })
    }

    pub(crate) fn keys_of(&self, db: u32) -> impl Iterator<Item = Box<[u8]>> {
        self.queues.keys().filter(move |at| at.db == db).map(|at| at.key.clone())
    }

    pub(crate) fn key_count(&self) -> usize {
        self.queues.len()
    }

    /// True if the reader still stood in a queue here.
    pub(crate) fn remove(&mut self, token: &WaitToken) -> bool {
        self.leave(&token.reader)
    }

    fn join(&mut self, key: &[u8], interest: &Interest, reader: &Arc<Reader>) {
        let queues = self.queues.entry(DbKeyRef { db: reader.db, key }.into()).or_default();
        let queue = queues.entry(interest.queue().into()).or_default();
        queue.readers.insert(reader.number, Arc::clone(reader));
        if let Interest::Claim { min_idle_ms, .. } = interest {
            queue.claiming.insert(reader.number, *min_idle_ms);
        }
    }

    /// Takes the reader out of all its queues in this shard.
    fn leave(&mut self, reader: &Reader) -> bool {
        let mut found = false;
        for (key, interest) in &reader.interests {
            let at = DbKeyRef { db: reader.db, key };
            let Some(queues) = self.queues.get_mut(&at) else { continue };
            if let Some(queue) = queues.get_mut(&interest.queue()) {
                found |= queue.readers.remove(&reader.number).is_some();
                queue.claiming.remove(&reader.number);
                if queue.readers.is_empty() {
                    queues.remove(&interest.queue());
                }
            }
            if queues.is_empty() {
                self.queues.remove(&at);
            }
        }
        found
    }

    fn queue_names(&self, db: u32, key: &[u8]) -> Vec<QueueName> {
        self.queues.get(&DbKeyRef { db, key }).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    fn queue(&self, db: u32, key: &[u8], name: &QueueName) -> Option<&Queue> {
        self.queues.get(&DbKeyRef { db, key })?.get(name)
    }

    /// Whether the reader stands in a queue here.
    fn holds(&self, reader: &Reader) -> bool {
        reader.interests.iter().any(|(key, interest)| {
            let queues = self.queues.get(&DbKeyRef { db: reader.db, key });
            let queue = queues.and_then(|queues| queues.get(&interest.queue()));
            queue.is_some_and(|queue| queue.readers.contains_key(&reader.number))
        })
    }
}

impl Txn<'_> {
    /// Makes a reader wait for these keys of the selected database, which this transaction has locked.
    /// `command` runs under the lock of whoever serves it.
    pub fn wait(
        &mut self,
        interests: Vec<(Box<[u8]>, Interest)>,
        command: Box<dyn FnMut(&mut Txn<'_>) -> Retry + Send>,
    ) -> WaitToken {
        let number = self.store().wait_numbers.fetch_add(1, Ordering::Relaxed);
        let reader = Arc::new(Reader { number, db: self.db(), interests, command: Mutex::new(command) });
        for (key, interest) in &reader.interests {
            self.shard_mut(key).waiting.join(key, interest, &reader);
        }
        let retry_at_ms = self.retry_at(&reader);
        WaitToken { reader, retry_at_ms }
    }

    /// When something may be idle for long enough for a reader, if it claims.
    fn retry_at(&self, reader: &Reader) -> Option<u64> {
        let claims = reader.interests.iter().filter_map(|(key, interest)| match interest {
            Interest::Claim { group, min_idle_ms } => Some((key, group, *min_idle_ms)),
            _ => None,
        });
        let at_ms = claims.filter_map(|(key, group, min_idle_ms)| {
            let stream = self.stream(key).ok().flatten()?;
            Some(stream.query_idle_at(stream.group(group)?, min_idle_ms, self.now_ms()))
        });
        at_ms.min()
    }

    /// How many keys of the locked shards readers wait for.
    pub fn waited_key_count(&self) -> usize {
        self.shards().map(|shard| shard.waiting.key_count()).sum()
    }

    /// Serves the readers of every key made ready, and of those made ready on the way.
    pub(crate) fn serve_waiting(&mut self) {
        while !self.ready.is_empty() {
            let (db, key) = self.ready.remove(0);
            self.select(db);
            for name in self.shard(&key).waiting.queue_names(db, &key) {
                self.serve_queue(db, &key, &name);
            }
        }
    }

    /// Asks the readers of one queue in their order, until there is nothing more to give.
    fn serve_queue(&mut self, db: u32, key: &[u8], name: &QueueName) {
        let last_number = self.store().wait_numbers.load(Ordering::Relaxed);
        let mut asked = None;
        while let Some(reader) = self.next_reader(db, key, name, asked).cloned() {
            if reader.number >= last_number {
                return;
            }
            let shards = reader.shards(self.store());
            if !self.holds(&shards) {
                // Between unlock and lock the reader may have been served: look again.
                self.lock_more(&shards);
                continue;
            }
            asked = Some(reader.number);
            let answer = (reader.command.lock())(self);
            self.select(db);
            if answer == Retry::Served {
                self.shards_mut().for_each(|shard| {
                    shard.waiting.leave(&reader);
                });
            }
        }
    }

    /// The next reader of a queue that would get an answer: data, or the error that it waits in vain.
    fn next_reader(&self, db: u32, key: &[u8], name: &QueueName, after: Option<u64>) -> Option<&Arc<Reader>> {
        let queue = self.shard(key).waiting.queue(db, key, name)?;
        match (name, self.get(key)) {
            (QueueName::Entries, Some(Value::Stream(_))) | (QueueName::List, Some(Value::List(_))) => {
                queue.next(after)
            }
            (QueueName::Entries | QueueName::List, _) => None,
            (QueueName::Group(group), Some(Value::Stream(stream))) => match stream.group(group) {
                Some(group) if !stream.has_undelivered(group) => queue
                    .next_claiming(after, |min_idle_ms| stream.has_idle(group, min_idle_ms, self.now_ms())),
                _ => queue.next(after),
            },
            (QueueName::Group(_), _) => queue.next(after),
        }
    }
}

impl Store {
    /// Tries a reader again whose time has come, in its turn: readers that came before it are served first. Says when to try
    /// again; `None` when it waits no more.
    pub fn retry(&self, token: &WaitToken) -> Option<u64> {
        let reader = &token.reader;
        let mut shards = reader.shards(self);
        shards.sort_unstable();
        shards.dedup();
        let mut txn = Txn::new(self, reader.db, self.now_ms(), &shards);
        for (key, interest) in &reader.interests {
            if matches!(interest, Interest::Claim { .. }) {
                txn.note_ready(reader.db, key);
            }
        }
        txn.serve_waiting();
        txn.select(reader.db);
        let still_waits = txn.shards().any(|shard| shard.waiting.holds(reader));
        still_waits.then(|| txn.retry_at(reader)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::shard::StoreOptions;
    use crate::streams::{Addition, Reader as Consumer};
    use millstream_engine::stream::{Before, EntryRef, NackOptions};
    use millstream_engine::{GroupStart, NackMode, StreamId};
    use std::ops::ControlFlow;

    const KEY: &[u8] = b"s";
    const GROUP: &[u8] = b"g";

    /// A store whose stream has one entry, delivered at 1000, and who was served, in order.
    struct World {
        store: Store,
        clock: Arc<ManualClock>,
        served: Arc<Mutex<Vec<&'static str>>>,
    }

    impl World {
        fn new() -> World {
            let clock = Arc::new(ManualClock::new(1000));
            let store =
                Store::new(StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() });
            let mut txn = store.lock(0, [KEY], store.now_ms());
            txn.xgroup_create(KEY, GROUP, GroupStart::Last, true, None).unwrap();
            txn.xadd(KEY, &Addition::new(&[b"n", b"1"])).unwrap();
            let consumer = Consumer { key: KEY, group: GROUP, consumer: b"first" };
            let mut ignore = |_: &EntryRef<'_>| ControlFlow::Continue(());
            txn.xreadgroup_new(consumer, None, true, &mut ignore).unwrap();
            drop(txn);
            World { store, clock, served: Arc::default() }
        }

        fn txn(&self) -> Txn<'_> {
            self.store.lock(0, [KEY], self.store.now_ms())
        }

        /// A reader of one entry that waits; `claims` says for how long that is idle.
        fn waits(&self, name: &'static str, claims: Option<u64>) -> WaitToken {
            let group = Box::from(GROUP);
            let interest = match claims {
                Some(min_idle_ms) => Interest::Claim { group, min_idle_ms },
                None => Interest::Group(group),
            };
            let served = Arc::clone(&self.served);
            let again = move |txn: &mut Txn<'_>| {
                let consumer = Consumer { key: KEY, group: GROUP, consumer: name.as_bytes() };
                let mut ignore = |_: &EntryRef<'_>, _: Option<Before>| {};
                let min_idle_ms = claims.unwrap_or(u64::MAX);
                match txn.xreadgroup_claim(consumer, min_idle_ms, Some(1), true, &mut ignore) {
                    Ok(0) => Retry::NotYet,
                    _ => {
                        served.lock().push(name);
                        Retry::Served
                    }
                }
            };
            self.txn().wait(vec![(KEY.into(), interest)], Box::new(again))
        }

        fn served(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.served.lock())
        }
    }

    #[test]
    fn who_claims_is_tried_again_when_something_is_idle_and_in_turn() {
        let world = World::new();
        let plain = world.waits("plain", None);
        let patient = world.waits("patient", Some(500));
        let [early, late] = ["early", "late"].map(|name| world.waits(name, Some(200)));
        let times = [&plain, &patient, &early, &late].map(WaitToken::retry_at_ms);
        assert_eq!(times, [None, Some(1500), Some(1200), Some(1200)]);
        // Too early: nothing but the next time.
        world.clock.advance(150);
        assert_eq!((world.store.retry(&late), world.served()), (Some(1200), vec![]));
        // The row goes to the one who came first of those for whom it is idle, whoever is tried.
        world.clock.advance(50);
        assert_eq!((world.store.retry(&late), world.served()), (Some(1400), vec!["early"]));
        assert_eq!((world.store.retry(&early), world.store.retry(&plain)), (None, None));
        assert_eq!(world.store.retry(&patient), Some(1700));
        // What is new goes to who waits longest, claiming or not.
        for expected in ["plain", "patient", "late"] {
            world.txn().xadd(KEY, &Addition::new(&[b"n", b"2"])).unwrap();
            assert_eq!(world.served(), [expected]);
        }
    }

    #[test]
    fn what_is_given_back_wakes_who_claims_and_nobody_else() {
        let world = World::new();
        let _plain = world.waits("plain", None);
        let _tokens = ["a", "b"].map(|name| world.waits(name, Some(1 << 40)));
        let options = NackOptions { mode: NackMode::Fail, deliveries: None, force: false };
        let row = |txn: &Txn<'_>| txn.group(KEY, GROUP).unwrap().unwrap().pending().first().unwrap().id;
        for expected in ["a", "b"] {
            let mut txn = world.txn();
            let id: StreamId = row(&txn);
            txn.xnack(KEY, GROUP, &[id], options).unwrap();
            drop(txn);
            assert_eq!(world.served(), [expected]);
        }
        assert_eq!(world.txn().waited_key_count(), 1);
    }

    #[test]
    fn without_anything_pending_the_next_try_is_as_far_off_as_what_is_waited_for() {
        let world = World::new();
        let id = StreamId::new(1000, 0);
        world.txn().xack(KEY, GROUP, &[id]).unwrap();
        let token = world.waits("a", Some(200));
        assert_eq!(token.retry_at_ms(), Some(1200));
        // A row whose entry is gone is old enough for ever, and never worth a try.
        let mut txn = world.txn();
        let force = NackOptions { mode: NackMode::Fail, deliveries: None, force: true };
        txn.xnack(KEY, GROUP, &[id], force).unwrap();
        txn.xdel(KEY, &[id]).unwrap();
        drop(txn);
        world.clock.advance(200);
        assert_eq!((world.store.retry(&token), world.served()), (Some(1400), vec![]));
        assert!(world.store.cancel(&token));
        assert_eq!(world.store.retry(&token), None);
    }
}
