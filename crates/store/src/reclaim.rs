//! Giving memory back where nobody waits for it: what is large when it is removed is freed by a thread beside, in pieces.
//!
//! The thread is there only while there is something to free, and nobody ever waits for it, not even who closes the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use millstream_engine::Value;
use millstream_engine::keyspace::DeferredDrop;
use parking_lot::Mutex;

use crate::priority::{self, Turns};

/// Blocks freed before others may have the processor.
const BLOCKS_AT_ONCE: usize = 64;
/// Beyond so many, whoever removes something frees it: memory must not be removed faster than it is given back.
const WAITING_MAX: usize = 1024;

/// Frees what it is given. Cheap to make; a clone is the same reclaimer.
#[derive(Clone, Default)]
pub(crate) struct Reclaimer {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<DeferredDrop>,
    /// Whether there is a thread. What it has in hand is not waiting any more.
    is_running: bool,
}

impl Reclaimer {
    /// Frees all of this soon, elsewhere.
    pub(crate) fn take(&self, removed: impl IntoIterator<Item = DeferredDrop>) {
        // Whatever finds no room is dropped with the rest of this, once nothing is locked any more.
        let mut removed = removed.into_iter();
        let mut state = self.state.lock();
        let room = WAITING_MAX.saturating_sub(state.waiting.len());
        state.waiting.extend(removed.by_ref().take(room));
        if state.is_running || state.waiting.is_empty() {
            return;
        }
        let reclaimer = self.clone();
        let spawned = thread::Builder::new().name("reclaim".to_owned()).spawn(move || reclaimer.work());
        match spawned {
            Ok(_) => state.is_running = true,
            Err(_) => state.waiting.clear(),
        }
    }

    /// How many values and databases are not freed yet.
    pub(crate) fn pending(&self) -> usize {
        let state = self.state.lock();
        state.waiting.len() + usize::from(state.is_running)
    }

    fn work(&self) {
        priority::lower();
        let mut turns = Turns::begin();
        while let Some(removed) = self.next() {
            match removed {
                DeferredDrop::Value(value) => free(value, &mut turns),
                DeferredDrop::Database(mut database) => {
                    while let Some(value) = database.take_value() {
                        free(value, &mut turns);
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<DeferredDrop> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        state.is_running = next.is_some();
        next
    }
}

/// Piece by piece: an allocator's locks are shared with everybody else.
fn free(mut value: Value, turns: &mut Turns) {
    while value.free_some(BLOCKS_AT_ONCE) {
        turns.pause();
    }
}
