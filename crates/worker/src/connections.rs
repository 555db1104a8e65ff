//! Limits the open connections of an HTTP server. If there is no room for another one, the server closes one whose
//! client sends nothing or does not read, and lets each answer end its connection, so that no clients can keep out
//! probes. Knows no HTTP.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

/// How long a client can send no request before another one can take its place.
const IDLE_TIME_MIN: Duration = Duration::from_millis(100);
/// How long a client can read nothing of an answer before another one can take its place.
const STALL_TIME_MIN: Duration = Duration::from_millis(250);

/// The open connections of a server, each with a task.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    tasks: JoinSet<()>,
    /// In the order in which they were accepted.
    open: Vec<(Arc<Activity>, AbortHandle)>,
    /// Whether there is no room for another one.
    is_full: Arc<AtomicBool>,
}

/// What a connection is doing. The task of the connection records it here.
#[derive(Debug)]
pub struct Activity {
    doing: Mutex<Doing>,
    is_set_full: Arc<AtomicBool>,
}

/// What a connection is doing, and since when.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Idle(Instant),
    /// It handles a request or sends the answer.
    Busy,
    /// It has a part of an answer that the client does not read. The flag says whether a request is handled, too.
    Stalled(Instant, bool),
}

impl Activity {
    fn new(is_set_full: Arc<AtomicBool>) -> Activity {
        Activity { doing: Mutex::new(Doing::Idle(Instant::now())), is_set_full }
    }

    /// Returns whether the connection must end with the answer that is about to be sent. Otherwise a client that sends
    /// requests in quick succession would be idle for too short a time ever to give way.
    pub fn must_end(&self) -> bool {
        self.is_set_full.load(Ordering::Relaxed)
    }

    /// Records that a request has arrived.
    pub fn begin_request(&self) {
        *self.doing.lock() = Doing::Busy;
    }

    /// Records that nothing more is added to the answer.
    pub fn end_request(&self) {
        let mut doing = self.doing.lock();
        *doing = match *doing {
            Doing::Stalled(since, _) => Doing::Stalled(since, false),
            Doing::Idle(_) | Doing::Busy => Doing::Idle(Instant::now()),
        };
    }

    /// Records that the client does not read.
    pub fn begin_stall(&self) {
        let mut doing = self.doing.lock();
        *doing = Doing::Stalled(Instant::now(), matches!(*doing, Doing::Busy));
    }

    /// Records that the client has read something.
    pub fn end_stall(&self) {
        let mut doing = self.doing.lock();
        if let Doing::Stalled(_, is_busy) = *doing {
            *doing = if is_busy { Doing::Busy } else { Doing::Idle(Instant::now()) };
        }
    }

    /// Returns from when on another connection can take the place of this one.
    fn may_close_at(&self) -> Option<Instant> {
        match *self.doing.lock() {
            Doing::Idle(since) => Some(since + IDLE_TIME_MIN),
            Doing::Stalled(since, _) => Some(since + STALL_TIME_MIN),
            Doing::Busy => None,
        }
    }
}

impl Connections {
    /// Creates an empty set for at most `max` connections.
    pub fn new(max: usize) -> Connections {
        Connections { max, tasks: JoinSet::new(), open: Vec::new(), is_full: Arc::default() }
    }

    /// Waits until another connection may be opened. If necessary, closes the one that has done nothing for longest.
    /// Meanwhile, each answer must [end its connection](Activity::must_end).
    pub async fn make_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.open.retain(|(_, task)| !task.is_finished());
            let is_full = self.open.len() >= self.max;
            self.is_full.store(is_full, Ordering::Relaxed);
            if !is_full {
                return;
            }
            let times = self.open.iter().enumerate();
            let first = times.filter_map(|(at, (activity, _))| Some((activity.may_close_at()?, at))).min();
            let now = Instant::now();
            match first {
                Some((at, index)) if at <= now => {
                    self.open.remove(index).1.abort();
                    self.tasks.join_next().await;
                }
                // Connections that are busy now can become idle meanwhile.
                first => {
                    let wait =
                        first.map_or(IDLE_TIME_MIN, |(at, _)| at.duration_since(now).min(IDLE_TIME_MIN));
                    let _ = timeout(wait, self.tasks.join_next()).await;
                }
            }
        }
    }

    /// Starts the task of a connection.
    pub fn add<F: Future<Output = ()> + Send + 'static>(&mut self, serve: impl FnOnce(Arc<Activity>) -> F) {
        let activity = Arc::new(Activity::new(Arc::clone(&self.is_full)));
        let task = self.tasks.spawn(serve(Arc::clone(&activity)));
        self.open.push((activity, task));
    }

    /// Waits until all connections are closed.
    pub async fn join_all(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    /// Returns a full set of three connections, and what they do.
    fn full() -> (Connections, Vec<Arc<Activity>>) {
        let mut connections = Connections::new(3);
        (0..3).for_each(|_| connections.add(|_| pending()));
        let activities = connections.open.iter().map(|(activity, _)| Arc::clone(activity)).collect();
        (connections, activities)
    }

    fn is_open(connections: &Connections, activity: &Arc<Activity>) -> bool {
        connections.open.iter().any(|(open, _)| Arc::ptr_eq(open, activity))
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_idle_for_longest_gives_way() {
        let (mut connections, activities) = full();
        let began = Instant::now();
        activities[0].begin_request();
        connections.make_room().await;
        assert_eq!(began.elapsed(), IDLE_TIME_MIN);
        assert!(is_open(&connections, &activities[0]) && !is_open(&connections, &activities[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_gives_way_if_none_is_idle() {
        let (mut connections, activities) = full();
        activities.iter().for_each(|activity| activity.begin_request());
        activities[2].begin_stall();
        // A client that reads slowly is not stalled.
        activities[1].begin_stall();
        activities[1].end_stall();
        let began = Instant::now();
        connections.make_room().await;
        assert_eq!(began.elapsed(), STALL_TIME_MIN);
        assert!(is_open(&connections, &activities[1]) && !is_open(&connections, &activities[2]));
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_are_waited_for() {
        let (mut connections, activities) = full();
        activities.iter().for_each(|activity| activity.begin_request());
        assert!(timeout(Duration::from_secs(60), connections.make_room()).await.is_err());
        activities[1].end_request();
        connections.make_room().await;
        assert!(!is_open(&connections, &activities[1]));
    }
}
