//! Replies that are held back until what they tell is safe: one write, or one sync, for a whole round.
//!
//! ```text
//! round:  every connection that is ready runs; what must not be told yet is held, and its task waits here
//!         -> the settler, woken by the first of them and so queued behind all that were ready, settles for all
//!         -> they are woken and send
//! ```
//!
//! Only the settler waits for the log, so a sync by another thread wakes this one once and not once for each
//! connection. Released clients are given a moment to come back before the next sync, or they would take turns
//! in two halves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::state::Server;

/// So many send at a time. In between the thread looks after those who wait for nothing.
const RELEASED_AT_ONCE: usize = 32;
/// For so long after a batch that waited for nothing, others like it are expected.
const EXPECTED_FOR: Duration = Duration::from_secs(1);

thread_local! {
    static HELD: RefCell<Held> = RefCell::default();
    /// Whether a batch that waits for nothing has run.
    static RAN_FREELY: Cell<bool> = const { Cell::new(false) };
}

/// The connections of a thread whose replies are held.
#[derive(Default)]
struct Held {
    /// In order of the positions that must be settled first.
    waiting: VecDeque<(u64, Waker)>,
    /// Set while the settler has nothing to do.
    settler: Option<Waker>,
}

/// Notes that a batch has run that waits for no sync.
pub(crate) fn note_free() {
    RAN_FREELY.set(true);
}

/// Waits until everything up to `position` may be told. False: it never will be.
pub(crate) async fn until_settled(server: &Server, position: u64) -> bool {
    let mut was_noted = false;
    poll_fn(|context| {
        if let Some(may_be_told) = server.store.outcome(position) {
            return Poll::Ready(may_be_told);
        }
        HELD.with_borrow_mut(|held| match was_noted {
            false => held.note(position, context.waker()),
            // Released, and not settled any more: the policy has become stricter. Or it was woken by something else.
            true => held.note_again(position, context.waker()),
        });
        was_noted = true;
        Poll::Pending
    })
    .await
}

/// Settles for the connections of this thread, for ever.
pub(crate) async fn settle_for_all(server: Arc<Server>) {
    let store = &server.store;
    let mut released = 0;
    let mut free_at = None;
    loop {
        poll_fn(|context| HELD.with_borrow_mut(|held| held.poll_needed(context.waker()))).await;
        gather(released, store.gathering_time()).await;
        let Some(position) = HELD.with_borrow(Held::wanted) else { continue };
        if !store.settle_now(position) {
            if RAN_FREELY.take() {
                free_at = Some(Instant::now());
            }
            let alone = free_at.is_none_or(|at| at.elapsed() > EXPECTED_FOR);
            // Whoever is held sees a failure too.
            let _ = if alone { store.settle_here(position).await } else { store.settle(position).await };
        }
        released = 0;
        loop {
            let count = HELD.with_borrow_mut(|held| held.release(&server));
            if count == 0 {
                break;
            }
            released += count;
            tokio::task::yield_now().await;
        }
    }
}

/// Serves whoever comes until as many are held as were released, for a while at most.
async fn gather(released: usize, at_most: Duration) {
    let is_whole = || HELD.with_borrow(|held| held.waiting.len() >= released);
    if at_most.is_zero() || is_whole() {
        return;
    }
    let begun = Instant::now();
    while !is_whole() && begun.elapsed() < at_most {
        tokio::task::yield_now().await;
    }
}

impl Held {
    fn note(&mut self, position: u64, waker: &Waker) {
        self.waiting.push_back((position, waker.clone()));
        self.wake_settler();
    }

    /// Unless it stands there still.
    fn note_again(&mut self, position: u64, waker: &Waker) {
        let at = self.waiting.partition_point(|(other, _)| *other < position);
        let mut same = self.waiting.range(at..).take_while(|(other, _)| *other == position);
        if same.all(|(_, other)| !other.will_wake(waker)) {
            self.waiting.insert(at, (position, waker.clone()));
            self.wake_settler();
        }
    }

    fn wake_settler(&mut self) {
        if let Some(settler) = self.settler.take() {
            settler.wake();
        }
    }

    fn poll_needed(&mut self, settler: &Waker) -> Poll<()> {
        if !self.waiting.is_empty() {
            return Poll::Ready(());
        }
        self.settler = Some(settler.clone());
        Poll::Pending
    }

    /// What settles everybody here.
    fn wanted(&self) -> Option<u64> {
        self.waiting.back().map(|(position, _)| *position)
    }

