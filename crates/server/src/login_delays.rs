//! Connections whose login has failed: each waits a moment before it sends the reply, so that nobody can guess fast.
//!
//! A waiting connection keeps its socket, even if the client has closed its own. So each thread lets only some
//! connections wait. If another login fails, the wait that began first ends early: that connection sends its reply and
//! closes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::registry::Client;

const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of connections of a thread that wait after a failed login.
const DELAYED_MAX: usize = 256;

thread_local! {
    static DELAYS: RefCell<Delays> = RefCell::default();
}

#[derive(Default)]
struct Delays {
    /// By number, so that the first has waited longest.
    waiting: BTreeMap<u64, Waker>,
    last_number: u64,
}

/// Waits after a failed login. Returns false if the wait ended early, because the connection must close.
pub(crate) async fn wait(client: &Client) -> bool {
    let mut time = std::pin::pin!(tokio::time::sleep(FAILED_LOGIN_DELAY));
    let mut own = None;
    let waited = poll_fn(|context| {
        DELAYS.with_borrow_mut(|delays| {
            let number = *own.get_or_insert_with(|| delays.add(context.waker()));
            if client.is_killed() || !delays.waiting.contains_key(&number) {
                return Poll::Ready(false);
            }
            time.as_mut().poll(context).map(|()| true)
        })
    })
    .await;
    DELAYS.with_borrow_mut(|delays| own.and_then(|number| delays.waiting.remove(&number)));
    waited
}

impl Delays {
    /// Adds a connection and returns its number. Ends the longest wait if there are too many.
    fn add(&mut self, waker: &Waker) -> u64 {
        if self.waiting.len() >= DELAYED_MAX
            && let Some((_, longest)) = self.waiting.pop_first()
        {
            longest.wake();
        }
        self.last_number += 1;
        self.waiting.insert(self.last_number, waker.clone());
        self.last_number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_ends_when_there_are_too_many() {
        let mut delays = Delays::default();
        for number in 1..=DELAYED_MAX as u64 {
            assert_eq!(delays.add(Waker::noop()), number);
        }
        assert!(delays.waiting.contains_key(&1));
        delays.add(Waker::noop());
        assert_eq!((delays.waiting.len(), delays.waiting.contains_key(&1)), (DELAYED_MAX, false));
    }
}
