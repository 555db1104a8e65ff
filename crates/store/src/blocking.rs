//! Blocked readers: per key, first come, first served, and woken only if there is something to read.
//!
//! A blocked reader is a closure that runs its whole command again. When a transaction ends, its thread visits
//! the keys that the transaction made ready and runs the readers that can be served, still under the lock. The readers
//! of one group form their own queue. The thread stops as soon as the group has no more entries to deliver. So XADD
//! costs the same with ten blocked readers of a group as with ten thousand.
//!
//! Pending entries become idle as time passes, without any change to the key. So the owner of a reader that claims must
//! call [`Store::retry_blocked`] at [`BlockedToken::retry_at_ms`]. The owner is the caller of [`Txn::block`].
//!
//! Released entries that wait become due as time passes, too. The queue of the group's readers has the next due time as
//! its wake time. At that time the timekeeper serves the queue ([`Store::wake_due_readers`]). So when one entry becomes
//! due, one reader is served, however many are blocked.
//!
//! In a group with a lease, leases run out as time passes, and every reader can get the entries. The wake time is then
//! the end of the next lease, or earlier.
//!
//! A reader of several keys is in several queues. It is served with all its keys locked and then leaves all queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_engine::stream::Group;
use millstream_engine::{Stream, Value};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::dbkey::DbKeyRef;
use crate::queues::{BlockedReader, Interest, Queue, QueueId, QueueName, ServeResult};
use crate::store::Store;
use crate::txn::{Origin, Txn};

/// The handle of a blocked reader, for [`Store::cancel_blocked`] and [`Store::retry_blocked`].
pub struct BlockedToken {
    reader: Arc<BlockedReader>,
    retry_at_ms: Option<u64>,
}

impl BlockedToken {
    /// Returns when to call [`Store::retry_blocked`], in Unix milliseconds of the store's clock: the earliest time at
    /// which a pending entry can reach the reader's minimum idle time. `None` for readers that do not claim.
    pub fn retry_at_ms(&self) -> Option<u64> {
        self.retry_at_ms
    }
}

/// The next reader of a queue that would get a result.
enum NextReader<'t> {
    Found(&'t Arc<BlockedReader>),
    /// No reader would get a result before another change of the key, or before the next pending entry that waits
    /// becomes due (Unix milliseconds).
    None {
        due_ms: Option<u64>,
    },
}