    /// Wakes some of those who need not wait any more, and says how many.
    fn release(&mut self, server: &Server) -> usize {
        let first = self.waiting.iter().take(RELEASED_AT_ONCE);
        let count = first.take_while(|(position, _)| server.store.outcome(*position).is_some()).count();
        self.waiting.drain(..count).for_each(|(_, waker)| waker.wake());
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Setting;
    use crate::{Running, Settings};
    use millstream_engine::Effect;
    use std::path::PathBuf;

    /// A server on a folder of its own.
    fn server(name: &str, policy: &str) -> (Running, PathBuf) {
        let dir = std::env::temp_dir().join(format!("millstream-held-{name}-{}", std::process::id()));
        // A run that was killed may have left one behind.
        let _ = std::fs::remove_dir_all(&dir);
        let settings = Settings::new();
        let path = dir.to_string_lossy().into_owned();
        for (name, value) in [("port", "0"), ("appendonly", "yes"), ("appendfsync", policy), ("dir", &path)] {
            settings.set(Setting::find(name).unwrap().id, value).unwrap();
        }
        (Server::start(settings).unwrap(), dir)
    }

    /// Ten connections that are ready at once each change something and wait; how many writes and syncs that took.
    fn one_round(name: &str, policy: &str) -> (u64, u64) {
        let (running, dir) = server(name, policy);
        let server = Arc::clone(running.server());
        let counted = || server.store.durability().unwrap().log;
        let before = counted();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(settle_for_all(Arc::clone(&server)));
        let told = runtime.block_on(async {
            let waiting: Vec<_> = (0..10u8)
                .map(|n| {
                    let server = Arc::clone(&server);
                    tokio::spawn(async move {
                        let effect = Effect::StringSet { value: b"told", expires_at_ms: None };
                        let key: &[u8] = &[n];
                        server.store.lock(0, [key], server.store.now_ms()).apply(key, &effect);
                        until_settled(&server, server.store.seen()).await
                    })
                })
                .collect();
            let mut told = 0;
            for task in waiting {
                told += usize::from(task.await.unwrap());
            }
            told
        });
        assert_eq!(told, 10);
        let after = counted();
        server.shutdown.begin();
        std::fs::remove_dir_all(dir).unwrap();
        (after.writes - before.writes, after.syncs - before.syncs)
    }

    #[test]
    fn those_who_are_ready_together_share_a_write() {
        // On a busy machine some may come late to a round, but not to every one.
        assert!((0..5).any(|n| one_round(&format!("write-{n}"), "everysec").0 == 1));
    }

    #[test]
    fn those_who_are_ready_together_share_a_sync() {
        assert!((0..5).any(|n| one_round(&format!("sync-{n}"), "always") == (1, 1)));
    }

    #[test]
    fn who_was_released_and_must_wait_again_is_not_forgotten() {
        let (running, dir) = server("stricter", "no");
        let server = Arc::clone(running.server());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = runtime.block_on(async {
            let effect = Effect::StringSet { value: b"told", expires_at_ms: None };
            server.store.lock(0, [&b"k"[..]], server.store.now_ms()).apply(b"k", &effect);
            let position = server.store.seen();
            let waiting = {
                let server = Arc::clone(&server);
                tokio::spawn(async move { until_settled(&server, position).await })
            };
            // It is written and released, and before its task runs the policy asks for more.
            while HELD.with_borrow(|held| held.waiting.is_empty()) {
                tokio::task::yield_now().await;
            }
            assert!(server.store.settle_now(position));
            HELD.with_borrow_mut(|held| assert_eq!(held.release(&server), 1));
            server.change_settings(&[("appendfsync", "always")]).unwrap();
            tokio::spawn(settle_for_all(Arc::clone(&server)));
            tokio::time::timeout(Duration::from_secs(30), waiting).await
        });
        assert!(told.expect("it is told").unwrap());
        server.shutdown.begin();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn places_are_kept_in_the_order_of_their_positions() {
        let mut held = Held::default();
        let wakers: Vec<Waker> = (0..3).map(|_| Waker::from(Arc::new(Nobody))).collect();
        held.note(1, &wakers[0]);
        held.note(7, &wakers[1]);
        held.note_again(4, &wakers[2]);
        held.note_again(4, &wakers[2]);
        held.note_again(7, &wakers[1]);
        let positions: Vec<u64> = held.waiting.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, [1, 4, 7]);
    }

    struct Nobody;

    impl std::task::Wake for Nobody {
        fn wake(self: Arc<Nobody>) {}
    }

    #[test]
    fn nothing_is_told_once_the_log_has_ended() {
        let (running, dir) = server("ended", "always");
        let server = Arc::clone(running.server());
        server.store.close().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(settle_for_all(Arc::clone(&server)));
        assert!(!runtime.block_on(async { until_settled(&server, server.store.seen() + 1).await }));
        server.shutdown.begin();
        std::fs::remove_dir_all(dir).unwrap();
    }
}
