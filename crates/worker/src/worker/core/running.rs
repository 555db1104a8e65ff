//! Which handler calls of a worker run, and since when. A call that completes in its first poll is not recorded.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backend::StreamId;
use crate::worker::message::Job;

/// The running handler calls, by slot.
#[derive(Debug, Default)]
pub(crate) struct Running {
    calls: Mutex<HashMap<usize, Call>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) began: Instant,
    /// Its message, or the first message of its batch.
    pub(crate) id: StreamId,
    logical: Arc<str>,
}

impl Running {
    /// Records a call until the returned guard is dropped.
    pub(crate) fn begin(&self, slot: usize, job: &Job, began: Instant) -> RunningCall<'_> {
        let call = Call { began, id: job.id, logical: Arc::clone(&job.origin.logical) };
        self.calls.lock().insert(slot, call);
        RunningCall { running: self, slot }
    }

    /// Returns the call for a message of this stream, or of a partition of it, that has been running longest.
    pub(crate) fn longest(&self, stream: &str) -> Option<Call> {
        let calls = self.calls.lock();
        calls.values().filter(|call| *call.logical == *stream).min_by_key(|call| call.began).cloned()
    }
}

pub(crate) struct RunningCall<'a> {
    running: &'a Running,
    slot: usize,
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.running.calls.lock().remove(&self.slot);
    }
}
