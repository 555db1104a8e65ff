//! A backend that records a worker's requests to the store and their results, and that kills the process at a planned
//! step.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::backend::{
    Acknowledgement, BackendFuture, Capability, Claimant, Claimed, Consumer, Delivery, Entry, Error,
    NewDeadLetter, NewEntry, OwnStreams, Read, ReadMany, ReadMessages, Release, SettleMessages, Start,
    StreamId, StreamInfo, StreamOwner, StreamRead, Trim,
};
use millstream_worker::{Admin, Backend};
use tokio::time::sleep;

use crate::journal::{Journal, now_ms};
use crate::steps::{Plan, Step, die};

/// The backend of one worker.
pub(crate) struct Recording {
    pub inner: Arc<dyn Admin>,
    pub journal: Arc<Journal>,
    pub plan: Arc<Plan>,
    /// A bug for the ledger to find.
    pub mistake: Option<Mistake>,
}

/// A bug that a backend adds to its worker, for the ledger to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Every message is acknowledged as soon as it is read.
    AcknowledgesEarly,
    /// The store does not check the fence of an owner that reads, and the owner never learns that it has lost its
    /// lease.
    ReadsWithoutFence,
    /// A take-over leaves messages behind that back off.
    LeavesBackOffsBehind,
}

impl Mistake {
    const ALL: [(Mistake, &'static str); 3] = [
        (Mistake::AcknowledgesEarly, "acknowledges-early"),
        (Mistake::ReadsWithoutFence, "reads-without-fence"),
        (Mistake::LeavesBackOffsBehind, "leaves-back-offs-behind"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Mistake::ALL.into_iter().find_map(|(is, name)| (is == self).then_some(name)).unwrap_or_default()
    }

    pub(crate) fn parse(name: &str) -> Option<Mistake> {
        Mistake::ALL.into_iter().find_map(|(is, other)| (other == name).then_some(is))
    }
}

impl Recording {
    fn record_ids<'i>(&self, event: &str, first: Option<u64>, ids: impl IntoIterator<Item = &'i StreamId>) {
        let first = first.iter().map(u64::to_string);
        self.journal.record(event, first.chain(ids.into_iter().map(StreamId::to_string)));
    }

    /// Records messages that the worker got. Their leases began after `requested_ms`.
    fn record_deliveries(&self, requested_ms: u64, deliveries: &[Delivery]) {
        if deliveries.is_empty() {
            return;
        }
        let words = deliveries.iter().map(|delivery| format!("{}:{}", delivery.id, delivery.deliveries));
        self.journal.record("got", std::iter::once(requested_ms.to_string()).chain(words));
        self.plan.pass(Step::Got, &self.journal);
    }

    async fn acknowledge_early(&self, read: &Read<'_>, deliveries: &[Delivery]) {
        if self.mistake == Some(Mistake::AcknowledgesEarly) {
            let ids = deliveries.iter().map(|delivery| delivery.id).collect();
            let done = Acknowledgement { ids, ..Acknowledgement::default() };
            // A failure does not matter here.
            let _ = self.inner.acknowledge(read.stream, read.group, &done).await;
        }
    }

    /// Waits for a call to the store. If the step is due, kills the process during the call.
    async fn call_or_die<T>(&self, step: Step, call: BackendFuture<'_, T>) -> Result<T, Error> {
        if !self.plan.is_due(step) {
            return call.await;
        }
        tokio::select! {
            _ = call => {}
            () = sleep(Duration::from_micros(now_ms() % 4 * 500)) => {}
        }
        die(step.name(), &self.journal)
    }

    async fn acknowledge_recorded(
        &self,
        stream: &str,
        group: &str,
        done: &Acknowledgement,
    ) -> Result<u64, Error> {
        let ids = &done.ids;
        self.record_ids("acking", None, ids);
        self.plan.pass(Step::Acking, &self.journal);
        let result = self.call_or_die(Step::AckSent, self.inner.acknowledge(stream, group, done)).await;
        match &result {
            Ok(count) => {
                self.record_ids("acked", Some(*count), ids);
                self.plan.pass(Step::Acked, &self.journal);
            }
            Err(_) => self.record_ids("unacked", None, ids),
        }
        result
    }

    async fn dead_letter_recorded(
        &self,
        consumer: Consumer<'_>,
        letters: &[NewDeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        self.record_ids("dead-lettering", None, letters.iter().map(|letter| &letter.origin));
        self.plan.pass(Step::DeadLettering, &self.journal);
        let moved = self.call_or_die(Step::DeadLetterSent, self.inner.dead_letter(consumer, letters)).await;
        match &moved {
            Ok(moved) => {
                self.record_ids("dead-lettered", None, moved);
                self.plan.pass(Step::DeadLettered, &self.journal);
            }
            Err(_) => self.record_ids("not-dead-lettered", None, letters.iter().map(|letter| &letter.origin)),
        }
        moved
    }

    async fn extend_recorded(
        &self,
        consumer: Consumer<'_>,
        ids: &[StreamId],
    ) -> Result<Vec<StreamId>, Error> {
        let requested_ms = now_ms();
        let ours = self.inner.extend(consumer, ids).await?;
        if !ours.is_empty() {
            self.record_ids("extended", Some(requested_ms), &ours);
        }
        let lost: Vec<&StreamId> = ids.iter().filter(|id| !ours.contains(id)).collect();
        if !lost.is_empty() {
            self.record_ids("lost", None, lost);
        }
        Ok(ours)
    }
}

/// Defines methods that only forward to the inner backend.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        fn $name<'a>(&'a self, $($argument: $kind),*) -> BackendFuture<'a, $answer> {
            self.inner.$name($($argument),*)
        }
    )*};
}