impl Txn<'_> {
    /// Blocks a reader on keys of the selected database. The keys must be locked by this transaction.
    ///
    /// Other threads call `command` later, inside their own transactions, when a key may have become ready.
    pub fn block(
        &mut self,
        interests: &[(Box<[u8]>, Interest)],
        command: impl FnMut(&mut Txn<'_>) -> ServeResult + Send + 'static,
    ) -> BlockedToken {
        // All queues of the reader are locked here, so numbers ascend in every queue.
        let number = self.store().reader_numbers.fetch_add(1, Ordering::Relaxed);
        let queues = interests.iter().map(|(key, interest)| self.queue_for(key, interest)).collect();
        let consumer = interests.first().and_then(|(_, interest)| interest.consumer().cloned());
        let command = Mutex::new(Box::new(command) as _);
        let reader = Arc::new(BlockedReader { number, consumer, queues, command });
        for (id, (_, interest)) in reader.queues.iter().zip(interests) {
            self.shard_at_mut(id.shard).blocked.join(id.queue, interest, &reader);
        }
        let retry_at_ms = self.set_claim_times(&reader);
        BlockedToken { reader, retry_at_ms }
    }

    fn queue_for(&mut self, key: &[u8], interest: &Interest) -> QueueId {
        let (db, shard) = (self.db(), self.store().shard_of(key));
        QueueId { shard, queue: self.shard_at_mut(shard).blocked.queue_for(db, key, interest) }
    }

    /// Returns the queues in which a reader claims, each with its minimum idle time in milliseconds.
    fn claims<'t>(&'t self, reader: &'t BlockedReader) -> impl Iterator<Item = (&'t Queue, u64)> {
        reader.queues.iter().filter_map(|id| {
            let queue = self.shard_at(id.shard).blocked.queue(id.queue);
            Some((queue, queue.claim_of(reader.number)?))
        })
    }

    /// Sets the wake times of the queues in which a reader claims. Returns the earliest time, in Unix milliseconds, at
    /// which a pending entry can reach the reader's minimum idle time; `None` if the reader does not claim.
    fn set_claim_times(&mut self, reader: &BlockedReader) -> Option<u64> {
        let (now_ms, mut retry_at_ms) = (self.now_ms(), None);
        for id in &reader.queues {
            let queue = self.shard_at(id.shard).blocked.queue(id.queue);
            let (Some(Value::Stream(stream)), QueueName::Group(group)) = (self.value_of(queue), &queue.name)
            else {
                continue;
            };
            let Some(group) = stream.group(group) else { continue };
            if let Some(min_idle_ms) = queue.claim_of(reader.number) {
                let idle_at_ms = stream.query_idle_at(group, min_idle_ms, now_ms);
                retry_at_ms = Some(retry_at_ms.map_or(idle_at_ms, |at_ms: u64| at_ms.min(idle_at_ms)));
            }
            // A wake time that has come stays until the timekeeper has served the queue.
            if queue.wake_at_ms().is_none_or(|at_ms| at_ms > now_ms) {
                let wake_ms = wake_time_ms(queue, stream, group, now_ms);
                self.set_wake_time(*id, wake_ms);
            }
        }
        retry_at_ms
    }

    /// Returns the consumers of a group whose reads are blocked. A consumer can occur more than once.
    pub(crate) fn waiting_consumers(&self, key: &[u8], group: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.shard(key).blocked.consumers_of(DbKeyRef { db: self.db(), key }, group)
    }

    /// Returns the number of keys in the locked shards that readers are blocked on.
    pub fn blocking_key_count(&self) -> usize {
        self.shards().map(|shard| shard.blocked.key_count()).sum()
    }

    /// Returns the number of keys in the locked shards that group readers are blocked on. Deleting such a key also
    /// wakes its readers.
    pub fn blocking_group_key_count(&self) -> usize {
        self.shards().map(|shard| shard.blocked.group_key_count()).sum()
    }

    /// Serves the readers of all ready keys, including keys that become ready because a reader was served.
    pub(crate) fn serve_blocked(&mut self) {
        while let Some(at) = self.ready.take_first() {
            let shard = self.store().shard_of(&at.key);
            let queues = self.shard_at(shard).blocked.numbers_of(at.db, &at.key);
            let mut ids = queues.into_iter().map(|queue| QueueId { shard, queue });
            if !ids.all(|id| self.serve_queue(at.db, id)) {
                self.ready.put_back(at);
            }
        }
    }

    /// Serves the readers of one queue in order, until there is nothing left to read. Returns false if it had to lock
    /// more shards. All locks were released in between, so any data may have changed.
    fn serve_queue(&mut self, db: u32, id: QueueId) -> bool {
        let next_number = self.store().reader_numbers.load(Ordering::Relaxed);
        let mut last_tried = None;
        loop {
            let reader = match self.next_reader(id, last_tried) {
                NextReader::Found(reader) => Arc::clone(reader),
                NextReader::None { due_ms } => {
                    self.set_wake_time(id, due_ms);
                    return true;
                }
            };
            if reader.number >= next_number {
                return true;
            }
            let shards = reader.shards();
            if !self.holds(&shards) {
                self.lock_more(&shards);
                return false;
            }
            last_tried = Some(reader.number);
            self.select(db);
            if (reader.command.lock())(self) == ServeResult::Served {
                for id in &reader.queues {
                    self.shard_at_mut(id.shard).blocked.leave(id.queue, reader.number);
                }
                // Each reader is a transaction of its own. Together, their records could exceed the limit of one.
                self.log_many_changes();
            }
        }
    }

    /// Returns the next reader of a queue that would get a result: data, or an error because the key or the group was
    /// deleted.
    fn next_reader(&self, id: QueueId, after: Option<u64>) -> NextReader<'_> {
        let queue = self.shard_at(id.shard).blocked.queue(id.queue);
        if queue.is_empty() {
            return NextReader::None { due_ms: None };
        }
        let mut due_ms = None;
        let next = match (&queue.name, self.value_of(queue)) {
            (QueueName::Entries, Some(Value::Stream(_))) | (QueueName::List, Some(Value::List(_))) => {
                queue.next(after)
            }
            (QueueName::Entries | QueueName::List, _) => None,
            (QueueName::Group(group), Some(Value::Stream(stream))) => match stream.group(group) {
                Some(group) => {
                    let now_ms = self.now_ms();
                    let has_ready = || match group.rules() {
                        Some(rules) => stream.has_ready(group, rules, now_ms),
                        None => false,
                    };
                    let next = match stream.has_new(group) || has_ready() {
                        true => queue.next(after),
                        false => queue
                            .next_claiming(after, |min_idle_ms| stream.has_idle(group, min_idle_ms, now_ms)),
                    };
                    if next.is_none() {
                        due_ms = wake_time_ms(queue, stream, group, now_ms);
                    }
                    next
                }
                None => queue.next(after),
            },
            (QueueName::Group(_), _) => queue.next(after),
        };
        next.map_or(NextReader::None { due_ms }, NextReader::Found)
    }

    /// Sets when the timekeeper must serve a queue, in Unix milliseconds.
    fn set_wake_time(&mut self, id: QueueId, at_ms: Option<u64>) {
        let blocked = &mut self.shard_at_mut(id.shard).blocked;
        if blocked.queue(id.queue).wake_at_ms() == at_ms {
            return;
        }
        blocked.set_wake_time(id.queue, at_ms);
        if let Some(at_ms) = at_ms {
            self.store().work_at(at_ms);
        }
    }

    /// Returns the value at a queue's key.
    fn value_of(&self, queue: &Queue) -> Option<&Value> {
        self.shard(&queue.key.key).keys.get(queue.key.db, &queue.key.key, self.now_ms())
    }
}

