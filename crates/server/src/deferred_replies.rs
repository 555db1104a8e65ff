//! Deferred replies: a connection sends them only after the log position they depend on is durable.
//!
//! "Durable" here means as safe as `appendfsync` requires: synced, or only written. Each thread makes one write, or one
//! sync, for all connections of a round:
//!
//! ```text
//! round:  every connection that has input runs its batch; if its replies must wait, it becomes a waiter
//!         -> the first waiter wakes the flush task, which runs after all connections that were ready
//!         -> the flush task writes or syncs the log once, for all waiters
//!         -> it wakes the waiters, and they send their replies
//! ```
//!
//! If a batch unblocks a reader of the same thread, the reader is ready in the same round. So an entry and its delivery
//! need one sync.
//!
//! Only the flush task waits for the log. So when another thread syncs, this thread is woken once, not once per
//! connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::state::Server;

/// Maximum number of waiters woken before the thread polls its other connections.
const WAKES_PER_YIELD: usize = 32;
/// After a batch that needs no sync, the thread expects more such batches for this long.
const EXPECT_BATCHES_WITHOUT_SYNC_MS: u64 = 1000;

thread_local! {
    static DEFERRED: RefCell<DeferredReplies> = RefCell::default();
    /// When a batch that needs no sync last ran, as the server's uptime in milliseconds.
    static RAN_WITHOUT_SYNC_AT_MS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The connections of one thread whose replies are deferred.
#[derive(Default)]
struct DeferredReplies {
    /// The log position each connection waits for and its waker, ordered by position.
    waiters: VecDeque<(u64, Waker)>,
    /// The waker of the flush task, while that task sleeps.
    flush_task: Option<Waker>,
}

/// Records that this thread ran a batch that needs no sync.
pub(crate) fn note_batch_without_sync(uptime_ms: u64) {
    RAN_WITHOUT_SYNC_AT_MS.set(Some(uptime_ms));
}

/// Returns whether this thread has served clients that need no sync in the last second. If this thread did a sync,
/// these clients would wait for it.
pub(crate) fn serves_clients_without_sync(uptime_ms: u64) -> bool {
    let is_recent = |at_ms| uptime_ms.saturating_sub(at_ms) < EXPECT_BATCHES_WITHOUT_SYNC_MS;
    RAN_WITHOUT_SYNC_AT_MS.get().is_some_and(is_recent)
}

/// Waits until the log is durable up to `position`. Returns false if the log failed or was closed before that: the
/// replies must not be sent.
pub(crate) async fn wait_durable(server: &Server, position: u64) -> bool {
    let mut was_added = false;
    poll_fn(|context| {
        if let Some(may_send) = server.store.durability_outcome(position) {
            return Poll::Ready(may_send);
        }
        DEFERRED.with_borrow_mut(|deferred| match was_added {
            false => deferred.add(position, context.waker()),
            // Something else woke this task, or `appendfsync` became stricter after the flush task had woken it.
            true => deferred.add_if_missing(position, context.waker()),
        });
        was_added = true;
        Poll::Pending
    })
    .await
}

/// The flush task of a thread: whenever connections wait, makes the log durable for them. Never returns.
pub(crate) async fn run_flush_task(server: Arc<Server>) {
    let store = &server.store;
    loop {
        poll_fn(|context| DEFERRED.with_borrow_mut(|deferred| deferred.poll_waiters(context.waker()))).await;
        let Some(position) = DEFERRED.with_borrow(DeferredReplies::last_position) else { continue };
        if !store.try_write_through(position) {
            let has_other_work = serves_clients_without_sync(server.uptime_ms());
            // A failure needs no handling here: each waiter checks the result itself.
            let _ = store.wait_durable(position, has_other_work).await;
        }
        while DEFERRED.with_borrow_mut(|deferred| deferred.wake_durable(&server)) > 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl DeferredReplies {
    fn add(&mut self, position: u64, waker: &Waker) {
        self.waiters.push_back((position, waker.clone()));
        self.wake_flush_task();
    }

    /// Adds a connection again, unless it is still among the waiters.
    fn add_if_missing(&mut self, position: u64, waker: &Waker) {
        let at = self.waiters.partition_point(|(other, _)| *other < position);
        let mut same = self.waiters.range(at..).take_while(|(other, _)| *other == position);
        if same.all(|(_, other)| !other.will_wake(waker)) {
            self.waiters.insert(at, (position, waker.clone()));
            self.wake_flush_task();
        }
    }

    fn wake_flush_task(&mut self) {
        if let Some(waker) = self.flush_task.take() {
            waker.wake();
        }
    }

    fn poll_waiters(&mut self, flush_task: &Waker) -> Poll<()> {
        if !self.waiters.is_empty() {
            return Poll::Ready(());
        }
        self.flush_task = Some(flush_task.clone());
        Poll::Pending
    }

    fn last_position(&self) -> Option<u64> {
        self.waiters.back().map(|(position, _)| *position)
    }

    /// Wakes up to [`WAKES_PER_YIELD`] connections whose wait is over. Returns how many.
    fn wake_durable(&mut self, server: &Server) -> usize {
        let first = self.waiters.iter().take(WAKES_PER_YIELD);
        let count =
            first.take_while(|(position, _)| server.store.durability_outcome(*position).is_some()).count();
        // Wakes the last one first. A reader that a batch has unblocked is behind the client that sent the batch, and
        // its entries should not wait for that client's reply.
        self.waiters.drain(..count).rev().for_each(|(_, waker)| waker.wake());
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Setting;
    use crate::{Running, Settings};
    use millstream_engine::{Effect, StringEffect};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::PathBuf;

    fn server(name: &str, policy: &str) -> (Running, PathBuf) {
        let dir = std::env::temp_dir().join(format!("millstream-deferred-{name}-{}", std::process::id()));
        // A test run that was killed can have left the folder behind.
        let _ = std::fs::remove_dir_all(&dir);
        let settings = Settings::new();
        let path = dir.to_string_lossy().into_owned();
        for (name, value) in [("port", "0"), ("appendonly", "yes"), ("appendfsync", policy), ("dir", &path)] {
            settings.set(Setting::find(name).unwrap().id, value).unwrap();
        }
        (Server::start(settings).unwrap(), dir)
    }

    /// Runs ten tasks that each change a key and wait until it is durable. Returns the number of writes and of syncs.
    fn one_round(name: &str, policy: &str) -> (u64, u64) {
        let (running, dir) = server(name, policy);
        let server = Arc::clone(running.server());
        let counted = || server.store.durability().unwrap().log;
        let before = counted();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(run_flush_task(Arc::clone(&server)));
        let finished = runtime.block_on(async {
            let tasks: Vec<_> = (0..10u8)
                .map(|n| {
                    let server = Arc::clone(&server);
                    tokio::spawn(async move {
                        let effect =
                            Effect::String(StringEffect::Set { value: b"value", expires_at_ms: None });
                        let key: &[u8] = &[n];
                        server.store.lock(0, [key], server.store.now_ms()).apply(key, &effect);
                        wait_durable(&server, server.store.appended_position()).await
                    })
                })
                .collect();
            let mut finished = 0;
            for task in tasks {
                finished += usize::from(task.await.unwrap());
            }
            finished
        });
        assert_eq!(finished, 10);
        let after = counted();
        server.shutdown.begin();
        std::fs::remove_dir_all(dir).unwrap();
        (after.writes - before.writes, after.syncs - before.syncs)
    }

    #[test]
    fn connections_of_one_round_share_a_write() {
        // On a busy machine a task can be late for a round, but not in each of five runs.
        assert!((0..5).any(|n| one_round(&format!("write-{n}"), "everysec").0 == 1));
    }

    #[test]
    fn connections_of_one_round_share_a_sync() {
        assert!((0..5).any(|n| one_round(&format!("sync-{n}"), "always") == (1, 1)));
    }

    #[test]
    fn an_entry_and_its_delivery_share_a_sync() {
        const ENTRIES: u64 = 20;
        let (running, dir) = server("delivery", "always");
        let (server, address) = (Arc::clone(running.server()), running.addresses()[0]);
        let serving = std::thread::spawn(move || running.run());
        let [mut producer, mut consumer] = [(), ()].map(|()| TcpStream::connect(address).unwrap());
        call(&mut producer, "XGROUP CREATE s g $ MKSTREAM");
        call(&mut producer, "XGROUP CREATECONSUMER s g c");
        let before = server.store.durability().unwrap().log.syncs;
        for _ in 0..ENTRIES {
            consumer.write_all(b"XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS s >\r\n").unwrap();
            while server.clients.blocked_count() == 0 {}
            assert!(call(&mut producer, "XADD s * f v").starts_with('$'));
            assert!(reply(&mut consumer).starts_with('*'));
        }
        assert_eq!(server.store.durability().unwrap().log.syncs - before, ENTRIES);
        server.shutdown.begin();
        serving.join().unwrap().unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn call(client: &mut TcpStream, request: &str) -> String {
        client.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        reply(client)
    }

    /// Reads a reply, which is short and arrives in one piece.
    fn reply(client: &mut TcpStream) -> String {
        let mut bytes = [0; 1024];
        let count = client.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn clients_that_need_no_sync_are_expected_for_a_second() {
        assert!(!serves_clients_without_sync(0));
        note_batch_without_sync(5_000);
        assert!(serves_clients_without_sync(5_999) && !serves_clients_without_sync(6_000));
    }

    #[test]
    fn connections_are_woken_in_reverse_order() {
        struct Recorder(u8, Arc<std::sync::Mutex<Vec<u8>>>);
        impl std::task::Wake for Recorder {
            fn wake(self: Arc<Recorder>) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let (running, dir) = server("order", "no");
        let order = Arc::default();
        let mut deferred = DeferredReplies::default();
        // Position 0 is always durable.
        for (number, position) in [(1, 0), (2, 0), (3, u64::MAX)] {
            deferred.add(position, &Waker::from(Arc::new(Recorder(number, Arc::clone(&order)))));
        }
        assert_eq!(deferred.wake_durable(running.server()), 2);
        assert_eq!(*order.lock().unwrap(), [2, 1]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn woken_connection_waits_again_if_the_policy_becomes_stricter() {
        let (running, dir) = server("stricter", "no");
        let server = Arc::clone(running.server());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let finished = runtime.block_on(async {
            let effect = Effect::String(StringEffect::Set { value: b"value", expires_at_ms: None });
            server.store.lock(0, [&b"k"[..]], server.store.now_ms()).apply(b"k", &effect);
            let position = server.store.appended_position();
            let waiter = {
                let server = Arc::clone(&server);
                tokio::spawn(async move { wait_durable(&server, position).await })
            };
            // The record is written and the task woken. Before the task runs, the policy changes from `no` to `always`.
            while DEFERRED.with_borrow(|deferred| deferred.waiters.is_empty()) {
                tokio::task::yield_now().await;
            }
            assert!(server.store.try_write_through(position));
            DEFERRED.with_borrow_mut(|deferred| assert_eq!(deferred.wake_durable(&server), 1));
            server.change_settings(&[("appendfsync", "always")]).unwrap();
            tokio::spawn(run_flush_task(Arc::clone(&server)));
            tokio::time::timeout(std::time::Duration::from_secs(30), waiter).await
        });
        assert!(finished.expect("the wait ends within 30 s").unwrap());
        server.shutdown.begin();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn waiters_are_ordered_by_position() {
        let mut deferred = DeferredReplies::default();
        let wakers: Vec<Waker> = (0..3).map(|_| Waker::from(Arc::new(NoopWake))).collect();
        deferred.add(1, &wakers[0]);
        deferred.add(7, &wakers[1]);
        deferred.add_if_missing(4, &wakers[2]);
        deferred.add_if_missing(4, &wakers[2]);
        deferred.add_if_missing(7, &wakers[1]);
        let positions: Vec<u64> = deferred.waiters.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, [1, 4, 7]);
    }

    /// A waker that does nothing. Unlike [`Waker::noop`], [`Waker::will_wake`] tells two of them apart.
    struct NoopWake;

    impl std::task::Wake for NoopWake {
        fn wake(self: Arc<NoopWake>) {}
    }

    #[test]
    fn wait_fails_after_the_log_was_closed() {
        let (running, dir) = server("closed", "always");
        let server = Arc::clone(running.server());
        server.store.close().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(run_flush_task(Arc::clone(&server)));
        assert!(
            !runtime.block_on(async { wait_durable(&server, server.store.appended_position() + 1).await })
        );
        server.shutdown.begin();
        std::fs::remove_dir_all(dir).unwrap();
    }
}
