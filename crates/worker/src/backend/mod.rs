//! What the worker asks of a store of streams, in two traits.
//!
//! [`Backend`] is what producers and workers need to work; [`Admin`] is what it takes to look at streams and groups and
//! to administer them. A store that has only the first runs workers, without autoscaling, backlog metrics and the
//! removal of dead consumers.
//!
//! Three kinds of store stand behind it: the embedded engine, any server that speaks Redis' protocol, and a
//! Redis or Valkey Cluster. No type of theirs appears here. What a server cannot do natively is emulated by
//! its backend, found out by probing and never by its version; callers see one behaviour.
//!
//! All calls may be made at the same time from any task. A read that waits has a connection of its own and holds
//! nobody up. A call that is dropped half-way may still have happened: reads are therefore never dropped by the runtime.

mod embedded;
mod error;
mod redis;
mod types;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use embedded::Embedded;
pub use error::{Error, ErrorKind};
pub use millstream_engine::StreamId;
pub use redis::{Certificates, Redis};
pub use types::{
    Acknowledgement, Capabilities, Claimed, Consumer, ConsumerInfo, DeadLetter, Delivery, Entry, Fields,
    GroupInfo, Idempotence, NewEntry, Order, PendingFilter, PendingRow, PendingSummary, Range, Read, Release,
    ServerInfo, Start, StreamInfo, Trim,
};

/// How many entries or rows are asked for in one call where all are wanted.
const PAGE: usize = 1000;

/// An answer on its way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What producers and workers need of a store: to add, read, claim, keep, and finish with entries.
pub trait Backend: Send + Sync + 'static {
    /// What the store does natively. Known once connected.
    fn capabilities(&self) -> Capabilities;

    /// Where the store is, for people: a URL without its password, or a folder.
    fn place(&self) -> String;

    /// The same store for administration, if it can be administered.
    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        None
    }

    /// Adds entries to the end of a stream, in one round trip, and gives their ids in the same order.
    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> Answer<'a, Vec<StreamId>>;

    /// Makes the group, and the stream if need be. False if it was there: then nothing has changed.
    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, bool>;

    /// The stream as it is; `None` if there is none.
    fn stream<'a>(&'a self, stream: &'a str) -> Answer<'a, Option<StreamInfo>>;

    /// New entries for a consumer, and idle ones too where [`Capabilities::read_claims`] says so.
    /// Empty after [`Read::block`] has passed in vain.
    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>>;

    /// The consumer's own pending entries after an id, as they are: delivery counts do not grow.
    /// Entries that are gone from the stream have no fields.
    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> Answer<'a, Vec<Delivery>>;

    /// Claims up to `count` pending entries from an id on, of any owner, that nobody has touched for `min_idle`, or that
    /// were released. Walks the whole group over several calls (see [`Claimed::next`]): a call may claim nothing and still
    /// not be the last.
    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> Answer<'a, Claimed>;

    /// Acknowledges, after remembering the named keys as seen. One round trip. Gives the number of rows acknowledged.
    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> Answer<'a, u64>;

    /// Which of these keys were remembered by an [`Acknowledgement`] and have not expired.
    fn seen<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<bool>>;

    /// Restarts the idle time of rows that are still this consumer's, and of no others; counts stay. Gives those ids.
    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> Answer<'a, Vec<StreamId>>;

    /// Releases deliveries that are still this consumer's and its last of that entry, to be claimed by anyone at once.
    /// Gives the number of rows. Where the store cannot release a row whose entry is gone, the row stays the consumer's
    /// until it is dead-lettered.
    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> Answer<'a, u64>;

    /// Adds entries to a dead-letter stream and acknowledges their origins, each pair in one step, and only
    /// those that are still this consumer's, or anyone's whose entry is gone. Gives the ids that moved.
    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>>;
}