impl ReadMessages for Recording {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> BackendFuture<'a, Vec<Delivery>> {
        Box::pin(async move {
            let requested_ms = now_ms();
            let deliveries = self.inner.read(read).await?;
            self.acknowledge_early(read, &deliveries).await;
            self.record_deliveries(requested_ms, &deliveries);
            Ok(deliveries)
        })
    }

    fn read_many<'a>(&'a self, read: &'a ReadMany<'a>) -> BackendFuture<'a, Vec<StreamRead>> {
        Box::pin(async move {
            let requested_ms = now_ms();
            let found = self.inner.read_many(read).await?;
            for deliveries in found.iter().filter_map(|found| found.result.as_ref().ok()) {
                self.record_deliveries(requested_ms, deliveries);
            }
            Ok(found)
        })
    }

    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed> {
        Box::pin(async move {
            let requested_ms = now_ms();
            let claimed = self.inner.autoclaim(consumer, min_idle, from, count).await?;
            self.record_deliveries(requested_ms, &claimed.deliveries);
            Ok(claimed)
        })
    }

    forward! {
        now_ms(stream: &'a str) -> u64;
        create_group(stream: &'a str, group: &'a str, start: Start) -> bool;
        join_group(stream: &'a str, group: &'a str, start: Start) -> bool;
        own_pending(consumer: Consumer<'a>, after: StreamId, count: usize) -> Vec<Delivery>;
        stream(stream: &'a str) -> Option<StreamInfo>;
        supports(capability: Capability, stream: &'a str) -> bool;
    }
}

impl SettleMessages for Recording {
    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> BackendFuture<'a, u64> {
        Box::pin(self.acknowledge_recorded(stream, group, done))
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        letters: &'a [NewDeadLetter],
    ) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(self.dead_letter_recorded(consumer, letters))
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> BackendFuture<'a, Vec<StreamId>> {
        Box::pin(self.extend_recorded(consumer, ids))
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> BackendFuture<'a, u64> {
        let words = rows.iter().map(|row| format!("{}:{}", row.id, row.deliveries));
        self.journal.record("releasing", words);
        self.inner.release(consumer, rows)
    }

    forward! {
        add(stream: &'a str, entries: &'a [NewEntry], trim: Option<Trim>) -> Vec<StreamId>;
        delete_done(stream: &'a str, gaps: bool) -> u64;
        hash_get(key: &'a str, fields: &'a [String]) -> Vec<Option<Bytes>>;
        hash_len(key: &'a str) -> u64;
        hash_get_all(key: &'a str) -> Vec<(String, Bytes)>;
        hash_fields(key: &'a str) -> Vec<String>;
        hash_set(key: &'a str, pairs: &'a [(String, Bytes)]) -> ();
        hash_delete(key: &'a str, fields: &'a [String]) -> u64;
        seen(keys: &'a [String]) -> Vec<bool>;
    }
}

impl OwnStreams for Recording {
    fn read_owned<'a>(
        &'a self,
        read: &'a Read<'a>,
        claimant: Claimant<'a>,
        fence: u64,
    ) -> BackendFuture<'a, Option<Vec<Delivery>>> {
        Box::pin(async move {
            let requested_ms = now_ms();
            if self.mistake == Some(Mistake::ReadsWithoutFence) {
                return self.read(read).await.map(Some);
            }
            let Some(deliveries) = self.inner.read_owned(read, claimant, fence).await? else {
                return Ok(None);
            };
            self.acknowledge_early(read, &deliveries).await;
            self.record_deliveries(requested_ms, &deliveries);
            Ok(Some(deliveries))
        })
    }

    fn take_over<'a>(
        &'a self,
        consumer: Consumer<'a>,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed> {
        Box::pin(async move {
            let requested_ms = now_ms();
            let claimed = match self.mistake {
                Some(Mistake::LeavesBackOffsBehind) => {
                    self.inner.autoclaim(consumer, Duration::ZERO, from, count).await?
                }
                _ => self.inner.take_over(consumer, from, count).await?,
            };
            self.record_deliveries(requested_ms, &claimed.deliveries);
            Ok(claimed)
        })
    }

    fn acquire<'a>(&'a self, claimant: Claimant<'a>, lease: Duration) -> BackendFuture<'a, StreamOwner> {
        Box::pin(async move {
            let owner = self.inner.acquire(claimant, lease).await?;
            if owner.instance == claimant.instance {
                self.journal.record("acquired", [claimant.stream.to_owned(), owner.fence.to_string()]);
            }
            Ok(owner)
        })
    }

    fn renew<'a>(&'a self, claimant: Claimant<'a>, fence: u64, lease: Duration) -> BackendFuture<'a, bool> {
        if self.mistake == Some(Mistake::ReadsWithoutFence) {
            return Box::pin(async move {
                self.inner.renew(claimant, fence, lease).await?;
                Ok(true)
            });
        }
        self.inner.renew(claimant, fence, lease)
    }

    fn give_up<'a>(&'a self, claimant: Claimant<'a>, fence: u64) -> BackendFuture<'a, bool> {
        self.journal.record("gave-up", [claimant.stream.to_owned(), fence.to_string()]);
        self.inner.give_up(claimant, fence)
    }

    forward! {
        repair_lag(claimant: Claimant<'a>, fence: u64) -> bool;
        owner(stream: &'a str, group: &'a str) -> Option<StreamOwner>;
        follow(stream: &'a str, after: StreamId, count: usize, block: Duration) -> Vec<Entry>;
    }
}

impl Backend for Recording {
    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(Arc::clone(&self.inner))
    }
}
