//! Consumer names that survive restarts: only one live worker may have such a name.
//!
//! A worker releases what the previous process with its name left pending. It must not do this to a process that still
//! runs: both would get each other's messages. So before a worker starts, it looks for heartbeats with its consumer
//! name.
//!
//! | the other worker | this worker |
//! |---|---|
//! | has no heartbeat: it has drained, or there was none | starts |
//! | its process ran on this machine and has ended | starts |
//! | its heartbeat does not change for two intervals and a second: it crashed | waits that long, then starts |
//! | drains | waits |
//! | still works after the maximum wait | ends with an error |
//!
//! A worker counts as silent by watching its heartbeat, not by the age of the heartbeat. After an outage of the store
//! all heartbeats are old, and their workers may still live.
//!
//! Two workers that start at the same time each publish their heartbeat first and then look for the other's. At least
//! one of them sees the other, and withdraws for a random time. So at most one of them starts.
//!
//! A worker that was frozen for so long that another one has taken its name over finds its heartbeat removed. It drops
//! its messages, which belong to the other worker now, and ends with an error.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::backend::{BackendFuture, Error, ErrorKind};
use crate::heartbeat::{self, Heartbeat, KEPT_FOR, WorkerInfo, WorkerState};
use crate::worker::core::Core;
use crate::worker::stream::{Operation, Subscription};
use crate::worker::watch::heartbeat::publish;

/// How often a waiting worker looks whether the other one has ended, unless heartbeats are more frequent.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time for which a worker withdraws if another one with its name starts at the same time.
const WITHDRAW_MAX: Duration = Duration::from_millis(500);

/// Waits until no other live worker has this worker's consumer name, and publishes the first heartbeat with this name.
///
/// Fails with [`ErrorKind::NameInUse`] if another worker has the name and does not end in time.
pub(crate) async fn claim(core: &Core, subscription: &Subscription) -> Result<(), Error> {
    let mut silence = SilenceDetector::default();
    let mut waiting = Waiting::default();
    loop {
        let Some(rivals) = find_rivals(core, subscription, &mut silence).await? else { return Ok(()) };
        if let Some(rival) = rivals.live.first() {
            waiting.check(core, subscription, rival)?;
            if waiting.must_publish(core) {
                try_publish(core, subscription, WorkerState::Waiting).await?;
            }
            sleep(core.settings.heartbeat.map_or(POLL_INTERVAL, |every| every.min(POLL_INTERVAL))).await;
            continue;
        }
        try_publish(core, subscription, WorkerState::Working).await?;
        let Some(rivals) = find_rivals(core, subscription, &mut silence).await? else { return Ok(()) };
        if rivals.live.is_empty() {
            waiting.end(subscription);
            let dead: Vec<String> = rivals.dead.into_iter().map(|rival| rival.instance).collect();
            // A frozen worker that wakes up learns by this that its name was taken over.
            let call = || core.backend.hash_delete(&subscription.workers_key, &dead);
            core.call_until_ok(subscription, Operation::Preparing, call).await;
            return Ok(());
        }
        try_publish(core, subscription, WorkerState::Waiting).await?;
        sleep(WITHDRAW_MAX.mul_f64(fastrand::f64())).await;
    }
}

/// Other workers with this worker's consumer name.
struct Rivals {
    /// Those that may be alive and may have messages, first those that do not drain.
    live: Vec<Heartbeat>,
    /// Those that have crashed.
    dead: Vec<Heartbeat>,
}

