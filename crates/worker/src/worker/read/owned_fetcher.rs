//! The fetcher of an owned stream: takes over what is pending, then reads new messages as long as the worker owns the
//! stream.
//!
//! It differs from the other fetcher (`fetcher.rs`) in three ways, all because of the order of messages:
//!
//! * The store refuses its reads when another worker has acquired the stream.
//! * It waits for messages without a group. So nothing is delivered to a worker that waits, froze, and lost the stream.
//! * If a read fails, messages may be pending for this worker without its knowledge. They come first: it looks for them
//!   before it reads new ones.

use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::admission::admit;
use super::fetcher::wait_for_room;
use super::recovery;
use crate::backend::{Error, ErrorKind, StreamId};
use crate::worker::core::{Core, PAGE_ROWS};
use crate::worker::message::Ownership;
use crate::worker::own::renewal::{claimant, lose};
use crate::worker::queue::Room;
use crate::worker::stream::{Operation, StoreBackoff, Subscription};

/// How long one wait for messages takes at most.
const BLOCK: Duration = Duration::from_secs(1);
/// How often the worker looks whether the store knows the lag of the group.
const LAG_INTERVAL: Duration = Duration::from_secs(10);
/// Number of waits after which the worker reads without having been woken: somebody may have moved the group back.
const WAITS_MAX: u32 = 5;

/// Reads messages until the worker drains, or gives the stream up or loses it.
pub(crate) async fn fetch(core: &Core, subscription: &Subscription) {
    let Some(ownership) = &subscription.origin.ownership else { return };
    recovery::take_over(core, subscription).await;
    let mut reader = OwnedReader {
        core,
        subscription,
        ownership,
        last: None,
        is_woken: false,
        may_miss_some: false,
        lag_checked_at: None,
    };
    let mut backoff = StoreBackoff::new();
    while let Some(room) = reader.room().await {
        match reader.read(room).await {
            Ok(()) => {
                backoff.reset();
                core.record_success(subscription, Operation::Reading);
            }
            Err(error) => {
                reader.may_miss_some = true;
                let handled = core.handle_error(subscription, Operation::Reading, &error, &mut backoff);
                tokio::select! {
                    _ = handled => {}
                    () = subscription.stopping.cancelled() => return,
                    () = core.draining.cancelled() => {}
                }
                if error.kind() == ErrorKind::Closed {
                    return;
                }
            }
        }
    }
}

struct OwnedReader<'a> {
    core: &'a Core,
    subscription: &'a Subscription,
    ownership: &'a Ownership,
    /// The group has read all entries up to this id. `None` if that is not known.
    last: Option<StreamId>,
    /// Whether a new entry has woken the worker since its last read.
    is_woken: bool,
    /// Whether messages may be pending for this worker without its knowledge.
    may_miss_some: bool,
    /// When the worker last looked whether the store knows the lag of the group.
    lag_checked_at: Option<Instant>,
}

impl OwnedReader<'_> {
    /// Waits until the queue has room. `None` if the worker reads no more of the stream.
    async fn room(&self) -> Option<Room> {
        tokio::select! {
            biased;
            () = self.subscription.stopping.cancelled() => None,
            room = wait_for_room(self.core, self.subscription) => room,
        }
    }

    async fn read(&mut self, room: Room) -> Result<(), Error> {
        let Self { core, subscription, ownership, .. } = *self;
        if self.may_miss_some {
            self.find_missed().await?;
        }
        if self.lag_checked_at.is_none_or(|at| at.elapsed() >= LAG_INTERVAL) {
            self.lag_checked_at = Some(Instant::now());
            self.repair_lag().await;
        }
        // Every entry up to here is delivered if the read returns nothing.
        let last_added = match self.last {
            Some(_) => StreamId::MIN,
            None => {
                core.backend.stream(&subscription.stream).await?.map_or(StreamId::MIN, |info| info.last_id)
            }
        };
        let sent_at = Instant::now();
        let read = subscription.read(room.count);
        let read = core.backend.read_owned(&read, claimant(core, subscription), ownership.fence);
        let Some(deliveries) = read.await? else {
            lose(core, subscription, ownership, "another worker has acquired it");
            return Ok(());
        };
        let was_woken = std::mem::take(&mut self.is_woken);
        if let Some(last) = deliveries.iter().map(|delivery| delivery.id).max() {
            self.last = Some(last);
            admit(core, subscription, deliveries, sent_at).await;
            return Ok(());
        }
        if was_woken {
            // The group was moved forward, past the entry that woke the worker.
            self.last = None;
            return Ok(());
        }
        let last = self.last.unwrap_or(last_added);
        self.last = Some(last);
        self.wait(last).await
    }

    /// Waits until there is an entry after `last`, or until it is time to read anyway.
    async fn wait(&mut self, last: StreamId) -> Result<(), Error> {
        for _ in 0..WAITS_MAX {
            let follow = self.core.backend.follow(&self.subscription.stream, last, 1, BLOCK);
            let found = tokio::select! {
                found = follow => found?,
                () = self.subscription.stopping.cancelled() => return Ok(()),
                () = self.core.draining.cancelled() => return Ok(()),
            };
            if !found.is_empty() {
                self.is_woken = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Lets the store report the right lag of the group again, if it has forgotten what the group has read in a
    /// failover.
    async fn repair_lag(&self) {
        let Self { core, subscription, ownership, .. } = *self;
        match core.backend.repair_lag(claimant(core, subscription), ownership.fence).await {
            Ok(false) => {}
            Ok(true) => debug!(stream = &*subscription.stream, "the store knows the lag of the group again"),
            // Nothing depends on it.
            Err(error) => {
                debug!(stream = &*subscription.stream, %error, "cannot repair the lag of the group")
            }
        }
    }

    /// Admits the messages that are pending for this worker and not in flight: the replies to earlier reads were lost.
    async fn find_missed(&mut self) -> Result<(), Error> {
        let Self { core, subscription, .. } = *self;
        let mut after = StreamId::MIN;
        loop {
            let sent_at = Instant::now();
            let found = core.backend.own_pending(subscription.as_consumer(), after, PAGE_ROWS).await?;
            let Some(last) = found.last().map(|delivery| delivery.id) else { break };
            after = last;
            let known = subscription.in_flight.contains_ids(found.iter().map(|delivery| delivery.id));
            let missed = found.into_iter().zip(known).filter(|(_, is_known)| !is_known);
            let missed: Vec<_> = missed.map(|(delivery, _)| delivery).collect();
            if !missed.is_empty() {
                debug!(
                    stream = &*subscription.stream,
                    count = missed.len(),
                    "found messages of lost replies"
                );
                admit(core, subscription, missed, sent_at).await;
            }
        }
        self.may_miss_some = false;
        Ok(())
    }
}