/// Returns when the readers of a group must be served although nothing has changed: a pending entry that waits becomes
/// due, or a lease runs out. Returns `None` if no such time is known.
fn wake_time_ms(queue: &Queue, stream: &Stream, group: &Group, now_ms: u64) -> Option<u64> {
    match group.rules() {
        Some(rules) => Some(stream.next_ready_ms(group, rules, now_ms)),
        None if queue.has_claiming() => group.pending().next_due_ms(now_ms),
        None => None,
    }
}

impl Store {
    /// Removes a blocked reader. Returns true if it was still blocked; its command does not run again. Returns false
    /// if it has been served.
    pub fn cancel_blocked(&self, token: &BlockedToken) -> bool {
        let BlockedReader { number, queues, .. } = &*token.reader;
        // All shards are locked together, so that no thread serves the reader from one queue while it leaves another.
        // This needs no transaction, because leaving a queue makes no key ready.
        let mut locked: SmallVec<[_; 4]> =
            token.reader.shards().into_iter().map(|shard| (shard, self.shard(shard).lock())).collect();
        let left = queues.iter().filter(|id| {
            let shard = locked.iter_mut().find(|(number, _)| *number == id.shard);
            shard.is_some_and(|(_, shard)| shard.blocked.leave(id.queue, *number))
        });
        left.count() > 0
    }

