//! Deferred drops: a background thread frees large removed values in pieces, so that no client waits for it.
//!
//! The thread runs only while there is something to free. Closing the store does not wait for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use millstream_engine::Value;
use millstream_engine::keyspace::DeferredDrop;
use parking_lot::Mutex;

use crate::priority::{self, TimeSlices};

/// Number of blocks freed between two pauses.
const BLOCKS_PER_SLICE: usize = 64;
/// Maximum length of the queue. If it is full, the thread that removed a value frees it itself. So values are never
/// removed faster than they are freed.
const QUEUED_MAX: usize = 1024;

/// Frees removed values in the background. Clones share one queue.
#[derive(Clone, Default)]
pub(crate) struct Reclaimer {
    queue: Arc<Mutex<DropQueue>>,
}

#[derive(Default)]
struct DropQueue {
    /// Values and databases to free, except the one that the background thread is freeing.
    queued: VecDeque<DeferredDrop>,
    is_running: bool,
}

impl Reclaimer {
    /// Queues removed values for the background thread, and starts the thread if it is not running.
    pub(crate) fn take(&self, removed: impl IntoIterator<Item = DeferredDrop>) {
        // Values that do not fit into the queue are dropped with this iterator, after the queue is unlocked.
        let mut removed = removed.into_iter();
        let mut queue = self.queue.lock();
        let room = QUEUED_MAX.saturating_sub(queue.queued.len());
        queue.queued.extend(removed.by_ref().take(room));
        if queue.is_running || queue.queued.is_empty() {
            return;
        }
        let reclaimer = self.clone();
        let spawned = thread::Builder::new().name("reclaim".to_owned()).spawn(move || reclaimer.work());
        match spawned {
            Ok(_) => queue.is_running = true,
            Err(_) => queue.queued.clear(),
        }
    }

    pub(crate) fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.queued.len() + usize::from(queue.is_running)
    }

    fn work(&self) {
        priority::lower();
        let mut slices = TimeSlices::begin();
        while let Some(removed) = self.next() {
            match removed {
                DeferredDrop::Value(value) => free(value, &mut slices),
                DeferredDrop::Database(mut database) => {
                    while let Some(value) = database.take_value() {
                        free(value, &mut slices);
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<DeferredDrop> {
        let mut queue = self.queue.lock();
        let next = queue.queued.pop_front();
        queue.is_running = next.is_some();
        next
    }
}

/// Frees a value in pieces, with pauses in which other threads can get the allocator's locks.
fn free(mut value: Value, slices: &mut TimeSlices) {
    while value.free_some(BLOCKS_PER_SLICE) {
        slices.pause();
    }
}
