//! Turns for clients that have not logged in, while clients must log in.
//!
//! Such a client can send requests as fast as the network allows, and the server answers each with an error. So that
//! it does not delay others, its connection waits for a turn before it runs a few requests. After a thread has polled its
//! sockets and served all other clients that were ready, it gives a few turns, in the order in which connections asked.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Number of turns given before the thread polls its sockets again.
const TURNS_PER_POLL: usize = 4;

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::default();
}

/// The connections of one thread that wait for a turn.
#[derive(Default)]
struct Turns {
    /// In the order of their tickets. The first has ticket number `given`.
    waiting: VecDeque<Waker>,
    /// Number of turns given since the thread started. Connections with a smaller ticket number have had their turn.
    given: u64,
    /// The waker of the task that gives turns, while that task sleeps.
    task: Option<Waker>,
}

/// Waits until this connection may run a few requests.
pub(crate) async fn wait_for_turn() {
    let mut ticket = None;
    poll_fn(|context| {
        TURNS.with_borrow_mut(|turns| {
            let ticket = *ticket.get_or_insert_with(|| turns.take_ticket(context.waker()));
            if ticket < turns.given { Poll::Ready(()) } else { Poll::Pending }
        })
    })
    .await
}

/// The task of a thread that gives turns. Never returns.
pub(crate) async fn run_turn_task() {
    loop {
        poll_fn(|context| TURNS.with_borrow_mut(|turns| turns.poll_waiting(context.waker()))).await;
        TURNS.with_borrow_mut(Turns::give);
        // The runtime polls the sockets before it runs a task that has yielded.
        tokio::task::yield_now().await;
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

    fn give(&mut self) {
        let count = self.waiting.len().min(TURNS_PER_POLL);
        self.given += count as u64;
        self.waiting.drain(..count).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn turns_are_given_in_order_and_few_per_poll() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let order = Rc::new(RefCell::new(Vec::new()));
        local.block_on(&runtime, async {
            for number in 0..2 * TURNS_PER_POLL {
                let order = Rc::clone(&order);
                tokio::task::spawn_local(async move {
                    wait_for_turn().await;
                    order.borrow_mut().push(number);
                });
            }
            tokio::task::yield_now().await;
            TURNS.with_borrow_mut(Turns::give);
            tokio::task::yield_now().await;
            assert_eq!(*order.borrow(), (0..TURNS_PER_POLL).collect::<Vec<_>>());
            tokio::task::spawn_local(run_turn_task());
            while order.borrow().len() < 2 * TURNS_PER_POLL {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(*order.borrow(), (0..2 * TURNS_PER_POLL).collect::<Vec<_>>());
    }
}
