//! Calls to the store: repeated until they succeed, with one log line per outage. If a call finds that the group was
//! deleted, creates it again.

use std::time::Duration;

use millstream_protocol::ids::parse_id;
use tracing::warn;

use super::Core;
use crate::backend::{BackendFuture, Error, ErrorKind, Start, StreamId};
use crate::worker::message::Releasing;
use crate::worker::stream::{Operation, StoreBackoff, StreamTrouble, Subscription};

impl Core {
    /// Releases messages that were removed from `in_flight`. Returns how many, or `None` if the call did not succeed
    /// (see [`call_until_ok`](Core::call_until_ok)).
    pub(crate) async fn release(&self, subscription: &Subscription, releasing: Releasing<'_>) -> Option<u64> {
        let call = || {
            let rows = releasing.not_redelivered();
            Box::pin(async move { self.backend.release(subscription.as_consumer(), &rows).await })
                as BackendFuture<'_, u64>
        };
        self.call_until_ok(subscription, Operation::Settling, call).await
    }

    /// Calls the store until the call succeeds. Returns `None` if repeating the call is no use: the group was
    /// deleted (and is created again), the store is closed, or the worker gives up.
    pub(crate) async fn call_until_ok<'a, T>(
        &self,
        subscription: &Subscription,
        operation: Operation,
        call: impl Fn() -> BackendFuture<'a, T>,
    ) -> Option<T> {
        self.call_until_ok_or_final(subscription, operation, |_| false, call).await?.ok()
    }

    /// Like [`call_until_ok`](Core::call_until_ok), but returns an error for which `is_final` is true.
    pub(crate) async fn call_until_ok_or_final<'a, T>(
        &self,
        subscription: &Subscription,
        operation: Operation,
        is_final: impl Fn(&Error) -> bool,
        call: impl Fn() -> BackendFuture<'a, T>,
    ) -> Option<Result<T, Error>> {
        let mut backoff = StoreBackoff::new();
        loop {
            match call().await {
                Ok(answer) => {
                    self.record_success(subscription, operation);
                    return Some(Ok(answer));
                }
                Err(error) if is_final(&error) => return Some(Err(error)),
                Err(error) => self.handle_error(subscription, operation, &error, &mut backoff).await?,
            }
        }
    }

    /// Handles a failed call. Waits and returns `Some` if the caller should call again, otherwise `None`.
    pub(crate) async fn handle_error(
        &self,
        subscription: &Subscription,
        operation: Operation,
        error: &Error,
        backoff: &mut StoreBackoff,
    ) -> Option<()> {
        if operation == Operation::Settling {
            subscription.metrics.ack_errors.increment();
        }
        match error.kind() {
            ErrorKind::NoGroup => {
                match self.pattern.as_ref().filter(|_| subscription.is_discovered) {
                    Some(pattern) => pattern.report(subscription, StreamTrouble::NoGroup),
                    None => self.recreate_group(subscription, operation, backoff).await,
                }
                None
            }
            ErrorKind::Closed => {
                self.fail(Error::new(ErrorKind::Closed, error.to_string()));
                None
            }
            _ => {
                if subscription.outage.record_failure(
                    &self.backend.location(),
                    &subscription.stream,
                    operation,
                    error,
                ) {
                    subscription.metrics.backend_up.set(0.0);
                }
                self.sleep_unless_giving_up(backoff.next_delay()).await
            }
        }
    }

    /// Records a successful call, which can end an outage.
    pub(crate) fn record_success(&self, subscription: &Subscription, operation: Operation) {
        if subscription.outage.record_success(&self.backend.location(), &subscription.stream, operation) {
            subscription.metrics.backend_up.set(1.0);
            subscription.metrics.backend_reconnects.increment();
        }
    }

    /// Sleeps. Returns `None` early if the worker gives up.
    async fn sleep_unless_giving_up(&self, time: Duration) -> Option<()> {
        tokio::select! {
            () = tokio::time::sleep(time) => Some(()),
            () = self.giving_up.cancelled() => None,
        }
    }

    /// Creates a deleted group again.
    async fn recreate_group(
        &self,
        subscription: &Subscription,
        operation: Operation,
        backoff: &mut StoreBackoff,
    ) {
        let _one_at_a_time = subscription.group_recreation.lock().await;
        // If this fails, or another task has created the group, the caller's next call will show it.
        let created = async {
            let start = self.start_of_recreated_group(subscription).await?;
            let is_new = self.backend.create_group(&subscription.stream, &subscription.group, start).await?;
            Ok(is_new.then_some(start))
        };
        let created = created.await;
        // Only reads are sure to be repeated, and so to end the outage.
        if let (Err(error), Operation::Reading) = (&created, operation) {
            let location = self.backend.location();
            subscription.outage.record_failure(&location, &subscription.stream, operation, error);
        }
        if let Ok(Some(start)) = created {
            self.counters.group_recreated();
            let (stream, group, position) = (&*subscription.stream, &*subscription.group, start);
            let start = match start {
                Start::Beginning => "the beginning".to_owned(),
                Start::End => "the end".to_owned(),
                Start::After(id) => format!("after {id}"),
            };
            warn!(stream, group, start, "the consumer group did not exist: created it again");
            // If this fails, a message that waited is not delivered again, as one that was in flight in another worker.
            let _ = self.restore_waiting(subscription, position).await;
        }
        // If another client deletes the group again and again, this delay prevents a busy loop.
        self.sleep_unless_giving_up(backoff.next_delay()).await;
    }

    /// Makes the messages that waited for their next attempt pending again, unless a group that starts here reads them.
    async fn restore_waiting(&self, subscription: &Subscription, start: Start) -> Result<(), Error> {
        let (Some(admin), false) = (&self.admin, start == Start::Beginning) else { return Ok(()) };
        for field in admin.hash_fields(&subscription.retry_key).await? {
            let Ok(id) = parse_id(field.as_bytes()) else { continue };
            if !matches!(start, Start::After(last) if id > last) {
                admin.restore(&subscription.stream, &subscription.group, id).await?;
            }
        }
        Ok(())
    }

    /// Returns where a recreated group starts to read.
    ///
    /// * If this worker has read nothing yet: at the configured start.
    /// * If the stream was deleted or replaced: at the beginning of the stream.
    /// * Otherwise: before the first message in flight, so that the group delivers all messages in flight again. If
    ///   none is in flight: after the last message that was read.
    pub(crate) async fn start_of_recreated_group(&self, subscription: &Subscription) -> Result<Start, Error> {
        let last = subscription.last_read();
        if last == StreamId::MIN {
            return Ok(self.settings.start);
        }
        match self.backend.stream(&subscription.stream).await {
            Ok(Some(info)) if info.last_id >= last => {
                let first = subscription.in_flight.smallest_id().and_then(StreamId::prev);
                Ok(Start::After(first.map_or(last, |first| first.min(last))))
            }
            Err(error) if error.is_transient() => Err(error),
            _ => Ok(Start::Beginning),
        }
    }
}
