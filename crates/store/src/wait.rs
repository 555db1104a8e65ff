//! Readers that wait: per key, in the order they came, and woken no oftener than there is work.
//!
//! A reader is a closure that runs its whole command again. When a transaction ends, the thread that ran it goes
//! through the keys it made ready and, still under the lock, runs the readers that can be served. Readers of
//! one group form a queue of their own: when the group has nothing left to deliver the rest need
//! not be asked, so an XADD costs the same with ten readers waiting as with ten thousand.
//!
//! ```text
//! (db, key) -> Entries: XREAD readers, every one is asked
//!              Group g: XREADGROUP readers, asked while g has undelivered entries
//!              List:    BLPOP readers, asked while the list has values
//! ```
//!
//! A reader of several keys stands in several queues and is served with all its keys locked; it leaves
//! every queue at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
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

/// A waiting reader's place, to leave it again with [`Store::cancel`].
pub struct WaitToken {
    reader: Arc<Reader>,
}

impl WaitToken {
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

type Queue = BTreeMap<u64, Arc<Reader>>;

/// The waiting readers of one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    queues: DbKeyMap<HashMap<Interest, Queue, foldhash::fast::RandomState>>,
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
        queues.entry(interest.clone()).or_default().insert(reader.number, Arc::clone(reader));
    }

    /// Takes the reader out of all its queues in this shard.
    fn leave(&mut self, reader: &Reader) -> bool {
        let mut found = false;
        for (key, interest) in &reader.interests {
            let at = DbKeyRef { db: reader.db, key };
            let Some(queues) = self.queues.get_mut(&at) else { continue };
            if let Some(queue) = queues.get_mut(interest) {
                found |= queue.remove(&reader.number).is_some();
                if queue.is_empty() {
                    queues.remove(interest);
                }
            }
            if queues.is_empty() {
                self.queues.remove(&at);
            }
        }
        found
    }

    fn interests(&self, db: u32, key: &[u8]) -> Vec<Interest> {
        self.queues.get(&DbKeyRef { db, key }).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// The first reader of a queue that came after number `after`.
    fn next(&self, db: u32, key: &[u8], interest: &Interest, after: Option<u64>) -> Option<Arc<Reader>> {
        let queue = self.queues.get(&DbKeyRef { db, key })?.get(interest)?;
        let from = after.map_or(0, |number| number + 1);
        queue.range(from..).next().map(|(_, reader)| Arc::clone(reader))
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
        WaitToken { reader }
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
            for interest in self.shard(&key).waiting.interests(db, &key) {
                self.serve_queue(db, &key, &interest);
            }
        }
    }

    /// Asks the readers of one queue in their order, until there is nothing more to give.
    fn serve_queue(&mut self, db: u32, key: &[u8], interest: &Interest) {
        let last_number = self.store().wait_numbers.load(Ordering::Relaxed);
        let mut asked = None;
        while self.has_work(key, interest) {
            let Some(reader) = self.shard(key).waiting.next(db, key, interest, asked) else { return };
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

    /// Whether the next reader of a queue would get an answer: data, or the error that it waits in vain.
    fn has_work(&self, key: &[u8], interest: &Interest) -> bool {
        match (interest, self.get(key)) {
            (Interest::Entries, Some(Value::Stream(_))) => true,
            (Interest::List, Some(Value::List(_))) => true,
            (Interest::Entries | Interest::List, _) => false,
            (Interest::Group(group), Some(Value::Stream(stream))) => {
                stream.group(group).is_none_or(|group| stream.has_undelivered(group))
            }
            (Interest::Group(_), _) => true,
        }
    }
}