    /// Tries to serve a reader at its [`BlockedToken::retry_at_ms`]. Readers before it in the queue are served first.
    ///
    /// Returns when to call this again, in Unix milliseconds of the store's clock; `None` if the reader is not
    /// blocked any more or does not claim.
    pub fn retry_blocked(&self, token: &BlockedToken) -> Option<u64> {
        let reader = &token.reader;
        let mut txn = Txn::new(self, Origin::Client, 0, self.now_ms(), &reader.shards());
        let claimed: Vec<_> = txn.claims(reader).map(|(queue, _)| queue.key.clone()).collect();
        for at in claimed {
            txn.mark_ready(at.db, &at.key);
        }
        txn.serve_blocked();
        let is_blocked =
            reader.queues.iter().any(|id| txn.shard_at(id.shard).blocked.contains(id.queue, reader.number));
        is_blocked.then(|| txn.set_claim_times(reader)).flatten()
    }
}

impl Store {
    /// Serves the readers that claim entries whose due time has come. The timekeeper calls this at the earliest wake
    /// time of a queue, and the store tells it when the next one is.
    pub(crate) fn wake_due_readers(&self) {
        let now_ms = self.now_ms();
        for shard in 0..self.shard_count() {
            let mut txn = Txn::of_shard(self, Origin::Duty, 0, now_ms, shard);
            if !txn.may_act_on_its_own() {
                return;
            }
            for at in txn.shard_at(shard).blocked.keys_to_wake(now_ms) {
                txn.mark_ready(at.db, &at.key);
            }
            txn.serve_blocked();
            if let Some(at_ms) = txn.shard_at(shard).blocked.earliest_wake_ms() {
                self.work_at(at_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addition;
    use crate::clock::ManualClock;
    use crate::store::StoreOptions;
    use crate::verbs::{
        Acknowledge, ConsumerPath, Delete, GroupCreate, Nack, Verb, add, read_claiming, read_new,
    };
    use millstream_engine::stream::{EntryRef, NackOptions, PriorDelivery};
    use millstream_engine::{GroupStart, NackMode, StreamId};
    use std::ops::ControlFlow;
    use std::time::{Duration, Instant};

    const KEY: &[u8] = b"s";
    const GROUP: &[u8] = b"g";

    /// A store with a stream of one entry, delivered at 1000 ms, and the names of the served readers, in order.
    struct BlockingFixture {
        store: Store,
        clock: Arc<ManualClock>,
        served: Arc<Mutex<Vec<&'static str>>>,
    }

    impl BlockingFixture {
        fn new() -> BlockingFixture {
            let clock = Arc::new(ManualClock::new(1000));
            let store =
                Store::new(StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() });
            let mut txn = store.lock(0, [KEY], store.now_ms());
            let (start, make_stream) = (GroupStart::Last, true);
            let mut create = GroupCreate { key: KEY, group: GROUP, start, make_stream, entries_read: None };
            create.run(&mut txn).unwrap();
            add(&mut txn, KEY, &Addition::new(&[b"n", b"1"])).unwrap();
            let consumer = ConsumerPath { key: KEY, group: GROUP, consumer: b"first" };
            let mut ignore = |_: &EntryRef<'_>| ControlFlow::Continue(());
            read_new(&mut txn, consumer, None, true, &mut ignore).unwrap();
            drop(txn);
            BlockingFixture { store, clock, served: Arc::default() }
        }

        fn txn(&self) -> Txn<'_> {
            self.store.lock(0, [KEY], self.store.now_ms())
        }

        /// Blocks a reader that wants one entry. If `claims` is given, the reader also claims entries that have been
        /// idle for that many milliseconds.
        fn block_reader(&self, name: &'static str, claims: Option<u64>) -> BlockedToken {
            let (group, consumer) = (Box::from(GROUP), Arc::from(name.as_bytes()));
            let interest = match claims {
                Some(min_idle_ms) => Interest::Claim { group, consumer, min_idle_ms },
                None => Interest::Group { group, consumer },
            };
            let served = Arc::clone(&self.served);
            let again = move |txn: &mut Txn<'_>| {
                let consumer = ConsumerPath { key: KEY, group: GROUP, consumer: name.as_bytes() };
                let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
                let min_idle_ms = claims.unwrap_or(u64::MAX);
                match read_claiming(txn, consumer, min_idle_ms, Some(1), true, &mut ignore) {
                    Ok(0) => ServeResult::StillBlocked,
                    _ => {
                        served.lock().push(name);
                        ServeResult::Served
                    }
                }
            };
            self.txn().block(&[(KEY.into(), interest)], again)
        }

        fn served(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.served.lock())
        }
    }