/// Looks for other workers with this worker's consumer name. `None` if the store has no readable heartbeats for a
/// reason that will not pass.
async fn find_rivals(
    core: &Core,
    subscription: &Subscription,
    silence: &mut SilenceDetector,
) -> Result<Option<Rivals>, Error> {
    let call = || {
        Box::pin(heartbeat::workers(&*core.backend, &subscription.stream, &subscription.group))
            as BackendFuture<'_, Vec<WorkerInfo>>
    };
    let is_final = |error: &Error| !error.is_transient();
    let workers = match core.call_until_ok_or_final(subscription, Operation::Preparing, is_final, call).await
    {
        Some(Ok(workers)) => workers,
        Some(Err(error)) => {
            warn!(stream = &*subscription.stream, %error, "cannot check whether another worker has this consumer name");
            return Ok(None);
        }
        None => return Ok(None),
    };
    let rivals: Vec<WorkerInfo> =
        workers.into_iter().filter(|other| is_rival(core, subscription, &other.heartbeat)).collect();
    let now = Instant::now();
    silence.observe(rivals.iter().map(|rival| &rival.heartbeat), now);
    let is_dead = |rival: &WorkerInfo| {
        let heartbeat = &rival.heartbeat;
        rival.age >= KEPT_FOR || heartbeat.process_has_ended() || silence.is_silent(heartbeat, now)
    };
    let (dead, live): (Vec<_>, Vec<_>) = rivals.into_iter().partition(is_dead);
    let dead = dead.into_iter().map(|rival| rival.heartbeat).collect();
    // A worker that waits has no messages yet.
    let live = live.into_iter().map(|rival| rival.heartbeat);
    let mut live: Vec<Heartbeat> = live.filter(|rival| rival.state != WorkerState::Waiting).collect();
    live.sort_by_key(|rival| rival.state == WorkerState::Draining);
    Ok(Some(Rivals { live, dead }))
}

/// Whether another worker has this worker's consumer name.
fn is_rival(core: &Core, subscription: &Subscription, other: &Heartbeat) -> bool {
    *other.consumer == *subscription.consumer && other.instance != core.instance
}

/// Publishes a heartbeat. If the store cannot take it now, the worker does without.
async fn try_publish(core: &Core, subscription: &Subscription, state: WorkerState) -> Result<(), Error> {
    match publish(core, subscription, state).await {
        Err(error) if error.kind() == ErrorKind::Closed => Err(error),
        // The task that sends heartbeats reports other errors.
        _ => Ok(()),
    }
}

/// How long a worker has waited for another one with its name.
#[derive(Default)]
struct Waiting {
    /// When it noticed the other worker.
    since: Option<Instant>,
    /// Since when another worker has had the name without draining.
    contested_since: Option<Instant>,
    published_at: Option<Instant>,
}

impl Waiting {
    /// Fails if the worker has waited long enough for this rival.
    fn check(&mut self, core: &Core, subscription: &Subscription, rival: &Heartbeat) -> Result<(), Error> {
        let now = Instant::now();
        if self.since.is_none() {
            self.since = Some(now);
            warn!(
                stream = &*subscription.stream,
                group = &*subscription.group,
                consumer = &*subscription.consumer,
                host = rival.host,
                pid = rival.pid,
                state = %rival.state,
                "another worker has this consumer name: waiting for it to end"
            );
        }
        if rival.state == WorkerState::Draining {
            self.contested_since = None;
            return Ok(());
        }
        let contested_for = now.duration_since(*self.contested_since.get_or_insert(now));
        if contested_for < core.settings.consumer_wait {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NameInUse,
            format!(
                "another live worker has {}; stop it, or give each worker a consumer name of its own",
                describe(subscription, rival)
            ),
        ))
    }

    /// Whether it is time to publish a heartbeat that says that this worker waits.
    fn must_publish(&mut self, core: &Core) -> bool {
        let every = core.settings.heartbeat.unwrap_or(heartbeat::INTERVAL);
        let due = self.published_at.is_none_or(|at| at.elapsed() >= every);
        if due {
            self.published_at = Some(Instant::now());
        }
        due
    }

    fn end(&self, subscription: &Subscription) {
        if let Some(since) = self.since {
            let (stream, consumer) = (&*subscription.stream, &*subscription.consumer);
            let seconds = since.elapsed().as_secs_f64();
            info!(stream, consumer, "the other worker has ended: waited for {seconds:.1} s");
        }
    }
}

fn describe(subscription: &Subscription, rival: &Heartbeat) -> String {
    let Subscription { stream, group, consumer, .. } = subscription;
    let Heartbeat { host, pid, state, .. } = rival;
    format!(
        "the consumer name {consumer} in group {group} of stream {stream}: host {host}, pid {pid}, {state}"
    )
}

