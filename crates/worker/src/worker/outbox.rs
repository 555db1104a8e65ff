//! What is decided and not yet told to the store, gathered so that one call tells many.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::job::Ended;

/// How long the first decision waits for others.
const LINGER: Duration = Duration::from_millis(2);
/// So many do not wait.
const MANY: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    some: Notify,
    many: Notify,
}

#[derive(Debug, Default)]
struct State {
    list: Vec<Ended>,
    closed: bool,
}

impl Outbox {
    pub(crate) fn put(&self, ended: impl Iterator<Item = Ended>) {
        let mut state = self.state.lock();
        let before = state.list.len();
        state.list.extend(ended);
        let after = state.list.len();
        drop(state);
        if before == 0 && after > 0 {
            self.some.notify_one();
        }
        if before < MANY && after >= MANY {
            self.many.notify_one();
        }
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.some.notify_one();
        self.many.notify_one();
    }

    /// What has gathered, once there is anything. `None` if nothing will come any more.
    pub(crate) async fn gather(&self) -> Option<Vec<Ended>> {
        loop {
            let (count, closed) = {
                let state = self.state.lock();
                (state.list.len(), state.closed)
            };
            if count == 0 && closed {
                return None;
            }
            if count == 0 {
                self.some.notified().await;
                continue;
            }
            if count < MANY && !closed {
                // Whichever comes first: enough, or the time.
                let _ = tokio::time::timeout(LINGER, self.many.notified()).await;
            }
            return Some(std::mem::take(&mut self.state.lock().list));
        }
    }
}