    #[test]
    fn claiming_readers_are_retried_when_an_entry_is_idle_and_served_in_order() {
        let fixture = BlockingFixture::new();
        let plain = fixture.block_reader("plain", None);
        let patient = fixture.block_reader("patient", Some(500));
        let [early, late] = ["early", "late"].map(|name| fixture.block_reader(name, Some(200)));
        let times = [&plain, &patient, &early, &late].map(BlockedToken::retry_at_ms);
        assert_eq!(times, [None, Some(1500), Some(1200), Some(1200)]);
        // Too early: nothing is served, and the retry time stays.
        fixture.clock.advance(150);
        assert_eq!((fixture.store.retry_blocked(&late), fixture.served()), (Some(1200), vec![]));
        // Whichever reader is retried, the entry is delivered to the first reader whose minimum idle time it has
        // reached.
        fixture.clock.advance(50);
        assert_eq!((fixture.store.retry_blocked(&late), fixture.served()), (Some(1400), vec!["early"]));
        assert_eq!((fixture.store.retry_blocked(&early), fixture.store.retry_blocked(&plain)), (None, None));
        assert_eq!(fixture.store.retry_blocked(&patient), Some(1700));
        // A new entry is delivered to the reader that has been blocked longest, whether it claims or not.
        for expected in ["plain", "patient", "late"] {
            add(&mut fixture.txn(), KEY, &Addition::new(&[b"n", b"2"])).unwrap();
            assert_eq!(fixture.served(), [expected]);
        }
    }

    #[test]
    fn released_entry_wakes_only_claiming_readers() {
        let fixture = BlockingFixture::new();
        let _plain = fixture.block_reader("plain", None);
        let _tokens = ["a", "b"].map(|name| fixture.block_reader(name, Some(1 << 40)));
        let options = NackOptions { mode: NackMode::Fail, deliveries: None, force: false, delay_ms: None };
        let row = |txn: &Txn<'_>| txn.group(KEY, GROUP).unwrap().unwrap().pending().first().unwrap().id;
        for expected in ["a", "b"] {
            let mut txn = fixture.txn();
            let id: StreamId = row(&txn);
            Nack { key: KEY, group: GROUP, ids: [id], options }.run(&mut txn).unwrap();
            drop(txn);
            assert_eq!(fixture.served(), [expected]);
        }
        assert_eq!(fixture.txn().blocking_key_count(), 1);
    }