/// Whether this worker still has its consumer name.
pub(crate) enum NameCheck {
    /// No other worker has taken it over.
    Ours,
    /// This other worker has.
    TakenOver(Box<Heartbeat>),
}

/// Checks that no other worker has taken over this worker's consumer name. Reads only the worker's own heartbeat,
/// unless that is gone.
pub(crate) async fn check(core: &Core, subscription: &Subscription) -> Result<NameCheck, Error> {
    let own = core.backend.hash_get(&subscription.workers_key, std::slice::from_ref(&core.instance)).await?;
    if own.iter().any(Option::is_some) {
        return Ok(NameCheck::Ours);
    }
    let all = heartbeat::workers(&*core.backend, &subscription.stream, &subscription.group).await?;
    let rival = all.into_iter().find(|other| {
        other.is_alive()
            && is_rival(core, subscription, &other.heartbeat)
            && other.heartbeat.state != WorkerState::Waiting
    });
    Ok(rival.map_or(NameCheck::Ours, |rival| NameCheck::TakenOver(Box::new(rival.heartbeat))))
}

/// Ends a worker whose consumer name another worker has taken over. Its messages belong to the other worker.
pub(crate) fn give_up(core: &Core, subscription: &Subscription, rival: &Heartbeat) {
    let taken_over = describe(subscription, rival);
    core.fail(Error::new(
        ErrorKind::NameInUse,
        format!(
            "another worker has taken over {taken_over}; this worker was frozen or could not reach the store for too \
             long, and ends"
        ),
    ));
    for subscription in core.subscriptions.all().iter() {
        let lost = subscription.in_flight.lose_all();
        core.counters.lost(subscription, lost as u64);
    }
}

/// Finds workers that have stopped sending heartbeats, by watching whether their heartbeats change.
///
/// The age of a heartbeat does not suffice: after an outage of the store all heartbeats are old.
#[derive(Debug, Default)]
pub(crate) struct SilenceDetector {
    /// For each instance its last heartbeat, and when that was first seen.
    seen: HashMap<String, (u64, Instant)>,
}

impl SilenceDetector {
    /// Records heartbeats that were read at this moment. Forgets the others.
    pub(crate) fn observe<'a>(&mut self, heartbeats: impl IntoIterator<Item = &'a Heartbeat>, now: Instant) {
        let known = std::mem::take(&mut self.seen);
        self.seen = heartbeats
            .into_iter()
            .map(|heartbeat| {
                let before = known.get(&heartbeat.instance).filter(|(beat, _)| *beat == heartbeat.beat_at_ms);
                let since = before.map_or(now, |(_, since)| *since);
                (heartbeat.instance.clone(), (heartbeat.beat_at_ms, since))
            })
            .collect();
    }

    /// Whether the heartbeat has been the same for so long that its worker is dead or frozen.
    pub(crate) fn is_silent(&self, heartbeat: &Heartbeat, now: Instant) -> bool {
        let seen = self.seen.get(&heartbeat.instance).filter(|(beat, _)| *beat == heartbeat.beat_at_ms);
        seen.is_some_and(|(_, since)| now.duration_since(*since) > heartbeat.silence_max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(beat_at_ms: u64) -> Heartbeat {
        let mut heartbeat = Heartbeat::parse("a", b"{}").unwrap();
        (heartbeat.beat_at_ms, heartbeat.interval_ms) = (beat_at_ms, 5000);
        heartbeat
    }

    #[test]
    fn a_worker_is_silent_if_its_heartbeat_stays_the_same() {
        let (start, mut silence) = (Instant::now(), SilenceDetector::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        // However old a heartbeat is: it is watched first.
        silence.observe(&[heartbeat(1)], at(0));
        assert!(!silence.is_silent(&heartbeat(1), at(0)) && !silence.is_silent(&heartbeat(1), at(11)));
        silence.observe(&[heartbeat(1)], at(6));
        assert!(silence.is_silent(&heartbeat(1), at(12)));
        silence.observe(&[heartbeat(2)], at(12));
        assert!(!silence.is_silent(&heartbeat(2), at(12)) && silence.is_silent(&heartbeat(2), at(24)));
    }
}
