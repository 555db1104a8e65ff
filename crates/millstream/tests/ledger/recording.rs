//! A backend that writes down what the worker asks of the store and what it is told, and that ends the process on the
//! way if the plan says so.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::backend::{
    Acknowledgement, Answer, Capabilities, Claimed, Consumer, DeadLetter, Delivery, Error, NewEntry, Read,
    Release, Start, StreamId, StreamInfo, Trim,
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
    /// A mistake, for the ledger to find: everything is acknowledged as soon as it is read.
    pub acknowledges_too_early: bool,
}

impl Recording {
    fn say_ids<'i>(&self, what: &str, first: Option<u64>, ids: impl IntoIterator<Item = &'i StreamId>) {
        let first = first.iter().map(u64::to_string);
        self.journal.say(what, first.chain(ids.into_iter().map(StreamId::to_string)));
    }

    /// Messages came into the worker's hands. Their leases began after `asked`.
    fn got(&self, asked: u64, deliveries: &[Delivery]) {
        if deliveries.is_empty() {
            return;
        }
        let words = deliveries.iter().map(|delivery| format!("{}:{}", delivery.id, delivery.deliveries));
        self.journal.say("got", std::iter::once(asked.to_string()).chain(words));
        self.plan.pass(Step::Got, &self.journal);
    }

    async fn acknowledge_too_early(&self, read: &Read<'_>, deliveries: &[Delivery]) {
        if self.acknowledges_too_early {
            let ids = deliveries.iter().map(|delivery| delivery.id).collect();
            let done = Acknowledgement { ids, remember: Vec::new() };
            // Whether it works does not matter to a mistake.
            let _ = self.inner.acknowledge(read.stream, read.group, &done).await;
        }
    }

    /// Waits for a call to the store, or ends the process while it is on its way.
    async fn or_die<T>(&self, step: Step, call: Answer<'_, T>) -> Result<T, Error> {
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
        self.say_ids("acking", None, ids);
        self.plan.pass(Step::Acking, &self.journal);
        let told = self.or_die(Step::AckSent, self.inner.acknowledge(stream, group, done)).await;
        match &told {
            Ok(count) => {
                self.say_ids("acked", Some(*count), ids);
                self.plan.pass(Step::Acked, &self.journal);
            }
            Err(_) => self.say_ids("unacked", None, ids),
        }
        told
    }

    async fn dead_letter_recorded(
        &self,
        consumer: Consumer<'_>,
        letters: &[DeadLetter],
    ) -> Result<Vec<StreamId>, Error> {
        self.say_ids("burying", None, letters.iter().map(|letter| &letter.origin));
        self.plan.pass(Step::Burying, &self.journal);
        let moved = self.or_die(Step::BurySent, self.inner.dead_letter(consumer, letters)).await;
        match &moved {
            Ok(moved) => {
                self.say_ids("buried", None, moved);
                self.plan.pass(Step::Buried, &self.journal);
            }
            Err(_) => self.say_ids("unburied", None, letters.iter().map(|letter| &letter.origin)),
        }
        moved
    }

    async fn extend_recorded(
        &self,
        consumer: Consumer<'_>,
        ids: &[StreamId],
    ) -> Result<Vec<StreamId>, Error> {
        let asked = now_ms();
        let ours = self.inner.extend(consumer, ids).await?;
        if !ours.is_empty() {
            self.say_ids("kept", Some(asked), &ours);
        }
        let lost: Vec<&StreamId> = ids.iter().filter(|id| !ours.contains(id)).collect();
        if !lost.is_empty() {
            self.say_ids("lost", None, lost);
        }
        Ok(ours)
    }
}

/// Calls that go through as they are.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        fn $name<'a>(&'a self, $($argument: $kind),*) -> Answer<'a, $answer> {
            self.inner.$name($($argument),*)
        }
    )*};
}

impl Backend for Recording {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(Arc::clone(&self.inner))
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>> {
        Box::pin(async move {
            let asked = now_ms();
            let deliveries = self.inner.read(read).await?;
            self.acknowledge_too_early(read, &deliveries).await;
            self.got(asked, &deliveries);
            Ok(deliveries)
        })
    }

    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> Answer<'a, Claimed> {
        Box::pin(async move {
            let asked = now_ms();
            let claimed = self.inner.autoclaim(consumer, min_idle, from, count).await?;
            self.got(asked, &claimed.deliveries);
            Ok(claimed)
        })
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> Answer<'a, u64> {
        Box::pin(self.acknowledge_recorded(stream, group, done))
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>> {
        Box::pin(self.dead_letter_recorded(consumer, letters))
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> Answer<'a, Vec<StreamId>> {
        Box::pin(self.extend_recorded(consumer, ids))
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> Answer<'a, u64> {
        let words = rows.iter().map(|row| format!("{}:{}", row.id, row.deliveries));
        self.journal.say("releasing", words);
        self.inner.release(consumer, rows)
    }

    pass_on! {
        add(stream: &'a str, entries: &'a [NewEntry], trim: Option<Trim>) -> Vec<StreamId>;
        create_group(stream: &'a str, group: &'a str, start: Start) -> bool;
        own_pending(consumer: Consumer<'a>, after: StreamId, count: usize) -> Vec<Delivery>;
        seen(keys: &'a [String]) -> Vec<bool>;
        stream(stream: &'a str) -> Option<StreamInfo>;
    }
}