    #[test]
    fn entry_that_becomes_due_wakes_one_claiming_reader_at_its_due_time() {
        let fixture = BlockingFixture::new();
        let id = StreamId::new(1000, 0);
        let release = |delay_ms| {
            let options = NackOptions {
                mode: NackMode::Fail,
                deliveries: None,
                force: false,
                delay_ms: Some(delay_ms),
            };
            Nack { key: KEY, group: GROUP, ids: [id], options }.run(&mut fixture.txn()).unwrap();
        };
        let wake = || {
            fixture.store.wake_due_readers();
            fixture.served()
        };
        let wake_time = || {
            let txn = fixture.txn();
            txn.shard_at(txn.store().shard_of(KEY)).blocked.earliest_wake_ms()
        };
        let _plain = fixture.block_reader("plain", None);
        let _a = fixture.block_reader("a", Some(1 << 40));
        assert_eq!(wake_time(), None);
        // The release comes after the reader, then a later and an earlier time replace the due time.
        for (delay_ms, expected) in [(200, 1200), (300, 1300), (100, 1100)] {
            release(delay_ms);
            assert_eq!((wake_time(), wake()), (Some(expected), vec![]));
        }
        fixture.clock.advance(99);
        assert_eq!((wake(), wake_time()), (vec![], Some(1100)));
        fixture.clock.advance(1);
        assert_eq!((wake(), wake_time()), (vec!["a"], None));
        // The readers come after the release. One entry becomes due, so one reader is served: the first.
        release(50);
        let [b, _c] = ["b", "c"].map(|name| fixture.block_reader(name, Some(1 << 40)));
        assert_eq!(wake_time(), Some(1150));
        assert!(fixture.store.cancel_blocked(&b));
        let _d = fixture.block_reader("d", Some(1 << 40));
        fixture.clock.advance(50);
        assert_eq!((wake(), wake_time()), (vec!["c"], None));
        // Without a reader that claims, nothing is left to wake.
        release(50);
        assert_eq!(wake_time(), Some(1200));
        add(&mut fixture.txn(), KEY, &Addition::new(&[b"n", b"2"])).unwrap();
        add(&mut fixture.txn(), KEY, &Addition::new(&[b"n", b"3"])).unwrap();
        assert_eq!((fixture.served(), wake_time()), (vec!["plain", "d"], None));
        assert_eq!(fixture.txn().blocking_key_count(), 0);
    }

    #[test]
    fn without_pending_entries_the_retry_is_one_minimum_idle_time_away() {
        let fixture = BlockingFixture::new();
        let id = StreamId::new(1000, 0);
        Acknowledge { key: KEY, group: GROUP, ids: [id] }.run(&mut fixture.txn()).unwrap();
        let token = fixture.block_reader("a", Some(200));
        assert_eq!(token.retry_at_ms(), Some(1200));
        // An entry that was deleted from the stream can stay pending, however long it is idle. It must not cause
        // retries.
        let mut txn = fixture.txn();
        let force = NackOptions { mode: NackMode::Fail, deliveries: None, force: true, delay_ms: None };
        Nack { key: KEY, group: GROUP, ids: [id], options: force }.run(&mut txn).unwrap();
        Delete { key: KEY, ids: [id] }.run(&mut txn).unwrap();
        drop(txn);
        fixture.clock.advance(200);
        assert_eq!((fixture.store.retry_blocked(&token), fixture.served()), (Some(1400), vec![]));
        assert!(fixture.store.cancel_blocked(&token));
        assert_eq!(fixture.store.retry_blocked(&token), None);
    }

    #[test]
    fn cancelling_a_served_reader_does_not_remove_a_later_one_from_a_reused_queue() {
        let options = StoreOptions { shards: 1, ..StoreOptions::default() };
        let store = Store::new(options);
        let block = |key: &[u8], served: &Arc<Mutex<u32>>| {
            let (mut txn, served) = (store.lock(0, [key], 1000), Arc::clone(served));
            // A key that is named twice counts once.
            let interests = [(Box::from(key), Interest::Entries), (Box::from(key), Interest::Entries)];
            txn.block(&interests, move |_| {
                *served.lock() += 1;
                ServeResult::Served
            })
        };
        let add = |key: &[u8]| {
            let mut txn = store.lock(0, [key], 1000);
            add(&mut txn, key, &Addition::new(&[b"n", b"1"])).unwrap();
        };
        let (early, late) = (Arc::default(), Arc::default());
        let served = block(b"early", &early);
        add(b"early");
        // The first queue is free again, so the second reader gets it.
        let blocked = block(b"late", &late);
        assert!(!store.cancel_blocked(&served));
        add(b"late");
        add(b"late");
        assert_eq!((*early.lock(), *late.lock()), (1, 1));
        assert!(!store.cancel_blocked(&blocked));
        assert_eq!(store.lock_all(0, 1000).blocking_key_count(), 0);
    }

