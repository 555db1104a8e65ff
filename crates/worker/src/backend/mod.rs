//! What the worker asks of a store of streams, in one small trait.
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
use std::time::Duration;

pub use embedded::Embedded;
pub use error::{Error, ErrorKind};
pub use millstream_engine::StreamId;
pub use redis::{Certificates, Redis};
pub use types::{
    Capabilities, Claimed, ConsumerInfo, DeadLetter, Delivery, Entry, Fields, GroupInfo, Idempotence,
    NewEntry, Order, PendingFilter, PendingRow, PendingSummary, Range, Read, Release, Settlement, Start,
    StreamInfo, Trim,
};

/// An answer on its way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A store of streams and consumer groups.
pub trait Backend: Send + Sync + 'static {
    /// What the store does natively. Known once connected.
    fn capabilities(&self) -> Capabilities;

    /// Where the store is, for people: a URL without its password, or a folder.
    fn place(&self) -> String;

    /// Answers if the store does.
    fn ping(&self) -> Answer<'_, ()>;

    // Producing

    /// Adds entries to the end of a stream, in one round trip, and gives their ids in the same order.
    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> Answer<'a, Vec<StreamId>>;

    // Groups and consumers

    /// Makes the group, and the stream if need be. False if it was there: then nothing has changed.
    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, bool>;

    /// Moves the group's position, forwards or back.
    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, ()>;

    /// Removes the group with its pending rows. False if it was not there.
    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, bool>;

    /// The stream's groups by name; none if there is no such stream.
    fn groups<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<GroupInfo>>;

    /// The group's consumers by name.
    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<ConsumerInfo>>;

    /// Removes a consumer after its pending rows have become the heir's, in one step: nothing is lost, whatever
    /// happens at the same time. Times and counts of the rows stay. Gives the number of rows that moved. Where the
    /// store cannot move a row whose entry is gone, the consumer stays with such rows until they are buried.
    fn remove_consumer<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        heir: &'a str,
    ) -> Answer<'a, u64>;

    /// Removes a consumer that holds nothing, in one step with looking whether it does. True if it is gone; false if it
    /// holds something, and stays.
    fn dismiss_consumer<'a>(&'a self, stream: &'a str, group: &'a str, consumer: &'a str)
    -> Answer<'a, bool>;

    // Reading

    /// New entries for a consumer, and idle ones too where [`Capabilities::read_claims`] says so.
    /// Empty after [`Read::block`] has passed in vain.
    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>>;

    /// The consumer's own pending entries after an id, as they are: delivery counts do not grow.
    /// Entries that are gone from the stream have no fields.
    fn own_pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        after: StreamId,
        count: usize,
    ) -> Answer<'a, Vec<Delivery>>;

    /// Takes over up to `count` pending entries, of any owner, that nobody has touched for `min_idle`, or that were
    /// released. Walks the whole group over several calls (see [`Claimed::next`]).
    fn claim_idle<'a>(
        &'a self,
        read: &'a Read<'a>,
        min_idle: Duration,
        from: StreamId,
    ) -> Answer<'a, Claimed>;

    // Settling

    /// Acknowledges, after remembering the named keys as seen. One round trip. Gives the number of rows acknowledged.
    fn settle<'a>(&'a self, stream: &'a str, group: &'a str, settlement: &'a Settlement) -> Answer<'a, u64>;

    /// Restarts the idle time of rows that are still this consumer's, and of no others; counts stay. Gives those ids.
    fn extend<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        ids: &'a [StreamId],
    ) -> Answer<'a, Vec<StreamId>>;

    /// Gives deliveries back that are still this consumer's and its last of that entry, to be claimed by anyone at once.
    /// Gives the number of rows.
    fn release<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        rows: &'a [Release],
    ) -> Answer<'a, u64>;

    /// Adds entries to a dead-letter stream and acknowledges their origins, each pair in one step, and only
    /// those that are still this consumer's, or anyone's whose entry is gone. Gives the ids that moved.
    fn bury<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>>;

    /// Makes an entry of the stream pending again in this group alone, claimable at once, as if never delivered.
    /// One that is pending stays as it is. False if the stream has no such entry.
    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> Answer<'a, bool>;

    /// Which of these keys were remembered by a [`Settlement`] and have not run out.
    fn seen<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<bool>>;

    // Looking

    /// The streams whose names match a glob pattern, by name.
    fn streams<'a>(&'a self, pattern: &'a str) -> Answer<'a, Vec<String>>;

    /// The stream as it is; `None` if there is none.
    fn stream<'a>(&'a self, stream: &'a str) -> Answer<'a, Option<StreamInfo>>;

    /// Entries of a stream.
    fn range<'a>(&'a self, stream: &'a str, range: Range) -> Answer<'a, Vec<Entry>>;

    /// The entries after an id as soon as there are any, without joining a group. Empty after `block`.
    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Answer<'a, Vec<Entry>>;

    /// What is pending in a group, summed up.
    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, PendingSummary>;

    /// The pending rows of a group, by id.
    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> Answer<'a, Vec<PendingRow>>;

    // Cleaning up

    /// Removes entries from a stream. Gives the number removed.
    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> Answer<'a, u64>;

    /// Removes a stream with its groups. False if there was none.
    fn delete_stream<'a>(&'a self, stream: &'a str) -> Answer<'a, bool>;
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

/// Who inherits is somebody else.
fn check_heir(consumer: &str, heir: &str) -> Result<(), Error> {
    if consumer != heir {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Refused, format!("{consumer} cannot be its own heir; name another consumer")))
}
