//! Turns for clients that have not logged in, while clients must log in.
//!
//! Such a client can send requests as fast as the network allows, and the server answers each with an error. So that
//! it does not delay others, its connection waits for a turn before it runs a few requests. Each thread gives a few
//! turns per millisecond, in the order in which connections asked. So strangers use only a part of a thread's time,
//! however many requests they send.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::registry::Client;

/// Number of turns per millisecond. A login needs one turn.
const TURNS_PER_MS: usize = 16;
/// Time between two rounds of turns. The runtime's timers are not more precise than a millisecond.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(1);
/// Maximum milliseconds between two rounds that count. On a busy machine, the thread often wakes up late.
const ROUND_MS_MAX: usize = 8;

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::default();
}

#[derive(Default)]
struct Turns {
    /// In the order of their tickets. The first has ticket number `given`.
    waiting: VecDeque<Waker>,
    /// Number of turns given since the thread started. Connections with a smaller ticket number have had their turn.
    given: u64,
    /// The waker of the task that gives turns, while that task sleeps.
    task: Option<Waker>,
}

/// Waits until the connection of this client may run a few requests. Returns false if the client was killed.
pub(crate) async fn wait_for_turn(client: &Client) -> bool {
    let mut ticket = None;
    client.unserved.fetch_add(1, Ordering::Relaxed);
    let has_turn = poll_fn(|context| {
        if client.is_killed() {
            return Poll::Ready(false);
        }
        TURNS.with_borrow_mut(|turns| {
            let ticket = *ticket.get_or_insert_with(|| turns.take_ticket(context.waker()));
            if ticket < turns.given { Poll::Ready(true) } else { Poll::Pending }
        })
    })
    .await;
    client.unserved.fetch_sub(1, Ordering::Relaxed);
    has_turn
}

/// The task of a thread that gives turns. Never returns.
pub(crate) async fn run_turn_task() {
    let mut last_round = Instant::now();
    loop {
        poll_fn(|context| TURNS.with_borrow_mut(|turns| turns.poll_waiting(context.waker()))).await;
        let elapsed_ms = usize::try_from(last_round.elapsed().as_millis()).unwrap_or(usize::MAX);
        last_round = Instant::now();
        TURNS.with_borrow_mut(|turns| turns.give(TURNS_PER_MS * elapsed_ms.clamp(1, ROUND_MS_MAX)));
        tokio::time::sleep(BETWEEN_ROUNDS).await;
    }
}

impl Turns {
    fn take_ticket(&mut self, waker: &Waker) -> u64 {
        self.waiting.push_back(waker.clone());
        if let Some(task) = self.task.take() {
            task.wake();
        }
        self.given + self.waiting.len() as u64 - 1
    }

    /// Resolves when a connection waits.
    fn poll_waiting(&mut self, task: &Waker) -> Poll<()> {
        if !self.waiting.is_empty() {
            return Poll::Ready(());
        }
        self.task = Some(task.clone());
        Poll::Pending
    }

    fn give(&mut self, count_max: usize) {
        let count = self.waiting.len().min(count_max);
        self.given += count as u64;
        self.waiting.drain(..count).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{ConnectionInfo, Registry, Transport};
    use std::rc::Rc;
    use std::sync::Arc;

    fn client() -> Arc<Client> {
        let info = ConnectionInfo { addr: "".into(), laddr: "".into(), fd: 0, transport: Transport::Tcp };
        Registry::default().add(info, 0, 1, true).unwrap()
    }

    #[test]
    fn turns_are_given_in_order_and_few_per_round() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let order = Rc::new(RefCell::new(Vec::new()));
        local.block_on(&runtime, async {
            for number in 0..2 * TURNS_PER_MS {
                let order = Rc::clone(&order);
                tokio::task::spawn_local(async move {
                    assert!(wait_for_turn(&client()).await);
                    order.borrow_mut().push(number);
                });
            }
            tokio::task::yield_now().await;
            TURNS.with_borrow_mut(|turns| turns.give(TURNS_PER_MS));
            tokio::task::yield_now().await;
            assert_eq!(*order.borrow(), (0..TURNS_PER_MS).collect::<Vec<_>>());
            tokio::task::spawn_local(run_turn_task());
            while order.borrow().len() < 2 * TURNS_PER_MS {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(*order.borrow(), (0..2 * TURNS_PER_MS).collect::<Vec<_>>());
    }

    #[test]
    fn a_killed_client_waits_for_no_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let client = client();
        client.kill();
        assert!(!runtime.block_on(wait_for_turn(&client)));
    }
}