    fn keys(count: usize) -> Vec<Box<[u8]>> {
        (0..count).map(|number| format!("k{number}").into_bytes().into()).collect()
    }

    /// Fails if `step` takes quadratic time in the number of keys. Eight times as many keys take about 8 times as long
    /// in linear time, and 64 times as long in quadratic time. On a busy machine one attempt can take long for other
    /// reasons.
    fn assert_linear(step: impl Fn(&[Box<[u8]>]) -> Duration) {
        let times: Vec<_> = (0..3).map(|_| (step(&keys(5_000)), step(&keys(40_000)))).collect();
        let is_linear = |&(few, many): &(Duration, Duration)| many < 24 * few + Duration::from_millis(500);
        assert!(times.iter().any(is_linear), "5,000 and 40,000 keys: {times:?}");
    }

    #[test]
    fn blocking_on_many_keys_takes_linear_time() {
        let store = Store::new(StoreOptions::default());
        assert_linear(|keys| {
            // The command names every key twice.
            let interests: Vec<_> =
                keys.iter().chain(keys).map(|key| (key.clone(), Interest::Entries)).collect();
            let begin = Instant::now();
            let token = store.lock_all(0, 1000).block(&interests, |_| ServeResult::StillBlocked);
            assert_eq!(store.lock_all(0, 1000).blocking_key_count(), keys.len());
            assert!(store.cancel_blocked(&token));
            assert_eq!(store.lock_all(0, 1000).blocking_key_count(), 0);
            begin.elapsed()
        });
    }

    #[test]
    fn clearing_databases_wakes_only_readers_that_get_a_result() {
        let store = Store::new(StoreOptions::default());
        let mut txn = store.lock_all(0, 1000);
        let start = GroupStart::Last;
        let mut create = GroupCreate { key: KEY, group: GROUP, start, make_stream: true, entries_read: None };
        create.run(&mut txn).unwrap();
        let group = Interest::Group { group: GROUP.into(), consumer: Arc::default() };
        for (key, interest) in [(&b"a"[..], Interest::Entries), (b"b", Interest::List), (KEY, group)] {
            txn.block(&[(key.into(), interest)], |_| ServeResult::StillBlocked);
        }
        txn.flush_all();
        assert_eq!(txn.ready.take_first().map(|at| at.key), Some(KEY.into()));
        assert!(txn.ready.is_empty());
        // After the swap, one of the keys exists. The group reader's key does not.
        txn.select(1);
        add(&mut txn, b"a", &Addition::new(&[b"n", b"1"])).unwrap();
        add(&mut txn, b"x", &Addition::new(&[b"n", b"1"])).unwrap();
        txn.swap_databases(0, 1).unwrap();
        let ready: Vec<_> = std::iter::from_fn(|| txn.ready.take_first()).map(|at| at.key).collect();
        assert!(ready.len() == 2 && ready.contains(&b"a"[..].into()) && ready.contains(&KEY.into()));
    }

    #[test]
    fn many_ready_keys_are_served_in_linear_time_in_the_order_of_the_changes() {
        let store = Store::new(StoreOptions::default());
        assert_linear(|keys| {
            let served: Arc<Mutex<Vec<usize>>> = Arc::default();
            for (number, key) in keys.iter().enumerate() {
                let served = Arc::clone(&served);
                store.lock_all(0, 1000).block(&[(key.clone(), Interest::Entries)], move |_| {
                    served.lock().push(number);
                    ServeResult::Served
                });
            }
            let begin = Instant::now();
            let mut txn = store.lock_all(0, 1000);
            for key in keys.iter().rev() {
                add(&mut txn, key, &Addition::new(&[b"n", b"1"])).unwrap();
                add(&mut txn, key, &Addition::new(&[b"n", b"2"])).unwrap();
            }
            drop(txn);
            let took = begin.elapsed();
            assert!(served.lock().iter().copied().eq((0..keys.len()).rev()));
            took
        });
    }
}
