//! Readers that wait: per key, in the order they came, and woken no oftener than there is work.
//!
//! A reader is a closure that runs its whole command again. When a transaction ends, the thread that ran it goes
//! through the keys it made ready and, still under the lock, runs the readers that can be served. Readers of
//! one group form a queue of their own: when the group has nothing left to deliver the rest need
//! not be asked, so an XADD costs the same with ten readers waiting as with ten thousand.
//!
//! What is pending becomes idle without anybody doing anything. So a reader that claims says when it is to be tried again
//! ([`WaitToken::retry_at_ms`]), and whoever it belongs to calls [`Store::retry`] then.
//!
//! A reader of several keys stands in several queues and is served with all its keys locked; it leaves
//! every queue at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_engine::Value;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::queues::{Interest, Place, Queue, QueueName, Reader};
use crate::store::Store;
use crate::txn::Txn;

/// What came of running a waiting reader's command again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It has its answer, good or bad, and waits no longer.
    Served,
    /// It goes on waiting where it stood.
    NotYet,
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
}

/// Runs a reader's whole command again.
type Command = Mutex<Box<dyn FnMut(&mut Txn<'_>) -> Retry + Send>>;

impl Txn<'_> {
    /// Makes a reader wait for these keys of the selected database, which this transaction has locked.
    /// `command` runs under the lock of whoever serves it.
    pub fn wait(
        &mut self,
        interests: &[(Box<[u8]>, Interest)],
        command: impl FnMut(&mut Txn<'_>) -> Retry + Send + 'static,
    ) -> WaitToken {
        // Taken under the locks of all its queues, so every queue sees numbers rise.
        let number = self.store().wait_numbers.fetch_add(1, Ordering::Relaxed);
        let places = interests.iter().map(|(key, interest)| self.place_for(key, interest)).collect();
        let command: Command = Mutex::new(Box::new(command));
        let reader: Arc<Reader> = Arc::new(Reader { number, places, command });
        for (at, (place, (_, interest))) in reader.places.iter().zip(interests).enumerate() {
            // A key may be named twice.
            if !reader.places[..at].contains(place) {
                self.shard_at_mut(place.shard).waiting.join(place.queue, interest, &reader);
            }
        }
        let retry_at_ms = self.retry_at(&reader);
        WaitToken { reader, retry_at_ms }
    }

    fn place_for(&mut self, key: &[u8], interest: &Interest) -> Place {
        let (db, shard) = (self.db(), self.store().shard_of(key));
        Place { shard, queue: self.shard_at_mut(shard).waiting.queue_for(db, key, interest) }
    }

    /// The queues in which a reader claims, and how long what it claims has been idle.
    fn claims<'t>(&'t self, reader: &'t Reader) -> impl Iterator<Item = (&'t Queue, u64)> {
        reader.places.iter().filter_map(|place| {
            let queue = self.shard_at(place.shard).waiting.queue(place.queue);
            Some((queue, queue.claim_of(reader.number)?))
        })
    }

    /// When something may be idle for long enough for a reader, if it claims.
    fn retry_at(&self, reader: &Reader) -> Option<u64> {
        let at_ms = self.claims(reader).filter_map(|(queue, min_idle_ms)| {
            let (Some(Value::Stream(stream)), QueueName::Group(group)) = (self.value_of(queue), &queue.name)
            else {
                return None;
            };
            Some(stream.query_idle_at(stream.group(group)?, min_idle_ms, self.now_ms()))
        });
        at_ms.min()
    }

    /// How many keys of the locked shards readers wait for.
    pub fn waited_key_count(&self) -> usize {
        self.shards().map(|shard| shard.waiting.key_count()).sum()
    }

    /// How many of these keys readers of groups wait for, who are woken when the key is deleted, too.
    pub fn waited_group_key_count(&self) -> usize {
        self.shards().map(|shard| shard.waiting.group_key_count()).sum()
    }

    /// Serves the readers of every key made ready, and of those made ready on the way.
    pub(crate) fn serve_waiting(&mut self) {
        while !self.ready.is_empty() {
            let (db, key) = self.ready.remove(0);
            let shard = self.store().shard_of(&key);
            let queues = self.shard_at(shard).waiting.numbers_of(db, &key);
            let mut places = queues.into_iter().map(|queue| Place { shard, queue });
            if !places.all(|place| self.serve_queue(db, place)) {
                self.ready.insert(0, (db, key));
            }
        }
    }

    /// Asks the readers of one queue in their order, until there is nothing more to give. False: more had to be locked,
    /// and in between everything may have changed.
    fn serve_queue(&mut self, db: u32, place: Place) -> bool {
        let last_number = self.store().wait_numbers.load(Ordering::Relaxed);
        let mut asked = None;
        while let Some(reader) = self.next_reader(place, asked).cloned() {
            if reader.number >= last_number {
                break;
            }
            let shards = reader.shards();
            if !self.holds(&shards) {
                self.lock_more(&shards);
                return false;
            }
            asked = Some(reader.number);
            self.select(db);
            let command: &Command = reader.command.downcast_ref().expect("`wait` makes every reader");
            if (command.lock())(self) == Retry::Served {
                for place in &reader.places {
                    self.shard_at_mut(place.shard).waiting.leave(place.queue, reader.number);
                }
            }
        }
        true
    }

    /// The next reader of a queue that would get an answer: data, or the error that it waits in vain.
    fn next_reader(&self, place: Place, after: Option<u64>) -> Option<&Arc<Reader>> {
        let queue = self.shard_at(place.shard).waiting.queue(place.queue);
        if queue.is_empty() {
            return None;
        }
        match (&queue.name, self.value_of(queue)) {
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

    /// What is under a queue's key.
    fn value_of(&self, queue: &Queue) -> Option<&Value> {
        self.shard(&queue.at.key).keys.get(queue.at.db, &queue.at.key, self.now_ms())
    }
}

impl Store {
    /// Stops a reader from waiting. True: it was still waiting and will not be called again.
    /// False: it has been served.
    pub fn cancel(&self, token: &WaitToken) -> bool {
        let Reader { number, places, .. } = &*token.reader;
        // All at once, so that nobody serves it from one queue while it leaves another. Not a transaction: leaving
        // makes nobody ready.
        let mut locked: SmallVec<[_; 4]> =
            token.reader.shards().into_iter().map(|shard| (shard, self.shard(shard).lock())).collect();
        let left = places.iter().filter(|place| {
            let held = locked.iter_mut().find(|(shard, _)| *shard == place.shard);
            held.is_some_and(|(_, shard)| shard.waiting.leave(place.queue, *number))
        });
        left.count() > 0
    }

    /// Tries a reader again whose time has come, in its turn: readers that came before it are served first. Says when to try
    /// again; `None` when it waits no more.
    pub fn retry(&self, token: &WaitToken) -> Option<u64> {
        let reader = &token.reader;
        let mut txn = Txn::new(self, 0, self.now_ms(), &reader.shards());
        let claimed: Vec<_> = txn.claims(reader).map(|(queue, _)| queue.at.clone()).collect();
        for at in claimed {
            txn.note_ready(at.db, &at.key);
        }
        txn.serve_waiting();
        let still_waits = reader
            .places
            .iter()
            .any(|place| txn.shard_at(place.shard).waiting.holds(place.queue, reader.number));
        still_waits.then(|| txn.retry_at(reader)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addition;
    use crate::clock::ManualClock;
    use crate::store::StoreOptions;
    use crate::verbs::{
        Acknowledge, Delete, GroupCreate, Nack, Reader as Consumer, Verb, add, read_claiming, read_new,
    };
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
            let (start, make_stream) = (GroupStart::Last, true);
            let mut create = GroupCreate { key: KEY, group: GROUP, start, make_stream, entries_read: None };
            create.run(&mut txn).unwrap();
            add(&mut txn, KEY, &Addition::new(&[b"n", b"1"])).unwrap();
            let consumer = Consumer { key: KEY, group: GROUP, consumer: b"first" };
            let mut ignore = |_: &EntryRef<'_>| ControlFlow::Continue(());
            read_new(&mut txn, consumer, None, true, &mut ignore).unwrap();
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
                match read_claiming(txn, consumer, min_idle_ms, Some(1), true, &mut ignore) {
                    Ok(0) => Retry::NotYet,
                    _ => {
                        served.lock().push(name);
                        Retry::Served
                    }
                }
            };
            self.txn().wait(&[(KEY.into(), interest)], again)
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
            add(&mut world.txn(), KEY, &Addition::new(&[b"n", b"2"])).unwrap();
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
            Nack { key: KEY, group: GROUP, ids: [id], options }.run(&mut txn).unwrap();
            drop(txn);
            assert_eq!(world.served(), [expected]);
        }
        assert_eq!(world.txn().waited_key_count(), 1);
    }

    #[test]
    fn without_anything_pending_the_next_try_is_as_far_off_as_what_is_waited_for() {
        let world = World::new();
        let id = StreamId::new(1000, 0);
        Acknowledge { key: KEY, group: GROUP, ids: [id] }.run(&mut world.txn()).unwrap();
        let token = world.waits("a", Some(200));
        assert_eq!(token.retry_at_ms(), Some(1200));
        // A row whose entry is gone is old enough for ever, and never worth a try.
        let mut txn = world.txn();
        let force = NackOptions { mode: NackMode::Fail, deliveries: None, force: true };
        Nack { key: KEY, group: GROUP, ids: [id], options: force }.run(&mut txn).unwrap();
        Delete { key: KEY, ids: [id] }.run(&mut txn).unwrap();
        drop(txn);
        world.clock.advance(200);
        assert_eq!((world.store.retry(&token), world.served()), (Some(1400), vec![]));
        assert!(world.store.cancel(&token));
        assert_eq!(world.store.retry(&token), None);
    }

    #[test]
    fn who_was_served_does_not_leave_the_queue_of_who_came_later() {
        let options = StoreOptions { shards: 1, ..StoreOptions::default() };
        let store = Store::new(options);
        let waits = |key: &[u8], served: &Arc<Mutex<u32>>| {
            let (mut txn, served) = (store.lock(0, [key], 1000), Arc::clone(served));
            // Named twice, it stands there once.
            let interests = [(Box::from(key), Interest::Entries), (Box::from(key), Interest::Entries)];
            txn.wait(&interests, move |_| {
                *served.lock() += 1;
                Retry::Served
            })
        };
        let add = |key: &[u8]| {
            let mut txn = store.lock(0, [key], 1000);
            add(&mut txn, key, &Addition::new(&[b"n", b"1"])).unwrap();
        };
        let (early, late) = (Arc::default(), Arc::default());
        let served = waits(b"early", &early);
        add(b"early");
        // The queue was the only one, and is used again.
        let waiting = waits(b"late", &late);
        assert!(!store.cancel(&served));
        add(b"late");
        add(b"late");
        assert_eq!((*early.lock(), *late.lock()), (1, 1));
        assert!(!store.cancel(&waiting));
        assert_eq!(store.lock_all(0, 1000).waited_key_count(), 0);
    }
}