/// What it takes to look at the streams and groups of a store, and to administer them.
pub trait Admin: Backend {
    /// Answers if the store does.
    fn ping(&self) -> Answer<'_, ()>;

    /// What the server behind the store tells about itself, and the settings of these names; of a cluster, one of its
    /// servers. `None` if the store has no server.
    fn server<'a>(&'a self, _settings: &'a [&'a str]) -> Answer<'a, Option<ServerInfo>> {
        Box::pin(async { Ok(None) })
    }

    // Streams

    /// The streams whose names match a glob pattern, by name.
    fn streams<'a>(&'a self, pattern: &'a str) -> Answer<'a, Vec<String>>;

    /// Entries of a stream.
    fn range<'a>(&'a self, stream: &'a str, range: Range) -> Answer<'a, Vec<Entry>>;

    /// All entries of a stream, in as many calls as it takes.
    fn all_entries<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<Entry>> {
        Box::pin(async move {
            let (mut all, mut next) = (Vec::new(), Some(StreamId::MIN));
            while let Some(first) = next {
                let page = self.range(stream, Range::rising(first, PAGE)).await?;
                next = page.last().filter(|_| page.len() == PAGE).and_then(|entry| entry.id.next());
                all.extend(page);
            }
            Ok(all)
        })
    }

    /// The entries after an id as soon as there are any, without joining a group. Empty after `block`.
    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Answer<'a, Vec<Entry>>;

    /// Removes entries from a stream. Gives the number removed.
    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> Answer<'a, u64>;

    /// Removes a stream with its groups. False if there was none.
    fn delete_stream<'a>(&'a self, stream: &'a str) -> Answer<'a, bool>;

    // Groups

    /// The stream's groups by name; none if there is no such stream.
    fn groups<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<GroupInfo>>;

    /// Moves the group's position, forwards or back.
    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, ()>;

    /// Removes the group with its pending rows. False if it was not there.
    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, bool>;

    /// What is pending in a group, summed up.
    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, PendingSummary>;

    /// The pending rows of a group, by id.
    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> Answer<'a, Vec<PendingRow>>;

    /// All pending rows of a group, in as many calls as it takes.
    fn all_pending<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<PendingRow>> {
        Box::pin(async move {
            let (mut all, mut next) = (Vec::new(), Some(StreamId::MIN));
            while let Some(first) = next {
                let page = self.pending(stream, group, &PendingFilter::rising(first, PAGE)).await?;
                next = page.last().filter(|_| page.len() == PAGE).and_then(|row| row.id.next());
                all.extend(page);
            }
            Ok(all)
        })
    }

    /// Makes an entry of the stream pending again in this group alone, claimable at once, as if never delivered.
    /// One that is pending stays as it is. False if the stream has no such entry.
    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> Answer<'a, bool>;

    // Consumers

    /// The group's consumers by name.
    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<ConsumerInfo>>;

    /// Removes a consumer after its pending rows have become the heir's, in one step: nothing is lost, whatever
    /// happens at the same time. Times and counts of the rows stay. Gives the number of rows that moved. An
    /// heir that is new joins only if a row moves. Where the store cannot move a row whose entry is gone, the consumer
    /// stays with such rows until they are dead-lettered.
    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> Answer<'a, u64>;

    /// Removes a consumer without pending rows, in one step with looking whether it has any. True if it is gone;
    /// false if it has some, and stays.
    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> Answer<'a, bool>;
}

/// An entry has at least one field.
fn check_entries(entries: &[NewEntry]) -> Result<(), Error> {
    if entries.iter().any(|entry| entry.fields.is_empty()) { Err(no_fields()) } else { Ok(()) }
}

fn check_letters(letters: &[DeadLetter]) -> Result<(), Error> {
    if letters.iter().any(|letter| letter.fields.is_empty()) { Err(no_fields()) } else { Ok(()) }
}

fn no_fields() -> Error {
    Error::new(ErrorKind::Refused, "an entry needs at least one field; give it one")
}
